"""The passes of layers in operations that have derivatives of all orders and modes, and the derivatives of the passes.

Scan cells run as scans, in parallel over the sequence; other cells step by step in PyTorch's operations. `scan` is the
differentiable op `penstock::scan`.
"""

import torch

from .._cell_forms import CELLS
from . import _scan_derivatives
from ._composed import composed_op


def state_type(dtype):
    """Returns the dtype of states: float64 for float64 sequences, otherwise float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def entering(x, weights, state, batch_sizes, cell, layers, bidirectional, batch_first):
    """Returns the states before the first step in their own dtype; zeros if `state` is None."""
    dtype = state_type(x.dtype)
    if state is not None:
        return state.to(dtype)
    gates, states, _ = CELLS[cell]
    rows = x.shape[0 if batch_first else 1] if batch_sizes is None else int(batch_sizes[0])
    slots = layers * (2 if bidirectional else 1)
    return x.new_zeros(states, slots, rows, weights[0].shape[0] // gates, dtype=dtype)


def recurrent(scan, x, weights, state, lengths, batch_sizes, reset, *form):
    """Computes the op `penstock::recurrent`, with an empty tape."""
    *form, _, every_state = form
    state = entering(x, weights, state, batch_sizes, *form)
    rows = (lengths, batch_sizes, reset)
    y, last, every = composed_op(x, weights, tuple(state), *rows, *form, every_state, scan=scan)
    return y, torch.stack(last), x.new_empty(0, dtype=torch.uint8), state.new_empty(0) if every is None else every


def _vjp(function, inputs, doutputs):
    """Returns the gradients of the tensors `inputs`. `doutputs` has None for missing gradients."""
    outputs, pull = torch.func.vjp(function, *inputs)
    return pull(tuple(torch.zeros_like(o) if d is None else d.to(o.dtype) for d, o in zip(doutputs, outputs)))


def _forward(scan, rows, form, every_state):
    """Returns a function from (x, state, *weights) to the differentiable results."""

    def forward(x, state, *weights):
        y, last, every = composed_op(x, weights, tuple(state), *rows, *form, every_state, scan=scan)
        return (y, torch.stack(last), every) if every_state else (y, torch.stack(last))

    return forward


def recurrent_backward(scan, dy, dstate, dstates, x, weights, state, lengths, batch_sizes, reset, y, tape, *form):
    """Computes the op `penstock::recurrent_backward`."""
    *form, every_state, want_dx, want_dweights = form
    inputs = (x, entering(x, weights, state, batch_sizes, *form), *weights)
    forward = _forward(scan, (lengths, batch_sizes, reset), form, every_state)
    dx, dstate_in, *dweights = _vjp(forward, inputs, (dy, dstate, dstates)[: 3 if every_state else 2])
    return dx if want_dx else x.new_empty(0), dstate_in, dweights if want_dweights else []


def _given(tensors):
    """Returns the tensors that are not None, and a function that puts such a list back into the full positions."""
    places = [i for i, t in enumerate(tensors) if t is not None]

    def again(present):
        whole = [None] * len(tensors)
        for i, t in zip(places, present):
            whole[i] = t
        return whole

    return [tensors[i] for i in places], again


def _second_order(backward, doutputs, inputs, seconds):
    """Returns the gradients of (doutputs, inputs), given those of the results of backward(doutputs, inputs).

    `doutputs` has None for missing gradients, `seconds` for gradients that were not requested.
    """
    given, again = _given(doutputs)
    count = len(given)
    gradients = _vjp(lambda *t: tuple(backward(again(t[:count]), t[count:])), (*given, *inputs), seconds)
    return again(gradients[:count]), gradients[count:]


def _last_order(forward, doutputs, inputs, seconds):
    """Does the same for backward() of `forward` where nobody differentiates the results.

    It spares the overhead of torch.func, and gradients that were not requested.
    """
    given, again = _given([None if d is None else d.detach().requires_grad_() for d in doutputs])
    inputs = [t.detach().requires_grad_() for t in inputs]
    wanted = [i for i, second in enumerate(seconds) if second is not None]
    with torch.enable_grad():
        pairs = [(o, d.to(o.dtype)) for o, d in zip(forward(*inputs), again(given)) if d is not None]
        outputs, cotangents = zip(*pairs)
        firsts = torch.autograd.grad(outputs, [inputs[i] for i in wanted], cotangents, create_graph=True)
    cotangents = [seconds[i].to(first.dtype) for i, first in zip(wanted, firsts)]
    gradients = torch.autograd.grad(firsts, [*given, *inputs], cotangents, allow_unused=True, materialize_grads=True)
    return again(gradients[: len(given)]), gradients[len(given) :]


def recurrent_second_gradients(scan, doutputs, x, weights, state, rows, form, every_state, seconds):
    """Returns the gradients of doutputs = (dy, dstate, dstates), x, weights and state, given those of the results."""
    if all(second is None for second in seconds):
        return None, None, None, None, [None] * len(weights), None
    inputs = (x, entering(x, weights, state, rows[1], *form), *weights)
    forward = _forward(scan, rows, form, every_state)
    given = doutputs[: 3 if every_state else 2]
    if torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
        found = _second_order(lambda given, inputs: _vjp(forward, inputs, given), given, inputs, seconds)
    else:
        found = _last_order(forward, given, inputs, seconds)
    doutputs, (gx, gstate, *gweights) = found
    ddstates = doutputs[2] if every_state else None
    return *doutputs[:2], ddstates, gx, gweights, None if state is None else gstate.to(state.dtype)


def scan_second_gradients(scan, doutputs, a, b, h0, form, seconds):
    """Returns the gradients of doutputs = (dh, dh_last), a, b and h0, given those of the results."""
    entering = a.new_zeros(a.shape[0], a.shape[2]) if h0 is None else h0
    doutputs, (ga, gb, gh0) = _second_order(
        lambda given, inputs: _scan_derivatives.backward(scan, *given, *inputs, form),
        doutputs,
        (a, b, entering),
        seconds,
    )
    return *doutputs, ga, gb, None if h0 is None else gh0
