"""A real Ray cluster on this machine: a head without CPUs and two nodes with one each. Nodes, workers, drivers die."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from conftest import SMALL, alive, write_loss
from kit.ends import CALM, ENDS
from kit.runs import ran, records, results, started, wait_until, write_suite

from lossbench import api
from lossbench.core.errors import LossbenchError, RunError
from lossbench.core.model import result
from lossbench.engines.ray import cluster as joining
from lossbench.store.records import Store

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    # Ray leaves sockets and child processes of its own to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

WITH_MINE = SMALL.replace('"w_softmax"]', '"w_softmax", "mine"]')
EVERYTHING = WITH_MINE + "warm_start = { steps = 3 }\ntiming = { rounds = 3, steps = 1, processes = 2 }\n"
LONG = WITH_MINE.replace("steps = 6", "steps = 150") + "warm_start = { steps = 3 }\n"
SLOWLY = "time.sleep(0.02)"


@pytest.fixture(scope="module")
def cluster():
    made = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        made.add_node(num_cpus=1)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def on_ray(cluster, tmp_path):
    """Run a suite on the cluster; what was said is in `said`."""

    def run(suite: Path, **options) -> api.RunResult:
        given = {"engine": "ray", "address": cluster.address, "out": tmp_path / "ray", "reports": None}
        return api.run(suite, notify=run.said.append, **given | options)

    run.said = []
    return run


# Python that finds the process of Ray in which a cell runs: the parent of its guard, server and warden.
WORKER = (
    "__import__('functools').reduce(lambda pid, _: "
    "int(open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()[1]), range(4), os.getpid())"
)


def locally(suite: Path) -> dict[str, dict]:
    return results(api.run(suite, out=suite.parent / "local", reports=None).folder)


def test_results_equal_those_of_the_local_engine_to_the_bit(tmp_path, on_ray):
    write_loss(tmp_path, "mine", "if self.calls == 1: print('I am', __file__)")
    suite = write_suite(tmp_path, EVERYTHING)
    events = []
    done = on_ray(suite, on_event=events.append)
    assert not done.unfinished
    assert len(done.statuses) == 9
    assert results(done.folder) == locally(suite)
    for key, record in records(done.folder).items():
        here, there = Store(tmp_path / "local"), Store(done.folder)
        assert there.log(key).read_text() == here.log(key).read_text()
        if record["cell"]["kind"] == "train":
            assert (there.correct(key) == here.correct(key)).all()
        if record["cell"]["loss"] == "mine":
            assert there.log(key).read_text() == f"I am {tmp_path / 'losses' / 'mine.py'}\n"
    kinds = [event.kind for event in events]
    assert sorted(kinds) == ["ended"] * 9 + ["started"] * 9
    assert [event.cell.kind for event in events[-2:]] == ["timing", "timing"]  # alone, when all others had ended
    assert on_ray.said == []
    again = on_ray(suite, on_event=events.append)
    assert len(events) == 18 and not again.unfinished  # nothing was left to do


RETRIEVED = """
[[experiment]]
name = "unseen"
task = "retrieval"
dataset = { name = "glyphs", classes = 60, per_class = 4, unseen = 30, test_per_class = 4 }
backbone = { name = "cnn", channels = 4, depths = [1] }
widths = [8]
losses = ["softmax", "w_softmax"]
seeds = 2
schedule = { steps = 6, batch = 16 }
metrics = ["recall@1", "map@r", "norms"]
"""
NORMS = '''"""The norm of each test feature, times a factor."""
UNIT, BETTER, TASKS = "", "higher", ("classification", "retrieval")


def measure(test):
    print("measured by", __file__)
    return FACTOR * test.features[: len(test.correct)].norm(dim=1)
'''


def write_metric(folder: Path, factor: float) -> None:
    (folder / "metrics").mkdir(exist_ok=True)
    (folder / "metrics" / "norms.py").write_text(NORMS.replace("FACTOR", str(factor)))


def test_retrieval_and_metrics_of_users_are_those_of_the_local_engine(tmp_path, on_ray):
    """Their code travels to the nodes; values per example and what cells keep travel back."""
    write_metric(tmp_path, 2.0)
    suite = write_suite(tmp_path, SMALL + 'metrics = ["nll", "norms"]\nkeep = ["features"]\n' + RETRIEVED)
    done = on_ray(suite)
    assert not done.unfinished and len(done.statuses) == 8 and on_ray.said == []
    assert results(done.folder) == locally(suite)
    here, there = Store(tmp_path / "local"), Store(done.folder)
    for key, record in records(done.folder).items():
        for metric in ("nll", "norms") if record["cell"]["task"] == "classification" else ("map@r", "norms"):
            values = there.examples(key, metric)
            assert len(values) == record["total"] and (values == here.examples(key, metric)).all()
            assert values.mean() == pytest.approx(record["metrics"][metric], rel=1e-6)
        assert there.log(key).read_text() == f"measured by {tmp_path / 'metrics' / 'norms.py'}\n"
        for name, checksum in record["kept"].items():
            assert there.kept(key, name, checksum) == here.kept(key, name, checksum)
    # Another version of the file: cells that kept their features are measured again, the others trained again.
    write_metric(tmp_path, 3.0)
    events = []
    again = on_ray(suite, on_event=events.append)
    assert not again.unfinished
    assert {event.cell.experiment for event in events if event.kind == "ended"} == {"unseen"}
    assert results(again.folder) == locally(suite)


def test_a_node_that_dies_costs_nothing_but_time(tmp_path, cluster, on_ray):
    write_loss(tmp_path, "mine", SLOWLY)
    text = LONG.replace('["softmax", "w_softmax", "mine"]', '[{ name = "mine", level = [1.0, 2.0, 3.0] }]')
    suite = write_suite(tmp_path, text.replace("title", 'baseline = "mine[level=1.0]"\ntitle'))
    training: set[str] = set()
    both_busy = threading.Event()

    def watch(event) -> None:
        (training.add if event.kind == "started" and event.cell.kind == "train" else training.discard)(event.cell.key)
        if len(training) == 2:
            both_busy.set()

    def strike() -> None:
        both_busy.wait(60)
        wait_until(lambda: len(list((tmp_path / "ray" / "partial").glob("*.pt"))) == 2)
        cluster.remove_node(victim, allow_graceful=False)

    victim = sorted(cluster.worker_nodes, key=lambda node: node.node_id)[0]
    killer = threading.Thread(target=strike)
    killer.start()
    try:
        done = on_ray(suite, on_event=watch, checkpoint=0.3)
    finally:
        killer.join()
        cluster.add_node(num_cpus=1)
    assert not done.unfinished
    assert len(on_ray.said) == 1 and "its node was lost" in on_ray.said[0], on_ray.said
    assert results(done.folder) == locally(suite)
    lost = [record for record in records(done.folder).values() if "resumed" in record["flags"]]
    assert len(lost) == 1 and f"seed={lost[0]['cell']['seed']}" in on_ray.said[0]
    assert not list((done.folder / "partial").iterdir())


def test_every_end_of_a_cell_is_a_status_and_the_others_finish(tmp_path, on_ray):
    for name, (does, *_) in ENDS.items():
        write_loss(tmp_path, name, CALM + does)
    losses = ", ".join(f'"{name}"' for name in ["softmax", *ENDS])
    text = SMALL.replace('["softmax", "w_softmax"]', f"[{losses}]").replace("seeds = 2", "seeds = 1")
    suite = write_suite(tmp_path, text)
    done = on_ray(suite)
    assert len(done.unfinished) == len(ENDS)
    local = locally(suite)
    for key, record in records(done.folder).items():
        name = record["label"]
        _, status, cause, why = ENDS.get(name, ("", "done", None, ""))
        assert (record["status"], record["cause"]) == (status, cause), record["error"]
        assert why in (record["error"] or "")
        if (status, cause) == ("failed", "environment"):  # another node may do better
            assert record["error"].endswith("(tried 3 times)")
            assert len([text for text in on_ray.said if name in text and "trying again" in text]) == 2
            continue
        expected = local[key]
        expected["error"] = expected["error"] and expected["error"].replace(str(tmp_path / "local"), str(done.folder))
        assert result(record) == expected  # to the words of the error
    assert len(on_ray.said) == 2 * 2


def test_a_worker_that_is_killed_is_replaced(tmp_path, on_ray):
    """Ray's own process, as the system does when memory is short."""
    marker = tmp_path / "killed"
    forward = (
        f"if len(labels) > 2 and not os.path.exists({str(marker)!r}):\n"
        f"            open({str(marker)!r}, 'w').write(str(os.getpid()))\n"
        f"            os.kill({WORKER}, signal.SIGKILL)\n"
        "            time.sleep(600)"
    )
    write_loss(tmp_path, "mine", forward)
    suite = write_suite(tmp_path, WITH_MINE.replace("seeds = 2", "seeds = 1"))
    done = on_ray(suite)
    assert not done.unfinished
    assert len(on_ray.said) == 1 and "its worker died" in on_ray.said[0], on_ray.said
    assert results(done.folder) == locally(suite)
    wait_until(lambda: not alive(int(marker.read_text())), 20)  # the cell ended with its worker


