"""penstock.torch.recurrence against layers over x, and the sLSTM layers of the package xlstm."""

import copy

import pytest
import torch

import penstock
import penstock.torch
from penstock.equations import sigmoid, tanh
from penstock.torch import recurrence

LAYERS = {
    "lstm": penstock.torch.LSTM,
    "gru": penstock.torch.GRU,
    "elman": penstock.torch.RNN,
    "slstm": penstock.torch.SLSTM,
}


def problem(cell, heads, dtype, batch_first=True, device="cpu"):
    """Returns a layer, an input with ugly sizes, and the layer's weights."""
    torch.manual_seed(len(cell) + heads)
    more = {} if heads == 1 else {"num_heads": heads}
    layer = LAYERS[cell](5, 14, batch_first=batch_first, **more).to(device, dtype)
    weights = [w.detach().requires_grad_() for w in layer._weights()]
    return layer, torch.randn(3, 7, 5, dtype=dtype, device=device), weights


def results(y, last, every, inputs):
    last = (last,) if isinstance(last, torch.Tensor) else last
    outputs = [y, *last, *every]
    loss = sum((out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)).sum() for out in outputs)
    return [*outputs, *torch.autograd.grad(loss, inputs)]


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("cell", LAYERS)
def test_is_the_layer_without_its_projection(cell, heads, batch_first):
    layer, x, (weight_ih, weight_hh, bias_ih, bias_hh) = problem(cell, heads, torch.float64, batch_first)
    rows = 3 if batch_first else 7
    states = tuple(torch.randn(1, rows, 14, dtype=torch.float64) for _ in range(penstock.reference.CELLS[cell][2]))
    if cell == "slstm":
        states[2].abs_()
    lengths = torch.tensor([7, 2, 5] if batch_first else [3, 1, 2, 3, 3, 2, 1])
    reset = torch.rand(x.shape[:2]) < 0.3
    every = cell in ("lstm", "slstm")
    x.requires_grad_()
    for state in states:
        state.requires_grad_()
    y, last, *others = torch.func.functional_call(
        layer, dict(zip(layer._flat_weights_names, (weight_ih, weight_hh, bias_ih, bias_hh))),
        (x, states if len(states) > 1 else states[0]),
        {"lengths": lengths, "reset_mask": reset, "every_state": every},
    )  # fmt: skip
    inputs = [x, *states, weight_ih, weight_hh, bias_ih, bias_hh]
    last = last.squeeze(0) if isinstance(last, torch.Tensor) else tuple(s.squeeze(0) for s in last)
    want = results(y, last, others[0] if others else (), inputs)
    state = tuple(s.squeeze(0) for s in states)
    y, last, *others = recurrence(
        x @ weight_ih.T, weight_hh, bias_ih, state, cell=cell, bias_hh=bias_hh, lengths=lengths, reset_mask=reset,
        every_state=every, batch_first=batch_first,
    )  # fmt: skip
    got = results(y, last, others[0] if others else (), inputs)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("form", [(), (3,), (3, 7)])
