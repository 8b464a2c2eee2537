"""DropConnect, dropout of the state and zoneout, against plain loops that draw the same masks."""

import copy
import pickle

import numpy as np
import pytest

import penstock
from penstock import interchange, variants
from penstock.equations import sigmoid, tanh

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from penstock import torch as penstock_torch  # noqa: E402
from penstock.torch import _masked_cells, _regularise  # noqa: E402
from penstock.torch import GRU, LSTM, RNN, SLSTM, MinGRU, Recurrent, convert_back, initialise, regularise  # noqa: E402


def plain_step(cell, wx, rh, states):
    """Returns the states after a step of the built-in cells."""
    if cell == "LSTM":
        i, f, g, o = (wx + rh).chunk(4, -1)
        c = torch.sigmoid(f) * states[1] + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c
    if cell == "GRU":
        (r, z, n), (hr, hz, hn) = wx.chunk(3, -1), rh.chunk(3, -1)
        r, z = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
        return ((1 - z) * torch.tanh(n + r * hn) + z * states[0],)
    return (torch.tanh(wx + rh),)


def plain(layer, x, drop_connect=0.0, recurrent_dropout=0.0, zoneout=0.0, cell_zoneout=0.0):
    """Returns the outputs [T, B, H] of one layer in training. It draws masks as the layer does."""
    cell, shares = type(layer).__name__, (zoneout, cell_zoneout)
    matrix = layer.weight_hh_l0
    if drop_connect:
        matrix = functional.dropout(matrix, drop_connect, True)
    states = tuple(x.new_zeros(x.shape[1], layer.hidden_size) for _ in range(2 if cell == "LSTM" else 1))
    mask = torch.ones_like(states[0])
    if recurrent_dropout:
        mask = functional.dropout(mask, recurrent_dropout, True)
    outputs = []
    for x_t in x:
        wx = functional.linear(x_t, layer.weight_ih_l0, layer.bias_ih_l0)
        rh = functional.linear(states[0] * mask, matrix, layer.bias_hh_l0)
        after = plain_step(cell, wx, rh, states)
        states = tuple(
            torch.where(torch.rand_like(old) < share, old, new) if share else new
            for share, old, new in zip(shares, states, after)
        )
        outputs.append(states[0])
    return torch.stack(outputs), states


OPTIONS = [
    {"drop_connect": 0.4},
    {"recurrent_dropout": 0.3},
    {"zoneout": 0.25},
    {"drop_connect": 0.2, "recurrent_dropout": 0.3, "zoneout": 0.25},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", [LSTM, GRU, RNN])
def test_training_is_a_loop_with_the_same_masks(kind, options):
    if kind is LSTM and "zoneout" in options:
        options = {**options, "cell_zoneout": 0.5}
    layer, x = regularise(kind(3, 5, dtype=torch.float64), **options), torch.randn(7, 2, 3, dtype=torch.float64)
    weights = list(layer.parameters())
    torch.manual_seed(11)
    y, last = layer(x)
    torch.manual_seed(11)
    expected, states = plain(layer, x, **options)
    torch.testing.assert_close(y, expected)
    for found, state in zip(last if kind is LSTM else (last,), states):
        torch.testing.assert_close(found[0], state)
    dy = torch.randn_like(y)
    for found, wanted in zip(torch.autograd.grad(y, weights, dy), torch.autograd.grad(expected, weights, dy)):
        torch.testing.assert_close(found, wanted)
    assert not torch.equal(layer(x)[0], y)  # other masks


@pytest.mark.parametrize("kind", [LSTM, GRU, RNN])
def test_evaluation_has_no_masks(kind):
    layer, x = regularise(kind(3, 5), drop_connect=0.4, recurrent_dropout=0.3).eval(), torch.randn(7, 2, 3)
    plain_layer = kind(3, 5).eval()
    plain_layer.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x)[0], plain_layer(x)[0], rtol=0, atol=0)


def expectation(layer, x, zoneout, cell_zoneout=0.0):
    states = tuple(x.new_zeros(x.shape[1], 5) for _ in range(2 if isinstance(layer, LSTM) else 1))
    outputs = []
    for x_t in x:
        wx = functional.linear(x_t, layer.weight_ih_l0, layer.bias_ih_l0)
        rh = functional.linear(states[0], layer.weight_hh_l0, layer.bias_hh_l0)
        after = plain_step(type(layer).__name__, wx, rh, states)
        states = tuple(s * old + (1 - s) * new for s, old, new in zip((zoneout, cell_zoneout), states, after))
        outputs.append(states[0])
    return torch.stack(outputs)


