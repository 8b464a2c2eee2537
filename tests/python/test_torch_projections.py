"""penstock.torch.LSTM with proj_size, compared with torch.nn's layers and the same steps in PyTorch's operations."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
ours = pytest.importorskip("penstock.torch", reason="penstock is not installed")

from penstock.torch import _projection  # noqa: E402
from penstock.torch._composed import composed  # noqa: E402
from penstock.torch._ops import run_layers  # noqa: E402
from test_torch_layers import FORMS, close, pair, results_of  # noqa: E402
from torch.nn.utils.rnn import PackedSequence, pack_sequence  # noqa: E402

torch.set_num_threads(1)  # these sizes are too small to share

INPUTS = 5
#: Rows, steps, hidden size, projection: in the kernels; too short for them on a CPU; one step.
SIZES = [(4, 9, 8, 3), (2, 3, 60, 50), (3, 1, 8, 3)]
OPTIONS = [{}, {"batch_first": True, "bias": False}, {"num_layers": 2, "bidirectional": True}]


def states_of(layer, rows):
    """Random states, each [slots, B, ...]."""
    slots = layer.num_layers * (2 if layer.bidirectional else 1)
    widths = (layer.proj_size, layer.hidden_size)
    return [torch.randn(slots, rows, n, dtype=torch.float64, requires_grad=True) for n in widths]


def double_pair(hidden, projection, options):
    return pair("LSTM", INPUTS, hidden, proj_size=projection, dtype=torch.float64, **options)


def test_the_sizes_take_both_ways(monkeypatch):
    runs = []
    monkeypatch.setattr(_projection, "run_layers", lambda *call: runs.append(call) or run_layers(*call))
    for (rows, steps, hidden, width), in_kernels in zip(SIZES, (True, False, False)):
        ours.LSTM(INPUTS, hidden, proj_size=width)(torch.randn(steps, rows, INPUTS))
        assert bool(runs) == in_kernels
        runs.clear()


@pytest.mark.parametrize("with_states", [False, True])
@pytest.mark.parametrize("options", [*FORMS, *OPTIONS])
@pytest.mark.parametrize("rows, steps, hidden, projection", SIZES)
def test_results_and_gradients(rows, steps, hidden, projection, options, with_states):
    theirs, mine = double_pair(hidden, projection, options)
    x = torch.randn((rows, steps, INPUTS) if mine.batch_first else (steps, rows, INPUTS), dtype=torch.float64)
    states = states_of(mine, rows) if with_states else []
    for got, expected in zip(results_of(mine, x, states), results_of(theirs, x, states), strict=True):
        close(got, expected, torch.float64, steps=steps * rows)


@pytest.mark.parametrize("with_states", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("lengths", [[7, 4, 4, 1], [4, 1, 7, 4], [1, 1]])
def test_packed_sequences(lengths, options, with_states):
    theirs, mine = double_pair(8, 3, options)
    rows = [torch.randn(n, INPUTS, dtype=torch.float64, requires_grad=True) for n in lengths]
    states = states_of(mine, len(rows)) if with_states else []
    results = []
    for module in (mine, theirs):
        y, last = module(pack_sequence(rows, enforce_sorted=False), tuple(states) or None)
        loss = y.data.sin().sum() + sum(s.cos().sum() for s in last)
        results.append([y.data, *last, *torch.autograd.grad(loss, [*rows, *states, *module.parameters()])])
    for got, expected in zip(*results, strict=True):
        close(got, expected, torch.float64, steps=sum(lengths))


def compare_with_operations(layer, x, states, lengths=None, batch_sizes=None, reset=None):
    """Compares outputs, states, every c, and the gradients of them all. `x` and `reset` are as the layer takes them."""
    packed = batch_sizes is not None
    rows = int(batch_sizes[0]) if packed else x.shape[0 if layer.batch_first else 1]
    options = {"reset_mask": reset, "every_state": True} | ({} if packed else {"lengths": lengths})
    weights, given = list(layer.parameters()), x.requires_grad_()
    if packed:
        sequence = PackedSequence(given, batch_sizes)
        if reset is not None:
            options["reset_mask"] = PackedSequence(reset, batch_sizes)
        y, last, (c,) = layer(sequence, tuple(states) or None, **options)
        y, c = y.data, c.data
    else:
        y, last, (c,) = layer(given, tuple(states) or None, **options)
    got = [y, *last, c]

    exact = x.detach().nan_to_num().requires_grad_()
    entering = states or [s.detach() * 0 for s in states_of(layer, rows)]
    in_rows = reset if packed or reset is None or layer.batch_first else reset.t()
    form = ("lstm", layer.num_layers, layer.bidirectional, layer.batch_first, True)
    y, last, c = composed(exact, weights, entering, lengths, batch_sizes, in_rows, *form)
    expected = [y, *last, c]

    shares = [torch.randn_like(each) for each in got]
    for results, leaf in ((got, given), (expected, exact)):
        loss = sum((a * share).sum() for a, share in zip(results, shares))
        results += torch.autograd.grad(loss, [leaf, *states, *weights])
    for mine, other in zip(got, expected, strict=True):
        close(mine, other, torch.float64, steps=36)


@pytest.mark.parametrize("with_states", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("rows, steps, hidden, projection", SIZES)
@pytest.mark.parametrize("ragged, resets", [(True, False), (False, True), (True, True)])
def test_lengths_resets_and_every_state(ragged, resets, rows, steps, hidden, projection, options, with_states):
    torch.manual_seed(1)
    layer = ours.LSTM(INPUTS, hidden, proj_size=projection, dtype=torch.float64, **options)
    x, lengths, reset = torch.randn(rows, steps, INPUTS, dtype=torch.float64), None, None
    if ragged:
        lengths = torch.randint(0, steps + 1, (rows,))
        lengths[0], lengths[1] = 0, steps
        for row, length in enumerate(lengths):
            x[row, length:] = float("nan")  # never read
    if resets:
        reset = torch.rand(rows, steps) < 0.3
        reset[1, 0] = reset[1, -1] = True  # at the first step of both directions
    if not layer.batch_first:
        x, reset = x.transpose(0, 1), None if reset is None else reset.t()
    compare_with_operations(layer, x, states_of(layer, rows) if with_states else [], lengths, reset=reset)


@pytest.mark.parametrize("with_states", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("batch_sizes", [[4, 3, 3, 1, 1], [1, 1], [3]])
def test_resets_of_packed_rows(batch_sizes, options, with_states):
    torch.manual_seed(1)
    layer = ours.LSTM(INPUTS, 8, proj_size=3, dtype=torch.float64, **options)
    x, reset = torch.randn(sum(batch_sizes), INPUTS, dtype=torch.float64), torch.rand(sum(batch_sizes)) < 0.3
    reset[0] = reset[-1] = True
    states = states_of(layer, batch_sizes[0]) if with_states else []
    compare_with_operations(layer, x, states, batch_sizes=torch.tensor(batch_sizes), reset=reset)


@pytest.mark.parametrize("rows, steps, hidden, projection", SIZES)
def test_rows_without_steps_keep_their_states(rows, steps, hidden, projection):
    layer = ours.LSTM(INPUTS, hidden, proj_size=projection, dtype=torch.float64, bidirectional=True)
    states = states_of(layer, rows)
    x = torch.randn(steps, rows, INPUTS, dtype=torch.float64)
    y, last = layer(x, tuple(states), lengths=torch.zeros(rows, dtype=torch.int64))
    assert not y.any() and all(torch.equal(after, before) for after, before in zip(last, states))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("with_states", [False, True])
def test_derivatives_of_both_orders(options, with_states):
    torch.manual_seed(0)
    layer = ours.LSTM(2, 3, proj_size=2, dtype=torch.float64, **options)
    x = torch.randn(3, 3, 2, dtype=torch.float64, requires_grad=True)
    lengths, reset = torch.tensor([3, 0, 2]), torch.tensor([[1, 0, 0], [0, 0, 1], [0, 0, 0]]).bool()
    states = states_of(layer, 3) if with_states else []

    names, form = [name for name, _ in layer.named_parameters()], {"lengths": lengths, "reset_mask": reset}

    def function(x, *others):
        hx, weights = others[: len(states)] or None, dict(zip(names, others[len(states) :], strict=True))
        y, last, every = torch.func.functional_call(layer, weights, (x, hx), {**form, "every_state": True})
        return y, *last, *every

    inputs = (x, *states, *layer.parameters())
    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)
    assert torch.autograd.gradcheck(function, inputs, check_forward_ad=True, check_backward_ad=False, fast_mode=True)


def test_the_product_of_the_matrices_is_not_rounded_by_autocast():
    weight_hh, weight_hr = torch.randn(24, 3), torch.randn(3, 6)
    with torch.autocast("cpu", torch.bfloat16):
        got = _projection._product(weight_hh, weight_hr)
    assert torch.equal(got, weight_hh @ weight_hr)


@pytest.mark.parametrize("autocast", [False, True])
def test_bfloat16_is_off_by_two_roundings(autocast):
    """The outputs and all gradients, in the norm, beside float64 with the same weights. Those of torch.nn are off by up
    to six roundings."""
    layer = ours.LSTM(16, 64, proj_size=32)
    layer = layer if autocast else layer.bfloat16()
    exact = torch.nn.LSTM(16, 64, proj_size=32, dtype=torch.float64)
    exact.load_state_dict(layer.state_dict())
    x = torch.randn(40, 4, 16).bfloat16()
    dy = torch.randn(40, 4, 32).bfloat16()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        y, _ = layer(x.float() if autocast else x)
    assert y.dtype == torch.bfloat16
    expected, _ = exact(x.double())
    found = [y, *torch.autograd.grad(y, list(layer.parameters()), dy)]
    wanted = [expected, *torch.autograd.grad(expected, list(exact.parameters()), dy.double())]
    for got, want in zip(found, wanted):
        assert (got.double() - want).norm() < 2 * 2**-8 * want.norm()
