"""The README and docs/ are executed, so that they cannot rot.

A fenced block of README.md means one of these, and nothing else is allowed:

    python, toml   a first line `# losses/my_loss.py` names a file: it is written, or, where a command has written it,
                   must say what is shown; python without a name is run; toml without one is a piece of a suite
    diff           a first line `--- losses/my_loss.py` names a file: its − lines become the + lines
    (none), bash   commands, one a line, run in order in one folder that was empty at first
    text           lines that the commands of the block before must have printed, decimals apart
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from conftest import command as lossbench_command

from lossbench.cli.commands import cli

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]

# Commands that are shown and not run here, each with its reason.
NOT_RUN = {
    "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/lossbench run suites/quick.toml": "needs a network",
    "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/pytest": "needs a network",
    "pip install 'lossbench[ray]'": "needs a network",
    "lossbench run mine.toml --engine ray --address head:6379": "needs a Ray cluster; test_ray.py has one",
    "lossbench run mine.toml --engine ray --cpus-per-cell 1 --gpus-per-cell 0.5": "needs a GPU; see test_ray.py",
    "lossbench run mine.toml --shard $SLURM_ARRAY_TASK_ID/8 --out runs/mine-$SLURM_ARRAY_TASK_ID": "one of eight jobs",
    "lossbench merge runs/mine-* -o runs/mine": "wants those eight; test_merge.py runs and merges shards",
    "lossbench data get mnist": "needs a network; test_fetch.py has a server of its own",
}
# Commands with something added: what they print is not shown, and a report takes seconds.
ADDED = {
    "lossbench run mine.toml -l my_loss --seed 0": "--no-report",
    "lossbench run mine.toml --timeout 10m --memory 4GiB": "--no-report",
    "lossbench run mine.toml --retry-failed": "--no-report",
}
# Commands that do not end with 0, with what is documented.
EXIT_CODES = {"lossbench data verify mnist": 1}  # it is not here: nothing was fetched
CFF_KEYS = {
    *("abstract", "authors", "cff-version", "commit", "contact", "date-released", "doi", "identifiers", "keywords"),
    *("license", "license-url", "message", "preferred-citation", "references", "repository", "repository-artifact"),
    *("repository-code", "title", "type", "url", "version"),
}
CFF_REFERENCE_KEYS = {"type", "title", "authors", "year", "identifiers", "url", "notes"}  # those of ours
DRAWINGS = ("suites/quick.toml",)  # first lines of text blocks that nothing prints
TYPO = "lossbench: mine.toml: experiment.digits.losses[1].alhpa"


class Block(NamedTuple):
    line: int
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that the first line names."""
        marker = "---" if self.language == "diff" else "#"
        found = re.fullmatch(rf"{marker} ([\w/]+\.\w+)", self.text.split("\n", 1)[0])
        return found[1] if found else None

    @property
    def commands(self) -> list[str]:
        lines = (re.sub(r"\s+#.*", "", line) for line in self.text.splitlines())
        return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def blocks(page: Path = README) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(text.count("\n", 0, found.start()) + 1, found[1], found[2])
        for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    ]


def named(file: str) -> str:
    return next(block.text for block in blocks() if block.file == file)


# ---- Everything that is shown, in its order


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_readme_works_as_printed(tmp_path):
    printed = ""
    for block in blocks():
        where = f"README.md:{block.line}"
        match block.language:
            case "python" | "toml":
                _take(block, tmp_path, where)
            case "diff":
                _edit(block, tmp_path, where)
            case "" | "bash":
                printed = "\n".join(_run(command, tmp_path, where) for command in block.commands)
            case "text":
                _must_be_printed(block, printed, where)
            case other:
                pytest.fail(f"{where}: a block of '{other}' means nothing to this test")


def _take(block: Block, folder: Path, where: str) -> None:
    if block.file is None:
        if block.language == "python":
            _succeeds([sys.executable, "-c", block.text], folder, where)
        return
    path = folder / block.file
    if path.exists():
        assert block.text.split("\n", 1)[1] == path.read_text(), f"{where}: {block.file} is not what is shown"
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        path.write_text(block.text)


