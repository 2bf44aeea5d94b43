"""How datasets are had, against a real HTTP server on the loopback with every fault that a network has."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import importlib.util
import io
import os
import pty
import random
import re
import signal
import stat
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest
from kit.publisher import HASTE, publisher

from lossbench.core.errors import DataError
from lossbench.data.download import sources
from lossbench.data.download.fetch import Patience, get, state, verify
from lossbench.data.download.sources import SOURCES, File, Piece, Source

BODY = random.Random(0).randbytes(1_000_000)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def server():
    with publisher() as running:
        yield running


def offer(server, body, place="set/file.bin", *, addresses=None, **options):
    """A set of one file that the server publishes."""
    server.bodies[Path(place).name] = body
    file = File(
        place,
        tuple(addresses or [server.address(Path(place).name)]),
        len(body),
        hashlib.sha256(body).hexdigest(),
        hashlib.md5(body).hexdigest(),
        **options,
    )
    return Source("tiny", "A set", 1, 1, "none", "nobody", "", (file,))


@pytest.fixture
def plain(server):
    return offer(server, BODY)


def partial(folder, content):
    part = folder / "set/file.bin.part"
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_bytes(content)
    return part


def contents(folder):
    """Every file below a folder, hidden ones too."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


# Downloads


def test_a_download_is_whole_has_its_name_and_comes_once(server, plain, tmp_path):
    get(plain, tmp_path, None, HASTE)
    assert (tmp_path / "set/file.bin").read_bytes() == BODY
    assert contents(tmp_path) == ["set/file.bin"]
    get(plain, tmp_path, None, HASTE)
    assert server.ranges == [None]


def test_progress_is_told_from_the_beginning_to_the_end(plain, tmp_path):
    told = Told()
    get(plain, tmp_path, told, HASTE)
    assert told.started == [("set/file.bin", 0, len(BODY))]
    assert told.steps == sorted(told.steps)
    assert told.steps[-1] == len(BODY)


class Told:
    def __init__(self, stop_at=None, error=KeyboardInterrupt):
        self.started, self.steps, self.stop_at, self.error = [], [], stop_at, error

    def start(self, what, done, total):
        self.started.append((what, done, total))

    def at(self, done):
        self.steps.append(done)
        if self.stop_at is not None and done >= self.stop_at:
            raise self.error


def test_a_part_is_gone_on_with_by_asking_for_the_rest_alone(server, plain, tmp_path):
    partial(tmp_path, BODY[:700_000])
    told = Told()
    get(plain, tmp_path, told, HASTE)
    assert server.ranges == ["bytes=700000-"]
    assert server.sent == [300_000]
    assert told.started == [("set/file.bin", 700_000, len(BODY))]
    assert (tmp_path / "set/file.bin").read_bytes() == BODY
    assert contents(tmp_path) == ["set/file.bin"]


def test_a_connection_cut_half_way_costs_only_the_other_half(server, plain, tmp_path):
    server.faults = [("cut", 400_000)]
    get(plain, tmp_path, None, HASTE)
    assert server.ranges == [None, "bytes=400000-"]
    assert server.sent == [400_000, 600_000]
    assert (tmp_path / "set/file.bin").read_bytes() == BODY


# Drips come every 50 ms, well within the timeout; a window of 0.4 s sees a handful of bytes of them.
THRIFTY = Patience(timeout=2, tries=2, pause=0.01, rate=1000, window=0.4)


def test_a_server_that_drips_is_left_for_the_next_address(server, tmp_path):
    source = offer(server, BODY, addresses=[server.address("file.bin"), server.address("file.bin?mirror")])
    server.bodies["file.bin?mirror"] = BODY
    server.faults = ["drip", "drip"]
    began = time.monotonic()
    get(source, tmp_path, None, THRIFTY)
    assert time.monotonic() - began < 30  # a byte every 50 ms would take half a day
    assert (tmp_path / "set/file.bin").read_bytes() == BODY
    assert len(server.ranges) == 3
    assert 0 < server.sent[0] < 1000
    assert server.sent[2] > 999_000  # the mirror goes on where the drips ended


def test_a_drip_without_another_address_is_a_sentence_and_what_came_is_kept(server, plain, tmp_path):
    server.always = "drip"
    with pytest.raises(
        DataError, match=r"file\.bin sent only \d+ bytes in [\d.]+ s; a copy fetched by hand belongs at"
    ):
        get(plain, tmp_path, None, THRIFTY)
    kept = (tmp_path / "set/file.bin.part").read_bytes()
    assert kept and BODY.startswith(kept)
    server.always = None
    get(plain, tmp_path, None, THRIFTY)
    assert (tmp_path / "set/file.bin").read_bytes() == BODY