@pytest.mark.parametrize("dtype, allowed", [(torch.float64, 1e-12), (torch.float32, 1e-6), (torch.bfloat16, 0.02)])
@pytest.mark.parametrize("kind", [LSTM, GRU, RNN])
def test_evaluation_of_zoneout_is_the_expectation(kind, dtype, allowed):
    options = {"zoneout": 0.25, **({"cell_zoneout": 0.5} if kind is LSTM else {})}
    layer, x = regularise(kind(3, 5, dtype=dtype), **options).eval(), torch.randn(7, 2, 3, dtype=dtype)
    expected = expectation(layer, x, **options)
    torch.testing.assert_close(layer(x)[0], expected, rtol=0, atol=allowed)
    if dtype == torch.float32:  # the kernels, with gradients; no loop over steps
        y, _ = layer(x)
        assert "Eager" in type(y.grad_fn).__name__
        (found,), (wanted,) = (torch.autograd.grad(each.sum(), [layer.weight_hh_l0]) for each in (y, expected))
        torch.testing.assert_close(found, wanted)


def test_the_mean_of_training_is_what_evaluation_computes():
    layer = regularise(RNN(2, 3, dtype=torch.float64), zoneout=0.3)
    x = torch.randn(1, 20_000, 2, dtype=torch.float64)[:, :1].expand(1, 20_000, 2).contiguous()
    y, _ = layer(x)
    torch.testing.assert_close(y.mean(1), layer.eval()(x[:, :1])[0][:, 0], rtol=0, atol=0.02)


LAYERS = [
    (LSTM, {"num_heads": 2, "bidirectional": True}, {"zoneout": 0.2, "cell_zoneout": 0.4, "recurrent_dropout": 0.3}),
    (LSTM, {"num_layers": 2}, {"cell_zoneout": 0.4}),
    (GRU, {"bidirectional": True, "num_layers": 2}, {"zoneout": 0.3, "recurrent_dropout": 0.4}),
    (RNN, {"nonlinearity": "relu"}, {"recurrent_dropout": 0.5}),
]


@pytest.mark.parametrize("lengths", [None, [4, 9, 0, 1]])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind, form, options", LAYERS)
def test_one_call_is_the_loop_over_steps(kind, form, options, dtype, lengths, monkeypatch):
    """With the same masks, states after each step, resets and gradients."""
    torch.manual_seed(2)
    layer = regularise(kind(5, 12, batch_first=True, dtype=dtype, **form), **options)
    x, reset = torch.randn(4, 9, 5, dtype=dtype, requires_grad=True), torch.rand(4, 9) < 0.3
    calls = []
    run = _regularise.run_masked
    monkeypatch.setattr(_regularise, "run_masked", lambda *call: calls.append(call) or run(*call))

    def results():
        torch.manual_seed(7)
        y, last, *every = layer(x, lengths=lengths, reset_mask=reset, every_state=kind is LSTM or None)
        outputs = [y, *(last if kind is LSTM else (last,)), *(every[0] if every else ())]
        loss = sum((out * torch.linspace(-1, 1, out.numel(), dtype=dtype).view_as(out)).sum() for out in outputs)
        return [*outputs, *torch.autograd.grad(loss, [x, *layer.parameters()])]

    found = results()
    assert len(calls) == layer.num_layers * (2 if layer.bidirectional else 1)
    monkeypatch.setattr(_regularise, "masked_cell", lambda *cell: None)
    allowed = 1e-13 if dtype == torch.float64 else 1e-5
    for a, b in zip(found, results(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=allowed * max(1.0, b.abs().max().item()))


@pytest.mark.parametrize("axes", [(), (4,), (4, 9)])
def test_states_start_again_under_the_same_masks(monkeypatch, axes):
    torch.manual_seed(3)
    options = {"recurrent_dropout": 0.3, "zoneout": 0.25, "cell_zoneout": 0.5}
    layer = regularise(LSTM(5, 12, num_layers=2, batch_first=True, dtype=torch.float64), **options)
    x, reset = torch.randn(4, 9, 5, dtype=torch.float64, requires_grad=True), torch.rand(4, 9) < 0.3
    to = tuple(torch.randn(2, *axes, 12, dtype=torch.float64, requires_grad=True) for _ in range(2))

    def results():
        torch.manual_seed(7)
        y, last = layer(x, reset_mask=reset, reset_to=to)
        dy = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).view_as(y)
        return [y, *last, *torch.autograd.grad(y, [x, *to, *layer.parameters()], dy)]

    found = results()
    assert found[4].abs().sum() > 0
    monkeypatch.setattr(_regularise, "masked_cell", lambda *cell: None)
    for a, b in zip(found, results(), strict=True):
        torch.testing.assert_close(a, b)


