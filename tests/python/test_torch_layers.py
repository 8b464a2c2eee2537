"""penstock.torch's layers beside torch.nn's: results, gradients, states, state_dicts."""

import copy
import pathlib
import pickle
import resource
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
ours = pytest.importorskip("penstock.torch", reason="penstock is not installed")

from torch import nn  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence  # noqa: E402

import penstock  # noqa: E402

torch.set_num_threads(1)  # these sizes are too small to share

NAMES = ["RNN", "GRU", "LSTM"]
KINDS = pytest.mark.parametrize("name, kind", [*((name, {}) for name in NAMES), ("LSTM", {"proj_size": 2})])
FORMS = [
    {},
    {"num_layers": 2, "bidirectional": True},
    {"num_layers": 3, "dropout": 0.4, "bias": False},
    {"batch_first": True, "num_layers": 2, "dropout": 0.4},
]


def pair(name, *sizes, **options):
    """A layer of torch.nn and ours from the same seed: initialisation is part of what must agree."""
    torch.manual_seed(3)
    theirs = getattr(nn, name)(*sizes, **options)
    torch.manual_seed(3)
    return theirs, getattr(ours, name)(*sizes, **options)


def close(got, expected, dtype=torch.float32, steps=1):
    """Within sqrt(T) roundings of the largest value."""
    unit = torch.finfo(dtype).eps * max(1.0, expected.abs().max().item()) if expected.numel() else 0
    torch.testing.assert_close(got, expected, rtol=0, atol=16 * unit * steps**0.5)


def as_list(states):
    return [states] if isinstance(states, torch.Tensor) else list(states)


def results_of(module, x, states, seed=5):
    """Outputs, last states, and the gradients of a function of both with respect to everything."""
    module.zero_grad()
    torch.manual_seed(seed)  # for dropout
    x = x.detach().clone().requires_grad_()
    states = [s.detach().clone().requires_grad_() for s in states]
    y, last = module(x, (tuple(states) if len(states) > 1 else states[0]) if states else None)
    (y.sin().sum() + sum(s.cos().sum() for s in as_list(last))).backward()
    return [y, *as_list(last), x.grad, *(s.grad for s in states), *(p.grad for p in module.parameters())]


