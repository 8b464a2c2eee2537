"""Weights of Keras' SimpleRNN, GRU and LSTM, and its files: ``.keras``, ``.weights.h5``, and the HDF5 files of Keras 2.

``kernel`` ``[I, G H]``, ``recurrent_kernel`` ``[H, G H]``, ``bias`` ``[G H]``, of a GRU with ``reset_after`` ``[2, G
H]``; gates stand as i, f, c, o in the LSTM and as z, r, h in the GRU. Files need the package h5py, and nothing of
Keras.
"""

from __future__ import annotations

import io
import json
import re
import zipfile

import numpy as np

from ..errors import BadInput, InvalidArgument, IoFailure, Unsupported
from ._weights import RecurrentWeights, inverse, reordered, shape_text, take

_ORDER = {"lstm": [0, 1, 2, 3], "gru": [1, 0, 2], "gru-before": [1, 0, 2], "elman": [0], "elman-relu": [0]}
_CLASSES = {"LSTM": "lstm", "GRU": "gru", "SimpleRNN": "elman"}
_MOST_BYTES = 16 << 30  # of what a .keras file is decompressed to


def from_keras(arrays, *, cell=None, source="keras"):
    """One layer from what ``layer.get_weights()`` returns: kernel, recurrent kernel, and the bias if there is one.

    `cell` is found by the shapes; say ``"elman-relu"`` for a SimpleRNN of that activation.
    """
    tensors = dict(zip(("kernel", "recurrent_kernel", "bias"), arrays))
    if len(arrays) not in (2, 3):
        raise BadInput(f"{source}: there are {len(arrays)} arrays, expected kernel, recurrent kernel and, maybe, bias")
    recurrent = take(tensors, "recurrent_kernel", source, None, None)
    hidden, columns = recurrent.shape
    cell = cell or _cell_by_shape(hidden, columns, tensors, source)
    if cell not in _ORDER:
        raise InvalidArgument(f"cell must be one of {', '.join(_ORDER)}, not '{cell}'")
    order = _ORDER[cell]
    if columns != len(order) * hidden:
        raise BadInput(
            f"{source}: tensor 'recurrent_kernel' is {shape_text(recurrent.shape)}, expected [H, {len(order)} H]"
        )
    named = {
        "weight_ih_l0": reordered(take(tensors, "kernel", source, None, columns), order).T.copy(),
        "weight_hh_l0": reordered(recurrent, order).T.copy(),
    }
    if cell == "gru" and "bias" in tensors:
        bias = reordered(take(tensors, "bias", source, 2, columns), order)
        named |= {"bias_ih_l0": bias[0].copy(), "bias_hh_l0": bias[1].copy()}
    elif "bias" in tensors:
        named["bias_ih_l0"] = reordered(take(tensors, "bias", source, columns), order)
    return RecurrentWeights(cell, named)


def _cell_by_shape(hidden, columns, tensors, source):
    gates = columns // hidden if hidden and columns % hidden == 0 else 0
    if gates == 3:
        # Without a bias nothing tells the two apart; reset_after is the default.
        return "gru-before" if np.ndim(tensors.get("bias", np.zeros((2, 1)))) == 1 else "gru"
    if gates not in (1, 4):
        raise BadInput(
            f"{source}: tensor 'recurrent_kernel' is [{hidden}, {columns}], which are 1, 3 or 4 gates of no size"
        )
    return "lstm" if gates == 4 else "elman"


def to_keras(weights):
    """The arrays for ``layer.set_weights()``: of a GRU with reset_after for ``gru``, without for ``gru-before``."""
    if weights.cell not in _ORDER or weights.heads != 1:
        raise InvalidArgument(f"Keras has no layer of the cell '{weights.cell}' with {weights.heads} heads")
    order = inverse(_ORDER[weights.cell])
    weight_ih, weight_hh, bias_ih, bias_hh = weights.single_layer("Keras")
    kernel, recurrent = (reordered(np.ascontiguousarray(m.T), order) for m in (weight_ih, weight_hh))
    bias = np.stack([bias_ih, bias_hh]) if weights.cell == "gru" else bias_ih + bias_hh
    return [kernel, recurrent, reordered(bias, order)]


def _h5py():
    try:
        import h5py
    except ImportError as error:
        raise Unsupported("files of Keras need the package h5py: pip install 'penstock[keras]'") from error
    return h5py


def _open(file, source):
    """An HDF5 file from a path or from bytes in memory."""
    try:
        return _h5py().File(file, "r")
    except FileNotFoundError as error:
        raise IoFailure(f"{source}: cannot read: there is no such file") from error
    except OSError as error:
        raise BadInput(f"{source}: no HDF5 file") from error


