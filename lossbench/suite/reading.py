"""TOML → Suite: every unknown key, name or option is an error here, before anything trains."""

from __future__ import annotations

import itertools
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from lossbench.core import values
from lossbench.core.errors import SuiteError, closest, nearest
from lossbench.core.format import Protocol, Text
from lossbench.core.model import Budget, Experiment, Spec, Suite, SuiteInfo
from lossbench.core.values import flaws
from lossbench.plugins.metrics import MetricFile
from lossbench.plugins.registry import Registry
from lossbench.suite.claim_checks import read_claims
from lossbench.suite.claims import cases, check_variants, relabelled
from lossbench.suite.experiment import read_experiment
from lossbench.suite.explain import FormatError, validate
from lossbench.suite.format import MOST_CELLS, ClaimText, Profile, SuiteFile, Tune
from lossbench.suite.metrics import check_metric, measuring, read_headline
from lossbench.suite.mistakes import Mistakes, paths
from lossbench.suite.names import CountClasses, Names, Partial
from lossbench.suite.overrides import SET, Overrides, layered, where
from lossbench.suite.settings import SUFFIX, tuned
from lossbench.suite.tuning import with_trials

NO_PROFILE = "none"  # `--profile none`: the suite without a profile, even if it has `auto`
NO_OVERRIDES = Overrides()
Overlays = Sequence[tuple[list[Any], Profile]]  # profiles, each with its path
Parts = frozenset[tuple[Any, ...]]  # paths of parts of a suite file
DEPTH = {"tune": 2, "claim": 3, "profile": 3}  # of the keys that can be left out without the others
# In place of keys that are wrong or missing, so that the others can be checked.
CLAIM_STAND_IN = {"text": "x", "experiment": "x"}
TUNE_STAND_IN = {"trials": 2}


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
        reader = _Reader(file, Names(source, registry, count_classes, origin, mistakes), parts)
        suites = _suites(reader, text, profile, overrides, argument or source, plugins)
    mistakes.check(lambda: [where(source, path) for path in paths(raw)])
    return suites


def _file(raw: Mapping[str, Any], where: Callable[[Sequence[Any]], str], mistakes: Mistakes) -> tuple[SuiteFile, Parts]:
    """The suite file without the keys that are wrong, and these; raises if the experiments may be among them."""
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
        wrong = frozenset(place[: DEPTH.get(place[0], 1)] for place in error.places)
        good: dict[str, Any] = {"name": "x", **_without(raw, wrong)}
        good["claim"] = [{**CLAIM_STAND_IN, **entry} for entry in good.get("claim", ())]
        good["tune"] = {**TUNE_STAND_IN, **good["tune"]} if "tune" in good else None
        return SuiteFile.model_validate(good), wrong


def _without(table: Any, wrong: Parts, path: tuple[Any, ...] = ()) -> Any:
    """A table without the keys at these paths."""
    if isinstance(table, Mapping):
        inside = ((key, (*path, key)) for key in table)
        return {key: _without(table[key], wrong, place) for key, place in inside if place not in wrong}
    if isinstance(table, list):
        inside = ((item, (*path, index)) for index, item in enumerate(table))
        return [_without(item, wrong, place) for item, place in inside if place not in wrong]
    return table