@pytest.mark.parametrize("cell", LAYERS)
def test_starts_again_as_the_layer_does(cell, form, batch_first):
    layer, x, (weight_ih, weight_hh, bias_ih, bias_hh) = problem(cell, 2, torch.float64)
    restarts = tuple(torch.rand(*form, 14, dtype=torch.float64, requires_grad=True) for _ in range(penstock.reference.CELLS[cell][2]))
    reset = torch.rand(3, 7) < 0.4
    inputs = [weight_ih, weight_hh, bias_ih, bias_hh, *restarts]
    weights = dict(zip(layer._flat_weights_names, inputs[:4]))
    to = tuple(s.unsqueeze(0) for s in restarts)
    y, last = torch.func.functional_call(layer, weights, (x,), {"reset_mask": reset, "reset_to": to if len(to) > 1 else to[0]})
    last = last.squeeze(0) if isinstance(last, torch.Tensor) else tuple(s.squeeze(0) for s in last)
    want = results(y, last, (), inputs)
    swap = (lambda t: t) if batch_first else (lambda t: t.transpose(0, 1))
    y, last = recurrence(
        swap(x @ weight_ih.T), weight_hh, bias_ih, cell=cell, bias_hh=bias_hh, reset_mask=swap(reset),
        reset_to=restarts if len(restarts) > 1 else restarts[0], batch_first=batch_first,
    )  # fmt: skip
    for a, b in zip(results(swap(y), last, (), inputs), want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


def test_states_of_resets_are_checked():
    wx, weight, state = torch.zeros(2, 5, 12), torch.zeros(12, 4), torch.zeros(2, 4)
    mask = torch.zeros(2, 5, dtype=torch.bool)

    def refused(why, **more):
        with pytest.raises((ValueError, RuntimeError), match=why):
            recurrence(wx, weight, cell="gru", **more)

    refused("reset_to needs reset_mask", reset_to=state)
    refused("and no lengths", reset_to=state, reset_mask=mask, lengths=[5, 2])
    refused("must hold the 1 states of cell 'gru', not 2", reset_to=(state, state), reset_mask=mask)
    refused(r"reset_to must be \[H\], .* = \[4\] or \[2, 4\] or \[2, 5, 4\], not \[3, 4\]", reset_to=torch.zeros(3, 4), reset_mask=mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("cell", LAYERS)
def test_types(cell, dtype):
    layer, x, (weight_ih, weight_hh, bias_ih, _) = problem(cell, 2, torch.float32)
    wx = (x @ weight_ih.T).detach().to(dtype).requires_grad_()
    got = results(*recurrence(wx, weight_hh, bias_ih, cell=cell)[:2], (), [wx, weight_hh, bias_ih])
    exact = [t.detach().double().requires_grad_() for t in (wx, weight_hh, bias_ih)]
    want = results(*recurrence(*exact, cell=cell)[:2], (), exact)
    tolerance = 3e-5 if dtype == torch.float32 else 6e-2
    for a, b in zip(got, want, strict=True):
        assert (a.double() - b).abs().max() <= tolerance * max(1.0, b.abs().max().item())
    assert got[0].dtype == dtype


def test_derivatives_and_transforms():
    torch.manual_seed(0)
    wx, weight = torch.randn(2, 3, 8, dtype=torch.float64), torch.randn(8, 2, dtype=torch.float64)
    tensors = [wx.requires_grad_(), weight.requires_grad_(), torch.randn(8, dtype=torch.float64, requires_grad=True)]
    assert torch.autograd.gradcheck(lambda *t: recurrence(*t)[0], tensors)
    assert torch.autograd.gradgradcheck(lambda *t: recurrence(*t)[0], tensors)
    many = torch.randn(4, 2, 3, 8, dtype=torch.float64)
    each = torch.vmap(lambda w: recurrence(w, weight)[0])(many)
    torch.testing.assert_close(each, torch.stack([recurrence(w, weight)[0] for w in many]))
    _, tangent = torch.func.jvp(lambda w: recurrence(w, weight)[0], (wx.detach(),), (torch.ones_like(wx),))
    h = 1e-6
    ahead, behind = (recurrence(wx.detach() + s * h, weight)[0] for s in (1, -1))
    torch.testing.assert_close(tangent, (ahead - behind) / (2 * h), rtol=1e-6, atol=1e-8)


def test_compiles():
    wx, weight = torch.randn(2, 3, 8, requires_grad=True), torch.randn(8, 2)
    compiled = torch.compile(lambda w: recurrence(w, weight)[0], fullgraph=True)
    y = compiled(wx)
    torch.testing.assert_close(y, recurrence(wx, weight)[0])
    y.sum().backward()
    want = torch.autograd.grad(recurrence(wx, weight)[0].sum(), wx)[0]
    torch.testing.assert_close(wx.grad, want)


@penstock.cell(gates=2, learnt={"v": 0.5})
def squashed(wx, rh, s, p):
    """A cell with a learnt vector, which stands behind the gates of the bias."""
    keep = sigmoid(wx[0] + rh[0])
    return keep * s.h + (1 - keep) * tanh(wx[1] + rh[1] + p.v * s.h)


def test_custom_cells():
    layer = penstock.torch.Recurrent(squashed, 3, 6)
    weight_ih, weight_hh, bias_ih, bias_hh = layer._weights()
    x = torch.randn(4, 2, 3)
    y, last = recurrence(x @ weight_ih.T, weight_hh, bias_ih, cell=str(squashed), bias_hh=bias_hh, batch_first=False)
    want, want_last = layer(x)
    torch.testing.assert_close(y, want)
    torch.testing.assert_close(last, want_last[0])


@pytest.mark.parametrize(
    "change, words",
    [
        ({"cell": "mingru"}, "has no recurrent matrix: use penstock.torch.scan"),
        ({"cell": "ltsm"}, "cell must be one of"),
        ({"wx": torch.zeros(2, 3, 9)}, r"G \* H = 8, got \[2, 3, 9\]"),
        ({"wx": torch.zeros(3, 8)}, r"wx must be \[B, T, G \* H\]"),
        ({"weight_hh": torch.zeros(8, 3)}, r"weight_hh must be \[G \* H, H\] with G = 4 gates, got \[8, 3\]"),
        ({"bias_hh": torch.zeros(8)}, "bias_hh needs bias"),
        ({"bias": torch.zeros(7)}, r"weights\[2\] must be"),
        ({"state": (torch.zeros(2, 2),)}, r"state must be 2 tensors \[B, H\] = \[2, 2\]"),
        ({"lengths": [4, 1]}, "lengths must be 0 to T = 3"),
        ({"cell": "elman", "weight_hh": torch.zeros(8, 8), "every_state": True}, "every_state is for lstm and slstm"),
    ],
)
def test_refuses(change, words):
    call = {"wx": torch.zeros(2, 3, 8), "weight_hh": torch.zeros(8, 2), **change}
    with pytest.raises((ValueError, RuntimeError), match=words):
        recurrence(call.pop("wx"), call.pop("weight_hh"), **call)


# ---- the package xlstm -----------------------------------------------------------------------------------------------


@pytest.fixture
def xlstm():
    package = pytest.importorskip("xlstm")
    import penstock.torch.xlstm

    yield package
    penstock.torch.xlstm.unpatch()


def layer_of(package, backend="vanilla", **options):
    config = package.sLSTMLayerConfig(
        embedding_dim=24, num_heads=3, backend=backend, dtype="float32", recurrent_weight_init="standard",
        bias_init="standard", **options,
    )  # fmt: skip
    torch.manual_seed(7)
    layer = package.sLSTMLayer(config)
    layer.reset_parameters()
    return layer


def trained(layer, x):
    out, state = layer(x, return_last_state=True)
    (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    gradients = {name: p.grad.clone() for name, p in layer.named_parameters()}
    layer.zero_grad()
    return out.detach(), state["slstm_state"].detach(), gradients


@pytest.mark.parametrize("function", ["slstm", "lstm"])
def test_layers_of_xlstm_stay_what_they_are(xlstm, function):
    layer, x = layer_of(xlstm, function=function), torch.randn(2, 9, 24)
    want = trained(layer, x)
    penstock.torch.xlstm.patch()
    penstock.torch.xlstm.patch()
    got = trained(layer, x)
    torch.testing.assert_close(got[0], want[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got[1], want[1], rtol=1e-5, atol=1e-5)
    for name, gradient in want[2].items():
        torch.testing.assert_close(got[2][name], gradient, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
    penstock.torch.xlstm.unpatch()
    again = trained(layer, x)
    assert torch.equal(again[0], want[0])


def test_steps_of_xlstm_are_the_sequence(xlstm):
    penstock.torch.xlstm.patch()
    layer, x = layer_of(xlstm), torch.randn(2, 6, 24)
    want, last = layer(x, return_last_state=True)
    state = {"conv_state": None, "slstm_state": None}
    for t in range(6):
        out, state = layer.step(x[:, t : t + 1], **state)
        torch.testing.assert_close(out, want[:, t : t + 1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(state["slstm_state"], last["slstm_state"], rtol=1e-5, atol=1e-5)


def test_the_cuda_backend_of_xlstm_needs_no_compiler(xlstm):
    vanilla, x = layer_of(xlstm), torch.randn(2, 9, 24)
    want, _ = vanilla(x, return_last_state=True)
    penstock.torch.xlstm.patch()
    cuda = layer_of(xlstm, "cuda", dtype_b="float32", internal_input_shape="SBNGH")
    weights = penstock.interchange.from_xlstm({k: v.detach().numpy() for k, v in vanilla.state_dict().items()})
    tensors = penstock.interchange.xlstm.to_xlstm(weights, backend="cuda")
    cuda.load_state_dict({name: torch.from_numpy(copy.copy(t)) for name, t in tensors.items()})
    got, _ = cuda(x, return_last_state=True)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    cuda.slstm_cell.config.gradient_recurrent_cut = True
    with pytest.raises(NotImplementedError, match="unpatch"):
        cuda(x)


def test_says_which_package_is_missing(monkeypatch):
    import penstock.torch.xlstm

    def refuse(name, *arguments):
        raise ModuleNotFoundError("No module named 'xlstm'", name="xlstm")

    monkeypatch.setattr("importlib.import_module", refuse)
    with pytest.raises(ModuleNotFoundError, match="needs the package xlstm: pip install xlstm"):
        penstock.torch.xlstm.patch()
