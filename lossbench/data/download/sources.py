"""Where each dataset comes from: addresses, checksums, sizes, licence, citation, and its files once downloaded.

Only publishers' addresses and the mirrors that torchvision, TensorFlow Datasets or scikit-learn use. Every download is
checked, so an address without TLS is no risk. The origin of each checksum is noted beside it:

  [torchvision]  md5 in torchvision/datasets/{mnist,omniglot,lfw}.py
  [tfds]         sha256 and size in tensorflow_datasets/url_checksums/{mnist,fashion_mnist,cifar10,…}.txt, which were
                 recorded from the publishers' addresses
  [sklearn]      sha256 in sklearn/datasets/_lfw.py
  [copy]         computed from a copy of the data itself

`tests/data/test_sources.py` compares them with the torchvision and scikit-learn that are installed.
"""

from __future__ import annotations

from dataclasses import dataclass

from lossbench.core.errors import DataError, nearest


@dataclass(frozen=True)
class Piece:
    """Part of a downloaded dataset: one file, or all files that match a pattern."""

    path: str  # under the data folder; `*` stands for any name
    count: int | None = 1  # how many files match; None: any number but zero
    size: int | None = None
    sha256: str = ""
    instead: str = ""  # a pattern of files that may serve instead, such as the dataset with fewer classes


@dataclass(frozen=True)
class File:
    """One file as its publisher offers it."""

    place: str  # where it belongs under the data folder
    addresses: tuple[str, ...]  # the same file at each, tried in this order
    size: int
    sha256: str
    md5: str = ""
    unpack: str = ""  # of an archive: where the one folder in it belongs under the data folder
    pieces: tuple[Piece, ...] = ()  # of an archive: its content; of a gzipped file: the unpacked file


@dataclass(frozen=True)
class Source:
    """One dataset. Without `files` it cannot be downloaded; without `files` and `pieces` it needs nothing on disk."""

    name: str
    title: str
    images: int | None
    classes: int | None
    licence: str
    citation: str
    page: str
    files: tuple[File, ...] = ()
    pieces: tuple[Piece, ...] = ()  # of a dataset that is installed by hand
    unpacked: int | None = None  # bytes of images and labels, where they are known exactly
    instructions: str = ""  # how to get a dataset that cannot be downloaded, or why there is no need to
    beside: tuple[str, ...] = ()  # other datasets that it needs

    @property
    def embedded(self) -> bool:
        """Whether it needs no files: it is installed with a library, or drawn."""
        return not self.files and not self.pieces

    @property
    def download(self) -> int | None:
        """Bytes to download."""
        return sum(file.size for file in self.files) or None


def find(name: str) -> Source:
    if name not in SOURCES:
        raise DataError(f"unknown dataset '{name}'; {nearest(name, SOURCES)}")
    return SOURCES[name]


_IDX = {  # the four files of MNIST and its kin → bytes when unpacked
    "train-images-idx3-ubyte": 47_040_016,
    "train-labels-idx1-ubyte": 60_008,
    "t10k-images-idx3-ubyte": 7_840_016,
    "t10k-labels-idx1-ubyte": 10_008,
}


def _idx(folder: str, mirrors: tuple[str, ...], *rows: tuple[int, str, str, str]) -> tuple[File, ...]:
    """Four gzipped IDX files, usable unzipped as well; a row is size, sha256, md5, sha256 of the unzipped file."""
    return tuple(
        File(
            f"{folder}/{stem}.gz",
            tuple(f"{mirror}{stem}.gz" for mirror in mirrors),
            size,
            sha256,
            md5,
            pieces=(Piece(f"{folder}/{stem}", size=unpacked, sha256=raw),),
        )
        for (stem, unpacked), (size, sha256, md5, raw) in zip(_IDX.items(), rows, strict=True)
    )


