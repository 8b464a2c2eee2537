"""Weights of ``minGRU`` and ``minLSTM`` of the package minGRU-pytorch.

``to_hidden_and_gate.weight`` ``[2 H, I]`` has the candidate and the gate, ``to_hidden_and_f_i_gate.weight``
``[3 H, I]`` the candidate, forget and input gate. There are no biases, and candidates are positive. Layers with an
expansion also have a projection ``to_out.weight`` ``[I, H]``.
"""

from __future__ import annotations

import numpy as np

from ..errors import BadInput, InvalidArgument
from ._weights import RecurrentWeights, inverse, refuse_others, reordered, take, whole_number_of

GRU, LSTM, OUT = "to_hidden_and_gate.weight", "to_hidden_and_f_i_gate.weight", "to_out.weight"
# Index of the package's gate for each of ours: the candidate is first there, last here.
_FORMS = {GRU: ("mingru-log", [1, 0]), LSTM: ("minlstm-log", [1, 2, 0])}


def from_lucidrains(tensors, *, source="minGRU-pytorch"):
    """Returns a layer from its ``state_dict``. A projection becomes ``extra["to_out.weight"]``."""
    name = GRU if GRU in tensors else LSTM
    if name not in tensors:
        raise BadInput(f"{source}: there is neither '{GRU}' nor '{LSTM}'")
    cell, order = _FORMS[name]
    matrix = take(tensors, name, source, None, None)
    hidden = whole_number_of(matrix.shape[0], len(order), name, source, "rows")
    extra = {}
    if OUT in tensors:
        extra[OUT] = take(tensors, OUT, source, matrix.shape[1], hidden)
    refuse_others(tensors, [name, OUT], source)
    return RecurrentWeights(cell, {"weight_ih_l0": reordered(matrix, order, axis=0)}, extra)


def to_lucidrains(weights):
    """Returns a ``state_dict`` for a layer of the package.

    Raises InvalidArgument for other cells, and for biases that are not zero: the package has no biases.
    """
    for name, (cell, order) in _FORMS.items():
        if weights.cell != cell:
            continue
        weight_ih, _, *biases = weights.single_layer("minGRU-pytorch")
        if any(np.any(bias) for bias in biases):
            raise InvalidArgument("layers of minGRU-pytorch have no biases, and those of these weights are not zero")
        return {name: reordered(weight_ih, inverse(order), axis=0), **weights.extra}
    raise InvalidArgument(f"minGRU-pytorch has the cells mingru-log and minlstm-log, not '{weights.cell}'")


def to_module(weights):
    """Returns a PyTorch module ``(x [B, T, I], hx=None) -> (y, last state)``, with the projection if there is one."""
    from ._modules import Projected

    return Projected(weights.to_torch(), weights.extra.get(OUT))