def _edit(block: Block, folder: Path, where: str) -> None:
    assert block.file, f"{where}: the first line must name a file"
    old, new = (
        "".join(f"{line[1:]}\n" for line in block.text.splitlines()[1:] if line.startswith(sign)) for sign in "-+"
    )
    path = folder / block.file
    assert path.read_text().count(old) == 1, f"{where}: the lines to change are not in {block.file}"
    path.write_text(path.read_text().replace(old, new))


def _run(command: str, folder: Path, where: str) -> str:
    """What a command printed, run by a shell as it is written."""
    if command in NOT_RUN:
        return ""
    return _succeeds(["bash", "-c", f"{command} {ADDED.get(command, '')}"], folder, where, EXIT_CODES.get(command, 0))


def _succeeds(command: list[str], folder: Path, where: str, code: int = 0) -> str:
    tools = Path(lossbench_command()[0]).parent
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "LOSSBENCH_DATA": str(folder / "data")}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)
    output = ran.stdout + ran.stderr
    assert ran.returncode == code, f"{where}: `{command[-1]}` ended with {ran.returncode}, not {code}\n{output}"
    return output


def _must_be_printed(block: Block, printed: str, where: str) -> None:
    if block.text.startswith((*DRAWINGS, TYPO)):
        return
    lines = {_plain(line) for line in printed.splitlines()}
    for line in block.text.splitlines():
        assert _plain(line) in lines, f"{where}: nothing printed this line: {line}\n{printed}"


def _plain(line: str) -> str:
    """A line without what another machine may print otherwise: decimals (not options), and how columns are set."""
    return " ".join(re.sub(r"(?<![=\d])(< )?[-+]?\d+\.\d+", "0.0", line).split())


def test_every_command_is_run_or_has_a_reason_not_to_be():
    shown = {command for block in blocks() if block.language in ("", "bash") for command in block.commands}
    odd = [command for command in shown - NOT_RUN.keys() if not command.startswith(("lossbench ", "cp "))]
    assert not odd, "only lossbench and cp are run; give a reason in NOT_RUN"
    assert {*NOT_RUN, *ADDED, *EXIT_CODES} <= shown
    assert all(any(block.text.startswith(start) for block in blocks()) for start in (*DRAWINGS, TYPO))


def test_the_misspelt_option_is_refused_with_the_sentence_shown(tmp_path, lossbench):
    sentence = next(block.text for block in blocks() if block.text.startswith(TYPO))
    suite, count = re.subn(
        r"^losses = .*$",
        'losses = ["softmax", { name = "w_softmax", alhpa = 1.0 }]',
        named("mine.toml"),
        flags=re.MULTILINE,
    )
    assert count == 1
    (tmp_path / "mine.toml").write_text(suite)
    ran = lossbench("run", "mine.toml")
    assert (ran.returncode, ran.stderr) == (2, sentence)


def test_the_claims_shown_are_understood(tmp_path, lossbench):
    """Beside the experiment of mine.toml, which they are about, with what they name besides."""
    shown = next(block.text for block in blocks() if block.text.startswith("[[claim]]"))
    assert len(tomllib.loads(shown)["claim"]) == 4
    (tmp_path / "mine.toml").write_text(
        named("mine.toml")
        .partition("[[claim]]")[0]  # a claim may be stated once, and the first one shown is this file's own
        .replace('losses = ["softmax", ', 'losses = ["softmax", { name = "w_softmax", alpha = [0.5, 1.0, 1.5] }, ')
        + '[[experiment]]\nname = "classes"\ndataset = "digits"\nclasses = [5, 7, 10]\nwidths = [16]\n'
        'losses = ["softmax", "w_softmax"]\nbackbone = "mlp"\nseeds = 3\nschedule = { steps = 5 }\n\n' + shown
    )
    assert lossbench("new", "loss", "my_loss").returncode == 0
    ran = lossbench("plan", "mine.toml", "--no-forecast")
    assert ran.returncode == 0, ran.stderr


# ---- How to cite


