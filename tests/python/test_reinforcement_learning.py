"""Episodes within sequences: where states start again, and from which state."""

import pathlib
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch", minversion="2.10", reason="penstock.torch needs PyTorch 2.10")
ours = pytest.importorskip("penstock.torch", reason="penstock is not installed")

import penstock  # noqa: E402
from penstock._cell_forms import CELLS as FORMS  # noqa: E402
from penstock.equations import sigmoid, tanh  # noqa: E402
from penstock.torch._episodes import before_step  # noqa: E402

torch.set_num_threads(1)  # these sizes are too small to share


@penstock.cell(states=("h", "c"), gates=4, learnt={"i": 0.1, "o": -0.2})
def rl_peephole(wx, rh, s, p):
    """An LSTM whose gates see the cell state."""
    c = sigmoid(wx[1] + rh[1]) * s.c + sigmoid(wx[0] + rh[0] + p.i * s.c) * tanh(wx[2] + rh[2])
    return sigmoid(wx[3] + rh[3] + p.o * c) * tanh(c), c


CELLS = pytest.mark.parametrize("cell", [*(cell["name"] for cell in penstock.cells()), str(rl_peephole)])
EPSILON = torch.finfo(torch.float32).eps
DONES = torch.tensor([[0, 0, 1], [0, 1, 0], [0, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 1]], dtype=torch.bool)  # [T, B]
T, B = DONES.shape


def close(got, expected, terms=16):
    """Within the rounding of sums of `terms` products over T steps."""
    bound = 16 * EPSILON * terms**0.5 * T**0.5 * max(1.0, expected.abs().max().item())
    torch.testing.assert_close(got, expected, rtol=0, atol=bound)


def layer_of(cell, **options):
    torch.manual_seed(3)
    return ours.Recurrent(cell, 4, 8, **options)


def states_of(layer, *shape):
    """States that the cell can have: an sLSTM's normaliser is positive."""
    count = FORMS[layer._cell()][1]
    return tuple(torch.rand(shape).add(0.5).requires_grad_() for _ in range(count))


def one_or(states):
    return states if len(states) > 1 else states[0]


def as_tuple(states):
    return (states,) if isinstance(states, torch.Tensor) else tuple(states)


# ---- where an episode starts -----------------------------------------------------------------------------------------


def test_dones_of_a_step_are_starts_of_the_next():
    expected = torch.cat([torch.ones(1, B, dtype=torch.bool), DONES[:-1]])
    assert torch.equal(ours.episode_starts(DONES), expected)
    first = torch.tensor([False, True, False])
    starts = ours.episode_starts(DONES, first)
    assert torch.equal(starts[0], first) and torch.equal(starts[1:], DONES[:-1])
    assert torch.equal(ours.episode_starts(DONES.t(), first, batch_first=True), starts.t())
    assert torch.equal(ours.episode_starts(DONES[:, 1], first[1]), starts[:, 1])
    assert torch.equal(ours.episode_starts(DONES[:, 1], first[1], batch_first=True), starts[:, 1])
    assert torch.equal(ours.episode_starts(DONES.to(torch.uint8), first.to(torch.uint8)), starts)
    assert ours.episode_starts(DONES[:0]).shape == (0, B)


def test_rollouts_continue_one_another():
    whole = ours.episode_starts(DONES)
    parts = [ours.episode_starts(DONES[:2]), ours.episode_starts(DONES[2:], DONES[1])]
    assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: ours.episode_starts([True]), TypeError, "dones must be a tensor, not list"),
        (lambda: ours.episode_starts(DONES.float()), RuntimeError, r"dones must be .* torch.bool, not torch.float32: convert it with .to"),
        (lambda: ours.episode_starts(DONES[None]), RuntimeError, r"dones must have the shape \[T, B\] or \[T\], not \[1, 6, 3\]"),
        (lambda: ours.episode_starts(DONES, DONES[:, 0]), RuntimeError, r"first must be the batch of dones = \[3\], not \[6\]"),
        (lambda: ours.episode_starts(DONES, True), TypeError, "first must be a tensor, not bool"),
        (lambda: ours.episode_starts(DONES, DONES[0].long()), RuntimeError, "first must be .* torch.bool, not torch.int64"),
        (lambda: ours.episode_starts(DONES, DONES[0].to("meta")), RuntimeError, r"first must be on cpu, not on meta: move it with .to\('cpu'\)"),
        (lambda: ours.GRU(4, 8)(torch.ones(T, B, 4), reset_mask=DONES.to("meta")), RuntimeError, "reset_mask must be on cpu, not on meta"),
        (lambda: ours.GRU(4, 8, device="meta")(torch.ones(T, B, 4, device="meta"), reset_mask=DONES), RuntimeError, "reset_mask must be on meta, not on cpu"),
    ],
)  # fmt: skip
def test_wrong_flags(call, error, message):
    with pytest.raises(error, match=message):
        call()


