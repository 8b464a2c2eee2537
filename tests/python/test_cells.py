"""Cells and stacks on NumPy arrays against penstock.reference, in float64."""

import numpy as np
import pytest

import penstock
from penstock import reference

EPSILON = np.finfo(np.float64).eps
NAMES = [cell["name"] for cell in penstock.cells()]
SCAN = {cell["name"] for cell in penstock.cells() if cell["scan"]}


def close(ours, theirs, *, terms, steps):
    """Sums of `terms` products, over `steps` steps that each pass the error of the one before on."""
    bound = 8 * EPSILON * (terms + 4) * (steps + 1) * max(1.0, np.abs(theirs).max(initial=0.0))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=bound)


def normal(seed, *shape, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def test_the_reference_has_every_cell():
    assert set(reference.CELLS) == set(NAMES)
    for cell in penstock.cells():
        assert reference.CELLS[cell["name"]][1:] == (cell["gates"], cell["states"])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (3, 7, 5, 11), (2, 40, 17, 33)])
def test_every_cell(name, sizes):
    rows, steps, inputs, hidden = sizes
    network = penstock.Recurrent(name, inputs, hidden, dtype="float64", seed=3)
    x = normal(1, rows, steps, inputs)
    y, last = network.forward(x)
    y_ref, last_ref = reference.forward(name, network.parameters, x)
    close(y, y_ref, terms=inputs + hidden, steps=steps)
    close(last.reshape(last_ref.shape), last_ref, terms=inputs + hidden, steps=steps)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SCAN])
@pytest.mark.parametrize("heads", [2, 5])
def test_heads(name, heads):
    network = penstock.Recurrent(name, 3, 10, heads=heads, dtype="float64")
    x = normal(2, 4, 9, 3)
    close(network.forward(x)[0], reference.forward(name, network.parameters, x, heads=heads)[0], terms=13, steps=9)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
@pytest.mark.parametrize("bias", ["none", "single", "both"])
def test_stacks_with_lengths_resets_and_states(name, direction, bias):
    network = penstock.Recurrent(name, 3, 6, layers=2, direction=direction, bias=bias, dtype="float64")
    x = normal(3, 4, 8, 3)
    lengths = np.array([8, 0, 5, 1])
    for row, length in enumerate(lengths):
        x[row, length:] = np.nan  # nobody may read it
    reset_mask = np.random.default_rng(4).random((4, 8)) < 0.2
    states = reference.CELLS[name][2]
    directions = 2 if direction == "bidirectional" else 1
    h0 = normal(5, states, 2 * directions, 4, 6)
    if name == "slstm":
        h0[2] = np.abs(h0[2]) + 1  # the normaliser is positive
    given = h0 if states > 1 else h0[0]
    y, last = network.forward(x, given, lengths=lengths, reset_mask=reset_mask)
    y_ref, last_ref = reference.forward(
        name, network.parameters, x, h0, layers=2, direction=direction, lengths=lengths, reset_mask=reset_mask
    )
    close(y, y_ref, terms=18, steps=16)
    close(last.reshape(last_ref.shape), last_ref, terms=18, steps=16)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_steps_are_the_sequence(name, dtype):
    network = penstock.Recurrent(name, 3, 5, layers=2, dtype=dtype)
    x = normal(6, 4, 7, 3, dtype=dtype)
    y, last = network.forward(x, exact=True)
    state = None
    for t in range(7):
        step, state = network.step(x[:, t], state)
        assert (step == y[:, t]).all()
    assert (state == last).all()


def test_packed_rows_are_the_rows_alone():
    cell = penstock.GRUCell(3, 5)
    lengths = [4, 0, 1, 9]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    x = normal(7, ends[-1], 3, dtype=np.float32)
    h0 = normal(8, 4, 5, dtype=np.float32)
    y, last = cell.forward(x, h0, cu_seqlens=ends, exact=True)
    assert y.shape == (14, 5)
    for row in range(4):
        part = slice(ends[row], ends[row + 1])
        if lengths[row] == 0:
            assert (last[row] == h0[row]).all()
            continue
        alone, end = cell.forward(x[part], h0[row], exact=True)
        assert (y[part] == alone).all() and (last[row] == end).all()


