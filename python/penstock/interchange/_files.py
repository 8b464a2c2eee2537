"""Files of weights: which format a file has, and the stacks in it."""

from __future__ import annotations

import json
import os
import pathlib

import numpy as np

from .. import _safetensors
from ..errors import BadInput, Incompatible, InvalidArgument, Unsupported
from . import flashrnn, haste, keras, lucidrains, onnx, torch_nn, xlstm
from ._weights import GATES, RecurrentWeights

#: The formats that :func:`load` and :func:`save` know by name.
FORMATS = ("penstock", "torch", "keras", "haste", "lucidrains", "xlstm", "flashrnn", "onnx")

# Where files of penstock::Recurrent say what they hold, and files of models.
_STACK, _MODEL = "penstock.recurrent", "penstock"

# A tensor that only layers of this format have.
_SIGNS = {
    "xlstm": ("slstm_cell._recurrent_kernel_",),
    "lucidrains": (lucidrains.GRU, lucidrains.LSTM),
    "haste": ("recurrent_kernel",),
    "torch": ("weight_ih_l0", "weight_ih_l0_reverse"),
    "flashrnn": ("R",),
}


def read_tensors(path):
    """Arrays by their names: of a ``.safetensors`` file, the index of shards, a folder with either, a ``state_dict``.

    A ``.pt``, ``.pth`` or ``.bin`` file is read by PyTorch's loader of weights alone, which runs nothing that a file
    says. bfloat16 becomes float32, which holds it exactly.
    """
    return _read_all(path)[0]


def _read_all(path):
    """The arrays and the metadata."""
    path = pathlib.Path(path)
    if path.suffix not in (".pt", ".pth", ".bin"):
        return _safetensors.read(path)
    return _read_state_dict(path), {}


def _read_state_dict(path):
    try:
        import torch
    except ImportError as error:
        raise Unsupported(f"{path}: files of PyTorch need the package torch: pip install 'penstock[torch]'") from error
    import pickle

    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise BadInput(
            f"{path}: no state_dict that can be read without running it: {str(error).splitlines()[0]}"
        ) from error
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise BadInput(f"{path}: a state_dict was expected: tensors by their names")
    return {name: (t.float() if t.dtype == torch.bfloat16 else t).detach().numpy() for name, t in state.items()}


def write_tensors(path, tensors, *, max_shard_bytes=None):
    """Writes arrays by their names as a ``.safetensors`` file.

    What would be larger than `max_shard_bytes` becomes several files, NAME-00001-of-00003.safetensors, and an index,
    NAME.safetensors.index.json, as models on the Hugging Face Hub are kept.
    """
    if max_shard_bytes is not None and max_shard_bytes <= 0:
        raise InvalidArgument(f"max_shard_bytes must be positive, not {max_shard_bytes}")
    _safetensors.write(path, tensors, max_shard_bytes=max_shard_bytes)


def _stack(tensors, description, source):
    """The weights of a file that ``penstock::Recurrent`` has written, or :func:`save` for it."""
    try:
        cell = json.loads(description)["cell"]
    except (ValueError, RecursionError, TypeError, KeyError) as error:
        raise BadInput(f"{source}: what it says of its stack has no cell") from error
    if cell not in GATES:
        raise BadInput(f"{source}: its cell must be one of {', '.join(GATES)}, not {cell!r}")
    return RecurrentWeights(cell, tensors)


def _description(weights):
    """What ``penstock::Recurrent`` reads beside the tensors."""
    spec = {
        name: getattr(weights, name)
        for name in ("cell", "input_size", "hidden_size", "heads", "layers", "direction", "bias")
    }
    return {_STACK: json.dumps({**spec, "dropout": 0.0})}


def _layers(tensors):
    """(format, prefix) of each layer whose tensors are there."""
    found = []
    for name in tensors:
        for form, signs in _SIGNS.items():
            for sign in signs:
                prefix = name.removesuffix(sign)
                if name.endswith(sign) and (prefix == "" or prefix.endswith(".")) and (form, prefix) not in found:
                    found.append((form, prefix))
    return found


def _read(form, prefix, tensors, options, source):
    own = {name.removeprefix(prefix): array for name, array in tensors.items() if name.startswith(prefix)}
    source = f"{source}: {prefix.rstrip('.')}" if prefix else source
    if form == "torch":
        return torch_nn.from_torch(own, cell=options.get("cell"), source=source)
    if form == "flashrnn":
        if "function" not in options:
            raise InvalidArgument('weights of FlashRNN need function=: "lstm", "slstm", "gru" or "elman"')
        return flashrnn.from_flashrnn(own, function=options["function"], source=source)
    read = {"haste": haste.from_haste, "lucidrains": lucidrains.from_lucidrains, "xlstm": xlstm.from_xlstm}[form]
    return read(own, source=source)


