"""Weights of haste's GRU, LSTM and IndRNN layers (``haste_pytorch``, ``haste_tf``).

``kernel`` is ``[I, G H]``, ``recurrent_kernel`` ``[H, G H]``, ``bias`` ``[G H]``; the GRU also has ``recurrent_bias``
``[G H]``. The gate order is z, r, h for the GRU (reset after the product), and i, g, f, o for the LSTM. An IndRNN has
``recurrent_scale`` ``[H]`` and becomes an Elman network with H heads. Zoneout is not a weight: give ``zoneout=`` for a
layer made with it, which computes its expectation in evaluation.
"""

from __future__ import annotations

import numpy as np

from .. import variants
from ..errors import BadInput, InvalidArgument
from ._weights import RecurrentWeights, inverse, refuse_others, reordered, take, whole_number_of

# Index of haste's gate for each of ours: r is their gate 1.
_ORDER = {"gru": [1, 0, 2], "lstm": [0, 2, 1, 3]}


def from_haste(tensors, *, zoneout=0.0, source="haste"):
    """Returns a layer from its tensors.

    It is a GRU if there is a ``recurrent_bias``, an IndRNN if there is a ``recurrent_scale``, otherwise an LSTM.

    Args:
        tensors: {name: array}.
        zoneout: The probability with which the layer was made.
        source: Name of the source in error messages.
    """
    if "recurrent_scale" in tensors:
        return _from_indrnn(tensors, zoneout, source)
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
    return RecurrentWeights({"lstm": variants.lstm, "gru": variants.gru}[cell](zoneout=zoneout), named)


def _from_indrnn(tensors, zoneout, source):
    if zoneout:
        raise InvalidArgument(f"zoneout must be 0 for an IndRNN of haste, which has none, not {zoneout!r}")
    scale = take(tensors, "recurrent_scale", source, None)
    named = {
        "weight_ih_l0": take(tensors, "kernel", source, None, len(scale)).T.copy(),
        "weight_hh_l0": scale.reshape(-1, 1, 1) if len(scale) > 1 else scale.reshape(1, 1),
        "bias_ih_l0": take(tensors, "bias", source, len(scale)),
    }
    refuse_others(tensors, ["kernel", "recurrent_scale", "bias"], source)
    return RecurrentWeights("elman", named)


def to_haste(weights):
    """Returns the tensors for a layer of haste. Raises InvalidArgument for layers that haste does not have."""
    if weights.cell == "elman" and weights.heads == weights.hidden_size:
        weight_ih, weight_hh, bias_ih, bias_hh = weights.single_layer("haste")
        kernel = np.ascontiguousarray(weight_ih.T)
        return {"kernel": kernel, "recurrent_scale": weight_hh.ravel(), "bias": bias_ih + bias_hh}
    if weights.cell not in _ORDER or weights.heads != 1:
        raise InvalidArgument(
            f"haste has GRU and LSTM layers of one head, and 'elman' of hidden_size heads (IndRNN), not '{weights.cell}' "
            f"of {weights.heads}"
        )
    order = inverse(_ORDER[weights.cell])
    weight_ih, weight_hh, bias_ih, bias_hh = weights.single_layer("haste")
    tensors = {
        "kernel": reordered(np.ascontiguousarray(weight_ih.T), order),
        "recurrent_kernel": reordered(np.ascontiguousarray(weight_hh.T), order),
    }
    if weights.cell == "gru":
        return tensors | {"bias": reordered(bias_ih, order), "recurrent_bias": reordered(bias_hh, order)}
    return tensors | {"bias": reordered(bias_ih + bias_hh, order)}
