"""What is known of published datasets, and the commands that list, get and verify them."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from kit.commands import invoke
from kit.publisher import publisher
from kit.tiny import BODY, contents, offer, one_sentence

from lossbench.core.errors import DataError
from lossbench.data.download import sources
from lossbench.data.download.fetch import get, state, verify
from lossbench.data.download.sources import SOURCES, Piece, Source


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with publisher() as running:
        yield running


def test_a_set_that_comes_by_hand_says_how(tmp_path):
    source = Source(
        *("tiny", "A set", 1, 1, "none", "nobody", ""),
        pieces=(Piece("faces/*/*.jpg", None),),
        instructions="ask http://publisher.example",
    )
    with pytest.raises(DataError) as caught:
        get(source, tmp_path)
    assert one_sentence(str(caught.value), "http://publisher.example", tmp_path / "faces/*/*.jpg")
    assert [check.status for check in verify(source, tmp_path)] == ["missing"]
    (tmp_path / "faces/anna").mkdir(parents=True)
    (tmp_path / "faces/anna/1.jpg").write_bytes(b"")
    get(source, tmp_path)
    assert [(check.status, check.detail) for check in verify(source, tmp_path)] == [("ok", "1 file")]


def test_a_smaller_relative_serves_but_a_broken_original_does_not(tmp_path):
    piece = Piece("tiny-200/*.JPEG", 3, instead="tiny-*/*.JPEG")
    source = Source("tiny", "A set", 1, 1, "none", "nobody", "", pieces=(piece,))
    (tmp_path / "tiny-100").mkdir()
    (tmp_path / "tiny-100/1.JPEG").write_bytes(b"")
    assert state(source, tmp_path) == "yes"
    assert [(check.status, check.detail) for check in verify(source, tmp_path)] == [
        ("ok", "1 of 3 files: part of the dataset")
    ]
    (tmp_path / "tiny-200").mkdir()
    (tmp_path / "tiny-200/1.JPEG").write_bytes(b"")
    assert [(check.status, check.detail) for check in verify(source, tmp_path)] == [("wrong", "1 files instead of 3")]


def test_every_known_set_is_complete_and_consistent():
    places = [file.place for source in SOURCES.values() for file in source.files]
    assert len(set(places)) == len(places)
    for name, source in SOURCES.items():
        assert name == source.name
        assert source.title and source.licence and source.citation
        assert source.files or source.instructions
        for file in source.files:
            assert re.fullmatch("[0-9a-f]{64}", file.sha256)
            assert re.fullmatch("[0-9a-f]{32}", file.md5)
            assert all(address.startswith(("http://", "https://")) for address in file.addresses)
            assert "python.tar" not in file.place  # CIFAR's pickles
            assert not file.unpack or all(piece.path.startswith(file.unpack + "/") for piece in file.pieces)
    everything = [piece for source in SOURCES.values() for file in source.files for piece in file.pieces]
    hashes = [piece.sha256 for piece in everything if piece.sha256]
    assert len(set(hashes)) == len(hashes)


def source_of(package, module):
    spec = importlib.util.find_spec(package)  # finds it, does not import it
    if spec is None:
        pytest.skip(f"{package} is not installed")
    return (Path(spec.origin).parent / module).read_text()


@pytest.mark.parametrize(
    ("name", "module"),
    [("mnist", "mnist"), ("fashion_mnist", "mnist"), ("omniglot", "omniglot"), ("lfw", "lfw")],
)
def test_our_checksums_are_those_of_torchvision(name, module):
    text = source_of("torchvision", f"datasets/{module}.py")
    for file in SOURCES[name].files:
        stem = Path(file.place).name.removesuffix(".zip")
        assert re.search(rf'"{stem}"[:,] "{file.md5}"', text), file.place


def test_our_checksums_of_lfw_are_those_of_scikit_learn():
    text = source_of("sklearn", "datasets/_lfw.py")
    for file in SOURCES["lfw"].files:
        found = rf'filename="{Path(file.place).name}",\s+url="{file.addresses[0]}",\s+checksum="{file.sha256}"'
        assert re.search(found, text), file.place


@pytest.mark.data
@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "tiny_imagenet", "omniglot", "lfw"])
def test_real_copies_are_as_published(name):
    if not os.environ.get("LOSSBENCH_DATA"):
        pytest.skip("$LOSSBENCH_DATA is not set")
    folder = Path(os.environ["LOSSBENCH_DATA"])
    if state(SOURCES[name], folder) != "yes":
        pytest.skip(f"{name} is not in {folder}")
    checks = verify(SOURCES[name], folder)
    assert {check.status for check in checks} == {"ok"}, checks
    get(SOURCES[name], folder)  # fetches nothing: it is here


@pytest.mark.data
def test_the_published_fashion_mnist_differs_from_a_copy_by_the_time_in_its_header_alone():
    """Proves sha256 and md5 of the published files from any copy that gzip packed: only name and time differ."""
    folder = Path(os.environ.get("LOSSBENCH_DATA", "/nowhere"))
    for file in SOURCES["fashion_mnist"].files:
        if not (folder / file.place).is_file():
            pytest.skip(f"{file.place} is not in $LOSSBENCH_DATA")
        packed_ = (folder / file.place).read_bytes()
        if packed_[3] != 0:
            pytest.skip("the copy's header is not the short one")
        time_ = 1504176606 if "train" in file.place else 1504176627  # 31 August 2017
        name = Path(file.place).stem.encode() + b"\0"
        body = b"\x1f\x8b\x08\x08" + time_.to_bytes(4, "little") + b"\0\3" + name + packed_[10:]
        assert hashlib.sha256(body).hexdigest() == file.sha256
        assert hashlib.md5(body).hexdigest() == file.md5


# The command line


def test_list_tells_what_is_here_sizes_licences_and_citations(tmp_path):
    (tmp_path / "data/mnist").mkdir(parents=True)
    (tmp_path / "data/mnist/train-images-idx3-ubyte").write_bytes(b"")
    told = invoke("data", "list", "--data", tmp_path / "data")
    assert (told.returncode, told.stderr) == (0, "")
    for name, source in SOURCES.items():
        assert re.search(rf"^ +{name} +(yes|partly|no) .*{re.escape(source.licence)}", told.stdout, re.MULTILINE), name
        assert source.citation in " ".join(told.stdout.split())
    for row in (r"mnist +partly +70,000 +10 +11\.1 MiB +52\.4 MiB", r"cifar10 +no", r"digits +yes +1,797 +10 +– "):
        assert re.search(row, told.stdout), row
    assert "http://www.cbsr.ia.ac.cn" in told.stdout
    verbose = invoke("data", "list", "-v", "--data", tmp_path / "data").stdout
    for file in (file for source in SOURCES.values() for file in source.files):
        assert file.place in verbose
        assert file.sha256 in verbose
        assert all(address in verbose for address in file.addresses)


def test_list_finds_the_folder_in_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("LOSSBENCH_DATA", str(tmp_path / "here"))
    told = invoke("data", "list")
    assert f"Datasets in {tmp_path / 'here'}" in told.stdout
    assert not (tmp_path / "here").exists()


def test_list_imports_nothing_heavy():
    code = """
