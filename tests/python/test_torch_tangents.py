"""Forward-mode derivatives of penstock.torch: torch.func.jvp, jacfwd, hessian, linearize and torch.autograd.forward_ad."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
ours = pytest.importorskip("penstock.torch", reason="penstock is not installed")

from test_torch_transforms import STACKS, VARIANTS, arguments, as_function  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402

torch.set_num_threads(1)  # these sizes are too small to share


@pytest.fixture(autouse=True)
def compile_anew():
    """Layers share their code, of which PyTorch compiles only so many variants."""
    yield
    torch._dynamo.reset()


def in_double(what):
    function = DIFFERENTIATED[what]()
    return function.double() if isinstance(function, torch.nn.Module) else function


def along(function, x, tangent):
    """The derivative of function(x) along `tangent`, by differences."""
    step = 1e-6
    return ((function(x + step * tangent) - function(x - step * tangent)) / (2 * step)).detach()


def pair(*shape):
    return torch.rand(shape, dtype=torch.float64), torch.rand(shape, dtype=torch.float64)


class Outputs(torch.nn.Module):
    """A layer's outputs alone."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        y = self.layer(x)
        return y[0] if isinstance(y, tuple) else y


def dual(function, x, tangent):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(x, tangent))).tangent


def dual_in_inference_mode(function, x, tangent):
    return dual(torch.inference_mode()(function), x, tangent)


FORWARD_MODES = {
    "linearize": lambda f, x, t: torch.func.linearize(f, x)[1](t),
    "jvp": lambda f, x, t: torch.func.jvp(f, (x,), (t,))[1],
    "jvp of a compiled function": lambda f, x, t: torch.compile(
        lambda x, t: torch.func.jvp(f, (x,), (t,))[1], backend="aot_eager"
    )(x, t),
    "jacfwd": lambda f, x, t: torch.func.jacfwd(f)(x),
    "hessian": lambda f, x, t: torch.func.hessian(lambda x: f(x).sum())(x),
    "vmap": lambda f, x, t: torch.func.vmap(lambda x, t: torch.func.jvp(f, (x,), (t,))[1])(x[None], t[None]),
    "dual": dual,
    "dual without gradients": torch.no_grad()(dual),
    "dual in inference mode": dual_in_inference_mode,
    "dual into a compiled function": lambda f, x, t: dual(torch.compile(f, backend="aot_eager"), x, t),
}
DIFFERENTIATED = {
    "stack": lambda: Outputs(ours.GRU(3, 4)),
    "frozen stack": lambda: Outputs(ours.LSTM(3, 4)).requires_grad_(False),
    "positive scan cell": lambda: Outputs(ours.MinLSTM(3, 4, bidirectional=True, candidate="positive")),
    "projections": lambda: Outputs(ours.LSTM(3, 4, num_layers=2, proj_size=2, bidirectional=True)),
    "heads": lambda: Outputs(ours.SLSTM(3, 4, num_layers=2, num_heads=2)),
    "cell": lambda: Outputs(ours.LSTMCell(3, 4)),
    "frozen cell": lambda: Outputs(ours.GRUCell(3, 4)).requires_grad_(False),
    "scan": lambda: lambda x: ours.scan(x.unsqueeze(0), torch.ones(1, *x.shape))[0],
    "log_scan": lambda: lambda x: ours.log_scan(torch.zeros(1, *x.shape), x.unsqueeze(0))[0],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", FORWARD_MODES)
@pytest.mark.parametrize("what", DIFFERENTIATED)
def test_every_mode(what, mode):
    if mode == "dual in inference mode" and what in ("scan", "log_scan"):
        pytest.skip("PyTorch's own operations drop the tangent")
    torch.manual_seed(0)
    function, (x, tangent) = in_double(what), pair(5, 3)
    got = FORWARD_MODES[mode](function, x, tangent)
    if mode == "hessian":
        expected = along(torch.func.grad(lambda x: function(x).sum()), x, tangent)
        got = torch.tensordot(got, tangent, 2)
    else:
        expected = along(function, x, tangent)
        got = torch.tensordot(got, tangent, 2) if mode == "jacfwd" else got[0] if mode == "vmap" else got
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("variant", range(len(VARIANTS)))
@pytest.mark.parametrize("cell", STACKS)
def test_every_cell_along_every_input(cell, variant):
    function, inputs = as_function(arguments(cell, **{"steps": 2, "hidden": 2, **VARIANTS[variant]}))
    options = {"check_forward_ad": True, "check_backward_ad": False, "fast_mode": True}
    assert torch.autograd.gradcheck(function, inputs, **options)


@pytest.mark.parametrize("variant", range(len(VARIANTS)))
@pytest.mark.parametrize("cell", ["gru", "slstm", "mingru", "minlstm-log"])
def test_forward_over_reverse(cell, variant):
    function, inputs = as_function(arguments(cell, **{"steps": 2, "hidden": 2, **VARIANTS[variant]}))
    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True, check_fwd_over_rev=True)


