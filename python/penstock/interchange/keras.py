"""Weights and files of Keras' SimpleRNN, GRU and LSTM: ``.keras``, ``.weights.h5``, and HDF5 files of Keras 2.

``kernel`` is ``[I, G H]``, ``recurrent_kernel`` ``[H, G H]``, ``bias`` ``[G H]``, or ``[2, G H]`` for a GRU with
``reset_after``. The gate order is i, f, c, o for the LSTM and z, r, h for the GRU. Layers with other activations become
cells of :mod:`penstock.variants`. Files need the package h5py, but not Keras.
"""

from __future__ import annotations

import functools
import io
import json
import re
import zipfile
import zlib

import numpy as np

from .. import _core
from ..errors import BadInput, InvalidArgument, IoFailure, Unsupported
from ._hdf5 import DEEPEST, cell_groups, h5py_package, opened
from ._keras_config import CLASSES, parsed, plain, settings
from ._limits import Limits, reading
from ._weights import (
    RecurrentWeights,
    base_of,
    check_said,
    inverse,
    of_custom_cell,
    reordered,
    shape_text,
    take,
    unique_names,
)

_ORDER = {"lstm": [0, 1, 2, 3], "gru": [1, 0, 2], "gru-before": [1, 0, 2], "elman": [0], "elman-relu": [0]}
# Classes of layers that are read, or refused with their name.
_KINDS = {*CLASSES, "RNN", "Bidirectional", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", "CuDNNLSTM", "CuDNNGRU"}


def from_keras(arrays, *, cell=None, source="keras"):
    """Returns one layer from the arrays of ``layer.get_weights()``.

    Args:
        arrays: Kernel, recurrent kernel, and the bias if there is one.
        cell: ``"elman"`` or ``"elman-relu"`` for a SimpleRNN, ``"gru"`` or ``"gru-before"`` for a GRU without a bias; a
            cell of :mod:`penstock.variants` for other activations. None: found by the shapes.
        source: Name of the source in error messages.
    """
    tensors = dict(zip(("kernel", "recurrent_kernel", "bias"), arrays))
    if len(arrays) not in (2, 3):
        raise BadInput(f"{source}: there are {len(arrays)} arrays, expected kernel, recurrent kernel and, maybe, bias")
    recurrent = take(tensors, "recurrent_kernel", source, None, None)
    hidden, columns = recurrent.shape
    cell = cell or _cell_by_shape(hidden, columns, tensors, source)
    base, gates = base_of(cell, _ORDER)
    if getattr(cell, "learnt", {}) or gates == [0, 2, 3]:
        raise InvalidArgument(f"cell must have no learnt vectors or coupled gates, which Keras does not have, not '{cell}'")
    order = _ORDER[base]
    if columns != len(order) * hidden:
        raise BadInput(
            f"{source}: tensor 'recurrent_kernel' is {shape_text(recurrent.shape)}, expected [H, {len(order)} H]"
        )
    named = {
        "weight_ih_l0": reordered(take(tensors, "kernel", source, None, columns), order).T.copy(),
        "weight_hh_l0": reordered(recurrent, order).T.copy(),
    }
    if base == "gru" and "bias" in tensors:
        bias = reordered(take(tensors, "bias", source, 2, columns), order)
        named |= {"bias_ih_l0": bias[0].copy(), "bias_hh_l0": bias[1].copy()}
    elif "bias" in tensors:
        named["bias_ih_l0"] = reordered(take(tensors, "bias", source, columns), order)
    weights = RecurrentWeights(base, named)
    return weights if gates is None else of_custom_cell(weights, cell, gates)


def _cell_by_shape(hidden, columns, tensors, source):
    gates = columns // hidden if hidden and columns % hidden == 0 else 0
    choices = {3: ("gru", "gru-before"), 1: ("elman", "elman-relu")}.get(gates, ())
    if choices and (gates == 1 or "bias" not in tensors):
        raise BadInput(f'{source}: the arrays do not show the cell: say cell="{choices[0]}" or cell="{choices[1]}"')
    if gates == 3:
        return "gru-before" if np.ndim(tensors["bias"]) == 1 else "gru"
    if gates not in (1, 4):
        raise BadInput(
            f"{source}: tensor 'recurrent_kernel' is [{hidden}, {columns}], which are 1, 3 or 4 gates of no size"
        )
    return "lstm" if gates == 4 else "elman"


def to_keras(weights):
    """Returns the arrays for ``layer.set_weights()``.

    ``gru`` becomes a GRU with ``reset_after=True``, ``gru-before`` one with ``reset_after=False``. Raises
    InvalidArgument for cells that Keras does not have.
    """
    if weights.cell not in _ORDER or weights.heads != 1:
        raise InvalidArgument(f"Keras has no layer of the cell '{weights.cell}' with {weights.heads} heads")
    order = inverse(_ORDER[weights.cell])
    weight_ih, weight_hh, bias_ih, bias_hh = weights.single_layer("Keras")
    kernel, recurrent = (reordered(np.ascontiguousarray(m.T), order) for m in (weight_ih, weight_hh))
    bias = np.stack([bias_ih, bias_hh]) if weights.cell == "gru" else bias_ih + bias_hh
    return [kernel, recurrent, reordered(bias, order)]


def _arrays(group, source, limits):
    """Returns the datasets of a group in the order of their numbers ("0", "1", ...), or of Keras 2's names."""
    h5py = h5py_package()
    names = list(group)
    old = ["kernel", "recurrent_kernel", "bias"]  # Keras 2 adds ":0"
    if {name.removesuffix(":0") for name in names} <= set(old):
        names.sort(key=lambda name: old.index(name.removesuffix(":0")))
    elif all(name.isdigit() for name in names):
        names.sort(key=int)
    arrays = []
    for name in names:
        item = group.get(name, getlink=False)
        if not isinstance(item, h5py.Dataset) or item.dtype.kind != "f" or item.external or item.is_virtual:
            raise BadInput(f"{source}: '{group.name}/{name}' is not an array of floats in the file itself")
        limits.take(item.size * item.dtype.itemsize, f"'{item.name}'")
        arrays.append(item[()])
    return arrays


def _snake_case(name):
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)).lower()