def _arrays(group, source):
    """The data sets of a group in the order of their numbers ("0", "1", ...), or by Keras 2's names."""
    h5py = _h5py()
    names = list(group)
    old = ["kernel:0", "recurrent_kernel:0", "bias:0"]
    if set(names) <= set(old):
        names = [name for name in old if name in group]
    elif all(name.isdigit() for name in names):
        names.sort(key=int)
    arrays = []
    for name in names:
        item = group.get(name, getlink=False)
        if not isinstance(item, h5py.Dataset) or item.dtype.kind != "f" or item.external or item.is_virtual:
            raise BadInput(f"{source}: '{group.name}/{name}' is no array of floats in the file itself")
        arrays.append(item[()])
    return arrays


def _cells(group, found, h5py):
    """Groups in which a cell keeps its variables: "cell/vars" of Keras 3, those with a recurrent kernel of Keras 2."""
    for name in group:
        # Files may point into other files; those are not followed.
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            continue
        item = group[name]
        if not isinstance(item, h5py.Group):
            continue
        if "recurrent_kernel:0" in item or (name == "vars" and group.name.endswith("/cell") and len(item) > 1):
            found.append(item)
        else:
            _cells(item, found, h5py)
    return found


def _place(path):
    """Where a layer lies, what it is called there, and its direction: "_reverse", "" or, if it has one only, None.

    Keras 3 has "/layers/lstm_1/cell/vars" and "/layers/bidirectional/backward_layer/cell/vars", named by class and
    number; Keras 2 "/model_weights/encoder/encoder/lstm_cell" and "/model_weights/both/both/backward_lstm/lstm_cell",
    by name.
    """
    parts = path.strip("/").split("/")
    if parts[-1] == "vars":
        parts = parts[:-2]
        suffix = {"forward_layer": "", "backward_layer": "_reverse"}.get(parts[-1])
        parts = parts if suffix is None else parts[:-1]
        return "/".join(parts), ".".join(part for part in parts if part != "layers"), suffix
    parts = parts[1:] if parts[0] == "model_weights" else parts
    reverse = any(part.startswith("backward_") for part in parts[1:])
    suffix = "_reverse" if reverse else "" if any(part.startswith("forward_") for part in parts[1:]) else None
    return parts[0], parts[0], suffix


def _snake_case(name):
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)).lower()