def test_a_header_that_drips_is_not_waited_for(server, plain, tmp_path):
    server.always = "dripping header"
    with pytest.raises(DataError, match=r"gave no whole answer within 1 s"):
        get(plain, tmp_path, None, Patience(timeout=0.6, tries=1, window=0.4))


def test_a_slow_server_that_keeps_the_least_rate_is_waited_for(server, plain, tmp_path):
    server.always = "slow"  # 20,000 bytes every 30 ms, for 1.5 s or more
    get(plain, tmp_path, None, Patience(timeout=2, tries=1, pause=0.01, rate=1000, window=0.2))
    assert (tmp_path / "set/file.bin").read_bytes() == BODY
    assert server.ranges == [None]


def test_tries_that_get_further_are_not_counted(server, plain, tmp_path):
    server.always = ("cut", 300_000)
    get(plain, tmp_path, None, Patience(timeout=0.5, tries=2, pause=0.01))
    assert server.ranges == [None, "bytes=300000-", "bytes=600000-", "bytes=900000-"]


def test_a_server_that_hangs_is_left_and_asked_for_the_rest(server, plain, tmp_path):
    server.faults = ["hang"]
    get(plain, tmp_path, None, HASTE)
    assert server.ranges == [None, "bytes=500000-"]
    assert (tmp_path / "set/file.bin").read_bytes() == BODY


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_passing_trouble_passes(server, plain, tmp_path, status):
    server.faults = [status, status]
    get(plain, tmp_path, None, HASTE)
    assert len(server.ranges) == 3
    assert (tmp_path / "set/file.bin").read_bytes() == BODY


def test_a_server_without_ranges_sends_all_of_it_again(server, plain, tmp_path):
    partial(tmp_path, BODY[:700_000])
    server.faults = ["no range"]
    get(plain, tmp_path, None, HASTE)
    assert server.sent == [len(BODY)]
    assert (tmp_path / "set/file.bin").read_bytes() == BODY


@pytest.mark.parametrize("fault", ["odd range", 416])
def test_a_range_that_was_not_asked_for_is_not_glued_on(server, plain, tmp_path, fault):
    partial(tmp_path, BODY[:700_000])
    server.faults = [fault]
    get(plain, tmp_path, None, HASTE)
    assert server.ranges == ["bytes=700000-", None]
    assert (tmp_path / "set/file.bin").read_bytes() == BODY


def test_a_part_that_is_complete_needs_no_server(server, plain, tmp_path):
    partial(tmp_path, BODY)
    get(plain, tmp_path, None, HASTE)
    assert server.ranges == []
    assert contents(tmp_path) == ["set/file.bin"]


@pytest.mark.parametrize("stale", [bytes(700_000), bytes(len(BODY)), BODY + b"more"], ids=["part", "whole", "longer"])
def test_a_part_of_another_file_is_thrown_away(server, plain, tmp_path, stale):
    partial(tmp_path, stale)
    get(plain, tmp_path, None, HASTE)
    assert server.ranges[-1] is None
    assert (tmp_path / "set/file.bin").read_bytes() == BODY


def test_the_next_mirror_serves_when_the_first_cannot(server, tmp_path):
    addresses = ["http://127.0.0.1:1/file.bin", server.address("nowhere"), server.address("file.bin")]
    get(offer(server, BODY, addresses=addresses), tmp_path, None, HASTE)
    assert (tmp_path / "set/file.bin").read_bytes() == BODY


