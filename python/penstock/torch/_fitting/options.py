"""The options of a run. Names, defaults, ranges and messages are those of penstock.train, which the library declares."""

from __future__ import annotations

import json
import os
import tempfile
import types

from ... import _core
from ...errors import InvalidArgument, IoFailure, Unsupported
from . import optimizers, rates

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ...datasets import Dataset
    from ...models import Model

#: Settings of a text that the library chooses and does not tell; tests/python compares them with the program's help.
_OF_A_TEXT = {"seconds": 60.0, "validate_every": 30.0}
_LIMITS = ("steps", "seconds", "epochs")
#: Settings that no caller of penstock.train can change.
_FIXED = {"give_up_after": 10, "validation_batches": 32}
#: Arguments of penstock.train that other values than these are refused for, and what to use.
_ELSEWHERE = {
    "seeds": (1, "train each seed by itself, or an ensemble with penstock.train"),
    "exact": (False, "penstock.train has it"),
    "tensorboard": (None, "metrics= writes the measurements; penstock.train writes events for TensorBoard"),
}
#: Names of the probe's request, which are arguments of penstock.train.
_PROBED = (*_LIMITS, "batch", "length", "learning_rate", "weight_decay", "warmup", "clip", "rollbacks", "carry_state",
           "loss", "validate_every", "validate_steps", "patience", "keep_best", "log_every", "checkpoint_every",
           "seed", "threads")  # fmt: skip
_FEW = 4  # rows and steps of the probe's batch


class _Enough(Exception):
    """Ends the probe."""


def resolve(model: Model, data: Dataset, said: Mapping[str, Any], device: str) -> types.SimpleNamespace:
    """Returns all options of a run. ``said`` has the arguments of penstock.torch.fit; None: the default for the data.

    Raises:
        InvalidArgument: An option is impossible, or options contradict each other.
        Unsupported: An option is penstock.train's alone.
    """
    for name, (only, remedy) in _ELSEWHERE.items():
        if said[name] != only:
            raise Unsupported(f"penstock.torch.fit has no {name}={said[name]!r}: {remedy}")
    _check_names(said)
    options = {**_FIXED, **said, **_probe(model, data, said, device)}
    limited = any(said[name] is not None for name in _LIMITS)
    for name in _LIMITS:
        options[name] = said[name] or 0
    if not limited:
        options["seconds"] = _OF_A_TEXT["seconds"]
    if options["validate_every"] is None:
        options["validate_every"] = _OF_A_TEXT["validate_every"]
    if options["keep_best"] is None:
        options["keep_best"] = data.held_out_steps > 0
    options["precision"] = _precision(said["precision"], device)
    return types.SimpleNamespace(**options)


def _check_names(said):
    for name, known in (("optimizer", optimizers.NAMES), ("schedule", rates.SCHEDULES)):
        if said[name] not in known:
            raise InvalidArgument(f"{name} must be one of {', '.join(known)}, not {said[name]!r}")
    for name in ("accumulate", "checkpoints"):
        if not isinstance(said[name], int) or said[name] < 1:
            raise InvalidArgument(f"{name} must be a whole number of at least 1, not {said[name]!r}")
    if not 0.0 <= said["average"] < 1.0:
        raise InvalidArgument(f"average must be at least 0 and below 1, not {said['average']}")
    if not said["rank_timeout"] >= 1.0:
        raise InvalidArgument(f"rank_timeout must be at least 1 (seconds), not {said['rank_timeout']}")
    if said["resume"] and said["checkpoint"] is None:
        raise InvalidArgument("resume needs checkpoint: the folder to continue from")
    if said["optimizer"] == "muon" and said["sharding"] == "fsdp":
        raise InvalidArgument(
            "optimizer='muon' needs whole matrices on each rank: take sharding='ddp', or another optimizer"
        )
    if said["schedule"] == "plateau" and said["validate_steps"] == 0:
        raise InvalidArgument("schedule='plateau' goes by validations by steps: validate_steps must be above 0")


def _precision(said, device):
    if said is None:
        import torch

        return "bf16" if device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False) else "full"
    if said not in ("f32", "full", "bf16"):
        raise Unsupported(
            f"penstock.torch.fit has no precision={said!r}: 'full' and 'bf16' are, others are penstock.train's"
        )
    return "full" if said == "f32" else said


def _request(data, said):
    """Returns what the probe asks of the library: the caller's options, in a batch of few rows."""
    request = {name: said[name] for name in _PROBED if said[name] is not None}
    for name in ("batch", "length"):
        if isinstance(request.get(name), int):
            request[name] = min(request[name], _FEW)
    if request.get("patience") == 0 and "validate_steps" not in request and data.held_out_steps > 0:
        request["patience"] = 1  # with which the library tells validate_steps
    return request | {"optimizer": "sgd" if said["optimizer"] == "sgd" else "adamw", "filters": False}


def _probe(model, data, said, device):
    """Returns what the library chooses for these data, and has it check all options: the first step of a tiny model."""
    tiny = {"cell": "mingru", "width": 1, "blocks": 1, "hidden_size": 0, "convolution": 0, "feed_forward": 0.0}
    spec = _core.suggest_spec(data._dataset, "", "cpu") | tiny
    probe = _core.Model.make(spec, data._dataset, 0)
    place = "cuda:0" if device == "cuda" else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "metrics.jsonl")
        request = _request(data, said) | {"metrics": metrics, "device": place, "continues": model._continues}
        try:
            _core.fit(probe, data._dataset, request, _stop, None)
        except _Enough:
            pass
        found = _read(metrics)
    found.setdefault("patience", 0)
    found.setdefault("validate_steps", said["validate_steps"] or 0)
    given = {name: said[name] for name in ("batch", "length", "patience", "validate_steps", "rollbacks", "optimizer")}
    return found | {name: value for name, value in given.items() if value is not None}


def _read(path):
    try:
        with open(path) as file:
            return json.loads(file.readline())["options"]
    except (OSError, ValueError) as error:
        raise IoFailure(f"no room for a small file in {tempfile.gettempdir()}: make some, or set TMPDIR") from error


def _stop(fields):
    raise _Enough