def parts_of(mask, h0, to):
    """Returns the row offsets of the parts between resets, their initial states, and those after which a row ends. `to`
    is [S, L, B, T, H]."""
    rows, steps = mask.shape
    first = [(b, t) for b in range(rows) for t in range(steps) if t == 0 or mask[b, t]]
    start = np.stack([to[:, :, b, t] if mask[b, t] else h0[:, :, b] for b, t in first], 2)
    ends = [i for i, (b, _) in enumerate(first) if (b + 1, 0) in first[i + 1 : i + 2] or i + 1 == len(first)]
    return first, np.array([b * steps + t for b, t in first] + [rows * steps]), start, ends


@pytest.mark.parametrize("form", ["one", "rows", "steps"])
@pytest.mark.parametrize("name", [*NAMES, "sees-c"])
def test_resets_start_again_at_given_states_as_parts_alone_do(name, form):
    if name == "sees-c":
        name = penstock.cell(gates=1, states=("h", "c"), name="sees-c")(lambda wx, rh, s, p: (s.c, wx[0] + rh[0] + s.h))
    network = penstock.Recurrent(name, 3, 6, layers=2)
    shape = np.atleast_1d(network.zero_state(4)).reshape(-1, 2, 4, 6).shape
    axes = {"one": (), "rows": (4,), "steps": (4, 9)}[form]
    x, dy = normal(60, 4, 9, 3, dtype=np.float32), normal(61, 4, 9, 6, dtype=np.float32)
    h0, dlast = (np.abs(normal(seed, *shape, dtype=np.float32)) + 0.5 for seed in (62, 63))
    to = np.abs(normal(64, shape[0], 2, *axes, 6, dtype=np.float32)) + 0.5
    mask = np.random.default_rng(65).random((4, 9)) < 0.3
    each = np.broadcast_to(to.reshape(*to.shape[:-1], *[1] * (2 - len(axes)), 6), (shape[0], 2, 4, 9, 6))
    first, offsets, start, ends = parts_of(mask, h0, each)

    def given(state):
        return state if len(state) > 1 else state[0]

    tape = network.tape()
    expected, last = network.forward(x.reshape(36, 3), given(start), cu_seqlens=offsets, tape=tape, exact=True)
    whole = np.zeros_like(start)
    whole[:, :, ends] = dlast
    dx, dstart = network.backward(dy.reshape(36, 6), given(whole), tape=tape)
    assert tape.reset_to_gradient is None
    dstart = dstart.reshape(start.shape)
    weights = {key: value.copy() for key, value in network.gradients.items()}
    network.zero_gradients()

    y, after = network.forward(x, given(h0), reset_mask=mask, reset_to=given(to), tape=tape, exact=True)
    assert (y.reshape(36, 6) == expected).all()
    assert (after.reshape(shape) == last.reshape(start.shape)[:, :, ends]).all()
    dx_here, dh0 = network.backward(dy, given(dlast), tape=tape)
    assert (dx_here.reshape(36, 3) == dx).all()
    dto = np.zeros_like(each)
    dfirst = np.zeros_like(h0)
    for i, (b, t) in enumerate(first):
        (dto[:, :, b, t] if mask[b, t] else dfirst[:, :, b])[...] = dstart[:, :, i]
    assert (dh0.reshape(shape) == dfirst).all()
    found = tape.reset_to_gradient.reshape(to.shape)
    if form == "steps":
        assert (found == dto).all()
    dto = dto.sum(tuple(range(2 + len(axes), 4)))  # in another order
    np.testing.assert_allclose(found, dto, rtol=0, atol=36 * np.finfo(np.float32).eps * np.abs(dto).max())
    for key, value in network.gradients.items():
        np.testing.assert_allclose(value, weights[key], rtol=0, atol=1e-4 * np.abs(weights[key]).max())

    swapped = network.forward(
        x.swapaxes(0, 1), given(h0), reset_mask=mask.T, reset_to=given(to), layout="time_first", exact=True
    )
    assert (swapped[0].swapaxes(0, 1) == y).all()
    if form == "steps":  # the first row alone
        alone = given(h0)[..., 0, :], given(to)[..., 0, :, :]
        y_alone, _ = network.forward(x[0], alone[0], reset_mask=mask[0], reset_to=alone[1], exact=True)
        assert (y_alone == y[0]).all()


