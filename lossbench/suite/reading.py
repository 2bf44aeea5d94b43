"""TOML → Suite: every unknown key, name or option is an error here, before anything trains."""

from __future__ import annotations

import itertools
import math
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from lossbench.core import values
from lossbench.core.errors import LossbenchError, PluginError, SuiteError, closest, nearest
from lossbench.core.format import Claim, NamedText, Protocol, PublishedText, Schedule
from lossbench.core.labels import axis_value, label, parse_label
from lossbench.core.model import BackboneAt, Budget, DataAt, Experiment, ScheduleAt, Spec, Suite, SuiteInfo, Warm
from lossbench.core.point import told
from lossbench.core.values import as_json, flaw, flaws
from lossbench.plugins import metrics
from lossbench.plugins.metrics import METRICS, MetricFile
from lossbench.plugins.registry import Kind, OptionError, Registry
from lossbench.suite.claims import (
    cases,
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
from lossbench.suite.explain import FormatError, validate
from lossbench.suite.format import MOST_CELLS, ClaimText, ExperimentText, Plugin, Profile, SuiteFile, Tune
from lossbench.suite.grid import AxisNames, Swept, axis_names
from lossbench.suite.mistakes import Mistakes, paths
from lossbench.suite.overrides import SET, Layers, Origin, Overrides, layered, where
from lossbench.suite.recipe import RELATED, problems, versioned
from lossbench.suite.settings import SUFFIX, tuned
from lossbench.suite.tuning import with_trials

# The number of classes of a dataset.
CountClasses = Callable[[Spec], int]
NO_PROFILE = "none"  # `--profile none`: the suite without a profile, even if it has `auto`
NO_OVERRIDES = Overrides()
Overlays = Sequence[tuple[list[Any], Profile]]  # profiles, each with its path
Parts = frozenset[tuple[Any, ...]]  # paths of parts of a suite file
# In place of a key that is wrong or missing, so that the others can be checked.
STAND_INS = {
    "name": "x",
    "dataset": "x",
    "backbone": "x",
    "losses": ["x"],
    "widths": [1],
    "seeds": 1,
    "schedule": {"steps": 1},
}


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
    """The suite without a profile (None) and at each of its profiles; the mistakes in all of them are raised together.

    `source` is what errors call the file, `registry` knows the losses, backbones and datasets; `argument` and
    `plugins` are what `lossbench run` takes to run the suite again. `overrides` are laid over the profiles that
    `profile` leaves to run; another one may not fit them.
    """
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, integers of thousands of digits, endless nesting
        line = re.search(r"at line (\d+)", str(error))
        quoted = f": {values.shown(text.split(chr(10))[int(line[1]) - 1].strip())}" if line else ""
        raise SuiteError(f"{source}: is not valid TOML: {error}{quoted}") from error
    if wrong := [f"{where(source, path)}: {problem}" for path, problem in flaws(raw)]:
        raise SuiteError(*wrong)
    merged, origin = layered([([], raw), ([SET], overrides.suite)], [])
    mistakes = Mistakes()
    suites: dict[str | None, Suite] = {}
    with mistakes.noting():
        file, parts = _file(merged, lambda path: where(source, origin(path)), mistakes)
        reader = _Reader(source, file, registry, count_classes, origin, mistakes, parts)
        suites = _suites(reader, text, profile, overrides, argument or source, plugins)
    mistakes.check(lambda: [where(source, path) for path in paths(raw)])
    return suites


def _file(raw: Mapping[str, Any], where: Callable[[Sequence[Any]], str], mistakes: Mistakes) -> tuple[SuiteFile, Parts]:
    """The suite file without the parts that are wrong, and these parts; raises if the experiments may be among them."""
    try:
        return validate(SuiteFile, raw, where), frozenset()
    except FormatError as error:
        fields = [field for field in SuiteFile.model_fields if field not in ("experiment", "defaults")]
        # What is under an unknown key may be what the experiments lack, unless the key looks like one that is simple.
        simple = [field for field in fields if field not in ("tune", "profile")]
        if not all(
            place[0] in fields or closest(str(place[0]), SuiteFile.model_fields) in simple for place in error.places
        ):
            raise
        mistakes.note(error)
        wrong = frozenset(place[: 2 if place[0] in ("claim", "profile") else 1] for place in error.places)
        good = {key: value for key, value in raw.items() if (key,) not in wrong}
        if "claim" in good:
            good["claim"] = [entry for index, entry in enumerate(good["claim"]) if ("claim", index) not in wrong]
        if "profile" in good:
            good["profile"] = {name: one for name, one in good["profile"].items() if ("profile", name) not in wrong}
        return SuiteFile.model_validate({"name": "x", **good}), wrong


def _suites(
    reader: _Reader,
    text: str,
    profile: str | None,
    overrides: Overrides,
    argument: str,
    plugins: Sequence[str],
) -> dict[str | None, Suite]:
    file, mistakes = reader.file, reader.mistakes
    with mistakes.together():
        reader.check_auto()
        grids = dict(mistakes.every(lambda name: (name, reader.grid(name)), (None, *file.profile)))
        whole = _claimable(grids[None][0])
        claims = reader.claims(whole)
        baseline = reader.loss(file.baseline, ["baseline"]).label
    overridden = to_run(profile, file.auto) if overrides.written else ()
    suites: dict[str | None, Suite] = {}
    for name, written in grids.items():
        given = overrides if name in overridden else NO_OVERRIDES
        grid, tuning = reader.grid(name, given.profile) if given.written else written
        shown = _claimable(grid)
        with mistakes.noting():
            reader.check_variants(claims, shown, [SET] if given.written else ["profile", name])
        scale = " ".join([*([f"profile {name}"] if name else []), *(f"{SET} {text}" for text in given.written)])
        restated = (_restated(each, whole.get(each.name, each), scale) for each in grid)
        experiments = tuple(mistakes.every(partial(reader.measuring, claims=claims), restated))
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
            command=_command(argument, name or (NO_PROFILE if file.auto else None), given.written, plugins),
            tuning=tuning,
            note=given.profile.note or (file.profile[name].note if name else ""),
            overrides=given.written,
            headline=reader.headline.name,
            metrics=tuple(metric.plain for metric in reader.known_metrics.values()),
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
        mistakes: Mistakes,
        wrong: Parts,
    ) -> None:
        self.source, self.file, self.registry, self.count_classes = source, file, registry, count_classes
        self.origin = origin  # of a path in the file: itself, or a key that was set
        self.mistakes = mistakes
        self.wrong = wrong  # parts that are not in `file`
        self.unread: set[str] = set()  # experiments with mistakes: claims about them are not checked
        self.unnamed = False  # whether the name of an experiment is wrong
        self.names = [str(raw.get("name", index)) for index, raw in enumerate(file.experiment)]
        self.baseline: Spec | None = None
        with mistakes.noting():
            self.baseline = None if ("baseline",) in wrong else self.loss(file.baseline, ["baseline"])
        self.known_metrics: dict[str, MetricFile] = dict(METRICS)
        tasks = {raw.get("task", file.defaults.get("task")) for raw in file.experiment}
        self.headline = METRICS["recall@1" if tasks == {"retrieval"} else "accuracy"]
        with mistakes.noting():
            if file.headline is not None:
                self.headline = self.metric(file.headline, ["headline"])
            if not self.headline.column:
                raise self.fail(["headline"], f"no record has a value of '{self.headline.name}'; choose another metric")
            if "margin" in file.model_fields_set:
                check_margin(file.margin, self.headline, ["margin"], self)
            elif not self.headline.is_score and ("margin",) not in wrong:
                raise self.fail(["headline"], needs_margin(self.headline))

    def fail(self, path: Sequence[Any], problem: object) -> SuiteError:
        return SuiteError(f"{self.where(path)}: {problem}")

    def no_experiment(self, path: Sequence[Any], name: str, known: Iterable[str]) -> SuiteError:
        """The error about a name that is unknown, unless it may be that of an experiment with mistakes."""
        if self.unnamed or name in self.unread:
            return SuiteError()
        return self.fail(path, f"no such experiment '{name}'; {nearest(name, [*known, *self.unread])}")

    def where(self, path: Sequence[Any]) -> str:
        return where(self.source, self.origin(path))

    def check_auto(self) -> None:
        """`auto` lists existing profiles, each once; no profile is called "none"."""
        if NO_PROFILE in self.file.profile:
            problem = f"this name is reserved: `--profile {NO_PROFILE}` runs the suite without a profile; rename it"
            self.mistakes.note(self.fail(["profile", NO_PROFILE], problem))
            return  # `auto` may mean it by another name
        names = self.file.auto or []
        known = [*self.file.profile, *(part[1] for part in self.wrong if part[0] == "profile" and part[1:])]
        for index, name in enumerate(names) if ("profile",) not in self.wrong else ():
            with self.mistakes.noting():
                if name not in known:
                    raise self.fail(["auto", index], f"no such profile '{name}'; {nearest(name, known)}")
                if name in names[:index]:
                    raise self.fail(["auto", index], f"'{name}' is listed twice")

    def grid(self, name: str | None, given: Profile | None = None) -> tuple[tuple[Experiment, ...], Budget | None]:
        """The experiments of one profile with their trials, and the budget for the report; `given`: keys that were set.

        Each layer overrides those before it.
        """
        layers = [(["profile", name], self.file.profile[name])] if name else []
        layers += [([SET], given)] if given else []
        experiments = self.experiments(layers)
        with self.mistakes.noting():
            return self.tuning(experiments, layers)
        self.unread.update(name + SUFFIX for name in self.names if not layers)
        return experiments, None

    def experiments(self, overlays: Overlays) -> tuple[Experiment, ...]:
        """Every experiment with these overlays."""
        names = self.names
        skip: tuple[list[Any], list[str]] = ([], [])
        for place, overlay in overlays:
            if "skip" in overlay.model_fields_set:
                skip = [*place, "skip"], overlay.skip
            named: list[tuple[list[Any], str]] = [(["experiment", name], name) for name in overlay.experiment]
            for path, name in [*named, *((["skip", index], name) for index, name in enumerate(overlay.skip))]:
                if name not in names:
                    self.mistakes.note(self.no_experiment([*place, *path], name, names))
        found: list[Experiment] = []
        for index, (name, raw) in enumerate(zip(names, self.file.experiment, strict=True)):
            if name in skip[1]:
                continue
            here = ["experiment", name if isinstance(raw.get("name"), str) else index]
            layers: list[tuple[list[Any], Mapping[str, Any]]] = [(["defaults"], self.file.defaults), (here, raw)]
            for place, overlay in overlays:
                layers.append(([SET] if place == [SET] else [*place, "all"], overlay.all))
                layers.append(([*place, "experiment", name], overlay.experiment.get(name, {})))
            inherited = not overlays or name not in self.unread  # mistakes below the overlays are noted already
            with self.mistakes.noting(None if inherited else [self.where(place) for place, _ in overlays]):
                found.append(self.experiment(layers, here, whole=not overlays))
                if found[-1].name in [experiment.name for experiment in found[:-1]]:
                    raise self.fail(here, f"two experiments are named '{found[-1].name}'; rename one")
                if (total := sum(each.size for each in found)) > MOST_CELLS:
                    raise self.fail(here, f"brings the suite to {total:,} cells; the limit is {MOST_CELLS:,}")
        if not overlays:
            self.unread.update(name + end for name in {*names} - {each.name for each in found} for end in ("", SUFFIX))
        if set(names) <= set(skip[1]):
            raise self.fail(skip[0], "skips every experiment")
        return tuple(found)

    def tuning(
        self, experiments: tuple[Experiment, ...], overlays: Overlays
    ) -> tuple[tuple[Experiment, ...], Budget | None]:
        """The experiments with the trials of [tune], and the budget for the report."""
        if ("tune",) in self.wrong:
            raise SuiteError
        tables = [([*place, "tune"], overlay.tune) for place, overlay in overlays if overlay.tune]
        if self.file.tune is None and not tables:
            return experiments, None
        if self.file.tune is None and tables[0][0] != [SET, "tune"]:
            raise self.fail(tables[0][0], "the suite has no [tune] table to override")
        written = self.file.tune.model_dump(exclude_unset=True) if self.file.tune else {}
        merged, origin = layered([(["tune"], written), *tables], tables[-1][0] if tables else ["tune"])
        tune = validate(Tune, merged, lambda path: self.where(origin(path)))
        known = [str(raw["name"]) for raw in self.file.experiment if "name" in raw]
        return with_trials(experiments, tune, self, known=known, origin=origin, whole=not overlays and not self.unread)

    def experiment(self, layers: Layers, here: list[Any], *, whole: bool) -> Experiment:
        """One experiment from its layers, each overriding the one before; errors name the layer at fault.

        `whole` is false if a profile may leave out losses or classes that published numbers belong to.
        """
        merged, origin = layered(layers, here)
        every = self.mistakes.every
        with self.mistakes.together():
            text, wrong = self.readable(merged, origin)
            for key in ("seeds", "widths", "classes"):
                given = getattr(text, key)
                if isinstance(given, list) and (repeated := first_repeated(given)) is not None:
                    self.mistakes.note(self.fail(origin([key]), f"{repeated!r} is listed twice"))
            if text.timing and text.timing.processes > text.timing.rounds:
                place = origin(["timing", "processes"], ["timing", "rounds"])
                problem = f"must be at most 'rounds', {text.timing.rounds}, got {text.timing.processes}"
                self.mistakes.note(self.fail(place, problem))
            swept = every(lambda at: self.axes("loss", at[1], origin(["losses", at[0]])), enumerate(text.losses))
            parts = {
                "dataset": self.plugins("dataset", text.dataset, origin),
                "backbone": self.plugins("backbone", text.backbone, origin),
                "schedule": every(lambda written: self.schedule(written, origin(["schedule"])), [text.schedule]),
            }
            self.check_size(text, swept, parts, origin([]))
            axis = axis_names(parts)
            with self.mistakes.noting():
                losses = self.losses(text, swept, origin)
                published = [] if "classes" in wrong else [*self.published(text, losses, origin, whole=whole)]
            warm = None
            if text.warm_start:
                place = origin(["warm_start", "loss"])
                with self.mistakes.noting():
                    warm = Warm(self.single("loss", text.warm_start.loss, place), text.warm_start.steps)
            datasets = every(lambda one: [*self.datasets(one, text, axis, origin)], parts["dataset"])
            backbones = every(lambda one: [*self.specs("backbone", one, axis)], parts["backbone"])
            known = [data for one in datasets for data in one]
            schedules = every(lambda one: [*self.schedules(one, axis, origin, known, warm)], parts["schedule"])
        found = Experiment(
            name=text.name,
            task=text.task,
            datasets=tuple(known),
            backbones=tuple(BackboneAt(*at) for at in itertools.chain(*backbones)),
            widths=tuple(text.widths),
            losses=tuple(losses),
            seeds=tuple(text.seeds if isinstance(text.seeds, list) else range(text.seeds)),
            schedules=tuple(itertools.chain(*schedules)),
            warm=warm,
            timing=text.timing,
            published=tuple(published),
            threads=text.threads,
            device=text.device,
            autocast=text.autocast,
            channels_last=text.channels_last,
            metrics=self.listed_metrics(text, origin),
            default_metrics=text.metrics is None,
            keep=tuple(text.keep),
        )
        self.check_distinct(found, origin)
        return found

    def readable(self, raw: Mapping[str, Any], origin: Origin) -> tuple[ExperimentText, set[str]]:
        """An experiment without the keys that are wrong, and these keys."""
        try:
            return validate(ExperimentText, raw, lambda path: self.where(origin(path))), set()
        except FormatError as error:
            self.mistakes.note(error)
            wrong = {str(place[0]) for place in error.places}
            self.unnamed |= "name" in wrong
            good = {key: value for key, value in raw.items() if key not in wrong}
            text = ExperimentText.model_validate({**STAND_INS, **good})
            return text.model_copy(update={key: [] for key in ("dataset", "backbone", "losses") if key in wrong}), wrong

    def losses(self, text: ExperimentText, swept: Sequence[Swept], origin: Origin) -> list[Spec]:
        """The losses of an experiment, each once; the baseline is among them and has one label in all experiments."""
        with self.mistakes.together():
            groups = self.mistakes.every(
                lambda one: [self.resolve("loss", one.name, written, one.path) for written in one.combinations()], swept
            )
        if len(swept) < max(1, len(text.losses)):
            raise SuiteError
        losses, baseline = [*itertools.chain(*groups)], self.baseline
        if baseline:
            losses = [replace(spec, label=baseline.label) if spec.matches(baseline) else spec for spec in losses]
        known: dict[Any, Spec] = {}
        for spec in losses:
            if (first := known.setdefault(spec.meaning(), spec)) is not spec:
                problem = f"'{spec.label}' is listed twice (also as '{first.label}')"
                self.mistakes.note(self.fail(origin(["losses"]), problem))
        labels = [spec.label for spec in losses]
        if baseline and baseline.label not in labels:
            hint = nearest(self.file.baseline, labels)
            raise self.fail(origin(["losses"]), f"the baseline '{self.file.baseline}' is not among the losses; {hint}")
        return losses

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
        grid = {
            "losses": sum(sizes) or 1,
            "widths": len(text.widths),
            "classes": len(text.classes or [0]),
            "seeds": seeds,
        }
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
        given = text.published
        tables: list[tuple[list[Any], PublishedText]]
        if isinstance(given, dict):
            tables = [([], PublishedText(values=given, protocol=None, source="", classes=None))] if given else []
        elif isinstance(given, PublishedText):
            tables = [(["values"], given)]
        else:
            tables = [([index, "values"], table) for index, table in enumerate(given)]
        for path, table in tables:
            if table.classes is not None and table.classes not in (text.classes or ()):
                if not whole:
                    continue
                known = ", ".join(map(str, text.classes or ())) or "none"
                problem = f"{table.classes} is not among the experiment's 'classes'; known: {known}"
                self.mistakes.note(self.fail(origin(["published", *path[:-1], "classes"]), problem))
            place = origin(["published", *path])
            values: dict[str, float] = {}
            for written, value in table.values.items():
                with self.mistakes.noting():
                    meant = self.loss(written, place)
                    if whole or any(spec.matches(meant) for spec in losses):
                        values[self.one_of(written, losses, place)] = value
            yield table.model_copy(update={"values": values})

    def plugins(self, kind: Kind, written: Plugin | Sequence[Plugin], origin: Origin) -> list[Swept]:
        """The datasets or backbones of an experiment: one, or a list of them."""
        if isinstance(written, str | NamedText):
            return self.mistakes.every(lambda item: self.axes(kind, item, origin([kind])), [written])
        return self.mistakes.every(lambda at: self.axes(kind, at[1], origin([kind, at[0]])), enumerate(written))

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

            with self.mistakes.noting():
                schedule = validate(Schedule, written, where)
                with self.mistakes.together():
                    for path, problem in problems(schedule, classes=classes, warm=length):
                        others = (["schedule", key] for name in path[:1] for key in RELATED.get(name, ()))
                        self.mistakes.note(self.fail(origin(["schedule", *path], *others), problem))
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
        whole = (index for index in itertools.count() if ("claim", index) not in self.wrong)
        entries = self.mistakes.every(self.entry, zip(whole, self.file.claim, strict=False))
        for index, claim in ((index, claim) for index, entry in entries for claim in each(entry, self.headline.name)):
            path: list[Any] = ["claim", index]
            with self.mistakes.noting():
                if claim.experiment not in by_name:
                    raise self.no_experiment([*path, "experiment"], claim.experiment, by_name)
                found = resolved(claim, by_name[claim.experiment], path, self)
                said = meaning(found, by_name[claim.experiment], self.file.margin)
                if said in stated:
                    raise self.fail(path, f"'{found.text}' repeats claim[{stated[said]}]; remove one")
                stated[said] = index
                claims.append(found)
        return tuple(claims)

    def entry(self, at: tuple[int, ClaimText]) -> tuple[int, ClaimText]:
        """A claim as the file has it, with its number; it has a text, and no list that repeats a name."""
        index, entry = at
        if not entry.text.strip():
            raise self.fail(["claim", index, "text"], "is empty; state the claim in words")
        if repeated := twice(entry):
            raise self.fail(["claim", index, repeated[0]], f"'{repeated[1]}' is listed twice")
        return at

    def check_variants(self, claims: Sequence[Claim], shown: Mapping[str, Experiment], path: Sequence[Any]) -> None:
        try:
            check_variants(claims, shown)
        except ValueError as error:
            raise self.fail(path, error) from error

    def metric(self, written: str, path: Sequence[Any]) -> MetricFile:
        try:
            found = self.known_metrics.get(written) or metrics.find(self.registry, written)
            self.registry.find("metric", found.plugin.name)  # refuses two files of that name
        except OptionError as error:
            raise self.fail([*path, error.option] if error.option else path, error) from error
        except PluginError as error:
            raise self.fail(path, error) from error
        return self.known_metrics.setdefault(found.name, found)

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
        place = self.where([*path, "metrics"])
        return replace(experiment, metrics=tuple(replace(metrics.spec_of(each), where=place) for each in asked))

    def listed_metrics(self, text: ExperimentText, origin: Origin) -> tuple[Spec, ...]:
        """The metrics of the experiment's own list."""
        found: dict[str, Spec] = {}

        def add(at: tuple[int, str]) -> None:
            index, written = at
            place = origin(["metrics", index])
            metric = self.metric(written, place)
            if text.task not in metric.tasks:
                tasks = " or ".join(metric.tasks)
                raise self.fail(place, f"'{written}' is measured in a {tasks}, and this experiment is a {text.task}")
            if metric.name in found:
                raise self.fail(place, f"'{metric.name}' is listed twice")
            found[metric.name] = metrics.spec_of(metric)

        self.mistakes.every(add, enumerate(text.metrics or ()))
        return tuple(found.values())

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
        """A plugin and the values of each of its options; a list sweeps several; `{ sweep = [...] }` always does."""
        name, written = self.named(item, path)
        swept: dict[str, list[Any]] = {}
        for option, value in written.items():
            if isinstance(value, dict) and value.keys() == {"sweep"} and isinstance(value["sweep"], list):
                swept[option] = value["sweep"]
            elif isinstance(value, list) and not self.takes(kind, name, option, value):
                swept[option] = value
        for option, listed in swept.items():
            self.check_values(listed, [*path, option])
        return Swept(
            name, {option: swept.get(option, [value]) for option, value in written.items()}, tuple(swept), path
        )

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
            wrong = self.fail([*path, error.option] if error.option else path, error)
            if error.option not in written:
                raise wrong from error
            self.mistakes.note(wrong)  # and those of the other options
            self.resolve(kind, name, {key: value for key, value in written.items() if key != error.option}, path)
            raise SuiteError from error
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
