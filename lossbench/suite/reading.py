"""TOML → Suite: every unknown key, name or option is an error here, before anything trains."""

from __future__ import annotations

import math
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lossbench.core.errors import LossbenchError, PluginError, SuiteError, nearest
from lossbench.core.format import Claim, NamedText, Protocol, PublishedText, Schedule
from lossbench.core.labels import axis_value, label, parse_label
from lossbench.core.model import BackboneAt, Budget, DataAt, Experiment, ScheduleAt, Spec, Suite, SuiteInfo, Warm
from lossbench.core.point import told
from lossbench.core.values import flaw
from lossbench.plugins.metrics import METRICS
from lossbench.plugins.registry import Kind, OptionError, Registry
from lossbench.suite.claims import cases, check_variants, each, first_repeated, meaning, relabelled, resolved, twice
from lossbench.suite.explain import validate
from lossbench.suite.format import MOST_CELLS, ExperimentText, Plugin, Profile, SuiteFile, Tune
from lossbench.suite.grid import AxisNames, Swept, axis_names
from lossbench.suite.overrides import SET, Layers, Origin, Overrides, layered, where
from lossbench.suite.recipe import RELATED, problems, versioned
from lossbench.suite.settings import tuned
from lossbench.suite.tuning import with_trials

# The number of classes of a dataset.
CountClasses = Callable[[Spec], int]
NO_PROFILE = "none"  # `--profile none`: the suite without a profile, even if it has `auto`
NO_OVERRIDES = Overrides()
Overlays = Sequence[tuple[list[Any], Profile]]  # profiles, each with its path


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
    profile: str | None = None,
    overrides: Overrides = NO_OVERRIDES,
) -> dict[str | None, Suite]:
    """The suite without a profile (None) and at each of its profiles; an error in any of them is raised.

    `source` is what errors call the file, `registry` knows the losses, backbones and datasets; `argument` and
    `plugins` are what `lossbench run` takes to run the suite again. `overrides` are laid over the profiles that
    `profile` leaves to run; another one may not fit them.
    """
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, integers of thousands of digits, endless nesting
        raise SuiteError(f"{source}: is not valid TOML: {error}") from error
    if wrong := flaw(raw):
        raise SuiteError(f"{where(source, wrong[0])}: {wrong[1]}")
    merged, origin = layered([([], raw), ([SET], overrides.suite)], [])
    file = validate(SuiteFile, merged, lambda path: where(source, origin(path)))
    reader = _Reader(source, file, registry, count_classes, origin)
    reader.check_auto()
    grids = {name: reader.grid(name) for name in (None, *file.profile)}
    whole = _claimable(grids[None][0])
    claims = reader.claims(whole)
    baseline = reader.loss(file.baseline, ["baseline"]).label
    overridden = to_run(profile, file.auto) if overrides.written else ()
    suites: dict[str | None, Suite] = {}
    for name, written in grids.items():
        given = overrides if name in overridden else NO_OVERRIDES
        grid, tuning = reader.grid(name, given.profile) if given.written else written
        shown = _claimable(grid)
        try:
            check_variants(claims, shown)
        except ValueError as error:
            raise reader.fail([SET] if given.written else ["profile", name], error) from error
        scale = " ".join([*([f"profile {name}"] if name else []), *(f"{SET} {text}" for text in given.written)])
        experiments = tuple(_restated(each, whole.get(each.name, each), scale) for each in grid)
        info = SuiteInfo(
            name=file.name,
            title=file.title or file.name,
            baseline=baseline,
            margin=file.margin,
            claims=tuple(
                case
                for claim in claims
                for case in (
                    cases(relabelled(claim, whole[claim.experiment], shown[claim.experiment]), shown[claim.experiment])
                    if claim.experiment in shown
                    else [claim]
                )
            ),
            published={experiment.name: experiment.published for experiment in experiments},
            profile=name,
            command=_command(argument or source, name or (NO_PROFILE if file.auto else None), given.written, plugins),
            tuning=tuning,
            note=given.profile.note or (file.profile[name].note if name else ""),
            overrides=given.written,
        )
        suites[name] = Suite(info, experiments, text, tuple(file.auto or ()))
    return suites