def test_the_citation_has_the_form_of_cff_1_2():
    yaml = pytest.importorskip("yaml")  # it comes with timm
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert found.keys() <= CFF_KEYS and {"cff-version", "message", "title", "authors"} <= found.keys()
    assert (found["cff-version"], found["type"]) == ("1.2.0", "software")
    assert (found["title"], found["version"], found["license"]) == (
        project["name"],
        project["version"],
        project["license"],
    )
    assert found["authors"] == [{"name": "The lossbench developers"}]
    (paper,) = found["references"]
    assert {"type", "title", "authors"} <= paper.keys() <= CFF_REFERENCE_KEYS
    assert isinstance(paper["year"], int) and paper["url"].startswith("https://")
    for identifier in paper["identifiers"]:
        assert identifier.keys() == {"type", "value"} and identifier["type"] in ("doi", "other", "swh", "url")


# ---- Names: of files, commands, options, modules, tests


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", _without_blocks(page)):
        if re.match(r"https?:", target):
            continue
        path, _, heading = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists() and file.is_relative_to(ROOT), f"{page.name}: {target} leads nowhere"
        if heading:
            assert heading in _headings(file), f"{page.name}: {target}: there is no such heading"


def test_every_command_is_shown():
    text = "\n".join(page.read_text() for page in PAGES if page.name != "CHANGELOG.md")
    missing = [name for name, _ in _commands(cli, ()) if f"lossbench {' '.join(name)}" not in text]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_that_are_named_exist(page):
    known = dict(_commands(cli, ()))
    everywhere = {option for found in known.values() for option in _options(found)}
    fenced = [command for block in blocks(page) if block.language in ("", "bash") for command in block.commands]
    inline = re.findall(r"`([^`\n]+)`", _without_blocks(page))
    for text in [*fenced, *inline]:
        words = text.replace("|", " ").split()
        if text.startswith("-") and re.match(r"-[a-z-]", text):
            assert words[0] in everywhere, f"{page.name}: there is no option {words[0]}"
        if words[0] != "lossbench" or len(words) == 1:
            continue
        name = next((tuple(words[1:end]) for end in (3, 2) if tuple(words[1:end]) in known), None)
        group = words[1] in {parts[0] for parts in known if len(parts) > 1}
        assert name or group, f"{page.name}: `{text}`: there is no such command"
        for word in words if name else ():
            if word.startswith("-"):
                assert word in _options(known[name]), f"{page.name}: `{text}`: there is no option {word}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_tests_that_are_named_exist(page):
    text = _without_blocks(page)
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", text):
        assert f"def {name}(" in tests, f"{page.name}: there is no test {name}"
    for path in re.findall(r"\b((?:tests|lossbench|suites|docs|losses|backbones)/[\w/]+\.(?:py|toml|md))", text):
        own = path in {block.file for block in blocks()} or "NAME" in path
        assert own or (ROOT / path).exists(), f"{page.name}: there is no {path}"


def test_every_plugin_is_listed(registry):
    text = README.read_text()
    tables = text[text.index("## Losses") : text.index("## More about suites")], text[text.index("## Data") :]
    assert not [name for name in registry.names("loss") if not re.search(rf"\b{name}\b", tables[0])]
    assert not [name for name in registry.names("dataset") if f"`{name}`" not in tables[1]]


def test_the_costs_shown_are_those_of_the_whole_table():
    whole = {row[0]: row[1:] for row in _rows(ROOT / "docs/losses.md", "| (B, C, M)")}
    excerpt = _rows(README, "| (B, C, M)")
    columns = [whole["(B, C, M)"].index(shape) for shape in excerpt[0][1:]]
    for name, *costs in excerpt[2:]:
        assert costs == [whole[name][column] for column in columns], name


def test_the_angles_quoted_are_those_of_the_quick_report():
    measured, _ = _reported("quick", "losses")
    for name, angle, between, accuracy in _rows(ROOT / "docs/differences.md", "| loss | mean test angle")[2:]:
        row = measured[re.sub(r", α = (.*)", r"[alpha=\1]", name)]
        told = f"{row['angle_test']:.1f}°", f"{row['weight_angle']:.1f}°", f"{row['accuracy']:.2f} %"
        assert (angle, between, accuracy) == told


