"""What a suite names (plugins, options, metrics), looked up in the registry; errors say where it is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lossbench.core.errors import PluginError, SuiteError, nearest
from lossbench.core.format import NamedText
from lossbench.core.labels import label, parse_label
from lossbench.core.model import Experiment, Spec
from lossbench.core.values import as_json, flaw
from lossbench.plugins import metrics
from lossbench.plugins.metrics import METRICS, MetricFile
from lossbench.plugins.registry import Kind, OptionError, Registry
from lossbench.suite.mistakes import Mistakes
from lossbench.suite.overrides import Origin, where

Path = Sequence[Any]
CountClasses = Callable[[Spec], int]  # the number of classes of a dataset


@dataclass(frozen=True)
class Partial:
    """An experiment as far as it could be read; `wrong` are its keys with mistakes."""

    experiment: Experiment | None = None  # None: nothing is known about it
    wrong: frozenset[str] = frozenset()

    def having(self, *keys: str) -> Experiment | None:
        """The experiment, if there is no mistake in these keys."""
        return None if self.wrong & {*keys} else self.experiment


class Names:
    """Looks up the names in one suite file, and collects its mistakes."""

    def __init__(
        self, source: str, registry: Registry, count_classes: CountClasses, origin: Origin, mistakes: Mistakes
    ) -> None:
        self.source, self.registry, self.count_classes = source, registry, count_classes
        self.origin = origin  # of a path in the file: itself, or a key that was set
        self.mistakes = mistakes
        self.metrics: dict[str, MetricFile] = dict(METRICS)  # and those that the suite names
        self.unread: dict[str, Partial] = {}  # the experiments with mistakes
        self.unnamed = False  # whether the name of an experiment is wrong

    def where(self, path: Path) -> str:
        return where(self.source, self.origin(path))

    def fail(self, path: Path, problem: object) -> SuiteError:
        return SuiteError(f"{self.where(path)}: {problem}")

    def no_experiment(self, path: Path, name: str, known: Iterable[str]) -> SuiteError:
        """The error about a name that is unknown, unless it may be that of an experiment with mistakes."""
        if self.unnamed or name in self.unread:
            return SuiteError()
        return self.fail(path, f"no such experiment '{name}'; {nearest(name, [*known, *self.unread])}")

    def metric(self, written: str, path: Path) -> MetricFile:
        try:
            found = self.metrics.get(written) or metrics.find(self.registry, written)
            self.registry.find("metric", found.plugin.name)  # refuses two files of that name
        except OptionError as error:
            raise self.fail([*path, error.option] if error.option else path, error) from error
        except PluginError as error:
            raise self.fail(path, error) from error
        return self.metrics.setdefault(found.name, found)

    def loss(self, written: str, path: Path) -> Spec:
        return self.single("loss", written, path)

    def weightless(self, loss: str) -> bool:
        """Whether a loss declares that it has no class weights."""
        return self.registry.find("loss", loss).weightless

    def one_of(self, written: str, losses: Sequence[Spec], path: Path) -> str:
        """The label in `losses` of the loss that is written here."""
        wanted = self.loss(written, path)
        for spec in losses:
            if spec.matches(wanted):
                return spec.label
        labels = [spec.label for spec in losses]
        raise self.fail(path, f"no cell produces '{written}'; {nearest(written, labels)}")

    def single(self, kind: Kind, item: str | NamedText, path: Path) -> Spec:
        """A plugin with one value per option."""
        name, written = self.named(item, path)
        return self.resolve(kind, name, written, path)

    def named(self, item: str | NamedText, path: Path) -> tuple[str, dict[str, Any]]:
        """The name of a plugin and the options that are written with it."""
        if isinstance(item, NamedText):
            return item.name, item.options
        try:
            return parse_label(item)
        except ValueError as error:
            raise self.fail(path, error) from error

    def takes(self, kind: Kind, name: str, option: str, value: Any) -> bool:
        """Whether this is one value of that option, as a list may be."""
        try:
            self.registry.find(kind, name).options[option].parse(value)
        except (PluginError, KeyError, ValueError):
            return False
        return True

    def resolve(self, kind: Kind, name: str, written: Mapping[str, Any], path: Path) -> Spec:
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
    for key, value in shown.items():
        if not _readable(name, key, value):
            said = f"{value!r} cannot be part of a label name[option=value,…]; use a text without commas and brackets"
            raise PluginError(f"option '{key}' of {kind} '{name}': {said}")
    # For a dataset, `plan.job.with_data` replaces this by the digest of its arrays.
    source = plugin.source_hash if kind == "dataset" else plugin.identity(options)
    return Spec(name, options, label(name, shown), source)


def _readable(name: str, key: str, value: Any) -> bool:
    """Whether a label with this option can be read back: reports and claims take labels apart."""
    try:
        return list(parse_label(label(name, {key: value}))[1]) == [key]
    except ValueError:
        return False
