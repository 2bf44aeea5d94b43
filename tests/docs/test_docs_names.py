"""What README.md and docs/ name exists: links, commands, options, files, tests, plugins, rooms."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest
from kit.pages import DOCS, PAGES, README, ROOT, blocks, headings, rows, section, without_blocks

from lossbench.cli.commands import cli
from lossbench.plugins.metrics import METRICS
from lossbench.suite.format import ClaimText, ExperimentText, SuiteFile, Tune

LONGEST_README = 200  # lines


def test_the_readme_is_short():
    assert len(README.read_text().splitlines()) <= LONGEST_README


def test_the_readme_has_one_test_command_which_ci_runs():
    lines = [line for line in README.read_text().splitlines() if re.match(r"python3 -m venv .*pytest$", line)]
    assert len(lines) == 1
    assert "grep -m1 -E '^python3 -m venv .*pytest$' README.md" in (ROOT / ".ci/run").read_text()


def test_the_workflow_and_the_hooks_use_the_tools_of_ci():
    script, hooks = (ROOT / ".ci/run").read_text(), (ROOT / ".pre-commit-config.yaml").read_text()
    assert "- run: .ci/run" in (ROOT / ".github/workflows/ci.yml").read_text()
    for tool in ("ruff check", "ruff format", "mypy"):
        assert tool in script and f"entry: {tool}" in hooks


def test_every_page_is_linked_from_the_readme():
    assert not [page.name for page in DOCS.glob("*.md") if f"](docs/{page.name})" not in README.read_text()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    nowhere = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_blocks(page)):
        path, _, heading = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if re.match(r"https?:", target):
            continue
        if not (file.exists() and file.is_relative_to(ROOT)) or (heading and heading not in headings(file)):
            nowhere.append(target)
    assert not nowhere


def test_every_command_is_shown():
    text = "\n".join(page.read_text() for page in PAGES if page.name != "CHANGELOG.md")
    assert not [name for name, _ in _commands(cli, ()) if f"lossbench {' '.join(name)}" not in text]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_that_are_named_exist(page):
    known = dict(_commands(cli, ()))
    everywhere = {option for found in known.values() for option in _options(found)}
    fenced = [command for block in blocks(page) for command in block.commands]
    inline = re.findall(r"`([^`\n]+)`", without_blocks(page))
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
    text = without_blocks(page)
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    missing = [name for name in re.findall(r"`(test_\w+)`", text) if f"def {name}(" not in tests]
    made = {block.file for block in blocks(*PAGES)}
    for path in re.findall(r"\b((?:tests|lossbench|suites|docs|losses|backbones)/[\w/]+\.(?:py|toml|md))", text):
        if path not in made and "NAME" not in path and not (ROOT / path).exists():
            missing.append(path)
    assert not missing


def test_every_plugin_is_listed(registry):
    table = section(README, "What is included")
    missing = [name for kind in ("loss", "backbone", "dataset") for name in registry.names(kind) if name not in table]
    missing += [path.stem for path in (ROOT / "suites").glob("*.toml") if f"`{path.stem}`" not in table]
    data = section(DOCS / "data.md", "Datasets")
    missing += [name for name in registry.names("dataset") if f"`{name}`" not in data]
    assert not missing


def test_every_key_of_a_suite_file_is_explained():
    for page, *models in (("suites.md", SuiteFile, ExperimentText, ClaimText), ("tuning.md", Tune)):
        text = (DOCS / page).read_text()
        schemas = [schema for model in models for schema in _tables(model.model_json_schema())]
        keys = {key for schema in schemas for key in schema.get("properties", ())}
        if page == "suites.md":
            keys -= set(Tune.model_fields) | {"choices"}
        assert keys and not [key for key in sorted(keys) if not re.search(rf"\b{key}\b", text)]


def _tables(schema: dict) -> list[dict]:
    return [schema, *schema.get("$defs", {}).values()]


def test_every_metric_is_explained():
    listed = rows(DOCS / "suites.md", "| metrics | |")
    named = {name for row in listed[2:] for name in re.findall(r"`([\w@.]+)`", row[1])}
    assert named - {"timing", "holdout", "evaluations"} == set(METRICS)


def test_the_architecture_names_every_room():
    rooms = {name for row in rows(DOCS / "architecture.md", "| package | job |")[2:] for name in row[0].split(", ")}
    package = ROOT / "lossbench"
    modules = {path.name for path in package.glob("*.py")} - {"__init__.py"}
    folders = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    assert {f"`{name}`" for name in (*modules, *folders)} == rooms


def _commands(group: click.Group, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, found in group.commands.items():
        if isinstance(found, click.Group):
            yield from _commands(found, (*above, name))
        else:
            yield (*above, name), found


def _options(found: click.Command) -> set[str]:
    return {"--help", "-h", *(option for parameter in found.params for option in parameter.opts)}
