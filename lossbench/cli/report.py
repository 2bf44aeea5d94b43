"""The commands that read finished runs: `lossbench report` and `lossbench compare`."""

from __future__ import annotations

from pathlib import Path

import click

from lossbench.cli import screen
from lossbench.cli.screen import DONE, UNFINISHED
from lossbench.core.errors import StoreError


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN…")
@click.option("--reports", metavar="DIR", default="reports", show_default=True, help="Where the report goes.")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if a file is not what would be written.")
@click.option(
    "--figures", "formats", type=click.Choice(["pdf", "png"]), multiple=True, help="Figures so too, not only as SVG."
)
def report(runs: tuple[str, ...], reports: str, check: bool, formats: tuple[str, ...]) -> int:
    """Write the report of RUN… (run folders, or names of suites run here) again from their records."""
    from lossbench.report import differing, write
    from lossbench.store.records import uncollected

    folders = [run_folder(run) for run in runs]
    if not check:
        with uncollected():  # what a report holds is no garbage before it is shown
            screen.show_report(write(folders, reports, formats))
        return DONE
    wrong = differing(folders, reports, formats)
    for name, how in wrong.items():
        screen.echo(f"{Path(reports) / name}: {how}", err=True)
    if not wrong:
        screen.echo(f"{reports}: every file is what would be written")
    return UNFINISHED if wrong else DONE


@click.command()
@click.argument("before", metavar="RUN_A")
@click.argument("after", metavar="RUN_B")
@click.option(
    "--fail-on",
    type=click.Choice(["worse", "different"]),
    help="Exit with 1 if a loss became worse (or different at all) beyond doubt, or more of its cells fail.",
)
def compare(before: str, after: str, fail_on: str | None) -> int:
    """Compare RUN_B with RUN_A, the same suite before an edit: each loss with itself, paired by seed.

    Scores are compared (accuracy, and those of verification), never step times: those of two runs are no pairs. A loss
    is worse if it is different in the wrong direction, not if the difference is negligible.

    Exit code 0: nothing to fail on. 1: something is, see --fail-on. 2: the request is wrong.
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
            f"  {row['metric']}  M={row['width']} C={row['classes']}",
            err=True,
        )
    return UNFINISHED if len(failing) else DONE


def run_folder(named: str) -> Path:
    """A run folder by path, or by the name of the suite that was run here."""
    from lossbench.core.errors import nearest

    for path in (Path(named), Path("runs") / named, Path("runs") / Path(named).stem):
        if (path / "plan.json").is_file():
            return path
    known = [path.parent.name for path in Path("runs").glob("*/plan.json")]
    if Path(named).is_dir():
        raise StoreError(f"{named}: is not a run folder (it has no plan.json)")
    raise StoreError(f"{named}: there is no such run; {nearest(named, known)}")
