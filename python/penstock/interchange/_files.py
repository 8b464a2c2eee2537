"""Files of weights: detects the format of a file and reads or writes the stacks in it."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping

import numpy as np

from .. import _core, _safetensors
from ..errors import BadInput, Incompatible, InvalidArgument, Unsupported
from . import _checkpoints, flashrnn, haste, keras, lucidrains, onnx, torch_nn, xlstm
from ._limits import reading
from ._weights import GATES, RecurrentWeights, check_said, is_cell

#: The formats that :func:`load` and :func:`save` know by name.
FORMATS = ("penstock", "torch", "keras", "haste", "lucidrains", "xlstm", "flashrnn", "onnx")

# Keys of metadata: the description in files of penstock::Recurrent, that in model files, the cells in files of save(),
# and the equations of those that users defined.
_STACK, _MODEL, _LAYERS, _EQUATIONS = "penstock.recurrent", "penstock", "penstock.layers", "penstock.cells"

# Fields of the description of a stack. Those of training (dropout, gradient_clip) are not in RecurrentWeights.
_SIZES = ("cell", "input_size", "hidden_size", "heads", "layers", "direction", "bias")
_STACK_FIELDS = (*_SIZES, "cell_equations", "dropout", "gradient_clip")

# Endings by which load() tells the files of PyTorch and Keras.
_CHECKPOINTS, _OF_KERAS = (".pt", ".pth", ".bin", ".ckpt"), (".keras", ".h5", ".hdf5")

# Tensors that identify a format.
_SIGNS = {
    "xlstm": ("slstm_cell._recurrent_kernel_",),
    "lucidrains": (lucidrains.GRU, lucidrains.LSTM),
    "haste": ("recurrent_kernel", "recurrent_scale"),
    "flashrnn": ("R",),
}


def read_tensors(path):
    """Reads all tensors of a file and returns {name: array}.

    PyTorch files are read by PyTorch's loader of weights only, which runs no code of the file. Their state_dict may be
    inside a checkpoint, next to the epoch and the optimiser. If there are several state_dicts, their places become
    prefixes ("ema.encoder."). bfloat16 becomes float32 without loss.

    Args:
        path: A ``.safetensors`` file, the index of its shards, a folder with either, or a ``.pt``, ``.pth``, ``.bin``
            or ``.ckpt`` file with a ``state_dict``.

    Raises:
        BadInput: The file is damaged or has no tensors that can be read.
        IoFailure: The file cannot be read.
        Unsupported: The package torch is missing.
    """
    with reading(path, "file of tensors"):
        return _read_all(path)[0]


def _read_all(path):
    """Returns (arrays, metadata)."""
    path = pathlib.Path(path)
    if path.suffix not in _CHECKPOINTS and not _checkpoints.names_in_zip(path):
        return _safetensors.read(path)
    tensors, cells = _checkpoints.read(path)
    return tensors, {_LAYERS: json.dumps(cells)}


def write_tensors(path, tensors, *, max_shard_bytes=None):
    """Writes arrays as a ``.safetensors`` file.

    Args:
        path: The file.
        tensors: {name: array}.
        max_shard_bytes: Splits larger content into shards ``NAME-00001-of-00003.safetensors`` with the index
            ``NAME.safetensors.index.json``, as on the Hugging Face Hub. A second write uses the names
            ``NAME-2-00001-of-00003.safetensors`` and removes the old shards after the new index is in place. None: one
            file. Files that an older call wrote under the same name in the other form are removed.

    Raises:
        InvalidArgument: A tensor has an unsupported dtype, or ``max_shard_bytes`` is not positive.
        IoFailure: A file cannot be written.
    """
    _safetensors.write(path, tensors, max_shard_bytes=max_shard_bytes)


def _stack(tensors, description, source):
    """Returns the weights in a file of ``penstock::Recurrent``, or of :func:`save` with format="penstock"."""
    try:
        said = json.loads(description)
        cell = said["cell"]
        _define([said["cell_equations"]] if "cell_equations" in said else [], source)
    except (ValueError, RecursionError, TypeError, KeyError) as error:
        raise BadInput(f"{source}: what it says of its stack has no cell") from error
    unknown = sorted(set(said) - set(_STACK_FIELDS))
    if unknown:  # a later version may compute something else by it
        allowed = ", ".join(_STACK_FIELDS)
        raise BadInput(f"{source}: {_STACK} has no field '{unknown[0]}'; it may have {allowed}: use a newer Penstock")
    if not isinstance(cell, str) or not is_cell(cell):
        raise BadInput(f"{source}: its cell must be one of {', '.join(GATES)}, not {cell!r}")
    try:
        return RecurrentWeights(cell, tensors)
    except InvalidArgument as error:  # here the arguments of RecurrentWeights come from the file
        raise BadInput(f"{source}: {error}") from error


def _description(weights):
    """Returns the metadata that ``penstock::Recurrent`` reads."""
    spec = {name: getattr(weights, name) for name in _SIZES}
    equations = {"cell_equations": each for each in _equations([weights.cell])}
    return {_STACK: json.dumps({**spec, **equations, "dropout": 0.0})}


def _equations(cells):
    """Returns the graphs of cells that users defined."""
    return [json.loads(_core.cell_json(cell)) for cell in sorted(set(cells) - set(GATES))]


def _define(graphs, source):
    """Makes the cells of a file known. Raises BadInput for unsound graphs."""
    for graph in graphs:
        _core.define_cell(json.dumps(graph), source)


def _cells(metadata, source):
    """Returns {layer: cell} from the metadata of a file."""
    try:
        cells = json.loads(metadata.get(_LAYERS, "{}"))
        _define(json.loads(metadata.get(_EQUATIONS, "[]")), source)
    except (ValueError, RecursionError, TypeError) as error:
        raise BadInput(f"{source}: what it says of its layers is not JSON") from error
    for name, cell in cells.items() if isinstance(cells, dict) else [("", None)]:
        if not isinstance(cell, str) or not is_cell(cell):
            raise BadInput(f"{source}: the cell of '{name}' must be one of {', '.join(GATES)}, not {cell!r}")
    return cells


def _layers(tensors):
    """Returns (format, prefix) of each recurrent layer among the tensors."""
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


def _refuse_zoneout(options, form):
    if "zoneout" in options:
        raise InvalidArgument(f"zoneout= is for layers of haste, not of {form}: leave it out")


def _read(form, prefix, tensors, others, options, source):
    """Returns one layer. `others` are the prefixes of layers inside it."""
    if form != "haste":
        _refuse_zoneout(options, form)
    if form == "torch":
        return torch_nn.from_torch(tensors, prefix=prefix, cell=options.get("cell"), source=source)
    own = {n.removeprefix(prefix): a for n, a in tensors.items() if n.startswith(prefix) and not n.startswith(others)}
    source = f"{source}: {prefix.removesuffix('.')}" if prefix else source
    if form == "flashrnn":
        function = options.get("function") or flashrnn.FUNCTION_OF.get(options.get("cell"))
        if function is None:
            raise InvalidArgument('weights of FlashRNN need function=: "lstm", "slstm", "gru" or "elman"')
        return flashrnn.from_flashrnn(own, function=function, source=source)
    if form == "haste":
        return haste.from_haste(own, zoneout=options.get("zoneout", 0.0), source=source)
    read = {"lucidrains": lucidrains.from_lucidrains, "xlstm": xlstm.from_xlstm}[form]
    return read(own, source=source)


def _read_layers(tensors, cells, places, options, source):
    """Returns {name: layer} for these places. A cell named in the file takes precedence over one found by shapes."""
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
    """Reads the recurrent layers of a file and returns {name: :class:`RecurrentWeights`}.

    Other tensors (embeddings, heads) are ignored; :func:`read_tensors` reads them.

    Args:
        path: A ``.safetensors`` file, the index of its shards, or a folder with either; a ``.pt``, ``.pth``, ``.bin``
            or ``.ckpt`` file with a ``state_dict``, also inside a checkpoint; ``.keras``, ``.h5`` or ``.onnx``.
        format: One of :data:`FORMATS`. None: detected by the names of tensors.
        prefix: Reads only the layer with this name ("encoder"). Other layers may be unreadable then.
        options: ``cell=`` if neither the file nor the shapes identify the cell (``"elman-relu"``, ``"slstm"``,
            ``"mingru"``, ...). Files of :func:`save` name their cells. ``function=`` for "flashrnn".
            ``zoneout=`` for layers of "haste" that were made with it.

    Raises:
        BadInput: The file is damaged; a tensor is missing, unknown or of the wrong shape; or reading would take too
            much memory or time for the size of the file. The message names the problem.
        Unsupported: The file is valid, but a layer in it has no equivalent here, or a package is missing.
        Incompatible: The file is valid, but has other content, such as a whole model.
        InvalidArgument: ``format`` or an option is unknown.
        IoFailure: The file cannot be read.
    """
    if format is not None and format not in FORMATS:
        raise InvalidArgument(f"format must be one of {', '.join(FORMATS)}, not '{format}'")
    unknown = set(options) - {"cell", "function", "zoneout"}
    if unknown:
        raise InvalidArgument(f"there is no option '{sorted(unknown)[0]}'")
    path = os.fspath(path)
    if path.endswith(_OF_KERAS) or format == "keras" or "model.weights.h5" in _checkpoints.names_in_zip(path):
        _refuse_zoneout(options, "Keras")
        return keras.read_keras(path, name=prefix, cell=options.get("cell"))
    if path.endswith(".onnx") or format == "onnx":
        _refuse_zoneout(options, "ONNX")
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
        some = _checkpoints.some(list(tensors)) or "none"
        raise BadInput(f"{path}: {what}{f' at {prefix!r}' if prefix else ''}; its tensors are {some}")
    return _read_layers(tensors, _cells(metadata, path), places, options, path)


def save(path, layers, *, format="torch", max_shard_bytes=None, **options):
    """Writes layers in the format of another library.

    Args:
        path: The file. Its name ends in ``.safetensors``; for "keras" in ``.keras`` or ``.weights.h5``, for "onnx" in
            ``.onnx``.
        layers: A :class:`RecurrentWeights`, or {name: weights}. Names become prefixes. "onnx" and "penstock" take one
            stack.
        format: One of :data:`FORMATS`.
        max_shard_bytes: As for :func:`write_tensors`.
        options: ``backend=`` for "xlstm".

    Raises:
        InvalidArgument: The format cannot represent the layers, an argument is impossible, or files whose name ends as
            ``path`` does are read as another format.
        IoFailure: The file cannot be written.
        Unsupported: A package is missing.
    """
    if isinstance(layers, RecurrentWeights):
        layers = {"": layers}
    if not isinstance(layers, Mapping) or not all(isinstance(each, RecurrentWeights) for each in layers.values()):
        raise TypeError(f"layers must be a RecurrentWeights or {{name: RecurrentWeights}}, not {layers!r:.80}")
    if not layers:
        raise InvalidArgument("layers must hold at least one")
    if format == "keras":
        keras.write_keras(path, {name or "recurrent": weights for name, weights in layers.items()})
        return
    if format == "onnx":
        if len(layers) != 1:
            raise InvalidArgument(f"a file of ONNX holds one stack, not {len(layers)}")
        (weights,) = layers.values()
        weights.to_numpy("float32").save_onnx(path)
        return
    if os.fspath(path).endswith((*_CHECKPOINTS, *_OF_KERAS, ".onnx")):
        raise InvalidArgument(
            f"path must end in '.safetensors' for format '{format}', not '{path}': load() would read another format"
        )
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
    cells = {name: weights.cell for name, weights in layers.items()}
    metadata = {_LAYERS: json.dumps(cells)}
    if equations := _equations(cells.values()):
        metadata[_EQUATIONS] = json.dumps(equations)
    _safetensors.write(path, tensors, metadata, max_shard_bytes)
