"""The first screen: which loss to use, in one sentence per task, one table, one figure and up to three caveats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lossbench import stats
from lossbench.analysis.answer import NOT_COMPARED, Answer, Column, Standing, Task
from lossbench.analysis.results import Results
from lossbench.analysis.verdicts import AT_CHANCE, NOT_TESTABLE, ONE_SEED
from lossbench.core import plain
from lossbench.report import words
from lossbench.report.blocks import Anchor, Block, Prose, Section, Table

MOST_NAMED = 4  # losses or datasets in one part of a sentence
MOST_CAVEATS = 3
FEW_SEEDS = 5  # below it, a verdict rests on very little


def answer(results: Results) -> Section:
    """What a reader with half a minute should know."""
    found = results.answer
    most = max((row["n"] for column in found.columns for row in column.rows.values()), default=0)
    if most < stats.FEWEST_SEEDS:
        nothing = "There are not yet enough finished cells to compare any loss with the baseline"
        why = f": a comparison needs {stats.FEWEST_SEEDS} paired seeds, and there are at most {most}" if most else ""
        return Section("answer", "Which loss to use", (Prose(f"{nothing}{why}."),))
    blocks: list[Block] = [*sentences(results), *(Prose(text, lead="Caveat:") for text in caveats(results))]
    blocks.append(_table(results))
    return Section("answer", "Which loss to use", tuple(blocks))


# ---- sentences -------------------------------------------------------------------------------------------------------


def sentences(results: Results) -> list[Prose]:
    """One per task, tuned settings first, then one on costs."""
    cost = _cost(results)
    return [*(_sentence(results, task) for task in results.answer.tasks), *([Prose(cost)] if cost else [])]


def _sentence(results: Results, task: Task) -> Prose:
    headline = results.headline
    names = _listed([column.dataset for column in task.columns])
    seeds = words.span([column.seeds for column in task.columns])
    settings = "tuned" if task.tuned else "default settings"
    parts = [_best(results, task)]
    if equivalent := task.having("equivalent"):
        parts.append(
            f"{_losses(task, equivalent, 'equivalent')} {_are(equivalent)} equivalent "
            f"(within {words.within(results.info.margin, headline.unit)})"
        )
    if worse := task.having("worse"):
        parts.append(f"{_losses(task, worse[::-1], 'worse', headline.unit)} {_are(worse)} worse")
    if undecided := task.having("undecided"):
        count = sum(len(standing.by_verdict["undecided"]) for standing in undecided)
        every = sum(len(column.rows) for column in task.columns)
        size = _range([delta for standing in undecided for delta in standing.deltas("undecided")], headline.unit)
        counted = f"all {count}" if count == every else f"{count} of {every}"
        parts.append(
            f"{counted} comparisons are undecided ({size})" if count > 1 else f"1 comparison is undecided ({size})"
        )
    if barred := task.having(NOT_TESTABLE):
        parts.append(f"{_losses(task, barred, NOT_TESTABLE)} {_are(barred)} at chance and not tested")
    if absent := task.having(NOT_COMPARED):
        said = f"{_are(absent)} not compared, as no seed has results of both losses"
        parts.append(f"{_losses(task, absent, NOT_COMPARED)} {said}")
    lead = f"{words.capital(task.name)} on {names} ({seeds} seeds, {settings}):"
    return Prose(f"{'; '.join(parts)}.", lead=lead)


def _best(results: Results, task: Task) -> str:
    """The losses that are better; or how large a gain the intervals still allow."""
    baseline, headline = results.info.baseline, results.headline
    if better := task.having("better"):
        return f"{_losses(task, better, 'better', headline.unit)} {_are(better)} better than {baseline}"
    end, sign = ("high", 1) if headline.sign > 0 else ("low", -1)
    tested = [row for column in task.columns for row in column.rows.values() if words.finite(row[end])]
    tested = [row for row in tested if row["verdict"] != NOT_TESTABLE]
    if not tested:
        return f"no loss could be compared with {baseline}"
    most = max(sign * row[end] for row in tested)
    text = f"no loss is better than {baseline}"
    if 0 < most <= 2 * results.info.margin:
        digits = words.digits_of(headline.unit)
        return f"{text} by more than {most:.{digits}f} {headline.unit}".rstrip()
    decided = all(row["verdict"] != "undecided" for row in tested)
    return text if decided else f"no loss is shown to be better than {baseline}"


def _losses(task: Task, found: Sequence[Standing], verdict: str, unit: str = "") -> str:
    """Losses with a verdict: on how many datasets, and by how much."""
    texts = []
    for standing in found:
        notes = []
        met = standing.by_verdict[verdict]
        if len(task.columns) > 1:
            notes.append(_where(task, standing.loss, [column for column, _ in met]))
        if unit:
            notes.append(_range(standing.deltas(verdict), unit))
        flagged = [column.dataset for column, row in met if ONE_SEED in row["flags"]]
        if flagged and verdict in ("better", "worse", "equivalent"):
            notes.append(f"one seed decides on {_listed(flagged)}" if len(flagged) < len(met) else "one seed decides")
        texts.append(f"{standing.loss} ({', '.join(notes)})" if notes else standing.loss)
    return _listed(texts)


def _where(task: Task, loss: str, met: Sequence[Column]) -> str:
    """The datasets of a verdict: one by name, several by their number."""
    tested = sum(loss in column.rows for column in task.columns)
    if len(met) == 1:
        return f"on {met[0].dataset}"
    if len(met) < tested:
        return f"on {len(met)} of {tested}"
    every = "on both" if tested == 2 else f"on all {tested}"
    return every if tested == len(task.columns) else f"{every} datasets tested"


def _cost(results: Results) -> str:
    """The range of step times over all losses."""
    baseline, by_loss = results.info.baseline, results.answer.step_ratios
    ratios = [ratio for loss, found in by_loss.items() if loss != baseline for ratio in found]
    if not ratios:
        return ""
    frame = results.comparisons
    verdicts = frame[(frame["metric"] == "step_seconds") & frame["low"].notna()]["verdict"]
    open_all = len(verdicts) > 1 and (verdicts == "undecided").all()
    doubt = f"; all {len(verdicts)} comparisons of step times are undecided" if open_all else ""
    return f"A training step takes {_ratio(ratios)} as long as with {baseline}{doubt}."


def _are(found: Sequence[Standing]) -> str:
    return "is" if len(found) == 1 else "are"


def _range(deltas: Sequence[float], unit: str) -> str:
    digits = words.digits_of(unit)
    ends = dict.fromkeys(words.signed(value, digits) for value in (min(deltas), max(deltas)))
    return f"{' to '.join(ends)} {unit}".rstrip()


def _ratio(ratios: Iterable[float]) -> str:
    """`1.04×`, or `0.99–1.09×`."""
    found = sorted(ratios)
    return f"{'–'.join(dict.fromkeys(f'{value:.2f}' for value in (found[0], found[-1])))}×" if found else ""


def _listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and 3 more`."""
    if len(names) > MOST_NAMED:
        return f"{', '.join(names[: MOST_NAMED - 1])} and {len(names) - MOST_NAMED + 1} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