@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
def test_resets_at_given_states_go_with_lengths_and_directions(direction):
    network = penstock.Recurrent("lstm", 3, 6, direction=direction, dtype="float64")
    x, lengths, mask = normal(66, 3, 7, 3), np.array([7, 0, 4]), np.random.default_rng(67).random((3, 7)) < 0.4
    slots = 2 if direction == "bidirectional" else 1
    to = tuple(normal(68 + k, slots, 3, 7, 6) for k in range(2))
    y, _ = network.forward(x, lengths=lengths, reset_mask=mask, reset_to=to, exact=True)
    starts = mask[0] & (np.arange(7) > 0)
    first, last = np.flatnonzero(starts)[-1], 6
    part = network.forward(x[0, first : last + 1], tuple(s[:, 0, first] for s in to), exact=True)[0]
    if direction == "bidirectional":  # forward from the last reset on
        assert (part[:, :6] == y[0, first:, :6]).all()
    ends = np.flatnonzero(mask[0])[0]  # in reverse, down to the first step from the first reset
    part = network.forward(x[0, : ends + 1], tuple(s[:, 0, ends] for s in to), exact=True)[0]
    assert (part[:, -6:] == y[0, : ends + 1, -6:]).all()
    assert not y[1].any() and not y[2, 4:].any()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"reset_mask": None}, "reset_to needs reset_mask"),
        ({"reset_to": np.zeros((2, 7), np.float32)}, r"\(\.\.\., B, T, H\) = \(2, 6\), not \(2, 7\)"),
        ({"reset_to": np.zeros((2, 5, 6), np.float32)}, r"= \(2, 4, 6\), not \(2, 5, 6\)"),
        ({"reset_to": np.zeros((2, 4, 3, 6), np.float32)}, r"= \(2, 4, 9, 6\), not \(2, 4, 3, 6\)"),
        (
            {"x": np.zeros((9, 3), np.float32), "reset_mask": np.ones(9, bool), "cu_seqlens": [0, 4, 9]},
            "reset_to and cu_seqlens cannot be given both",
        ),
    ],
)
def test_wrong_states_of_resets(arguments, message):
    given = {
        "x": np.zeros((4, 9, 3), np.float32), "reset_mask": np.ones((4, 9), bool), "reset_to": np.ones((2, 6), np.float32)
    }  # fmt: skip
    with pytest.raises(penstock.InvalidArgument, match=message):
        penstock.Recurrent("gru", 3, 6, layers=2).forward(**given | arguments)


def test_layouts_and_strides_change_nothing():
    cell = penstock.LSTMCell(3, 5)
    x = normal(9, 4, 7, 3, dtype=np.float32)
    y, last = cell.forward(x)
    assert (cell.forward(x.transpose(1, 0, 2), layout="time_first")[0].transpose(1, 0, 2) == y).all()
    wide = np.zeros((4, 7, 6), np.float32)
    wide[:, :, ::2] = x  # channels apart: copied
    assert (cell.forward(wide[:, :, ::2])[0] == y).all()
    wide[:, :, 2:5] = x  # rows apart: read where they lie
    assert (cell.forward(wide[:, :, 2:5])[0] == y).all()
    backwards = np.ascontiguousarray(x[:, ::-1])
    assert (cell.forward(backwards[:, ::-1])[0] == y).all()
    out = np.zeros((4, 9, 8), np.float32)
    result, _ = cell.forward(x, out=out[:, 1:8, 2:7])
    assert (out[:, 1:8, 2:7] == y).all() and out.sum() == pytest.approx(y.sum(), rel=1e-5)
    assert np.shares_memory(result, out)
    state = np.zeros((2, 4, 5), np.float32)
    assert cell.step(x[:, 0], state, out=state) is state
    assert (state[0] == y[:, 0]).all()
    h, c = cell.step(x[:, 1], (state[0], state[1]))
    assert (h == y[:, 1]).all()


