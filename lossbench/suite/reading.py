"""TOML → Suite: every unknown key, name or option is an error here, before anything trains."""

from __future__ import annotations

import itertools
import math
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lossbench.core.errors import LossbenchError, PluginError, SuiteError, nearest
from lossbench.core.format import Claim, NamedText, Protocol, PublishedText
from lossbench.core.labels import label, parse_label
from lossbench.core.model import Budget, Experiment, Spec, Suite, SuiteInfo, Warm
from lossbench.core.values import as_json, flaw
from lossbench.plugins import metrics
from lossbench.plugins.metrics import METRICS, MetricFile
from lossbench.plugins.registry import Kind, OptionError, Registry
from lossbench.suite.claims import (
    check_margin,
    check_metric,
    check_variants,
    each,
    first_repeated,
    meaning,
    needs_margin,
    relabelled,
    resolved,
    twice,
)
from lossbench.suite.explain import validate
from lossbench.suite.format import MOST_CELLS, ExperimentText, Profile, SuiteFile, Tune
from lossbench.suite.settings import SUFFIX, tuned
from lossbench.suite.tuning import with_trials

# The number of classes of a dataset.
CountClasses = Callable[[Spec], int]
NO_PROFILE = "none"  # `--profile none`: the suite without a profile, even if it has `auto`


def parse(text: str, source: str, registry: Registry, count_classes: CountClasses, profile: str | None = None) -> Suite:
    """The suite in a text, at one profile."""
    found = read_profiles(text, source, registry, count_classes)
    check_profile(profile, source, found)
    return found[profile]


def check_profile(profile: str | None, source: str, known: Mapping[str | None, Suite]) -> None:
    """Refuse a profile that the suite does not have."""
    if profile not in known:
        names = [name for name in known if name]
        raise SuiteError(f"{source}: profile: no such profile '{profile}'; {nearest(str(profile), names)}")


def read_profiles(
    text: str,
    source: str,
    registry: Registry,
    count_classes: CountClasses,
    *,
    argument: str | None = None,
    plugins: Sequence[str] = (),
) -> dict[str | None, Suite]:
    """The suite without a profile (None) and at each of its profiles; an error in any of them is raised.

    `source` is what errors call the file, `registry` knows the losses, backbones and datasets; `argument` and
    `plugins` are what `lossbench run` takes to run the suite again.
    """
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, integers of thousands of digits, endless nesting
        raise SuiteError(f"{source}: is not valid TOML: {error}") from error
    if wrong := flaw(raw):
        raise SuiteError(f"{_where(source, wrong[0])}: {wrong[1]}")
    file = validate(SuiteFile, raw, lambda path: _where(source, path))
    reader = _Reader(source, file, registry, count_classes)
    reader.check_auto()
    grids = {name: reader.tuning(reader.experiments(name), name) for name in (None, *file.profile)}
    claimable = {name: _claimable(experiments) for name, (experiments, _) in grids.items()}
    claims = reader.claims(claimable[None])
    for profile in file.profile:
        try:
            check_variants(claims, claimable[profile])
        except ValueError as error:
            raise reader.fail(["profile", profile], error) from error
    baseline = reader.loss(file.baseline, ["baseline"]).label
    suites: dict[str | None, Suite] = {}
    for name, (grid, tuning) in grids.items():
        shown, whole = claimable[name], claimable[None]
        restated = (_restated(each, whole.get(each.name, each), name) for each in grid)
        experiments = tuple(reader.measuring(each, claims) for each in restated)
        info = SuiteInfo(
            name=file.name,
            title=file.title or file.name,
            baseline=baseline,
            margin=file.margin,
            claims=tuple(
                relabelled(claim, whole[claim.experiment], shown[claim.experiment])
                if claim.experiment in shown
                else claim
                for claim in claims
            ),
            published={experiment.name: experiment.published for experiment in experiments},
            profile=name,
            command=_command(argument or source, name or (NO_PROFILE if file.auto else None), plugins),
            tuning=tuning,
            note=file.profile[name].note if name else "",
            headline=reader.headline.name,
            metrics=tuple(metric.plain for metric in reader.known_metrics.values()),
        )
        suites[name] = Suite(info, experiments, text, tuple(file.auto or ()))
    return suites


