"""FIFOs, sockets, folders and links that lead to themselves in the place of files: a word about them, never a wait."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import SMALL, write_loss
from kit.commands import invoke
from PIL import Image

import lossbench as package
from lossbench.core import files
from lossbench.core.errors import DataError, StoreError
from lossbench.core.model import Record
from lossbench.data import cache
from lossbench.data.download import fetch
from lossbench.data.download.sources import MNIST
from lossbench.plan.cells import plan
from lossbench.report.output.drill import tail
from lossbench.store.merge import merge
from lossbench.store.records import Store, load_records

pytestmark = pytest.mark.timeout(60)  # what waits for a FIFO waits forever


def fifo(path):
    os.mkfifo(path)


def bound(path):
    # From its folder: a socket's path may have no more than 107 characters.
    with socket.socket(socket.AF_UNIX) as one, contextlib.chdir(path.parent):
        one.bind(path.name)


def itself(path):
    path.symlink_to(path.name)


ODD = {
    "a FIFO": fifo,
    "a socket": bound,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": lambda path: path.mkdir(),
    "a link to itself": itself,
    "a link to nowhere": lambda path: path.symlink_to("nowhere"),
}
odd = pytest.mark.parametrize("kind", ODD)


def put(kind, path):
    """Something odd in the place of whatever is at `path`."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    ODD[kind](path)


@pytest.fixture
def run(tmp_path, read_suite):
    """A run folder of four finished cells."""
    suite = read_suite(SMALL)
    store, cells = Store(tmp_path / "run"), plan(suite)
    store.prepare(suite, cells)
    for cell in cells:
        bits = np.arange(10) < 7
        store.write(Record(cell, "done", correct=7, total=10), bits)
        store.log(cell.key).write_text("said\n")
    return suite, store, cells


@odd
def test_only_regular_files_are_read_and_the_others_say_what_they_are(kind, tmp_path):
    put(kind, tmp_path / "thing")
    with pytest.raises(OSError) as refused:
        files.content(tmp_path / "thing")
    if not kind.startswith("a link"):
        assert refused.value.strerror == f"it is {kind}, not a file"
    (tmp_path / "file").write_bytes(b"content")
    assert files.content(tmp_path / "file") == b"content"


@odd
@pytest.mark.parametrize("part", ["record.json", "correct.npz", ""])
def test_an_odd_thing_among_the_cells_is_damage(kind, part, run, tmp_path):
    _, store, cells = run
    put(kind, store.cells / cells[0].key / part)
    sound, damaged = store.scan()
    assert set(sound) == {cell.key for cell in cells[1:]}
    assert list(damaged) == [cells[0].key]
    assert store.read(cells[0].key) is None
    assert len(load_records(store.root)) == 3
    store.write(Record(cells[0], "done", correct=1, total=2), np.array([True, False]))  # what was there is set aside
    assert set(store.scan()[0]) == {cell.key for cell in cells}
    assert len(list((store.root / "set_aside").iterdir())) == 1


@odd
def test_an_odd_plan_is_refused_or_written_anew(kind, run):
    suite, store, cells = run
    put(kind, store.root / "plan.json")
    with pytest.raises(StoreError):
        store.plan()
    if kind != "a folder":  # which is left to a person
        store.prepare(suite, cells)
        assert len(store.plan()[1]) == 4


@odd
def test_odd_claims_are_refused_in_a_sentence(kind, run):
    _, store, _ = run
    put(kind, store.root / "claims" / "k")
    if kind == "a link to nowhere":
        pytest.skip("a lock file is made where the link points to")
    with pytest.raises(StoreError, match=r"claims/k: cannot be written"), store.claim("k"):
        pass


@odd
def test_odd_logs_and_states_are_passed_over(kind, run, tmp_path):
    from lossbench.training.checkpoints import Checkpointer, DamagedError

    _, store, cells = run
    key = cells[0].key
    put(kind, store.log(key))
    assert tail(store.log(key)) == ""
    store.partial(key).parent.mkdir()
    put(kind, store.partial(key))
    if kind.startswith("a link"):
        assert Checkpointer(store.partial(key), key).read() is None
    else:
        with pytest.raises(DamagedError, match="it is not a file"):
            Checkpointer(store.partial(key), key).read()
    merge([store.root], tmp_path / "merged")
    assert not Store(tmp_path / "merged").log(key).exists()


