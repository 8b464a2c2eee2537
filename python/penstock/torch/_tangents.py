"""Refuses forward-mode derivatives, which the ops do not support, instead of losing a tangent silently."""

import torch
from torch.autograd import forward_ad

_MESSAGE = (
    "Penstock's layers, cells and scans have no forward-mode derivatives, and an argument has a tangent (of "
    "torch.func.jvp, jacfwd, linearize or hessian, or of torch.autograd.forward_ad): use reverse mode, such as "
    "torch.func.vjp and jacrev, jacrev(jacrev(f)) for a Hessian, and torch.autograd.functional.jvp for a "
    "Jacobian-vector product"
)


class ReverseModeOnly:
    """Mixin of autograd.Functions whose jvp raises NotImplementedError."""

    @staticmethod
    def jvp(ctx, *tangents):
        raise NotImplementedError(_MESSAGE)


def refuse_tangents(*values):
    """Raises NotImplementedError if a tensor, or one in a list or a tuple, has a tangent.

    PyTorch calls the jvp of a Function only where a derivative is recorded. Other calls, such as those with frozen
    weights, would lose the tangent.
    """
    if forward_ad._current_level < 0:
        return
    with torch.inference_mode(False):  # inference mode would hide tangents
        for value in values:
            if isinstance(value, (list, tuple)):
                refuse_tangents(*value)
            elif isinstance(value, torch.Tensor) and forward_ad.unpack_dual(value).tangent is not None:
                raise NotImplementedError(_MESSAGE)


def register_gradients(library, op, gradients, save):
    """Registers gradients like torch.library.register_autograd(op, gradients, setup_context=save); refuses tangents.

    PyTorch's function would lose tangents in calls that need no gradients. `save` takes the context, the inputs and the
    output by position.
    """
    formula = torch._library.autograd.Info(gradients, lambda ctx, inputs, output: save(ctx, inputs, output))
    recorded = torch._library.autograd.make_autograd_impl(op, formula)

    def kernel(keyset, *call):
        refuse_tangents(*call)
        return recorded(keyset, *call)

    library.impl(op, kernel, "Autograd", with_keyset=True)