def test_a_cell_that_hangs_is_ended_with_all_it_started(tmp_path, on_ray):
    marker = tmp_path / "child.pid"
    forward = (
        "if len(labels) > 2:\n"
        "            import subprocess\n"
        f"            open({str(marker)!r}, 'w').write(str(subprocess.Popen(['sleep', '600']).pid))\n"
        "            time.sleep(600)"
    )
    write_loss(tmp_path, "hangs", forward)
    suite = write_suite(tmp_path, SMALL.replace('"w_softmax"]', '"hangs"]').replace("seeds = 2", "seeds = 1"))
    done = on_ray(suite, timeout=3)
    found = {record["label"]: (record["status"], record["error"]) for record in records(done.folder).values()}
    assert found == {"softmax": ("done", None), "hangs": ("timeout", "killed after 3 seconds")}
    wait_until(lambda: not alive(int(marker.read_text())), 10)


def test_a_node_that_does_not_keep_the_limit_is_made_to(tmp_path, on_ray, monkeypatch):
    """The cell stops its own guard: only the driver is left to end it."""
    monkeypatch.setattr("lossbench.engines.ray.engine.Ray.patience", 1)
    write_loss(tmp_path, "mine", f"if len(labels) > 2: os.kill({WORKER}, signal.SIGSTOP); time.sleep(600)")
    text = WITH_MINE.replace('"w_softmax", ', "").replace("seeds = 2", "seeds = 1")
    done = on_ray(write_suite(tmp_path, text), timeout=3)
    found = {record["label"]: (record["status"], record["error"]) for record in records(done.folder).values()}
    assert found["softmax"][0] == "done"
    assert found["mine"] == ("timeout", "killed after 3 seconds")


