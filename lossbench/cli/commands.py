"""The commands; `screen` prints their results. Heavy imports are inside commands, so that `--help` is instant."""

from __future__ import annotations

import functools
import io
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lossbench.cli import data as cli_data
from lossbench.cli import report as cli_report
from lossbench.cli import screen
from lossbench.cli.engines import engine_of, engine_options
from lossbench.cli.screen import DONE, INTERRUPTED, UNFINISHED, WRONG
from lossbench.core.errors import ClusterLostError, LossbenchError, RunError, SuiteError

if TYPE_CHECKING:
    from lossbench.plan.selection import Selection


def main() -> None:
    """Entry point: errors that a user can act on are printed as one sentence, with exit code 2."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM stops as cleanly as Ctrl-C
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # file names need not be valid Unicode
    try:
        code = cli.main(prog_name="lossbench", standalone_mode=False)
    except click.ClickException as error:
        said = io.StringIO()
        error.show(said)
        screen.echo(said.getvalue().rstrip("\n"), err=True)
        code = WRONG
    except ClusterLostError as error:
        screen.echo(f"lossbench: {error}", err=True)
        os._exit(UNFINISHED)  # without its daemons, Ray crashes at a normal exit
    except LossbenchError as error:
        for line in str(error).split("\n") if isinstance(error, SuiteError) else [str(error)]:
            screen.echo(f"lossbench: {line}", err=True)
        code = UNFINISHED if isinstance(error, RunError) else WRONG
    except (KeyboardInterrupt, click.Abort):
        screen.echo("lossbench: stopped; finished cells are kept, the same command continues from here", err=True)
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
    """Benchmark losses: which one is really better on your task, and what does it cost?

    \b
    lossbench run quick                 run a suite and write reports/summary.md
    lossbench plan quick                show what would be trained
    lossbench report quick              write the report again from the records
    lossbench compare before after      compare two runs of a suite
    lossbench list losses               list the available losses
    lossbench info loss w_softmax       show a loss and its options
    lossbench check                     check that losses follow the plugin contract
    lossbench new loss my_loss          write losses/my_loss.py, a working template
    lossbench data list                 list datasets and how to get missing ones
    """


def _together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _axis_values(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, list[Any]]:
    """`--at steps=300 --at steps=600` → {"steps": [300, 600]}."""
    from lossbench.core.labels import plain_value

    found: dict[str, list[Any]] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name.strip() and equals and value.strip()):
            raise click.BadParameter(f"'{text}' is not of the form AXIS=VALUE, such as steps=300")
        found.setdefault(name.strip(), []).append(plain_value(value.strip()))
    return found


def _known_keys(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    from lossbench.suite.overrides import KEYS

    return [f"{key}=" for key in KEYS if key.startswith(incomplete)]


plugins_option = click.option(
    "--plugins", multiple=True, metavar="DIR", help="Also look for plugins in DIR/losses, DIR/metrics, …"
)
_selection_options = _together(
    click.option("-e", "--experiment", "experiments", multiple=True, metavar="NAME", help="Only these experiments."),
    click.option("-l", "--loss", "losses", multiple=True, metavar="NAME[option=value]", help="Only these losses."),
    click.option("-d", "--dataset", "datasets", multiple=True, metavar="NAME", help="Only these datasets."),
    click.option("-b", "--backbone", "backbones", multiple=True, metavar="NAME", help="Only these backbones."),
    click.option(
        "-w", "--width", "widths", multiple=True, type=click.IntRange(min=1), metavar="M", help="Only these widths."
    ),
    click.option("--seed", "seeds", multiple=True, type=click.IntRange(min=0), metavar="N", help="Only these seeds."),
    click.option(
        *("--at", "at"),
        multiple=True,
        metavar="AXIS=VALUE",
        callback=_axis_values,
        help="Only these values of an axis, as in --at steps=300.",
    ),
    click.option("--shard", metavar="I/N", help="Run shard I of N (balanced by training steps)."),
    click.option(
        "--profile",
        metavar="NAME",
        help="Run the suite with this profile, or 'none' for no profile [the first in 'auto' that can run here].",
    ),
    click.option(
        "--set",
        multiple=True,
        metavar="KEY=VALUE",
        shell_complete=_known_keys,
        help="Override a key of the suite and its profile: schedule.steps=100, experiment.NAME.widths=[9].",
    ),
    click.option("--no-fetch", is_flag=True, help="Do not download missing datasets."),
    click.option("--data", metavar="DIR", help="The dataset folder [$LOSSBENCH_DATA, else the user's cache]."),
    plugins_option,
)


def selecting(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that select a part of a suite, passed to the command as one `selection`."""

    @functools.wraps(command)
    def wrapped(*, no_fetch: bool, **options: Any) -> Any:
        from lossbench.plan.selection import Selection

        mine = {field.name: options.pop(field.name) for field in fields(Selection) if field.name in options}
        return command(selection=Selection(fetch=not no_fetch, **mine), **options)

    decorated: Callable[..., Any] = _selection_options(wrapped)
    return decorated