def test_with_a_tape_the_outputs_leave_the_inputs_alone():
    cell = penstock.LSTMCell(4, 4)
    x = normal(11, 2, 5, 4, dtype=np.float32)
    y, _ = cell.forward(x)
    both = np.concatenate([x, np.zeros_like(x)], 2)
    for out in (both[..., :4], both[..., 2:6]):
        with pytest.raises(penstock.InvalidArgument, match="out must not share memory with x when a tape is given"):
            cell.forward(both[..., :4], tape=cell.tape(), out=out)
    assert (both[..., :4] == x).all()
    cell.forward(both[..., :4], tape=cell.tape(), out=both[..., 4:])
    assert (both == np.concatenate([x, y], 2)).all()


@pytest.mark.parametrize("name", sorted(SCAN))
def test_modes_agree(name):
    network = penstock.Recurrent(name, 3, 5, dtype="float64")
    x = normal(10, 2, 1000, 3)
    one_by_one, chunked = (network.forward(x, mode=mode)[0] for mode in ("sequential", "scan"))
    close(one_by_one, chunked, terms=4, steps=1)


def numeric_gradient(function, array, seed):
    """The derivative of `function` along a random direction of `array`, and the direction."""
    direction = normal(seed, *array.shape)
    before, size = array.copy(), 1e-6
    values = []
    for sign in (1, -1):
        array[...] = before + sign * size * direction
        values.append(function())
    array[...] = before
    return (values[0] - values[1]) / (2 * size), direction


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_slopes(name):
    network = penstock.Recurrent(name, 3, 4, layers=2, direction="bidirectional", dtype="float64", seed=5)
    x, weight_y = normal(11, 2, 6, 3), normal(12, 2, 6, 8)
    h0 = network.zero_state(2)
    h0[...] = normal(13, *h0.shape)
    if name == "slstm":
        h0[2] = np.abs(h0[2]) + 1
    weight_state = normal(14, *h0.shape)
    lengths = np.array([6, 4])

    def loss():
        y, state = network.forward(x, h0, lengths=lengths)
        return (y * weight_y).sum() + (state * weight_state).sum()

    tape = network.tape()
    network.forward(x, h0, lengths=lengths, tape=tape)
    dx, dh0 = network.backward(weight_y, weight_state, tape=tape)
    # Second differences of numbers near 1: half the digits.
    for array, gradient, seed in ((x, dx, 15), (h0, dh0, 16)):
        slope, direction = numeric_gradient(loss, array, seed)
        assert (gradient * direction).sum() == pytest.approx(slope, rel=1e-5, abs=1e-6)
    with network.edit() as weights:
        for seed, (parameter, gradient) in enumerate(network.gradients.items()):
            array = weights[parameter]

            def changed_loss():
                network._network.weights_changed()
                return loss()

            slope, direction = numeric_gradient(changed_loss, array, 100 + seed)
            assert (gradient * direction).sum() == pytest.approx(slope, rel=1e-5, abs=1e-6)


def test_gradients_add_up_until_they_are_cleared():
    cell = penstock.GRUCell(3, 5)
    x = normal(17, 2, 4, 3, dtype=np.float32)
    tape = cell.tape()
    for _ in range(2):
        cell.forward(x, tape=tape)
        dx, _ = cell.backward(np.ones((2, 4, 5), np.float32), tape=tape, input_gradient=False)
        assert dx is None
    twice = {name: gradient.copy() for name, gradient in cell.gradients.items()}
    cell.zero_gradients()
    cell.forward(x, tape=tape)
    cell.backward(np.ones((2, 4, 5), np.float32), tape=tape)
    for name, gradient in cell.gradients.items():
        np.testing.assert_allclose(2 * gradient, twice[name], rtol=1e-5, atol=1e-6)