def test_fail_fast_starts_nothing_new_after_a_failure(tmp_path, on_ray):
    write_loss(tmp_path, "bad", "if len(labels) > 2: raise RuntimeError('x')")
    text = SMALL.replace('["softmax", "w_softmax"]', '["bad", "softmax"]').replace("seeds = 2", "seeds = 5")
    done = on_ray(write_suite(tmp_path, text), jobs=1, fail_fast=True)
    assert len(records(done.folder)) == 1


def test_a_driver_that_is_killed_loses_nothing(tmp_path, cluster):
    write_loss(tmp_path, "mine", f"{SLOWLY}; open({str(tmp_path / 'pids')!r}, 'a').write(f'{{os.getpid()}}\\n')")
    suite = write_suite(tmp_path, LONG)
    arguments = ["run", suite, "--no-report", "--engine", "ray", "--address", cluster.address, "--checkpoint", "0.3s"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    driver = started(tmp_path, *arguments, "--out", "killed", **quiet)
    out = tmp_path / "killed"
    wait_until(lambda: list(out.glob("partial/*.pt")) or driver.poll() is not None)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    pids = {int(pid) for pid in (tmp_path / "pids").read_text().split()}
    wait_until(lambda: not any(map(alive, pids)), 20)  # the cells have ended with their driver
    before = results(out)
    resumed = ran(tmp_path, *arguments, "--out", "killed")
    assert resumed.returncode == 0, resumed.stderr
    assert f"8 cells, {len(before)} already done" in resumed.stderr
    assert before.items() <= results(out).items()
    assert results(out) == locally(suite)
    assert any("resumed" in record["flags"] for record in records(out).values())
    assert list((out / "staging").iterdir()) == []
    lines = resumed.stderr.splitlines()
    assert len(lines) == 1 + 8 - len(before), resumed.stderr  # and not a word of Ray's


def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(tmp_path, cluster):
    write_loss(tmp_path, "mine", f"time.sleep(0.1); open({str(tmp_path / 'pids')!r}, 'a').write(f'{{os.getpid()}}\\n')")
    suite = write_suite(tmp_path, LONG.replace('"softmax", "w_softmax", "mine"', '"mine", "softmax"'))
    arguments = ["run", suite, "--no-report", "--engine", "ray", "--address", cluster.address]
    driver = started(tmp_path, *arguments, stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_until((tmp_path / "pids").exists)
    wait_until(lambda: (tmp_path / "pids").read_text().count("\n") > 5)  # beyond the preflight
    os.killpg(driver.pid, signal.SIGINT)
    _, stderr = driver.communicate(timeout=120)
    assert driver.returncode == 130
    assert "the same command continues from here" in stderr and "Traceback" not in stderr
    pids = {int(pid) for pid in (tmp_path / "pids").read_text().split()}
    wait_until(lambda: not any(map(alive, pids)), 20)


def test_a_local_run_and_one_on_ray_share_the_work_of_a_folder(tmp_path, on_ray):
    write_loss(tmp_path, "mine", SLOWLY)
    suite = write_suite(tmp_path, LONG)
    arguments = ["run", suite, "--no-report", "-j", "1", "--out", tmp_path / "ray"]
    other = started(tmp_path, *arguments, stderr=subprocess.PIPE, text=True)
    wait_until((tmp_path / "ray" / "plan.json").exists)
    done = on_ray(suite)
    _, stderr = other.communicate(timeout=120)
    assert other.returncode == 0, stderr
    assert not done.unfinished and len(records(done.folder)) == 8
    assert not (done.folder / "set_aside").exists()  # no cell was trained twice


def test_a_folder_called_lossbench_in_the_working_folder_is_not_imported(tmp_path, cluster):
    (tmp_path / "lossbench").mkdir()
    (tmp_path / "lossbench" / "__init__.py").write_text("raise RuntimeError('not me')\n")
    suite = write_suite(tmp_path, SMALL.replace("seeds = 2", "seeds = 1"))
    run = ran(tmp_path, "run", suite, "--no-report", "--engine", "ray", "--address", cluster.address)
    assert run.returncode == 0, run.stderr


def test_gpus_are_asked_for_and_a_cell_sees_its_own(tmp_path, cluster, on_ray):
    """Ray believes a node that says it has a GPU; that is enough to see what a cell would be given."""
    write_loss(tmp_path, "mine", "if self.calls == 1: print('GPU', os.environ.get('CUDA_VISIBLE_DEVICES'))")
    suite = write_suite(tmp_path, WITH_MINE.replace("seeds = 2", "seeds = 1"))
    with pytest.raises(LossbenchError, match=r"no node of the Ray cluster has 1 CPUs and 0\.5 GPUs for a cell"):
        on_ray(suite, gpus_per_cell=0.5)
    node = cluster.add_node(num_cpus=2, num_gpus=1)
    try:
        done = on_ray(suite, gpus_per_cell=0.5)
        assert not done.unfinished
        logs = {
            record["label"]: Store(done.folder).log(key).read_text() for key, record in records(done.folder).items()
        }
        assert logs["mine"] == "GPU 0\n"
        wants = write_suite(tmp_path, SMALL.replace("seeds = 2", 'seeds = 1\ndevice = "cuda"'))
        with pytest.raises(LossbenchError, match="set --gpus-per-cell to the share of a GPU that a cell needs"):
            on_ray(wants, out=tmp_path / "none")
    finally:
        cluster.remove_node(node)


def test_a_node_with_another_lossbench_is_refused_before_anything_runs(tmp_path, on_ray, monkeypatch):
    suite = write_suite(tmp_path, SMALL)
    real = joining.node.identity
    monkeypatch.setattr(joining.node, "identity", lambda: real() | {"lossbench": "f" * 64, "place": "/opt/lossbench"})
    with pytest.raises(
        LossbenchError, match=r"node .*: its lossbench .* differs from that of this run \(/opt/lossbench\)"
    ):
        on_ray(suite)
    assert not (tmp_path / "ray").exists()
    monkeypatch.setattr(joining.Cluster, "check_nodes", lambda self: None)  # one that joined later
    with pytest.raises(RunError, match="differs from that of this run"):
        on_ray(suite)
    assert records(tmp_path / "ray") == {}


def test_more_than_any_node_has_is_refused(tmp_path, on_ray):
    suite = write_suite(tmp_path, SMALL)
    with pytest.raises(LossbenchError, match="no node of the Ray cluster has 2 CPUs for a cell"):
        on_ray(suite, cpus_per_cell=2)
    with pytest.raises(LossbenchError, match="1 CPUs and 1,000,000,000,000,000 bytes of memory"):
        on_ray(suite, memory=10**15)
    with pytest.raises(LossbenchError, match="no node of the Ray cluster has 2 CPUs for a cell"):
        on_ray(write_suite(tmp_path, SMALL.replace("seeds = 2", "seeds = 2\nthreads = 2")))
    assert not (tmp_path / "ray").exists()


def test_what_ray_says_of_versions_is_one_sentence(tmp_path, cluster, on_ray, monkeypatch):
    def mismatch(**options):
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.1\n    Python: 3.8")

    monkeypatch.setattr(ray, "init", mismatch)
    with pytest.raises(LossbenchError) as caught:
        on_ray(write_suite(tmp_path, SMALL))
    assert str(caught.value) == (
        f"cannot join the Ray cluster at {cluster.address}: Version mismatch: The cluster was started with: Ray: 2.1 "
        "Python: 3.8"
    )


def test_a_connection_that_the_user_has_is_used_and_kept(tmp_path, cluster, on_ray):
    handler = signal.getsignal(signal.SIGTERM)
    ray.init(address=cluster.address, log_to_driver=False)
    signal.signal(signal.SIGTERM, handler)
    try:
        suite = write_suite(tmp_path, SMALL.replace("seeds = 2", "seeds = 1"))
        with pytest.raises(LossbenchError, match="already connected to a Ray cluster"):
            on_ray(suite)
        assert not on_ray(suite, address=None).unfinished
        assert ray.is_initialized()
    finally:
        ray.shutdown()
