"""Terminal output: plans, results, statuses, findings."""

from __future__ import annotations

import re
import sys
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lossbench.core import plain
from lossbench.core.errors import last_line

if TYPE_CHECKING:
    from lossbench.analysis.compare import Comparison
    from lossbench.api import RunResult
    from lossbench.core.model import Cell
    from lossbench.data.download.fetch import Check, State
    from lossbench.data.download.sources import Source
    from lossbench.plan.forecast import Forecast
    from lossbench.plan.job import Job
    from lossbench.plugins.check.finding import Finding
    from lossbench.report import Report
    from lossbench.report.blocks import Table
    from lossbench.store.records import Store

MOST_ROWS = 60  # of a table at the end of a run
WIDTH = 100  # columns of what a run prints at its end
LABEL = 28  # of them for the label of a loss; longer ones are folded
BESIDE = ("step time", "extra bytes", "failed")  # columns of the first table that are not datasets
ON_FILE = ("evidence", "seeds needed", "tested as", "n")  # columns of claims that only the report shows
DONE, UNFINISHED, WRONG, INTERRUPTED = 0, 1, 2, 130  # exit codes


def echo(text: str = "", *, err: bool = False) -> None:
    """Print a text; no control character in it reaches the terminal."""
    click.echo(plain.text(text), err=err)


def console(most: int | None = None) -> Any:
    """The width of the terminal (`most` columns at most), or lines long enough for our tables."""
    import rich.console

    terminal = sys.stdout.isatty()
    found = rich.console.Console(highlight=False, width=None if terminal else most or 160, soft_wrap=not terminal)
    if most and found.width > most:
        found.width = most
    return found


def table_of(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: Collection[str],
    title: str = "",
    tight: bool = False,
) -> Any:
    """A table of plain text without markup, so `cnn[channels=8]` keeps its brackets.

    `tight`: headings have one word per line, and neither numbers nor names at the start of a row are wrapped.
    """
    import rich.box
    import rich.table
    from rich.text import Text

    table = rich.table.Table(
        title=Text(plain.line(title), style="bold") if title else None,
        title_justify="left",
        box=rich.box.SIMPLE_HEAD,
        collapse_padding=tight,
    )
    rows = list(rows)
    for number, column in enumerate(columns):
        heading = plain.line(column).replace(" ", "\n" if tight else " ")
        is_text = column in left
        table.add_column(
            Text(heading),
            justify="left" if is_text else "right",
            overflow="fold",
            no_wrap=tight and not is_text,
            min_width=min(LABEL, max(len(row[0]) for row in rows)) if tight and rows and number == 0 else None,
        )
    for row in rows:
        table.add_row(*(Text(plain.line(cell), style=STYLES.get(cell, "")) for cell in row))
    return table


STYLES = {
    "supported": "bold green",
    "contradicted": "bold red",
    "equivalent": "cyan",
    "undecided": "yellow",
    "fail": "bold red",
    "wrong": "bold red",
    "better": "bold green",
    "worse": "bold red",
    "missing": "yellow",
    "partly": "yellow",
    "yes": "green",
}