@pytest.mark.parametrize("with_states", [False, True])
@pytest.mark.parametrize("options", FORMS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rows, steps, inputs, hidden", [(1, 1, 1, 1), (3, 7, 5, 17), (2, 65, 3, 33)])
def test_results_and_gradients(name, options, with_states, rows, steps, inputs, hidden):
    theirs, mine = pair(name, inputs, hidden, **options)
    x = torch.randn((rows, steps, inputs) if options.get("batch_first") else (steps, rows, inputs))
    slots = theirs.num_layers * (2 if theirs.bidirectional else 1)
    states = [torch.randn(slots, rows, hidden) for _ in range(2 if name == "LSTM" else 1)] if with_states else []
    for got, expected in zip(results_of(mine, x, states), results_of(theirs, x, states)):
        close(got, expected, steps=steps * rows)


@pytest.mark.parametrize("name", NAMES)
def test_double(name):
    theirs, mine = pair(name, 4, 6, num_layers=2, dtype=torch.float64)
    x = torch.randn(9, 2, 4, dtype=torch.float64)
    for got, expected in zip(results_of(mine, x, []), results_of(theirs, x, [])):
        close(got, expected, torch.float64, steps=18)


@pytest.mark.parametrize("enforce_sorted", [True, False])
@pytest.mark.parametrize("with_states", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_packed_sequences(name, with_states, enforce_sorted):
    theirs, mine = pair(name, 5, 7, num_layers=2, bidirectional=True)
    lengths = [7, 4, 4, 1] if enforce_sorted else [4, 1, 7, 4]
    rows = [torch.randn(n, 5, requires_grad=True) for n in lengths]
    states = [torch.randn(4, 4, 7, requires_grad=True) for _ in range(2 if name == "LSTM" else 1)]
    results = []
    for module in (mine, theirs):
        for t in (*rows, *states):
            t.grad = None
        hx = (tuple(states) if len(states) > 1 else states[0]) if with_states else None
        y, last = module(pack_sequence(rows, enforce_sorted=enforce_sorted), hx)
        (y.data.sin().sum() + sum(s.cos().sum() for s in as_list(last))).backward()
        padded, padded_lengths = pad_packed_sequence(y)
        assert padded_lengths.tolist() == lengths
        grads = [t.grad for t in rows] + ([s.grad for s in states] if with_states else [])
        results.append([padded, *as_list(last), *grads, *(p.grad for p in module.parameters())])
    for got, expected in zip(*results):
        close(got, expected, steps=16)


@KINDS
def test_input_without_rows(name, kind):
    theirs, mine = pair(name, 5, 7, bidirectional=True, **kind)
    x = torch.randn(6, 5)
    for got, expected in zip(results_of(mine, x, []), results_of(theirs, x, [])):
        assert got.shape == expected.shape
        close(got, expected, steps=6)


def test_views_with_odd_strides():
    theirs, mine = pair("LSTM", 5, 7)
    wide = torch.randn(9, 4, 11)
    for x in (wide[::2, :, 3:8], wide[:, 1:3, ::2][..., :5], wide[:, :, :5].flip(0), wide[:, :1, :5].expand(9, 6, 5)):
        close(mine(x)[0], theirs(x)[0], steps=9)


def test_lengths_are_what_packing_does():
    lstm = ours.LSTM(3, 5, batch_first=True, bidirectional=True)
    lengths = torch.tensor([2, 6, 4])
    x = torch.randn(3, 6, 3)
    x[0, 2:] = float("nan")  # never read
    y, last = lstm(x, lengths=lengths)
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    expected, expected_last = lstm(packed)
    close(y, pad_packed_sequence(expected, batch_first=True)[0], steps=6)
    for got, other in zip(last, expected_last):
        close(got, other, steps=6)


@pytest.mark.parametrize("batch_first", [False, True])
def test_reset_mask_starts_a_row_anew(batch_first):
    gru = ours.GRU(3, 5, num_layers=2, batch_first=batch_first)
    x = torch.randn(2, 9, 3)
    mask = torch.zeros(2, 9, dtype=torch.bool)
    mask[:, 4] = True
    put = (lambda t: t) if batch_first else (lambda t: t.transpose(0, 1))
    y, last = gru(put(x), torch.randn(2, 2, 5), reset_mask=put(mask))
    expected, expected_last = gru(put(x[:, 4:]))
    close(put(y)[:, 4:], put(expected), steps=5)
    close(last, expected_last, steps=5)


def test_reset_masks_of_packed_sequences():
    lstm = ours.LSTM(3, 5)
    rows, masks = [torch.randn(n, 3) for n in (3, 6)], [torch.zeros(n, dtype=torch.bool) for n in (3, 6)]
    masks[1][2] = True
    y, _ = lstm(pack_sequence(rows, False), reset_mask=pack_sequence(masks, False))
    close(pad_packed_sequence(y)[0][2:, 1], lstm(rows[1][2:])[0], steps=4)


@KINDS
def test_state_dicts_are_interchangeable(name, kind):
    theirs, mine = pair(name, 5, 7, num_layers=2, bidirectional=True, **kind)
    assert list(theirs.state_dict()) == list(mine.state_dict())
    other = type(theirs)(5, 7, num_layers=2, bidirectional=True, **kind)
    mine.load_state_dict(other.state_dict())
    x = torch.randn(4, 2, 5)
    close(mine(x)[0], other(x)[0], steps=4)
    other.load_state_dict(mine.state_dict())
    for attribute in ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional",
                      "proj_size", "mode"):  # fmt: skip
        assert getattr(theirs, attribute) == getattr(mine, attribute)
    assert [[p.shape for p in layer] for layer in mine.all_weights] == [
        [p.shape for p in layer] for layer in theirs.all_weights
    ]
    assert repr(mine) == repr(theirs)


def test_notes_of_cells_pass_between_arrays_and_modules():
    module = ours.SLSTM(3, 4)
    with pytest.raises(penstock.InvalidArgument, match="of a cell 'slstm', and this is 'lstm'"):
        penstock.Recurrent("lstm", 3, 4).load_state_dict(module.state_dict())
    penstock.Recurrent("slstm", 3, 4).load_state_dict(module.state_dict())


def test_copies_and_pickles():
    stacks = [ours.LSTM(3, 4, 2), ours.SLSTM(3, 4, num_heads=2), ours.MinGRU(3, 4, candidate="positive")]
    for stack in (*stacks, ours.LSTM(3, 4, proj_size=2)):
        x = torch.randn(5, 2, 3)
        for other in (copy.deepcopy(stack), pickle.loads(pickle.dumps(stack))):
            assert torch.equal(other(x)[0], stack(x)[0])
            with torch.no_grad():
                next(other.parameters()).add_(1)
            assert not torch.equal(other(x)[0], stack(x)[0])


@KINDS
def test_empty_batches(name, kind):
    theirs, mine = pair(name, 5, 7, bidirectional=True, **kind)
    x = torch.randn(4, 0, 5)
    for got, expected in zip(results_of(mine, x, []), results_of(theirs, x, [])):
        assert got.shape == expected.shape
        close(got, expected)


@pytest.mark.parametrize("kind", [ours.GRU, ours.SLSTM, ours.LSTM])
def test_heads_are_blocks_of_one_matrix(kind):
    heads = kind(3, 6, num_heads=3)
    whole = kind(3, 6)
    gates = whole.weight_hh_l0.shape[0] // 6
    with torch.no_grad():
        for name, parameter in heads.named_parameters():
            if name.startswith("weight_hh"):
                blocks = parameter.unflatten(1, (gates, 2)).unbind(0)  # [G, D, D] each
                full = torch.stack([torch.block_diag(*[b[g] for b in blocks]) for g in range(gates)])
                getattr(whole, name).copy_(full.flatten(0, 1))
            else:
                getattr(whole, name).copy_(parameter)
    x = torch.randn(5, 2, 3)
    close(heads(x)[0], whole(x)[0], steps=5)


@pytest.mark.parametrize("stack, kind", [
    (ours.SLSTM, {}), (ours.MinGRU, {}), (ours.MinLSTM, {}), (ours.LSTM, {}), (ours.LSTM, {"proj_size": 2}),
])  # fmt: skip
def test_any_split_of_a_sequence(stack, kind):
    layers = stack(3, 6, num_layers=2, **kind)
    x = torch.randn(11, 2, 3)
    whole, last = layers(x)
    first, states = layers(x[:4])
    second, end = layers(x[4:], states)
    close(torch.cat([first, second]), whole, steps=11)
    for got, expected in zip(as_list(end), as_list(last)):
        close(got, expected, steps=11)


# ---- cells -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", ["RNNCell", "GRUCell", "LSTMCell"])
def test_cells(name, bias):
    theirs, mine = pair(name, 5, 7, bias=bias)
    assert list(theirs.state_dict()) == list(mine.state_dict())
    for rows in ((3,), ()):
        x = torch.randn(*rows, 5)
        states = [torch.randn(*rows, 7) for _ in range(2 if name == "LSTMCell" else 1)]
        for hx in (None, tuple(states) if len(states) > 1 else states[0]):
            for got, expected in zip(as_list(mine(x, hx)), as_list(theirs(x, hx))):
                assert got.shape == expected.shape
                close(got, expected)


@pytest.mark.parametrize("name", ["RNNCell", "GRUCell", "LSTMCell", "SLSTMCell", "MinGRUCell", "MinLSTMCell"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(1, 1), (5, 7), (64, 17), (16, 33), (3, 130)])
def test_cells_without_gradients_are_those_with(name, dtype, sizes):
    """The first have an op of their own, which reads weights of few rows as they lie."""
    inputs, hidden = sizes
    cell = getattr(ours, name)(inputs, hidden, dtype=dtype)
    count = {"LSTMCell": 2, "SLSTMCell": 4}.get(name, 1)
    for rows in ((), (1,), (2,), (5,), (40,), (0,)):
        x = torch.randn(*rows, inputs, dtype=dtype)
        states = [torch.randn(*rows, hidden, dtype=dtype).abs() for _ in range(count)]
        spread = torch.randn(*rows, 2 * hidden, dtype=dtype).abs()[..., ::2]  # not side by side
        for hx in (None, states, [spread] * count):
            hx = hx if hx is None or count > 1 else hx[0]
            expected = as_list(cell(x, hx))
            with torch.no_grad():
                got, again = as_list(cell(x, hx)), as_list(cell(x, hx))
            for one, other, want in zip(got, again, expected):
                assert one.shape == want.shape and one.dtype == dtype and not one.requires_grad
                assert torch.equal(one, other)
                close(one, want.detach(), steps=1)


def test_cells_leave_the_states_that_they_are_given():
    cell, x = ours.LSTMCell(3, 5), torch.randn(2, 3)
    h, c = torch.randn(2, 5), torch.randn(2, 5)
    before = h.clone(), c.clone()
    with torch.inference_mode():
        after = cell(x, (h, c))
        assert len({t.data_ptr() for t in (h, c, *after)}) == 4
    assert torch.equal(h, before[0]) and torch.equal(c, before[1])


def test_cells_step_as_layers_do():
    positive = {"candidate": "positive"}
    for cell, stack, options in [
        (ours.SLSTMCell, ours.SLSTM, {}),
        (ours.MinGRUCell, ours.MinGRU, {}), (ours.MinGRUCell, ours.MinGRU, positive),
        (ours.MinLSTMCell, ours.MinLSTM, {}), (ours.MinLSTMCell, ours.MinLSTM, positive),
    ]:  # fmt: skip
        step, layers = cell(3, 4, **options), stack(3, 4, **options)
        layers.load_state_dict({name + "_l0": value for name, value in step.state_dict().items()})
        x, state, outputs = torch.randn(6, 2, 3), None, []
        for t in range(6):
            state = step(x[t], state)
            outputs.append(as_list(state)[0])
        close(torch.stack(outputs), layers(x)[0], steps=6)
        with torch.no_grad():  # another op
            close(as_list(step(x[0]))[0], outputs[0].detach(), steps=1)


# ---- memory ----------------------------------------------------------------------------------------------------------


def has_large_pages():
    said = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return said.exists() and "[never]" not in said.read_text()


@pytest.mark.skipif(not has_large_pages(), reason="the system has no large pages")
def test_large_tapes_come_in_large_pages():
    lstm, x = ours.LSTM(1, 256), torch.randn(100, 64, 1)
    lstm(x)  # the workspace stays
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    y, _ = lstm(x)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    tape = 100 * 64 * 7 * 256 * 4  # bytes of gates, tanh(c) and the two states
    assert faults * resource.getpagesize() < tape / 2


# ---- scans -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("rows, steps, channels", [(1, 1, 1), (3, 65, 5), (2, 1000, 17)])
def test_scans(rows, steps, channels, reverse):
    a = torch.rand(rows, steps, channels, dtype=torch.float64) * 0.9 + 0.1
    b, h0 = torch.rand_like(a) + 0.1, torch.randn(rows, channels, dtype=torch.float64)
    h, expected = h0, torch.empty_like(a)
    for t in reversed(range(steps)) if reverse else range(steps):
        h = expected[:, t] = a[:, t] * h + b[:, t]
    for got, last in (ours.scan(a, b, h0, reverse=reverse), ours.log_scan(a.log(), b.log(), h0, reverse=reverse)):
        close(got, expected, torch.float64, steps=steps)
        close(last, h, torch.float64, steps=steps)


@pytest.mark.parametrize("reverse", [False, True])
def test_scans_of_rows_that_end_and_begin_anew(reverse):
    rows, steps, channels = 4, 37, 3
    a, b = torch.rand(2, rows, steps, channels, dtype=torch.float64) * 0.9 + 0.1
    h0, lengths, reset = torch.randn(rows, channels).double(), torch.tensor([37, 0, 1, 20]), torch.rand(4, 37) < 0.2
    expected, last = torch.zeros_like(a), h0.clone()
    for row, length in enumerate(lengths.tolist()):
        for t in reversed(range(length)) if reverse else range(length):
            before = torch.zeros(channels, dtype=torch.float64) if reset[row, t] else last[row]
            last[row] = expected[row, t] = a[row, t] * before + b[row, t]
    for row, length in enumerate(lengths.tolist()):  # which is not read
        a[row, length:] = b[row, length:] = float("nan")
    options = {"lengths": lengths, "reset_mask": reset, "reverse": reverse}
    for got in (ours.scan(a, b, h0, **options), ours.log_scan(a.log(), b.log(), h0, **options)):
        close(got[0], expected, torch.float64, steps=steps)
        close(got[1], last, torch.float64, steps=steps)


@pytest.mark.parametrize("given", [list, tuple, lambda n: torch.tensor(n).numpy(), lambda n: torch.tensor(n).int().numpy()])
def test_lengths_may_be_a_list(given):
    lengths, x = [4, 0, 2], torch.rand(3, 4, 5)
    for layer in (ours.LSTM(5, 7, batch_first=True), ours.LSTM(5, 7, batch_first=True, proj_size=3)):
        assert torch.equal(layer(x, lengths=given(lengths))[0], layer(x, lengths=torch.tensor(lengths))[0])
    expected, _ = ours.scan(x, x, lengths=torch.tensor(lengths))
    assert torch.equal(ours.scan(x, x, lengths=given(lengths))[0], expected)


@pytest.mark.parametrize(
    "lengths",
    [
        torch.tensor([float("nan"), 1.0, 2.0]),
        torch.tensor([1.0, float("inf"), 2.0]),
        torch.tensor([1.5, 1.0, 2.0], dtype=torch.float64),
        torch.tensor([1, 2, 3], dtype=torch.int32),
        torch.tensor([True, False, True]),
        torch.tensor([[1, 2, 3]]),
        torch.tensor([1, 2]),
        torch.tensor([1, 2, -1]),
        torch.tensor([1, 2, 5]),
        [1, 2],
        [1, 2, 5],
        [1.0, 2.0, 3.0],
        [True, False, True],
        [1, None, 3],
        "123",
        3,
    ],
    ids=str,
)
@pytest.mark.parametrize("grad", [False, True])
def test_lengths_that_count_no_steps(lengths, grad):
    x = torch.rand(3, 4, 5)
    layers = [getattr(ours, name)(5, 7, batch_first=True) for name in (*NAMES, "SLSTM", "MinGRU", "MinLSTM")]
    layers.append(ours.LSTM(5, 7, batch_first=True, proj_size=3))
    calls = [lambda layer=layer: layer(x, lengths=lengths) for layer in layers]
    calls += [lambda: ours.scan(x, x, lengths=lengths), lambda: ours.log_scan(x, x, lengths=lengths)]
    for call in calls:
        with torch.set_grad_enabled(grad), pytest.raises((RuntimeError, TypeError), match="lengths"):
            call()


@pytest.mark.parametrize("name, kind", [
    *((name, {}) for name in (*NAMES, "SLSTM", "MinGRU", "MinLSTM")), ("LSTM", {"proj_size": 2}),
])  # fmt: skip
def test_the_device_meta_has_shapes(name, kind):
    """Without memory, as when large models are initialised elsewhere."""
    options = {"num_layers": 2, "bidirectional": True, **kind}
    here, there = getattr(ours, name)(3, 5, **options), getattr(ours, name)(3, 5, device="meta", **options)
    x = torch.randn(4, 2, 3)
    shapes = [[t.shape for t in (y, *as_list(last))] for y, last in (here(x), there(x.to("meta")))]
    assert shapes[0] == shapes[1]
    lengths = torch.ones(2, dtype=torch.int64, device="meta")
    for call in (lambda: here(x.to("meta")), lambda: there(x), lambda: here(x, lengths=lengths)):
        with pytest.raises(RuntimeError, match="not at the same device"):
            call()
    with pytest.raises(RuntimeError, match="not at the same device"):
        ours.scan(x, x.to("meta"))


# ---- every state -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind, options", [
    (ours.LSTM, {"num_layers": 2}), (ours.LSTM, {"bidirectional": True}), (ours.LSTM, {"proj_size": 2}),
    (ours.SLSTM, {"num_layers": 2}),
])  # fmt: skip
def test_every_state_is_the_last_one_of_each_prefix(kind, options, batch_first):
    stack = kind(3, 5, batch_first=batch_first, dtype=torch.float64, **options)
    x = torch.randn(2, 6, 3, dtype=torch.float64)
    x = x if batch_first else x.transpose(0, 1)
    y, last, states = stack(x, every_state=True)
    torch.testing.assert_close(y, stack(x)[0])
    assert len(states) == len(last) - 1
    for t in range(6):
        _, after = stack(x[:, : t + 1] if batch_first else x[: t + 1])
        for state, expected in zip(states, after[1:]):
            got = state[:, t] if batch_first else state[t]
            if stack.bidirectional:  # the other direction has begun elsewhere
                got, expected = got[..., :5], expected[:-1]
            torch.testing.assert_close(got, expected[-1])
    if stack.bidirectional:
        first = states[0][:, 0] if batch_first else states[0][0]
        torch.testing.assert_close(first[..., 5:], last[1][-1])