# ---- caveats ---------------------------------------------------------------------------------------------------------


def caveats(results: Results) -> list[str]:
    """What changes the reading, most serious first, at most three lines."""
    found = [*_undertrained(results), *_at_chance(results), *_unfinished(results), *_few_seeds(results)]
    return [*found, *_untuned(results), *_fragile(results)][:MOST_CAVEATS]


def _undertrained(results: Results) -> list[str]:
    columns = [column for column in results.answer.columns if column.point in results.undertrained]
    if not columns:
        return []
    names = _listed([f"{column.name} ({_value(results, column)})" for column in columns])
    are = "is" if len(columns) == 1 else "are"
    return [f"{names} {are} undertrained: {results.info.baseline} was still improving at the last step."]


def _at_chance(results: Results) -> list[str]:
    shown = {column.point: column.name for column in results.answer.columns}
    found: dict[str, list[str]] = {}
    for point, loss in results.at_chance:
        if point in shown:  # the warnings have the others
            found.setdefault(loss, []).append(shown[point])
    together: dict[tuple[str, ...], list[str]] = {}
    for loss, columns in found.items():
        together.setdefault(tuple(columns), []).append(loss)
    names = "; ".join(f"{_listed(losses)} ({_listed(columns)})" for columns, losses in together.items())
    return [f"at chance, hence not tested: {names}."] if found else []


def _unfinished(results: Results) -> list[str]:
    texts = []
    if failed := {loss: count for loss, count in results.answer.failures.items() if count}:
        cells = [f"{loss} ({plain.counted(count, 'cell')})" for loss, count in failed.items()]
        texts.append(f"did not finish: {_listed(cells)}")
    if results.info.missing:
        texts.append(f"not run: {_listed(list(results.info.missing))}")
    return [f"{'; '.join(texts)}."] if texts else []


