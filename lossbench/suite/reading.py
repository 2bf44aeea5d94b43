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
from lossbench.core.format import Protocol
from lossbench.core.model import Budget, Experiment, Spec, Suite, SuiteInfo
from lossbench.core.values import flaws
from lossbench.plugins.registry import Registry
from lossbench.suite.claims import cases, check_variants, read_claims, relabelled
from lossbench.suite.experiment import read_experiment
from lossbench.suite.explain import FormatError, validate
from lossbench.suite.format import MOST_CELLS, ClaimText, Profile, SuiteFile, Tune
from lossbench.suite.metrics import check_headline, default_headline, measuring
from lossbench.suite.mistakes import Mistakes, paths
from lossbench.suite.names import CountClasses, Names
from lossbench.suite.overrides import SET, Overrides, layered, where
from lossbench.suite.settings import SUFFIX, tuned
from lossbench.suite.tuning import with_trials

NO_PROFILE = "none"  # `--profile none`: the suite without a profile, even if it has `auto`
NO_OVERRIDES = Overrides()
Overlays = Sequence[tuple[list[Any], Profile]]  # profiles, each with its path
Parts = frozenset[tuple[Any, ...]]  # paths of parts of a suite file


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
    file, names, mistakes = reader.file, reader.names, reader.names.mistakes
    with mistakes.together():
        reader.check_auto()
        grids = dict(mistakes.every(lambda name: (name, reader.grid(name)), (None, *file.profile)))
        whole = _claimable(grids[None][0])
        claims = read_claims(reader.claims(), whole, reader.headline, file.margin, names)
        if reader.baseline is None:
            raise SuiteError
    overridden = to_run(profile, file.auto) if overrides.written else ()
    suites: dict[str | None, Suite] = {}
    for name, written in grids.items():
        given = overrides if name in overridden else NO_OVERRIDES
        grid, tuning = reader.grid(name, given.profile) if given.written else written
        shown = _claimable(grid)
        with mistakes.noting():
            check_variants(claims, shown, [SET] if given.written else ["profile", name], names)
        scale = " ".join([*([f"profile {name}"] if name else []), *(f"{SET} {text}" for text in given.written)])
        restated = (_restated(each, whole.get(each.name, each), scale) for each in grid)
        experiments = tuple(
            mistakes.every(partial(measuring, headline=reader.headline, claims=claims, names=names), restated)
        )
        info = SuiteInfo(
            name=file.name,
            title=file.title or file.name,
            baseline=reader.baseline.label,
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
        self.baseline: Spec | None = None
        with names.mistakes.noting():
            self.baseline = None if ("baseline",) in wrong else names.loss(file.baseline, ["baseline"])
        self.headline = default_headline(file)
        with names.mistakes.noting():
            if file.headline is not None:
                self.headline = names.metric(file.headline, ["headline"])
            check_headline(self.headline, file, names, margin_unknown=("margin",) in wrong)

    def check_auto(self) -> None:
        """`auto` lists existing profiles, each once; no profile is called "none"."""
        if NO_PROFILE in self.file.profile:
            problem = f"this name is reserved: `--profile {NO_PROFILE}` runs the suite without a profile; rename it"
            self.names.mistakes.note(self.names.fail(["profile", NO_PROFILE], problem))
            return  # `auto` may mean it by another name
        names = self.file.auto or []
        known = [*self.file.profile, *(part[1] for part in self.wrong if part[0] == "profile" and part[1:])]
        for index, name in enumerate(names) if ("profile",) not in self.wrong else ():
            with self.names.mistakes.noting():
                if name not in known:
                    raise self.names.fail(["auto", index], f"no such profile '{name}'; {nearest(name, known)}")
                if name in names[:index]:
                    raise self.names.fail(["auto", index], f"'{name}' is listed twice")

    def claims(self) -> Iterator[tuple[int, ClaimText]]:
        """The claims as written, with their numbers in the file."""
        numbers = (index for index in itertools.count() if ("claim", index) not in self.wrong)
        return zip(numbers, self.file.claim, strict=False)

    def grid(self, name: str | None, given: Profile | None = None) -> tuple[tuple[Experiment, ...], Budget | None]:
        """The experiments of one profile with their trials, and the budget for the report; `given`: keys that were set.

        Each layer overrides those before it.
        """
        layers = [(["profile", name], self.file.profile[name])] if name else []
        layers += [([SET], given)] if given else []
        experiments = self.experiments(layers)
        with self.names.mistakes.noting():
            return self.tuning(experiments, layers)
        self.names.unread.update(name + SUFFIX for name in self.experiment_names if not layers)
        return experiments, None

    def experiments(self, overlays: Overlays) -> tuple[Experiment, ...]:
        """Every experiment with these overlays."""
        names = self.experiment_names
        skip: tuple[list[Any], list[str]] = ([], [])
        for place, overlay in overlays:
            if "skip" in overlay.model_fields_set:
                skip = [*place, "skip"], overlay.skip
            named: list[tuple[list[Any], str]] = [(["experiment", name], name) for name in overlay.experiment]
            for path, name in [*named, *((["skip", index], name) for index, name in enumerate(overlay.skip))]:
                if name not in names:
                    self.names.mistakes.note(self.names.no_experiment([*place, *path], name, names))
        found: list[Experiment] = []
        for index, (name, raw) in enumerate(zip(names, self.file.experiment, strict=True)):
            if name in skip[1]:
                continue
            here = ["experiment", name if isinstance(raw.get("name"), str) else index]
            layers: list[tuple[list[Any], Mapping[str, Any]]] = [(["defaults"], self.file.defaults), (here, raw)]
            for place, overlay in overlays:
                layers.append(([SET] if place == [SET] else [*place, "all"], overlay.all))
                layers.append(([*place, "experiment", name], overlay.experiment.get(name, {})))
            inherited = not overlays or name not in self.names.unread  # mistakes below the overlays are noted already
            with self.names.mistakes.noting(None if inherited else [self.names.where(place) for place, _ in overlays]):
                found.append(read_experiment(layers, here, self.names, baseline=self.baseline, whole=not overlays))
                if found[-1].name in [experiment.name for experiment in found[:-1]]:
                    raise self.names.fail(here, f"two experiments are named '{found[-1].name}'; rename one")
                if (total := sum(each.size for each in found)) > MOST_CELLS:
                    raise self.names.fail(here, f"brings the suite to {total:,} cells; the limit is {MOST_CELLS:,}")
        if not overlays:
            self.names.unread.update(
                name + end for name in {*names} - {each.name for each in found} for end in ("", SUFFIX)
            )
        if set(names) <= set(skip[1]):
            raise self.names.fail(skip[0], "skips every experiment")
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
            raise self.names.fail(tables[0][0], "the suite has no [tune] table to override")
        written = self.file.tune.model_dump(exclude_unset=True) if self.file.tune else {}
        merged, origin = layered([(["tune"], written), *tables], tables[-1][0] if tables else ["tune"])
        tune = validate(Tune, merged, lambda path: self.names.where(origin(path)))
        known = [str(raw["name"]) for raw in self.file.experiment if "name" in raw]
        whole = not overlays and not self.names.unread
        return with_trials(experiments, tune, self.names, known=known, origin=origin, whole=whole)


def _claimable(experiments: Sequence[Experiment]) -> dict[str, Experiment]:
    """The experiments that a claim may name: those of the suite and their tuned counterparts."""
    counterparts = [tuned(experiment) for experiment in experiments if experiment.trials]
    return {experiment.name: experiment for experiment in (*experiments, *counterparts)}