def test_cells_of_ones_own_have_masks():
    @penstock.cell(gates=2, learnt={"v": 0.5})
    def masked(wx, rh, s, p):
        keep = sigmoid(wx[0] + rh[0])
        return keep * s.h + (1 - keep) * tanh(wx[1] + rh[1] + p.v * s.h)

    assert _masked_cells.masked_cell(str(masked), (0,), True)
    assert _masked_cells.masked_cell("slstm", (0,), False) is None
    layer = regularise(Recurrent(masked, 3, 4, dtype=torch.float64), zoneout=0.3, recurrent_dropout=0.2)
    x = torch.randn(5, 2, 3, dtype=torch.float64)

    def passes(vector):
        torch.manual_seed(3)
        layer.bias_ih_l0.data[-4:] = vector.detach()
        return layer(x)[0]

    vector = torch.rand(4, dtype=torch.float64)
    (found,) = torch.autograd.grad(passes(vector).sum(), [layer.bias_ih_l0])
    for unit in range(4):
        step = 1e-6 * torch.eye(4, dtype=torch.float64)[unit]
        slope = (passes(vector + step).sum() - passes(vector - step).sum()) / 2e-6
        assert abs(found[-4 + unit] - slope) < 1e-7


def test_stacks_of_both_directions_with_lengths():
    torch.manual_seed(1)
    layer = LSTM(3, 4, num_layers=2, bidirectional=True, dropout=0.1, batch_first=True, dtype=torch.float64)
    x, lengths = torch.randn(3, 6, 3, dtype=torch.float64), [6, 2, 0]
    regularise(layer, drop_connect=0.2, recurrent_dropout=0.2, zoneout=0.2, cell_zoneout=0.2)
    y, (h, c) = layer(x, lengths=lengths)
    assert y.shape == (3, 6, 8) and h.shape == c.shape == (4, 3, 4)
    assert not y[1, 2:].any() and not y[2].any() and not h[:, 2].any()
    y.sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in layer.parameters())
    # Certain zoneout keeps the first state.
    regularise(layer, zoneout=1.0, cell_zoneout=1.0)
    hx = tuple(torch.randn(4, 3, 4, dtype=torch.float64) for _ in range(2))
    for _, last in (layer(x, hx), layer.eval()(x, hx)):
        torch.testing.assert_close(last, hx)


@pytest.mark.parametrize("training", [True, False])
def test_scan_cells_run_as_scans(training):
    layer, x = regularise(MinGRU(3, 5, dtype=torch.float64), zoneout=0.25).train(training), torch.randn(7, 2, 3).double()
    torch.manual_seed(5)
    y, _ = layer(x)
    torch.manual_seed(5)
    wx = functional.linear(x, layer.weight_ih_l0, layer.bias_ih_l0)
    keeps = (torch.rand_like(wx[..., :5]) < 0.25).double() if training else 0.25
    z, candidate = torch.sigmoid(wx[..., :5]), wx[..., 5:]
    h, outputs = x.new_zeros(2, 5), []
    for t in range(7):
        kept = keeps[t] if training else keeps
        h = kept * h + (1 - kept) * ((1 - z[t]) * h + z[t] * candidate[t])
        outputs.append(h)
    torch.testing.assert_close(y, torch.stack(outputs))
    dy = torch.randn_like(y)
    expected = torch.autograd.grad(torch.stack(outputs), list(layer.parameters()), dy)
    for found, wanted in zip(torch.autograd.grad(y, list(layer.parameters()), dy), expected):
        torch.testing.assert_close(found, wanted)


def test_other_cells():
    @penstock.cell(gates=1, name="reg_scaled", learnt={"p": 0.5})
    def scaled(wx, rh, p):
        return tanh(wx[0] + p.p * rh[0])

    x = torch.randn(5, 2, 3)
    for layer in (SLSTM(3, 4), Recurrent(scaled, 3, 4), Recurrent(variants.gru(candidate="elu"), 3, 4), MinGRU(3, 4)):
        options = {} if isinstance(layer, MinGRU) else {"drop_connect": 0.2, "recurrent_dropout": 0.2}
        regularise(layer, zoneout=0.5, **options)
        y, _ = layer(x)
        y.sum().backward()
        assert torch.isfinite(y).all() and layer.weight_ih_l0.grad is not None
        torch.testing.assert_close(layer.eval()(x)[0], layer(x)[0])
        regularise(layer)
        assert layer._noise.steps(True) is False


