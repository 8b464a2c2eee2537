"""Weights as ``torch.nn.RNN``, ``GRU`` and ``LSTM`` have them, and everything that is named like them."""

from __future__ import annotations

import re

from ..errors import BadInput
from ._weights import GATES, RecurrentWeights, shape_text

_FIRST = re.compile(r"(.*?)weight_ih_l0(_reverse)?")
_MEMBER = re.compile(r"(weight_ih|weight_hh|bias_ih|bias_hh)_l\d+(_reverse)?")


def _cell_by_shape(tensors, prefix, source):
    """4, 3 or 1 gates say which cell it is, if it is one of torch.nn's."""
    end = "l0" if prefix + "weight_ih_l0" in tensors else "l0_reverse"
    rows = tensors[f"{prefix}weight_ih_{end}"].shape[0]
    matrix = tensors.get(f"{prefix}weight_hh_{end}")
    if matrix is None:
        raise BadInput(
            f"{source}: there is no tensor '{prefix}weight_hh_{end}'; of minGRU and minLSTM say which, by cell="
        )
    hidden = matrix.shape[-1] * (matrix.shape[0] if matrix.ndim == 3 else 1)
    cell = {4: "lstm", 3: "gru", 1: "elman"}.get(rows // hidden if hidden and rows % hidden == 0 else 0)
    if cell is None:
        raise BadInput(
            f"{source}: '{prefix}weight_ih_{end}' has {rows} rows and '{prefix}weight_hh_{end}' is "
            f"{shape_text(matrix.shape)}, which are 1, 3 or 4 gates of no hidden size"
        )
    return cell


def from_torch(tensors, *, prefix="", cell=None, source="state_dict"):
    """One stack of a ``state_dict``, whose names begin with `prefix` ("encoder.").

    Args:
        tensors: Arrays, or tensors of the CPU, by their names.
        cell: Which cell it is; None: by its number of gates, the LSTM, the GRU with the reset after the product, or the
            tanh network (``"elman-relu"`` and ``"slstm"`` look like others).
    """
    own = {n.removeprefix(prefix): a for n, a in tensors.items() if n.startswith(prefix)}
    own = {name: array for name, array in own.items() if _MEMBER.fullmatch(name)}
    if not any(name.startswith("weight_ih_l0") for name in own):
        raise BadInput(f"{source}: there is no tensor '{prefix}weight_ih_l0'")
    cell = cell or _cell_by_shape(tensors, prefix, source)
    if cell not in GATES:
        raise BadInput(f"{source}: cell must be one of {', '.join(GATES)}, not '{cell}'")
    try:
        return RecurrentWeights(cell, own)
    except BadInput as error:
        raise BadInput(f"{source}: {prefix or 'stack'}: {error}") from None


def to_torch(weights, *, prefix=""):
    """Arrays for ``load_state_dict`` of a module whose names begin with `prefix`."""
    return {prefix + name: array for name, array in weights.tensors.items()}


def prefixes(tensors):
    """Where stacks begin among tensors that are named so."""
    found = [match[1] for match in map(_FIRST.fullmatch, tensors) if match]
    return list(dict.fromkeys(found))