def test_weights_come_and_go():
    a, b = (penstock.SLSTMCell(3, 6, heads=2, seed=seed) for seed in (1, 2))
    x = normal(18, 2, 4, 3, dtype=np.float32)
    assert not (a.forward(x)[0] == b.forward(x)[0]).all()
    b.load_state_dict(a.state_dict())
    assert (a.forward(x)[0] == b.forward(x)[0]).all()
    assert a.parameters["weight_hh_l0"].shape == (2, 12, 3)
    with pytest.raises(ValueError, match="read-only"):
        a.parameters["bias_ih_l0"][:] = 0
    with a.edit() as weights:
        for value in weights.values():
            value[...] = 0
    assert (a.forward(x)[0] == 0).all()


def test_views_of_weights_outlive_their_cell():
    weights = penstock.LSTMCell(3, 5, seed=1).parameters["weight_ih_l0"]
    assert (weights == penstock.LSTMCell(3, 5, seed=1).parameters["weight_ih_l0"]).all()


def test_scan():
    a, b = normal(19, 3, 50, 7), normal(20, 3, 50, 7)
    a /= np.abs(a).max()
    h0 = normal(21, 3, 7)
    h, last = penstock.scan(a, b, h0)
    expected = reference.scan(a, b, h0)
    close(h, expected, terms=1, steps=50)
    assert (last == h[:, -1]).all()
    by_logarithm, _ = penstock.log_scan(np.log(np.abs(a)), np.log(np.abs(b)), h0, sign=np.sign(b))
    close(by_logarithm, reference.scan(np.abs(a), b, h0), terms=1, steps=50)


@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_of_scans(reverse):
    a, b, h0 = normal(22, 2, 9, 3), normal(23, 2, 9, 3), normal(24, 2, 3)
    dh, dlast = normal(25, 2, 9, 3), normal(26, 2, 3)
    sign = normal(27, 2, 9, 3)

    def loss():
        h, last = penstock.scan(a, b, h0, reverse=reverse)
        return (h * dh).sum() + (last * dlast).sum()

    h, _ = penstock.scan(a, b, h0, reverse=reverse)
    gradients = penstock.scan_backward(a, b, h, dh, h0, dlast, reverse=reverse)
    for seed, (array, gradient) in enumerate(zip((a, b, h0), gradients)):
        slope, direction = numeric_gradient(loss, array, 200 + seed)
        assert (gradient * direction).sum() == pytest.approx(slope, rel=1e-5)

    def log_loss():
        h, last = penstock.log_scan(a, b, h0, sign=sign, reverse=reverse)
        return (h * dh).sum() + (last * dlast).sum()

    h, _ = penstock.log_scan(a, b, h0, sign=sign, reverse=reverse)
    gradients = penstock.log_scan_backward(a, b, h, dh, h0, dlast, sign=sign, reverse=reverse)
    for seed, (array, gradient) in enumerate(zip((a, b, sign, h0), gradients)):
        slope, direction = numeric_gradient(log_loss, array, 300 + seed)
        assert (gradient * direction).sum() == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("time_first", [False, True])
