"""Layers of scan cells over sequences that several processes hold: each runs the layer's own op over its chunk.

A state depends on the steps before it through a product of decays, which is soon too small to show. So the state after a
chunk can be told before the chunk has been run: each process runs only the last steps of its chunk, from zeros, and sends
what comes out, and then all run their chunks at once, from what they received. Once they are done they see whether that was
right, because the state after a whole chunk must be the one that was sent. The gradient of a state comes from the first
steps of the chunk after it in the same way.

Where it was not right in one of them, all run their chunks again, one after the other, and the next call sends the outcome
of more steps. A layer that remembers more than `_MOST_STEPS` runs as the scan does that is in _sequence_parallel.py.
"""

import torch
from torch import distributed

from ._composed import CELLS
from ._ops import state_type
from ._tangents import refuse_tangents
from ._sequence_parallel import Neighbours, require_processes

_FIRST_STEPS, _MOST_STEPS, _GROWTH = 1024, 16384, 4


class Reach:
    """How many steps of a chunk tell its last state. All processes have the same number, as all learn it together."""

    def __init__(self):
        self.steps = _FIRST_STEPS

    def is_short(self):
        return self.steps <= _MOST_STEPS

    def grow(self):
        self.steps *= _GROWTH


def _tolerance(dtype):
    """Of the largest value: what the order of sums may change in a state, or what rounding the outputs hides."""
    return max(64 * torch.finfo(state_type(dtype)).eps, torch.finfo(dtype).eps / 4)


def _agree(told, actual, dtype, group):
    """Whether every process told its neighbour what it then found; waits for all of them."""
    if told is None:
        same = torch.ones((), dtype=torch.int32, device=actual.device)
    else:
        largest = actual.nan_to_num(0, 0, 0).abs().max() if actual.numel() > 0 else actual.new_zeros(())
        apart = (told - actual).abs() > _tolerance(dtype) * largest
        same = ((told.isnan() == actual.isnan()) & ~apart).all().to(torch.int32)
    distributed.all_reduce(same, distributed.ReduceOp.MIN, group)
    return bool(same)


class _Op:
    """The op over a chunk, or some of its steps, with one state [B, H] in and one out."""

    def __init__(self, cell, weights):
        self.cell, self.weights = cell, weights

    def forward(self, x, reset, state, keep_tape):
        """y, the state after it, the tape."""
        entering = None if state is None else state[None, None]
        y, last, tape, _ = torch.ops.penstock.recurrent(
            x, self.weights, entering, None, None, reset, self.cell, 1, False, True, keep_tape, False
        )
        return y, last[0, 0], tape

    def backward(self, dy, dlast, x, reset, state, y, tape, want_dx, want_dweights):
        """dx, the gradient of the state before it, those of the weights."""
        entering = None if state is None else state[None, None]
        dleaving = None if dlast is None else dlast[None, None]
        dx, dstate, dweights = torch.ops.penstock.recurrent_backward(
            dy, dleaving, None, x, self.weights, entering, None, None, reset, y, tape, self.cell, 1, False, True, False,
            want_dx, want_dweights,
        )  # fmt: skip
        return dx, dstate[0, 0], dweights


def _some(tensor, steps):
    return None if tensor is None else tensor[:, steps]


def _forward(neighbours, op, x, reset, h0, reach, keep_tape):
    """y, the state before the chunk, the one after it, the tape."""
    steps, told = x.shape[1], None
    state = None if h0 is None or neighbours.before is not None else h0.to(state_type(x.dtype))
    if neighbours.after is not None:
        few = slice(max(0, steps - reach.steps), steps)
        _, told, _ = op.forward(x[:, few], _some(reset, few), state if few.start == 0 else None, False)
        neighbours.send(told, neighbours.after)
    if neighbours.before is not None:
        hidden = op.weights[0].shape[0] // CELLS[op.cell][0]
        state = neighbours.receive(x.new_empty(x.shape[0], hidden, dtype=state_type(x.dtype)), neighbours.before)
    y, last, tape = op.forward(x, reset, state, keep_tape)
    if not _agree(told, last, x.dtype, neighbours.group):
        reach.grow()
        if neighbours.before is not None:
            state = neighbours.receive(torch.empty_like(state), neighbours.before)
            y, last, tape = op.forward(x, reset, state, keep_tape)
        if neighbours.after is not None:
            neighbours.send(last, neighbours.after)
    neighbours.finish()
    return y, state, last, tape


def _backward(neighbours, op, dy, dlast, x, reset, state, y, tape, reach, wanted):
    """dx, the gradient of the state before the chunk, those of the weights."""
    told = None
    if neighbours.before is not None:
        few = slice(0, min(reach.steps, x.shape[1]))
        y_few, _, tape_few = op.forward(x[:, few], _some(reset, few), state, True)
        dlast_few = dlast if few.stop == x.shape[1] else None
        given = (_some(dy, few), dlast_few, x[:, few], _some(reset, few), state, y_few, tape_few)
        _, told, _ = op.backward(*given, False, False)
        neighbours.send(told, neighbours.before)

    def whole():
        dleaving = dlast
        if neighbours.after is not None:
            received = neighbours.receive(
                x.new_empty(x.shape[0], y.shape[2], dtype=state_type(x.dtype)), neighbours.after
            )
            dleaving = received if dlast is None else dlast + received
        return op.backward(dy, dleaving, x, reset, state, y, tape, *wanted)

    results = whole()
    if not _agree(told, results[1], x.dtype, neighbours.group):
        reach.grow()
        if neighbours.after is not None:
            results = whole()
        if neighbours.before is not None:
            neighbours.send(results[1], neighbours.before)
    neighbours.finish()
    return results


class _Layer(torch.autograd.Function):
    """y and the state after this chunk."""

    @staticmethod
    def forward(ctx, x, h0, reset, cell, process_group, reverse, reach, keep_tape, *weights):
        neighbours = Neighbours(process_group, reverse)
        op = _Op(cell, list(weights))
        y, state, last, tape = _forward(neighbours, op, x, reset, h0, reach, keep_tape)
        ctx.save_for_backward(x, reset, state, y, tape, *weights)
        ctx.h0_dtype = None if h0 is None or neighbours.before is not None else h0.dtype
        ctx.call = (cell, process_group, reverse, reach)
        ctx.set_materialize_grads(False)
        return y, last

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy, dlast):
        x, reset, state, y, tape, *weights = ctx.saved_tensors
        cell, process_group, reverse, reach = ctx.call
        want_dx, *rest = ctx.needs_input_grad
        want_dweights = any(rest[-len(weights) :])
        dx, dstate, dweights = _backward(
            Neighbours(process_group, reverse), _Op(cell, weights), dy, dlast, x, reset, state, y, tape, reach,
            (want_dx, want_dweights),
        )  # fmt: skip
        dh0 = None if ctx.h0_dtype is None else dstate.to(ctx.h0_dtype)
        nothing = [None] * len(weights)
        return dx if want_dx else None, dh0, *[None] * 6, *(dweights if want_dweights else nothing)


def parallel_layer(x, weights, h0, reset, cell, reverse, process_group, reach, keep_tape):
    """y [B, T, H] and the state [B, H] after this process's chunk x [B, T, I] of the sequence, float or double."""
    require_processes()
    refuse_tangents(x, h0, weights)
    if reverse:
        x, reset = x.flip(1), None if reset is None else reset.flip(1)
    y, last = _Layer.apply(x, h0, reset, cell, process_group, reverse, reach, keep_tape, *weights)
    return y.flip(1) if reverse else y, last
