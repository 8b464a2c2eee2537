"""penstock.torch given anything: it computes, or raises what PyTorch's users expect, and never ends the process."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
ours = pytest.importorskip("penstock.torch", reason="penstock is not installed")
pytest.importorskip("hypothesis", reason="hypothesis is not installed")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as some  # noqa: E402

torch.set_num_threads(1)  # these sizes are too small to share

RAISED = (RuntimeError, ValueError, TypeError, AttributeError, IndexError, NotImplementedError)
TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.bool,
         torch.uint8, torch.complex64]  # fmt: skip
SHAPES = some.lists(some.integers(0, 4), max_size=4)
ROWS, STEPS, INPUTS, HIDDEN = 2, 4, 3, 2


@some.composite
def any_tensor(draw, shapes=None):
    shape = draw(SHAPES if shapes is None else shapes)
    tensor = torch.zeros(shape).to(draw(some.sampled_from(TYPES)))
    values = [0, 1, -3, float("nan"), float("inf"), 2**15] if tensor.is_floating_point() else [0, 1, 7]
    tensor.fill_(draw(some.sampled_from(values)))
    if tensor.dim() and draw(some.booleans()):
        tensor = tensor.permute(draw(some.permutations(range(tensor.dim()))))
        tensor = tensor[tuple(slice(None, None, draw(some.sampled_from([1, 2]))) for _ in tensor.shape)]
    if draw(some.integers(0, 9)) == 0:
        tensor = tensor.to("meta")
    if tensor.is_floating_point() and draw(some.booleans()):
        tensor = tensor.detach().requires_grad_()
    return tensor


def near(*shape):
    """A shape that is right, but for one axis at times, and the types and strides of any."""
    return any_tensor(some.one_of(some.just(shape), some.permutations(shape), some.just((*shape, 1)),
                                  some.just(shape[1:])))  # fmt: skip


ANYTHING = some.one_of(
    any_tensor(), some.none(), some.integers(-3, 1 << 65), some.floats(), some.text(max_size=3),
    some.lists(some.floats(width=32), max_size=4), some.just(object()),
)  # fmt: skip


def maybe(good, *shape):
    return some.one_of(some.just(good), some.just(good), near(*shape), ANYTHING)


def survives(call):
    """Whether it returned."""
    try:
        call()
    except RAISED:
        return False
    return True


def as_hx(stack, state):
    return state if isinstance(stack, ours.GRU | ours.MinGRU) or not isinstance(state, torch.Tensor) else (state,) * 2


STACKS = [ours.GRU(INPUTS, HIDDEN), ours.LSTM(INPUTS, HIDDEN, num_layers=2, bidirectional=True),
          ours.MinGRU(INPUTS, HIDDEN), ours.LSTM(INPUTS, 4, num_heads=2),
          ours.LSTM(INPUTS, 4, proj_size=HIDDEN)]  # fmt: skip
X = torch.ones(STEPS, ROWS, INPUTS)


@given(
    stack=some.sampled_from(STACKS),
    x=maybe(X, STEPS, ROWS, INPUTS),
    state=maybe(None, 1, ROWS, HIDDEN),
    lengths=maybe(None, ROWS),
    reset_mask=maybe(None, STEPS, ROWS),
    every_state=some.booleans(),
    reset_to=maybe(None, 1, ROWS, HIDDEN),
)
def test_layers(stack, x, state, lengths, reset_mask, every_state, reset_to):
    def call():
        rest = {"every_state": every_state, "reset_to": as_hx(stack, reset_to)}
        y, *_ = stack(x, as_hx(stack, state), lengths=lengths, reset_mask=reset_mask, **rest)
        assert y.shape[-1] in (HIDDEN, 2 * HIDDEN, 4)
        if y.device.type == "cpu":
            y.sum().backward()

    survives(call)


@given(data=near(5, INPUTS), batch_sizes=maybe(torch.tensor([2, 2, 1]), 3), state=maybe(None, 1, ROWS, HIDDEN))
def test_packed_rows(data, batch_sizes, state):
    try:
        packed = torch.nn.utils.rnn.PackedSequence(data, batch_sizes)
    except (AssertionError, *RAISED):
        return  # PyTorch's own objection
    survives(lambda: STACKS[0](packed, state))


CELL_WEIGHTS = [p.detach() for p in ours.GRUCell(INPUTS, HIDDEN).parameters()]


@given(
    x=maybe(X[0], ROWS, INPUTS),
    state=maybe(None, ROWS, HIDDEN),
    cell=some.sampled_from(["LSTM", "GRU", "MinGRU"]),
    gradients=some.booleans(),
)
def test_cells(x, state, cell, gradients):
    module = getattr(ours, cell + "Cell")(INPUTS, HIDDEN)
    with torch.set_grad_enabled(gradients):  # without, cells have an op of their own
        survives(lambda: module(x, (state, state) if cell == "LSTM" and state is not None else state))


@given(
    x=maybe(X[0], ROWS, INPUTS),
    weights=some.one_of(some.just(CELL_WEIGHTS), some.lists(any_tensor(), max_size=5), ANYTHING),
    states=some.one_of(some.just([]), some.lists(near(ROWS, HIDDEN), max_size=3), ANYTHING),
    cell=some.sampled_from(["gru", "lstm", "mingru", "none", ""]),
)
def test_the_op_of_cells(x, weights, states, cell):
    survives(lambda: torch.ops.penstock.recurrent_cell(x, weights, states, cell))


A = torch.full((ROWS, STEPS, INPUTS), 0.5)


@given(
    scan=some.sampled_from([ours.scan, ours.log_scan]),
    a=maybe(A, ROWS, STEPS, INPUTS),
    b=maybe(A, ROWS, STEPS, INPUTS),
    h0=maybe(None, ROWS, INPUTS),
    lengths=maybe(None, ROWS),
    reset_mask=maybe(None, ROWS, STEPS),
    reverse=some.booleans(),
)
def test_scans(scan, a, b, h0, lengths, reset_mask, reverse):
    survives(lambda: scan(a, b, h0, lengths=lengths, reset_mask=reset_mask, reverse=reverse))


WEIGHTS = [p.detach() for p in STACKS[0].parameters()]


@given(
    weights=some.one_of(some.just(WEIGHTS), some.lists(any_tensor(), max_size=5), ANYTHING),
    dy=maybe(torch.ones(STEPS, ROWS, HIDDEN), STEPS, ROWS, HIDDEN),
    dstate=maybe(None, 1, 1, ROWS, HIDDEN),
    y=maybe(torch.ones(STEPS, ROWS, HIDDEN), STEPS, ROWS, HIDDEN),
    tape=maybe(torch.zeros(0, dtype=torch.uint8), 256),
    batch_sizes=maybe(None, STEPS),
    cell=some.sampled_from(["gru", "lstm", "mingru", "none", ""]),
    layers=some.integers(-1, 3),
    flags=some.lists(some.booleans(), min_size=5, max_size=5),
)
def test_the_ops_themselves(weights, dy, dstate, y, tape, batch_sizes, cell, layers, flags):
    bidirectional, batch_first, every_state, want_dx, want_dweights = flags
    form = (cell, layers, bidirectional, batch_first)
    survives(lambda: torch.ops.penstock.recurrent(X, weights, dstate, None, batch_sizes, None, *form, True, every_state))
    survives(lambda: torch.ops.penstock.recurrent_backward(
        dy, dstate, None, X, weights, None, None, batch_sizes, None, y, tape, *form, every_state, want_dx,
        want_dweights))  # fmt: skip


def test_what_is_right_is_computed():
    """The fuzzers would pass if nothing did."""
    assert all(survives(lambda: stack(X)) for stack in STACKS)
    assert survives(lambda: ours.scan(A, A)) and survives(lambda: ours.LSTMCell(INPUTS, HIDDEN)(X[0]))
    assert survives(lambda: torch.ops.penstock.recurrent_cell(X[0], CELL_WEIGHTS, [], "gru"))
