"""Recurrent layers in PyTorch's own operations, step by step.

They compute second derivatives, which the kernels do not have, and single steps of LSTMs with projections.
"""

import torch
from torch.nn import functional

from penstock import reference

from .._cell_forms import CELLS, custom_step, custom_terms, split_bias


class _OfTensors:
    """The functions of cells, for PyTorch tensors."""

    exp, log, tanh, sin, cos = torch.exp, torch.log, torch.tanh, torch.sin, torch.cos
    sqrt, abs, erf = torch.sqrt, torch.abs, torch.erf
    sigmoid, log_sigmoid, softplus, relu = torch.sigmoid, functional.logsigmoid, functional.softplus, torch.relu
    maximum, where, clip, isnan, broadcast_to = torch.maximum, torch.where, torch.clip, torch.isnan, torch.broadcast_to

    @staticmethod
    def cast(x, like):
        return x.to(like.dtype)

    @staticmethod
    def constant(value, like):
        return like.new_full((), value)  # a tensor of a number could not be exported


def terms_of(cell, wx, learnt=()):
    """Returns a and b of h_t = a_t h_{t-1} + b_t for a scan cell, from W x + bias [..., G * H]."""
    if cell not in reference.TERMS:
        return custom_terms(_OfTensors, cell, wx.chunk(CELLS[cell][0], -1), learnt)
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


class _Stacked(torch.autograd.Function):
    """torch.stack() with a backward pass of one operation: second derivatives of PyTorch's own would cost T^2."""

    @staticmethod
    def forward(ctx, *tensors):
        return torch.stack(tensors)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.unbind(0)


def _stacked(tensors):
    recorded = torch.compiler.is_compiling() or torch._C._is_tracing()
    if recorded or torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0:
        return torch.stack(tensors)
    return _Stacked.apply(*tensors)


def unrolled(step, xs, state, reverse):
    """Runs step(x_t, state) -> (state, y_t) over the first axis of the tensors `xs`, of which each may be None.

    `state` is a tuple of tensors, as are the y_t. Returns the y, each [T, ...], and the last state.
    """
    # Selecting each step by its index would cost T^2 in backward passes.
    given = list(zip(*([None] * xs[0].shape[0] if x is None else x.unbind(0) for x in xs)))
    outputs = [None] * len(given)
    for t in reversed(range(len(given))) if reverse else range(len(given)):
        state, outputs[t] = step(given[t], state)
    return tuple(_stacked(each) for each in zip(*outputs)), state


def of_steps(restarts, steps, rows):
    """Returns [T, B, H] from the states [n, H] of resets: one for all, one a row, or one a step, row after row."""
    if len(restarts) in (1, rows):
        return restarts.expand(steps, rows, -1)
    return restarts.unflatten(0, (rows, steps)).transpose(0, 1)


def _layer(cell, x, weights, state, valid, reset, reverse, kept, loop, scan, around):
    """Runs one direction of a layer over x [T, B, I]. Returns the first `kept` states after each step, each [T, B, H],
    and the last states. `valid` and `reset` are bool [T, B] or None. Beyond a row's length all returned states are
    zeros. Each state [B + n, H] may hold those of its resets behind the initial ones. `loop` is unrolled() or a
    function like it; `scan` is None or runs scan cells in parallel. `around` is None, or what _regularise.py does around
    a cell."""
    gates, _, scans = CELLS[cell]
    count, rows = x.shape[:2]
    given, state = state, tuple(s[:rows] for s in state)
    restarts = [of_steps(s[rows:], count, rows) for s in given] if given[0].shape[0] > rows else []
    weights = list(weights)
    weight_ih = weights.pop(0)
    weight_hh = None if scans else weights.pop(0)
    # After the biases, the last weight is the projection of an LSTM.
    bias_ih = weights.pop(0) if weights and weights[0].dim() == 1 else None
    bias_hh = weights.pop(0) if weights and weights[0].dim() == 1 else None
    projection = weights.pop(0) if weights else None
    bias_ih, learnt = split_bias(cell, bias_ih, gates)
    heads = weight_hh.shape[0] if weight_hh is not None and weight_hh.dim() == 3 else 1
    if cell in reference.CELLS:
        step_of_cell = reference.CELLS[cell][0]
    else:
        step_of_cell = custom_step(cell, learnt, heads)
    if weight_ih.shape[1] == 0:  # x is W x
        wx = x if bias_ih is None else x + bias_ih
    else:
        wx = functional.linear(x, weight_ih, bias_ih)
    if scans and scan is not None:
        a, b = terms_of(cell, wx, learnt)
        if around is not None:
            a, b = around.terms(a, b)
        for restart in restarts:
            b = torch.where(reset.unsqueeze(-1), b + a * restart, b)  # the scan starts again at zero
        a, b = a.transpose(0, 1), b.transpose(0, 1)
        lengths = None if valid is None else valid.sum(0)
        h, last = scan(a, b, state[0], lengths, None if reset is None else reset.t(), False, reverse)
        return (h.transpose(0, 1),), (last,)
    if around is not None:
        call = (wx, weight_hh, bias_hh, learnt, given, valid, reset, reverse, kept)
        if (results := around.layer(cell, *call)) is not None:
            return results
    recurrent = None if scans else _recurrent_product(weight_hh, bias_hh, gates)
    if around is not None:
        recurrent = around.product(recurrent, state)
    if reset is not None and valid is not None:
        reset = reset & valid

    def step(given, state):
        wx, now, begins, *anew = given
        if anew:
            state = tuple(torch.where(begins.unsqueeze(-1), new, old) for new, old in zip(anew, state))
        elif begins is not None:
            keep = (~begins).to(wx.dtype).unsqueeze(-1)
            state = tuple(s * keep for s in state)
        after = step_of_cell(_OfTensors, wx.chunk(gates, -1), recurrent, *state)
        if projection is not None:
            after = (functional.linear(after[0], projection), *after[1:])
        if around is not None:
            after = around.states(state, after)
        if now is None:
            return after, after[:kept]
        now = now.unsqueeze(-1)
        state = tuple(torch.where(now, new, old) for new, old in zip(after, state))
        return state, tuple(torch.where(now, new, torch.zeros_like(new)) for new in after[:kept])

    return loop(step, (wx, valid, reset, *restarts), state, reverse)