@CELLS
def test_results_are_those_of_separate_sequences_to_the_bit(cell):
    network = penstock.Recurrent(cell, 4, 8, seed=3)
    starts = ours.episode_starts(DONES).numpy().T
    x = np.random.default_rng(0).standard_normal((B, T, 4), np.float32)
    y, last = network.forward(x, reset_mask=starts, exact=True)
    for row in range(B):
        cuts = [*np.flatnonzero(starts[row]), T]
        parts = [network.forward(x[row, a:b], exact=True) for a, b in zip(cuts, cuts[1:])]
        assert np.array_equal(y[row], np.concatenate([part for part, _ in parts]))
        assert np.array_equal(last[..., row, :], parts[-1][1].reshape(last[..., row, :].shape))


@CELLS
def test_episodes_from_given_states_are_separate_sequences_to_the_bit(cell):
    network = penstock.Recurrent(cell, 4, 8, seed=3)
    starts, rng = ours.episode_starts(DONES).numpy().T, np.random.default_rng(0)
    x, h0 = rng.standard_normal((B, T, 4), np.float32), network.zero_state(B)
    to = rng.uniform(0.5, 1.5, (*h0.shape[:-1], T, 8)).astype(np.float32)
    y, last = network.forward(x, reset_mask=starts, reset_to=to, exact=True)
    for row in range(B):
        cuts = [*np.flatnonzero(starts[row]), T]
        parts = [network.forward(x[row, a:b], to[..., row, a, :], exact=True) for a, b in zip(cuts, cuts[1:])]
        assert np.array_equal(y[row], np.concatenate([part for part, _ in parts]))
        assert np.array_equal(last[..., row, :], parts[-1][1].reshape(last[..., row, :].shape))


def test_scans_start_again_at_given_states():
    a, b, to = (torch.rand(B, T, 5) for _ in range(3))
    mask, h, steps = DONES.t().unsqueeze(-1), torch.zeros(B, 5), []
    for t in range(T):
        h = a[:, t] * torch.where(mask[:, t], to[:, t], h) + b[:, t]
        steps.append(h)
    page = (pathlib.Path(__file__).parents[2] / "docs" / "reinforcement_learning.md").read_text()
    (call,) = re.findall(r"`(scan\(a, torch[^`]*)`", page)
    y, _ = eval(call, {"scan": ours.scan, "torch": torch, "a": a, "b": b, "to": to, "mask": DONES.t()})
    close(y, torch.stack(steps, 1))


@CELLS
@pytest.mark.parametrize("layers", [1, 2])
def test_gradients_do_not_cross_the_end_of_an_episode(cell, layers):
    layer, x = layer_of(cell, num_layers=layers), torch.randn(T, B, 4, requires_grad=True)
    hx = states_of(layer, layers, B, 8)
    starts = ours.episode_starts(DONES, torch.zeros(B, dtype=torch.bool))
    for row, end in DONES.t().nonzero().tolist():
        y, _ = layer(x, one_or(hx), reset_mask=starts)
        dx, *dhx = torch.autograd.grad(y[end + 1 :, row].sum(), (x, *hx))
        assert not dx[: end + 1].any() and not any(d.any() for d in dhx)
        assert end + 1 == T or dx[end + 1 :, row].any()
    # The check finds a reset that comes one step late: row 0 ends with step 4.
    y, _ = layer(x, one_or(hx), reset_mask=starts.roll(1, 0))
    assert torch.autograd.grad(y[5:, 0].sum(), x)[0][:5].any()


@CELLS
def test_a_training_pass_gives_what_the_rollout_gave(cell):
    """Step by step, the flags of the last step are the resets of the next."""
    layer, x = layer_of(cell), torch.randn(T, B, 4)
    entering = state = states_of(layer, 1, B, 8)
    first = done = torch.tensor([True, False, False])
    steps = []
    for t in range(T):
        y, state = layer(x[t : t + 1], one_or(as_tuple(state)), reset_mask=done[None])
        steps.append(y)
        done = DONES[t]
    y, last = layer(x, one_or(entering), reset_mask=ours.episode_starts(DONES, first))
    close(y, torch.cat(steps))
    for got, expected in zip(as_tuple(last), as_tuple(state)):
        close(got, expected)


# ---- from which state ------------------------------------------------------------------------------------------------


