"""penstock.torch under PyTorch's transforms: derivatives of both orders, opcheck, vmap, autocast."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
ours = pytest.importorskip("penstock.torch", reason="penstock is not installed")

from penstock.torch import _ops  # noqa: E402
from penstock.torch._composed import CELLS, composed  # noqa: E402

torch.set_num_threads(1)  # these sizes are too small to share


@pytest.fixture(autouse=True)
def compile_anew():
    """Layers share their code, of which PyTorch compiles only so many variants."""
    yield
    torch._dynamo.reset()


STACKS = {
    "elman": lambda *a, **k: ours.RNN(*a, **k),
    "elman-relu": lambda *a, **k: ours.RNN(*a, nonlinearity="relu", **k),
    "gru": lambda *a, **k: ours.GRU(*a, **k),
    "gru-before": lambda *a, **k: ours.GRU(*a, reset_after=False, **k),
    "lstm": lambda *a, **k: ours.LSTM(*a, **k),
    "slstm": lambda *a, **k: ours.SLSTM(*a, **k),
    "mingru": lambda *a, **k: ours.MinGRU(*a, **k),
    "mingru-log": lambda *a, **k: ours.MinGRU(*a, candidate="positive", **k),
    "minlstm": lambda *a, **k: ours.MinLSTM(*a, **k),
    "minlstm-log": lambda *a, **k: ours.MinLSTM(*a, candidate="positive", **k),
}


def arguments(cell, rows=2, steps=3, inputs=2, hidden=4, layers=1, bidirectional=False, bias=True, heads=1,
              lengths=None, reset=None, dtype=torch.float64):  # fmt: skip
    """Those of the op; states of an sLSTM are as a step leaves them, with n >= 1."""
    generator = torch.Generator().manual_seed(len(cell) + 7 * hidden)
    gates, states, scans = CELLS[cell]
    directions = 2 if bidirectional else 1

    def draw(*shape):
        return torch.empty(shape, dtype=dtype).uniform_(-1, 1, generator=generator)

    weights = []
    for layer in range(layers):
        width = inputs if layer == 0 else hidden * directions
        for _ in range(directions):
            weights.append(draw(gates * hidden, width))
            if not scans:
                weights.append(draw(gates * hidden, hidden) if heads == 1 else
                               draw(heads, gates * hidden // heads, hidden // heads))  # fmt: skip
            if bias:
                weights += [draw(gates * hidden) for _ in range(1 if scans else 2)]
    state = draw(states, layers * directions, rows, hidden)
    if cell == "slstm":
        state[2] = state[2].abs() + 1
    if lengths is not None:
        lengths = torch.tensor(lengths)
    if reset is not None:
        reset = torch.rand(rows, steps, generator=generator) < reset
    return [draw(rows, steps, inputs), weights, state, lengths, None, reset, cell, layers, bidirectional, True]


def as_function(call, every_state=False):
    """y, the last states and, where asked for, every state as a function of the tensors that have gradients."""
    x, weights, state, *rest = call

    def function(x, state, *weights):
        y, last, _, states = _ops.recurrent(x, list(weights), state, *rest, True, every_state)
        return (y, last, states) if every_state else (y, last)

    return function, [t.clone().requires_grad_() for t in (x, state, *weights)]


VARIANTS = [
    {},
    {"layers": 2, "bidirectional": True, "rows": 1},
    {"lengths": [1, 2], "reset": 0.4},
    {"bias": False, "inputs": 1, "hidden": 1},
]


@pytest.mark.parametrize("variant", range(len(VARIANTS)))
@pytest.mark.parametrize("cell", STACKS)
def test_gradcheck(cell, variant):
    function, inputs = as_function(arguments(cell, **VARIANTS[variant]))
    assert torch.autograd.gradcheck(function, inputs)


@pytest.mark.parametrize("variant", range(3))
@pytest.mark.parametrize("cell", STACKS)
def test_gradgradcheck(cell, variant):
    function, inputs = as_function(arguments(cell, **{"steps": 2, "hidden": 2, **VARIANTS[variant]}))
    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("cell", [c for c in STACKS if not CELLS[c][2]])
def test_heads_have_derivatives_of_both_orders(cell):
    function, inputs = as_function(arguments(cell, heads=2, steps=2))
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("variant", range(3))
@pytest.mark.parametrize("cell", ["lstm", "slstm"])
def test_every_state_has_derivatives_of_both_orders(cell, variant):
    options = {"hidden": 2, **VARIANTS[variant], "steps": 3 if variant < 2 else 2}
    function, inputs = as_function(arguments(cell, **options), every_state=True)
    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("options", VARIANTS)
@pytest.mark.parametrize("cell", STACKS)
def test_kernels_agree_with_composed_operations(cell, options):
    x, weights, state, *rest = arguments(cell, **{"steps": 17, "inputs": 3, "hidden": 6, **options} | (
        {"lengths": [5, 17]} if options.get("lengths") else {}))  # fmt: skip
    every_state = CELLS[cell][1] > 1
    y, last, _, states = _ops.recurrent(x, weights, state, *rest, False, every_state)
    expected_y, expected_last, expected_states = composed(x, weights, tuple(state), *rest, every_state)
    torch.testing.assert_close(y, expected_y)
    torch.testing.assert_close(last, torch.stack(expected_last))
    if every_state:
        torch.testing.assert_close(states, expected_states)


@pytest.mark.parametrize("cell", ["lstm", "gru", "slstm", "mingru"])
@pytest.mark.parametrize("variant", range(3))
def test_opcheck(cell, variant):
    x, weights, state, *rest = arguments(cell, dtype=torch.float32, **VARIANTS[variant])
    tensors = [t.requires_grad_() for t in (x, state, *weights)]
    op, call = torch.ops.penstock.recurrent.default, (tensors[0], tensors[2:], tensors[1], *rest)
    torch.library.opcheck(op, (*call, False, False))
    if CELLS[cell][1] > 1:
        torch.library.opcheck(op, (*call, False, True), test_utils=("test_schema", "test_faketensor"))
    # With a tape, whose bytes no two runs have in common: there are gaps in it.
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(op, (*call, True, False), test_utils=tests)


@pytest.mark.parametrize("cell", ["lstm", "gru", "slstm", "mingru"])
@pytest.mark.parametrize("given", [False, True])
def test_opcheck_of_eager_calls(cell, given):
    x, weights, state, *rest = arguments(cell, dtype=torch.float32)
    op, every_state = torch.ops.penstock.recurrent_eager.default, CELLS[cell][1] > 1
    call = (x, weights, list(state) if given else [], [], *rest)
    for options in ((False, every_state), (True, False)):
        torch.library.opcheck(op, (*call, *options), test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("cell", STACKS)
def test_second_derivatives_do_not_read_the_padding(cell):
    stack = STACKS[cell](3, 4).double()
    x, lengths = torch.randn(5, 2, 3, dtype=torch.float64), torch.tensor([3, 5])
    found = []
    for padding in (0.0, float("nan")):
        x[3:, 0] = padding
        y, _ = stack(x, lengths=lengths)
        weights = list(stack.parameters())
        first = torch.autograd.grad(y.sin().sum(), weights, create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), weights))
    for got, expected in zip(*found):
        assert torch.equal(got, expected)


@pytest.mark.parametrize("variant", range(len(VARIANTS)))
@pytest.mark.parametrize("cell", STACKS)
def test_layers_called_eagerly_are_the_op(cell, variant):
    """Values, and gradients of all that enters from all that leaves, to the bit."""
    x, weights, state, *rest = arguments(cell, dtype=torch.float32, **{"steps": 9, **VARIANTS[variant]})
    every_state = CELLS[cell][1] > 1

    def stacked(x, state, *weights):
        y, last, _, every = _ops.recurrent(x, list(weights), state, *rest, True, every_state)
        return [y, *last] + ([every] if every_state else [])

    def eager(x, state, *weights):
        return _ops.run_layers(x, list(weights), state.unbind(0), tuple(rest[:3]), *rest[3:], every_state)

    results = []
    for function in (stacked, eager):
        inputs = [t.clone().requires_grad_() for t in (x, state, *weights)]
        outputs = function(*inputs)
        loss = sum((output * (i + 2)).sum() for i, output in enumerate(outputs))
        results.append([*outputs, *torch.autograd.grad(loss, inputs)])
    assert len(results[0]) == len(results[1])
    for want, got in zip(*results):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


@pytest.mark.parametrize("cell", ["lstm", "gru", "slstm", "mingru"])
@pytest.mark.parametrize("every_state", [False, True])
def test_layers_called_eagerly_have_derivatives_of_both_orders(cell, every_state):
    x, weights, state, *rest = arguments(cell, steps=2, hidden=2)
    every_state = every_state and CELLS[cell][1] > 1

    def function(x, *others):
        states, weights = others[: len(state)], others[len(state) :]
        return tuple(_ops.run_layers(x, list(weights), states, tuple(rest[:3]), *rest[3:], every_state))

    inputs = [t.clone().requires_grad_() for t in (x, *state, *weights)]
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 2)])
def test_gradients_come_from_whatever_is_used(used):
    """Of states nothing may flow through one and something through another."""
    torch.manual_seed(0)
    mine, theirs = ours.LSTM(3, 4), torch.nn.LSTM(3, 4)
    theirs.load_state_dict(mine.state_dict())
    x = torch.randn(5, 2, 3)
    for layer in (mine, theirs):
        y, (h, c) = layer(x)
        sum((y, h, c)[i].square().sum() for i in used).backward()
    for got, want in zip(mine.parameters(), theirs.parameters()):
        torch.testing.assert_close(got.grad, want.grad)


FROZEN = {
    "every form of a stack": lambda m, x, h: m(x, h),
    "lengths": lambda m, x, h: m(x, h, lengths=torch.tensor([5, 3])),
    "without rows": lambda m, x, h: m(x[:, 0], tuple(s[:, 0] for s in h) if isinstance(h, tuple) else h[:, 0]),
    "packed": lambda m, x, h: m(torch.nn.utils.rnn.pack_padded_sequence(x, [3, 5], enforce_sorted=False), h),
    "compiled": lambda m, x, h: torch.compile(m, backend="aot_eager")(x, h),
}


@pytest.mark.parametrize("way", FROZEN)
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True, "dropout": 0.5}])
@pytest.mark.parametrize("cell", STACKS)
def test_states_have_gradients_beside_frozen_weights(cell, options, way):
    """A frozen decoder behind an encoder that learns: of all that enters, only states have gradients."""
    torch.manual_seed(0)
    stack, states = STACKS[cell](3, 4, **options), CELLS[cell][1]
    slots = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    x, gradients = torch.randn(5, 2, 3), []
    for frozen in (False, True):
        stack.requires_grad_(not frozen)
        torch.manual_seed(1)
        leaves = [(torch.rand(slots, 2, 4) + 0.5).requires_grad_() for _ in range(states)]
        torch.manual_seed(2)  # for dropout
        y, last = FROZEN[way](stack, x, leaves[0] if states == 1 else tuple(leaves))
        y, last = getattr(y, "data", y), [last] if states == 1 else last
        (y.sin().sum() + sum(s.sin().sum() for s in last)).backward()
        gradients.append([leaf.grad for leaf in leaves])
    for expected, got in zip(*gradients):
        assert got is not None
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("kind", ["RNNCell", "GRUCell", "LSTMCell", "SLSTMCell", "MinGRUCell", "MinLSTMCell"])
def test_states_of_frozen_cells_have_gradients(kind):
    cell = getattr(ours, kind)(3, 4).requires_grad_(False)
    states = CELLS[cell._cell()][1]
    leaves = [(torch.rand(2, 4) + 0.5).requires_grad_() for _ in range(states)]
    after = cell(torch.randn(2, 3), leaves[0] if states == 1 else tuple(leaves))
    (after if states == 1 else after[0]).sum().backward()
    assert sum(0 if leaf.grad is None else leaf.grad.abs().sum() for leaf in leaves) > 0


def test_frozen_layers_keep_nothing_for_a_backward_pass():
    layer = ours.LSTM(3, 4).requires_grad_(False)
    x = torch.randn(5, 2, 3)
    y, _ = layer(x)
    assert y.grad_fn is None
    assert layer(x.requires_grad_())[0].grad_fn is not None


@pytest.mark.parametrize("cell", ["lstm", "gru", "mingru"])
@pytest.mark.parametrize("rows", [(), (3,)])
def test_opcheck_of_cells(cell, rows):
    gates, count, scans = CELLS[cell]
    weights = [torch.randn(gates * 5, n) for n in ((4,) if scans else (4, 5))] + [torch.randn(gates * 5)]
    x, states = torch.randn(*rows, 4), [torch.randn(*rows, 5) for _ in range(count)]
    for before in ([], states):
        torch.library.opcheck(torch.ops.penstock.recurrent_cell.default, (x, weights, before, cell))


@pytest.mark.parametrize("every_state", [False, True])
def test_opcheck_of_backward(every_state):
    x, weights, state, *rest = arguments("lstm", dtype=torch.float32)
    y, last, tape, states = _ops.recurrent(x, weights, state, *rest, True, every_state)
    gradients = (torch.randn_like(y), torch.randn_like(last), torch.randn_like(states) if every_state else None)
    call = (*gradients, x, weights, state, *rest[:3], y, tape, *rest[3:], every_state, True, True)
    torch.library.opcheck(torch.ops.penstock.recurrent_backward.default, call)


@pytest.mark.parametrize("logarithmic", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
def test_scan_has_derivatives_of_both_orders(logarithmic, reverse, ragged):
    a, b, h0 = (torch.rand(shape, dtype=torch.float64).requires_grad_() for shape in ((3, 5, 2), (3, 5, 2), (3, 2)))
    lengths = torch.tensor([5, 0, 3]) if ragged else None
    reset = torch.tensor([[0, 1, 0, 0, 1], [1, 0, 0, 0, 0], [1, 0, 0, 1, 0]]).bool() if ragged else None
    form = (lengths, reset, logarithmic, reverse)
    assert torch.autograd.gradcheck(lambda *t: _ops.scan(*t, *form), (a, b, h0))
    assert torch.autograd.gradgradcheck(lambda *t: _ops.scan(*t, *form), (a, b, h0))
    torch.library.opcheck(torch.ops.penstock.scan.default, (a, b, h0, *form))


# ---- functional transforms -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell, options", [("lstm", {}), ("lstm", {"proj_size": 2}), ("mingru", {})])
def test_vmap_over_sequences_and_per_sample_gradients(cell, options):
    stack = STACKS[cell](3, 4, **options)
    parameters = dict(stack.named_parameters())
    x = torch.randn(6, 5, 3)

    def loss(parameters, x):
        return torch.func.functional_call(stack, parameters, (x,))[0].sin().sum()

    values = torch.func.vmap(loss, in_dims=(None, 0))(parameters, x)
    torch.testing.assert_close(values, torch.stack([loss(parameters, row) for row in x]))
    got = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    for name in parameters:
        expected = torch.stack([torch.func.grad(loss)(parameters, row)[name] for row in x])
        torch.testing.assert_close(got[name], expected)


@pytest.mark.parametrize("kind, options", [(ours.GRU, {}), (ours.LSTM, {"proj_size": 2})])
def test_vmap_over_models(kind, options):
    stacks = [kind(3, 4, **options) for _ in range(3)]
    parameters, _ = torch.func.stack_module_state(stacks)
    x = torch.randn(5, 2, 3)
    y = torch.func.vmap(lambda p: torch.func.functional_call(stacks[0], p, (x,))[0])(parameters)
    torch.testing.assert_close(y, torch.stack([stack(x)[0] for stack in stacks]))


SCANS = {
    "scan": lambda x: ours.scan(x.sigmoid(), x),
    "log_scan": lambda x: ours.log_scan(-x.abs(), x, reverse=True),
    "lengths": lambda x: ours.scan(x, x, lengths=[3, 1]),
    "resets": lambda x: ours.scan(x, x, reset_mask=torch.tensor([[False, True, False]] * 2)),
}


@pytest.mark.parametrize("name", [*STACKS, "bidirectional", "cell", *SCANS])
def test_derivatives_of_derivatives_through_func(name):
    """torch.func.grad of grad of grad, pulls after vjp has ended, and hessians, beside torch.autograd."""
    torch.manual_seed(0)
    if name == "cell":
        cell = ours.MinLSTMCell(2, 3).double()
        output = lambda x: cell(x[:, 0])  # noqa: E731
    elif name in SCANS:
        output = lambda x: SCANS[name](x)[0]  # noqa: E731
    else:
        options = {"num_layers": 2, "bidirectional": True} if name == "bidirectional" else {}
        stack = STACKS.get(name, ours.MinGRU)(2, 3, batch_first=True, **options).double()
        output = lambda x: stack(x)[0]  # noqa: E731
    x = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)

    def first(x):
        return output(x).pow(3).sum()

    def squared_gradient(function):
        return lambda x: torch.func.grad(function)(x).square().sum()

    def squared_pull(x):
        _, pull = torch.func.vjp(first, x)
        return pull(torch.ones((), dtype=x.dtype))[0].square().sum()

    (gradient,) = torch.autograd.grad(first(x), x, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), x, create_graph=True)
    (third,) = torch.autograd.grad(second.square().sum(), x)
    x = x.detach()
    func, twice = torch.func, squared_gradient(first)
    torch.testing.assert_close(func.grad(twice)(x), second.detach())
    torch.testing.assert_close(func.grad(squared_gradient(twice))(x), third)
    torch.testing.assert_close(func.vmap(func.grad(twice))(x.expand(2, *x.shape))[1], second.detach())
    value, pull = func.vjp(squared_pull, x)
    torch.testing.assert_close(pull(torch.ones_like(value))[0], second.detach())
    torch.testing.assert_close(func.jacrev(func.jacrev(first))(x), torch.autograd.functional.hessian(first, x))


def test_hessian_vector_product_through_func():
    stack = ours.GRU(2, 3).double()
    x, v = torch.randn(4, 2, 2, dtype=torch.float64), torch.randn(4, 2, 2, dtype=torch.float64)

    def loss(x):
        return stack(x)[0].sin().sum()

    got = torch.func.vjp(torch.func.grad(loss), x)[1](v)[0]
    step = 1e-6
    expected = (torch.func.grad(loss)(x + step * v) - torch.func.grad(loss)(x - step * v)) / (2 * step)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-7)


# ---- autocast --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell, options", [("lstm", {}), ("lstm", {"proj_size": 4}), ("gru", {}), ("minlstm", {})])
def test_autocast_rounds_sequences_and_keeps_gradients_of_weights_in_float(cell, options):
    torch.manual_seed(0)
    stack = STACKS[cell](8, 16, **options)
    x = torch.randn(5, 4, 8)
    y, _ = stack(x)
    with torch.autocast("cpu", torch.bfloat16):
        low, last = stack(x)
    assert low.dtype == torch.bfloat16
    torch.testing.assert_close(low.float(), y, rtol=0.05, atol=0.05)
    low.float().sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in stack.parameters())


# ---- what is kept between the passes ---------------------------------------------------------------------------------


def gradients_of(stack, x):
    x = x.clone().requires_grad_()
    stack.zero_grad()
    stack(x)[0].sin().sum().backward()
    return [x.grad, *(p.grad for p in stack.parameters())]


def test_tapes_may_be_elsewhere_in_the_meantime():
    stack, x = ours.LSTM(3, 5, num_layers=2), torch.randn(7, 2, 3)
    expected = gradients_of(stack, x)
    places = []

    def pack(tensor):
        if tensor.dtype != torch.uint8:
            return tensor
        places.append(torch.empty(64 * len(places) + 64, dtype=torch.uint8))  # so that copies lie elsewhere
        return tensor.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        got = gradients_of(stack, x)
    assert places
    for mine, other in zip(got, expected):
        assert torch.equal(mine, other)


def test_passes_without_a_tape_run_again():
    x, weights, state, *rest = arguments("gru", steps=5)
    y, _, tape, _ = _ops.recurrent(x, weights, state, *rest, True, False)
    dy = torch.randn_like(y)
    passes = [
        _ops.recurrent_backward(dy, None, None, x, weights, state, *rest[:3], y, t, *rest[3:], False, True, True)
        for t in (tape, tape.new_empty(0))
    ]
    for with_tape, without in zip(*passes):
        torch.testing.assert_close(with_tape, without, rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="tape must be"):
        _ops.recurrent_backward(dy, None, None, x, weights, state, *rest[:3], y, tape[1:], *rest[3:], False, True, True)


def test_a_kept_graph_gives_its_gradients_twice():
    stack = ours.MinGRU(3, 5)
    y = stack(torch.randn(4, 2, 3))[0].sum()
    parameters = list(stack.parameters())
    first = torch.autograd.grad(y, parameters, retain_graph=True)
    for a, b in zip(first, torch.autograd.grad(y, parameters)):
        assert torch.equal(a, b)
