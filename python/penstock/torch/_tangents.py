"""Forward-mode derivatives, which the ops do not have: a tangent that comes to one is refused, and not lost."""

import torch
from torch.autograd import forward_ad

_MESSAGE = (
    "Penstock's layers, cells and scans have no forward-mode derivatives, and an argument has a tangent (of "
    "torch.func.jvp, jacfwd, linearize or hessian, or of torch.autograd.forward_ad): use reverse mode, such as "
    "torch.func.vjp and jacrev, jacrev(jacrev(f)) for a Hessian, and torch.autograd.functional.jvp for a "
    "Jacobian-vector product"
)


class ReverseModeOnly:
    """What an autograd.Function says of tangents."""

    @staticmethod
    def jvp(ctx, *tangents):
        raise NotImplementedError(_MESSAGE)


def refuse_tangents(*values):
    """Throws NotImplementedError if a tensor, or one in a list or a tuple, has a tangent. Functions are asked only for
    their jvp where a derivative is recorded; what runs without one, as with frozen weights, would lose it."""
    if forward_ad._current_level < 0:
        return
    with torch.inference_mode(False):  # which hides tangents, too
        for value in values:
            if isinstance(value, (list, tuple)):
                refuse_tangents(*value)
            elif isinstance(value, torch.Tensor) and forward_ad.unpack_dual(value).tangent is not None:
                raise NotImplementedError(_MESSAGE)


def register_gradients(library, op, gradients, save):
    """As torch.library.register_autograd(op, gradients, setup_context=save), for whom a call that asks for no gradients
    may lose tangents. `save` takes the context, the inputs and the output by position."""
    formula = torch._library.autograd.Info(gradients, lambda ctx, inputs, output: save(ctx, inputs, output))
    recorded = torch._library.autograd.make_autograd_impl(op, formula)

    def kernel(keyset, *call):
        refuse_tangents(*call)
        return recorded(keyset, *call)

    library.impl(op, kernel, "Autograd", with_keyset=True)
