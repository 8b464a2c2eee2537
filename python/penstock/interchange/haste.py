"""Weights of haste's GRU and LSTM layers (``haste_pytorch``, ``haste_tf``).

``kernel`` is ``[I, G H]``, ``recurrent_kernel`` ``[H, G H]``, ``bias`` ``[G H]``; the GRU also has ``recurrent_bias``
``[G H]``. The gate order is z, r, h for the GRU (reset after the product), and i, g, f, o for the LSTM. Zoneout is not
a weight: a layer made with it computes something else in evaluation, for which there is no equivalent here.
"""

from __future__ import annotations

import numpy as np

from ..errors import BadInput, InvalidArgument
from ._weights import RecurrentWeights, inverse, refuse_others, reordered, take, whole_number_of

# Index of haste's gate for each of ours: r is their gate 1.
_ORDER = {"gru": [1, 0, 2], "lstm": [0, 2, 1, 3]}


def from_haste(tensors, *, source="haste"):
    """Returns a layer from its tensors: a GRU if there is a ``recurrent_bias``, otherwise an LSTM."""
    cell = "gru" if "recurrent_bias" in tensors else "lstm"
    order = _ORDER[cell]
    recurrent = take(tensors, "recurrent_kernel", source, None, None)
    hidden = recurrent.shape[0]
    if recurrent.shape[1] != len(order) * hidden:
        raise BadInput(
            f"{source}: tensor 'recurrent_kernel' is [{hidden}, {recurrent.shape[1]}], expected [{hidden}, "
            f"{len(order) * hidden}] of a {cell.upper()}"
        )
    kernel = take(tensors, "kernel", source, None, len(order) * hidden)
    whole_number_of(kernel.shape[0], 1, "kernel", source, "rows")
    named = {
        "weight_ih_l0": reordered(kernel, order).T.copy(),
        "weight_hh_l0": reordered(recurrent, order).T.copy(),
        "bias_ih_l0": reordered(take(tensors, "bias", source, len(order) * hidden), order),
    }
    known = ["kernel", "recurrent_kernel", "bias"]
    if cell == "gru":
        named["bias_hh_l0"] = reordered(take(tensors, "recurrent_bias", source, len(order) * hidden), order)
        known.append("recurrent_bias")
    refuse_others(tensors, known, source)
    return RecurrentWeights(cell, named)


def to_haste(weights):
    """Returns the tensors for a layer of haste. Raises InvalidArgument for other cells or several heads."""
    if weights.cell not in _ORDER or weights.heads != 1:
        raise InvalidArgument(f"haste has GRU and LSTM layers of one head, not '{weights.cell}' of {weights.heads}")
    order = inverse(_ORDER[weights.cell])
    weight_ih, weight_hh, bias_ih, bias_hh = weights.single_layer("haste")
    tensors = {
        "kernel": reordered(np.ascontiguousarray(weight_ih.T), order),
        "recurrent_kernel": reordered(np.ascontiguousarray(weight_hh.T), order),
    }
    if weights.cell == "gru":
        return tensors | {"bias": reordered(bias_ih, order), "recurrent_bias": reordered(bias_hh, order)}
    return tensors | {"bias": reordered(bias_ih + bias_hh, order)}