def _configurations(config, folder=""):
    """The recurrent layers that a model's configuration names, in its order, by where they lie in the file of Keras
    3."""
    found, counts = {}, {}
    own = config.get("config") if isinstance(config, dict) else None
    layers = own.get("layers") if isinstance(own, dict) else None
    for layer in layers if isinstance(layers, list) else []:
        kind, inner = (layer.get("class_name"), layer.get("config")) if isinstance(layer, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(inner, dict):
            continue
        stem = _snake_case(kind)
        number = counts[stem] = counts.get(stem, -1) + 1
        place = f"{folder}layers/{stem}" + (f"_{number}" if number else "")
        if kind in _CLASSES or kind == "Bidirectional":
            found[place] = {"class": kind, "config": inner}
        else:
            found |= _configurations(layer, place + "/")
    return found


def _plain(entry, name, source):
    """The cell of a configured layer; an error for what these layers do not compute."""
    kind, config = entry["class"], entry["config"]
    cell, activation = _CLASSES[kind], config.get("activation", "tanh")
    if kind == "GRU" and config.get("reset_after", True) is False:
        cell = "gru-before"
    if kind == "SimpleRNN" and activation == "relu":
        return "elman-relu"
    if activation != "tanh" or config.get("recurrent_activation", "sigmoid") != "sigmoid":
        used = f"{activation}, {config.get('recurrent_activation', 'sigmoid')}"
        raise Unsupported(f"{source}: layer '{name}' has the activations {used}, expected tanh and sigmoid")
    return cell


def _read_group(file, source, configurations):
    """{name of the layer: weights}, both directions of a Bidirectional as one."""
    parts, titles = {}, {}
    for group in _cells(file, [], _h5py()):
        place, titles[place], suffix = _place(group.name)
        parts.setdefault(place, {})[suffix] = _arrays(group, f"{source}: {group.name}")
    if not parts:
        raise BadInput(f"{source}: there is no recurrent layer in it")
    if not parts.keys() & configurations.keys():  # Keras 2 calls them by their names
        configurations = {entry["config"].get("name"): entry for entry in configurations.values()}
    order = [place for place in configurations if place in parts] + [p for p in parts if p not in configurations]
    layers = {}
    for place in order:
        entry = configurations.get(place)
        title = titles[place] if entry is None else entry["config"].get("name", titles[place])
        cell = None if entry is None else _configured_cell(entry, title, source)
        layers[title] = _joined(
            {s: from_keras(arrays, cell=cell, source=f"{source}: {title}") for s, arrays in parts[place].items()}
        )
    return layers


def _configured_cell(entry, title, source):
    if entry["class"] != "Bidirectional":
        if entry["config"].get("go_backwards", False):
            raise Unsupported(f"{source}: layer '{title}' goes backwards, and its outputs stay in that order")
        return _plain(entry, title, source)
    if entry["config"].get("merge_mode", "concat") != "concat":
        raise Unsupported(f"{source}: layer '{title}' merges its directions other than by concat")
    inner = entry["config"].get("layer")
    if (
        not isinstance(inner, dict)
        or inner.get("class_name") not in _CLASSES
        or not isinstance(inner.get("config"), dict)
    ):
        raise Unsupported(f"{source}: layer '{title}' wraps something else than a SimpleRNN, GRU or LSTM")
    return _plain({"class": inner["class_name"], "config": inner["config"]}, title, source)


def _joined(directions):
    if list(directions) == [None]:
        return directions[None]
    named = {}
    for suffix, weights in directions.items():
        named |= {name + (suffix or ""): array for name, array in weights.tensors.items()}
    return RecurrentWeights(next(iter(directions.values())).cell, named)


def read_keras(path):
    """The recurrent layers of a ``.keras``, ``.weights.h5`` or ``.h5`` file by their names, in the order of the
    file."""
    path = str(path)
    if not path.endswith(".keras"):
        with _open(path, path) as file:
            text = file.attrs.get("model_config", "{}")
            return _read_group(file, path, _configurations(_json(text, path)))
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {info.filename: info.file_size for info in archive.infolist()}
            if "model.weights.h5" not in sizes or "config.json" not in sizes:
                raise BadInput(f"{path}: no model of Keras: it has no config.json or no model.weights.h5")
            if sizes["model.weights.h5"] + sizes["config.json"] > _MOST_BYTES:
                raise BadInput(f"{path}: its weights would take {sizes['model.weights.h5']} bytes")
            config = _json(archive.read("config.json"), path)
            content = archive.read("model.weights.h5")
    except FileNotFoundError as error:
        raise IoFailure(f"{path}: cannot read: there is no such file") from error
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise BadInput(f"{path}: no model of Keras: no sound zip archive") from error
    with _open(io.BytesIO(content), path) as file:
        return _read_group(file, path, _configurations(config))


def _json(text, path):
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise BadInput(f"{path}: its configuration is no JSON") from error


def write_keras(path, layers):
    """Writes layers as a sequential model: ``.keras``, or ``.weights.h5`` for ``load_weights`` of such a model.

    Args:
        layers: {name: weights}, each of one layer in one or both directions; all of them return sequences.
    """
    path, h5py = str(path), _h5py()
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
    with open(path, "wb") as file:
        file.write(content)


def _write_layer(group, name, weights, counts):
    """Adds one layer's arrays, and returns its configuration."""
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
    layer = {"module": "keras.layers", "class_name": kind, "config": config, "registered_name": None}
    if not both:
        return layer
    inner = {**config, "name": f"{name}_forward"}
    backward = {**config, "name": f"{name}_backward", "go_backwards": True}
    wrapped = {"name": name, "merge_mode": "concat", "layer": {**layer, "config": inner}}
    wrapped["backward_layer"] = {**layer, "config": backward}
    return {"module": "keras.layers", "class_name": "Bidirectional", "config": wrapped, "registered_name": None}


def _archive(weights, layers, inputs):
    """The bytes of a .keras file."""
    shape = [None, None, inputs]
    entry = {
        "module": "keras.layers",
        "class_name": "InputLayer",
        "config": {"batch_shape": shape},
        "registered_name": None,
    }
    config = {
        "module": "keras",
        "class_name": "Sequential",
        "config": {"name": "penstock", "trainable": True, "layers": [entry, *layers], "build_input_shape": shape},
        "registered_name": None,
        "build_config": {"input_shape": shape},
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "3.0.0"}))
        archive.writestr("config.json", json.dumps(config))
        archive.writestr("model.weights.h5", weights)
    return buffer.getvalue()