FAULTS = {  # what the server does, what is said, what stays as a part
    "not there": (404, "answers 404 Not Found", 0),
    "forbidden": (403, "answers 403 Forbidden", 0),
    "broken": (500, "answers 500 Internal Server Error", 0),
    "wrong bytes": ("wrong bytes", f"sha256 expected {hashlib.sha256(BODY).hexdigest()}, got", 0),
    "a login page": ("login page", "offers 26 bytes instead of 1,000,000", 0),
    "cut again and again": (("cut", 1000), "of 1,000,000 bytes", 3000),
    "cut between chunks": ("chunked cut", "of 1,000,000 bytes", 3000),
    "hanging": ("hang", "sent nothing for 0.5 s", 875_000),
    "more than is published": ("longer", "sends more than the 1,000,000 bytes", None),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_sentence_that_names_the_address_and_the_place(server, plain, tmp_path, fault):
    server.always, sentence, left = FAULTS[fault]
    with pytest.raises(DataError) as caught:
        get(plain, tmp_path, None, HASTE)
    said = str(caught.value)
    assert sentence in said
    assert one_sentence(said, server.address("file.bin"), tmp_path / "set/file.bin")
    assert not (tmp_path / "set/file.bin").exists()
    part = tmp_path / "set/file.bin.part"
    if left is not None:
        assert (part.stat().st_size if part.exists() else 0) == left


def one_sentence(said, address, place):
    return "\n" not in said and address in said and str(place) in said and said.startswith("tiny: ")


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("http://127.0.0.1:1/file.bin", "cannot be reached (Connection refused)"),
        ("http://nowhere.invalid/file.bin", "cannot be reached ("),
        ("https://127.0.0.1:{port}/file.bin", "cannot be reached ("),  # no TLS there
    ],
)
def test_without_network_the_sentence_names_the_address_and_the_place(server, tmp_path, address, sentence):
    address = address.format(port=server.server_port)
    with pytest.raises(DataError) as caught:
        get(offer(server, BODY, addresses=[address]), tmp_path, None, HASTE)
    assert sentence in str(caught.value)
    assert one_sentence(str(caught.value), address, tmp_path / "set/file.bin")
    assert contents(tmp_path) == []


def test_ctrl_c_leaves_a_part_that_is_gone_on_with(server, plain, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        get(plain, tmp_path, Told(stop_at=300_000), HASTE)
    part = tmp_path / "set/file.bin.part"
    assert part.read_bytes() == BODY[: part.stat().st_size]
    have = part.stat().st_size
    assert 300_000 <= have < len(BODY)
    get(plain, tmp_path, None, HASTE)
    assert server.ranges == [None, f"bytes={have}-"]
    assert contents(tmp_path) == ["set/file.bin"]


# The real command line in a process of its own, whose one set is published on the loopback.
PROCESS = """
import sys
from lossbench.data import sources
from lossbench.data.download.sources import File, Piece, Source
sources.SOURCES["tiny"] = {source!r}
from lossbench.cli.commands import main
main()
"""


def process(source, *arguments, **options):
    code = PROCESS.format(source=source)
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], **options)


def test_a_process_that_was_killed_is_gone_on_from(server, plain, tmp_path):
    server.always = "slow"
    part, place = tmp_path / "set/file.bin.part", tmp_path / "set/file.bin"
    running = process(plain, "data", "get", "tiny", "--data", tmp_path, stderr=subprocess.DEVNULL)
    until(lambda: part.exists() and part.stat().st_size > 200_000)
    assert not place.exists()
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert not place.exists()
    have = part.stat().st_size
    assert part.read_bytes() == BODY[:have]
    server.always = None
    again = process(plain, "data", "get", "tiny", "--data", tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    told, lines = again.communicate(timeout=60)
    assert again.returncode == 0, lines
    assert server.ranges == [None, f"bytes={have}-"]
    assert server.sent[1] == len(BODY) - have
    assert place.read_bytes() == BODY
    assert told.decode() == f"tiny is here ({tmp_path})\n"
    assert "set/file.bin: 976.6 KiB, going on at" in lines.decode()


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def test_a_terminal_gets_a_bar_with_bytes_speed_and_time_left(server, plain, tmp_path):
    server.always = "slow"
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    running = process(plain, "data", "get", "tiny", "--data", tmp_path, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    screen = b""
    while True:
        try:
            chunk = os.read(master, 4096)
        except OSError:
            break
        if not chunk:
            break
        screen += chunk
    os.close(master)
    assert running.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.decode())
    assert re.search(r"set/file.bin ━+.* \d+\.\d/976\.6 KiB +\d+(\.\d)? [kM]B/s 0:00:0\d", text), text
    assert "tiny is here" in text


def test_two_at_a_time_do_not_write_the_same_part(server, plain, tmp_path):
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(DataError, match="another lossbench is fetching"):
        get(plain, tmp_path, None, HASTE)
    os.close(handle)
    assert server.ranges == []
    get(plain, tmp_path, None, HASTE)


# What was put there by hand


def test_a_file_placed_by_hand_is_checked_and_used(server, plain, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set/file.bin").write_bytes(BODY)
    get(plain, tmp_path, None, HASTE)
    assert server.ranges == []


def test_a_wrong_file_placed_by_hand_is_refused_and_kept(server, plain, tmp_path):
    place = tmp_path / "set/file.bin"
    place.parent.mkdir()
    place.write_bytes(bytes(len(BODY)))
    with pytest.raises(DataError, match=r"is not the published file .sha256 expected") as caught:
        get(plain, tmp_path, None, HASTE)
    assert one_sentence(str(caught.value), server.address("file.bin"), place)
    assert place.read_bytes() == bytes(len(BODY))
    assert server.ranges == []


@pytest.fixture
def zipped(server):
    """A gzipped file whose content is known, as MNIST's are."""
    raw = Piece("set/file", size=len(BODY), sha256=hashlib.sha256(BODY).hexdigest())
    return offer(server, gzip.compress(BODY, mtime=1), "set/file.gz", pieces=(raw,))


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("file.gz", gzip.compress(BODY, mtime=1), "checksum as published"),
        ("file.gz", gzip.compress(BODY, mtime=2), "gzipped anew, content as published"),
        ("file", BODY, "checksum as published"),
    ],
    ids=["as published", "gzipped anew", "gunzipped"],
)
def test_a_gzipped_file_serves_in_every_form(server, zipped, tmp_path, name, content, told):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / name).write_bytes(content)
    get(zipped, tmp_path, None, HASTE)
    assert server.ranges == []
    assert state(zipped, tmp_path) == "yes"
    assert [(check.path, check.status, check.detail) for check in verify(zipped, tmp_path)] == [
        (f"set/{name}", "ok", told)
    ]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("file.gz", gzip.compress(bytes(len(BODY))), " bytes instead of "),
        ("file.gz", gzip.compress(BODY)[:-9], " bytes instead of "),
        ("file.gz", BODY, "1,000,000 bytes instead of "),
        ("file", BODY[:-1], "999,999 bytes instead of 1,000,000"),
        ("file", bytes(len(BODY)), "sha256 expected "),
    ],
    ids=["other content", "truncated", "not gzipped", "short", "other bytes"],
)
def test_a_gzipped_file_with_other_content_is_wrong(server, zipped, tmp_path, name, content, told):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / name).write_bytes(content)
    (check,) = verify(zipped, tmp_path)
    assert check.status == "wrong"
    assert told in check.detail
    with pytest.raises(DataError, match="is not the published file"):
        get(zipped, tmp_path, None, HASTE)


