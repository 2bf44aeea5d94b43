"""The command line, the only place that prints. Heavy imports are inside commands, so that `--help` is instant."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lossbench.errors import LossbenchError, StoreError

if TYPE_CHECKING:
    from lossbench.api import Job, RunResult

DONE, UNFINISHED, WRONG, INTERRUPTED = 0, 1, 2, 130


def main() -> None:
    """Entry point: errors that a user can act on become one sentence and exit code 2."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill stops as cleanly as Ctrl-C
    try:
        code = cli.main(prog_name="lossbench", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = WRONG
    except LossbenchError as error:
        click.echo(f"lossbench: {error}", err=True)
        code = WRONG
    except (KeyboardInterrupt, click.Abort):
        click.echo("lossbench: stopped; finished cells are kept, the same command goes on from here", err=True)
        code = INTERRUPTED
    except BrokenPipeError:  # `lossbench list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = DONE
    sys.exit(code)


class _Ordered(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_Ordered, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="lossbench", message="lossbench %(version)s")
def cli() -> None:
    """Which margin loss, at which FC width, is really better, and what does it cost?

    \b
    lossbench run quick                 train what is missing, write reports/summary.md
    lossbench plan quick                what would be trained
    lossbench list losses               the losses there are
    lossbench info loss w_softmax       one of them, with its options
    """


def _together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


selecting = _together(
    click.option("-l", "--loss", "losses", multiple=True, metavar="NAME[option=value]", help="Only these losses."),
    click.option("-d", "--dataset", "datasets", multiple=True, metavar="NAME", help="Only these datasets."),
    click.option("-b", "--backbone", "backbones", multiple=True, metavar="NAME", help="Only these backbones."),
    click.option("-w", "--width", "widths", multiple=True, type=click.IntRange(min=1), help="Only these FC widths."),
    click.option("--seed", "seeds", multiple=True, type=click.IntRange(min=0), help="Only these seeds."),
    click.option("--profile", metavar="NAME", help="The suite at another scale, as it defines it."),
    click.option("--data", metavar="DIR", help="Where datasets lie [$LOSSBENCH_DATA, else the user's cache]."),
    click.option("--plugins", multiple=True, metavar="DIR", help="A folder with losses/, backbones/ or datasets/."),
)
out_option = click.option("--out", metavar="DIR", help="The run folder [runs/<suite name>].")


@cli.command()
@click.argument("suite")
@selecting
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Cells at a time [the number of cores].")
@click.option("--timeout", metavar="10m", help="Kill a cell that takes longer (s, m or h).")
@out_option
@click.option("--reports", metavar="DIR", default="reports", show_default=True, help="Where the report goes.")
@click.option("--no-report", is_flag=True, help="Write no report.")
@click.option("-f", "--force", is_flag=True, help="Train the chosen cells again, even those that are done.")
@click.option("--retry-failed", is_flag=True, help="Train again what failed, ran out of memory or time; nothing else.")
@click.option("--fail-fast", is_flag=True, help="Start nothing new after the first cell that does not finish.")
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be trained, as `lossbench plan` does.")
@click.option("-q", "--quiet", is_flag=True, help="Print problems and nothing else.")
def run(
    suite: str,
    jobs: int | None,
    timeout: str | None,
    out: str | None,
    reports: str,
    no_report: bool,
    force: bool,
    retry_failed: bool,
    fail_fast: bool,
    dry_run: bool,
    quiet: bool,
    **selection: Any,
) -> int:
    """Train what is missing of SUITE (a file, or the name of a built-in suite), then write its report.

    Exit code 0: every cell is done. 1: some cell did not finish. 2: the request is wrong and nothing ran.
    """
    from lossbench import api

    seconds = _seconds(timeout)
    if force and retry_failed:
        raise click.UsageError("--force and --retry-failed exclude each other.")
    if dry_run:
        _show_plan(api.prepare(suite, **selection), out)
        return DONE
    with _progress(quiet) as watch:
        result = api.run(
            suite,
            out=out,
            reports=None if no_report else reports,
            jobs=jobs,
            timeout=seconds,
            force=force,
            retry_failed=retry_failed,
            fail_fast=fail_fast,
            on_event=watch.event,
            on_start=watch.start,
            notify=watch.say,
            **selection,
        )
    if not quiet:
        _show_result(result)
    return _show_unfinished(result)


@cli.command()
@click.argument("suite")
@selecting
@out_option
def plan(suite: str, out: str | None, **selection: Any) -> None:
    """Show the cells that SUITE means, and which of them are done. Trains and writes nothing."""
    from lossbench import api

    _show_plan(api.prepare(suite, **selection), out)


@cli.command(name="list")
@click.argument("what", type=click.Choice(["losses", "backbones", "datasets", "suites"]), required=False)
@click.option("--plugins", multiple=True, metavar="DIR", help="A folder with losses/, backbones/ or datasets/.")
def list_(what: str | None, plugins: tuple[str, ...]) -> None:
    """List losses, backbones, datasets and suites, one line each."""
    from lossbench.errors import PluginError
    from lossbench.registry import FOLDER, KINDS, Registry

    registry = Registry(Path(folder) for folder in plugins)
    shown: dict[str, list[tuple[str, str]]] = {}
    for kind in KINDS:
        rows = []
        for name in registry.names(kind):
            try:
                rows.append((name, registry.find(kind, name).summary))
            except PluginError as error:  # one broken file must not hide the others
                rows.append((name, f"(broken: {error})"))
        shown[FOLDER[kind]] = rows
    shown["suites"] = list(_suite_titles())
    for heading in [what] if what else shown:
        if not what:
            click.secho(f"{heading}", bold=True)
        wide = max((len(name) for name, _ in shown[heading]), default=0)
        for name, summary in shown[heading]:
            click.echo(f"{'' if what else '  '}{name:<{wide}}  {summary}")
        if not what:
            click.echo()


@cli.command()
@click.argument("kind", type=click.Choice(["loss", "backbone", "dataset", "suite"]))
@click.argument("name")
@click.option("--plugins", multiple=True, metavar="DIR", help="A folder with losses/, backbones/ or datasets/.")
def info(kind: Any, name: str, plugins: tuple[str, ...]) -> None:
    """Show one loss, backbone, dataset or suite: what it is, its options and their defaults."""
    from lossbench.registry import REQUIRED, Registry

    if kind == "suite":
        from lossbench.suite_files import locate

        path = locate(name)
        click.echo(f"{path}\n\n{path.read_text(encoding='utf-8').rstrip()}")
        return
    plugin = Registry(Path(folder) for folder in plugins).find(kind, name)
    click.echo(plugin.doc or "(no docstring)")
    click.echo(f"\nfile: {plugin.path}")
    click.echo("options:" if plugin.options else "options: none")
    for option in plugin.options.values():
        default = "required" if option.default is REQUIRED else f"= {option.default!r}"
        click.echo(f"  {option.name}: {option.annotation_text} {default}")


@cli.command()
@click.argument("run_folder", metavar="RUN")
def status(run_folder: str) -> int:
    """Show how the cells of RUN (a run folder, or the name of a suite run here) ended."""
    import rich.box
    import rich.table

    from lossbench.store import Store

    store = Store(_run_folder(run_folder))
    outline, cells = store.plan()
    records, damaged = store.scan()
    states = {cell.key: records[cell.key]["status"] if cell.key in records else "missing" for cell in cells}
    columns = ["done", *sorted(set(states.values()) - {"done"})]
    table = rich.table.Table(
        title=f"{outline.title} ({store.root})", box=rich.box.SIMPLE_HEAD, title_justify="left", title_style="bold"
    )
    table.add_column("experiment")
    for column in columns:
        table.add_column(column, justify="right")
    for experiment in dict.fromkeys(cell.experiment for cell in cells):
        mine = {cell.key for cell in cells if cell.experiment == experiment}
        table.add_row(experiment, *(str(sum(states[key] == column for key in mine)) for column in columns))
    _console().print(table)
    for name, why in damaged.items():
        click.echo(f"damaged: {store.cells / name}: {why}")
    stale = len(records.keys() - states.keys())
    if stale:
        click.echo(f"{stale} records belong to older versions of this suite or its plugins and are not counted.")
    failed = {cell.key: cell for cell in cells if states[cell.key] not in ("done", "missing")}
    for key, cell in failed.items():
        click.echo(f"{states[key]}: {cell.title}\n    {_last_line(records[key]['error'])}\n    log: {store.log(key)}")
    return DONE if set(states.values()) == {"done"} else UNFINISHED


@cli.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN…")
@click.option("--reports", metavar="DIR", default="reports", show_default=True, help="Where the report goes.")
def report(runs: tuple[str, ...], reports: str) -> None:
    """Write the report of RUN… (run folders, or names of suites run here) again from their records."""
    from lossbench.report import write

    written = write([_run_folder(run) for run in runs], reports)
    _show_report(list(map(_run_folder, runs)))
    _show_paths(written)


@cli.command()
def schema() -> None:
    """Print the JSON schema of a suite file, for editors."""
    import json

    from lossbench.registry import Registry
    from lossbench.suite import json_schema

    click.echo(json.dumps(json_schema(Registry()), indent=2, ensure_ascii=False))


# --- what people see ----------------------------------------------------------------------------------------------


def _console() -> Any:
    import rich.console

    terminal = sys.stdout.isatty()
    return rich.console.Console(highlight=False, width=None if terminal else 160, soft_wrap=not terminal)


@contextmanager
def _progress(quiet: bool) -> Iterator[Any]:
    from lossbench import progress

    with progress.watching(quiet=quiet, terminal=sys.stderr.isatty()) as watch:
        yield watch


def _show_plan(job: Job, out: str | None) -> None:
    import rich.box
    import rich.table

    from lossbench.store import Store

    outline = job.suite.outline
    store = Store(out or Path("runs") / outline.name)
    records, _ = store.scan()
    chosen = {cell.key for cell in job.chosen}
    table = rich.table.Table(title=outline.title, box=rich.box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for column in ("experiment", "dataset", "backbone"):
        table.add_column(column, overflow="fold")
    for column in ("widths", "losses", "seeds", "cells", "warm starts", "timing", "done"):
        table.add_column(column, justify="right")
    for experiment in dict.fromkeys(cell.experiment for cell in job.cells):
        mine = [cell for cell in job.cells if cell.experiment == experiment and cell.key in chosen]
        if not mine:
            continue
        trained = [cell for cell in mine if cell.kind == "train"]
        table.add_row(
            experiment,
            ", ".join(dict.fromkeys(cell.dataset.label for cell in mine)),
            mine[0].backbone.label,
            ", ".join(map(str, dict.fromkeys(cell.width for cell in mine))),
            str(len({cell.loss.label for cell in trained})),
            str(len({cell.seed for cell in trained})),
            *(str(sum(cell.kind == kind for cell in mine)) for kind in ("train", "warm", "timing")),
            str(sum(cell.key in records for cell in mine)),
        )
    _console().print(table)
    todo = [cell for cell in job.chosen if cell.key not in records]
    steps = sum(cell.schedule.steps for cell in todo if cell.kind != "timing")
    click.echo(f"{len(todo)} of {len(job.chosen)} cells to train, {steps:,} steps, in {store.root}")
    warm = [cell for cell in job.chosen if cell.kind == "warm"]
    users = [cell for cell in job.chosen if cell.warm and cell.kind == "train"]
    if warm:
        saved = sum(cell.warm.steps for cell in users if cell.warm) - sum(cell.schedule.steps for cell in warm)
        click.echo(f"{len(warm)} warm starts are shared by {len(users)} cells, which saves {saved:,} steps")


def _show_result(result: RunResult) -> None:
    if result.report:
        _show_report([result.folder])
        _show_paths(result.report)
    click.echo(f"records  {result.folder}")


def _show_report(runs: list[Path]) -> None:
    from lossbench.report.analysis import analyse
    from lossbench.report.render import terminal
    from lossbench.report.sections import sections

    console = _console()
    for part in terminal(sections(analyse(runs)), ["comparisons", "claims", "findings"]):
        console.print(part)


def _show_paths(written: dict[str, Path]) -> None:
    click.echo(f"\nreport   {written['summary.md']}\npage     {written['report.html']}")


def _show_unfinished(result: RunResult) -> int:
    from lossbench.store import Store

    store = Store(result.folder)
    for cell, state in result.unfinished[:20]:
        record = store.read(cell.key)
        why = f": {_last_line(record['error'])}\n    log: {store.log(cell.key)}" if record else ""
        click.echo(f"{state}: {cell.title}{why}", err=True)
    if (more := len(result.unfinished) - 20) > 0:
        click.echo(f"… and {more} more; `lossbench status {result.folder}` lists them", err=True)
    if any(state in ("failed", "oom", "timeout") for _, state in result.unfinished):
        click.echo("`--retry-failed` trains these again", err=True)
    return UNFINISHED if result.unfinished else DONE


def _run_folder(named: str) -> Path:
    """A run folder by path, or by the name of the suite that was run here."""
    from lossbench.errors import nearest

    for path in (Path(named), Path("runs") / named, Path("runs") / Path(named).stem):
        if (path / "plan.json").is_file():
            return path
    known = [path.parent.name for path in Path("runs").glob("*/plan.json")]
    if Path(named).is_dir():
        raise StoreError(f"{named}: is not a run folder (it has no plan.json)")
    raise StoreError(f"{named}: there is no such run; {nearest(named, known)}")


def _suite_titles() -> Iterator[tuple[str, str]]:
    from lossbench.suite_files import built_in

    for name, path in built_in().items():
        found = re.search(r'^title\s*=\s*"(.*)"', path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        yield name, found[1] if found else ""


def _last_line(error: str | None) -> str:
    return (error or "").strip().splitlines()[-1] if (error or "").strip() else ""


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if not match or float(match[1]) <= 0:
        raise click.BadParameter(f"'{text}' is not a duration such as 90s, 10m or 2h.", param_hint="--timeout")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]