def show_plan(job: Job, out: str | None) -> list[Cell]:
    """Print the grid of every experiment, what is done and what warm starts save; return the remaining cells."""
    from lossbench.core.model import SCORED
    from lossbench.plan.cells import needed, training_steps
    from lossbench.store.records import Store
    from lossbench.store.stale import outdated

    if opening := job.opening():
        echo(opening)
    info = job.suite.info
    store = Store(out or Path("runs") / info.name)
    records, _ = store.scan()
    job = job.tuned(records)
    found = outdated(job.chosen, records, info.metrics)
    again = {cell.key for cell in found.train}
    todo = needed(job.chosen, {cell.key for cell in job.chosen if cell.key not in records} | again)
    left = {cell.key for cell in todo}
    chosen = {cell.key for cell in job.chosen}
    planned = {cell.kind for cell in job.chosen}
    titles = {"train": "cells", "warm": "warm starts", "timing": "timing", "trial": "trials"}
    kinds = [kind for kind in titles if kind in planned]
    columns = ["experiment", "grid", "losses", "seeds", *(titles[kind] for kind in kinds), "done"]
    rows = []
    for experiment in dict.fromkeys(cell.experiment for cell in job.cells):
        mine = [cell for cell in job.cells if cell.experiment == experiment and cell.key in chosen]
        if not mine:
            continue
        trained = [cell for cell in mine if cell.kind == "train"]
        counts = [len({cell.loss.label for cell in trained}), len({cell.seed for cell in trained})]
        counts += [sum(cell.kind == kind for cell in mine) for kind in kinds]
        counts += [sum(cell.key not in left for cell in mine)]
        rows.append([experiment, _grid(mine), *map(str, counts)])
    console().print(table_of(columns, rows, left=columns[:2], title=info.title, tight=True))
    for sentence in found.sentences():
        echo(sentence)
    echo(f"{len(todo)} of {len(job.chosen)} cells to train, {training_steps(todo):,} steps, in {store.root}")
    if following := job.following():
        more = training_steps(following)
        names = ", ".join(dict.fromkeys(cell.experiment for cell in following))
        echo(
            f"then {len(following)} tuned cells, at most {more:,} steps ({names}), with the settings of the best trials"
        )
    for download in job.downloads:
        echo(f"to fetch: {download}")
    for sentence in (*job.notices, *job.not_run()):
        echo(sentence)
    warm = [cell for cell in job.chosen if cell.kind == "warm"]
    users = [cell for cell in job.chosen if cell.warm and cell.kind in SCORED]
    if warm:
        saved = sum(cell.warm.steps for cell in users if cell.warm) - sum(cell.schedule.steps for cell in warm)
        echo(f"{len(warm)} warm starts are shared by {len(users)} cells, which saves {saved:,} steps")
    return todo + following


def _grid(cells: Iterable[Cell]) -> str:
    """The values of every axis; plugins without their options where no two have the same name."""
    from lossbench.core.point import AXES, SHORT, shown

    axes: dict[str, dict[Any, None]] = {}
    for point in dict.fromkeys(cell.point for cell in cells):
        for axis, value in point.without("experiment").items():
            axes.setdefault(axis, {})[value] = None
    parts = []
    for axis, values in axes.items():
        texts = list(map(shown, values))
        names = [text.partition("[")[0] for text in texts]
        listed = ", ".join(names if len(set(names)) == len(names) else texts)
        is_plugin = axis in AXES and all(isinstance(value, str) for value in values)
        parts.append(listed if is_plugin else f"{SHORT.get(axis, axis)}={listed}")
    return "; ".join(parts)


def show_forecast(expected: Forecast) -> None:
    """Print how long the remaining cells will take on this machine, and what the forecast is based on."""
    from lossbench.plan.forecast import in_words

    basis = f"from a few steps of {expected.measured} of {expected.kinds} kinds of cells"
    echo(f"forecast: {in_words(expected)} ({basis})")


def show_result(result: RunResult) -> None:
    """The tables of a run, and the paths it wrote."""
    if result.report:
        show_report(result.report)
    if result.note:
        echo(result.note)
    echo(f"records  {result.folder}")


def show_report(report: Report) -> None:
    """The verdicts on claims, then the answer, which is read last, and where the files are."""
    from lossbench.report.blocks import Prose, Table

    sections = {section.slug: section for section in report.sections}
    for block in sections["claims"].blocks if "claims" in sections else ():
        if isinstance(block, Table):
            kept = [column for column in block.columns if column not in ON_FILE]
            _show(block, kept, report)
    for block in sections["answer"].blocks:
        if isinstance(block, Table):
            _show_answer(block)
            echo(textwrap.fill(block.caption, WIDTH))
        elif isinstance(block, Prose):
            echo(textwrap.fill(f"{block.lead} {block.text}".strip(), WIDTH))
    echo(f"\nreport   {report.files['summary.md']}\npage     {report.files['report.html']}")


