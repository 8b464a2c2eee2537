"""Weights of ONNX's operators RNN, GRU and LSTM, and files that have them.

``W`` ``[directions, G H, I]``, ``R`` ``[directions, G H, H]``, ``B`` ``[directions, 2 G H]``, the biases of W and R one
behind the other; gates stand as i, o, f, c in the LSTM and as z, r, h in the GRU. Files need the package onnx.
"""

from __future__ import annotations

import os

import numpy as np

from ..errors import BadInput, InvalidArgument, IoFailure, Unsupported
from ._weights import RecurrentWeights, inverse, reordered, take

# Ours, in the operator's order of gates.
_ORDER = {"lstm": [0, 3, 1, 2], "gru": [1, 0, 2], "gru-before": [1, 0, 2], "elman": [0], "elman-relu": [0]}
_OPERATOR = {"lstm": "LSTM", "gru": "GRU", "gru-before": "GRU", "elman": "RNN", "elman-relu": "RNN"}
_ACTIVATIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
_SUFFIXES = {"forward": ("",), "reverse": ("_reverse",), "bidirectional": ("", "_reverse")}


def from_onnx(tensors, *, cell, direction="forward", source="onnx"):
    """One layer from the arrays ``W``, ``R`` and, if there is one, ``B`` of a node, by these names.

    Args:
        tensors: The arrays by their names.
        cell: ``"lstm"``, ``"gru"`` (``linear_before_reset=1``), ``"gru-before"`` (0), ``"elman"`` or ``"elman-relu"``.
        direction: ``"forward"``, ``"reverse"`` or ``"bidirectional"``.
    """
    if cell not in _ORDER:
        raise InvalidArgument(f"cell must be one of {', '.join(_ORDER)}, not '{cell}'")
    if direction not in _SUFFIXES:
        raise InvalidArgument(f"direction must be one of {', '.join(_SUFFIXES)}, not '{direction}'")
    order, suffixes = inverse(_ORDER[cell]), _SUFFIXES[direction]
    recurrent = take(tensors, "R", source, len(suffixes), None, None)
    rows, hidden = recurrent.shape[1:]
    if rows != len(order) * hidden:
        raise BadInput(f"{source}: tensor 'R' has {rows} rows and {hidden} columns, expected [directions, {len(order)} H, H]")
    inputs = take(tensors, "W", source, len(suffixes), rows, None)
    bias = take(tensors, "B", source, len(suffixes), 2 * rows) if tensors.get("B") is not None else None
    named = {}
    for i, suffix in enumerate(suffixes):
        named[f"weight_ih_l0{suffix}"] = reordered(inputs[i], order, axis=0)
        named[f"weight_hh_l0{suffix}"] = reordered(recurrent[i], order, axis=0)
        if bias is not None:
            named[f"bias_ih_l0{suffix}"] = reordered(bias[i][:rows], order)
            named[f"bias_hh_l0{suffix}"] = reordered(bias[i][rows:], order)
    return RecurrentWeights(cell, named)


def to_onnx(weights):
    """The arrays of one layer, in one direction or both, for a node: ``W``, ``R`` and ``B``, and its attributes beside
    them, ``(tensors, {"op_type": "LSTM", "direction": "forward", ...})``. For a whole file, with cells that are no
    operators of ONNX too, see :func:`penstock.interchange.save` and :meth:`penstock.Recurrent.save_onnx`."""
    if weights.cell not in _ORDER or weights.heads != 1:
        raise InvalidArgument(f"ONNX has no operator of the cell '{weights.cell}' with {weights.heads} heads")
    if weights.layers != 1:
        raise InvalidArgument(f"a node of ONNX is one layer, not {weights.layers}; split() them")
    order = _ORDER[weights.cell]
    parts = [[reordered(array, order, axis=0) for array in weights.layer(0, suffix)] for suffix in weights.suffixes]
    inputs, recurrent, bias_ih, bias_hh = (np.stack(each) for each in zip(*parts))
    attributes = {"op_type": _OPERATOR[weights.cell], "direction": weights.direction, "hidden_size": weights.hidden_size}
    if weights.cell == "elman-relu":
        attributes["activations"] = ["Relu"] * len(parts)
    if attributes["op_type"] == "GRU":
        attributes["linear_before_reset"] = int(weights.cell == "gru")
    return {"W": inputs, "R": recurrent, "B": np.concatenate([bias_ih, bias_hh], axis=1)}, attributes