MNIST = Source(
    name="mnist",
    title="MNIST handwritten digits, 28×28 gray",
    images=70_000,
    classes=10,
    licence="CC BY-SA 3.0",
    citation="LeCun, Bottou, Bengio & Haffner: Gradient-based learning applied to document recognition. "
    "Proc. IEEE 86(11), 1998",
    page="http://yann.lecun.com/exdb/mnist/",
    unpacked=sum(_IDX.values()),
    files=_idx(
        "mnist",
        (  # the publisher's server, the last, often refuses; the others are PyTorch's and TensorFlow's mirrors
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
            "http://yann.lecun.com/exdb/mnist/",
        ),
        # size and sha256 [tfds], md5 [torchvision], sha256 when unpacked [copy]
        (
            9_912_422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        (
            28_881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        (
            1_648_877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "9fb629c4189551a2d022fa330f9573f3",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        (
            4_542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            "ec29112dd5afa0611ce80d1b7f02629c",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
)

FASHION_MNIST = Source(
    name="fashion_mnist",
    title="Fashion-MNIST, pictures of clothes, 28×28 gray",
    images=70_000,
    classes=10,
    licence="MIT",
    citation="Xiao, Rasul & Vollgraf: Fashion-MNIST: a novel image dataset for benchmarking machine learning "
    "algorithms. arXiv:1708.07747, 2017",
    page="https://github.com/zalandoresearch/fashion-mnist",
    unpacked=sum(_IDX.values()),
    files=_idx(
        "fashion_mnist",
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        # size and sha256 [tfds], md5 [torchvision], sha256 when unpacked [copy]; the test data proves the other three
        # too: with the publisher's time in its gzip header, the [copy] has them
        (
            26_421_880,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        ),
        (
            29_515,
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        ),
        (
            4_422_102,
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "bef4ecab320f06d8554ea6380940ec79",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        ),
        (
            5_148,
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            "bb300cfdad3c16e7a12a480ee83cd310",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
)


def _cifar(archive: str) -> tuple[str, ...]:
    # The first redirects to the second. The archives of pickles are never used: reading a pickle runs it.
    return f"https://www.cs.toronto.edu/~kriz/{archive}", f"https://cave.cs.toronto.edu/kriz/{archive}"


_KRIZHEVSKY = "Krizhevsky: Learning multiple layers of features from tiny images. Technical report, Toronto, 2009"

CIFAR10 = Source(
    name="cifar10",
    title="CIFAR-10, 32×32 colour",
    images=60_000,
    classes=10,
    licence="none stated",
    citation=_KRIZHEVSKY,
    page="https://www.cs.toronto.edu/~kriz/cifar.html",
    unpacked=184_380_000,
    files=(
        File(
            "cifar10/cifar-10-binary.tar.gz",
            _cifar("cifar-10-binary.tar.gz"),
            170_052_171,
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",  # sha256 and size [tfds]
            "c32a1d4ab5d03f1284b67883e8d87530",  # as printed on the publisher's page
            unpack="cifar10/cifar-10-batches-bin",
            pieces=tuple(  # [copy]
                Piece(f"cifar10/cifar-10-batches-bin/{name}.bin", size=30_730_000, sha256=sha256)
                for name, sha256 in {
                    "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                    "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                    "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                    "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                    "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
                    "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
                }.items()
            ),
        ),
    ),
)

CIFAR100 = Source(
    name="cifar100",
    title="CIFAR-100, 32×32 colour",
    images=60_000,
    classes=100,
    licence="none stated",
    citation=_KRIZHEVSKY,
    page="https://www.cs.toronto.edu/~kriz/cifar.html",
    unpacked=184_440_000,
    files=(
        File(
            "cifar100/cifar-100-binary.tar.gz",
            _cifar("cifar-100-binary.tar.gz"),
            168_513_733,
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",  # sha256 and size [tfds]
            "03b5dce01913d631647c71ecec9e9cb8",  # as printed on the publisher's page
            unpack="cifar100/cifar-100-binary",
            pieces=tuple(  # torchvision-ruby's cifar100.rb, whose cifar10.rb agrees with our [copy] of CIFAR-10
                Piece(f"cifar100/cifar-100-binary/{name}.bin", size=size, sha256=sha256)
                for name, size, sha256 in (
                    ("train", 153_700_000, "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
                    ("test", 30_740_000, "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
                )
            ),
        ),
    ),
)

TINY_IMAGENET = Source(
    name="tiny_imagenet",
    title="Tiny ImageNet, 64×64 colour",
    images=110_000,  # those with public labels
    classes=200,
    licence="ImageNet terms: research only",
    citation="Le & Yang: Tiny ImageNet visual recognition challenge. CS 231N, Stanford, 2015",
    page="",
    files=(
        File(
            "tiny-imagenet-200.zip",
            ("http://cs231n.stanford.edu/tiny-imagenet-200.zip", "https://cs231n.stanford.edu/tiny-imagenet-200.zip"),
            248_100_043,
            # Not published: size, sha256 and md5 as many public projects record them (the first two are also the
            # git-lfs identity of the copy in cnak47/cv-datasets on Hugging Face, the md5 is Avalanche's).
            "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
            "90528d7ca1a48142e341f4ef8d21d0de",
            unpack="tiny-imagenet-200",
            pieces=tuple(
                Piece(f"tiny-imagenet-200/{path}", count, instead=f"tiny-imagenet-*/{path}")
                for path, count in {
                    "train/*/images/*.JPEG": 100_000,
                    "val/images/*.JPEG": 10_000,
                    "val/val_annotations.txt": 1,
                }.items()
            ),
        ),
    ),
)


def _omniglot(part: str, size: int, sha256: str, md5: str, drawings: int) -> File:
    return File(
        f"omniglot/{part}.zip",
        (
            f"https://raw.githubusercontent.com/brendenlake/omniglot/master/python/{part}.zip",
            f"https://github.com/brendenlake/omniglot/raw/master/python/{part}.zip",
        ),
        size,
        sha256,
        md5,
        unpack=f"omniglot/{part}",
        pieces=(Piece(f"omniglot/{part}/*/*/*.png", drawings),),
    )


OMNIGLOT = Source(
    name="omniglot",
    title="Omniglot, characters of 50 alphabets, 105×105 black and white",
    images=32_460,
    classes=1_623,
    licence="MIT",
    citation="Lake, Salakhutdinov & Tenenbaum: Human-level concept learning through probabilistic program induction. "
    "Science 350(6266), 2015",
    page="https://github.com/brendenlake/omniglot",
    files=(  # sha256 and size [tfds], md5 [torchvision]
        _omniglot(
            "images_background",
            9_464_212,
            "ad41ab679c8b5d90b271ef46be6987cc81211774a695c29dcc5367b2b26ee640",
            "68d2efa1b9178cc56df9314c21c6e718",
            19_280,
        ),
        _omniglot(
            "images_evaluation",
            6_462_886,
            "1f61a8f3366785b057fc117d9228e78a16e3d976c8953b2a10fcc74cf0609cee",
            "6b91aef0f799c5bb55b94e3f2daec811",
            13_180,
        ),
    ),
)

LFW = Source(
    name="lfw",
    title="Labeled Faces in the Wild, 250×250 colour, with 6,000 pairs",
    images=13_233,
    classes=5_749,
    licence="none stated; press photos",
    citation="Huang, Ramesh, Berg & Learned-Miller: Labeled Faces in the Wild. Technical report 07-49, "
    "University of Massachusetts, Amherst, 2007",
    page="http://vis-www.cs.umass.edu/lfw/",
    files=(  # the publisher's server is often down; figshare's copies are those of scikit-learn
        File(
            "lfw.tgz",
            ("https://ndownloader.figshare.com/files/5976018", "http://vis-www.cs.umass.edu/lfw/lfw.tgz"),
            180_566_744,
            "055f7d9c632d7370e6fb4afc7468d40f970c34a80d4c6f50ffec63f5a8d536c0",  # [sklearn], and with the size [tfds]
            "a17d05bd522c52d84eca14327a23d494",  # [torchvision]
            unpack="lfw",
            pieces=(Piece("lfw/*/*.jpg", 13_233),),
        ),
        File(
            "lfw/pairs.txt",
            ("https://ndownloader.figshare.com/files/5976006", "http://vis-www.cs.umass.edu/lfw/pairs.txt"),
            155_335,
            "ea42330c62c92989f9d7c03237ed5d591365e89b3e649747777b70e692dc1592",  # [sklearn], [copy]
            "9f1ba174e4e1c508ff7cdf10ac338a7d",  # [torchvision], [copy]
        ),
    ),
)

CASIA_WEBFACE = Source(
    name="casia_webface",
    title="CASIA-WebFace, 250×250 colour",
    images=494_414,
    classes=10_575,
    licence="agreement: research only",
    citation="Yi, Lei, Liao & Li: Learning face representation from scratch. arXiv:1411.7923, 2014",
    page="http://www.cbsr.ia.ac.cn/english/CASIA-WebFace-Database.html",
    pieces=(Piece("casia_webface/*/*.jpg", None),),  # cleaned and aligned versions have fewer
    instructions="only its publishers provide it, after signing their licence agreement "
    "(http://www.cbsr.ia.ac.cn/english/CASIA-WebFace-Database.html)",
    beside=("lfw",),  # whose pairs it is tested on
)

DIGITS = Source(
    name="digits",
    title="Handwritten digits, 8×8 gray",
    images=1_797,
    classes=10,
    licence="CC BY 4.0",
    citation="Alpaydin & Kaynak: Optical recognition of handwritten digits. UCI Machine Learning Repository, 1998",
    page="https://archive.ics.uci.edu/dataset/80",
    instructions="it is part of scikit-learn; no download needed",
)

GLYPHS = Source(
    name="glyphs",
    title="Drawn characters, any number of images",
    images=None,
    classes=None,
    licence="MIT",
    citation="lossbench itself",
    page="",
    instructions="it is drawn on demand; no download needed",
)

SOURCES = {
    source.name: source
    for source in [
        *(DIGITS, GLYPHS, MNIST, FASHION_MNIST, CIFAR10, CIFAR100),
        *(TINY_IMAGENET, OMNIGLOT, LFW, CASIA_WEBFACE),
    ]
}
