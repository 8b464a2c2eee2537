"""Layers and scans in operations that torch.onnx can write, for all batch sizes and lengths.

LSTM and GRU are ONNX's own operators. Other cells become loops: a Scan of the exporter that torch.export feeds, a Loop
of the older one, which traces.
"""

import functools
import warnings

import torch

from .._cell_forms import CELLS
from ._checks import no_onnx_export
from ._composed import composed_op
from ._scan_derivatives import Terms

#: Layers that the older exporter writes as one operator.
_OPERATORS_OF_TRACES = {
    "lstm": torch.lstm, "gru": torch.gru, "elman": torch.rnn_tanh, "elman-relu": torch.rnn_relu
}  # fmt: skip


def layers(x, weights, states, rows, cell, count, bidirectional, batch_first, every_state):
    """Computes _ops.run_layers()."""
    lengths, batch_sizes, reset = rows
    if batch_sizes is not None:
        raise no_onnx_export("a PackedSequence", "pass padded rows and lengths= to the layer")
    if not states:
        states = _zeros(x, weights, cell, count, bidirectional, batch_first)
    operators = _OPERATORS_OF_TRACES if torch.jit.is_tracing() else _operators_of_exports()
    each = len(weights) // (count * (2 if bidirectional else 1))
    has_heads = any(w.dim() == 3 for w in weights)
    if cell in operators and lengths is None and reset is None and not every_state and not has_heads:
        entering = tuple(states) if cell == "lstm" else states[0]
        return list(operators[cell](x, entering, weights, each == 4, count, 0.0, False, bidirectional, batch_first))
    weights = [w.detach() for w in weights]  # loops would keep sizes for a backward pass, which exporters cannot write
    form = (lengths, None, reset, cell, count, bidirectional, batch_first, every_state)
    y, last, every = composed_op(x, weights, tuple(states), *form, loop)
    return [y, *last, every] if every_state else [y, *last]


@functools.cache
def _operators_of_exports():
    """Returns those of the exporter that torch.export feeds. An RNN, and older versions an LSTM and a GRU, would be
    written for one length."""
    try:
        from torch.onnx._internal.exporter._capture_strategies import patch_dynamic_shape_rnn_decompositions  # noqa: F401
    except ImportError:
        return {}
    return {cell: _OPERATORS_OF_TRACES[cell] for cell in ("lstm", "gru")}


def _zeros(x, weights, cell, count, bidirectional, batch_first):
    gates, number, _ = CELLS[cell]
    slots, rows = count * (2 if bidirectional else 1), x.shape[0 if batch_first else 1]
    return tuple(x.new_zeros(slots, rows, weights[0].shape[0] // gates) for _ in range(number))


def scan(a, b, h0, lengths, reset, logarithmic, reverse):
    """Computes _ops.scan()."""
    terms = Terms(a, b, h0, lengths, reset, logarithmic, reverse)

    def step(given, state):
        decay, b, now = given
        after = decay * state[0] + b
        if now is None:
            return (after,), (after,)
        return (torch.where(now, after, state[0]),), (torch.where(now, after, torch.zeros_like(after)),)

    xs = tuple(t if t is None else t.transpose(0, 1) for t in (terms.decay, terms.b, terms.valid))
    (h,), (last,) = loop(step, xs, (terms.h0,), reverse)
    return h.transpose(0, 1), last


def loop(step, xs, state, reverse):
    """Does what _composed.unrolled() does, for all lengths."""
    dtype, given = xs[0].dtype, [x for x in xs if x is not None]
    rank = max(x.dim() for x in given)
    given = [(x.unsqueeze(-1) if x.dim() < rank else x).to(dtype) for x in given]
    widths, state_widths = [x.shape[-1] for x in given], [s.shape[-1] for s in state]

    def one(state, x):
        parts, places = iter(x.split(widths, -1)), []
        for original in xs:
            part = None if original is None else next(parts)
            if part is not None and original.dtype == torch.bool:
                part = part > 0
            places.append(part.squeeze(-1) if part is not None and original.dim() < rank else part)
        state, outputs = step(places, state.split(state_widths, -1))
        return torch.cat(state, -1), torch.cat(outputs, -1)

    together = _traced_loop if torch.jit.is_tracing() else _exported_loop
    last, y = together(one, torch.cat(state, -1).detach(), torch.cat(given, -1).detach(), reverse)
    kept = _widths_of(y.shape[-1], state_widths)
    return y.split(kept, -1), last.split(state_widths, -1)


def _widths_of(total, widths):
    """Returns the first of `widths`, as many as make `total`."""
    kept = []
    while sum(kept) < total:
        kept.append(widths[len(kept)])
    return kept


def _exported_loop(one, state, xs, reverse):
    from torch._higher_order_ops.scan import scan

    def combine(state, x):
        state, y = one(state, x)
        return state.clone(), y.clone()  # no result may be another's memory

    return scan(combine, state, xs, dim=0, reverse=reverse)


def _traced_loop(one, state, xs, reverse):
    """A trace cannot hold a loop, but it can call a script, and that a trace of one step."""
    if reverse:
        xs = xs.flip(0)
    outer = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecation, and sizes that become constants: those of the layer
            step = torch.jit.trace(one, (state, xs[0]), check_trace=False)

            @torch.jit.script
            def steps(state, xs):
                outputs = [torch.zeros(0)][:0]
                for t in range(xs.size(0)):
                    state, y = step(state, xs[t])
                    outputs.append(y)
                return state, torch.stack(outputs)
    finally:
        torch._C._set_tracing_state(outer)
    last, y = steps(state, xs)
    return last, y.flip(0) if reverse else y
