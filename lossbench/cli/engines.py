"""The options of `lossbench run` that choose where cells run."""

from __future__ import annotations

from typing import Any

import click

ONLY_RAY = ("address", "cpus_per_cell", "gpus_per_cell")

OPTIONS = (
    click.option(
        "--engine",
        type=click.Choice(["local", "ray"]),
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
    chosen = {name: options.pop(name) for name in ("engine", *ONLY_RAY)}
    if chosen["engine"] != "ray":
        for name in ONLY_RAY:
            if chosen[name] is not None:
                raise click.UsageError(f"--{name.replace('_', '-')} needs --engine ray.")
    return {name: value for name, value in chosen.items() if value is not None}