def _command(argument: str, profile: str | None, plugins: Sequence[str]) -> str:
    """The command that runs a suite again."""
    options = ["--profile", profile] if profile else []
    options += [part for folder in plugins for part in ("--plugins", folder)]
    return shlex.join(["lossbench", "run", argument, *options])


def _restated(shown: Experiment, whole: Experiment, profile: str | None) -> Experiment:
    """An experiment of a profile; if it trains differently, published numbers no longer have the `same` protocol."""
    other = {"protocol": Protocol.model_validate({"other": [f"another scale here: profile {profile}"]})}
    changed = not shown.trains_as(whole)
    tables = (t.model_copy(update=other) if changed and t.protocol == "same" else t for t in shown.published)
    return replace(shown, published=tuple(tables))


class _Reader:
    """Resolves the names in one suite file."""

    def __init__(self, source: str, file: SuiteFile, registry: Registry, count_classes: CountClasses) -> None:
        self.source, self.file, self.registry, self.count_classes = source, file, registry, count_classes
        self.known_metrics: dict[str, MetricFile] = dict(METRICS)
        self.headline = self.metric(file.headline, ["headline"])
        if "margin" in file.model_fields_set:
            check_margin(file.margin, self.headline, ["margin"], self)
        elif not self.headline.is_score:
            raise self.fail(["headline"], needs_margin(self.headline))
        if self.headline.source == "rounds":
            raise self.fail(["headline"], f"'{self.headline.name}' has no value per seed; choose another metric")

    def fail(self, path: Sequence[Any], problem: object) -> SuiteError:
        return SuiteError(f"{self.where(path)}: {problem}")

    def where(self, path: Sequence[Any]) -> str:
        return _where(self.source, path)

    def check_auto(self) -> None:
        """`auto` lists existing profiles, each once; no profile is called "none"."""
        if NO_PROFILE in self.file.profile:
            problem = f"this name is reserved: `--profile {NO_PROFILE}` runs the suite without a profile; rename it"
            raise self.fail(["profile", NO_PROFILE], problem)
        names = self.file.auto or []
        for index, name in enumerate(names):
            if name not in self.file.profile:
                problem = f"no such profile '{name}'; {nearest(name, self.file.profile)}"
                raise self.fail(["auto", index], problem)
            if name in names[:index]:
                raise self.fail(["auto", index], f"'{name}' is listed twice")

    def experiments(self, profile: str | None) -> tuple[Experiment, ...]:
        """Every experiment of one profile."""
        overlay = self.file.profile.get(profile, Profile()) if profile else Profile()
        names = [str(raw.get("name", index)) for index, raw in enumerate(self.file.experiment)]
        for place, mentioned in (("skip", overlay.skip), ("experiment", list(overlay.experiment))):
            for name in mentioned:
                if name not in names:
                    problem = f"no such experiment '{name}'; {nearest(name, names)}"
                    raise self.fail(["profile", profile, place], problem)
        found = []
        for index, (name, raw) in enumerate(zip(names, self.file.experiment, strict=True)):
            if name in overlay.skip:
                continue
            here = ["experiment", name if isinstance(raw.get("name"), str) else index]
            layers: list[tuple[list[Any], Mapping[str, Any]]] = [
                (["defaults"], self.file.defaults),
                (here, raw),
                (["profile", profile, "all"], overlay.all),
                (["profile", profile, "experiment", name], overlay.experiment.get(name, {})),
            ]
            found.append(self.experiment(layers, here, whole=profile is None))
            if (total := sum(each.size for each in found)) > MOST_CELLS:
                raise self.fail(here, f"brings the suite to {total:,} cells; the limit is {MOST_CELLS:,}")
            if found[-1].name in [experiment.name for experiment in found[:-1]]:
                raise self.fail(here, f"two experiments are named '{found[-1].name}'; rename one")
        if not found:
            raise self.fail(["profile", profile, "skip"], "skips every experiment")
        return tuple(found)

    def tuning(
        self, experiments: tuple[Experiment, ...], profile: str | None
    ) -> tuple[tuple[Experiment, ...], Budget | None]:
        """The experiments of one profile with the trials of [tune], and the budget for the report."""
        overlay = self.file.profile[profile].tune if profile else {}
        if self.file.tune is None:
            if overlay:
                raise self.fail(["profile", profile, "tune"], "the suite has no [tune] table to override")
            return experiments, None

        def origin(path: Sequence[Any]) -> list[Any]:
            return ["profile", profile, "tune", *path] if path and path[0] in overlay else ["tune", *path]

        merged = _lay_over(self.file.tune.model_dump(exclude_unset=True), overlay)
        tune = validate(Tune, merged, lambda path: self.where(origin(path)))
        known = [str(raw["name"]) for raw in self.file.experiment if "name" in raw]
        return with_trials(experiments, tune, self, known=known, origin=origin, whole=profile is None)

    def experiment(
        self, layers: list[tuple[list[Any], Mapping[str, Any]]], here: list[Any], *, whole: bool
    ) -> Experiment:
        """One experiment from its layers, each overriding the one before; errors name the layer at fault.

        `whole` is false if a profile may leave out losses or classes that published numbers belong to.
        """
        merged: dict[str, Any] = {}
        for _, layer in layers:
            merged = _lay_over(merged, layer)

        def origin(path: Sequence[Any]) -> list[Any]:
            for prefix, layer in reversed(layers):
                if path and path[0] in layer:
                    return [*prefix, *path]
            return [*here, *path]

        text = validate(ExperimentText, merged, lambda path: _where(self.source, origin(path)))
        for key in ("seeds", "widths", "classes"):
            given = getattr(text, key)
            if isinstance(given, list) and (repeated := first_repeated(given)) is not None:
                raise self.fail(origin([key]), f"{repeated!r} is listed twice")
        if text.schedule.evaluations > text.schedule.steps:
            problem = f"must be at most 'steps', {text.schedule.steps}, got {text.schedule.evaluations}"
            raise self.fail(origin(["schedule", "evaluations"]), problem)
        places = [origin(["losses", index]) for index in range(len(text.losses))]
        swept = [self.axes("loss", item, place) for item, place in zip(text.losses, places, strict=True)]
        self.check_size(text, [list(axes.values()) for _, axes in swept], origin([]))
        losses = [
            self.resolve("loss", name, dict(zip(axes, combination, strict=True)), place)
            for (name, axes), place in zip(swept, places, strict=True)
            for combination in itertools.product(*axes.values())
        ]
        # The baseline has one label in all experiments.
        baseline = self.loss(self.file.baseline, ["baseline"])
        losses = [replace(spec, label=baseline.label) if spec.matches(baseline) else spec for spec in losses]
        known: dict[Any, Spec] = {}
        for spec in losses:
            if (first := known.setdefault(spec.meaning(), spec)) is not spec:
                problem = f"'{spec.label}' is listed twice (also as '{first.label}')"
                raise self.fail(origin(["losses"]), problem)
        labels = [spec.label for spec in losses]
        if baseline.label not in labels:
            problem = (
                f"the baseline '{self.file.baseline}' is not among the losses; {nearest(self.file.baseline, labels)}"
            )
            raise self.fail(origin(["losses"]), problem)
        warm = None
        if text.warm_start:
            place = origin(["warm_start", "loss"])
            warm = Warm(self.single("loss", text.warm_start.loss, place), text.warm_start.steps)
        return Experiment(
            name=text.name,
            task=text.task,
            tasks=tuple(self.tasks(text, origin)),
            backbone=self.single("backbone", text.backbone, origin(["backbone"])),
            widths=tuple(text.widths),
            losses=tuple(losses),
            seeds=tuple(text.seeds if isinstance(text.seeds, list) else range(text.seeds)),
            schedule=text.schedule,
            warm=warm,
            timing=text.timing,
            published=tuple(self.published(text, losses, origin, whole=whole)),
            threads=text.threads,
            device=text.device,
            autocast=text.autocast,
            channels_last=text.channels_last,
            metrics=self.listed_metrics(text, text.task, origin),
            default_metrics=text.metrics is None,
            keep=tuple(text.keep),
        )

    def check_size(self, text: ExperimentText, swept: Sequence[Sequence[Sequence[Any]]], path: Sequence[Any]) -> None:
        """Refuse a grid with too many cells before it is expanded; `swept`: values of each option of each loss."""
        sizes = [math.prod(map(len, axes)) for axes in swept]
        seeds = text.seeds if isinstance(text.seeds, int) else len(text.seeds)
        grid = {"losses": sum(sizes), "widths": len(text.widths), "classes": len(text.classes or [0]), "seeds": seeds}
        if (total := math.prod(grid.values())) > MOST_CELLS:
            product = " × ".join(f"{count:,} {name}" for name, count in grid.items())
            most = max(range(len(sizes)), key=sizes.__getitem__)
            lengths = " × ".join(str(len(axis)) for axis in swept[most] if len(axis) > 1)
            sweep = f", losses[{most}] alone sweeps {lengths}" if lengths else ""
            raise self.fail(path, f"has {total:,} cells ({product}{sweep}); the limit is {MOST_CELLS:,}")

    def published(
        self,
        text: ExperimentText,
        losses: Sequence[Spec],
        origin: Callable[[Sequence[Any]], list[Any]],
        *,
        whole: bool,
    ) -> Iterator[PublishedText]:
        """The tables of published numbers, with the labels of the experiment's losses."""
        written = text.published
        tables: list[tuple[list[Any], PublishedText]]
        if isinstance(written, dict):
            tables = [([], PublishedText(values=written, protocol=None, source="", classes=None))] if written else []
        elif isinstance(written, PublishedText):
            tables = [(["values"], written)]
        else:
            tables = [([index, "values"], table) for index, table in enumerate(written)]
        for path, table in tables:
            if table.classes is not None and table.classes not in (text.classes or ()):
                if not whole:
                    continue
                known = ", ".join(map(str, text.classes or ())) or "none"
                problem = f"{table.classes} is not among the experiment's 'classes'; known: {known}"
                raise self.fail(origin(["published", *path[:-1], "classes"]), problem)
            place = origin(["published", *path])
            meant = {key: self.loss(key, place) for key in table.values}
            kept = [key for key in meant if whole or any(spec.matches(meant[key]) for spec in losses)]
            yield table.model_copy(
                update={"values": {self.one_of(key, losses, place): table.values[key] for key in kept}}
            )

    def tasks(self, text: ExperimentText, origin: Callable[[Sequence[Any]], list[Any]]) -> Iterator[tuple[int, Spec]]:
        """(classes, dataset): once, or once per number in the experiment's `classes`."""
        name, written = self.named(text.dataset, origin(["dataset"]))
        written = self.with_task(name, written, text.task, origin)
        dataset = self.resolve("dataset", name, written, origin(["dataset"]))
        if text.classes is not None and "classes" in written:
            raise self.fail(origin(["classes"]), f"'{dataset.label}' already selects classes; set them in one place")
        try:
            available = self.count_classes(dataset)
        except LossbenchError as error:
            raise self.fail(origin(["dataset"]), error) from error
        if text.classes is None:
            yield available, dataset
            return
        for index, k in enumerate(text.classes):
            if k > available:
                problem = f"'{dataset.label}' has only {available} classes, got {k}"
                raise self.fail(origin(["classes", index]), problem)
            yield k, self.resolve("dataset", name, written | {"classes": k}, origin(["classes", index]))

    def with_task(
        self, name: str, written: dict[str, Any], task: str, origin: Callable[[Sequence[Any]], list[Any]]
    ) -> dict[str, Any]:
        """The dataset's options with the experiment's task; a dataset without pairs cannot be verified."""
        try:
            option = self.registry.find("dataset", name).own.get("task")
        except PluginError as error:
            raise self.fail(origin(["dataset"]), error) from error
        if "task" in written:
            raise self.fail(origin(["dataset", "task"]), "'task' is a key of the experiment, not of its dataset")
        if option is None and task == "verification":
            able = [n for n in self.registry.names("dataset") if "task" in self.registry.find("dataset", n).own]
            raise self.fail(
                origin(["task"]), f"dataset '{name}' does not support verification; these do: {', '.join(able)}"
            )
        return written if option is None or option.default == task else written | {"task": task}

    def claims(self, by_name: Mapping[str, Experiment]) -> tuple[Claim, ...]:
        """The claims, with labels as the experiments write them; a claim that no cell can answer is an error."""
        claims = []
        stated: dict[Any, int] = {}
        for index, entry in enumerate(self.file.claim):
            if not entry.text.strip():
                raise self.fail(["claim", index, "text"], "is empty; state the claim in words")
            if repeated := twice(entry):
                raise self.fail(["claim", index, repeated[0]], f"'{repeated[1]}' is listed twice")
        entries = enumerate(self.file.claim)
        for index, claim in ((index, claim) for index, entry in entries for claim in each(entry, self.headline.name)):
            path: list[Any] = ["claim", index]
            if claim.experiment not in by_name:
                problem = f"no such experiment '{claim.experiment}'; {nearest(claim.experiment, by_name)}"
                raise self.fail([*path, "experiment"], problem)
            claims.append(resolved(claim, by_name[claim.experiment], path, self))
            said = meaning(claims[-1], by_name[claim.experiment], self.file.margin)
            if said in stated:
                raise self.fail(path, f"'{claims[-1].text}' repeats claim[{stated[said]}]; remove one")
            stated[said] = index
        return tuple(claims)

    def metric(self, written: str, path: Sequence[Any]) -> MetricFile:
        if written not in self.known_metrics:
            try:
                found = metrics.find(self.registry, written)
            except OptionError as error:
                raise self.fail([*path, error.option] if error.option else path, error) from error
            except PluginError as error:
                raise self.fail(path, error) from error
            self.known_metrics.setdefault(found.name, found)
            return found
        return self.known_metrics[written]

    def measuring(self, experiment: Experiment, claims: Sequence[Claim]) -> Experiment:
        """The experiment with every metric that the suite asks it for: its own list, the headline, its claims."""
        path = ["experiment", experiment.name]
        check_metric(self.headline, experiment, ["headline"], self)
        mine = [claim for claim in claims if claim.experiment in (experiment.name, experiment.name + SUFFIX)]
        named = [spec.label for spec in experiment.metrics]
        named += [self.headline.name, *(name for claim in mine for name in (claim.metric, claim.than_metric) if name)]
        found = [self.metric(name, path) for name in dict.fromkeys(named)]
        # Every record has an accuracy, and what built-in metrics derive from it.
        asked = (m for m in found if not m.plugin.built_in or (m.source == "test" and m.name != "accuracy"))
        return replace(experiment, metrics=tuple(metrics.spec_of(metric) for metric in asked))

    def listed_metrics(
        self, text: ExperimentText, task: str, origin: Callable[[Sequence[Any]], list[Any]]
    ) -> tuple[Spec, ...]:
        """The metrics of the experiment's own list."""
        found: list[Spec] = []
        for index, written in enumerate(text.metrics or ()):
            place = origin(["metrics", index])
            metric = self.metric(written, place)
            if task not in metric.tasks:
                tasks = " or ".join(metric.tasks)
                raise self.fail(place, f"'{written}' is measured in a {tasks}, and this experiment is a {task}")
            if metric.name in [spec.label for spec in found]:
                raise self.fail(place, f"'{metric.name}' is listed twice")
            found.append(metrics.spec_of(metric))
        return tuple(found)

    def loss(self, written: str, path: Sequence[Any]) -> Spec:
        return self.single("loss", written, path)

    def weightless(self, loss: str) -> bool:
        """Whether a loss declares that it has no class weights."""
        return self.registry.find("loss", loss).weightless

    def one_of(self, written: str, losses: Sequence[Spec], path: Sequence[Any]) -> str:
        """The label in `losses` of the loss that is written here."""
        wanted = self.loss(written, path)
        for spec in losses:
            if spec.matches(wanted):
                return spec.label
        labels = [spec.label for spec in losses]
        raise self.fail(path, f"no cell produces '{written}'; {nearest(written, labels)}")

    def single(self, kind: Kind, item: str | NamedText, path: Sequence[Any]) -> Spec:
        """A plugin with one value per option."""
        name, written = self.named(item, path)
        return self.resolve(kind, name, written, path)

    def axes(self, kind: Kind, item: str | NamedText, path: Sequence[Any]) -> tuple[str, dict[str, list[Any]]]:
        """A plugin and the values of each of its options; a list sweeps several."""
        name, written = self.named(item, path)
        axes = {}
        for option, value in written.items():
            swept = isinstance(value, list) and not self.takes(kind, name, option, value)
            if swept and not value:
                raise self.fail([*path, option], "is an empty list; give at least one value to sweep")
            axes[option] = value if swept else [value]
        return name, axes

    def takes(self, kind: Kind, name: str, option: str, value: Any) -> bool:
        """Whether a list is itself a value of that option."""
        try:
            self.registry.find(kind, name).options[option].parse(value)
        except (PluginError, KeyError, ValueError):
            return False
        return True

    def named(self, item: str | NamedText, path: Sequence[Any]) -> tuple[str, dict[str, Any]]:
        if isinstance(item, NamedText):
            return item.name, item.options
        try:
            return parse_label(item)
        except ValueError as error:
            raise self.fail(path, error) from error

    def resolve(self, kind: Kind, name: str, written: Mapping[str, Any], path: Sequence[Any]) -> Spec:
        try:
            return replace(resolve(self.registry, kind, name, written), where=_where(self.source, path))
        except OptionError as error:
            raise self.fail([*path, error.option] if error.option else path, error) from error
        except PluginError as error:
            raise self.fail(path, error) from error