def _kept(_: click.Context, option: click.Parameter, text: str) -> tuple[str, ...]:
    from lossbench.core.errors import nearest
    from lossbench.core.metric import NEEDS

    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in NEEDS:
            raise click.BadParameter(f"cells cannot keep '{name}'; {nearest(name, NEEDS)}", param=option)
    return tuple(dict.fromkeys(names))


out_option = click.option("--out", metavar="DIR", help="The run folder [runs/<suite name>].")


@cli.command()
@click.argument("suite")
@selecting
@engine_options
@click.option("-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="Cells at a time [the number of cores].")
@click.option("--timeout", metavar="10m", help="Kill a cell that runs longer (s, m or h).")
@click.option("--memory", metavar="4GiB", help="Kill a cell that uses more memory (KiB, MiB or GiB).")
@click.option("--checkpoint", metavar="1m", default="1m", show_default=True, help="Save running cells this often.")
@out_option
@click.option("--reports", metavar="DIR", default="reports", show_default=True, help="The folder for the report.")
@click.option("--no-report", is_flag=True, help="Write no report.")
@click.option(
    "--keep",
    metavar="WHAT",
    default="",
    callback=_kept,
    help="Also keep these outputs of finished cells: predictions, features, model (comma-separated).",
)
@click.option("-f", "--force", is_flag=True, help="Train all selected cells again, even finished ones.")
@click.option("--retry-failed", is_flag=True, help="Train only cells that failed or ran out of memory or time.")
@click.option("--fail-fast", is_flag=True, help="Start no new cells after the first failure.")
@click.option("-n", "--dry-run", is_flag=True, help="Only show what would be trained, like `lossbench plan`.")
@click.option("-q", "--quiet", is_flag=True, help="Print only problems.")
def run(
    suite: str,
    jobs: int | None,
    timeout: str | None,
    memory: str | None,
    checkpoint: str,
    out: str | None,
    reports: str,
    no_report: bool,
    force: bool,
    retry_failed: bool,
    fail_fast: bool,
    dry_run: bool,
    quiet: bool,
    selection: Selection,
    **engine: Any,
) -> int:
    """Run a suite and write its report.

    Trains the cells of SUITE (a file, or the name of a built-in suite) that have no record yet.

    Exit code 0: all cells are done. 1: a cell did not finish. 2: invalid request; nothing ran.
    """
    from lossbench import api
    from lossbench.cli import progress

    seconds, every, most = _seconds(timeout), _seconds(checkpoint, "--checkpoint"), _bytes(memory)
    engine = engine_of(engine)
    if force and retry_failed:
        raise click.UsageError("--force and --retry-failed are mutually exclusive.")
    if dry_run:
        _show_plan(suite, out, selection, forecast=True)
        return DONE
    with progress.watching(quiet=quiet, terminal=sys.stderr.isatty()) as watch:
        result = api.run(
            suite,
            out=out,
            reports=None if no_report else reports,
            jobs=jobs,
            timeout=seconds,
            memory=most,
            checkpoint=every or 60,
            force=force,
            retry_failed=retry_failed,
            fail_fast=fail_fast,
            on_event=watch.event,
            on_start=watch.start,
            notify=watch.say,
            on_prepare=watch.prepare,
            on_fetch=partial(cli_data.watching, terminal=sys.stderr.isatty(), quiet=quiet),
            **engine,
            **vars(selection),
        )
    if not quiet:
        screen.show_result(result)
    return screen.show_unfinished(result)


@cli.command()
@click.argument("suite")
@selecting
@out_option
@click.option("--no-forecast", is_flag=True, help="Skip the forecast, which times a few training steps.")
def plan(suite: str, out: str | None, no_forecast: bool, selection: Selection) -> None:
    """Show the cells of a suite; train nothing.

    Shows which cells of SUITE are done and how long the others will take.
    """
    _show_plan(suite, out, selection, forecast=not no_forecast)


@cli.command(name="list")
@click.argument("what", type=click.Choice(["losses", "backbones", "datasets", "metrics", "suites"]), required=False)
@plugins_option
def list_(what: str | None, plugins: tuple[str, ...]) -> None:
    """List losses, backbones, datasets, metrics and suites."""
    from lossbench.core.errors import PluginError
    from lossbench.plugins.registry import FOLDER, KINDS, Registry

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
            screen.echo(f"{'' if what else '  '}{name:<{wide}}  {summary}")
        if not what:
            screen.echo()


@cli.command()
@click.argument("kind", type=click.Choice(["loss", "backbone", "dataset", "metric", "suite"]))
@click.argument("name")
@plugins_option
def info(kind: Any, name: str, plugins: tuple[str, ...]) -> None:
    """Show a loss, backbone, dataset, metric or suite.

    Prints its description, its options and their defaults.
    """
    from lossbench.plugins.registry import REQUIRED, Registry

    if kind == "suite":
        from lossbench.core.files import content
        from lossbench.suite.source import locate

        path = locate(name)
        screen.echo(f"{path}\n\n{content(path).decode('utf-8-sig', errors='replace').rstrip()}")
        return
    plugin = Registry(Path(folder) for folder in plugins).find(kind, name)
    screen.echo(plugin.doc or "(no docstring)")
    screen.echo(f"\nfile: {plugin.path}")
    screen.echo("options:" if plugin.options else "options: none")
    for option in plugin.options.values():
        default = "required" if option.default is REQUIRED else f"= {option.default!r}"
        tuned = f"  tuned over {plugin.ranges[option.name]}" if option.name in plugin.ranges else ""
        screen.echo(f"  {option.name}: {option.annotation_text} {default}{tuned}")


@cli.command()
@click.argument("targets", nargs=-1, metavar="[NAME|FILE]…")
@plugins_option
@click.option("-v", "--verbose", is_flag=True, help="Show all findings, not only failures.")
def check(targets: tuple[str, ...], plugins: tuple[str, ...], verbose: bool) -> int:
    """Check that plugins follow their contract.

    Checks losses, backbones, datasets or metrics by name or file; without arguments all losses.

    Exit code 0: all passed. 1: a plugin failed. 2: invalid request.
    """
    from lossbench.data.check import check_dataset
    from lossbench.plugins.check import check_names
    from lossbench.plugins.registry import Registry
    from lossbench.training.check import check_metric

    registry = Registry(Path(folder) for folder in plugins)
    found = check_names(registry, targets, others={"dataset": check_dataset, "metric": check_metric})
    return screen.show_findings(found, verbose)


@cli.command()
@click.argument("kind", type=click.Choice(["loss", "backbone", "dataset", "metric"]))
@click.argument("name")
@click.option(
    "--into", metavar="DIR", default=".", show_default=True, help="The folder with losses/, metrics/ and the others."
)
def new(kind: Any, name: str, into: str) -> None:
    """Write a template for a new loss, backbone, dataset or metric.

    The file, such as DIR/losses/NAME.py, is a working example to change.
    """
    from lossbench.plugins.scaffold import new

    path = new(kind, name, into)
    screen.echo(f"{path}\ntest it with: lossbench check {path}")


@cli.command()
@click.argument("run_folder", metavar="RUN")
def status(run_folder: str) -> int:
    """Show the status of the cells of a run.

    RUN is a run folder or the name of a suite that was run here.
    """
    from lossbench.store.records import Store

    return screen.show_status(Store(cli_report.run_folder(run_folder)))


@cli.command()
@click.argument("cell", metavar="CELL")
@click.option("--run", "run_folder", metavar="RUN", help="The run folder, or the name of its suite [all under runs/].")
def logs(cell: str, run_folder: str | None) -> int:
    """Show what a cell printed.

    CELL is a key, a prefix of a key, or words from the cell's title, such as "arcface seed=3".
    """
    return screen.show_logs(
        cell, [cli_report.run_folder(run_folder)] if run_folder else sorted(Path("runs").glob("*/"))
    )


cli.add_command(cli_report.report)
cli.add_command(cli_report.compare)


@cli.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN…")
@click.option("-o", "--out", metavar="DIR", required=True, help="The run folder to create or extend.")
def merge(runs: tuple[str, ...], out: str) -> None:
    """Merge several runs of one suite into one.

    Copies the records of all RUNs (shards, or runs on several machines) into one run folder. If records contradict
    each other, nothing is written.

    Exit code 0: merged. 2: refused.
    """
    from lossbench.store.merge import merge

    folders = [cli_report.run_folder(run) for run in runs]
    done = merge(folders, out, lambda text: screen.echo(f"lossbench: {text}", err=True))
    screen.echo(f"{done.folder}: {done.copied} records merged, {done.kept} already present, {done.missing} missing")


@cli.command()
@click.option("--classes", type=click.IntRange(min=2), metavar="C", required=True, help="The number of classes.")
@click.option(
    "--compare", "wider", type=click.IntRange(min=1), metavar="M", multiple=True, help="Also show this width."
)
@click.option(
    "--inputs", type=click.IntRange(min=1), metavar="N", default=1024, show_default=True, help="Inputs of the FC layer."
)
def width(classes: int, wider: tuple[int, ...], inputs: int) -> None:
    """Show the minimum FC width for C classes.

    Prints M_min = C − 1, the angle between class weights, and the memory of wider layers.
    """
    screen.show_width(classes, wider, inputs)


@cli.command()
@click.argument("what", type=click.Choice(["suite", "report"]), default="suite")
def schema(what: str) -> None:
    """Print the JSON schema of suites or reports.

    The schema of suite files is for editors, that of report.json for programs.
    """
    import json

    if what == "report":
        from lossbench.report.output import schema as data_schema

        found = data_schema.json_schema()
    else:
        from lossbench.plugins.registry import Registry
        from lossbench.suite.schema import json_schema

        found = json_schema(Registry())
    screen.echo(json.dumps(found, indent=2, ensure_ascii=False))


cli.add_command(cli_data.data)


def _show_plan(suite: str, out: str | None, selection: Selection, *, forecast: bool) -> None:
    from lossbench import api
    from lossbench.cli import progress
    from lossbench.plan.job import prepare

    with progress.watching(quiet=False, terminal=sys.stderr.isatty()) as watch:
        job = prepare(suite, selection, progress=watch.prepare)
    todo = screen.show_plan(job, out)
    if todo and forecast:
        screen.show_forecast(api.predict(job, todo))


def _suite_titles() -> Iterator[tuple[str, str]]:
    from lossbench.suite.source import built_in

    for name, path in built_in().items():
        found = re.search(r'^title\s*=\s*"(.*)"', path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        yield name, found[1] if found else ""


def _seconds(text: str | None, option: str = "--timeout") -> float | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if not match or float(match[1]) <= 0:
        raise click.BadParameter(f"'{text}' is not a duration such as 90s, 10m or 2h.", param_hint=option)
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG])i?B?", text.strip())
    if not match or float(match[1]) <= 0:
        raise click.BadParameter(f"'{text}' is not an amount such as 500MiB or 4GiB.", param_hint="--memory")
    return int(float(match[1]) * 1024 ** ("KMG".index(match[2]) + 1))