@pytest.mark.parametrize("name", ["GRU", "LSTM", "MinGRU"])
def test_as_torch_nn_where_it_has_the_layer(name):
    """Jacobians of a layer, of its weights and of its states, in float."""
    torch.manual_seed(0)
    layer = getattr(ours, name)(3, 4)
    weights, x = dict(layer.named_parameters()), torch.randn(4, 2, 3)

    def outputs(weights, x):
        return torch.func.functional_call(layer, weights, (x,))[0]

    for argument in (0, 1):
        got = torch.func.jacfwd(outputs, argument)(weights, x)
        expected = torch.func.jacrev(outputs, argument)(weights, x)
        for mine, other in zip(got.values() if argument == 0 else [got], expected.values() if argument == 0 else [expected]):
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)
    if name != "MinGRU":
        theirs = getattr(torch.nn, name)(3, 4)
        theirs.load_state_dict(layer.state_dict())
        tangent = torch.randn_like(x)
        got = torch.func.jvp(lambda x: layer(x)[0], (x,), (tangent,))
        with torch.backends.mkldnn.flags(enabled=False):  # which has no forward mode
            expected = torch.func.jvp(lambda x: theirs(x)[0], (x,), (tangent,))
        for mine, other in zip(got, expected):
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("what", ["stack", "positive scan cell", "heads", "scan", "log_scan"])
def test_orders_of_modes_agree(what):
    torch.manual_seed(0)
    function, (x, _) = in_double(what), pair(3, 3)

    def loss(x):
        return function(x).sin().sum()

    expected = torch.func.jacrev(torch.func.jacrev(loss))(x)
    for outer, inner in ((torch.func.jacfwd, torch.func.jacrev), (torch.func.jacrev, torch.func.jacfwd),
                         (torch.func.jacfwd, torch.func.jacfwd)):  # fmt: skip
        torch.testing.assert_close(outer(inner(loss))(x), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("logarithmic", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("form", ["whole", "lengths", "resets", "both"])
def test_scans(logarithmic, reverse, form):
    torch.manual_seed(0)
    a, b, h0 = (torch.rand(shape, dtype=torch.float64).requires_grad_() for shape in ((3, 5, 2), (3, 5, 2), (3, 2)))
    lengths = torch.tensor([5, 0, 3]) if form in ("lengths", "both") else None
    reset = torch.tensor([[0, 1, 0, 0, 1], [1, 0, 0, 0, 0], [1, 0, 0, 1, 0]]).bool() if form in ("resets", "both") else None
    scan = ours.log_scan if logarithmic else ours.scan

    def function(a, b, h0):
        return scan(a, b, h0, lengths=lengths, reset_mask=reset, reverse=reverse)

    options = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
    assert torch.autograd.gradcheck(function, (a, b, h0), **options)
    assert torch.autograd.gradgradcheck(function, (a, b, h0), check_fwd_over_rev=True, check_rev_over_rev=True)


def test_what_a_scan_does_not_read_moves_nothing():
    a, b = (torch.rand(2, 4, 3, dtype=torch.float64) for _ in range(2))
    lengths = torch.tensor([4, 2])
    beyond = (torch.arange(4) >= lengths.unsqueeze(1)).unsqueeze(-1)
    broken = [torch.where(beyond, torch.nan, t) for t in (a, b)]
    results = [torch.func.jvp(lambda a, b: ours.scan(a, b, lengths=lengths)[0], (p, q), (p, q)) for p, q in ((a, b), broken)]
    for got, expected in zip(*results):
        torch.testing.assert_close(got, expected)
    got = [torch.func.grad(lambda a: torch.func.grad(lambda a: ours.scan(a, q, lengths=lengths)[0].sum())(a).sum())(p)
           for p, q in ((a, b), broken)]  # fmt: skip
    torch.testing.assert_close(*got)


@pytest.mark.filterwarnings("ignore")
def test_states_weights_gradients_and_exported_layers():
    torch.manual_seed(0)
    stack, (x, tangent) = ours.GRU(3, 4).double().requires_grad_(False), pair(5, 2, 3)
    h, th = pair(1, 2, 4)
    weights = dict(stack.named_parameters())
    exported = torch.export.export(Outputs(stack), (x,)).module()

    def of_weight(w):
        return torch.func.functional_call(stack, {**weights, "weight_hh_l0": w}, (x,))[0]

    w, tw = weights["weight_hh_l0"].detach(), torch.ones(12, 4, dtype=torch.float64)
    for function, at, direction in ((lambda h: stack(x, h)[0], h, th), (of_weight, w, tw), (exported, x, tangent)):
        expected = along(function, at, direction)
        torch.testing.assert_close(dual(function, at, direction), expected, rtol=1e-6, atol=1e-7)
    x.requires_grad_()
    y = stack(x)[0]
    ones = torch.ones_like(y)
    with forward_ad.dual_level():
        (gradient,) = torch.autograd.grad(y, x, forward_ad.make_dual(ones, ones))
        primal, moving = forward_ad.unpack_dual(gradient)
    torch.testing.assert_close(moving, primal)  # the gradient is linear in that of the outputs


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision(dtype):
    torch.manual_seed(0)
    layer, x = ours.MinGRU(3, 4), torch.randn(4, 2, 3)
    low = ours.MinGRU(3, 4, dtype=dtype)
    low.load_state_dict(layer.state_dict())
    got = torch.func.jvp(lambda x: low(x)[0], (x.to(dtype),), (x.to(dtype),))[1]
    expected = torch.func.jvp(lambda x: layer(x)[0], (x,), (x,))[1]
    assert got.dtype == dtype
    torch.testing.assert_close(got.float(), expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("what", DIFFERENTIATED)
def test_what_has_no_tangent_is_computed_beside_others_that_have(what):
    function, (x, _) = in_double(what), pair(5, 3)
    one = torch.ones((), dtype=torch.float64)
    for derivative in (dual, lambda f, x, t: torch.func.jvp(f, (x,), (t,))[1]):
        torch.testing.assert_close(derivative(lambda s: (function(x) * s).sum(), one, one), function(x).sum())


def test_the_op_itself_has_tangents():
    """As compiled graphs and exported programs call it."""
    x, weights, state, *rest = arguments("mingru", steps=4)
    function = lambda x: torch.ops.penstock.recurrent(x, weights, state, *rest, False, False)[0]  # noqa: E731
    torch.testing.assert_close(dual(function, x, x), along(function, x, x), rtol=1e-6, atol=1e-7)
