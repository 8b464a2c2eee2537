"""Layers of scan cells over sequences that several processes share. Each process runs the layer's op over its chunk.

A state depends on earlier steps through a product of decays, which soon becomes negligible. The last steps of a chunk
therefore suffice to predict the state after it:

1. Each process runs the last steps of its chunk from a zero state and sends the resulting state to the next process.
2. All processes run their whole chunks at the same time, from the states that they received.
3. Each process compares the state after its chunk with the one that it sent.

The backward pass predicts the gradient of a state from the first steps of the following chunk in the same way.

If a prediction was wrong in any process, all processes run their chunks again, one after the other, and the next call
predicts from more steps. A layer that needs more than `_MOST_STEPS` uses the scan of _sequence_parallel.py instead.
"""

import torch
from torch import distributed
from torch.nn import functional

from .._cell_forms import CELLS
from ._composed import terms_of
from ._higher_derivatives import state_type
from ._ops import autocast_sequence, keeps_tape
from ._sequence_parallel import Neighbours, parallel_scan, require_processes
from ._tangents import refuse_tangents

_FIRST_STEPS, _MOST_STEPS, _GROWTH = 1024, 16384, 4


class Reach:
    """Number of steps of a chunk that predict its last state. It is equal in all processes: they change it together."""

    def __init__(self):
        self.steps = _FIRST_STEPS

    def is_short(self):
        return self.steps <= _MOST_STEPS

    def grow(self):
        self.steps *= _GROWTH


def _tolerance(dtype):
    """Returns the tolerance of a state, relative to the largest value.

    It covers the order of summation, and the rounding of outputs in `dtype`.
    """
    return max(64 * torch.finfo(state_type(dtype)).eps, torch.finfo(dtype).eps / 4)


def _agree(told, actual, dtype, group):
    """Returns True if the predicted state was right in every process. Waits for all processes."""
    if told is None:
        same = torch.ones((), dtype=torch.int32, device=actual.device)
    else:
        largest = actual.nan_to_num(0, 0, 0).abs().max() if actual.numel() > 0 else actual.new_zeros(())
        apart = (told - actual).abs() > _tolerance(dtype) * largest
        same = ((told.isnan() == actual.isnan()) & ~apart).all().to(torch.int32)
    distributed.all_reduce(same, distributed.ReduceOp.MIN, group)
    return bool(same)


class _Op:
    """The op over a chunk or some of its steps, with one state [B, H] before and one after."""

    def __init__(self, cell, weights):
        self.cell, self.weights = cell, weights

    def forward(self, x, reset, state, keep_tape):
        """Returns y, the last state and the tape."""
        entering = None if state is None else state[None, None]
        y, last, tape, _ = torch.ops.penstock.recurrent(
            x, self.weights, entering, None, None, reset, self.cell, 1, False, True, keep_tape, False
        )
        return y, last[0, 0], tape

    def backward(self, dy, dlast, x, reset, state, y, tape, want_dx, want_dweights):
        """Returns dx, the gradient of the initial state, and those of the weights."""
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
    """Returns y, the state before the chunk, the state after it, and the tape."""
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
    """Returns dx, the gradient of the state before the chunk, and those of the weights."""
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
    """Function of _parallel_layer(): y and the state after this chunk."""

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


def _parallel_layer(x, weights, h0, reset, cell, reverse, process_group, reach):
    """Runs the layer in chunks at the same time."""
    require_processes()
    refuse_tangents(x, h0, weights)
    if reverse:
        x, reset = x.flip(1), None if reset is None else reset.flip(1)
    y, last = _Layer.apply(x, h0, reset, cell, process_group, reverse, reach, keeps_tape(), *weights)
    return y.flip(1) if reverse else y, last


def shared_layer(x, weights, h0, lengths, reset, cell, reverse, process_group, reach):
    """Returns y [B, T, H] and the state [B, H], float32 or float64, after this process's chunk x [B, T, I].

    Args:
        x: The chunk.
        weights: The input matrix and the bias, if there is one.
        h0: The state [B, H] where the sequence starts, on the process with that chunk. None: zeros.
        lengths: Steps of each row of the chunk, int64 [B]; None: all.
        reset: bool [B, T]; None: nowhere.
        cell: A cell with one state and no recurrent matrix.
        reverse: True: from the last step to the first.
        process_group: The processes.
        reach: The layer's.
    """
    if lengths is None and reach.is_short():
        return _parallel_layer(autocast_sequence(x), weights, h0, reset, cell, reverse, process_group, reach)
    wx = functional.linear(x, *weights)
    dtype = wx.dtype
    if dtype in (torch.bfloat16, torch.float16):
        wx = wx.float()  # 16-bit types have too few digits for a decay close to one
    a, b = terms_of(cell, wx)
    y, last = parallel_scan(a, b, h0, lengths, reset, False, reverse, process_group, None)
    return y.to(dtype), last
