"""Archives: unpacked whole or not at all, and never outside their folder."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from kit.publisher import HASTE, publisher
from kit.tiny import BODY, Told, contents, offer, one_sentence

from lossbench.core.errors import DataError
from lossbench.data.download.fetch import get, state, verify
from lossbench.data.download.sources import Piece


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with publisher() as running:
        yield running


GOOD = {"tree/a/1.png": b"one", "tree/a/2.png": b"two", "tree/b/1.png": b"three", "tree/readme": b"read"}


def tar(members, mode="w:gz"):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:
        for name, content in members.items():
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.name = name
            if isinstance(content, bytes):
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return stream.getvalue()


def zip_(members, method=zipfile.ZIP_DEFLATED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, member in members.items():
            content, mode = member if isinstance(member, tuple) else (member, 0o644)
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, content, method)
    return stream.getvalue()


def packed(server, body, place="set/tree.tar.gz", unpack="set/tree"):
    return offer(server, body, place, unpack=unpack, pieces=(Piece(f"{unpack}/*/*.png", 3),))


@pytest.mark.parametrize(
    ("place", "body"),
    [("set/tree.tar.gz", tar(GOOD)), ("set/tree.tgz", tar(GOOD)), ("set/tree.zip", zip_(GOOD))],
    ids=["tar.gz", "tgz", "zip"],
)
def test_an_archive_is_unpacked_and_then_left_alone(server, tmp_path, place, body):
    source = packed(server, body, place)
    assert state(source, tmp_path) == "no"
    get(source, tmp_path, None, HASTE)
    expected = sorted([place, *(f"set/{name}" for name in GOOD)])
    assert contents(tmp_path) == expected
    assert (tmp_path / "set/tree/b/1.png").read_bytes() == b"three"
    assert [check.status for check in verify(source, tmp_path)] == ["ok", "ok"]
    get(source, tmp_path, None, HASTE)
    (tmp_path / place).unlink()
    get(source, tmp_path, None, HASTE)  # the archive is not needed any more
    assert len(server.ranges) == 1
    assert state(source, tmp_path) == "yes"
    assert [check.status for check in verify(source, tmp_path)] == ["ok"]


def test_an_archive_placed_by_hand_is_unpacked(server, tmp_path):
    source = packed(server, tar(GOOD))
    (tmp_path / "set").mkdir()
    (tmp_path / "set/tree.tar.gz").write_bytes(server.bodies["tree.tar.gz"])
    assert state(source, tmp_path) == "partly"
    assert [check.status for check in verify(source, tmp_path)] == ["ok", "missing"]
    get(source, tmp_path, None, HASTE)
    assert server.ranges == []
    assert state(source, tmp_path) == "yes"


def test_a_set_unpacked_by_hand_is_here(server, tmp_path):
    source = packed(server, tar(GOOD))
    for name, content in GOOD.items():
        (tmp_path / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "set" / name).write_bytes(content)
    get(source, tmp_path, None, HASTE)
    assert server.ranges == []
    assert state(source, tmp_path) == "yes"
    (tmp_path / "set/tree/a/2.png").unlink()
    assert [(check.status, check.detail) for check in verify(source, tmp_path)] == [("wrong", "2 files instead of 3")]


def test_what_else_is_in_the_folder_stays_there(server, tmp_path):
    """As lfw/pairs.txt, fetched by hand before lfw.tgz."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/pairs.txt").write_text("pairs")
    get(packed(server, tar(GOOD), "tree.tar.gz", "tree"), tmp_path, None, HASTE)
    assert contents(tmp_path) == sorted(["tree.tar.gz", "tree/pairs.txt", *GOOD])


def test_what_else_is_in_the_folder_is_put_back_when_the_move_fails(server, tmp_path, monkeypatch):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/pairs.txt").write_text("pairs")
    rename = Path.rename

    def failing(path, target):
        if Path(target) == tmp_path / "tree":
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(KeyboardInterrupt):
        get(packed(server, tar(GOOD), "tree.tar.gz", "tree"), tmp_path, None, HASTE)
    assert contents(tmp_path) == ["tree.tar.gz", "tree/pairs.txt"]


def test_an_incomplete_folder_is_not_written_over(server, tmp_path):
    (tmp_path / "set/tree/b").mkdir(parents=True)
    (tmp_path / "set/tree/b/mine").write_text("mine")
    source = packed(server, tar(GOOD))
    with pytest.raises(DataError, match=r"set/tree: is incomplete and already has 'b'; move it away"):
        get(source, tmp_path, None, HASTE)
    assert contents(tmp_path) == ["set/tree.tar.gz", "set/tree/b/mine"]


def test_a_folder_on_another_disk_may_be_linked_to(server, tmp_path):
    (tmp_path / "disk/tree").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/tree").symlink_to(tmp_path / "disk/tree")
    source = packed(server, tar(GOOD), "tree.tar.gz", "tree")
    get(source, tmp_path / "data", None, HASTE)
    assert (tmp_path / "disk/tree/a/1.png").read_bytes() == b"one"
    assert state(source, tmp_path / "data") == "yes"


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_unpacking_that_is_stopped_leaves_nothing_half_done(server, tmp_path, error):
    many = {f"tree/{number}/x.png": BODY[:5000] for number in range(50)}
    source = packed(server, tar(many))
    (tmp_path / "set/tree").mkdir(parents=True)
    (tmp_path / "set/tree/notes").write_text("mine")
    get(offer(server, b"x", "other"), tmp_path, None, HASTE)
    stopping = Stopping(error)
    with pytest.raises(KeyboardInterrupt if error is KeyboardInterrupt else DataError) as caught:
        get(source, tmp_path, stopping, HASTE)
    assert contents(tmp_path) == ["other", "set/tree.tar.gz", "set/tree/notes"]
    assert state(source, tmp_path) == "partly"
    if caught.type is DataError:
        assert "has no space left" in str(caught.value)
        assert one_sentence(str(caught.value), source.files[0].addresses[0], tmp_path / "set/tree.tar.gz")


