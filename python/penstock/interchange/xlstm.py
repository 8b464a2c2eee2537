"""Weights of the sLSTM layer of the package xlstm (``sLSTMLayer``), from any of its backends.

``slstm_cell._recurrent_kernel_`` is ``[heads, 4 D, D]`` in the backend "vanilla", and ``[heads, D, 4 D]`` with swapped
axes in "cuda". ``slstm_cell._bias_`` ``[4 H]`` is ordered by gates in "vanilla", by heads in "cuda". The projections of
the gates are ``[heads, D, I / heads]`` each.

In the package, ``fgate`` feeds the first gate of the cell, which is the input gate, and ``igate`` the forget gate. The
conversion keeps this use of the values. If the layer has a causal convolution, gates i and f read its output after
SiLU; z and o read the input itself.
"""

from __future__ import annotations

import numpy as np

from ..errors import BadInput, InvalidArgument
from ._weights import RecurrentWeights, refuse_others, take, whole_number_of

_KERNEL, _BIAS, _NORM = "slstm_cell._recurrent_kernel_", "slstm_cell._bias_", "group_norm.weight"
_CONVOLUTION = ("conv1d.conv.weight", "conv1d.conv.bias")
_PROJECTIONS = ("fgate.weight", "igate.weight", "zgate.weight", "ogate.weight")  # for our gates i, f, z, o


def _recurrent(tensors, source):
    """Returns the recurrent matrix [heads, 4 D, D], and True if the bias is ordered by gates ("vanilla")."""
    kernel = take(tensors, _KERNEL, source, None, None, None)
    heads, rows, columns = kernel.shape
    if rows == 4 * columns and heads * columns > 0:
        return kernel, True
    if columns == 4 * rows and heads * rows > 0:
        return np.ascontiguousarray(kernel.transpose(0, 2, 1)), False
    raise BadInput(f"{source}: tensor '{_KERNEL}' is {list(kernel.shape)}, expected [heads, 4 D, D] or [heads, D, 4 D]")


def _block_diagonal(blocks):
    """Expands blocks [heads, D, E] to the block-diagonal matrix [heads D, heads E]."""
    heads, rows, columns = blocks.shape
    whole = np.zeros((heads, rows, heads, columns), blocks.dtype)
    for head in range(heads):
        whole[head, :, head] = blocks[head]
    return whole.reshape(heads * rows, heads * columns)


def from_xlstm(tensors, *, source="xlstm"):
    """Returns a layer from its ``state_dict``.

    With a convolution, the input matrix has 2 I columns, for ``[convolved input, input]``. ``extra`` has the
    convolution and the gain of the norm, with the package's names.
    """
    matrix, gates_first = _recurrent(tensors, source)
    heads, rows, size = matrix.shape
    hidden = heads * size
    bias = take(tensors, _BIAS, source, 4 * hidden)
    if not gates_first:
        bias = np.ascontiguousarray(bias.reshape(heads, 4, size).transpose(1, 0, 2)).reshape(-1)
    first = take(tensors, _PROJECTIONS[0], source, heads, size, None)
    blocks = [_block_diagonal(take(tensors, name, source, heads, size, first.shape[2])) for name in _PROJECTIONS]
    whole_number_of(first.shape[2], 1, _PROJECTIONS[0], source, "columns")
    inputs = heads * first.shape[2]
    extra = {}
    if _CONVOLUTION[0] in tensors:
        extra[_CONVOLUTION[0]] = take(tensors, _CONVOLUTION[0], source, inputs, 1, None)
        extra[_CONVOLUTION[1]] = take(tensors, _CONVOLUTION[1], source, inputs)
        nothing = np.zeros_like(blocks[0])
        blocks = [np.hstack([b, nothing] if gate < 2 else [nothing, b]) for gate, b in enumerate(blocks)]
    if _NORM in tensors:
        extra[_NORM] = take(tensors, _NORM, source, hidden)
    refuse_others(tensors, [_KERNEL, _BIAS, _NORM, *_CONVOLUTION, *_PROJECTIONS], source)
    named = {
        "weight_ih_l0": np.concatenate(blocks),
        "weight_hh_l0": matrix if heads > 1 else matrix[0],
        "bias_ih_l0": bias,
    }
    return RecurrentWeights("slstm", named, extra)


def to_xlstm(weights, *, backend="vanilla"):
    """Returns a ``state_dict`` for a layer of the package.

    Args:
        weights: A layer of the cell ``slstm``.
        backend: ``"vanilla"`` or ``"cuda"``.

    Raises:
        InvalidArgument: The cell is another one, or the input matrix is not block-diagonal: a head of the package's
            layer reads only its own inputs.
    """
    if weights.cell != "slstm":
        raise InvalidArgument(f"layers of xlstm are of the cell slstm, not '{weights.cell}'")
    if backend not in ("vanilla", "cuda"):
        raise InvalidArgument(f"backend must be 'vanilla' or 'cuda', not '{backend}'")
    weight_ih, weight_hh, bias_ih, bias_hh = weights.single_layer("xlstm")
    heads, hidden = weights.heads, weights.hidden_size
    size = hidden // heads
    matrix, bias = weight_hh.reshape(heads, 4 * size, size), bias_ih + bias_hh
    if backend == "cuda":
        matrix = np.ascontiguousarray(matrix.transpose(0, 2, 1))
        bias = np.ascontiguousarray(bias.reshape(4, heads, size).transpose(1, 0, 2)).reshape(-1)
    halves = 2 if _CONVOLUTION[0] in weights.extra else 1
    if weight_ih.shape[1] % (halves * heads) != 0:
        raise InvalidArgument(f"input size {weight_ih.shape[1]} does not divide into {halves * heads} equal parts")
    inputs = weight_ih.shape[1] // halves
    tensors = {_KERNEL: matrix, _BIAS: bias, **weights.extra}
    for gate, name in enumerate(_PROJECTIONS):
        own = weight_ih[gate * hidden : (gate + 1) * hidden].reshape(hidden, halves, inputs)
        half = 1 if halves == 2 and gate >= 2 else 0
        blocks = own[:, half].reshape(heads, size, heads, inputs // heads)
        blocks = np.stack([blocks[head, :, head] for head in range(heads)])
        if not np.array_equal(_block_diagonal(blocks), own[:, half]) or (halves == 2 and np.any(own[:, 1 - half])):
            raise InvalidArgument(
                f"gate {'ifzo'[gate]} reads inputs that are not its head's, which no layer of xlstm does"
            )
        tensors[name] = blocks
    return tensors


def to_module(weights):
    """Returns a PyTorch module that computes the same as the package's layer, ``[B, T, I] -> [B, T, H]``."""
    from ._modules import XLSTMLayer

    convolution = [weights.extra[name] for name in _CONVOLUTION] if _CONVOLUTION[0] in weights.extra else None
    return XLSTMLayer(weights.to_torch(), convolution, weights.extra.get(_NORM))
