"""Files of weights: which format a file has, and the stacks in it."""

from __future__ import annotations

import json
import os
import pathlib

import numpy as np

from .. import _safetensors
from ..errors import BadInput, Incompatible, InvalidArgument, Unsupported
from . import _checkpoints, flashrnn, haste, keras, lucidrains, onnx, torch_nn, xlstm
from ._limits import reading
from ._weights import GATES, RecurrentWeights, check_said

#: The formats that :func:`load` and :func:`save` know by name.
FORMATS = ("penstock", "torch", "keras", "haste", "lucidrains", "xlstm", "flashrnn", "onnx")

# Where files of penstock::Recurrent say what they hold, files of models, and those of save() the cell of each layer.
_STACK, _MODEL, _LAYERS = "penstock.recurrent", "penstock", "penstock.layers"

# A tensor that only layers of this format have.
_SIGNS = {
    "xlstm": ("slstm_cell._recurrent_kernel_",),
    "lucidrains": (lucidrains.GRU, lucidrains.LSTM),
    "haste": ("recurrent_kernel",),
    "flashrnn": ("R",),
}


def read_tensors(path):
    """Arrays by their names: of a ``.safetensors`` file, the index of shards, a folder with either, a ``state_dict``.

    A ``.pt``, ``.pth``, ``.bin`` or ``.ckpt`` file is read by PyTorch's loader of weights alone, which runs nothing that
    a file says; the state_dict may lie within a checkpoint, beside its epoch and its optimizer. Where there are several,
    names begin with where each lies ("ema.encoder."). bfloat16 becomes float32, which holds it exactly.
    """
    with reading(path, "file of tensors"):
        return _read_all(path)[0]


def _read_all(path):
    """The arrays and the metadata."""
    path = pathlib.Path(path)
    if path.suffix not in (".pt", ".pth", ".bin", ".ckpt") and not _checkpoints.names_in_zip(path):
        return _safetensors.read(path)
    tensors, cells = _checkpoints.read(path)
    return tensors, {_LAYERS: json.dumps(cells)}


def write_tensors(path, tensors, *, max_shard_bytes=None):
    """Writes arrays by their names as a ``.safetensors`` file.

    What would be larger than `max_shard_bytes` becomes several files, NAME-00001-of-00003.safetensors, and an index,
    NAME.safetensors.index.json, as models on the Hugging Face Hub are kept. Written again, they are named
    NAME-2-00001-of-00003.safetensors, and the older ones are removed behind the new index.
    """
    _write(path, tensors, None, max_shard_bytes)


def _write(path, tensors, metadata, max_shard_bytes):
    if max_shard_bytes is not None and max_shard_bytes <= 0:
        raise InvalidArgument(f"max_shard_bytes must be positive, not {max_shard_bytes}")
    _safetensors.write(path, tensors, metadata, max_shard_bytes)


def _stack(tensors, description, source):
    """The weights of a file that ``penstock::Recurrent`` has written, or :func:`save` for it."""
    try:
        cell = json.loads(description)["cell"]
    except (ValueError, RecursionError, TypeError, KeyError) as error:
        raise BadInput(f"{source}: what it says of its stack has no cell") from error
    if cell not in GATES:
        raise BadInput(f"{source}: its cell must be one of {', '.join(GATES)}, not {cell!r}")
    try:
        return RecurrentWeights(cell, tensors)
    except InvalidArgument as error:  # what the caller of RecurrentWeights gave is here what the file has
        raise BadInput(f"{source}: {error}") from error


def _description(weights):
    """What ``penstock::Recurrent`` reads beside the tensors."""
    spec = {
        name: getattr(weights, name)
        for name in ("cell", "input_size", "hidden_size", "heads", "layers", "direction", "bias")
    }
    return {_STACK: json.dumps({**spec, "dropout": 0.0})}


def _cells(metadata, source):
    """{name of a layer: its cell} that a file says."""
    try:
        cells = json.loads(metadata.get(_LAYERS, "{}"))
    except (ValueError, RecursionError, TypeError) as error:
        raise BadInput(f"{source}: what it says of its layers is no JSON") from error
    for name, cell in cells.items() if isinstance(cells, dict) else [("", None)]:
        if not isinstance(cell, str) or cell not in GATES:
            raise BadInput(f"{source}: the cell of '{name}' must be one of {', '.join(GATES)}, not {cell!r}")
    return cells


def _layers(tensors):
    """(format, prefix) of each layer whose tensors are there."""
    found = {}
    for name in tensors:
        for form, signs in _SIGNS.items():
            for sign in signs:
                prefix = name.removesuffix(sign)
                if name.endswith(sign) and (prefix == "" or prefix.endswith(".")):
                    found[form, prefix] = None
        prefix = torch_nn.prefix_of(name)
        if prefix is not None:
            found["torch", prefix] = None
    return list(found)