def resolve(registry: Registry, kind: Kind, name: str, written: Mapping[str, Any]) -> Spec:
    """A plugin with all its options; its label shows only those that were written."""
    plugin = registry.find(kind, name)
    for key, value in written.items():  # a label can contain escapes that its suite file cannot
        if found := flaw(value):
            raise OptionError(key, f"option '{key}' of {kind} '{name}' {found[1]}")
    options = {key: as_json(value) for key, value in plugin.parse_options(written).items()}
    shown = {key: value for key, value in options.items() if key in written}
    # For a dataset, `plan.job.with_data` replaces this by the digest of its arrays.
    source = plugin.source_hash if kind == "dataset" else plugin.identity(options)
    return Spec(name, options, label(name, shown), source)


def json_schema(registry: Registry) -> dict[str, Any]:
    """The JSON schema of a suite file, for editors."""
    top = SuiteFile.model_json_schema()
    grid = ExperimentText.model_json_schema()
    definitions = top.setdefault("$defs", {}) | grid.pop("$defs", {})
    partial = {key: value for key, value in grid.items() if key != "required"}  # overrides are partial
    definitions["Experiment"] = partial
    for table in ("NamedText", "Schedule", "WarmStart"):
        definitions[table].pop("required")  # an override need not repeat the rest
    named: tuple[tuple[str, Kind], ...] = (("dataset", "dataset"), ("backbone", "backbone"), ("losses", "loss"))
    for key, kind in named:
        partial["properties"][key]["description"] = f"a {kind}: {', '.join(registry.names(kind))}"
    for key in ("metric", "than_metric"):
        listed = f"{definitions['ClaimText']['properties'][key].get('description', 'a metric')}: {', '.join(METRICS)}"
        definitions["ClaimText"]["properties"][key]["description"] = f"{listed}, or one of your own"
    reference = {"$ref": "#/$defs/Experiment"}
    top["properties"]["defaults"] |= {"additionalProperties": False, **reference}
    top["properties"]["experiment"]["items"] = {**reference, "required": ["name"]}
    profile = definitions["Profile"]["properties"]
    profile["all"] |= reference
    profile["tune"] |= {"additionalProperties": False, "properties": definitions["Tune"]["properties"]}
    profile["experiment"]["additionalProperties"] = reference
    for place in (top["properties"]["defaults"], profile["all"]):
        place.pop("additionalProperties", None)
        place.pop("type", None)
    top["$defs"] = definitions
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **top, "title": "lossbench suite"}


def _claimable(experiments: Sequence[Experiment]) -> dict[str, Experiment]:
    """The experiments that a claim may name: those of the suite and their tuned counterparts."""
    counterparts = [tuned(experiment) for experiment in experiments if experiment.trials]
    return {experiment.name: experiment for experiment in (*experiments, *counterparts)}


def _lay_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged key by key, other values replaced; a table with another `name` is replaced as a whole."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if isinstance(value, dict) and isinstance(old, str):
            old = {"name": old}
        if isinstance(value, dict) and isinstance(old, dict) and value.get("name") in (None, old.get("name")):
            merged[key] = _lay_over(old, value)
        else:
            merged[key] = value
    return merged


def _where(source: str, path: Sequence[Any]) -> str:
    dotted = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path if part is not None)
    return f"{source}: {dotted.lstrip('.')}" if dotted else source
