"""Weights and files of ONNX's operators RNN, GRU and LSTM.

``W`` is ``[directions, G H, I]``, ``R`` ``[directions, G H, H]``, ``B`` ``[directions, 2 G H]`` (the biases of W, then
those of R), ``P`` ``[directions, 3 H]`` (peepholes of i, o, f). The gate order is i, o, f, c for the LSTM and z, r, h
for the GRU.
"""

from __future__ import annotations

import os

import numpy as np

from .. import _core
from ..equations import _defined
from ..errors import BadInput, InvalidArgument
from ._weights import RecurrentWeights, base_of, inverse, of_custom_cell, refuse_others, reordered, take

# Index of our gate for each gate of the operator.
_ORDER = {"lstm": [0, 3, 1, 2], "gru": [1, 0, 2], "gru-before": [1, 0, 2], "elman": [0], "elman-relu": [0]}
_OPERATOR = {"lstm": "LSTM", "gru": "GRU", "gru-before": "GRU", "elman": "RNN", "elman-relu": "RNN"}
_PEEPHOLES = {"i": 0, "o": 1, "f": 2}  # their places in P
_DTYPES = {"f32": "<f4", "f64": "<f8"}
_SUFFIXES = {"forward": ("",), "reverse": ("_reverse",), "bidirectional": ("", "_reverse")}


def from_onnx(tensors, *, cell, direction="forward", source="onnx"):
    """Returns one layer from the arrays of a node.

    Args:
        tensors: {name: array} with the names ``W``, ``R`` and optionally ``B`` and ``P``.
        cell: ``"lstm"``, ``"gru"`` (``linear_before_reset=1``), ``"gru-before"`` (0), ``"elman"``, ``"elman-relu"``, or
            a cell of :mod:`penstock.variants`.
        direction: ``"forward"``, ``"reverse"`` or ``"bidirectional"``.
        source: Name of the source in error messages.
    """
    base, gates = base_of(cell, _ORDER)
    if direction not in _SUFFIXES:
        raise InvalidArgument(f"direction must be one of {', '.join(_SUFFIXES)}, not '{direction}'")
    seen = getattr(cell, "learnt", {})
    if set(seen) - set(_PEEPHOLES):
        raise InvalidArgument(f"cell must have no learnt vectors but the peepholes i, f and o, not {', '.join(seen)}")
    refuse_others(tensors, ["W", "R", "B", "P"] if seen else ["W", "R", "B"], source)
    order, suffixes = inverse(_ORDER[base]), _SUFFIXES[direction]
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
    weights = RecurrentWeights(base, named)
    if gates is None:
        return weights
    peepholes = []
    if seen:
        vectors = take(tensors, "P", source, len(suffixes), 3 * hidden).reshape(len(suffixes), 3, hidden)
        peepholes = [[each[_PEEPHOLES[name]] for name in seen] for each in vectors]
    return of_custom_cell(weights, cell, gates, peepholes)


def to_onnx(weights):
    """Returns the arrays ``W``, ``R`` and ``B`` of one layer for a node, and the attributes of the node.

    The result is ``(tensors, {"op_type": "LSTM", "direction": "forward", ...})``. To write a whole file, also of cells
    that ONNX does not have, use :func:`penstock.interchange.save` or :meth:`penstock.Recurrent.save_onnx`. Raises
    InvalidArgument for a cell without an operator or a stack of several layers.
    """
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


def read_onnx(path, *, name=None):
    """Reads the RNN, GRU and LSTM nodes of a file whose weights are stored in it, and returns {name: weights}.

    A layer has the name of its node. If a node has no name, or shares it, the layer has the name of its first output.
    Nodes with other activations, limits, peepholes or coupled gates have cells of their own.

    Args:
        path: The file.
        name: Reads only this layer.

    Raises:
        BadInput: The file is damaged, or has no such layer.
        Unsupported: A layer has no equivalent here.
        IoFailure: The file cannot be read.
    """
    layers = {}
    for title, cell, stored in _core.onnx_layers(os.fspath(path), name):
        tensors = {n: np.frombuffer(data, _DTYPES[kind]).reshape(shape) for n, (kind, shape, data) in stored.items()}
        cell = _defined(cell, os.fspath(path)) if cell.startswith("{") else cell
        layers[title] = RecurrentWeights(cell, tensors)
    return layers