def test_every_state_of_packed_rows_of_dropout_and_without_rows():
    rows = [torch.randn(n, 3) for n in (2, 6, 3)]
    stack = ours.LSTM(3, 5, num_layers=2, dropout=0.5)
    y, last, (c,) = stack.eval()(pack_sequence(rows, enforce_sorted=False), every_state=True)
    padded, _ = pad_packed_sequence(c)
    assert torch.equal(c.batch_sizes, y.batch_sizes)
    for b, row in enumerate(rows):
        _, _, (alone,) = stack(row, every_state=True)
        torch.testing.assert_close(padded[: len(row), b], alone)
        torch.testing.assert_close(alone[-1], last[1][-1, b])
    lengths = torch.tensor([2, 6, 3])
    x = nn.utils.rnn.pad_sequence(rows)
    torch.testing.assert_close(stack(x, lengths=lengths, every_state=True)[2][0], padded)
    _, last, (c,) = stack.train()(x, every_state=True)
    torch.testing.assert_close(c[-1], last[1][-1])
    with pytest.raises(ValueError, match="every_state"):
        ours.GRU(3, 5)(x, every_state=True)


# ---- one process -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first, second", [("penstock", "torch"), ("torch", "penstock")])
def test_openmp_is_there_once(first, second):
    """Two libraries of it would be two pools of threads, which wait actively for each other."""
    script = f"""
import {first}, {second}, penstock.torch
import numpy as np, penstock, torch
penstock.LSTMCell(8, 8).forward(np.zeros((2, 3, 8), np.float32))
torch.zeros(64, 64).matmul(torch.zeros(64, 64))
paths = {{line.split()[-1] for line in open("/proc/self/maps") if "libgomp" in line or "libomp" in line}}
assert len(paths) == 1, paths
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