def _show(table: Table, columns: Sequence[str], report: Report) -> None:
    """Some columns of a table, at most so wide that a usual terminal shows it."""
    places = [table.columns.index(column) for column in columns]
    rows = [[row[place] for place in places] for row in table.rows[:MOST_ROWS]]
    console(WIDTH).print(table_of(columns, rows, left=table.left))
    if (more := len(table.rows) - MOST_ROWS) > 0:
        echo(f"… and {more} more rows; {report.files['summary.md']} has all")


def _show_answer(table: Table) -> None:
    """The first table, with as many columns as fit; those that are left out are named below it."""
    screen = console(WIDTH)
    width = min(screen.width, WIDTH)
    # What the sentences above say too is left out first, then the last datasets.
    datasets = [column for column in table.columns[1:] if column not in BESIDE]
    rest = [column for column in ("failed", "extra bytes") if column in table.columns] + datasets[:0:-1]
    kept, left_out = list(table.columns), []
    while rest and _needed(table, kept) > width:
        left_out.append(rest.pop(0))
        kept.remove(left_out[-1])
    places = [table.columns.index(column) for column in kept]
    rows = [[row[place] for place in places] for row in table.rows]
    screen.print(table_of(kept, rows, left=table.left, tight=True))
    if left_out:
        echo(textwrap.fill(f"Not shown here: {'; '.join(left_out)}.", WIDTH))


def _needed(table: Table, columns: Sequence[str]) -> int:
    """The width of these columns with headings of one word per line; long labels can be folded."""
    total = 1
    for column in columns:
        place = table.columns.index(column)
        longest = max(len(text) for text in [*column.split(), *(row[place] for row in table.rows)])
        total += 3 + (min(longest, LABEL) if column in table.left else longest)
    return total


def show_comparison(found: Comparison) -> None:
    """The difference between two runs: one row per loss, point and metric."""
    from lossbench.core.point import SHORT, varied
    from lossbench.report import words

    several = found.frame["metric"].nunique() > 1
    axes = varied(found.frame["point"])
    rows = []
    for row in found.frame.to_dict("records"):
        shown = [row["experiment"], row["loss"], *(words.axis(row["point"], name) for name in axes)]
        shown += [row["metric"]] if several else []
        shown += [words.number(row["before"]), words.number(row["after"]), words.difference(row, unit=False)]
        shown += [str(row["n"]), f"{row['failed_before']} → {row['failed_after']}"]
        rows.append([*shown, row["verdict"], row["change"], words.seeds_needed(row)])
    columns = ["experiment", "loss", *(SHORT.get(name, name) for name in axes), *(["score"] if several else [])]
    columns += ["before", "after", "Δ [interval]", "n", "failed", "verdict", "change", "seeds needed"]
    left = ["experiment", "loss", "dataset", "backbone", "score", "verdict", "change"]
    console().print(table_of(columns, rows, left=left, title="after minus before, paired by seed"))
    for side, places in (("before", found.only_before), ("after", found.only_after)):
        for place in places:
            echo(f"only {side}: {place}")
    for note in found.notes:
        echo(note)


def show_unfinished(result: RunResult) -> int:
    """The cells that did not finish, with reason and log; returns the exit code of the run."""
    from lossbench.store.records import Store

    store = Store(result.folder)
    for cell, state in result.unfinished[:20]:
        record = store.read(cell.key)
        why = f": {last_line(record['error'])}\n    log: {store.log(cell.key)}" if record and record["error"] else ""
        echo(f"{state}: {cell.title}{why}", err=True)
    if (more := len(result.unfinished) - 20) > 0:
        echo(f"… and {more} more; `lossbench status {result.folder}` lists them", err=True)
    if any(state in ("failed", "oom", "timeout") for _, state in result.unfinished):
        echo("`--retry-failed` trains these again", err=True)
    return UNFINISHED if result.unfinished or result.missing else DONE