def _few_seeds(results: Results) -> list[str]:
    few = min(column.seeds for column in results.answer.columns)
    return [f"only {few} seeds: intervals are wide, and one seed can decide a verdict."] if few < FEW_SEEDS else []


def _untuned(results: Results) -> list[str]:
    columns = results.answer.columns
    tuned = list(dict.fromkeys(column.dataset for column in columns if column.tuned))
    if not tuned:
        return ["no loss was tuned: with other options or learning rates the order may change."]
    if all(column.dataset in tuned for column in columns):
        return []
    only = f"only {_listed(tuned)} {'was' if len(tuned) == 1 else 'were'} tuned"
    return [f"{only}: elsewhere the order may change with other options or learning rates."]


def _fragile(results: Results) -> list[str]:
    rows = [row for column in results.answer.columns for row in column.rows.values()]
    count = sum(ONE_SEED in row["flags"] for row in rows)
    depend = "depends" if count == 1 else "depend"
    return [f"{plain.counted(count, 'verdict')} marked * {depend} on a single seed."] if count else []


# ---- the table -------------------------------------------------------------------------------------------------------

MARKS = {"better": "▲", "worse": "▼", "equivalent": "≈", "undecided": "?", NOT_TESTABLE: "×"}


def mark(row: dict[str, object] | None) -> str:
    """The verdict of a comparison as a sign; a star where one seed decides."""
    if row is None:
        return ""
    return MARKS[str(row["verdict"])] + ("*" if ONE_SEED in str(row["flags"]) else "")


def _table(results: Results) -> Table:
    """One row per loss, the baseline first: differences per dataset, step time, extra memory, failures."""
    found, baseline = results.answer, results.info.baseline
    rows, anchors = [], []
    for loss in [baseline, *_by_effect(found)]:
        row = {"loss": loss}
        for column in found.columns:
            row[column.name] = _value(results, column) if loss == baseline else _difference(results, column, loss)
        if len(found.step_ratios) > 1:
            row["step time"] = _ratio(found.step_ratios.get(loss, ())) or words.DASH
        row["extra bytes"] = _bytes(found.extra_bytes.get(loss, ()))
        if any(found.failures.values()):
            row["failed"] = str(found.failures.get(loss, 0))
        rows.append(row)
        anchors.append(
            [Anchor(column.point, name) for column in found.columns for name in dict.fromkeys((loss, baseline))]
        )
    unit = f" in {results.headline.unit}" if results.headline.unit else ""
    points = "; ".join(f"{column.name}: {_place(results, column)}" for column in found.columns if column.others)
    caption = (
        f"{words.capital(results.headline.title)} of {baseline}, and differences from it{unit}. ▲ better, ▼ worse, "
        f"≈ equivalent (within {words.within(results.info.margin, results.headline.unit)}), ? undecided, × at chance; "
        "* one seed decides. Extra bytes: class weights and loss state, the largest difference over datasets."
    )
    if results.info.claims:
        caption += " A comparison that is also a claim has the interval of the claim's family."
    caption += f" Of several points, the one at which {baseline} is best: {points}." if points else ""
    left = ["loss"]
    return Table.of(rows, left=left, caption=caption, anchors=anchors)


def _by_effect(found: Answer) -> list[str]:
    """The losses of all tasks, best first in the first task that has them."""
    return list(dict.fromkeys(standing.loss for task in found.tasks for standing in task.standings))


def _place(results: Results, column: Column) -> str:
    names = [name for name in results.axes if name not in ("dataset", "backbone")]
    return column.point.told(names)


def _value(results: Results, column: Column) -> str:
    digits = words.digits_of(results.headline.unit)
    unit = " %" if results.headline.is_score else ""
    return f"{words.number(column.baseline['value'], digits)}{unit}"


def _difference(results: Results, column: Column, loss: str) -> str:
    row = column.rows.get(loss)
    if row is None or not words.finite(row["delta"]):
        return words.DASH
    if AT_CHANCE in row["flags"]:
        return "× at chance"
    return f"{words.signed(row['delta'], words.digits_of(results.headline.unit))} {mark(dict(row))}"


def _bytes(extra: Sequence[float]) -> str:
    """The largest extra over the datasets."""
    most = max(extra, key=abs, default=None)
    if most is None:
        return words.DASH
    return ("−" if most < 0 else "+" if most else "") + words.size(abs(most))
