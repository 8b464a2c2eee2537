"""The recurrence alone, over W x that the caller has computed."""

import torch

from .._cell_forms import CELLS
from ._checks import check_lengths, check_reset_mask, check_state_types, lengths_as_tensor
from ._episodes import before_step, kernels_start_again, restarts_of
from ._ops import autocast_sequence, run_layers


def _sizes(cell, wx, weight_hh):
    """Returns H. Raises for another cell, and for shapes that do not fit."""
    if cell not in CELLS:
        raise ValueError(f"cell must be one of {', '.join(CELLS)}, not {cell!r}")
    gates, _, scans = CELLS[cell]
    if scans:
        raise ValueError(f"cell {cell!r} has no recurrent matrix: use penstock.torch.scan")
    for name, tensor in (("wx", wx), ("weight_hh", weight_hh)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} must be a tensor, not {type(tensor).__name__}")
    if weight_hh.dim() not in (2, 3):
        raise ValueError(f"weight_hh must be [G * H, H] or [heads, G * D, D], got {list(weight_hh.shape)}")
    heads = weight_hh.shape[0] if weight_hh.dim() == 3 else 1
    size = weight_hh.shape[-1]
    if size == 0 or weight_hh.shape[-2] != gates * size:
        form = "[heads, G * D, D]" if weight_hh.dim() == 3 else "[G * H, H]"
        raise ValueError(f"weight_hh must be {form} with G = {gates} gates, got {list(weight_hh.shape)}")
    hidden = heads * size
    if wx.dim() != 3 or wx.shape[-1] != gates * hidden:
        raise ValueError(f"wx must be [B, T, G * H] with G * H = {gates * hidden}, got {list(wx.shape)}")
    return hidden


def _restarts(reset_to, reset_mask, lengths, cell, head, wx, sizes):
    """Returns the states of resets [1, H], [1, B, H] or [1, B, T, H] of a call over wx [B, T, G * H]."""
    if reset_mask is None or lengths is not None:
        raise ValueError("reset_to needs reset_mask, which says where the states start again, and no lengths")
    if not kernels_start_again(cell, head, wx.device):
        raise ValueError(f"reset_to of cell {cell!r} needs a layer of penstock.torch on this GPU: it runs parts as rows")
    restarts = (reset_to,) if isinstance(reset_to, torch.Tensor) else tuple(reset_to)
    if len(restarts) != len(sizes):
        raise ValueError(f"reset_to must hold the {len(sizes)} states of cell {cell!r}, not {len(restarts)}")
    for state, size in zip(restarts, sizes):
        forms = [size], [len(wx), size], [len(wx), wx.shape[1], size]
        if list(state.shape) not in forms:
            wanted, shape = " or ".join(map(str, forms)), list(state.shape)
            raise RuntimeError(f"reset_to must be [H], [B, H] or [B, T, H] = {wanted}, not {shape}")
    return restarts_of(tuple(s.unsqueeze(0) for s in restarts), 1, sizes, wx)