def show_status(store: Store) -> int:
    """The statuses of the cells of a run, and the errors of those that failed."""
    from lossbench.api import finished
    from lossbench.plan.cells import unique
    from lossbench.store.stale import outdated

    info, cells = store.plan()
    records, damaged = store.scan(checkpoints=False)
    states = {cell.key: records[cell.key]["status"] if cell.key in records else "missing" for cell in cells}
    columns = ["done", *sorted(set(states.values()) - {"done"})]
    rows = []
    for experiment in dict.fromkeys(cell.experiment for cell in cells):
        mine = {cell.key for cell in cells if cell.experiment == experiment}
        rows.append([experiment, *(str(sum(states[key] == column for key in mine)) for column in columns)])
    title = f"{info.title} ({store.root})"
    console().print(table_of(["experiment", *columns], rows, left=["experiment"], title=title))
    if info.overrides:
        echo(f"run again with: {info.command}")
    for name, why in info.missing.items():
        echo(f"not run: {name}: {why}")
    for name, why in damaged.items():
        echo(f"damaged: {store.cells / name}: {why}")
    stale = len(records.keys() - states.keys())
    if stale:
        echo(f"{stale} records of older versions of this suite or its plugins are not counted")
    found = outdated(unique(cells), records, info.metrics)
    for sentence in found.sentences():
        echo(f"by the next run: {sentence}")
    failed = {cell.key: cell for cell in cells if states[cell.key] not in ("done", "missing")}
    for key, cell in failed.items():
        echo(f"{states[key]}: {cell.title}\n    {last_line(records[key]['error'])}\n    log: {store.log(key)}")
    whole = all(finished(cell, states[cell.key]) for cell in cells) and not (found.train or found.measure)
    return DONE if whole and not info.missing else UNFINISHED


def show_logs(wanted: str, folders: Sequence[Path]) -> int:
    """The status and log of the one cell that matches `wanted`."""
    from lossbench.core.errors import StoreError
    from lossbench.core.files import content
    from lossbench.store.records import Store

    words = wanted.split()
    found = {}
    for store in (Store(folder) for folder in folders if (folder / "plan.json").is_file()):
        for cell in store.plan()[1]:
            if cell.key.startswith(wanted) or all(word in cell.title.split() for word in words):
                found[store.root, cell.key] = (store, cell)
    if not found:
        raise StoreError(f"no cell matches '{wanted}'; `lossbench status RUN` lists those that did not finish")
    if len(found) > 1:
        listed = "\n".join(f"  {cell.key}  {cell.title}" for _, cell in list(found.values())[:20])
        raise StoreError(f"'{wanted}' matches {len(found)} cells; choose one:\n{listed}")
    ((store, cell),) = found.values()
    record = store.read(cell.key)
    log = store.log(cell.key)
    echo(f"{cell.title}\nkey     {cell.key}\nstatus  {record['status'] if record else 'missing'}")
    echo(f"log     {log}\n")
    try:
        text = content(log).decode(errors="replace")
    except OSError as error:
        text = "" if isinstance(error, FileNotFoundError) else f"(cannot be read: {error.strerror})"
    echo(text.rstrip() or (record or {}).get("error") or "(no output)")
    return DONE


def show_width(classes: int, wider: Sequence[int], inputs: int) -> None:
    """The minimum width, and the float32 memory of the FC layer (inputs × M, with bias) and class weights (M × C)."""
    from lossbench.core.geometry import minimum_width, simplex_angle
    from lossbench.report.words import size

    minimum = minimum_width(classes)

    def memory(width: int) -> int:
        return 4 * ((inputs + 1) * width + width * classes)

    echo(f"M_min = {minimum}: the smallest width at which {classes} class weights can all be at equal angles,")
    echo(f"{simplex_angle(classes):.2f}° between any two (cos θ = −1/{minimum}).")
    rows = [
        [
            f"{width}{' (min)' if width == minimum else ''}",
            size(4 * (inputs + 1) * width),
            size(4 * width * classes),
            size(memory(width)),
            f"{memory(width) / memory(minimum):.2f}",
            "yes" if width >= minimum else "no",
        ]
        for width in sorted({minimum, *wider})
    ]
    columns = ["M", f"FC layer ({inputs} inputs)", "class weights", "total", "/ M_min", "equal angles possible"]
    console().print(table_of(columns, rows, left=columns[-1:]))