def by_steps(layer, x, hx, starts, states):
    """Outputs and last states of a loop over the steps. `states` are [L, B, T, H]."""
    outputs = []
    for t in range(len(x)):
        begins = starts[t][None, :, None]
        hx = tuple(torch.where(begins, to[:, :, t], state) for to, state in zip(states, hx))
        y, after = layer(x[t : t + 1], one_or(hx))
        outputs.append(y)
        hx = as_tuple(after)
    return torch.cat(outputs), hx


@CELLS
@pytest.mark.parametrize("form", ["learnt", "row", "step"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_states_start_again_where_they_are_told(cell, form, batch_first):
    layers = 2 if form == "step" else 1
    layer = layer_of(cell, num_layers=layers)
    x, dy = torch.randn(T, B, 4, requires_grad=True), torch.randn(T, B, 8)
    starts = ours.episode_starts(DONES, torch.tensor([True, False, False]))
    hx = states_of(layer, layers, B, 8)
    to = states_of(layer, layers, *{"learnt": [], "row": [B], "step": [B, T]}[form], 8)
    whole = [state.reshape(layers, *(1,) * (4 - state.dim()), 8) if state.dim() == 2 else state for state in to]
    whole = [state.unsqueeze(2) if state.dim() == 3 else state for state in whole]
    whole = [state.expand(layers, B, T, 8) for state in whole]
    leaves = (x, *hx, *to, *layer.parameters())
    expected, last = by_steps(layer, x, hx, starts, whole)
    gradients = torch.autograd.grad([expected, *last], leaves, [dy, *map(torch.ones_like, last)])

    layer.batch_first = batch_first
    swap = (lambda t: t.transpose(0, 1)) if batch_first else (lambda t: t)
    y, after = layer(swap(x), one_or(hx), reset_mask=swap(starts), reset_to=one_or(to))
    after = as_tuple(after)
    close(swap(y), expected)
    for got, wanted in zip(after, last):
        close(got, wanted)
    for got, wanted in zip(torch.autograd.grad([swap(y), *after], leaves, [dy, *map(torch.ones_like, after)]), gradients):
        close(got, wanted, terms=16 * T * B)


@pytest.mark.parametrize("rows, steps", [(1, 6), (3, 1), (1, 1)])
@pytest.mark.parametrize("axes", [0, 1, 2])
def test_states_of_a_single_row_or_step_start_again(rows, steps, axes):
    """Then states of all rows, of each row or of each step are the same in memory."""
    lstm, x = layer_of("lstm", batch_first=True), torch.randn(rows, steps, 4)
    starts = torch.arange(rows * steps).view(rows, steps) % 2 == 0
    hx, to = states_of(lstm, 1, rows, 8), states_of(lstm, 1, *(rows, steps)[:axes], 8)
    whole = [state.view(1, *state.shape[1:-1], *(1,) * (2 - axes), 8).expand(1, rows, steps, 8) for state in to]
    lstm.batch_first = False
    expected, _ = by_steps(lstm, x.transpose(0, 1), hx, starts.t(), whole)
    lstm.batch_first = True
    results = [expected.transpose(0, 1), lstm(x, hx, reset_mask=starts, reset_to=to)[0]]
    if steps == 1:  # as GPUs do it
        results.append(lstm(x, before_step(hx, to, starts))[0])
    for got in results[1:]:
        close(got, results[0])
        gradients = (torch.autograd.grad(y.sin().sum(), (*hx, *to), retain_graph=True) for y in (got, results[0]))
        for each, wanted in zip(*gradients):
            close(each, wanted)


def test_states_to_start_from_with_every_state_and_without_hx():
    lstm = ours.LSTM(4, 8)
    x, starts, to = torch.randn(T, B, 4), ours.episode_starts(DONES), torch.randn(2, 1, 8).unbind(0)
    y, (h, c), (every,) = lstm(x, reset_mask=starts, every_state=True, reset_to=to)
    close(every[-1], c[0])
    close(y[-1], h[0])
    expected, _ = lstm(x, tuple(state[:, None].expand(1, B, 8).contiguous() for state in to))
    close(y[:2, :2], expected[:2, :2])
    zeros = lstm(x, reset_mask=starts, reset_to=(torch.zeros(1, 8), torch.zeros(1, 8)))[0]
    close(zeros, lstm(x, reset_mask=starts)[0])
    assert lstm(x[:, :0], reset_mask=starts[:, :0], reset_to=to)[0].shape == (T, 0, 8)
    with pytest.raises(RuntimeError, match="larger than 0"):
        lstm(x[:0], reset_mask=starts[:0], reset_to=to)


def test_projected_states_start_again():
    lstm = ours.LSTM(4, 8, num_layers=2, proj_size=3)
    x, starts = torch.randn(T, B, 4), ours.episode_starts(DONES)
    hx = torch.randn(2, B, 3), torch.randn(2, B, 8)
    to = torch.randn(2, B, T, 3), torch.randn(2, B, T, 8)
    expected, last = by_steps(lstm, x, hx, starts, to)
    y, after = lstm(x, hx, reset_mask=starts, reset_to=to)
    for got, wanted in zip((y, *after), (expected, *last)):
        close(got, wanted)


@pytest.mark.parametrize("cell", ["gru", "mingru", "slstm"])
def test_states_to_start_from_have_derivatives_of_second_order(cell):
    layer = layer_of(cell, dtype=torch.float64)
    x = torch.randn(T, B, 4, dtype=torch.float64, requires_grad=True)
    to = tuple(state.detach().double().requires_grad_() for state in states_of(layer, 1, 8))
    starts = ours.episode_starts(DONES, torch.tensor([True, False, False]))
    call = lambda x, *to: layer(x, reset_mask=starts, reset_to=one_or(to))[0]  # noqa: E731
    assert torch.autograd.gradcheck(call, (x, *to), fast_mode=True)
    assert torch.autograd.gradgradcheck(call, (x, *to), fast_mode=True)


def test_states_to_start_from_compile_for_all_masks():
    gru, to, x = ours.GRU(4, 8), torch.randn(1, 8, requires_grad=True), torch.randn(T, B, 4)
    compiled = torch.compile(lambda x, mask: gru(x, reset_mask=mask, reset_to=to), fullgraph=True, backend="aot_eager")
    for mask in (DONES, ~DONES, torch.zeros_like(DONES)):
        results = []
        for call in (compiled, lambda x, mask: gru(x, reset_mask=mask, reset_to=to)):
            y, last = call(x, mask)
            y.sum().backward()
            results.append([y, last, to.grad.clone()])
            to.grad = None
        for got, expected in zip(*results):
            close(got, expected, terms=16 * T)


@pytest.mark.parametrize(
    "offsets, most, message",
    [
        ([0, 4, 3], [4], "rows must have 0 to 4 steps, not -1"),
        ([0, 1, 3], [1], "rows must have 0 to 1 steps, not 2"),
        ([0, 1, 2], [4], "row offsets must begin with 0 and end with 3"),
        ([1, 2, 3], [4], "row offsets must begin with 0 and end with 3"),
        ([3], [4], r"row offsets, int64 \[B \+ 1\], not \[1\]"),
        ([0, 3], [4, 4], r"batch_sizes must be an int64 tensor \[1\]"),
        ([0, 3], [0], r"batch_sizes must be an int64 tensor \[1\]"),
    ],
)
def test_wrong_row_offsets(offsets, most, message):
    weights = [p.detach() for p in ours.GRU(4, 8).parameters()]
    rows = (torch.tensor(offsets), torch.tensor(most), None)
    with pytest.raises(RuntimeError, match=message):
        torch.ops.penstock.recurrent(torch.zeros(3, 4), weights, None, *rows, "gru", 1, False, False, False, False)


@pytest.mark.parametrize(
    "arguments, options, error, message",
    [
        ({"reset_mask": None}, {}, ValueError, "reset_to needs reset_mask"),
        ({"lengths": [1, 2, 3]}, {}, ValueError, "reset_to needs .* no lengths"),
        ({}, {"bidirectional": True}, ValueError, "reset_to needs .* one direction"),
        ({"reset_to": torch.zeros(1, 9)}, {}, RuntimeError, r"reset_to must be .* = \[1, 8\] or \[1, 3, 8\] or \[1, 3, 6, 8\], not \[1, 9\]"),
        ({"reset_to": torch.zeros(1, 8, device="meta")}, {}, RuntimeError, "reset_to must be on cpu, not on meta"),
        ({"reset_to": torch.zeros(1, 8).double()}, {}, RuntimeError, "reset_to must be of the input's dtype torch.float32, not torch.float64"),
        ({"reset_to": np.zeros((1, 8))}, {}, TypeError, "reset_to must be a tensor or a tuple of tensors, not of ndarray"),
        ({"reset_to": [0.0]}, {}, TypeError, "reset_to must be a tensor or a tuple of tensors, not of float"),
        ({"reset_to": (torch.zeros(1, 8),) * 2}, {}, RuntimeError, "reset_to must hold the 1 states of GRU, not 2"),
    ],
)  # fmt: skip
def test_wrong_states_to_start_from(arguments, options, error, message):
    given = {"reset_mask": DONES, "reset_to": torch.zeros(1, 8)} | arguments
    with pytest.raises(error, match=message):
        ours.GRU(4, 8, **options)(torch.ones(T, B, 4), **given)
