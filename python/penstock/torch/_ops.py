"""Registration of the ops with PyTorch: shapes of results, first and second derivatives, autocast and vmap."""

import torch

from .._cell_forms import CELLS
from . import _higher_derivatives as higher
from . import _onnx, _scan_derivatives, _tangents
from ._checks import is_exported, refuse_onnx_export
from ._episodes import divided, part_of, with_restarts
from ._library import TYPES, tape_bytes
from ._higher_derivatives import state_type
from ._tangents import has_tangents, is_forward_mode, register_gradients
from ._vmap import batch_recurrent, batch_recurrent_backward, batch_scan

_extension = torch.library.Library("penstock", "FRAGMENT")


def keeps_tape():
    """Returns True if forward passes save a tape for the backward pass.

    Exported models do not save one. If they are trained nevertheless, the backward pass runs forward again.
    """
    return torch.is_grad_enabled() and not is_exported()


# ---- shapes ----------------------------------------------------------------------------------------------------------


def _check_devices(first, *others):
    """Raises RuntimeError if tensors are on different devices. No kernel runs if one of them is on `meta`."""
    refuse_onnx_export()  # every way to export to ONNX asks for shapes
    for other in others:
        if other is not None and other.device != first.device:
            devices = f"{first.device} and {other.device}"
            raise RuntimeError(f"Input and parameter tensors are not at the same device: found {devices}")


def _check_shapes(x, weights, batch_sizes, cell, layers):
    """Checks the shapes that this module needs. The kernels check the rest, also in compiled graphs."""
    rank = 3 if batch_sizes is None else 2
    torch._check(cell in CELLS, lambda: f"cell must be one of {', '.join(CELLS)}, not {cell}")
    torch._check(layers >= 1, lambda: f"layers must be at least 1, not {layers}")
    torch._check(x.dtype in TYPES, lambda: f"x must be float32, float64, bfloat16 or float16, not {x.dtype}")
    torch._check(x.dim() == rank, lambda: f"x must have {rank} dimensions, not the shape {tuple(x.shape)}")
    enough = len(weights) >= layers and weights[0].dim() == 2 and weights[0].dtype in TYPES
    torch._check(enough, lambda: "weights must hold those of every layer, floats, of which the first is [G * H, I]")


def _state_shape(x, weights, state, lengths, batch_sizes, reset, cell, layers, bidirectional, batch_first):
    _check_shapes(x, weights, batch_sizes, cell, layers)
    _check_devices(x, *weights, state, lengths, reset)
    gates, states, _ = CELLS[cell]
    if batch_sizes is None:
        rows = x.shape[0 if batch_first else 1]
    elif state is not None:
        rows = state.shape[2]
    else:
        rows = torch.library.get_ctx().new_dynamic_size()
    return states, layers * (2 if bidirectional else 1), rows, weights[0].shape[0] // gates


@torch.library.register_fake("penstock::recurrent")
def _(x, weights, state, lengths, batch_sizes, reset, cell, layers, bidirectional, batch_first, keep_tape,
      every_state):  # fmt: skip
    shape = _state_shape(x, weights, state, lengths, batch_sizes, reset, cell, layers, bidirectional, batch_first)
    width = shape[3] * (2 if bidirectional else 1)
    y = x.new_empty(*x.shape[:-1], width)
    states = x.new_empty((*x.shape[:-1], (shape[0] - 1) * width) if every_state else 0, dtype=state_type(x.dtype))
    size = 0
    if keep_tape and not (isinstance(shape[2], int) and shape[2] == 0):
        size = None
        if batch_sizes is None:
            form = (shape[3], CELLS[cell][2], layers, bidirectional, batch_first, every_state)
            size = tape_bytes(cell, x, weights, lengths, reset, *form)
        if size is None:
            size = torch.library.get_ctx().new_dynamic_size()
    return y, x.new_empty(shape, dtype=state_type(x.dtype)), x.new_empty(size, dtype=torch.uint8), states


@torch.library.register_fake("penstock::recurrent_eager")
def _(x, weights, states, restarts, lengths, batch_sizes, reset, cell, layers, bidirectional, batch_first, keep_tape,
      every_state):  # fmt: skip
    if restarts:
        states = with_restarts(x, (*(states or [None] * len(restarts)), *restarts), reset, len(restarts))
    state = torch.stack(states) if states else None
    form = (cell, layers, bidirectional, batch_first, keep_tape, every_state)
    y, last, tape, every = torch.ops.penstock.recurrent(x, weights, state, lengths, batch_sizes, reset, *form)
    more = [tape, *([state.to(last.dtype)] if restarts else [])] if keep_tape else []
    return [y, *last.unbind(0), *more, *([every] if every_state else [])]


