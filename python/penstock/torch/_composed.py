"""Recurrent layers in PyTorch's own operations, step by step.

They compute second derivatives, which the kernels do not have, and run LSTMs with projections.
"""

import torch
from torch.nn import functional

from penstock import _core, reference
from penstock.errors import InvalidArgument

from ._own import own_step, own_terms


class _Cells(dict):
    """Penstock's cells, and cells of your own, which are looked up when they are first asked for."""

    def __contains__(self, name):
        try:
            self[name]
        except InvalidArgument:
            return False
        return True

    def __missing__(self, name):
        found = _core.find_cell(name)
        self[name] = found["gates"], found["states"], found["scan"]
        return self[name]


#: By cell: number of gates G, number of states S (state 0 is the output h), and True if it has no recurrent matrix.
CELLS = _Cells(
    {name: (gates, states, name in reference.TERMS) for name, (_, gates, states) in reference.CELLS.items()}
)


class _OfTensors:
    """The functions of cells, for PyTorch tensors."""

    exp, tanh, maximum, where, relu = torch.exp, torch.tanh, torch.maximum, torch.where, torch.relu
    sigmoid, log_sigmoid = torch.sigmoid, functional.logsigmoid


def terms_of(cell, wx):
    """Returns a and b of h_t = a_t h_{t-1} + b_t for a scan cell, from W x + bias [..., G * H]."""
    if cell not in reference.TERMS:
        return own_terms(cell, wx.chunk(CELLS[cell][0], -1))
    return reference.TERMS[cell](_OfTensors, wx.chunk(CELLS[cell][0], -1))


