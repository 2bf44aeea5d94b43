"""Conformance checks: does a loss or backbone follow its contract, and do the declarations of a loss hold?

    check(plugin) → [Finding(property, status, sentence), …]      pass | fail | fact | skip

A property is tested by running the plugin, never by reading its code: with its defaults, and again for every flipped
switch (bool) and other choice (Literal). A loss may declare five things, all optional, as literals at the top level of
its file:

    MARGIN_OFF = {"alpha": 0.0}                      # the option values at which no margin is left
    MARGIN_OFF_EQUALS = "softmax[normalize=true]"    # the loss that it then equals, for the same weights
    BY_DESIGN = {"gradient": "the weights of the pairs are constants, as published"}
    RANGES = {"alpha": (0.1, 2.0), "m": [1, 2, 4]}   # what a suite may tune: a range, or a list of choices
    CLASS_WEIGHTS = "inner.proxies"                  # the class weights, unless they are `weight`; None: it has none

MARGIN_OFF enables the tests of the margin: it must change loss and gradient but not the prediction, and the loss must
be continuous and never fall as a feature turns away from its class weight. BY_DESIGN turns a failed property (one of
margin.EXCUSABLE; of one variant if written `property[option=value]`) into a fact with that explanation, and likewise an
option without a visible effect (`option NAME`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from torch import nn

from lossbench.core import apart
from lossbench.core.errors import LossbenchError, PluginError, nearest
from lossbench.core.guard import signal_name
from lossbench.core.labels import label
from lossbench.plugins.check import acting, backbone, contract, margin, numerics
from lossbench.plugins.check.finding import Finding
from lossbench.plugins.check.subject import NotApplicable, Remark, Subject, isolated
from lossbench.plugins.registry import ENTRY_POINT, KINDS, Kind, Plugin, Registry

Property = Callable[[Subject], str | None]
Trying = Callable[[str], None]  # called with each property before it is tested
Findings = Callable[[Plugin, Registry, Trying], Iterator[Finding]]
LIMIT = 120.0  # seconds per loss; a sound one takes about two

OF_THE_FILE: dict[str, Property] = {
    "docstring": contract.docstring,
    "options": contract.options,
    "ranges": contract.ranges,
}
OF_THE_LOSS: dict[str, Property] = {
    "bad labels": contract.bad_labels,
    "inputs untouched": contract.inputs_untouched,
    "prediction": contract.prediction,
    "aligned prediction": contract.aligned_prediction,
    "class weights": contract.class_weights,
    "owned memory": contract.owned_memory,
    "two classes": numerics.two_classes,
    "many classes": numerics.many_classes,
    "step memory": numerics.step_memory,
    "finite at cosine ±1": numerics.finite_along_a_weight,
    "finite at zero": numerics.finite_at_zero,
    "finite at opposite weights": numerics.finite_at_opposite_weights,
    "finite at any length": numerics.finite_at_any_length,
    "finite for one example": numerics.finite_for_one_example,
    "finite in bfloat16": numerics.finite_in_low_precision,
}
OF_ITS_VALUES: dict[str, Property] = {  # these compare values: meaningless if the same seed gives different ones
    "options act": acting.options_act,
    "gradient": numerics.gradient,
    "batch order": contract.batch_order,
    "class order": contract.class_order,
    "forward keeps state": contract.forward_keeps_state,
    "state round trip": contract.state_round_trip,
    "margin off": margin.margin_off,
    "margin acts": margin.margin_acts,
    "continuous": margin.continuous,
    "grows with the angle": margin.grows_with_the_angle,
}
OF_A_BACKBONE: dict[str, Property] = {
    "docstring": contract.docstring,
    "options": contract.option_types,
    "runs": backbone.runs,
    "last layer": backbone.last_layer,
    "deterministic": backbone.deterministic,
    "one by one": backbone.one_by_one,
}
FACTS: dict[str, Callable[[Subject], str]] = {
    "common shift": margin.shift,
    "feature length": margin.scale,
    "lower bound": margin.lower_bound,
    "own memory": margin.own_memory,
    "schedule": margin.schedule,
    "randomness": margin.randomness,
}


def check(plugin: Plugin, registry: Registry | None = None) -> list[Finding]:
    """Test every property of one loss or backbone in this process. Exceptions of the plugin become findings."""
    with isolated():
        return list(_findings(plugin, registry or Registry()))


def check_apart(
    plugin: Plugin, registry: Registry, seconds: float = LIMIT, findings: Findings | None = None
) -> list[Finding]:
    """Like `check`, in a separate process: a plugin that hangs or exits becomes a finding, too."""
    found: list[Finding] = []
    trying = "loads"
    try:
        for said in apart.messages(partial(_tell, plugin, registry, findings or _findings), seconds):
            if isinstance(said, Finding):
                found.append(said)
            else:
                trying = said
    except apart.LostError as lost:
        found.append(Finding(trying, "fail", _fate(lost, seconds)))
    return found


def _fate(lost: apart.LostError, seconds: float) -> str:
    if lost.raised:
        return f"raises {lost.raised}"
    if lost.code is None:
        return f"did not finish within {seconds:g} seconds: look for an endless loop"
    if lost.code >= 0:
        return f"ends the process with exit code {lost.code}: raise an exception instead of calling os._exit"
    name = signal_name(-lost.code)
    hint = {"SIGSEGV": " (a segmentation fault in compiled code)", "SIGKILL": " (possibly out of memory)"}
    return f"crashes the process with {name}{hint.get(name, '')}: run its calls one by one to find the cause"


def check_names(
    registry: Registry,
    targets: Sequence[str] = (),
    seconds: float = LIMIT,
    others: Mapping[Kind, Callable[[Plugin, Registry], list[Finding]]] | None = None,
) -> dict[str, list[Finding]]:
    """Findings by target: names or files of plugins; without targets, all losses that `registry` knows.

    Each plugin is tested in a separate process for at most `seconds`; `others` test the kinds that are no torch
    modules.
    """
    plugins = {target: _find(registry, target) for target in targets}
    findings = {}
    for target, plugin in plugins.items():
        if others and plugin.kind in others:
            findings[target] = others[plugin.kind](plugin, registry)
        else:
            findings[target] = check_apart(plugin, registry, seconds)
    for name in registry.names("loss") if not targets else ():
        try:
            findings[name] = check_apart(registry.find("loss", name), registry, seconds)
        except PluginError as error:  # two files of one name must not hide the other losses
            findings[name] = [Finding("loads", "fail", str(error))]
    return findings


def _find(registry: Registry, target: str) -> Plugin:
    path = Path(target)
    if path.suffix != ".py" and os.sep not in target:
        kinds: list[Kind] = [kind for kind in KINDS if target in registry.names(kind)]
        return registry.find(kinds[0] if kinds else "loss", target)
    if path.is_file():
        return _of_file(path.resolve())
    known = [str(other) for other in path.parent.glob("*.py")] if path.parent.is_dir() else registry.names("loss")
    raise PluginError(f"{target}: no such file; {nearest(target, known)}")


def _of_file(path: Path) -> Plugin:
    """The plugin in a file, by the entry point that it defines; a loss if there is none."""
    plugins = [Plugin(kind, path.stem, path) for kind in KINDS]
    try:
        return next((plugin for plugin in plugins if plugin.defined), plugins[0])
    except PluginError:  # not valid Python: `loads` says so
        return plugins[0]


def _tell(plugin: Plugin, registry: Registry, findings: Findings, say: Callable[[str | Finding], None]) -> None:
    with isolated():
        for finding in findings(plugin, registry, say):
            say(finding)


def _findings(plugin: Plugin, registry: Registry, trying: Trying = lambda name: None) -> Iterator[Finding]:
    def judge(name: str, test: Property, variants: Sequence[Subject]) -> Finding:
        trying(name)
        return _judged(name, test, variants)

    subject = Subject(plugin, registry)
    loads = judge("loads", _loads, [subject])
    yield loads
    if loads.status == "fail":
        return
    for name, test in (OF_A_BACKBONE if plugin.kind == "backbone" else OF_THE_FILE).items():
        yield judge(name, test, [subject])
    if plugin.kind == "backbone":
        return
    declared = judge("declarations", margin.declarations, [subject])
    yield declared
    subject = replace(subject, believed=declared.status == "pass")
    variants = [subject, *(variant for variant in list(subject.variants())[1:] if _accepted(variant))]
    runs = judge("runs", contract.runs, variants)
    yield runs
    if runs.status == "fail":
        return
    for name, test in OF_THE_LOSS.items():
        yield judge(name, test, variants)
    same = judge("deterministic", contract.deterministic, variants)
    yield same
    for name, test in OF_ITS_VALUES.items():
        if same.status == "fail":
            yield Finding(name, "skip", "not tested: the same seed gives different values")
        else:
            yield judge(name, test, variants)
    for name, fact in FACTS.items():
        trying(name)
        yield _stated(name, fact, subject)


def _stated(name: str, fact: Callable[[Subject], str], subject: Subject) -> Finding:
    try:
        return Finding(name, "fact", fact(subject))
    except NotApplicable as reason:
        return Finding(name, "skip", str(reason))
    except (Exception, SystemExit) as error:
        return Finding(name, "skip", f"could not be determined: {raised(error)}")


def _judged(name: str, test: Property, variants: Sequence[Subject]) -> Finding:
    """One property over all variants: the first failure that is not by design decides."""
    explained: list[str] = []
    for variant in variants:
        try:
            fault = test(variant)
        except NotApplicable as reason:
            return Finding(name, "skip", str(reason))
        except Remark as remark:
            explained.append(str(remark))
            continue
        except (Exception, SystemExit) as error:
            fault = raised(error)
        if fault is None:
            continue
        excuse = _excuse(variant, name)
        chosen = f"with {label('', variant.options)[1:-1]}: " if variant.options else ""
        if excuse is None:
            return Finding(name, "fail", f"{chosen}{fault}")
        explained.append(f"{chosen}{fault}; by design: {excuse}")
    if explained:
        return Finding(name, "fact", " | ".join(dict.fromkeys(explained)))
    return Finding(name, "pass", (test.__doc__ or name).partition("\n")[0])


def _excuse(subject: Subject, name: str) -> str | None:
    """The plugin's explanation, if it declares this deviation as intended and may do so."""
    declared = (subject.declared("BY_DESIGN") or {}) if name in margin.EXCUSABLE else {}
    explanation: str | None = declared.get(label(name, subject.options), declared.get(name))
    return explanation


def raised(error: BaseException) -> str:
    if isinstance(error, LossbenchError):
        return str(error)
    text = str(error).strip()
    return f"raises {type(error).__name__}" + (f": {text.splitlines()[0]}" if text else "")


def _loads(subject: Subject) -> str | None:
    """The file is valid Python and defines its torch module."""
    _ = subject.plugin.options
    entry, name = subject.plugin.load(), ENTRY_POINT[subject.plugin.kind]
    return None if isinstance(entry, type) and issubclass(entry, nn.Module) else f"{name} is not a torch.nn.Module"


def _accepted(variant: Subject) -> bool:
    """False if the constructor refuses this combination of options, as it may."""
    try:
        variant.build()
    except ValueError:
        return False
    except (Exception, SystemExit):
        return True  # `runs` will say what is wrong
    return True