def recurrence(
    wx, weight_hh, bias=None, state=None, *, cell="lstm", bias_hh=None, lengths=None, reset_mask=None, reset_to=None,
    every_state=False, batch_first=True,
):  # fmt: skip
    """Runs one layer over ``wx = x @ weight_ih.T`` and returns ``(y, state)``: FlashRNN's call, with gradients.

    The projection of the input is the caller's, for layers whose gates read different inputs. Gates lie one after the
    other, in the order of the cell's class in ``penstock.torch``: i, f, g, o for an LSTM, i, f, z, o for an sLSTM.

    Args:
        wx: ``[B, T, G * H]``, ``[T, B, G * H]`` with ``batch_first=False``.
        weight_hh: The recurrent matrix ``[G * H, H]``; with several heads ``[heads, G * D, D]``, D = H / heads.
        bias: ``[G * H]``, added to ``wx``; for a cell with K learnt vectors ``[(G + K) * H]``. None: none.
        state: The initial state ``[B, H]``; for cells with several states a tuple of them. None: zeros.
        cell: ``"lstm"``, ``"gru"``, ``"elman"``, ``"slstm"``, or a cell of your own with a recurrent matrix.
        bias_hh: ``[G * H]``, added to the product of ``weight_hh``. It differs from ``bias`` for a GRU. Needs ``bias``.
        lengths: int64 ``[B]`` or a list of B integers: number of steps of each row. None: all rows have T steps.
        reset_mask: bool, with the first two axes of ``wx``. True resets the states before this step.
        reset_to: The states that ``reset_mask`` starts again with, instead of zeros: one for all rows ``[H]``, one for
            each ``[B, H]``, or one for each step ``[B, T, H]``, read where a row starts again. For cells with several
            states a tuple of them. They get gradients. Excludes ``lengths``.
        every_state: True: also returns the other states after each step.
        batch_first: False: sequences are ``[T, B, ...]``.

    Returns:
        The outputs ``[B, T, H]`` in the layout of ``wx``, and the last state, as ``state``. With ``every_state`` also a
        tuple of the other states in the layout of the outputs.

    Raises:
        ValueError, RuntimeError, TypeError: An argument does not fit.

    >>> y, (h, c) = recurrence(torch.zeros(2, 30, 4 * 16), torch.zeros(4 * 16, 16), cell="lstm")
    >>> y.shape, c.shape
    (torch.Size([2, 30, 16]), torch.Size([2, 16]))
    """
    hidden = _sizes(cell, wx, weight_hh)
    if weight_hh.shape[0] == 1 and weight_hh.dim() == 3:
        weight_hh = weight_hh[0]
    count = CELLS[cell][1]
    if bias is None and bias_hh is not None:
        raise ValueError("bias_hh needs bias: give zeros, or bias_hh alone as bias where the cell adds both alike")
    if every_state and count == 1:
        raise ValueError(f"cell {cell!r} has no states but its outputs: every_state is for lstm and slstm")
    states = () if state is None else (state,) if isinstance(state, torch.Tensor) else tuple(state)
    rows = wx.shape[0 if batch_first else 1]
    if state is not None and [list(s.shape) for s in states] != [[rows, hidden]] * count:
        shapes = ", ".join(str(list(s.shape)) for s in states)
        raise ValueError(f"state must be {count} tensors [B, H] = {[rows, hidden]} for cell {cell!r}, got {shapes}")
    check_state_types(states, wx, "state")
    lengths = lengths_as_tensor(lengths, wx.device)
    if lengths is not None:
        check_lengths(lengths, rows)
    if reset_mask is not None:
        check_reset_mask(reset_mask, wx.shape[:2], wx.device)
        reset_mask = reset_mask if batch_first else reset_mask.t()
    states = tuple(s.unsqueeze(0) for s in states)
    if reset_to is not None:
        by_rows = wx if batch_first else wx.transpose(0, 1)
        restarts = _restarts(reset_to, reset_mask, lengths, cell, weight_hh.shape[-1], by_rows, [hidden] * count)
        if wx.is_cuda and by_rows.shape[1] == 1:
            states, reset_mask = before_step(states, restarts, reset_mask), None
        elif reset_mask.numel():
            states = (*(states or [None] * count), *restarts)
    # A weight_ih without columns tells the op that its input is W x.
    weights = [weight_hh.new_empty(wx.shape[-1], 0), weight_hh, *(b for b in (bias, bias_hh) if b is not None)]
    wx = autocast_sequence(wx)
    form = (cell, 1, False, batch_first, every_state)
    y, *last = run_layers(wx, weights, states, (lengths, None, reset_mask), *form)
    others = ()
    if every_state:
        others = (tuple(last.pop().to(y.dtype).unflatten(-1, (count - 1, hidden)).unbind(-2)),)
    last = tuple(s.squeeze(0).to(y.dtype) for s in last)
    return y, last[0] if count == 1 else last, *others