@torch.library.register_fake("penstock::recurrent_cell")
def _(x, weights, states, cell):
    torch._check(cell in CELLS, lambda: f"cell must be one of {', '.join(CELLS)}, not {cell}")
    _check_devices(x, *weights, *states)
    gates, count, _ = CELLS[cell]
    return [x.new_empty(*x.shape[:-1], weights[0].shape[0] // gates) for _ in range(count)]


@torch.library.register_fake("penstock::recurrent_backward")
def _(dy, dstate, dstates, x, weights, state, lengths, batch_sizes, reset, y, tape, cell, layers, bidirectional,
      batch_first, every_state, want_dx, want_dweights):  # fmt: skip
    shape = _state_shape(x, weights, state, lengths, batch_sizes, reset, cell, layers, bidirectional, batch_first)
    _check_devices(x, dy, dstate, dstates, y, tape)
    if state is not None:
        shape = state.shape  # with the states of resets
    dx = x.new_empty(x.shape if want_dx else 0)
    dweights = [torch.empty_like(w, memory_format=torch.contiguous_format) for w in weights] if want_dweights else []
    return dx, x.new_empty(shape, dtype=state_type(x.dtype)), dweights


@torch.library.register_fake("penstock::scan")
def _(a, b, h0, lengths, reset, logarithmic, reverse):
    _check_devices(a, b, h0, lengths, reset)
    return a.new_empty(a.shape), a.new_empty(a.shape[0], a.shape[2])


@torch.library.register_fake("penstock::scan_backward")
def _(dh, dh_last, a, b, h0, lengths, reset, h, logarithmic, reverse):
    _check_devices(a, dh, dh_last, b, h0, lengths, reset, h)
    return a.new_empty(a.shape), a.new_empty(a.shape), a.new_empty(a.shape[0], a.shape[2])


for _name in ("scan_out", "scan_correct", "scan_backward_out", "scan_backward_correct"):  # results are arguments
    torch.library.register_fake(f"penstock::{_name}", lambda *terms, **results: None)


# ---- how an op becomes differentiable --------------------------------------------------------------------------------


def _is_recorded():
    return torch.compiler.is_compiling() or torch._C._is_tracing()


def is_plain(x):
    """Returns True for an eager CPU call outside transforms. PyTorch's own ops then give gradients of all orders."""
    return x.device.type == "cpu" and not _is_recorded() and not torch._C._are_functorch_transforms_active()


def is_eager(*tensors):
    """Returns True for a call outside compilers and transforms, without tangents."""
    return not _is_recorded() and not torch._C._are_functorch_transforms_active() and not has_tangents(*tensors)


class _Differentiable:
    """An op with gradients, called like the op.

    There are three ways to call it. A compiler sees the op itself; its gradients are registered with the dispatcher.
    Eager calls use an autograd.Function over the op, which is faster. The transforms of torch.func need a Function
    with a separate setup_context. `lists` gives the index of the argument and of the result that is a list of tensors.
    Among the arguments and results of a Function, lists come last. `composed` computes the same in operations that have
    forward-mode derivatives; `tangents`, if given, maps the arguments and their tangents to those of the results.
    """

    def __init__(self, name, save, gradients, batch, composed, lists=(None, None), tangents=None):
        self.op = getattr(torch.ops.penstock, name).default
        self.called = self.op._op  # the function behind the op, without the overhead of its Python call
        self.before_list = len(self.op._schema.arguments) - 1  # number of a Function's arguments before the list
        self.save, self.gradients, self.batch, self.composed, self.tangents = save, gradients, batch, composed, tangents
        self.list_argument, self.list_result = lists

        def gradients_of_op(ctx, *given):
            return gradients(ctx, ctx.saved_tensors, ctx.needs_input_grad, *given)

        register_gradients(_extension, self.op, gradients_of_op, self._save, composed)
        torch.library.register_vmap(self.op, lambda info, dims, *call: batch(self.op, info.batch_size, dims, *call))
        self.eager, self.transformed = self._functions()

    def __call__(self, *call):
        if _is_recorded():
            op = _onnx.scan if self is scan and torch.onnx.is_in_onnx_export() else self.op
            return self.composed(*call) if is_forward_mode() else op(*call)
        if torch._C._are_functorch_transforms_active():
            if self.tangents is None and is_forward_mode():
                return self.composed(*call)
            return self._again(self.transformed.apply(*self._flat(call)))
        if has_tangents(*call):
            return self.composed(*call)
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*self._flat(call)):
            return self._again(self.eager.apply(*self._flat(call)))
        with torch._C._AutoDispatchBelowAutograd():
            return self.called(*call)

    def _save(self, ctx, inputs, output):
        ctx.set_materialize_grads(False)
        self.save(ctx, inputs, output)

    def _flat(self, call):
        at = self.list_argument
        return call if at is None else (*call[:at], *call[at + 1 :], *call[at])

    def _nested(self, flat):
        at, count = self.list_argument, self.before_list
        return flat if at is None else (*flat[:at], list(flat[count:]), *flat[at:count])

    def _flat_results(self, results):
        at = self.list_result
        return results if at is None else (*results[:at], *results[at])

    def _again(self, flat):
        at = self.list_result
        return flat if at is None else (*flat[:at], list(flat[at:]))

    def _functions(self):
        this = self

        def backward(ctx, saved, gradients):
            return this._flat(this.gradients(ctx, saved, this._nested(ctx.needs_input_grad), *this._again(gradients)))

        class Eager(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *flat):
                call = this._nested(flat)
                with torch._C._AutoDispatchBelowAutograd():
                    results = this.called(*call)
                this._save(ctx, call, results)
                return this._flat_results(results)

            @staticmethod
            def backward(ctx, *gradients):
                return backward(ctx, ctx.saved_tensors, gradients)

        class Transformed(torch.autograd.Function):
            @staticmethod
            def forward(*flat):
                return this._flat_results(this(*this._nested(flat)))

            @staticmethod
            def setup_context(ctx, inputs, output):
                this._save(ctx, this._nested(inputs), this._again(output))
                if this.tangents is not None:
                    _tangents.keep_inputs(ctx, inputs)

            @staticmethod
            def backward(ctx, *gradients):
                return backward(ctx, [_tangents.without_dead_wrappers(t) for t in ctx.saved_tensors], gradients)

            @staticmethod
            def jvp(ctx, *moving):
                return _tangents.tangents_within(this.tangents, _tangents.inputs_of(ctx), moving)

            @staticmethod
            def vmap(info, in_dims, *flat):
                results, dims = this.batch(this, info.batch_size, this._nested(in_dims), *this._nested(flat))
                return this._flat_results(results), this._flat_results(dims)

        return Eager, Transformed


# ---- first derivatives -----------------------------------------------------------------------------------------------


def _save_recurrent(ctx, inputs, output):
    x, weights, state, lengths, batch_sizes, reset, *form, _, every_state = inputs
    y, _, tape, _ = output
    ctx.save_for_backward(x, state, lengths, batch_sizes, reset, y, tape, *weights)
    ctx.form = (*form, every_state)


def _recurrent_gradients(ctx, saved, needs, dy, dstate, _, dstates):
    x, state, lengths, batch_sizes, reset, y, tape, *weights = saved
    need_x, need_weights, need_state, *_ = needs
    nothing = [None] * len(weights)
    if not ctx.form[-1]:
        dstates = None  # the gradient of an empty tensor
    if dy is None and dstate is None and dstates is None:
        return None, nothing, None, *[None] * 9
    need_weights = any(need_weights)
    dx, dstate_in, dweights = recurrent_backward(
        dy, dstate, dstates, x, weights, state, lengths, batch_sizes, reset, y, tape, *ctx.form, need_x, need_weights
    )
    return (
        dx if need_x else None,
        dweights if need_weights else nothing,
        dstate_in.to(state.dtype) if need_state else None,
        *[None] * 9,
    )


def _save_scan(ctx, inputs, output):
    a, b, h0, lengths, reset, *ctx.form = inputs
    ctx.save_for_backward(a, b, h0, lengths, reset, output[0])


def _scan_gradients(ctx, saved, needs, dh, dh_last):
    a, b, h0, lengths, reset, h = saved
    if dh is None and dh_last is None:
        return (None,) * 7
    da, db, dh0 = scan_backward(dh, dh_last, a, b, h0, lengths, reset, h, *ctx.form)
    return da, db, dh0.to(h0.dtype) if needs[2] else None, *[None] * 4


# ---- second derivatives, through the same passes written in PyTorch's operations -------------------------------------


def _save_recurrent_backward(ctx, inputs, output):
    dy, dstate, dstates, x, weights, state, lengths, batch_sizes, reset, _, _, *form = inputs
    *ctx.form, ctx.want_dx, ctx.want_dw = form
    ctx.save_for_backward(dy, dstate, dstates, x, state, lengths, batch_sizes, reset, *weights)


def _recurrent_second_gradients(ctx, saved, _, ddx, ddstate, ddweights):
    dy, dstate, dstates, x, state, *rows = saved
    rows, weights = tuple(rows[:3]), rows[3:]
    *form, every_state = ctx.form
    seconds = [ddx if ctx.want_dx else None, ddstate, *(ddweights if ctx.want_dw else [None] * len(weights))]
    given = (dy, dstate, dstates if every_state else None)
    found = higher.recurrent_second_gradients(scan, given, x, weights, state, rows, form, every_state, seconds)
    return *found, *[None] * 12


def _save_scan_backward(ctx, inputs, output):
    dh, dh_last, a, b, h0, lengths, reset, _, *ctx.form = inputs
    ctx.save_for_backward(dh, dh_last, a, b, h0, lengths, reset)


def _scan_second_gradients(ctx, saved, _, dda, ddb, ddh0):
    dh, dh_last, a, b, h0, *form = saved
    seconds = (dda, ddb, ddh0)
    return *higher.scan_second_gradients(scan, (dh, dh_last), a, b, h0, (*form, *ctx.form), seconds), *[None] * 5


# ---- the same passes in operations that have forward-mode derivatives ------------------------------------------------


def _composed_scan_backward(dh, dh_last, a, b, h0, lengths, reset, h, logarithmic, reverse):
    return _scan_derivatives.backward(scan, dh, dh_last, a, b, h0, (lengths, reset, logarithmic, reverse))


def _scan_with_tangents(*call):
    if _is_recorded():
        return _scan_derivatives.with_tangents(scan.op, *call)
    with torch.inference_mode(False):  # inference mode would lose tangents
        return scan.transformed.apply(*call)


# ---- the ops ---------------------------------------------------------------------------------------------------------

recurrent_backward = _Differentiable(
    "recurrent_backward", _save_recurrent_backward, _recurrent_second_gradients, batch_recurrent_backward,
    lambda *call: higher.recurrent_backward(scan, *call), lists=(4, 2),
)  # fmt: skip
scan_backward = _Differentiable(
    "scan_backward", _save_scan_backward, _scan_second_gradients, batch_scan, _composed_scan_backward
)
scan: _Differentiable = _Differentiable(
    "scan", _save_scan, _scan_gradients, batch_scan, _scan_with_tangents,
    tangents=lambda inputs, moving: _scan_derivatives.tangents(scan, inputs[:3], moving[:3], inputs[3:]),
)  # fmt: skip
recurrent = _Differentiable(
    "recurrent", _save_recurrent, _recurrent_gradients, batch_recurrent,
    lambda *call: higher.recurrent(scan, *call), lists=(1, None),
)  # fmt: skip


def autocast_sequence(x):
    """Casts a sequence as autocast would for an op; without autocast returns it unchanged."""
    if torch._C._is_any_autocast_enabled() and torch.is_autocast_enabled(x.device.type):
        return _lowered(x, x.device.type)
    return x


class _Eager(torch.autograd.Function):
    """The Function of run_layers() outside compilers and transforms.

    It does the same as `recurrent`, without results that nobody reads: each one takes noticeable time in small calls.
    """

    @staticmethod
    def forward(ctx, count, rows, form, x, *states_and_weights):
        """`states_and_weights` begins with `count` states, as run_layers() takes them. `rows` is (lengths, batch_sizes,
        reset), `form` the op's arguments from the cell on."""
        states, weights = states_and_weights[:count], states_and_weights[count:]
        before, restarts = divided(states, CELLS[form[0]][1])
        results = _eager(x, weights, before, restarts, *rows, *form)
        joined = results.pop(-2 if form[-1] else -1) if restarts else None
        tape = results.pop(-2 if form[-1] else -1)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, *rows, results[0], tape, joined, *states_and_weights)
        ctx.count, ctx.form = count, form
        return tuple(results)

    @staticmethod
    def backward(ctx, dy, *dstates):
        x, lengths, batch_sizes, reset, y, tape, state, *states_and_weights = ctx.saved_tensors
        count, (*form, _, every_state) = ctx.count, ctx.form
        states, weights = states_and_weights[:count], states_and_weights[count:]
        _, _, _, need_x, *needed = ctx.needs_input_grad
        need_weights = any(needed[count:])
        devery = None
        if every_state:
            *dstates, devery = dstates
        dlast = _stacked_gradients(dstates)
        if dy is None and dlast is None and devery is None:
            return (None,) * len(ctx.needs_input_grad)
        if states and (state is None or torch.is_grad_enabled()):
            joined = with_restarts(x, states, reset, CELLS[form[0]][1])
            state = joined[0].unsqueeze(0) if len(joined) == 1 else torch.stack(joined)
        dx, dstate, dweights = recurrent_backward(
            dy, dlast, devery, x, weights, state, lengths, batch_sizes, reset, y, tape, *form, every_state, need_x,
            need_weights,
        )  # fmt: skip
        dstates = [part_of(dstate, i, s, reset) if n else None for i, (s, n) in enumerate(zip(states, needed))]
        dweights = dweights if need_weights else [None] * len(weights)
        return (None, None, None, dx if need_x else None, *dstates, *dweights)