def test_the_way_to_a_device_and_back(name, time_first):
    """With the CPU as the device: what a GPU computes, tests/nn holds to the oracle."""
    from penstock import _core

    network = penstock.Recurrent(name, 3, 6, layers=2, direction="bidirectional", dtype="float64")
    x, h0 = normal(30, 4, 7, 3), network.zero_state(4)
    h0[...] = 0.5 + np.abs(normal(31, *h0.shape))
    lengths, reset_mask = np.array([7, 2, 5, 1]), np.random.default_rng(32).random((4, 7)) < 0.2
    execution = _core.Execution("auto", "cpu", 1, False, "full")

    def both(x, h0, which, **options):
        y, last = network.forward(x, h0, threads=1, **options)
        by_device, its_last = network._network.forward(x, h0, None, None, which, time_first, execution, True)
        close(by_device, y, terms=18, steps=7)
        close(its_last, last, terms=18, steps=7)

    for _ in range(2):
        if time_first:
            order = (1, 0, 2)
            both(x.transpose(order).copy(), h0, (lengths, None, reset_mask.T), layout="time_first", lengths=lengths,
                 reset_mask=reset_mask.T)  # fmt: skip
        else:
            both(x, h0, (lengths, None, reset_mask), lengths=lengths, reset_mask=reset_mask)
            both(x[0], None, None)
            both(x[0], h0[..., :2, :].copy(), (None, np.array([0, 3, 7]), None), cu_seqlens=[0, 3, 7])
        with network.edit() as weights:  # the copy on the device has to follow
            weights["weight_ih_l0"][...] *= 2


def test_auto_is_the_cpu_where_there_is_no_gpu_and_says_why():
    network = penstock.Recurrent("lstm", 3, 6, layers=2)
    x = normal(33, 2, 5, 3, dtype=np.float32)
    device, why = network.choose_device(2, 5)
    if not penstock.cuda.is_available():
        assert device == "cpu" and why.startswith("there is no GPU: ")
    else:
        assert ": by estimate " in why
    np.testing.assert_array_equal(network.forward(x, device="auto")[0], network.forward(x, device=device)[0])
    tape = network.tape()  # gradients are the CPU's
    np.testing.assert_array_equal(network.forward(x, device="auto", tape=tape)[0], network.forward(x)[0])
    device, why = penstock.Recurrent("lstm", 3, 6, dtype="float64").choose_device(64, 4096)
    assert (device, why) == ("cpu", "a GPU does not compute in float64")
    with pytest.raises(penstock.InvalidArgument, match="rows, steps"):
        network.choose_device(0, 5)


def test_plans_explain_themselves():
    text = penstock.MinGRUCell(16, 32).explain(rows=1, steps=100_000, threads=2)
    assert "mingru" in text or "scan" in text or "sequential" in text
    layers = penstock.Recurrent("lstm", 64, 128, layers=2).explain(threads=2)
    assert layers.startswith("2 layers of lstm, forward"), layers
    plans, memory = layers.split("memory of the forward pass:\n")
    assert "bytes at" in memory and "bytes at" not in plans
    for call in (penstock.LSTMCell(3, 5).explain, lambda mode: penstock.LSTMCell(3, 5).forward([[0.0] * 3], mode=mode)):
        with pytest.raises(penstock.InvalidArgument, match="^mode must be 'auto' or 'sequential' for the cell lstm"):
            call(mode="scan")


MINIMAL = [(penstock.MinGRUCell, "mingru"), (penstock.MinLSTMCell, "minlstm")]


@pytest.mark.parametrize("kind, name", MINIMAL)
def test_the_candidate_decides_which_cell_it_is(kind, name):
    x = normal(51, 3, 7, 4)
    for candidate, called in (("linear", name), ("positive", f"{name}-log")):
        cell = kind(4, 5, candidate=candidate, dtype="float64")
        assert (cell.candidate, cell.cell) == (candidate, called)
        close(cell.forward(x)[0], reference.forward(called, cell.parameters, x)[0], terms=4, steps=7)
    assert kind(4, 5).candidate == "linear"
    for wrong in ("cubic", None, ["positive"]):
        with pytest.raises(penstock.InvalidArgument, match="^candidate must be 'linear' or 'positive', not "):
            kind(4, 5, candidate=wrong)


@pytest.mark.parametrize("name", ["input_size", "hidden_size", "heads"])
def test_sizes_are_whole_numbers(name):
    with pytest.raises(TypeError, match=f"^{name} must be a whole number, not 2.5"):
        penstock.LSTMCell(**{"input_size": 3, "hidden_size": 4, name: 2.5})
    penstock.LSTMCell(**{"input_size": 4, "hidden_size": 4, name: np.int32(2)})
