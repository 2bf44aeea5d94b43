"""README.md and docs/ are executed, so that they stay true. `kit.pages` says what a block means."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from kit.pages import DOCS, README, ROOT, Block, block_that_starts_with, blocks, named, plain

TOOLS = Path(sys.executable).parent
SESSION = DOCS / "python.md"  # run by itself, in one Python process
# The pages whose commands are run, in this order and in one folder: they use the files that the README makes.
WALK = [README, *(DOCS / f"{name}.md" for name in ("suites", "running", "report", "data", "tuning", "extending"))]
REST = [page for page in sorted(DOCS.glob("*.md")) if page not in (*WALK, SESSION)]  # nothing on them is run

# Commands that are shown and not run here, each with its reason.
NOT_RUN = {
    "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/lossbench run quick": "needs a network",
    "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/pytest": "needs a network",
    "pip install 'lossbench[ray]'": "needs a network",
    "lossbench run mine.toml --engine ray --address head:6379": "needs a Ray cluster; test_ray.py has one",
    "lossbench run mine.toml --engine ray --cpus-per-cell 1 --gpus-per-cell 0.5": "needs a GPU; see test_ray.py",
    "lossbench run mine.toml --shard 3/8 --out runs/mine-3": "one of eight jobs; test_merge.py runs and merges shards",
    "lossbench run mine.toml --shard $SLURM_ARRAY_TASK_ID/8 --out runs/mine-$SLURM_ARRAY_TASK_ID": "one of eight jobs",
    "lossbench merge runs/mine-* -o runs/mine": "needs those eight; test_merge.py runs and merges shards",
    "lossbench data get mnist": "needs a network; test_fetch.py has its own server",
}
# Commands with something added: what they print is not shown, and a report takes seconds.
ADDED = {
    "lossbench run mine.toml -l my_loss --seed 0": "--no-report",
    "lossbench run mine.toml --timeout 10m --memory 4GiB": "--no-report",
    "lossbench run mine.toml --set schedule.steps=20 --set seeds=2 --out runs/try": "--no-report",
    "lossbench run mine.toml --retry-failed": "--no-report",
    "pip install ./acme": "--quiet --no-deps --no-build-isolation --target site",  # offline, into a folder
}
EXIT_CODES = {"lossbench data verify mnist": 1}  # nothing was downloaded, so it is missing
QUICK = "Classification on digits (10 seeds"
TYPO = "lossbench: mine.toml: experiment.digits.losses[1].alhpa"
NOT_PRINTED = (QUICK, TYPO, "acme/")  # starts of text blocks that are tested by themselves, or drawings
PIECES = ("[profile.smoke]", "[[experiment.published]]", "[[claim]]", "[[experiment]]", "[tune]")  # of a suite


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_readme_and_the_docs_work_as_printed(tmp_path):
    printed = ""
    done: dict[str, str] = {}  # what a command printed, as long as no file was edited since
    for block in blocks(*WALK):
        match block.language:
            case "python" | "toml":
                _take(block, tmp_path)
            case "diff":
                _edit(block, tmp_path)
                done.clear()
            case "" | "bash":
                for command in block.commands:
                    if command not in done:
                        done[command] = _run(command, tmp_path, block.where)
                printed = "\n".join(done[command] for command in block.commands)
            case "text":
                _must_be_printed(block, printed)
            case other:
                pytest.fail(f"{block.where}: a block of '{other}' means nothing to this test")


@pytest.mark.slow
def test_the_python_page_works_as_printed(tmp_path):
    """All its blocks in one process, which marks where the output of each begins."""
    shown = blocks(SESSION)
    assert {block.language for block in shown} == {"python", "text"}
    script = "".join(
        f"print('\\n>>> {place}')\n{block.text}" for place, block in enumerate(shown) if block.language == "python"
    )
    (tmp_path / "page.py").write_text(script)
    output = _succeeds([sys.executable, "page.py"], tmp_path, SESSION.name)
    printed = dict(re.findall(r"^>>> (\d+)\n(.*?)(?=^>>> |\Z)", output, flags=re.MULTILINE | re.DOTALL))
    for place, block in enumerate(shown):
        if block.language == "text":
            _must_be_printed(block, printed[str(place - 1)])


def _take(block: Block, folder: Path) -> None:
    if block.file is None:
        if block.language == "python":
            _succeeds([sys.executable, "-c", block.text], folder, block.where)
        return
    path = folder / block.file
    if path.exists():
        shown = block.text.split("\n", 1)[1]
        assert shown in path.read_text(), f"{block.where}: {block.file} does not contain what is shown"
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text if block.language == "toml" else block.text.split("\n", 1)[1])


def _edit(block: Block, folder: Path) -> None:
    assert block.file, f"{block.where}: the first line must name a file"
    old, new = (
        "".join(f"{line[1:]}\n" for line in block.text.splitlines()[1:] if line.startswith(sign)) for sign in "-+"
    )
    path = folder / block.file
    assert path.read_text().count(old) == 1, f"{block.where}: the lines to change are not in {block.file}"
    path.write_text(path.read_text().replace(old, new))


def _run(command: str, folder: Path, where: str) -> str:
    """The output of a command of the docs, run by a shell without changes."""
    if command in NOT_RUN:
        return ""
    if command == "pip install ./acme":
        (folder / "acme/acme_plugins/__init__.py").touch()  # the empty file of the drawing
        command = f"{sys.executable} -m {command} {ADDED[command]}"
    return _succeeds(["bash", "-c", f"{command} {ADDED.get(command, '')}"], folder, where, EXIT_CODES.get(command, 0))


def _succeeds(command: list[str], folder: Path, where: str, code: int = 0) -> str:
    environment = {**os.environ, "PATH": f"{TOOLS}:{os.environ['PATH']}", "LOSSBENCH_DATA": str(folder / "data")}
    environment["OMP_NUM_THREADS"] = "1"  # the pages train tiny networks: more threads only wait for each other
    if (site := folder / "site").exists():
        environment["PYTHONPATH"] = str(site)
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)
    output = ran.stdout + ran.stderr
    assert ran.returncode == code, f"{where}: `{command[-1]}` ended with {ran.returncode}, not {code}\n{output}"
    return output


def _must_be_printed(block: Block, printed: str) -> None:
    if block.text.startswith(NOT_PRINTED):
        return
    lines = [plain(line) for line in printed.splitlines()]
    for line in block.text.splitlines():
        found = _among(plain(line), lines)
        assert found, f"{block.where}: nothing printed this line: {line}\n{printed}"


def _among(line: str, lines: list[str]) -> bool:
    """Whether this is one of the lines; a line that ends with … is the beginning of one."""
    return any(other.startswith(line[:-1].strip()) if line.endswith("…") else other == line for other in lines)


# ---- What the walk does not run


def test_every_command_is_run_or_has_a_reason_not_to_be():
    shown = {command for block in blocks(*WALK) for command in block.commands}
    odd = [command for command in shown - {*NOT_RUN, *ADDED} if not command.startswith(("lossbench ", "cp "))]
    assert not odd, "only lossbench and cp are run; give a reason in NOT_RUN"
    assert {*NOT_RUN, *ADDED, *EXIT_CODES} <= shown
    assert all(block_that_starts_with(start, *WALK) for start in NOT_PRINTED)
    assert not [block.where for block in blocks(*REST) if block.commands or block.language in ("python", "toml")]


def test_the_verdicts_of_the_first_run_are_those_of_the_committed_report():
    """The terminal wraps lines, and the report has leads in bold."""
    summary = " ".join((ROOT / "reports/quick/summary.md").read_text().replace("*", "").split())
    assert " ".join(block_that_starts_with(QUICK, README).text.split()) in summary


def test_the_misspelt_option_is_refused_with_the_sentence_shown(tmp_path, lossbench):
    sentence = block_that_starts_with(TYPO, *WALK).text
    suite, count = re.subn(
        r"^losses = .*$",
        'losses = ["softmax", { name = "w_softmax", alhpa = 1.0 }]',
        named("mine.toml").partition("[[claim]]")[0],
        flags=re.MULTILINE,
    )
    assert count == 1
    (tmp_path / "mine.toml").write_text(suite)
    ran = lossbench("run", "mine.toml")
    assert (ran.returncode, ran.stderr) == (2, sentence)


def test_the_pieces_of_suites_that_are_shown_are_understood(tmp_path, lossbench):
    """Beside the experiment of mine.toml, which they are about, with what they name besides."""
    unnamed = [block.text for block in blocks(*WALK) if block.language == "toml" and block.file is None]
    assert sorted(text.split("\n", 1)[0] for text in unnamed) == sorted(PIECES)
    profile, published, claims, swept, tune = (block_that_starts_with(piece, *WALK).text for piece in PIECES)
    assert len(tomllib.loads(claims)["claim"]) == 4
    experiment = named("mine.toml").partition("[[claim]]")[0]  # the first claim shown is that of mine.toml
    losses = 'losses = ["softmax", { name = "w_softmax", alpha = [0.5, 1.0, 1.5] }, "l_softmax", '
    assert lossbench("new", "loss", "my_loss").returncode == 0
    (tmp_path / "mine.toml").write_text(
        experiment.replace('losses = ["softmax", ', losses)
        + published
        + '[[experiment]]\nname = "classes"\ndataset = "digits"\nclasses = [5, 7, 10]\nwidths = [16]\n'
        'losses = ["softmax", "w_softmax"]\nbackbone = "mlp"\nseeds = 3\nschedule = { steps = 5 }\n\n'
        + "\n".join((claims, tune, profile))
    )
    ran = lossbench("plan", "mine.toml", "--no-forecast", "--profile", "smoke")
    assert ran.returncode == 0, ran.stderr
    (tmp_path / "mine.toml").write_text(f'name = "mine"\n{swept}')
    ran = lossbench("plan", "mine.toml", "--no-forecast")
    assert ran.returncode == 0 and "160 of 160 cells to train" in ran.stdout, ran.stdout + ran.stderr