import sys
import urllib.request
from lossbench.cli.commands import cli
cli.main(["data", "list"], standalone_mode=False)
print([name for name in ("torch", "pandas", "sklearn", "scipy", "matplotlib", "pydantic") if name in sys.modules])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip().splitlines()[-1] == "[]"


@pytest.mark.parametrize("what", ["get", "verify"])
def test_an_unknown_name_is_one_sentence_before_anything_happens(tmp_path, what):
    told = invoke("data", what, "digits", "fashon_mnist", "--data", tmp_path / "data")
    assert told.returncode == 2
    assert told.stderr == "lossbench: unknown dataset 'fashon_mnist'; did you mean 'fashion_mnist'?\n"
    assert told.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_get_says_of_sets_that_need_no_fetching_why(tmp_path):
    told = invoke("data", "get", "digits", "glyphs", "--data", tmp_path / "data")
    assert told.returncode == 0
    assert told.stdout.splitlines() == [
        f"digits is available: {sources.DIGITS.instructions}",
        f"glyphs is available: {sources.GLYPHS.instructions}",
    ]
    assert list(tmp_path.iterdir()) == []


def test_get_without_network_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(urllib.request, "_opener", None)  # else the proxies of the first request are kept
    monkeypatch.setenv("no_proxy", "")
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    told = invoke("data", "get", "mnist", "--data", tmp_path)
    assert told.returncode == 2
    assert len(told.stderr.splitlines()) == 1
    first = SOURCES["mnist"].files[0]
    for part in (*first.addresses, "Connection refused", str(tmp_path / first.place)):
        assert part in told.stderr
    assert contents(tmp_path) == []


def test_get_of_a_set_under_agreement_says_whom_to_ask(tmp_path):
    told = invoke("data", "get", "casia_webface", "--data", tmp_path)
    assert told.returncode == 2
    assert len(told.stderr.splitlines()) == 1
    assert "licence agreement (http://www.cbsr.ia.ac.cn" in told.stderr
    assert str(tmp_path / "casia_webface/*/*.jpg") in told.stderr


def test_verify_tells_right_from_wrong_and_missing(server, tmp_path, monkeypatch):
    one, two, three = (offer(server, BODY, f"set/{name}").files[0] for name in ("one.bin", "two.bin", "three.bin"))
    source = Source("tiny", "A set", 1, 1, "none", "nobody", "", (one, two, three))
    (tmp_path / "set").mkdir()
    (tmp_path / "set/one.bin").write_bytes(BODY)
    (tmp_path / "set/two.bin").write_bytes(BODY[:-1] + b"x")

    monkeypatch.setitem(SOURCES, "tiny", source)

    def checked(*names):
        said = invoke("data", "verify", *names, "--data", tmp_path)
        return said.returncode, said.stdout

    code, told = checked("tiny")
    assert code == 1
    assert re.search(r"set/one.bin +ok +checksum as published", told)
    assert re.search(rf"set/two.bin +wrong +sha256 expected {two.sha256[:12]}…, got [0-9a-f]{{12}}…", told)
    assert re.search(r"set/three.bin +missing +not found", told)
    assert told.endswith("tiny  1 ok, 1 wrong, 1 missing\n")
    for name in ("two.bin", "three.bin"):
        (tmp_path / "set" / name).write_bytes(BODY)
    code, told = checked()  # all that is here
    assert code == 0
    assert told.endswith("tiny  3 ok\n")


def test_verify_of_an_empty_folder_says_so(tmp_path):
    told = invoke("data", "verify", "--data", tmp_path / "data")
    assert told.returncode == 0
    assert told.stdout.startswith("no dataset in ")