@pytest.mark.parametrize("make", [LSTM, GRU, RNN])
def test_weights_taken_from_a_layer_are_those_of_what_it_evaluates(make, tmp_path):
    options = {"cell_zoneout": 0.1} if make is LSTM else {}
    layer = regularise(make(3, 5, num_layers=2, bidirectional=True), drop_connect=0.3, zoneout=0.2, **options).eval()
    x = torch.randn(7, 2, 3)
    expected = layer(x)[0].detach().numpy()
    torch.save({"encoder": layer.state_dict()}, tmp_path / "layer.pt")
    of_file = interchange.load(tmp_path / "layer.pt")
    for weights in (
        interchange.RecurrentWeights.from_torch(layer),
        interchange.from_torch(layer.state_dict()),
        *of_file.values(),
    ):
        y, _ = weights.to_numpy().forward(x.numpy(), layout="time_first")
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(weights.to_torch(False)(x)[0], layer(x)[0])
    plain = make(3, 5, num_layers=2, bidirectional=True)
    plain.load_state_dict(layer.state_dict())  # weights alone, to train on without zoneout
    initialise(layer, "orthogonal")


def test_zoneout_that_no_cell_computes_is_no_plain_layer(tmp_path):
    for layer in (SLSTM(3, 4), MinGRU(3, 4), Recurrent("gru-before", 3, 4)):
        regularise(layer, zoneout=0.2)
        with pytest.raises(penstock.InvalidArgument, match="module must have no zoneout.*zoneout=0.2"):
            interchange.RecurrentWeights.from_torch(layer)
        with pytest.raises(penstock.BadInput, match="cell must be one of .* not '.*zoneout=0.2 in evaluation'"):
            interchange.from_torch(layer.state_dict())
        regularise(layer)
        assert interchange.from_torch(layer.state_dict()).cell == layer._cell()
    for dropped in ({"drop_connect": 0.5}, {"recurrent_dropout": 0.5}):  # in training alone
        assert interchange.RecurrentWeights.from_torch(regularise(GRU(3, 4), **dropped)).cell == "gru"


def test_a_state_dict_says_its_cell():
    assert interchange.from_torch(SLSTM(3, 4).state_dict()).cell == "slstm"
    assert interchange.from_torch({"e": SLSTM(3, 4)}["e"].state_dict(prefix="e."), prefix="e.").cell == "slstm"


def test_copies_keep_it():
    layer, x = regularise(LSTM(3, 5), drop_connect=0.4, zoneout=0.25), torch.randn(7, 2, 3)
    assert repr(layer) == "LSTM(3, 5, drop_connect=0.4, zoneout=0.25)"
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        torch.manual_seed(3)
        y, _ = layer(x)
        torch.manual_seed(3)
        torch.testing.assert_close(other(x)[0], y, rtol=0, atol=0)
    with pytest.raises(ValueError, match="torch.nn has no such layer.*drop_connect=0.4"):
        convert_back(layer)


@pytest.mark.parametrize(
    "call, error, problem",
    [
        (lambda: regularise(torch.nn.LSTM(3, 5)), TypeError, "layer must be a recurrent layer of penstock.torch.*not LSTM"),
        (lambda: regularise(LSTM(3, 5), drop_connect=1), ValueError, "drop_connect must be 0 to 1, and less than 1, not 1"),
        (lambda: regularise(LSTM(3, 5), zoneout=-1), ValueError, "zoneout must be 0 to 1, not -1"),
        (lambda: regularise(GRU(3, 5), cell_zoneout=0.1), ValueError, "cell_zoneout must be 0 for GRU, which has no state c"),
        (lambda: regularise(MinGRU(3, 5), drop_connect=0.1), ValueError, "must be 0 for MinGRU, which has no recurrent matrix"),
        (lambda: regularise(LSTM(3, 5, proj_size=2), zoneout=0.1), ValueError, "proj_size: use drop_connect"),
        (lambda: torch.jit.trace(regularise(LSTM(3, 5), zoneout=0.1), (torch.zeros(2, 1, 3),)), RuntimeError, "cannot be exported"),
    ],
)  # fmt: skip
def test_impossible_calls_are_refused(call, error, problem):
    with pytest.raises(error, match=problem):
        call()


def test_module_says_it():
    assert "regularise" in penstock_torch.__all__
