"""Forward-mode derivatives: of scans by scans, of everything else by the same pass in PyTorch's operations."""

import torch
from torch.autograd import forward_ad


def is_forward_mode():
    """Returns True inside torch.func.jvp and transforms made of it, and inside forward_ad.dual_level()."""
    return forward_ad._current_level >= 0


def has_tangents(*values):
    """Returns True if a tensor, or one in a list or a tuple, has a tangent of torch.autograd.forward_ad."""
    if forward_ad._current_level < 0 or not (torch._C._is_fwd_grad_enabled() or torch.is_inference_mode_enabled()):
        return False
    with torch.inference_mode(False):  # inference mode would hide tangents
        return _any_tangents(values)


def _any_tangents(values):
    for value in values:
        if isinstance(value, (list, tuple)):
            if _any_tangents(value):
                return True
        elif isinstance(value, torch.Tensor) and forward_ad.unpack_dual(value).tangent is not None:
            return True
    return False


def refuse_tangents(*values):
    """Raises NotImplementedError for tangents: they would have to travel between processes."""
    if has_tangents(*values):
        raise NotImplementedError(
            "layers and scans that several processes share have no forward-mode derivatives, and an argument has a "
            "tangent (of torch.func.jvp, jacfwd, linearize or hessian, or of torch.autograd.forward_ad): use reverse "
            "mode, or leave out process_group="
        )


def keep_inputs(ctx, inputs):
    """Keeps the inputs of an autograd.Function for its jvp, where inputs_of() returns them."""
    ctx.is_tensor = [isinstance(value, torch.Tensor) for value in inputs]
    ctx.save_for_forward(*(value for value, tensor in zip(inputs, ctx.is_tensor) if tensor))
    ctx.others = [None if tensor else value for value, tensor in zip(inputs, ctx.is_tensor)]


def inputs_of(ctx):
    """Returns what keep_inputs() kept."""
    saved = iter(ctx.saved_tensors)
    return [next(saved) if is_tensor else other for is_tensor, other in zip(ctx.is_tensor, ctx.others)]


def tangents_within(function, inputs, moving):
    """Returns function(inputs, moving), the tangents of results in a jvp. Those of outer transforms move them, too."""
    stack = torch._C._functorch.get_interpreter_stack() or []
    if sum(interpreter.key() == torch._C._functorch.TransformType.Jvp for interpreter in stack) < 2:
        return function(inputs, moving)
    # PyTorch disables forward mode in a jvp, and the inputs still have the tangents of the transform itself.
    with forward_ad._set_fwd_grad_enabled(True):
        still = [forward_ad.unpack_dual(v).primal if isinstance(v, torch.Tensor) else v for v in inputs]
        return function(still, moving)


def without_dead_wrappers(value):
    """Returns a saved tensor without the wrappers of transforms that have ended. PyTorch removes only the outermost."""
    while isinstance(value, torch.Tensor):
        inner = torch._C._functorch.unwrap_if_dead(value)
        if inner is value:
            break
        value = inner
    return value


def register_gradients(library, op, gradients, save, composed):
    """Registers gradients like torch.library.register_autograd(op, gradients, setup_context=save), and tangents.

    PyTorch's function would lose tangents. `save` takes the context, the inputs and the output by position, `composed`
    the arguments of the op.
    """
    formula = torch._library.autograd.Info(gradients, lambda ctx, inputs, output: save(ctx, inputs, output))
    recorded = torch._library.autograd.make_autograd_impl(op, formula)

    def kernel(keyset, *call):
        return composed(*call) if has_tangents(*call) else recorded(keyset, *call)

    library.impl(op, kernel, "Autograd", with_keyset=True)