# Archives

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
    with pytest.raises(DataError, match=r"an incomplete .* is there with 'b' in it, move it away"):
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
        assert "has no room left" in str(caught.value)
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
        "is damaged",  # said by Python's own filter, which stands behind ours
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
    "another folder": ("x.zip", zip_({"bush/a/1.png": b"x"}), "holds no folder 'tree'"),
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


# The disk


def test_a_folder_that_cannot_be_written_is_one_sentence(server, plain, tmp_path):
    (tmp_path / "data").write_text("")  # even root cannot write into a file
    with pytest.raises(DataError, match="cannot be written") as caught:
        get(plain, tmp_path / "data", None, HASTE)
    assert one_sentence(str(caught.value), server.address("file.bin"), tmp_path / "data/set/file.bin")


def test_a_read_only_folder_is_one_sentence(server, plain, tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root writes anywhere")
    tmp_path.chmod(0o500)
    with pytest.raises(DataError, match="cannot be written") as caught:
        get(plain, tmp_path, None, HASTE)
    tmp_path.chmod(0o700)
    assert one_sentence(str(caught.value), server.address("file.bin"), tmp_path / "set/file.bin")


def test_a_full_disk_is_one_sentence_and_not_the_servers_fault(server, plain, tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match="no room left for a file of 1,000,000 bytes") as caught:
        get(plain, tmp_path, None, HASTE)
    assert one_sentence(str(caught.value), server.address("file.bin"), tmp_path / "set/file.bin")
    assert len(server.ranges) == 1


# What is here, and whether it is right


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
        ("ok", "1 of 3 files: a part of the set")
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


def test_list_tells_what_is_here_sizes_licences_and_citations(lossbench, tmp_path):
    (tmp_path / "data/mnist").mkdir(parents=True)
    (tmp_path / "data/mnist/train-images-idx3-ubyte").write_bytes(b"")
    told = lossbench("data", "list", "--data", tmp_path / "data")
    assert (told.returncode, told.stderr) == (0, "")
    for name, source in SOURCES.items():
        assert re.search(rf"^ +{name} +(yes|partly|no) .*{re.escape(source.licence)}", told.stdout, re.MULTILINE), name
        assert source.citation in " ".join(told.stdout.split())
    for row in (r"mnist +partly +70,000 +10 +11\.1 MiB +52\.4 MiB", r"cifar10 +no", r"digits +yes +1,797 +10 +– "):
        assert re.search(row, told.stdout), row
    assert "http://www.cbsr.ia.ac.cn" in told.stdout
    verbose = lossbench("data", "list", "-v", "--data", tmp_path / "data").stdout
    for file in (file for source in SOURCES.values() for file in source.files):
        assert file.place in verbose
        assert file.sha256 in verbose
        assert all(address in verbose for address in file.addresses)


def test_list_finds_the_folder_in_the_environment(lossbench, tmp_path):
    told = lossbench("data", "list", env={**os.environ, "LOSSBENCH_DATA": str(tmp_path / "here")})
    assert f"Datasets in {tmp_path / 'here'}" in told.stdout
    assert not (tmp_path / "here").exists()


def test_list_imports_nothing_heavy():
    code = """
import sys
from lossbench.cli.commands import cli
cli.main(["data", "list"], standalone_mode=False)
print([name for name in ("torch", "pandas", "sklearn", "scipy", "matplotlib", "pydantic") if name in sys.modules])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip().splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["get", "verify"])
def test_an_unknown_name_is_one_sentence_before_anything_happens(lossbench, tmp_path, command):
    told = lossbench("data", command, "digits", "fashon_mnist", "--data", tmp_path / "data")
    assert told.returncode == 2
    assert told.stderr == "lossbench: unknown dataset 'fashon_mnist'; did you mean 'fashion_mnist'?\n"
    assert told.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_get_says_of_sets_that_need_no_fetching_why(lossbench, tmp_path):
    told = lossbench("data", "get", "digits", "glyphs", "--data", tmp_path / "data")
    assert told.returncode == 0
    assert told.stdout.splitlines() == [
        f"digits is here: {sources.DIGITS.instructions}",
        f"glyphs is here: {sources.GLYPHS.instructions}",
    ]
    assert list(tmp_path.iterdir()) == []


def test_get_without_network_is_one_sentence(lossbench, tmp_path):
    nobody = "http://127.0.0.1:1"
    proxies = {"http_proxy": nobody, "https_proxy": nobody, "no_proxy": ""}
    told = lossbench("data", "get", "mnist", "--data", tmp_path, env={**os.environ, **proxies})
    assert told.returncode == 2
    assert len(told.stderr.splitlines()) == 1
    first = SOURCES["mnist"].files[0]
    for part in (*first.addresses, "Connection refused", str(tmp_path / first.place)):
        assert part in told.stderr
    assert contents(tmp_path) == []


def test_get_of_a_set_under_agreement_says_whom_to_ask(lossbench, tmp_path):
    told = lossbench("data", "get", "casia_webface", "--data", tmp_path)
    assert told.returncode == 2
    assert len(told.stderr.splitlines()) == 1
    assert "licence agreement (http://www.cbsr.ia.ac.cn" in told.stderr
    assert str(tmp_path / "casia_webface/*/*.jpg") in told.stderr


def test_verify_tells_right_from_wrong_and_missing(server, tmp_path):
    one, two, three = (offer(server, BODY, f"set/{name}").files[0] for name in ("one.bin", "two.bin", "three.bin"))
    source = Source("tiny", "A set", 1, 1, "none", "nobody", "", (one, two, three))
    (tmp_path / "set").mkdir()
    (tmp_path / "set/one.bin").write_bytes(BODY)
    (tmp_path / "set/two.bin").write_bytes(BODY[:-1] + b"x")

    def checked(*names):
        ran = process(source, "data", "verify", *names, "--data", tmp_path, stdout=subprocess.PIPE)
        told = ran.communicate(timeout=60)[0].decode()
        return ran.returncode, told

    code, told = checked("tiny")
    assert code == 1
    assert re.search(r"set/one.bin +ok +checksum as published", told)
    assert re.search(rf"set/two.bin +wrong +sha256 expected {two.sha256[:12]}…, got [0-9a-f]{{12}}…", told)
    assert re.search(r"set/three.bin +missing +not here", told)
    assert told.endswith("tiny  1 ok, 1 wrong, 1 missing\n")
    for name in ("two.bin", "three.bin"):
        (tmp_path / "set" / name).write_bytes(BODY)
    code, told = checked()  # all that is here
    assert code == 0
    assert told.endswith("tiny  3 ok\n")


def test_verify_of_an_empty_folder_says_so(lossbench, tmp_path):
    told = lossbench("data", "verify", "--data", tmp_path / "data")
    assert told.returncode == 0
    assert told.stdout.startswith("no dataset is in ")
