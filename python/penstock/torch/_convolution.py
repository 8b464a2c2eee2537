"""The causal convolution over time of each channel by itself, with gradients of all orders."""

import torch
from torch.nn import functional

from ._checks import is_exported
from ._higher_derivatives import state_type
from ._ops import autocast_sequence
from ._tangents import has_tangents, is_forward_mode

_LIMITS_LENGTHS = torch.__version__.startswith("2.10.")  # its torch.export fails at a limit of a convolution's length
_MOST_TAPS = 32  # up to which the library is quicker than PyTorch's convolution on a CPU
_op = torch.ops.penstock.causal_convolution.default


def causal_convolution(x, state, weight, bias, reset=None):
    """Returns y [B, T, C]: y_t = bias + sum_j weight_j x_{t-j}.

    Args:
        x: ``[B, T, C]``.
        state: The inputs before x, the oldest first, ``[B, K - 1, C]``. None: zeros.
        weight: ``[K, C]``, that of the newest input first.
        bias: ``[C]``.
        reset: bool ``[B, T]``. Where it is True, the past counts as zeros.
    """
    tangents = is_forward_mode() if torch.compiler.is_compiling() else has_tangents(x, state, weight, bias)
    many = x.device.type == "cpu" and weight.shape[0] > _MOST_TAPS and reset is None
    if tangents or many or is_exported() or torch._C._are_functorch_transforms_active():
        return _composed(x, state, weight, bias, reset)
    return _op(autocast_sequence(x), state, weight, bias, reset)


def inputs_before(x, state, taps):
    """Returns x with the taps - 1 inputs before it, those of the state or zeros."""
    if state is None:
        return functional.pad(x, (0, 0, taps - 1, 0))
    return torch.cat([state, x], 1)


def _composed(x, state, weight, bias, reset):
    """The same in PyTorch's operations, which have derivatives of all orders and kinds and can be exported."""
    taps, steps = weight.shape[0], x.shape[1]
    whole = inputs_before(x, state, taps)
    if reset is None and not (_LIMITS_LENGTHS and taps <= 64 and is_exported()):
        kernel = weight.flip(0).t().unsqueeze(1)  # [C, 1, taps], the oldest first
        return functional.conv1d(whole.transpose(1, 2), kernel, bias, groups=x.shape[2]).transpose(1, 2)
    # Where sequences begin within the steps, an input counts in its own sequence only.
    numbers = None if reset is None else functional.pad(reset.cumsum(1), (taps - 1, 0))  # of the sequence of each step
    y = bias
    for j in range(taps):
        past = slice(taps - 1 - j, taps - 1 - j + steps)
        term = weight[j] * whole[:, past]
        y = y + (term if numbers is None else term * (numbers[:, past] == numbers[:, taps - 1 :]).unsqueeze(-1))
    return y


@torch.library.register_fake("penstock::causal_convolution")
def _(x, state, weight, bias, reset):
    return x.new_empty(x.shape)


@torch.library.register_fake("penstock::causal_convolution_backward")
def _(dy, x, state, weight, reset):
    kind = state_type(x.dtype)
    return x.new_empty(x.shape), x.new_empty(weight.shape, dtype=kind), x.new_empty(x.shape[2], dtype=kind)


def _save(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _gradients(ctx, dy):
    x, state, weight, bias, reset = ctx.saved_tensors
    needs = ctx.needs_input_grad
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # gradients of gradients are wanted
        wanted = [t for t, n in zip((x, state, weight, bias), needs) if n]
        found = iter(torch.autograd.grad(_composed(x, state, weight, bias, reset), wanted, dy, create_graph=True))
        return *(next(found) if n else None for n in needs[:4]), None
    dx, dweight, dbias = torch.ops.penstock.causal_convolution_backward(dy, x, state, weight, reset)
    dstate = None
    if state is not None and needs[1]:
        dstate = _state_gradient(dy, state, weight, reset).to(state.dtype)
    return dx, dstate, dweight.to(weight.dtype), dbias.to(bias.dtype), None


def _state_gradient(dy, state, weight, reset):
    """The gradient of the state: that of inputs before the first taps - 1 steps, which alone have outputs of it."""
    kept = state.shape[1]
    first = functional.pad(dy[:, :kept], (0, 0, kept, 0))
    if reset is not None:
        reset = functional.pad(reset[:, :kept], (kept, 0))
    dx, _, _ = torch.ops.penstock.causal_convolution_backward(first, torch.zeros_like(first), None, weight, reset)
    return dx[:, :kept]


torch.library.register_autograd("penstock::causal_convolution", _gradients, setup_context=_save)