def _suites(
    reader: _Reader,
    text: str,
    profile: str | None,
    overrides: Overrides,
    argument: str,
    plugins: Sequence[str],
) -> dict[str | None, Suite]:
    file, names, mistakes = reader.file, reader.names, reader.names.mistakes
    with mistakes.together():
        reader.check_profiles()
        grids = dict(mistakes.every(lambda name: (name, reader.grid(name)), (None, *file.profile)))
        whole = _claimable(grids[None][0])
        claims = read_claims(reader.claims(), whole, reader.headline, file.margin, names)
        baseline, headline = reader.baseline, reader.headline
        for each in grids[None][0] if headline else ():
            mistakes.attempt(check_metric, headline, each, ["headline"], names)
        if baseline is None or headline is None:
            raise SuiteError
    overridden = to_run(profile, file.auto) if overrides.written else ()
    suites: dict[str | None, Suite] = {}
    for name, written in grids.items():
        given = overrides if name in overridden else NO_OVERRIDES
        grid, tuning = reader.grid(name, given.profile) if given.written else written
        shown = _claimable(grid)
        beneath = _claimable(written[0] if given.written else grids[file.profile[name].base if name else None][0])
        own = {at: e for at, e in shown.items() if at not in beneath or e.losses != beneath[at].losses}
        check_variants(claims, own, [SET] if given.written else ["profile", name], names)
        scale = " ".join([*([f"profile {name}"] if name else []), *(f"{SET} {text}" for text in given.written)])
        restated = (_restated(each, whole.get(each.name, each), scale) for each in grid)
        experiments = tuple(mistakes.every(partial(measuring, headline=headline, claims=claims, names=names), restated))
        info = SuiteInfo(
            name=file.name,
            title=file.title or file.name,
            baseline=baseline.label,
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
            note=given.profile.note or reader.note(name),
            overrides=given.written,
            headline=headline.name,
            metrics=tuple(metric.plain for metric in names.metrics.values()),
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
    """The experiments of one suite file, at any of its profiles."""

    def __init__(self, file: SuiteFile, names: Names, wrong: Parts) -> None:
        self.file, self.names = file, names
        self.wrong = wrong  # parts that are not in `file`
        self.experiment_names = [str(raw.get("name", index)) for index, raw in enumerate(file.experiment)]
        self.untuned = False  # whether [tune] has mistakes
        self.baseline: Spec | None = None
        with names.mistakes.noting():
            self.baseline = None if ("baseline",) in wrong else names.loss(file.baseline, ["baseline"])
        self.headline: MetricFile | None = None
        if ("headline",) not in wrong:
            with names.mistakes.noting():
                self.headline = read_headline(file, names, margin_known=("margin",) not in wrong)

    def check_profiles(self) -> None:
        """`base` and `auto` name existing profiles, no profile is its own base, and none is called "none"."""
        if NO_PROFILE in self.file.profile:
            problem = f"this name is reserved: `--profile {NO_PROFILE}` runs the suite without a profile; rename it"
            self.names.mistakes.note(self.names.fail(["profile", NO_PROFILE], problem))
            return  # others may mean it by another name
        names = self.file.auto or []
        known = [*self.file.profile, *(part[1] for part in self.wrong if part[0] == "profile" and part[1:])]
        named: list[tuple[list[Any], str]] = [(["auto", index], name) for index, name in enumerate(names)]
        named += [
            (["profile", name, "base"], each.base) for name, each in self.file.profile.items() if each.base is not None
        ]
        for place, name in named if ("profile",) not in self.wrong else ():
            with self.names.mistakes.noting():
                if name not in known:
                    raise self.names.fail(place, f"no such profile '{name}'; {nearest(name, known)}")
                if place[0] == "auto" and name in names[: place[1]]:
                    raise self.names.fail(place, f"'{name}' is listed twice")
                if place[0] == "profile" and ["profile", place[1]] in [path for path, _ in self.layers(name)]:
                    raise self.names.fail(place, f"leads back to profile '{place[1]}'; leave it out")

    def layers(self, name: str | None) -> list[tuple[list[Any], Profile]]:
        """A profile after those that it is laid over, each with its path."""
        found: dict[str, Profile] = {}
        while name in self.file.profile and name not in found:
            found[name] = self.file.profile[name]
            name = found[name].base
        return [(["profile", each], profile) for each, profile in reversed(found.items())]

    def note(self, name: str | None) -> str:
        """The note of a profile, else of those that it is laid over, else of the suite."""
        return next((layer.note for _, layer in reversed(self.layers(name)) if layer.note), self.file.note)

    def claims(self) -> Iterator[tuple[int, ClaimText, set[str]]]:
        """The claims with their numbers in the file, and the keys that are not in them because they are wrong."""
        numbers = (index for index in itertools.count() if ("claim", index) not in self.wrong)
        for index, entry in zip(numbers, self.file.claim, strict=False):
            yield index, entry, self.wrong_in(ClaimText, "claim", index)

    def wrong_in(self, model: type[Text], *path: Any) -> set[str]:
        """The keys of a table in the file that are wrong, and those that an unknown one may be meant as."""
        found = {str(part[-1]) for part in self.wrong if part[:-1] == path}
        return found | {meant for key in found if (meant := closest(key, model.model_fields))}

    def grid(self, name: str | None, given: Profile | None = None) -> tuple[tuple[Experiment, ...], Budget | None]:
        """The experiments of one profile with their trials, and the budget for the report; `given`: keys that were set.

        Each layer overrides those before it.
        """
        layers = self.layers(name) + ([([SET], given)] if given else [])
        experiments = self.experiments(layers)
        with self.names.mistakes.noting(self.places(layers) if self.untuned else None):
            return self.tuning(experiments, layers)
        if not layers:
            self.untuned = True
            for each in experiments:
                self.names.unread[each.name + SUFFIX] = Partial(tuned(each), frozenset({"tune"}))
        return experiments, None

    def places(self, overlays: Overlays) -> list[str]:
        """Where the mistakes of overlays are; what is wrong without them is noted already."""
        return [self.names.where(place) for place, _ in overlays]

    def experiments(self, overlays: Overlays) -> tuple[Experiment, ...]:
        """Every experiment with these overlays."""
        names = self.experiment_names
        skip = self.skipped(overlays)
        found: list[Experiment] = []
        taken: set[str] = set()
        for index, (name, raw) in enumerate(zip(names, self.file.experiment, strict=True)):
            if name in skip:
                continue
            here = ["experiment", name if isinstance(raw.get("name"), str) else index]
            layers: list[tuple[list[Any], Mapping[str, Any]]] = [(["defaults"], self.file.defaults), (here, raw)]
            for place, overlay in overlays:
                layers.append(([SET] if place == [SET] else [*place, "all"], overlay.all))
                layers.append(([*place, "experiment", name], overlay.experiment.get(name, {})))
            noted = overlays and name in self.names.unread
            with self.names.mistakes.noting(self.places(overlays) if noted else None):
                read = read_experiment(layers, here, self.names, baseline=self.baseline, whole=not overlays)
                if (named := read.having("name")) and named.name in taken:
                    raise self.names.fail(here, f"two experiments are named '{named.name}'; rename one")
                taken |= {named.name} if named else set()
                if read.wrong or read.experiment is None:
                    if not overlays:
                        counterpart = read.experiment and tuned(read.experiment)
                        self.names.unread |= {name: read, name + SUFFIX: Partial(counterpart, read.wrong)}
                    continue
                found.append(read.experiment)
                if (total := sum(each.size for each in found)) > MOST_CELLS:
                    raise self.names.fail(here, f"brings the suite to {total:,} cells; the limit is {MOST_CELLS:,}")
        return tuple(found)

    def skipped(self, overlays: Overlays) -> list[str]:
        """The experiments that these overlays leave out; all experiments that they name exist."""
        names = self.experiment_names
        skip: tuple[list[Any], list[str]] = ([], [])
        for place, overlay in overlays:
            if "skip" in overlay.model_fields_set:
                skip = [*place, "skip"], overlay.skip
            named: list[tuple[list[Any], str]] = [(["experiment", name], name) for name in overlay.experiment]
            for path, name in [*named, *((["skip", index], name) for index, name in enumerate(overlay.skip))]:
                if name not in names:
                    self.names.mistakes.note(self.names.no_experiment([*place, *path], name, names))
        if set(names) <= set(skip[1]):
            self.names.mistakes.note(self.names.fail(skip[0], "skips every experiment"))
        return skip[1]

    def tuning(
        self, experiments: tuple[Experiment, ...], overlays: Overlays
    ) -> tuple[tuple[Experiment, ...], Budget | None]:
        """The experiments with the trials of [tune], and the budget for the report."""
        if ("tune",) in self.wrong:  # it is no table
            raise SuiteError
        tables = [([*place, "tune"], overlay.tune) for place, overlay in overlays if overlay.tune]
        if self.file.tune is None and not tables:
            return experiments, None
        if self.file.tune is None and tables[0][0] != [SET, "tune"]:
            raise self.names.fail(tables[0][0], "the suite has no [tune] table to override")
        written = self.file.tune.model_dump(exclude_unset=True) if self.file.tune else {}
        merged, origin = layered([(["tune"], written), *tables], tables[-1][0] if tables else ["tune"])
        wrong = self.wrong_in(Tune, "tune")
        known = [str(raw["name"]) for raw in self.file.experiment if "name" in raw]
        whole = not overlays and not self.names.unread
        with self.names.mistakes.together():
            try:
                tune = validate(Tune, merged, lambda path: self.names.where(origin(path)))
            except FormatError as error:
                self.names.mistakes.note(error)
                wrong |= error.keys(Tune.model_fields, merged)
                good = {key: value for key, value in merged.items() if key not in wrong}
                tune = Tune.model_validate({**TUNE_STAND_IN, **good})
            found = with_trials(experiments, tune, self.names, known=known, origin=origin, whole=whole, wrong=wrong)
        if wrong:
            raise SuiteError
        return found


def _claimable(experiments: Sequence[Experiment]) -> dict[str, Experiment]:
    """The experiments that a claim may name: those of the suite and their tuned counterparts."""
    counterparts = [tuned(experiment) for experiment in experiments if experiment.trials]
    return {experiment.name: experiment for experiment in (*experiments, *counterparts)}
