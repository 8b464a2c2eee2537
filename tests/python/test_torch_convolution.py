"""The op of the causal convolution against the same in PyTorch's operations, in float64."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("penstock.torch")
from penstock.torch._convolution import _composed, causal_convolution  # noqa: E402

SIZES = [(2, 7, 5, 4), (1, 3, 8, 4), (3, 33, 16, 1), (2, 40, 6, 9), (2, 2, 3, 5)]
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
#: Of what is stored, and the types in which sums are computed.
COMPUTED = {torch.float64: torch.float64, torch.float32: torch.float32, torch.bfloat16: torch.float32}


def limit(dtype, terms):
    """The rounding of a result and of a sum of so many terms, in units of the largest value."""
    return 2 * torch.finfo(dtype).eps + terms * torch.finfo(COMPUTED[dtype]).eps


def terms(rows, steps, channels, taps, with_state, with_reset):
    torch.manual_seed(taps)
    state = torch.randn(rows, taps - 1, channels, dtype=torch.float64) if with_state else None
    shapes = ((rows, steps, channels), (taps, channels), (channels,))
    x, weight, bias = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    return (x, state, weight, bias), (torch.rand(rows, steps) < 0.2 if with_reset else None)


def gradients(function, tensors, reset, dtype, device="cpu"):
    given = [None if t is None else t.to(device, dtype, copy=True).requires_grad_() for t in tensors]
    y = function(*given, None if reset is None else reset.to(device))
    y.backward(torch.linspace(-1, 1, y.numel(), dtype=torch.float64).reshape(y.shape).to(device, dtype))
    return [y.detach().cpu(), *(t.grad.cpu() for t in given if t is not None)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("with_reset", [False, True])
@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize("dtype", COMPUTED)
def test_equals_the_operations(dtype, with_state, with_reset, device):
    if device == "cuda" and dtype == torch.float64:
        pytest.skip("GPUs compute in float32")
    for sizes in SIZES:
        tensors, reset = terms(*sizes, with_state, with_reset)
        if dtype == torch.bfloat16:  # what both read
            tensors = [None if t is None else t.to(dtype).double() for t in tensors]
        expected = gradients(_composed, tensors, reset, torch.float64)
        for want, got in zip(expected, gradients(causal_convolution, tensors, reset, dtype, device), strict=True):
            assert got.dtype == dtype
            if want.numel():
                assert (want - got.double()).abs().max() <= limit(dtype, sizes[0] * sizes[1]) * want.abs().max().clamp(min=1)


def test_derivatives_of_two_orders():
    tensors, reset = terms(2, 6, 3, 4, True, True)
    for t in tensors:
        t.requires_grad_()
    assert torch.autograd.gradcheck(lambda *given: causal_convolution(*given, reset), tensors)
    assert torch.autograd.gradgradcheck(lambda *given: causal_convolution(*given, reset), tensors)
    tangents = [torch.ones_like(t) for t in tensors]
    _, moved = torch.func.jvp(lambda *given: causal_convolution(*given, reset), tuple(tensors), tuple(tangents))
    assert moved.shape == tensors[0].shape


def test_what_does_not_fit_is_refused():
    x, weight, bias = torch.ones(2, 3, 4), torch.ones(2, 4), torch.ones(4)
    for what, call in (
        ("weight", (x, None, torch.ones(2, 5), bias, None)),
        ("bias", (x, None, weight, torch.ones(5), None)),
        ("state", (x, torch.ones(2, 2, 4), weight, bias, None)),
        ("reset", (x, None, weight, bias, torch.ones(2, 3))),
    ):
        with pytest.raises(RuntimeError, match=what):
            torch.ops.penstock.causal_convolution(*call)