def _packed_places(batch_sizes, offsets):
    """Returns the flat indices into [T, B] of packed positions, the number of rows, and T.

    `batch_sizes` is that of a PackedSequence. If `offsets` [B + 1] is given, positions lie row after row, and
    `batch_sizes` [1] has T.
    """
    if offsets is not None:
        rows = len(offsets) - 1
        row = torch.repeat_interleave(offsets.diff())
        return (torch.arange(len(row), device=row.device) - offsets[row]) * rows + row, rows, int(batch_sizes)
    rows = int(batch_sizes[0])
    steps = torch.repeat_interleave(torch.arange(len(batch_sizes)), batch_sizes)
    starts = torch.cumsum(batch_sizes, 0) - batch_sizes
    places = steps * rows + torch.arange(len(steps)) - torch.repeat_interleave(starts, batch_sizes)
    return places, rows, len(batch_sizes)


def composed(x, weights, states, lengths, batch_sizes, reset, cell, layers, bidirectional, batch_first,
             every_state=False, loop=unrolled, scan=None, around=None):  # fmt: skip
    """Computes the op `penstock::recurrent` with the states as a tuple of [layers * directions, B, H].

    Returns y, the last states as such a tuple, and every state of the last layer or None. `loop`, `scan` and
    `around` are those of _layer().
    """
    if batch_sizes is not None:
        places, rows, steps = _packed_places(batch_sizes.cpu(), lengths)
        places = places.to(x.device)
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
            padded = padded.masked_fill(~valid.unsqueeze(-1), 0)  # a NaN there would reach gradients of weights
        if reset is not None:
            reset = reset.bool().t()
    directions = 2 if bidirectional else 1
    each = len(weights) // (layers * directions)
    last = []
    for layer in range(layers):
        outputs, others = [], []
        kept = len(states) if every_state and layer == layers - 1 else 1
        for direction in range(directions):
            i = layer * directions + direction
            own, entering = weights[i * each : (i + 1) * each], tuple(s[i] for s in states)
            form = (valid, reset, direction == 1, kept, loop, scan, around)
            (y, *every), after = _layer(cell, padded, own, entering, *form)
            outputs.append(y)
            others += every
            last.append(after)
        padded = torch.cat(outputs, -1)

    def as_given(padded):
        if batch_sizes is not None:
            return padded.flatten(0, 1).index_select(0, places)
        return padded.transpose(0, 1) if batch_first else padded

    last = tuple(torch.stack([after[s] for after in last]) for s in range(len(states)))
    return as_given(padded), last, as_given(torch.cat(others, -1)) if every_state else None


def composed_op(x, weights, states, lengths, batch_sizes, reset, cell, layers, bidirectional, batch_first,
                every_state, loop=unrolled, scan=None, around=None):  # fmt: skip
    """Does what composed() does in the dtypes of the op: sums and states are as `states`, y as x."""
    dtype = states[0].dtype
    form = (lengths, batch_sizes, reset, cell, layers, bidirectional, batch_first, every_state, loop, scan, around)
    y, last, every = composed(x.to(dtype), [w.to(dtype) for w in weights], states, *form)
    return y.to(x.dtype), last, every