def _configurations(entry, folder="", path=()):
    """Returns [(place in a Keras 3 file, names from the outermost, entry)] of the recurrent layers of a model."""
    if len(path) > DEEPEST or folder.count("/") > 2 * DEEPEST:
        raise BadInput(f"its layers lie more than {DEEPEST} deep in each other")
    kind, config = settings(entry)
    name = config.get("name")
    if kind == "TimeDistributed":  # the inner layer is read under the name of the wrapper
        inner = _configurations(config.get("layer"), folder + "/layer", path)
        direct = settings(config.get("layer"))[0] in _KINDS
        return [(place, (*path, name) if direct else names, each) for place, names, each in inner]
    if kind in _KINDS:
        return [(folder, (*path, name), entry)]
    found, counts = [], {}
    layers = config.get("layers")
    for layer in layers if isinstance(layers, list) else []:
        stem = _snake_case(settings(layer)[0])
        number = counts[stem] = counts.get(stem, -1) + 1
        place = f"{folder}/layers/{stem}" + (f"_{number}" if number else "")
        own = (*path, name) if folder else ()
        found += _configurations(layer, place, own)
    return found


def _forward(entry, name, source):
    """Returns the stacked cells of a layer that runs forward."""
    kind, config = settings(entry)
    if kind != "RNN":
        return [plain(entry, name, source)]
    if config.get("go_backwards", False):
        raise Unsupported(f"{source}: layer '{name}' goes backwards, and its outputs stay in that order")
    inner = settings(config.get("cell"))
    cells = inner[1].get("cells") if inner[0] == "StackedRNNCells" else [config.get("cell")]
    found = [plain(each, name, source) for each in (cells if isinstance(cells, list) else [])]
    if len({(cell, units) for cell, units, _ in found}) > 1:
        shown = ", ".join(f"{cell} of {units} units" for cell, units, _ in found)
        raise Unsupported(f"{source}: layer '{name}' is a stack of {shown}, expected one cell and one size")
    return found