def to_run(profile: str | None, auto: Sequence[str] | None) -> list[str | None]:
    """The profiles that may run: the given one, else those of the suite's `auto`, else none (None)."""
    if profile is None and auto:
        return list(auto)
    return [None if profile == NO_PROFILE else profile]


def _command(argument: str, profile: str | None, overrides: Sequence[str], plugins: Sequence[str]) -> str:
    """The command that runs a suite again."""
    options = ["--profile", profile] if profile else []
    options += [part for text in overrides for part in (SET, text)]
    options += [part for folder in plugins for part in ("--plugins", folder)]
    return shlex.join(["lossbench", "run", argument, *options])


def _restated(shown: Experiment, whole: Experiment, scale: str) -> Experiment:
    """An experiment of a profile; if it trains differently, published numbers no longer have the `same` protocol."""
    other = {"protocol": Protocol.model_validate({"other": [f"another scale here: {scale}"]})}
    changed = not shown.trains_as(whole)
    tables = (t.model_copy(update=other) if changed and t.protocol == "same" else t for t in shown.published)
    return replace(shown, published=tuple(tables))


class _Reader:
    """Resolves the names in one suite file."""

    def __init__(
        self,
        source: str,
        file: SuiteFile,
        registry: Registry,
        count_classes: CountClasses,
        origin: Origin,
    ) -> None:
        self.source, self.file, self.registry, self.count_classes = source, file, registry, count_classes
        self.origin = origin  # of a path in the file: itself, or a key that was set

    def fail(self, path: Sequence[Any], problem: object) -> SuiteError:
        return SuiteError(f"{self.where(path)}: {problem}")

    def where(self, path: Sequence[Any]) -> str:
        return where(self.source, self.origin(path))

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

    def grid(self, name: str | None, given: Profile | None = None) -> tuple[tuple[Experiment, ...], Budget | None]:
        """The experiments of one profile with their trials, and the budget for the report; `given`: keys that were set.

        Each layer overrides those before it.
        """
        layers = [(["profile", name], self.file.profile[name])] if name else []
        layers += [([SET], given)] if given else []
        return self.tuning(self.experiments(layers), layers)

    def experiments(self, overlays: Overlays) -> tuple[Experiment, ...]:
        """Every experiment with these overlays."""
        names = [str(raw.get("name", index)) for index, raw in enumerate(self.file.experiment)]
        skip: tuple[list[Any], list[str]] = ([], [])
        for place, overlay in overlays:
            if "skip" in overlay.model_fields_set:
                skip = [*place, "skip"], overlay.skip
            named: list[tuple[list[Any], str]] = [(["experiment", name], name) for name in overlay.experiment]
            for path, name in [*named, *((["skip", index], name) for index, name in enumerate(overlay.skip))]:
                if name not in names:
                    raise self.fail([*place, *path], f"no such experiment '{name}'; {nearest(name, names)}")
        found: list[Experiment] = []
        for index, (name, raw) in enumerate(zip(names, self.file.experiment, strict=True)):
            if name in skip[1]:
                continue
            here = ["experiment", name if isinstance(raw.get("name"), str) else index]
            layers: list[tuple[list[Any], Mapping[str, Any]]] = [(["defaults"], self.file.defaults), (here, raw)]
            for place, overlay in overlays:
                layers.append(([SET] if place == [SET] else [*place, "all"], overlay.all))
                layers.append(([*place, "experiment", name], overlay.experiment.get(name, {})))
            found.append(self.experiment(layers, here, whole=not overlays))
            if (total := sum(each.size for each in found)) > MOST_CELLS:
                raise self.fail(here, f"brings the suite to {total:,} cells; the limit is {MOST_CELLS:,}")
            if found[-1].name in [experiment.name for experiment in found[:-1]]:
                raise self.fail(here, f"two experiments are named '{found[-1].name}'; rename one")
        if not found:
            raise self.fail(skip[0], "skips every experiment")
        return tuple(found)

    def tuning(
        self, experiments: tuple[Experiment, ...], overlays: Overlays
    ) -> tuple[tuple[Experiment, ...], Budget | None]:
        """The experiments with the trials of [tune], and the budget for the report."""
        tables = [([*place, "tune"], overlay.tune) for place, overlay in overlays if overlay.tune]
        if self.file.tune is None and not tables:
            return experiments, None
        if self.file.tune is None and tables[0][0] != [SET, "tune"]:
            raise self.fail(tables[0][0], "the suite has no [tune] table to override")
        written = self.file.tune.model_dump(exclude_unset=True) if self.file.tune else {}
        merged, origin = layered([(["tune"], written), *tables], tables[-1][0] if tables else ["tune"])
        tune = validate(Tune, merged, lambda path: self.where(origin(path)))
        known = [str(raw["name"]) for raw in self.file.experiment if "name" in raw]
        return with_trials(experiments, tune, self, known=known, origin=origin, whole=not overlays)

    def experiment(self, layers: Layers, here: list[Any], *, whole: bool) -> Experiment:
        """One experiment from its layers, each overriding the one before; errors name the layer at fault.

        `whole` is false if a profile may leave out losses or classes that published numbers belong to.
        """
        merged, origin = layered(layers, here)
        text = validate(ExperimentText, merged, lambda path: self.where(origin(path)))
        for key in ("seeds", "widths", "classes"):
            given = getattr(text, key)
            if isinstance(given, list) and (repeated := first_repeated(given)) is not None:
                raise self.fail(origin([key]), f"{repeated!r} is listed twice")
        places = [origin(["losses", index]) for index in range(len(text.losses))]
        swept = [self.axes("loss", item, place) for item, place in zip(text.losses, places, strict=True)]
        parts = {
            "dataset": self.plugins("dataset", text.dataset, origin),
            "backbone": self.plugins("backbone", text.backbone, origin),
            "schedule": [self.schedule(text.schedule, origin(["schedule"]))],
        }
        self.check_size(text, swept, parts, origin([]))
        axis = axis_names(parts)
        losses = [self.resolve("loss", one.name, written, one.path) for one in swept for written in one.combinations()]
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
        datasets = tuple(data for one in parts["dataset"] for data in self.datasets(one, text, axis, origin))
        found = Experiment(
            name=text.name,
            task=text.task,
            datasets=datasets,
            backbones=tuple(
                BackboneAt(spec, axes) for one in parts["backbone"] for spec, axes in self.specs("backbone", one, axis)
            ),
            widths=tuple(text.widths),
            losses=tuple(losses),
            seeds=tuple(text.seeds if isinstance(text.seeds, list) else range(text.seeds)),
            schedules=tuple(self.schedules(parts["schedule"][0], axis, origin, datasets, warm)),
            warm=warm,
            timing=text.timing,
            published=tuple(self.published(text, losses, origin, whole=whole)),
            threads=text.threads,
            device=text.device,
            autocast=text.autocast,
            channels_last=text.channels_last,
        )
        self.check_distinct(found, origin)
        return found

    def check_distinct(self, experiment: Experiment, origin: Origin) -> None:
        """No dataset, backbone or schedule is listed twice."""
        listed: dict[str, list[Mapping[str, Any]]] = {
            "dataset": [{**data.axes, "classes": data.classes} for data in experiment.datasets],
            "backbone": [backbone.axes for backbone in experiment.backbones],
            "schedule": [schedule.axes for schedule in experiment.schedules],
        }
        for key, choices in listed.items():
            if (repeated := first_repeated([tuple(axes.items()) for axes in choices])) is not None:
                values = ", ".join(told(*axis) for axis in repeated)
                raise self.fail(origin([key]), f"{values} is listed twice")

    def check_size(
        self,
        text: ExperimentText,
        losses: Sequence[Swept],
        parts: Mapping[str, Sequence[Swept]],
        path: Sequence[Any],
    ) -> None:
        """Refuse a grid with too many cells before it is expanded."""
        sizes = [one.size for one in losses]
        seeds = text.seeds if isinstance(text.seeds, int) else len(text.seeds)
        grid = {"losses": sum(sizes), "widths": len(text.widths), "classes": len(text.classes or [0]), "seeds": seeds}
        counts = {f"{key}s": sum(one.size for one in part) for key, part in parts.items()}
        grid |= {name: count for name, count in counts.items() if count > 1}
        if (total := math.prod(grid.values())) > MOST_CELLS:
            product = " × ".join(f"{count:,} {name}" for name, count in grid.items())
            most = max(range(len(sizes)), key=sizes.__getitem__)
            lengths = " × ".join(str(len(axis)) for axis in losses[most].axes.values() if len(axis) > 1)
            sweep = f", losses[{most}] alone sweeps {lengths}" if lengths else ""
            raise self.fail(path, f"has {total:,} cells ({product}{sweep}); the limit is {MOST_CELLS:,}")

    def published(
        self,
        text: ExperimentText,
        losses: Sequence[Spec],
        origin: Origin,
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

    def plugins(self, kind: Kind, written: Plugin | Sequence[Plugin], origin: Origin) -> list[Swept]:
        """The datasets or backbones of an experiment: one, or a list of them."""
        if isinstance(written, str | NamedText):
            return [self.axes(kind, written, origin([kind]))]
        return [self.axes(kind, item, origin([kind, index])) for index, item in enumerate(written)]

    def specs(self, kind: Kind, one: Swept, axis: AxisNames) -> Iterator[tuple[Spec, dict[str, Any]]]:
        """Each combination of a plugin's options, with its axes: its label without swept options, and their values."""
        for written in one.combinations():
            spec = self.resolve(kind, one.name, written, one.path)
            base = label(one.name, {key: spec.options[key] for key in written if key not in one.swept})
            yield spec, {kind: base, **{axis[kind, key]: axis_value(spec.options[key]) for key in one.swept}}

    def schedule(self, written: Mapping[str, Any], path: Sequence[Any]) -> Swept:
        """The schedule with the values of each key; a list sweeps several."""
        lists = tuple(key for key, value in written.items() if isinstance(value, list))
        for key in lists:
            self.check_values(written[key], [*path, key])
        axes = {key: value if key in lists else [value] for key, value in written.items()}
        return Swept("", axes, lists, path)

    def schedules(
        self, one: Swept, axis: AxisNames, origin: Origin, datasets: Sequence[DataAt], warm: Warm | None
    ) -> Iterator[ScheduleAt]:
        """Each combination of the schedule's keys."""
        classes, length = [data.classes for data in datasets], warm.steps if warm else 0
        for written in one.combinations():
            index = {key: one.axes[key].index(written[key]) for key in one.swept}

            def where(path: Sequence[Any], index: Mapping[str, int] = index) -> str:
                key, *rest = path or [None]
                return self.where(origin(["schedule", key, index.get(key), *rest]))

            schedule = validate(Schedule, written, where)
            for path, problem in problems(schedule, classes=classes, warm=length):
                others = (["schedule", key] for name in path[:1] for key in RELATED.get(name, ()))
                raise self.fail(origin(["schedule", *path], *others), problem)
            axes = {axis["schedule", key]: axis_value(written[key]) for key in one.swept}
            yield ScheduleAt(versioned(schedule), axes)

    def datasets(self, one: Swept, text: ExperimentText, axis: AxisNames, origin: Origin) -> Iterator[DataAt]:
        """Each combination of a dataset's options, at each number in the experiment's `classes`."""
        fixed = {key: values[0] for key, values in one.axes.items() if key not in one.swept}
        if text.classes is not None and "classes" in one.axes:
            shown = label(one.name, fixed)
            raise self.fail(origin(["classes"]), f"'{shown}' already selects classes; set them in one place")
        task = self.task_option(one, text.task, origin)
        one = replace(one, axes={**one.axes, **task})
        for spec, axes in self.specs("dataset", one, axis):
            try:
                available = self.count_classes(spec)
            except LossbenchError as error:
                raise self.fail(one.path, error) from error
            if text.classes is None:
                yield DataAt(available, spec, axes)
            for index, k in enumerate(text.classes or ()):
                if k > available:
                    problem = f"'{spec.label}' has only {available} classes, got {k}"
                    raise self.fail(origin(["classes", index]), problem)
                written = {key: spec.options[key] for key in one.axes} | {"classes": k}
                yield DataAt(k, self.resolve("dataset", one.name, written, origin(["classes", index])), axes)

    def task_option(self, one: Swept, task: str, origin: Origin) -> dict[str, list[Any]]:
        """The dataset's option for the experiment's task, unless it is the default; not every dataset has one."""
        try:
            option = self.registry.find("dataset", one.name).own.get("task")
        except PluginError as error:
            raise self.fail(one.path, error) from error
        if "task" in one.axes:
            raise self.fail([*one.path, "task"], "'task' is a key of the experiment, not of its dataset")
        if not self.supports(one.name, task):
            able = ", ".join(name for name in self.registry.names("dataset") if self.supports(name, task))
            raise self.fail(origin(["task"]), f"dataset '{one.name}' does not support {task}; these do: {able}")
        return {} if option is None or option.default == task else {"task": [task]}

    def supports(self, dataset: str, task: str) -> bool:
        """Whether the option `task` of a dataset has that value; a dataset without the option is for classification."""
        has_option = "task" in self.registry.find("dataset", dataset).own
        return self.takes("dataset", dataset, "task", task) if has_option else task == "classification"

    def claims(self, by_name: Mapping[str, Experiment]) -> tuple[Claim, ...]:
        """The claims, with labels as the experiments write them; a claim that no cell can answer is an error."""
        claims = []
        stated: dict[Any, int] = {}
        for index, entry in enumerate(self.file.claim):
            if not entry.text.strip():
                raise self.fail(["claim", index, "text"], "is empty; state the claim in words")
            if repeated := twice(entry):
                raise self.fail(["claim", index, repeated[0]], f"'{repeated[1]}' is listed twice")
        for index, claim in ((index, claim) for index, entry in enumerate(self.file.claim) for claim in each(entry)):
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

    def axes(self, kind: Kind, item: Plugin, path: Sequence[Any]) -> Swept:
        """A plugin and the values of each of its options; a list sweeps several."""
        name, written = self.named(item, path)
        lists = tuple(
            option
            for option, value in written.items()
            if isinstance(value, list) and not self.takes(kind, name, option, value)
        )
        for option in lists:
            self.check_values(written[option], [*path, option])
        axes = {option: value if option in lists else [value] for option, value in written.items()}
        return Swept(name, axes, lists, path)

    def check_values(self, values: Sequence[Any], path: Sequence[Any]) -> None:
        """The values of an axis are one or more, each once."""
        if not values:
            raise self.fail(path, "is an empty list; give at least one value to sweep")

    def takes(self, kind: Kind, name: str, option: str, value: Any) -> bool:
        """Whether this is one value of that option, as a list may be."""
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
            return replace(resolve(self.registry, kind, name, written), where=self.where(path))
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
    options = {key: _as_json(value) for key, value in plugin.parse_options(written).items()}
    shown = {key: value for key, value in options.items() if key in written}
    # For a dataset, `plan.job.with_data` replaces this by the digest of its arrays.
    source = plugin.source_hash if kind == "dataset" else plugin.identity(options)
    return Spec(name, options, label(name, shown), source)


def json_schema(registry: Registry) -> dict[str, Any]:
    """The JSON schema of a suite file, for editors."""
    top = SuiteFile.model_json_schema()
    grid, schedule = ExperimentText.model_json_schema(), Schedule.model_json_schema()
    definitions = top.setdefault("$defs", {}) | grid.pop("$defs", {}) | schedule.pop("$defs", {})
    for key, value in schedule["properties"].items():
        sweep = {"type": "array", "items": value, "minItems": 1, "description": f"sweeps '{key}'"}
        schedule["properties"][key] = {"anyOf": [value, sweep]}
    definitions["Schedule"] = schedule
    grid["properties"]["schedule"] = {"$ref": "#/$defs/Schedule"}
    partial = {key: value for key, value in grid.items() if key != "required"}  # overrides are partial
    definitions["Experiment"] = partial
    for table in ("NamedText", "Schedule", "WarmStart"):
        definitions[table].pop("required", None)  # an override need not repeat the rest
    named: tuple[tuple[str, Kind], ...] = (("dataset", "dataset"), ("backbone", "backbone"), ("losses", "loss"))
    for key, kind in named:
        partial["properties"][key]["description"] = f"a {kind}: {', '.join(registry.names(kind))}"
    for key in ("metric", "than_metric"):
        definitions["ClaimText"]["properties"][key]["enum"] = [*METRICS, *([None] if key == "than_metric" else [])]
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


def _as_json(value: Any) -> Any:
    return [_as_json(item) for item in value] if isinstance(value, list | tuple) else value