def load(path, *, format=None, prefix=None, **options):
    """The recurrent layers in a file by the names they have in it: {name: :class:`RecurrentWeights`}.

    Args:
        path: ``.safetensors``, one file or the index of shards; a folder with either; ``.pt``, ``.pth`` or ``.bin``
            with a ``state_dict``; ``.keras``, ``.h5``; ``.onnx``. Other tensors of the file (embeddings, heads) are left where
            they are: see :func:`read_tensors`.
        format: One of :data:`FORMATS`; None: by the names of the tensors.
        prefix: Only the layer whose names begin so ("encoder.").
        options: ``cell=`` of "torch" where the shapes do not say (``"elman-relu"``, ``"slstm"``, ``"mingru"``, ...);
            ``function=`` of "flashrnn".

    Raises:
        BadInput: The file is damaged, or a tensor is missing, unknown or of another shape; the message names it.
        IoFailure: The file cannot be read.
    """
    if format is not None and format not in FORMATS:
        raise InvalidArgument(f"format must be one of {', '.join(FORMATS)}, not '{format}'")
    unknown = set(options) - {"cell", "function"}
    if unknown:
        raise InvalidArgument(f"there is no option '{sorted(unknown)[0]}'")
    path = os.fspath(path)
    if path.endswith((".keras", ".h5", ".hdf5")):
        layers = keras.read_keras(path)
        return {name: weights for name, weights in layers.items() if prefix is None or name == prefix}
    if path.endswith(".onnx") or format == "onnx":
        layers = onnx.read_onnx(path)
        return {name: weights for name, weights in layers.items() if prefix is None or name == prefix}
    tensors, metadata = _read_all(path)
    if _MODEL in metadata:
        raise Incompatible(f"{path}: a whole model: penstock.Model.load and penstock.torch.SequenceModel.load read it")
    if _STACK in metadata and format in (None, "penstock"):
        return {"": _stack(tensors, metadata[_STACK], path)}
    places = [(f, p) for f, p in _layers(tensors) if format in (None, f) and prefix in (None, p)]
    if not places:
        what = f"no recurrent layer of {format}" if format else "no recurrent layer that is known"
        raise BadInput(f"{path}: {what}{f' at {prefix!r}' if prefix else ''}; its tensors are {_some(tensors)}")
    return {p.rstrip("."): _read(f, p, tensors, options, path) for f, p in places}


def _some(tensors, shown=5):
    names = ", ".join(list(tensors)[:shown]) or "none"
    return names + (f", and {len(tensors) - shown} more" if len(tensors) > shown else "")


def save(path, layers, *, format="torch", max_shard_bytes=None, **options):
    """Writes layers as another library reads them.

    Args:
        path: The name ends in ``.safetensors``, in ``.keras`` or ``.weights.h5`` for "keras", in ``.onnx`` for "onnx".
        layers: A :class:`RecurrentWeights`, or {name: weights}, whose names become prefixes.
        format: One of :data:`FORMATS`.
        max_shard_bytes: See :func:`write_tensors`.
        options: ``backend=`` of "xlstm".
    """
    if isinstance(layers, RecurrentWeights):
        layers = {"": layers}
    if not layers:
        raise InvalidArgument("layers must hold at least one")
    if format == "keras":
        keras.write_keras(path, {name or "recurrent": weights for name, weights in layers.items()})
        return
    if format == "onnx":
        if len(layers) != 1:
            raise InvalidArgument(f"a file of ONNX holds one stack, not {len(layers)}")
        onnx.write_onnx(path, *layers.values())
        return
    if format == "penstock":
        if len(layers) != 1:
            raise InvalidArgument(f"a file of penstock::Recurrent holds one stack, not {len(layers)}")
        (weights,) = layers.values()
        _safetensors.write_file(path, weights.tensors, _description(weights))
        return
    writers = {
        "torch": torch_nn.to_torch,
        "haste": haste.to_haste,
        "lucidrains": lucidrains.to_lucidrains,
        "xlstm": xlstm.to_xlstm,
        "flashrnn": flashrnn.to_flashrnn,
    }
    if format not in writers:
        raise InvalidArgument(f"format must be one of {', '.join(FORMATS)}, not '{format}'")
    tensors = {}
    for name, weights in layers.items():
        prefix = f"{name}." if name else ""
        tensors |= {prefix + n: np.ascontiguousarray(a) for n, a in writers[format](weights, **options).items()}
    write_tensors(path, tensors, max_shard_bytes=max_shard_bytes)