def _directions(entry, name, source):
    """Returns [(suffix, possible names of the direction's layer, its cells)] of a configured layer."""
    kind, config = settings(entry)
    if kind not in CLASSES and kind not in ("RNN", "Bidirectional"):
        raise Unsupported(f"{source}: layer '{name}' is of the class {kind}, which no cell here computes")
    if kind != "Bidirectional":
        return [("", (), _forward(entry, name, source))]
    if config.get("merge_mode", "concat") != "concat":
        raise Unsupported(f"{source}: layer '{name}' merges its directions other than by concat")
    forward, backward = config.get("layer"), config.get("backward_layer")
    title = settings(forward)[1].get("name")
    if isinstance(backward, dict):
        kind, own = settings(backward)
        if not own.get("go_backwards", False):
            raise Unsupported(f"{source}: layer '{name}' has a backward_layer that runs forward")
        titles = (own.get("name"), f"backward_{own.get('name')}")
        backward = {**backward, "config": {**own, "go_backwards": False}}
    else:
        backward, titles = forward, (f"backward_{title}",)
    both = [_forward(each, name, source) for each in (forward, backward)]
    if len(both[0]) > 1 or len(both[1]) > 1:
        raise Unsupported(f"{source}: layer '{name}' runs a stack of cells in both directions")
    (cell, units, _), (other, units_back, _) = both[0][0], both[1][0]
    if (cell, units) != (other, units_back):
        raise Unsupported(
            f"{source}: layer '{name}' has a {cell} of {units} units forward and a {other} of {units_back} backward, "
            "expected the same in both directions"
        )
    return [("", (title, f"forward_{title}"), both[0]), ("_reverse", titles, both[1])]


def _groups_of_layer(place, names, groups):
    """Returns the groups of a layer, in a Keras 3 file by its place, in the older format by its names."""
    if any(group.endswith("/vars") for group in groups):
        return [group for group in groups if group.startswith(place + "/")]
    own = [g for g in groups if g.removeprefix("/model_weights").split("/")[1] == names[0]]
    return own if len(names) == 1 else [g for g in own if names[-1] in g.split("/")[2:]]


def _groups_of_direction(place, direction, groups):
    """Returns the groups of the cells of one direction among those of its layer."""
    suffix, titles, cells = direction
    if not any(group.endswith("/vars") for group in groups):
        return [g for g in groups if not titles or set(titles) & set(g.split("/"))]
    folder = place + (f"/{'backward' if suffix else 'forward'}_layer" if titles else "") + "/cell"
    stacked = [name for name in groups if name.startswith(f"{folder}/cells/")]
    if len(stacked) > 1 and len(cells) > 1:  # in the order of their numbers: lstm_cell, lstm_cell_1
        return sorted(stacked, key=lambda name: int((re.search(r"_(\d+)/vars$", name) or [0, 0])[1]))
    return stacked or [name for name in groups if name == f"{folder}/vars"]


def _order_of(file, groups):
    """Sorts groups in the order in which the older format lists its weights. Follows no links to other files."""
    order, tops = [], {group.removeprefix("/model_weights").split("/")[1] for group in groups}
    for top in [group for name in tops for group in (f"/model_weights/{name}", f"/{name}") if group in file]:
        for name in file[top].attrs.get("weight_names", []):
            name = name.decode() if isinstance(name, bytes) else str(name)
            order.append(f"{top}/{name}".rpartition("/")[0])
    return sorted(groups, key=lambda group: order.index(group) if group in order else len(order))


def _unconfigured(groups):
    """Returns {place: {suffix: [group]}} of groups that no configuration describes."""
    found = {}
    for group in groups:
        parts = group.strip("/").split("/")
        parts = parts[1:] if parts[0] == "model_weights" else parts
        way = [part for part in parts if part.startswith(("forward_", "backward_"))]
        if parts[-1] == "vars":
            parts = [p for p in parts[: parts.index("cell")] if p != "layers" and p not in way]
        else:
            parts = [p for p in dict.fromkeys(parts[: -1 if len(parts) > 2 else None]) if p not in way]
        suffix = "_reverse" if way and way[-1].startswith("backward_") else ""
        found.setdefault(".".join(parts), {}).setdefault(suffix, []).append(group)
    return found


def _read_group(file, limits, config, name=None, cell=None):
    """Returns {layer: weights}. Both directions of a Bidirectional are one layer."""
    source = limits.path
    groups = {group.name: group for group in cell_groups(file, [], limits, set())}
    if not groups:
        raise BadInput(f"{source}: there is no recurrent layer in it")
    ordered = _order_of(file, list(groups))
    configured = _configurations(config)
    readers, used = {}, set()
    titles = unique_names([tuple(map(str, names)) for _, names, _ in configured])
    for title, (place, names, entry) in zip(titles, configured):
        own = _groups_of_layer(place, names, ordered)
        used |= set(own)
        mine = {group: groups[group] for group in own}
        readers[title] = functools.partial(_configured, mine, place, entry, title, limits)
    for title, parts in _unconfigured([g for g in ordered if g not in used]).items():
        title = title if title not in readers else title + "#"
        readers[title] = functools.partial(_unconfigured_layer, groups, parts, title, cell, limits)
    if name is not None and name not in readers:
        raise BadInput(f"{source}: there is no layer '{name}', but {', '.join(readers)}")
    layers = {title: read() for title, read in readers.items() if name in (None, title)}
    for title, weights in layers.items():
        check_said(weights.cell, [cell], f"{source}: layer '{title}'")
    return layers


