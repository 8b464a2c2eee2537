"""Models on streams behind HTTP and WebSocket with Ray Serve, and as repositories of NVIDIA Triton.

``python -m penstock.serve MODEL`` starts Ray Serve; ``python -m penstock.serve MODEL --triton FOLDER`` writes a
repository. ``penstock.serve:build`` is the application for the configuration files of Ray Serve.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray.serve import Application

__all__ = ["Options", "build"]


def _option(default: Any, text: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class Options:
    """Arguments of the application, in Python, on the command line and in configuration files of Ray Serve."""

    model: str = _option("", "file of the model")
    capacity: int = _option(1000, "streams that a replica has in its pool, and connections that it accepts")
    target: float = _option(0, "streams of a replica that autoscaling aims at; 0: 0.7 of --capacity")
    min_replicas: int = _option(1, "replicas at least")
    max_replicas: int = _option(1, "replicas at most")
    window: int = _option(16, "answers of a stream that may be unacknowledged, and steps that may wait")
    threads: int = _option(1, "threads, and CPUs, of a replica")
    idle_s: float = _option(300.0, "seconds without a message after which a connection is closed")
    keep_s: float = _option(3600.0, "seconds without a step after which a stream is forgotten")
    streams: int = _option(100_000, "streams whose states are kept")
    stores: int = _option(1, "processes that keep these states")


def build(arguments: dict[str, Any]) -> Application:
    """Returns the application of Ray Serve.

    Args:
        arguments: The fields of :class:`Options`; ``model`` is required.

    Raises:
        InvalidArgument: An argument is unknown, missing or impossible.
        ModuleNotFoundError: Ray Serve is not installed.
    """
    from penstock.errors import InvalidArgument

    try:
        options = Options(**arguments)
    except TypeError as error:
        known = ", ".join(each.name for each in dataclasses.fields(Options))
        raise InvalidArgument(f"unknown argument of the application ({error}); it has {known}") from None
    for name, value in dataclasses.asdict(options).items():
        least = 0 if name == "target" else 1
        if name != "model" and not value >= least:
            raise InvalidArgument(f"{name} must be at least {least}, not {value}")
    if not options.model or options.max_replicas < options.min_replicas:
        raise InvalidArgument(
            f"model must be the file of a model, not '{options.model}'"
            if not options.model
            else f"max_replicas must be at least min_replicas, {options.min_replicas}, not {options.max_replicas}"
        )
    try:
        from ._ray import application
    except ModuleNotFoundError as error:
        text = f"penstock.serve needs Ray Serve ({error}): pip install 'ray[serve]'"
        raise ModuleNotFoundError(text, name=error.name) from error
    return application(options)
