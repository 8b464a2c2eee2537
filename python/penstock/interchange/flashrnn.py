"""Weights of FlashRNN's functions.

``R`` is ``[G, heads, D, D]`` (layout "GHDP"; the last axis is that of h_{t-1}), ``b`` is ``[G, heads, D]`` (layout
"GHD"). ``W`` ``[G H, I]`` is the input projection of the caller, in the gate order of the function.

LSTM and sLSTM have the gates i, f, z, o; the tanh network has one. For the GRU, ``R`` has three gates (the reset
product, r, z) and ``W`` has three (r, z, n). Its ``b`` has four: the first belongs to ``R`` only, the last to ``W``
only.
"""

from __future__ import annotations

import numpy as np

from ..errors import BadInput, InvalidArgument
from ._weights import RecurrentWeights, refuse_others, take

#: By function of FlashRNN: the cell, and the number of gates of R, W and b.
_FUNCTIONS = {
    "lstm": ("lstm", 4, 4, 4),
    "slstm": ("slstm", 4, 4, 4),
    "gru": ("gru", 3, 3, 4),
    "elman": ("elman", 1, 1, 1),
}
#: By cell: the function of FlashRNN.
FUNCTION_OF = {cell: function for function, (cell, *_) in _FUNCTIONS.items()}


def from_flashrnn(tensors, *, function, source="FlashRNN"):
    """Returns a layer from the arrays "R", "b" and "W".

    Args:
        tensors: {name: array}.
        function: The function that FlashRNN was called with: ``"lstm"``, ``"slstm"``, ``"gru"`` or ``"elman"``.
        source: Name of the source in error messages.
    """
    if function not in _FUNCTIONS:
        raise InvalidArgument(f"function must be one of {', '.join(_FUNCTIONS)}, not '{function}'")
    cell, of_r, of_w, of_b = _FUNCTIONS[function]
    recurrent = take(tensors, "R", source, of_r, None, None, None)
    _, heads, size, previous = recurrent.shape
    if size != previous or heads * size == 0:
        raise BadInput(f"{source}: tensor 'R' is {list(recurrent.shape)}, expected [{of_r}, heads, D, D]")
    hidden = heads * size
    bias = take(tensors, "b", source, of_b, heads, size).reshape(of_b, hidden)
    weight_ih = take(tensors, "W", source, of_w * hidden, None)
    refuse_others(tensors, ["R", "b", "W"], source)
    named = {"weight_ih_l0": weight_ih}
    if cell == "gru":
        recurrent = recurrent[[1, 2, 0]]  # ours: r, z, n
        zeros = np.zeros_like(bias[0])
        named["bias_ih_l0"] = np.concatenate([bias[1], bias[2], bias[3]])
        named["bias_hh_l0"] = np.concatenate([zeros, zeros, bias[0]])
    else:
        named["bias_ih_l0"] = bias.reshape(-1)
    # [heads, G D, D], or [G D, D] with one head
    matrix = recurrent.transpose(1, 0, 2, 3).reshape(heads, of_r * size, size)
    named["weight_hh_l0"] = np.ascontiguousarray(matrix if heads > 1 else matrix[0])
    return RecurrentWeights(cell, named)


def to_flashrnn(weights):
    """Returns the arrays "R", "b" and "W" for a layer of FlashRNN."""
    if weights.cell not in FUNCTION_OF:
        raise InvalidArgument(f"FlashRNN has {', '.join(_FUNCTIONS)}, not '{weights.cell}'")
    weight_ih, weight_hh, bias_ih, bias_hh = weights.single_layer("FlashRNN")
    heads, gates = weights.heads, weights.gates
    size = weights.hidden_size // heads
    recurrent = weight_hh.reshape(heads, gates, size, size).transpose(1, 0, 2, 3)
    bias = (bias_ih + bias_hh).reshape(gates, heads, size)
    if weights.cell == "gru":
        recurrent = recurrent[[2, 0, 1]]
        reset, new = (b.reshape(gates, heads, size)[2] for b in (bias_hh, bias_ih))
        bias = np.stack([reset, bias[0], bias[1], new])
    return {"R": np.ascontiguousarray(recurrent), "b": bias, "W": weight_ih}