def _configured(groups, place, entry, title, limits):
    """Returns the weights of one layer with a known configuration."""
    source = limits.path
    parts = {}
    for direction in _directions(entry, title, source):
        suffix, _, cells = direction
        own = _groups_of_direction(place, direction, list(groups))
        if len(own) != len(cells) or not cells:
            raise BadInput(
                f"{source}: layer '{title}' has {len(own)} groups of weights in the file, expected {len(cells)}; a layer "
                "that is shared is stored where it comes first"
            )
        for number, (group, (cell, units, bias)) in enumerate(zip(own, cells)):
            arrays = _arrays(groups[group], f"{source}: {group}", limits)
            if len(arrays) != 2 + bool(bias) or (isinstance(units, int) and arrays[1].shape[:1] != (units,)):
                raise BadInput(f"{source}: the weights of layer '{title}' are not those of its configuration")
            parts[suffix, number] = from_keras(arrays, cell=cell, source=f"{source}: {title}")
    return _joined(parts, f"{source}: layer '{title}'")


def _unconfigured_layer(groups, parts, title, cell, limits):
    """Returns the weights of a layer without a configuration. The caller or the file names the cell."""
    source = limits.path
    said = cell or next((groups[g].attrs.get("penstock.cell") for each in parts.values() for g in each), None)
    if said is None:
        raise BadInput(
            f"{source}: the file does not say what layer '{title}' computes (its activations, reset_after): give cell=, "
            f"one of {', '.join(_ORDER)}, with prefix='{title}', or save the whole model as .keras"
        )
    if cell is None and said not in _ORDER:
        raise BadInput(f"{source}: layer '{title}' is said to be of the cell {said!r}, expected {', '.join(_ORDER)}")
    if any(len(each) != 1 for each in parts.values()):
        raise Unsupported(f"{source}: layer '{title}' has several cells; save the whole model as .keras")
    return _joined(
        {
            (suffix, 0): from_keras(
                _arrays(groups[g], f"{source}: {g}", limits), cell=said, source=f"{source}: {title}"
            )
            for suffix, (g,) in parts.items()
        },
        f"{source}: layer '{title}'",
    )


def _joined(parts, source):
    """Joins {(suffix, number of the layer): weights} to one stack. A missing bias is zero."""
    cells = {weights.cell for weights in parts.values()}
    if len({(weights.cell, weights.hidden_size) for weights in parts.values()}) > 1:
        raise Unsupported(f"{source} has cells {', '.join(sorted(cells))} of several sizes, expected one cell and size")
    biases = {name for weights in parts.values() for name in weights.tensors if name.startswith("bias")}
    named = {}
    for (suffix, number), weights in parts.items():
        zeros = {bias: np.zeros(weights.tensors["weight_ih_l0"].shape[0], np.float32) for bias in biases}
        for name, array in {**zeros, **weights.tensors}.items():
            named[name.replace("_l0", f"_l{number}") + suffix] = array
    return RecurrentWeights(cells.pop(), named)


def read_keras(path, *, name=None, cell=None):
    """Reads the recurrent layers of a ``.keras``, ``.weights.h5`` or ``.h5`` file.

    Returns {name: weights} in the order of the file. Layers with equal names get their paths ("encoder.rec").

    Args:
        path: The file.
        name: Reads only this layer.
        cell: The cell of layers that have weights but no configuration, as in ``.weights.h5``.

    Raises:
        BadInput: The file is damaged, or does not fit its configuration.
        Unsupported: A layer has no equivalent here, or the package h5py is missing.
        IoFailure: The file cannot be read.
    """
    path = str(path)
    limits = Limits(path)
    with reading(path, "file of Keras"):
        if path.endswith((".h5", ".hdf5")):
            with opened(path, path) as file:
                text = file.attrs.get("model_config", "{}")
                return _read_group(file, limits, _json(text, path, file.attrs.get("keras_version")), name, cell)
        config, content = _archived(path, limits)
        with opened(io.BytesIO(content), path) as file:
            return _read_group(file, limits, config, name, cell)