def test_the_gradients_quoted_are_those_of_the_papers_report():
    reported = [_reported("paper", experiment) for experiment in ("mnist_gradients", "cifar10_gradients")]
    softmax, *rows = _rows(ROOT / "docs/differences.md", "| | MNIST: angle")[2:]
    told = [
        (f"{means['softmax']['angle_test']:.1f}°", f"{means['softmax']['accuracy']:.2f} %") for means, _ in reported
    ]
    assert softmax == ["softmax", *told[0], *told[1]]
    assert len(rows) == 9
    alpha = ""
    for name, *quoted in rows:
        alpha = found[1] if (found := re.match(r"α = (.*), ", name)) else alpha
        label = f"w_softmax[alpha={alpha},gradient={re.search('`(.*)`', name)[1]}]"
        told = [(f"{means[label]['angle_test']:.1f}°", _difference(by_loss[label])) for means, by_loss in reported]
        assert quoted == [*told[0], *told[1]], label


def test_what_the_readme_says_of_the_paper_is_what_its_report_says():
    text = README.read_text()
    section = " ".join(text[text.index("## What became of a paper") : text.index("## More about suites")].split())
    names = {"mnist": "MNIST", "cifar10": "CIFAR-10", "lfw_alone": "LFW", "omniglot": "Omniglot"}
    for experiment, name in names.items():
        worse = -_reported("paper", experiment)[1]["w_softmax[alpha=1.0]"]["delta"]
        assert re.search(rf"\b{worse:.1f} (points )?on {name}\b", section), (name, worse)
    angles = {label: row["angle_test"] for label, row in _reported("paper", "mnist")[0].items()}
    assert f"{angles['softmax']:.0f}° with softmax" in section
    turned = [angles[f"w_softmax[alpha={alpha}]"] for alpha in (0.5, 1.0, 1.5)]
    assert "{:.0f}°, {:.0f}° and {:.0f}° with α = 0.5, 1 and 1.5".format(*turned) in section
    stopped = [
        row["angle_test"] for label, row in _reported("paper", "mnist_gradients")[0].items() if "=fixed" in label
    ]
    assert f"it is {min(stopped):.0f}° to {max(stopped):.0f}°" in section
    cells = sum(json.loads((ROOT / "reports/paper/report.json").read_text())["statuses"].values())
    assert f"{cells:,} cells" in section


def test_the_architecture_names_every_module():
    text = README.read_text()
    section = set(re.findall(r"`([\w/]+)`", text[text.index("| module | what it does |") :]))
    package = ROOT / "lossbench"
    modules = {path.stem for path in package.glob("*.py")} - {"__init__"}
    folders = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    assert {*modules, *folders} <= section, "missing"
    assert {name for name in section if name.endswith("/")} - {"sets/"} <= folders


def _reported(name: str, experiment: str) -> tuple[dict[str, dict], dict[str, dict]]:
    """What a committed report has of an experiment of one point, by loss: the means, and differences in accuracy."""
    report = json.loads((ROOT / "reports" / name / "report.json").read_text())
    means, differences = (
        {
            row["loss"]: row
            for row in report[key]
            if row["experiment"] == experiment and row.get("metric", "accuracy") == "accuracy"
        }
        for key in ("main", "comparisons")
    )
    return means, differences


def _difference(row: dict) -> str:
    return "{:+.2f} [{:+.2f}, {:+.2f}]".format(*(row[key] for key in ("delta", "low", "high"))).replace("-", "−")


def _without_blocks(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def _headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", _without_blocks(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _commands(group: click.Group, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, found in group.commands.items():
        if isinstance(found, click.Group):
            yield from _commands(found, (*above, name))
        else:
            yield (*above, name), found


def _options(found: click.Command) -> set[str]:
    return {"--help", "-h", *(option for parameter in found.params for option in parameter.opts)}


def _rows(page: Path, head: str) -> list[list[str]]:
    """The rows of the Markdown table that begins so."""
    text = page.read_text()
    table = text[text.index(head) :].split("\n\n", 1)[0]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()]
