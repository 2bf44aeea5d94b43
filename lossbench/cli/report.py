"""The commands that read finished runs: `lossbench report` and `lossbench compare`."""

from __future__ import annotations

from pathlib import Path

import click

from lossbench.cli import screen
from lossbench.cli.screen import DONE, UNFINISHED
from lossbench.core.errors import StoreError


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN…")
@click.option("--reports", metavar="DIR", default="reports", show_default=True, help="The folder for the report.")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if a file is out of date.")
@click.option(
    "--figures", "formats", type=click.Choice(["pdf", "png"]), multiple=True, help="Also write figures in this format."
)
def report(runs: tuple[str, ...], reports: str, check: bool, formats: tuple[str, ...]) -> int:
    """Write a report again from the records.

    RUN is a run folder or the name of a suite that was run here; several runs of one suite are reported together.
    """
    from lossbench.report import differing, write
    from lossbench.store.records import uncollected

    folders = [run_folder(run) for run in runs]
    if not check:
        with uncollected():  # a report keeps all that it builds: garbage collection would find nothing
            screen.show_report(write(folders, reports, formats))
        return DONE
    wrong = differing(folders, reports, formats)
    for name, how in wrong.items():
        screen.echo(f"{Path(reports) / name}: {how}", err=True)
    if not wrong:
        screen.echo(f"{reports}: every file is up to date")
    return UNFINISHED if wrong else DONE


@click.command()
@click.argument("before", metavar="RUN_A")
@click.argument("after", metavar="RUN_B")
@click.option(
    "--fail-on",
    type=click.Choice(["worse", "different"]),
    help="Exit with 1 if a loss became significantly worse (or different), or more of its cells fail.",
)
def compare(before: str, after: str, fail_on: str | None) -> int:
    """Compare two runs of a suite.

    Compares RUN_B with RUN_A, an earlier run: each loss with itself, paired by seed. Scores are compared, and the
    steps to the target of RUN_A; step times of two runs cannot be paired. A loss is worse if the difference is
    significant, not negligible, and in the wrong direction.

    Exit code 0: success. 1: see --fail-on. 2: invalid request.
    """
    from lossbench.analysis.compare import compare as compared

    found = compared(run_folder(before), run_folder(after))
    screen.show_comparison(found)
    if fail_on is None:
        return DONE
    failing = found.failing(fail_on)
    for row in failing.to_dict("records"):
        screen.echo(
            f"{row['change'] if row['change'] != 'none' else row['verdict']}: {row['experiment']}  {row['loss']}"
            f"  {row['metric']}  {row['point'].told()}",
            err=True,
        )
    return UNFINISHED if len(failing) else DONE


def run_folder(named: str) -> Path:
    """A run folder by its path or by the name of its suite."""
    from lossbench.core.errors import nearest

    for path in (Path(named), Path("runs") / named, Path("runs") / Path(named).stem):
        if (path / "plan.json").is_file():
            return path
    known = [path.parent.name for path in Path("runs").glob("*/plan.json")]
    if Path(named).is_dir():
        raise StoreError(f"{named}: is not a run folder (it has no plan.json)")
    raise StoreError(f"{named}: no such run; {nearest(named, known)}")