class Stopping(Told):
    """Stops what is being unpacked, not what is being downloaded."""

    def __init__(self, error):
        super().__init__()
        self.reason = error

    def at(self, done):
        if self.started[-1][0].startswith("unpacking") and len(self.steps) > 20:
            raise self.reason
        self.steps.append(done)


def test_what_a_killed_process_left_half_unpacked_is_cleared_away(server, tmp_path):
    left = tmp_path / "set/.tree.unpacking/tree/a"
    left.mkdir(parents=True)
    (left / "half").write_text("ha")
    source = packed(server, tar(GOOD))
    assert state(source, tmp_path) == "no"
    get(source, tmp_path, None, HASTE)
    assert contents(tmp_path) == sorted(["set/tree.tar.gz", *(f"set/{name}" for name in GOOD)])


def special(kind, linkname=""):
    info = tarfile.TarInfo()
    info.type, info.linkname = kind, linkname
    return info


HOSTILE = {
    "tar up": ("x.tar.gz", tar({**GOOD, "../evil": b"x"}), "'../evil' points outside"),
    "tar deep up": ("x.tar.gz", tar({**GOOD, "tree/a/../../../evil": b"x"}), "points outside"),
    "tar root": ("x.tar.gz", tar({**GOOD, "/tmp/evil": b"x"}), "'/tmp/evil' points outside"),
    "tar symlink": ("x.tar.gz", tar({**GOOD, "tree/l": special(tarfile.SYMTYPE, "../../evil")}), "points outside"),
    "tar symlink root": ("x.tar.gz", tar({**GOOD, "tree/l": special(tarfile.SYMTYPE, "/etc")}), "points outside"),
    "tar hardlink": ("x.tar.gz", tar({**GOOD, "tree/l": special(tarfile.LNKTYPE, "../evil")}), "points outside"),
    "tar hardlink root": (
        "x.tar.gz",
        tar({**GOOD, "tree/l": special(tarfile.LNKTYPE, "/etc/passwd")}),
        "points outside",
    ),
    "tar link through link": (
        "x.tar.gz",
        tar(
            {
                "tree/a/up": special(tarfile.SYMTYPE, "../.."),
                "tree/a/up/l": special(tarfile.SYMTYPE, "../evil"),
                **GOOD,
            }
        ),
        "points outside",
    ),
    "tar device": ("x.tar.gz", tar({**GOOD, "tree/d": special(tarfile.CHRTYPE)}), "is neither file nor folder"),
    "tar fifo": ("x.tar.gz", tar({**GOOD, "tree/d": special(tarfile.FIFOTYPE)}), "is neither file nor folder"),
    "tar bomb": ("x.tar.gz", tar({"tree/zeros": bytes(8_000_000)}), "would grow to more than"),
    "zip up": ("x.zip", zip_({**GOOD, "../evil": b"x"}), "'../evil' points outside"),
    "zip root": ("x.zip", zip_({**GOOD, "/tmp/evil": b"x"}), "'/tmp/evil' points outside"),
    "zip up with backslashes": ("x.zip", zip_({**GOOD, "tree\\..\\..\\evil": b"x"}), "points outside"),
    "zip drive": ("x.zip", zip_({**GOOD, "C:/evil": b"x"}), "points outside"),
    "zip symlink": ("x.zip", zip_({**GOOD, "tree/l": (b"/etc", stat.S_IFLNK | 0o777)}), "is neither file nor folder"),
    "zip bomb": ("x.zip", zip_({"tree/zeros": bytes(8_000_000)}), "would grow to more than"),
    "another folder": ("x.zip", zip_({"bush/a/1.png": b"x"}), "has no folder 'tree'"),
    "tar truncated": ("x.tar.gz", tar({**GOOD, "tree/x.png": BODY})[:-500_000], "is damaged"),
    "tar of rubbish": ("x.tar.gz", BODY, "is damaged"),
    "zip truncated": ("x.zip", zip_({**GOOD, "tree/x.png": BODY})[:-500_000], "is damaged"),
    "zip with a flipped bit": ("x.zip", zip_(GOOD, zipfile.ZIP_STORED).replace(b"three", b"thrEe"), "is damaged"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_or_damaged_archive_writes_nothing(server, tmp_path, case):
    name, body, sentence = HOSTILE[case]
    data = tmp_path / "deep/data"
    source = packed(server, body, f"set/{name}")
    with pytest.raises(DataError) as caught:
        get(source, data, None, HASTE)
    assert sentence in str(caught.value)
    assert one_sentence(str(caught.value), server.address(name), data / f"set/{name}")
    assert contents(tmp_path) == [f"deep/data/set/{name}"]
    assert not Path("/tmp/evil").exists()


def test_links_that_stay_inside_are_unpacked(server, tmp_path):
    members = {
        **GOOD,
        "tree/b/soft.png": special(tarfile.SYMTYPE, "../a/1.png"),
        "tree/b/hard.png": special(tarfile.LNKTYPE, "tree/a/2.png"),
    }
    get(packed(server, tar(members)), tmp_path, None, HASTE)
    assert (tmp_path / "set/tree/b/soft.png").read_bytes() == b"one"
    assert (tmp_path / "set/tree/b/hard.png").read_bytes() == b"two"