def test_a_merge_does_not_wait_for_the_text_of_a_suite(run, tmp_path):
    _, store, _ = run
    put("a FIFO", store.root / "suite.toml")
    with pytest.raises(StoreError, match=r"suite\.toml: cannot be read"):
        merge([store.root], tmp_path / "merged")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_goes_past_every_odd_thing_in_its_folder(lossbench, tmp_path, monkeypatch):
    """The real command on a folder with FIFOs for a cell, a record, a log, a state, the plan and the suite."""
    (tmp_path / "suite.toml").write_text(SMALL)
    assert lossbench("run", "suite.toml", "--no-report", "-q").returncode == 0
    folder = tmp_path / "runs" / "small"
    first, second, third, _ = sorted((folder / "cells").iterdir())
    put("a FIFO", first)
    put("a FIFO", second / "record.json")
    shutil.rmtree(third)
    put("a FIFO", folder / "logs" / f"{third.name}.log")
    (folder / "partial").mkdir(exist_ok=True)
    put("a FIFO", folder / "partial" / f"{third.name}.pt")
    put("a FIFO", folder / "suite.toml")
    put("a FIFO", folder / "plan.json")
    done = lossbench("run", "suite.toml", "--no-report")
    assert done.returncode == 0, done.stderr
    assert "set aside" in done.stderr and "a FIFO, not a file" in done.stderr
    assert len(load_records(folder)) == 4
    monkeypatch.chdir(tmp_path)
    for command in (["status", folder], ["report", folder], ["logs", third.name, "--run", folder]):
        assert invoke(*command).returncode == 0


