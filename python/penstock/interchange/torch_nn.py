"""Weights with the names of ``torch.nn.RNN``, ``GRU`` and ``LSTM``, and of ``RNNCell``, ``GRUCell`` and ``LSTMCell``."""

from __future__ import annotations

import re

import numpy as np

from ..errors import BadInput
from ._weights import GATES, RecurrentWeights, is_cell, shape_text

_NAME = r"(?:weight|bias)_[ih]h"
_PLAIN = rf"{_NAME}(?:_l\d+(?:_reverse)?)?"  # cells such as LSTMCell have no layer in their names
_MEMBER = re.compile(_PLAIN)
# All members of a recurrent layer: also projections, and parts from which a weight is computed.
_ANY = re.compile(
    r"parametrizations\.\w+_l\d+(?:_reverse)?\.[\w.]+|[A-Za-z]\w*_l\d+(?:_reverse)?(?:_[a-z]+)?"
    rf"|parametrizations\.{_NAME}\.[\w.]+|{_NAME}_[a-z]+"
)
_FIRST = re.compile(r"((?:.*\.)?)(?:parametrizations\.)?weight_[ih]h(?:_l0(?:_reverse)?)?(?:_[a-z]+|\.[\w.]+)?")
# Names of the norm and the direction of a weight, for both of PyTorch's implementations of weight_norm.
_NORMED = [
    (re.compile(rf"((?:.*\.)?{_PLAIN})_g"), "{}_v"),
    (re.compile(rf"((?:.*\.)?)parametrizations\.({_PLAIN})\.original0"), "{}parametrizations.{}.original1"),
]


def prefix_of(name):
    """Returns the prefix of a layer if this is the name of its first matrix or of a part of it; otherwise None."""
    match = _FIRST.fullmatch(name)
    return match[1] if match else None


def noted_cells(state_dict):
    """Returns {name of a module: cell that it evaluates}, as modules of penstock.torch note it in their state_dict."""
    notes = getattr(state_dict, "_metadata", {})
    cells = {n: note.get("evaluates", note.get("cell")) for n, note in notes.items() if isinstance(note, dict)}
    return {name: cell for name, cell in cells.items() if isinstance(cell, str)}


def plain(tensors):
    """Returns the tensors with the pairs of ``weight_norm`` replaced by weights: w = g v / |v|."""
    tensors = dict(tensors)
    for pattern, other in _NORMED:
        for name in list(tensors):
            match = pattern.fullmatch(name)
            direction = other.format(*match.groups()) if match else None
            if direction in tensors and _is_norm_of(tensors[name], tensors[direction]):
                norm, direction = tensors.pop(name), tensors.pop(direction)
                tensors["".join(match.groups())] = _scaled(norm, direction)
    return tensors


def _is_norm_of(norm, direction):
    """Returns True if the shapes fit: a norm has extent 1 along the axes over which it was taken."""
    norm, direction = np.shape(norm), np.shape(direction)
    return norm == () or (len(norm) == len(direction) and all(n in (1, d) for n, d in zip(norm, direction)))


def _scaled(norm, direction):
    norm, direction = np.asarray(norm), np.asarray(direction)
    axes = tuple(i for i, extent in enumerate(norm.shape) if extent == 1) if norm.ndim else None
    wide = direction.astype(np.float64)
    length = np.sqrt((wide * wide).sum(axis=axes, keepdims=norm.ndim > 0))
    return (wide * (norm / length)).astype(direction.dtype)


def _refuse_computed(tensors, prefix, source):
    """Raises BadInput for members of the layer that are not plain weights, since they change what it computes.

    A wrapper has them next to the layer, which it calls "module".
    """
    around = prefix.removesuffix("module.")
    for name in [n.removeprefix(start) for start in {prefix, around} for n in tensors if n.startswith(start)]:
        if _MEMBER.fullmatch(name) or not _ANY.fullmatch(name):
            continue
        if name.startswith("weight_hr"):
            raise BadInput(
                f"{source}: tensor '{name}' is a projection (proj_size), which Penstock's files cannot hold: load the "
                "state_dict into penstock.torch.LSTM(proj_size=...)"
            )
        raise BadInput(
            f"{source}: tensor '{name}' is not a weight but a part of one, which is computed when the layer runs (pruning, "
            "spectral norm, dropout of weights, another parametrization); make it plain before it is saved, by "
            "torch.nn.utils.parametrize.remove_parametrizations, remove_spectral_norm or prune.remove"
        )