def _read(form, prefix, tensors, others, options, source):
    """One layer; `others` are the prefixes of layers that lie within it."""
    if form == "torch":
        return torch_nn.from_torch(tensors, prefix=prefix, cell=options.get("cell"), source=source)
    own = {n.removeprefix(prefix): a for n, a in tensors.items() if n.startswith(prefix) and not n.startswith(others)}
    source = f"{source}: {prefix.removesuffix('.')}" if prefix else source
    if form == "flashrnn":
        function = options.get("function") or flashrnn.FUNCTION_OF.get(options.get("cell"))
        if function is None:
            raise InvalidArgument('weights of FlashRNN need function=: "lstm", "slstm", "gru" or "elman"')
        return flashrnn.from_flashrnn(own, function=function, source=source)
    read = {"haste": haste.from_haste, "lucidrains": lucidrains.from_lucidrains, "xlstm": xlstm.from_xlstm}[form]
    return read(own, source=source)


def _read_layers(tensors, cells, places, options, source):
    """The layers at these places. What a file says of its cell goes before what shapes show."""
    layers = {}
    for form, prefix in places:
        name = prefix.removesuffix(".")
        if name in layers:
            raise BadInput(f"{source}: '{name}' has tensors of several formats; say which to read, by format=")
        said = cells.get(name)
        others = tuple(p for _, p in _layers(tensors) if p != prefix and p.startswith(prefix))
        own = {**options, "cell": said or options.get("cell")}
        layers[name] = _read(form, prefix, tensors, others, own, source)
        if said not in (None, layers[name].cell):
            raise BadInput(f"{source}: layer '{name}' is of the cell '{layers[name].cell}', and the file says '{said}'")
        check_said(layers[name].cell, [options.get("cell")], f"{source}: layer '{name}'")
    return layers


def load(path, *, format=None, prefix=None, **options):
    """The recurrent layers in a file by the names they have in it: {name: :class:`RecurrentWeights`}.

    Args:
        path: ``.safetensors``, one file or the index of shards; a folder with either; ``.pt``, ``.pth``, ``.bin`` or
            ``.ckpt`` with a ``state_dict``, in a checkpoint or by itself; ``.keras``, ``.h5``; ``.onnx``. Other tensors
            of the file (embeddings, heads) are left where they are: see :func:`read_tensors`.
        format: One of :data:`FORMATS`; None: by the names of the tensors.
        prefix: Only the layer of this name ("encoder"). Others are not looked at, so that one which cannot be read
            does not matter.
        options: ``cell=`` where the file does not say its cell and shapes do not show it (``"elman-relu"``,
            ``"slstm"``, ``"mingru"``, ...); ``function=`` of "flashrnn". Files of :func:`save` say their cells.

    Raises:
        BadInput: The file is damaged, or a tensor is missing, unknown or of another shape, or reading it would take memory
            or time out of proportion to its size; the message names it.
        Unsupported: The file is sound, and a layer in it computes what no cell here does; or a package is missing.
        Incompatible: The file is sound, and holds something else.
        IoFailure: The file cannot be read.
    """
    if format is not None and format not in FORMATS:
        raise InvalidArgument(f"format must be one of {', '.join(FORMATS)}, not '{format}'")
    unknown = set(options) - {"cell", "function"}
    if unknown:
        raise InvalidArgument(f"there is no option '{sorted(unknown)[0]}'")
    path = os.fspath(path)
    if path.endswith((".keras", ".h5", ".hdf5")) or format == "keras" or "model.weights.h5" in _checkpoints.names_in_zip(path):
        return keras.read_keras(path, name=prefix, cell=options.get("cell"))
    if path.endswith(".onnx") or format == "onnx":
        return onnx.read_onnx(path, name=prefix)
    with reading(path, "file of weights"):
        return _load(path, format, prefix, options)


def _load(path, format, prefix, options):
    tensors, metadata = _read_all(path)
    if _MODEL in metadata:
        raise Incompatible(f"{path}: a whole model: penstock.Model.load and penstock.torch.SequenceModel.load read it")
    if _STACK in metadata and format in (None, "penstock"):
        return {"": _stack(tensors, metadata[_STACK], path)}
    tensors = torch_nn.plain(tensors)
    wanted = None if prefix is None else prefix.removesuffix(".")
    places = [p for p in _layers(tensors) if format in (None, p[0]) and wanted in (None, p[1].removesuffix("."))]
    if not places:
        what = f"no recurrent layer of {format}" if format else "no recurrent layer that is known"
        raise BadInput(f"{path}: {what}{f' at {prefix!r}' if prefix else ''}; its tensors are {_some(tensors)}")
    return _read_layers(tensors, _cells(metadata, path), places, options, path)


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
    cells = {_LAYERS: json.dumps({name: weights.cell for name, weights in layers.items()})}
    _write(path, tensors, cells, max_shard_bytes)