@odd
def test_an_odd_suite_is_refused(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put(kind, tmp_path / "suite.toml")
    for command in (["plan", "suite.toml", "--no-forecast"], ["info", "suite", "suite.toml"]):
        done = invoke(*command)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and "suite.toml: " in done.stderr


@odd
def test_odd_plugins_hurt_only_who_names_them(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_loss(tmp_path, "good", "pass")
    put(kind, tmp_path / "losses" / "odd.py")
    (tmp_path / "suite.toml").write_text(SMALL.replace('"w_softmax"]', '"good"]'))
    assert invoke("plan", "suite.toml", "--no-forecast").returncode == 0
    assert invoke("list", "--plugins", ".").returncode == 0
    (tmp_path / "suite.toml").write_text(SMALL.replace('"w_softmax"]', '"odd"]'))
    done = invoke("plan", "suite.toml", "--no-forecast")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert ("unknown loss" if kind == "a folder" else "losses/odd.py: cannot be read (") in done.stderr


def test_plugin_folders_that_link_to_themselves_are_passed_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("losses", "backbones"):
        itself(tmp_path / name)
    (tmp_path / "datasets").symlink_to(".")
    (tmp_path / "suite.toml").write_text(SMALL)
    assert invoke("plan", "suite.toml", "--no-forecast").returncode == 0
    itself(tmp_path / "loop")
    done = invoke("list", "--plugins", "loop")
    assert done.returncode == 2 and "loop: is not a folder" in done.stderr


@pytest.fixture
def pets(tmp_path):
    for name in "ab":
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(5):
            Image.new("RGB", (4, 4), (10 * number, 0, 0)).save(tmp_path / "pets" / name / f"{number}.png")
    return lambda **options: package.load_dataset("folder", data=tmp_path, path="pets", **options)


@odd
def test_an_odd_picture_is_named(kind, pets, tmp_path):
    put(kind, tmp_path / "pets" / "a" / "9.png")
    if kind == "a folder":
        assert len(pets().train) == 8
        return
    with pytest.raises(DataError, match=r"9\.png"):
        pets()


@pytest.mark.parametrize("target", [".", "..", "../../pets"])
def test_a_tree_of_pictures_that_contains_itself_is_refused(target, pets, tmp_path):
    (tmp_path / "pets" / "a" / "more").symlink_to(target)
    with pytest.raises(DataError, match=r"a/more.*: is a link to a folder that contains it"):
        pets()


def test_links_that_lead_to_other_pictures_are_followed(pets, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "elsewhere" / "x.png")
    (tmp_path / "pets" / "a" / "more").symlink_to(tmp_path / "elsewhere")
    itself(tmp_path / "pets" / "loop")  # no folder, so no class
    assert len(pets().train) + len(pets().test) == 11


@odd
@pytest.mark.parametrize("name", ["mnist/train-images-idx3-ubyte.gz", "tiny-imagenet-2/val/val_annotations.txt"])
def test_odd_data_files_are_missing_or_damaged(kind, name, tmp_path):
    (tmp_path / name).parent.mkdir(parents=True)
    for label in "ab":
        (tmp_path / "tiny-imagenet-2" / "train" / label).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / "tiny-imagenet-2" / "train" / label / "0.JPEG")
    put(kind, tmp_path / name)
    with pytest.raises(DataError):
        package.load_dataset("mnist" if "mnist" in name else "tiny_imagenet", data=tmp_path)
    fetch.state(MNIST, tmp_path)
    fetch.verify(MNIST, tmp_path)


@odd
@pytest.mark.parametrize("part", ["meta.json", "train_images.npy", "test_labels.npy"])
def test_odd_prepared_data_is_made_again(kind, part, pets, tmp_path):
    before = pets().version
    (folder,) = tmp_path.glob("prepared/folder-*")
    put(kind, folder / part)
    assert cache.opened(folder) is None
    assert pets().version == before


def test_what_may_not_be_read_is_a_sentence(tmp_path):
    """Root may enter any folder, so for root the commands run without that capability."""
    setpriv = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]
    if os.getuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("root may read everything, and setpriv, which could take that right away, is not installed")
    drop = setpriv if os.getuid() == 0 else []
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / "suite.toml").write_text(SMALL)
    closed.chmod(0)
    code = f"""
from lossbench.cli import commands as cli
from lossbench import api, data
from lossbench.plugins import registry
from lossbench.suite import source as suite_files
from lossbench.core.errors import LossbenchError
from lossbench.data.download import fetch, sources
def said(ask):
    try: print("went through", ask())
    except LossbenchError as error: print(error)
said(lambda: suite_files.locate({str(closed / "suite.toml")!r}))
said(lambda: registry.Registry([{str(closed / "plugins")!r}]))
said(lambda: data.load_dataset("mnist", data={str(closed)!r}))
said(lambda: data.load_dataset("folder", data={str(tmp_path)!r}, path="closed"))
said(lambda: fetch.state(sources.MNIST, __import__("pathlib").Path({str(closed)!r})))
"""
    done = subprocess.run([*drop, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "Permission denied" in lines[0] and "is not a folder" in lines[1]
    assert "mnist" in lines[2] and "closed" in lines[3] and lines[4] == "went through no"


@pytest.fixture
def without_locks(monkeypatch):
    """A file system such as NFS without its lock service."""

    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)


def test_a_run_folder_without_locks_is_refused_before_anything_trains(tmp_path, without_locks):
    (tmp_path / "suite.toml").write_text(SMALL)
    out = tmp_path / "run"
    with pytest.raises(StoreError) as refused:
        package.run(tmp_path / "suite.toml", out=out, reports=None)
    sentence = str(refused.value)
    assert str(out) in sentence and "No locks available" in sentence and "--out" in sentence and "\n" not in sentence
    assert type(refused.value) is StoreError  # not a RunError: exit code 2
    assert not list((out / "cells").iterdir()) and not (out / "plan.json").exists()


def test_data_is_not_fetched_into_a_folder_without_locks(tmp_path, without_locks):
    with pytest.raises(DataError, match=r"files cannot be locked there \(No locks available\).*--data DIR"):
        fetch.get(MNIST, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_reading_a_run_needs_no_locks(run, without_locks):
    started = time.perf_counter()
    assert len(load_records(run[1].root)) == 4
    assert time.perf_counter() - started < 30