def _cell_by_shape(tensors, source):
    """Returns the cell of torch.nn: "lstm" for 4 gates, "gru" for 3.

    Raises BadInput for one gate or several heads, which do not identify the cell.
    """
    end = "l0" if "weight_ih_l0" in tensors else "l0_reverse"
    rows = tensors[f"weight_ih_{end}"].shape[0]
    matrix = tensors.get(f"weight_hh_{end}")
    if matrix is None:
        raise BadInput(f"{source}: there is no tensor 'weight_hh_{end}'; of minGRU and minLSTM say which, by cell=")
    hidden = matrix.shape[-1] * (matrix.shape[0] if matrix.ndim == 3 else 1)
    gates = rows // hidden if hidden and rows % hidden == 0 else 0
    cells = [cell for cell, (own, recurrent) in GATES.items() if recurrent and own == gates]
    if not cells:
        raise BadInput(
            f"{source}: 'weight_ih_{end}' has {rows} rows and 'weight_hh_{end}' is "
            f"{shape_text(matrix.shape)}, which are 1, 3 or 4 gates of no hidden size"
        )
    if gates == 1 or matrix.ndim == 3:
        choices = " or ".join(f'cell="{cell}"' for cell in cells)
        what = "heads" if matrix.ndim == 3 else "one gate"
        raise BadInput(f"{source}: the file does not say its cell, and several have {what}: say {choices}")
    return {4: "lstm", 3: "gru"}[gates]


def from_torch(tensors, *, prefix="", cell=None, source="state_dict"):
    """Returns one stack of a ``state_dict``.

    Weights split by ``torch.nn.utils.weight_norm`` are recombined. Those of a cell (``torch.nn.LSTMCell``) become a stack
    of one layer.

    Args:
        tensors: {name: array or CPU tensor}.
        prefix: Prefix of the names ("encoder.").
        cell: The cell. None: the one that a module of :mod:`penstock.torch` noted in its ``state_dict``, else LSTM or
            GRU, by the number of gates. With one gate it must be given: ``"elman"`` (tanh) or ``"elman-relu"``.
        source: Name of the source in error messages.

    Raises:
        BadInput: A tensor is missing, unknown or of the wrong shape; the cell is ambiguous; or the layer has
            projections (``proj_size``) or other parametrizations.
    """
    noted = noted_cells(tensors).get(prefix.removesuffix("."))
    source, tensors = f"{source}: {prefix}" if prefix else source, plain(tensors)
    _refuse_computed(tensors, prefix, source)
    own = {n.removeprefix(prefix): array for n, array in tensors.items() if n.startswith(prefix)}
    own = {name: array for name, array in own.items() if _MEMBER.fullmatch(name)}
    bare = [name for name in own if re.fullmatch(_NAME, name)]
    if bare and len(bare) < len(own):
        layered = next(name for name in own if name not in bare)
        raise BadInput(f"{source}: '{bare[0]}' belongs to a cell and '{layered}' to a layer, expected names of one kind")
    if bare:
        source = f"{source} (a cell, read as layer 0)"
        own = {f"{name}_l0": array for name, array in own.items()}
    if not any(name.startswith("weight_ih_l0") for name in own):
        raise BadInput(f"{source}: there is no tensor 'weight_ih_l0'")
    cell = cell or noted or _cell_by_shape(own, source)
    if not is_cell(cell):
        raise BadInput(f"{source}: cell must be one of {', '.join(GATES)}, not '{cell}'")
    try:
        return RecurrentWeights(cell, own)
    except BadInput as error:
        raise BadInput(f"{source}: {error}") from None


def to_torch(weights, *, prefix=""):
    """Returns {name: array} for ``load_state_dict`` of a module. Names begin with ``prefix``."""
    return {prefix + name: array for name, array in weights.tensors.items()}