def _stacked_gradients(gradients):
    """Stacks gradients of states to [S, ...], with zeros for those that are None. Returns None if all are None."""
    given = [g for g in gradients if g is not None]
    if not given:
        return None
    if len(given) < len(gradients):
        nothing = torch.zeros_like(given[0])
        gradients = [nothing if g is None else g for g in gradients]
    return torch.stack(gradients)


_eager = torch.ops.penstock.recurrent_eager.default._op  # the function behind the op


def run_layers(x, weights, states, rows, cell, layers, bidirectional, batch_first, every_state):
    """Runs the op `penstock::recurrent` with gradients, autocast. Returns [y, last states..., every state if wanted].

    `states` is empty (zeros) or has the states, each [layers * directions, B, H]. Behind them may be those with which
    rows start again at a reset, as with_restarts() takes both. `rows` is (lengths, batch_sizes, reset).
    """
    x = autocast_sequence(x)
    is_recorded = _is_recorded()
    is_transformed = is_recorded or torch._C._are_functorch_transforms_active()
    is_traced = is_transformed or has_tangents(x, states, weights)
    if is_traced or x.is_cuda:
        states = with_restarts(x, states, rows[2], CELLS[cell][1])
    if is_traced:
        form = (cell, layers, bidirectional, batch_first)
        if is_recorded and torch.onnx.is_in_onnx_export():
            return _onnx.layers(x, weights, states, rows, cell, layers, bidirectional, batch_first, every_state)
        if is_transformed:
            return _run_op(recurrent, x, weights, states, rows, form, every_state)
        with torch.inference_mode(False):  # inference mode would lose tangents
            return _run_op(recurrent.composed, x, weights, states, rows, form, every_state)
    # _any_requires_grad looks into lists, but not into lists of lists.
    if torch.is_grad_enabled() and (weights[0].requires_grad or torch._C._any_requires_grad(x, *states, *weights)):
        form = (cell, layers, bidirectional, batch_first, True, every_state)
        return _Eager.apply(len(states), rows, form, x, *states, *weights)
    states, restarts = divided(states, CELLS[cell][1]) if states else ((), ())
    return _eager(x, weights, states, restarts, *rows, cell, layers, bidirectional, batch_first, False, every_state)