def _package():
    try:
        import onnx
    except ImportError as error:
        raise Unsupported("files of ONNX need the package onnx: pip install 'penstock[onnx]'") from error
    return onnx


def _constants(graph, onnx):
    """Arrays that are stored in the graph, by their names, made when they are asked for."""
    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            found[node.output[0]] = node.attribute[0].t
    return lambda name: onnx.numpy_helper.to_array(found[name]) if name in found else None


def _cell_of(node, attributes, source):
    """The cell that a node is; an error for what none of ours computes."""
    directions = 2 if attributes.get("direction", b"forward") == b"bidirectional" else 1
    usual = _ACTIVATIONS[node.op_type] * directions
    activations = [name.decode() for name in attributes.get("activations", [])] or usual
    relu = node.op_type == "RNN" and activations == ["Relu"] * directions
    if activations != usual and not relu:
        raise Unsupported(f"{source} has the activations {', '.join(activations)}, expected {', '.join(usual)}")
    for name, what in (("clip", "limits its gates"), ("input_forget", "couples its gates")):
        if attributes.get(name):
            raise Unsupported(f"{source} {what} ({name}), which no cell here does")
    if len(node.input) > 7 and node.input[7]:
        raise Unsupported(f"{source} has peepholes (P), which no cell here has")
    if node.op_type == "GRU":
        return "gru" if attributes.get("linear_before_reset") else "gru-before"
    return "lstm" if node.op_type == "LSTM" else "elman-relu" if relu else "elman"


def _layer(node, constant, onnx, source):
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    cell = _cell_of(node, attributes, source)
    tensors = {}
    for name, i in (("W", 1), ("R", 2), ("B", 3)):
        given = node.input[i] if len(node.input) > i else ""
        if not given and name == "B":
            continue
        tensors[name] = constant(given)
        if tensors[name] is None:
            raise Unsupported(f"{source}: {name} is '{given}', which is computed and not stored in the file")
    direction = attributes.get("direction", b"forward").decode()
    if direction not in _SUFFIXES:
        raise BadInput(f"{source} has the direction '{direction}', expected {', '.join(_SUFFIXES)}")
    return from_onnx(tensors, cell=cell, direction=direction, source=source)


def read_onnx(path):
    """The layers of a file, {name of the node: weights}: nodes RNN, GRU and LSTM of the graph whose weights are stored."""
    onnx, path = _package(), os.fspath(path)
    try:
        graph = onnx.load(path).graph
    except FileNotFoundError as error:
        raise IoFailure(f"{path}: cannot read: there is no such file") from error
    except IsADirectoryError as error:
        raise IoFailure(f"{path}: cannot read: it is a folder") from error
    except Exception as error:  # of Google's library, which has its own for what is no message
        raise BadInput(f"{path}: no ONNX file: {(str(error).splitlines() or [type(error).__name__])[0]}") from error
    constant, layers = _constants(graph, onnx), {}
    for node in graph.node:
        if node.op_type not in _ACTIVATIONS or node.domain:
            continue
        name = node.name or (node.output[0] if node.output else "")
        layers[name] = _layer(node, constant, onnx, f"{path}: {node.op_type} '{name}'")
    if not layers:
        kinds = ", ".join(sorted({node.op_type for node in graph.node})[:5]) or "none"
        raise BadInput(f"{path}: there is no RNN, GRU or LSTM in it; its operators are {kinds}")
    return layers


def write_onnx(path, weights):
    """A stack of any cell as a file by itself."""
    weights.to_numpy("float32").save_onnx(path)
