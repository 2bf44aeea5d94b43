"""The metrics of a suite: its headline, the lists of its experiments, and which margins fit a metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lossbench.core.format import Claim
from lossbench.core.metric import Metric
from lossbench.core.model import Experiment, Spec
from lossbench.plugins.metrics import METRICS, MetricFile, spec_of
from lossbench.suite.format import ExperimentText, SuiteFile
from lossbench.suite.names import Names, Path
from lossbench.suite.overrides import Origin
from lossbench.suite.settings import SUFFIX

MOST = {"points": 100, "degrees": 180}  # the largest margin, by the metric's unit


def read_headline(file: SuiteFile, names: Names, *, margin_known: bool) -> MetricFile:
    """The headline of a suite; it has values, and the suite's margin is one for it."""
    retrievals = [raw.get("task", file.defaults.get("task")) == "retrieval" for raw in file.experiment]
    headline = METRICS["recall@1" if all(retrievals) else "accuracy"]
    if file.headline is not None:
        headline = names.metric(file.headline, ["headline"])
    if not headline.column:
        raise names.fail(["headline"], f"no record has a value of '{headline.name}'; choose another metric")
    with names.mistakes.noting():
        if "margin" in file.model_fields_set:
            check_margin(file.margin, headline, ["margin"], names)
        elif not headline.is_score and margin_known:
            raise names.fail(["headline"], needs_margin(headline))
    return headline


def listed(text: ExperimentText, origin: Origin, names: Names, *, task: str | None) -> tuple[Spec, ...]:
    """The metrics of an experiment's own list; `task` is None if it is wrong."""
    found: dict[str, Spec] = {}

    def add(at: tuple[int, str]) -> None:
        index, written = at
        place = origin(["metrics", index])
        metric = names.metric(written, place)
        if task is not None and task not in metric.tasks:
            tasks = " or ".join(metric.tasks)
            raise names.fail(place, f"'{written}' is only available for {tasks}; the task of this experiment is {task}")
        if metric.name in found:
            raise names.fail(place, f"'{metric.name}' is listed twice")
        found[metric.name] = spec_of(metric)

    names.mistakes.every(add, enumerate(text.metrics or ()))
    return tuple(found.values())


def measuring(experiment: Experiment, headline: MetricFile, claims: Sequence[Claim], names: Names) -> Experiment:
    """The experiment with every metric that the suite asks it for: its own list, the headline, its claims."""
    path = ["experiment", experiment.name]
    check_metric(headline, experiment, ["headline"], names)
    for spec in experiment.metrics:
        metric = names.metric(spec.label, path)
        if metric.source == "test":  # others are no part of a record, and may be listed anywhere
            check_metric(metric, experiment, [*path, "metrics"], names)
    mine = [claim for claim in claims if claim.experiment in (experiment.name, experiment.name + SUFFIX)]
    named = [spec.label for spec in experiment.metrics]
    named += [headline.name, *(name for claim in mine for name in (claim.metric, claim.than_metric) if name)]
    found = [names.metric(name, path) for name in dict.fromkeys(named)]
    # Every record has an accuracy, and what built-in metrics derive from it.
    asked = (m for m in found if not m.plugin.built_in or (m.source == "test" and m.name != "accuracy"))
    place = names.where([*path, "metrics"])
    return replace(experiment, metrics=tuple(replace(spec_of(each), where=place) for each in asked))


def check_metric(metric: Metric, experiment: Experiment, path: Path, names: Names) -> None:
    """The cells of an experiment have this metric."""
    if metric.source == "rounds" and not experiment.timing:
        problem = f"experiment '{experiment.name}' has no timing cells, which measure '{metric.name}'"
        raise names.fail(path, problem)
    if needed := _missing_key(metric.requires, experiment):
        raise names.fail(path, f"'{metric.name}' needs {needed}, which experiment '{experiment.name}' does not have")
    if experiment.task not in metric.tasks:
        tasks = " or ".join(metric.tasks)
        problem = f"'{metric.name}' is only available for {tasks}; the task of '{experiment.name}' is {experiment.task}"
        hint = "; its test classes have no class weights, did you mean 'angle_train'?" if metric.name == "angle" else ""
        raise names.fail(path, problem + hint)


def _missing_key(key: str, experiment: Experiment) -> str:
    """The key of the suite without which a metric does not exist, in words; empty where the experiment has it."""
    if key == "holdout" and any(data.dataset.options.get("holdout") is None for data in experiment.datasets):
        return "the option 'holdout' of the dataset (a share of the training images that are not trained on)"
    if key == "evaluations" and not all(each.schedule.evaluations for each in experiment.schedules):
        return "'evaluations' in the schedule (how often the test set is scored)"
    return ""


def check_margin(margin: float, metric: Metric, path: Path, names: Names) -> None:
    """A margin is possible in the metric's unit."""
    if margin > (most := MOST.get(metric.unit, 1e15)):
        bound = f"{most:g} {metric.unit}".rstrip()
        raise names.fail(path, f"must be at most {bound} of '{metric.name}', got {margin:g}")


def needs_margin(metric: Metric) -> str:
    """What is missing where only the user can know what counts as no difference."""
    unit = f"how many {metric.unit} of" if metric.unit else "which difference of"
    return f"needs the key 'margin': {unit} '{metric.name}' count as no difference"