def _run_op(op, x, weights, states, rows, form, every_state):
    state = torch.stack(states) if states else None
    y, last, _, every = op(x, weights, state, *rows, *form, keeps_tape(), every_state)
    return [y, *last.unbind(0), every] if every_state else [y, *last.unbind(0)]


_one_step = torch.ops.penstock.recurrent_cell.default._op


def one_step(x, weights, states, cell):
    """Runs the op `penstock::recurrent_cell`: one step of x [B, I] or [I]. Returns the states, each [B, H] or [H].

    `states` is empty for zeros. Returns None if the op does not support the call: with gradients, transforms,
    compilers, autocast or GPUs.
    """
    if torch.is_grad_enabled() or torch._C._is_any_autocast_enabled() or x.device.type != "cpu" or _is_recorded():
        return None
    if torch._C._are_functorch_transforms_active():
        return None
    if has_tangents(x, weights, states):
        return None
    with torch._C._AutoDispatchBelowAutograd():
        return _one_step(x, weights, states, cell)


# ---- autocast --------------------------------------------------------------------------------------------------------


def _lowered(x, device_type):
    """Casts a sequence to autocast's dtype. Weights and states stay: sums and states are float32 in any case."""
    return x if x.dtype == torch.float64 else x.to(torch.get_autocast_dtype(device_type))


def _register_autocast(key, device_type):
    below = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def autocast(x, *call):
        with torch._C._ExcludeDispatchKeyGuard(below):
            return recurrent.op(_lowered(x, device_type), *call)

    _extension.impl("recurrent", autocast, key)


_register_autocast("AutocastCPU", "cpu")
_register_autocast("AutocastCUDA", "cuda")
