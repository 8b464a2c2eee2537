"""Model repositories of NVIDIA Triton: the ONNX file of a model, and the configuration of its sequence batcher."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import penstock
from penstock import _core
from penstock.errors import InvalidArgument

_TYPES = {"float32": "TYPE_FP32", "float64": "TYPE_FP64", "int64": "TYPE_INT64"}
_STATE, _NEXT = "state", "next_state"  # as the exporter names them


def _tensor(kind: str, name: str, type_: str, shape: Sequence[int]) -> str:
    return f'{kind} {{ name: "{name}" data_type: {_TYPES[type_]} dims: {list(shape)} }}'


def configuration(onnx: str | os.PathLike[str], name: str, max_batch: int, streams: int, idle_s: float) -> str:
    """Returns the text of ``config.pbtxt`` for a file of :meth:`penstock.Model.save_onnx`.

    Triton keeps the state of each sequence, starts it at zeros, and runs the next requests of several sequences as one
    batch.
    """
    network = penstock.import_onnx(onnx, find_states=False)
    zeros = {each.name: np.zeros([max(extent, 1) for extent in each.shape], each.type) for each in network.inputs}
    outputs = network.run(zeros)  # whose types and shapes are not in the file
    state = outputs.pop(_NEXT)
    given = [each for each in network.inputs if each.name != _STATE]
    tensors = [_tensor("input", each.name, each.type, each.shape[1:]) for each in given]
    tensors += [_tensor("output", name, str(value.dtype), [-1, *value.shape[2:]]) for name, value in outputs.items()]
    form = f"data_type: {_TYPES[str(state.dtype)]} dims: {list(state.shape[1:])}"
    return f"""# Written by python -m penstock.serve. A request has the shape [1, steps, ...]: one sequence, one step or more.
name: "{name}"
backend: "onnxruntime"
max_batch_size: {max_batch}
{chr(10).join(tensors)}
sequence_batching {{
  max_sequence_idle_microseconds: {round(idle_s * 1e6)}
  oldest {{ max_candidate_sequences: {streams} }}
  state {{
    input_name: "{_STATE}"
    output_name: "{_NEXT}"
    {form}
    initial_state {{ name: "start" {form} zero_data: true }}
  }}
}}
"""


def write_repository(
    model: penstock.Model,
    folder: str | os.PathLike[str],
    name: str,
    *,
    normalised: bool = False,
    group: str = "",
    max_batch: int = 64,
    streams: int = 100_000,
    idle_s: float = 3600.0,
) -> Path:
    """Writes a model into a repository of Triton, and returns the folder of the model.

    Args:
        model: The model.
        folder: The repository: a folder of models, made if it is missing.
        name: Name of the model there.
        normalised, group: As for :meth:`penstock.Model.save_onnx`.
        max_batch: Number of sequences that Triton runs at once.
        streams: Number of sequences that may be open.
        idle_s: Seconds after which Triton ends a sequence without requests.

    Raises:
        InvalidArgument: The name cannot be that of a folder, or an argument is below 1.
        IoFailure: A file cannot be written.
    """
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, re.ASCII):
        raise InvalidArgument(f"name must have letters, digits, '_', '-' and '.', not '{name}'")
    for argument, value in (("max_batch", max_batch), ("streams", streams), ("idle_s", idle_s)):
        if not value >= 1:
            raise InvalidArgument(f"{argument} must be at least 1, not {value}")
    place = Path(folder, name)
    (place / "1").mkdir(parents=True, exist_ok=True)
    onnx = place / "1" / "model.onnx"
    model.save_onnx(onnx, normalised=normalised, group=group)
    text = configuration(onnx, name, max_batch, streams, idle_s)
    _core.write_file(os.fspath(place / "config.pbtxt"), [text.encode()], _core.FileKind.any)
    return place
