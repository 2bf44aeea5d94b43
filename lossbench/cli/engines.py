"""The options of `lossbench run` that choose where cells run."""

from __future__ import annotations

from typing import Any

import click

from lossbench.engines import ENGINES

OPTIONS = (
    click.option(
        "--engine",
        type=click.Choice(list(ENGINES)),
        default="local",
        show_default=True,
        help="Run cells on this machine, or on a Ray cluster.",
    ),
    click.option("--address", metavar="HOST:PORT", help="The Ray cluster [$RAY_ADDRESS, else a new local one]."),
    click.option(
        "--cpus-per-cell",
        type=click.FloatRange(min=0, min_open=True),
        metavar="N",
        help="CPUs that Ray reserves per cell [its threads].",
    ),
    click.option(
        "--gpus-per-cell",
        type=click.FloatRange(min=0),
        metavar="N",
        help="GPUs that Ray reserves per cell, such as 0.5 [0].",
    ),
)


def engine_options(command: Any) -> Any:
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def engine_of(options: dict[str, Any]) -> dict[str, Any]:
    """The engine parameters of `api.run`, taken out of the options of a command."""
    special = dict.fromkeys(name for entry in ENGINES.values() for name in entry.options)
    chosen = {name: options.pop(name) for name in ("engine", *special)}
    for name in special:
        if chosen[name] is not None and name not in ENGINES[chosen["engine"]].options:
            those = " or ".join(engine for engine, entry in ENGINES.items() if name in entry.options)
            raise click.UsageError(f"--{name.replace('_', '-')} needs --engine {those}.")
    return {name: value for name, value in chosen.items() if value is not None}