def _archived(path, limits):
    """Returns the configuration of a ``.keras`` file and the bytes of its weights."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = ["config.json", "model.weights.h5"]
            if any(name not in archive.namelist() for name in names):
                raise BadInput(f"{path}: no model of Keras: it has no config.json or no model.weights.h5")
            contents = []
            if "metadata.json" in archive.namelist():
                names.append("metadata.json")
            for name in names:
                if archive.namelist().count(name) > 1:
                    raise BadInput(f"{path}: no model of Keras: it has several files '{name}'")
                size = archive.getinfo(name).file_size
                limits.take(size, f"'{name}'")
                with archive.open(name) as file:
                    contents.append(file.read(size))
                    if file.read(1):
                        raise BadInput(f"{path}: '{name}' is longer than the archive says")
            version = _json(contents[2], path, None).get("keras_version") if len(contents) > 2 else None
            return _json(contents[0], path, version), contents[1]
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, zlib.error) as error:
        raise BadInput(f"{path}: no model of Keras: no sound zip archive") from error


def _json(text, path, version):
    try:
        return parsed(text, version)
    except (ValueError, TypeError, RecursionError) as error:
        raise BadInput(f"{path}: its configuration is not JSON") from error


def write_keras(path, layers):
    """Writes layers as a sequential model.

    Args:
        path: A ``.keras`` file, or a ``.weights.h5`` file for ``load_weights`` of the same model.
        layers: {name: weights}, each of one layer in one or both directions. All layers return sequences.

    Raises:
        InvalidArgument: The name of the file is wrong, or Keras has no such layer.
        Unsupported: The package h5py is missing.
        IoFailure: The file cannot be written.
    """
    path, h5py = str(path), h5py_package()
    if not path.endswith((".keras", ".weights.h5")):
        raise InvalidArgument(f"the name of a file of Keras must end in .keras or .weights.h5, not '{path}'")
    buffer, configs = io.BytesIO(), []
    with h5py.File(buffer, "w") as file:
        file.create_group("layers")
        counts = {}
        for name, weights in layers.items():
            configs.append(_write_layer(file["layers"], name, weights, counts))
    if path.endswith(".weights.h5"):
        content = buffer.getvalue()
    else:
        content = _archive(buffer.getvalue(), configs, next(iter(layers.values())).input_size)
    _core.write_file(path, [content], _core.FileKind.keras)


def _write_layer(group, name, weights, counts):
    """Writes the arrays of one layer and returns its configuration."""
    kind = {"lstm": "LSTM", "gru": "GRU", "gru-before": "GRU"}.get(weights.cell, "SimpleRNN")
    config = {"name": name, "units": weights.hidden_size, "return_sequences": True}
    if kind == "GRU":
        config["reset_after"] = weights.cell == "gru"
    if weights.cell == "elman-relu":
        config["activation"] = "relu"
    both = weights.direction == "bidirectional"
    stem = "bidirectional" if both else {"SimpleRNN": "simple_rnn"}.get(kind, kind.lower())
    number = counts[stem] = counts.get(stem, -1) + 1
    own = group.create_group(stem if number == 0 else f"{stem}_{number}")
    parts = weights.split()
    places = ["forward_layer/cell/vars", "backward_layer/cell/vars"] if both else ["cell/vars"]
    if len(parts) != len(places):
        raise InvalidArgument(f"layer '{name}' is a stack of {weights.layers}; split() it")
    for place, part in zip(places, parts):
        for i, array in enumerate(to_keras(part)):
            own.create_dataset(f"{place}/{i}", data=array)
        own[place].attrs["penstock.cell"] = weights.cell
    layer = _entry(kind, config)
    if not both:
        return layer
    inner = {**config, "name": f"{name}_forward"}
    backward = {**config, "name": f"{name}_backward", "go_backwards": True}
    wrapped = {"name": name, "merge_mode": "concat", "layer": {**layer, "config": inner}}
    wrapped["backward_layer"] = {**layer, "config": backward}
    return _entry("Bidirectional", wrapped)


def _entry(kind, config, module="keras.layers"):
    return {"module": module, "class_name": kind, "config": config, "registered_name": None}


def _archive(weights, layers, inputs):
    """Returns the bytes of a .keras file."""
    shape = [None, None, inputs]
    layers = [_entry("InputLayer", {"batch_shape": shape}), *layers]
    config = {"name": "penstock", "trainable": True, "layers": layers, "build_input_shape": shape}
    config = _entry("Sequential", config, "keras") | {"build_config": {"input_shape": shape}}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "3.0.0"}))
        archive.writestr("config.json", json.dumps(config))
        archive.writestr("model.weights.h5", weights)
    return buffer.getvalue()