def show_findings(found: Mapping[str, list[Finding]], verbose: bool) -> int:
    """The failures (or all findings) of `lossbench check` in a table, then one line per loss."""
    rows = [
        [name, finding.property, finding.status, finding.sentence]
        for name, mine in found.items()
        for finding in mine
        if verbose or finding.status == "fail"
    ]
    if rows:
        columns = ["plugin", "property", "", "finding"]
        console().print(table_of(columns, rows, left=columns))
    wide = max(map(len, found), default=0)
    for name, mine in found.items():
        counts = Counter(finding.status for finding in mine)
        said = [f"{counts[status]} {status}" for status in ("fail", "pass", "skip", "fact") if counts[status]]
        echo(f"{name:<{wide}}  {', '.join(said)}")
    return UNFINISHED if any(finding.status == "fail" for mine in found.values() for finding in mine) else DONE


def show_data(found: Mapping[str, tuple[Source, State]], folder: Path, verbose: bool) -> None:
    """The datasets: availability, size, licence, citation."""
    rows = [
        [
            name,
            here,
            f"{source.images:,}" if source.images else "any",
            f"{source.classes:,}" if source.classes else "any",
            amount(source.download),
            amount(source.unpacked),
            source.licence,
        ]
        for name, (source, here) in found.items()
    ]
    columns = ["dataset", "available", "images", "classes", "download", "unpacked", "licence"]
    console().print(table_of(columns, rows, left=["dataset", "available", "licence"], title=f"Datasets in {folder}"))
    wide = max(map(len, found)) + 2
    for name, (source, here) in found.items():
        _echo_beside(name, wide, _about_source(source, here, verbose))
    echo("\n`lossbench data get NAME` downloads a dataset; `lossbench data list -v` shows URLs and file paths.")


def _about_source(source: Source, here: State, verbose: bool) -> Iterator[str]:
    yield source.citation
    if verbose:
        yield from filter(None, (source.title, source.page))
        for file in source.files:
            yield f"{file.place}  {file.size:,} bytes, sha256 {file.sha256}"
            yield from (f"  from {address}" for address in file.addresses)
    if source.instructions and (verbose or here != "yes"):
        yield source.instructions
        yield from (f"files go to {piece.path}" for piece in source.pieces)


def _echo_beside(name: str, wide: int, lines: Iterable[str]) -> None:
    """Lines beside a name, wrapped to the terminal, with the names in a separate column."""
    import textwrap

    wrap = textwrap.TextWrapper(console().width, break_long_words=False, break_on_hyphens=False)
    for number, line in enumerate(lines):
        wrap.initial_indent = f"{name if number == 0 else '':<{wide}}"
        wrap.subsequent_indent = " " * (wide + 2)
        echo(wrap.fill(line))


def show_checks(checks: Mapping[str, Sequence[Check]]) -> int:
    """The result of `lossbench data verify`, and its exit code."""
    short = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{20,}\b")  # whole checksums would fill the screen
    rows = [[check.path, check.status, short.sub(r"\1…", check.detail)] for mine in checks.values() for check in mine]
    columns = ["file", "", "finding"]
    if rows:
        console().print(table_of(columns, rows, left=columns))
    wide = max(map(len, checks))
    for name, mine in checks.items():
        counts = Counter(check.status for check in mine)
        said = [f"{counts[status]} {status}" for status in ("ok", "wrong", "missing") if counts[status]]
        echo(f"{name:<{wide}}  {', '.join(said) or 'ok: needs no files'}")
    return UNFINISHED if any(check.status != "ok" for mine in checks.values() for check in mine) else DONE


def amount(value: int | None) -> str:
    """A size in readable units. Not `report.words.size`, which imports pandas."""
    if value is None:
        return "–"
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= factor:
            return f"{value / factor:.1f} {unit}"
    return f"{value} B"
