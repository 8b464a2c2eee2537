"""The options of a run. Names, defaults, ranges and messages are those of penstock.train, which the library declares."""

from __future__ import annotations

import inspect
import types

from ... import _core
from ...errors import InvalidArgument, Unsupported
from ...training import train

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ...datasets import Dataset
    from ...models import Model

#: Arguments of penstock.train that are not for the library.
_OWN = ("checkpoint", "resume", "metrics", "device", "precision", "callback", "progress", "model", "data")
#: Arguments that the library completes.
_COMPLETED = ("steps", "seconds", "epochs", "batch", "length", "learning_rate", "weight_decay", "warmup", "clip", "average",
              "rollbacks", "carry_state", "loss", "optimizer", "schedule", "validate_every", "validate_steps", "patience",
              "keep_best", "log_every", "checkpoint_every", "seed", "threads", "filters")  # fmt: skip
#: What to use instead of others, which are refused.
_REMEDIES = {"seeds": "train each seed by itself, or an ensemble with penstock.train",
             "tensorboard": "metrics= writes the measurements; penstock.train writes events for TensorBoard"}  # fmt: skip


def resolve(model: Model, data: Dataset, said: Mapping[str, Any], device: str) -> types.SimpleNamespace:
    """Returns all options of a run. ``said`` has the arguments of penstock.torch.fit; None: the default for the data.

    Raises:
        InvalidArgument: An option is impossible, or options contradict each other.
        Unsupported: An option is penstock.train's alone.
    """
    for name, parameter in inspect.signature(train).parameters.items():
        if name not in _OWN + _COMPLETED and said[name] != parameter.default:
            remedy = _REMEDIES.get(name, "penstock.train has it")
            raise Unsupported(f"penstock.torch.fit has no {name}={said[name]!r}: {remedy}")
    _check_names(said)
    request = {name: said[name] for name in _COMPLETED if said[name] is not None}
    request |= {"continues": model._continues}
    request["device"] = "cuda:0" if device == "cuda" else "cpu"
    options = {**said, **_core.complete_fit(data._dataset, request)}
    if options.pop("filters_alone"):
        raise Unsupported(
            "too few sequences are held out to say what layers add, so the filters stand alone: filters=False trains layers"
        )
    for name in ("checkpoint", "metrics", "tensorboard"):
        options[name] = said[name]
    options["precision"] = _precision(said["precision"], device)
    options["request"] = request
    options["knows_something"] = model._continues or model.spec["lags"] > 0  # it may be best as it is
    return types.SimpleNamespace(**options)


def _check_names(said):
    for name in ("accumulate", "checkpoints"):
        if not isinstance(said[name], int) or said[name] < 1:
            raise InvalidArgument(f"{name} must be a whole number of at least 1, not {said[name]!r}")
    if not said["rank_timeout"] >= 1.0:
        raise InvalidArgument(f"rank_timeout must be at least 1 (seconds), not {said['rank_timeout']}")
    if said["resume"] and said["checkpoint"] is None:
        raise InvalidArgument("resume needs checkpoint: the folder to continue from")
    if said["optimizer"] == "muon" and said["sharding"] == "fsdp":
        raise InvalidArgument(
            "optimizer='muon' needs whole matrices on each rank: take sharding='ddp', or another optimizer"
        )


def _precision(said, device):
    if said is None:
        import torch

        return "bf16" if device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False) else "full"
    if said not in ("f32", "full", "bf16"):
        raise Unsupported(
            f"penstock.torch.fit has no precision={said!r}: 'full' and 'bf16' are, others are penstock.train's"
        )
    return "full" if said == "f32" else said