def _recurrent_product(weight, bias, count):
    """Returns a function from h [B, H] to R h + b as `count` gates [B, H].

    `weight` is [G * H, H], or [heads, G * D, D] with several heads.
    """

    def product(h):
        if weight.dim() == 2:
            return functional.linear(h, weight, bias).chunk(count, -1)
        heads, gates_d, d = weight.shape
        parts = torch.einsum("bkd,kgd->bkg", h.unflatten(-1, (heads, d)), weight)
        whole = parts.unflatten(-1, (gates_d // d, d)).transpose(1, 2).flatten(1)
        return (whole if bias is None else whole + bias).chunk(count, -1)

    return product


def _layer(cell, x, weights, state, valid, reset, reverse):
    """Runs one direction of a layer over x [T, B, I]. Returns the states after each step, a list of T tuples, and the
    last states. `valid` and `reset` are bool [T, B] or None. Beyond a row's length all returned states are zeros."""
    gates, _, scans = CELLS[cell]
    weights = list(weights)
    weight_ih = weights.pop(0)
    weight_hh = None if scans else weights.pop(0)
    # After the biases, the last weight is the projection of an LSTM.
    bias_ih = weights.pop(0) if weights and weights[0].dim() == 1 else None
    bias_hh = weights.pop(0) if weights and weights[0].dim() == 1 else None
    projection = weights.pop(0) if weights else None
    step = reference.CELLS[cell][0] if cell in reference.CELLS else None
    if step is None:
        step, bias_ih = own_step(cell, bias_ih, gates)
    wx = functional.linear(x, weight_ih, bias_ih)
    recurrent = None if scans else _recurrent_product(weight_hh, bias_hh, gates)
    if reset is not None and valid is not None:
        reset = reset & valid
    outputs = [None] * x.shape[0]
    for t in reversed(range(x.shape[0])) if reverse else range(x.shape[0]):
        if reset is not None:
            keep = (~reset[t]).to(x.dtype).unsqueeze(-1)
            state = tuple(s * keep for s in state)
        after = step(_OfTensors, wx[t].chunk(gates, -1), recurrent, *state)
        if projection is not None:
            after = (functional.linear(after[0], projection), *after[1:])
        if valid is None:
            state, outputs[t] = after, after
        else:
            now = valid[t].unsqueeze(-1)
            state = tuple(torch.where(now, new, old) for new, old in zip(after, state))
            outputs[t] = tuple(torch.where(now, new, torch.zeros_like(new)) for new in after)
    return outputs, state


def _packed_places(batch_sizes):
    """Returns the flat indices into [T, B] of the positions of a PackedSequence, and the number of rows."""
    rows = int(batch_sizes[0])
    steps = torch.repeat_interleave(torch.arange(len(batch_sizes)), batch_sizes)
    starts = torch.cumsum(batch_sizes, 0) - batch_sizes
    return steps * rows + torch.arange(len(steps)) - torch.repeat_interleave(starts, batch_sizes), rows


def composed(x, weights, states, lengths, batch_sizes, reset, cell, layers, bidirectional, batch_first,
             every_state=False):  # fmt: skip
    """Computes the op `penstock::recurrent` with the states as a tuple of [layers * directions, B, H].

    Returns y, the last states as such a tuple, and every state of the last layer or None.
    """
    if batch_sizes is not None:
        places, rows = _packed_places(batch_sizes.cpu())
        places = places.to(x.device)
        steps = len(batch_sizes)
        padded = x.new_zeros(steps * rows, x.shape[-1]).index_copy(0, places, x).unflatten(0, (steps, rows))
        valid = torch.zeros(steps * rows, dtype=torch.bool, device=x.device).index_fill(0, places, True)
        valid = valid.unflatten(0, (steps, rows))
        if reset is not None:
            reset = torch.zeros_like(valid).flatten().index_copy(0, places, reset.bool()).view_as(valid)
    else:
        padded = x.transpose(0, 1) if batch_first else x
        places = valid = None
        if lengths is not None:
            valid = torch.arange(padded.shape[0], device=x.device).unsqueeze(1) < lengths
        if reset is not None:
            reset = reset.bool().t()
    directions = 2 if bidirectional else 1
    each = len(weights) // (layers * directions)
    last = []
    for layer in range(layers):
        outputs, others = [], []
        for direction in range(directions):
            i = layer * directions + direction
            steps, after = _layer(
                cell,
                padded,
                weights[i * each : (i + 1) * each],
                tuple(s[i] for s in states),
                valid,
                reset,
                direction == 1,
            )
            outputs.append(torch.stack([step[0] for step in steps]))
            if every_state and layer == layers - 1:
                others += [torch.stack([step[s] for step in steps]) for s in range(1, len(states))]
            last.append(after)
        padded = torch.cat(outputs, -1)

    def as_given(padded):
        if batch_sizes is not None:
            return padded.flatten(0, 1).index_select(0, places)
        return padded.transpose(0, 1) if batch_first else padded

    last = tuple(torch.stack([after[s] for after in last]) for s in range(len(states)))
    return as_given(padded), last, as_given(torch.cat(others, -1)) if every_state else None


def composed_scan(a, b, h0, lengths, reset, logarithmic, reverse):
    """Computes the op `penstock::scan`. h0 must be given."""
    valid = None
    if lengths is not None:
        valid = (torch.arange(a.shape[1], device=a.device) < lengths.unsqueeze(1)).unsqueeze(-1)
        a, b = (torch.where(valid, t, torch.zeros_like(t)) for t in (a, b))
    if logarithmic:
        a, b = torch.exp(a), torch.exp(b)
    if reset is not None:
        a = torch.where(reset.bool().unsqueeze(-1), torch.zeros_like(a), a)
    outputs = [None] * a.shape[1]
    h = h0
    for t in reversed(range(a.shape[1])) if reverse else range(a.shape[1]):
        outputs[t] = after = a[:, t] * h + b[:, t]
        if valid is not None:
            outputs[t] = torch.where(valid[:, t], after, torch.zeros_like(after))
            after = torch.where(valid[:, t], after, h)
        h = after
    return torch.stack(outputs, 1), h
