"""Downloads from a real HTTP server on the loopback with every fault that a network has."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import os
import re
import signal
import subprocess
import time

import pytest
from kit.publisher import HASTE, publisher
from kit.terminal import on_terminal
from kit.tiny import BODY, Told, contents, offer, one_sentence, process, until

from lossbench.core.errors import DataError
from lossbench.data.download.fetch import Patience, get, state, verify
from lossbench.data.download.sources import Piece


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with publisher() as running:
        yield running


@pytest.fixture
def plain(server):
    return offer(server, BODY)


def partial(folder, content):
    part = folder / "set/file.bin.part"
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_bytes(content)
    return part


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
    with pytest.raises(DataError, match=r"file\.bin sent only \d+ bytes in [\d.]+ s; or download it to"):
        get(plain, tmp_path, None, THRIFTY)
    kept = (tmp_path / "set/file.bin.part").read_bytes()
    assert kept and BODY.startswith(kept)
    server.always = None
    get(plain, tmp_path, None, THRIFTY)
    assert (tmp_path / "set/file.bin").read_bytes() == BODY


def test_a_header_that_drips_is_not_waited_for(server, plain, tmp_path):
    server.always = "dripping header"
    with pytest.raises(DataError, match=r"gave no complete answer within 1 s"):
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
    assert told.decode() == f"tiny is available in {tmp_path}\n"
    assert "set/file.bin: 976.6 KiB, resuming at" in lines.decode()


def test_a_terminal_gets_a_bar_with_bytes_speed_and_time_left(server, plain, tmp_path):
    server.always = "slow"
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    get_tiny = ("data", "get", "tiny", "--data", tmp_path)
    code, screen = on_terminal(
        lambda terminal: process(plain, *get_tiny, stdout=terminal, stderr=terminal, env=environment)
    )
    assert code == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.decode())
    assert re.search(r"set/file.bin ━+.* \d+\.\d/976\.6 KiB +\d+(\.\d)? [kM]B/s 0:00:0\d", text), text
    assert "tiny is available" in text


def test_two_at_a_time_do_not_write_the_same_part(server, plain, tmp_path):
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(DataError, match="another lossbench is downloading"):
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
        ("file.gz", gzip.compress(BODY, mtime=2), "recompressed, content as published"),
        ("file", BODY, "checksum as published"),
    ],
    ids=["as published", "recompressed", "gunzipped"],
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
    with pytest.raises(DataError, match="no space left for a file of 1,000,000 bytes") as caught:
        get(plain, tmp_path, None, HASTE)
    assert one_sentence(str(caught.value), server.address("file.bin"), tmp_path / "set/file.bin")
    assert len(server.ranges) == 1
