"""Training of cells and stacks on a GPU, with NumPy's arrays and with arrays in its memory: held to the CPU's float64.

PyTorch owns the memory. Its tensors come by DLPack, and by `__cuda_array_interface__` as CuPy and Numba write it.
"""

import concurrent.futures
import gc

import numpy as np
import pytest
from layer_checks import Dlpack, close, networks, normal

import penstock
from penstock.equations import sigmoid, tanh

if not penstock.cuda.is_available():
    pytest.skip(f"there is no GPU: {penstock.cuda.why_not()}", allow_module_level=True)
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("PyTorch finds no GPU", allow_module_level=True)

SLEEP = 200_000_000  # cycles, a tenth of a second: longer than all calls of a test


@penstock.cell(states=("h", "c"), gates=4, learnt={"i": 0.1, "f": 0.0, "o": -0.2})
def cuda_peephole(wx, rh, s, p):
    i, f = sigmoid(wx[0] + rh[0] + p.i * s.c), sigmoid(wx[1] + rh[1] + p.f * s.c)
    c = f * s.c + i * tanh(wx[2] + rh[2])
    return sigmoid(wx[3] + rh[3] + p.o * c) * tanh(c), c


@penstock.cell(gates=2, scan=True, learnt={"decay": 1.0})
def cuda_leaky(wx, p):
    a = sigmoid(p.decay + wx[0])
    return a, (1 - a) * tanh(wx[1])


CELLS = [*(cell["name"] for cell in penstock.cells()), cuda_peephole, cuda_leaky]


class Interface:
    """A tensor as CuPy and Numba offer their arrays: __cuda_array_interface__ alone, with the stream that writes it."""

    def __init__(self, tensor):
        self.tensor = tensor
        stream = torch.cuda.current_stream().cuda_stream or 1
        self.__cuda_array_interface__ = {**tensor.__cuda_array_interface__, "version": 3, "stream": stream}


WAYS = [lambda tensor: tensor, Dlpack, Interface]


def there(array):
    return torch.from_numpy(np.ascontiguousarray(array)).cuda()


def here(array):
    return array.cpu().numpy() if isinstance(array, torch.Tensor) else np.asarray(array)


def passes(network, x, h0, dy, dh, wrap=lambda array: array, **options):
    """Returns y, the last state, dx, dh0 and the gradients of the weights."""
    tape = network.tape()
    network.zero_gradients()
    y, last = network.forward(wrap(x), wrap(h0), tape=tape, **options)
    dx, dh0 = network.backward(wrap(dy), wrap(dh), tape=tape)
    return [y, last, dx, dh0, *(gradient.copy() for gradient in network.gradients.values())]


def arguments(network, rows, steps):
    h0 = np.abs(normal(5, *network.zero_state(rows).shape)) + 0.5
    width = network.hidden_size * (2 if network.direction == "bidirectional" else 1)
    return normal(4, rows, steps, network.input_size), h0, normal(6, rows, steps, width), 0.1 * normal(7, *h0.shape)


@pytest.mark.parametrize("cell", CELLS, ids=str)
@pytest.mark.parametrize("rows, steps, inputs, hidden", [(1, 1, 1, 8), (3, 9, 5, 12), (4, 40, 16, 64)])
def test_every_cell_trains(cell, rows, steps, inputs, hidden):
    single, double = networks(cell, inputs, hidden)
    given = arguments(single, rows, steps)
    expected = passes(double, *(array.astype(np.float64) for array in given))
    terms, twice = rows * steps + inputs + hidden, 2 * steps
    results = passes(single, *given, device="cuda")
    for got, wanted in zip(results, expected, strict=True):
        close(here(got), wanted, terms, twice)
    for got, again in zip(passes(single, *given, device="cuda"), results, strict=True):
        np.testing.assert_array_equal(got, again)
    on_gpu = [there(array) for array in given]
    for wrap in WAYS:
        results = passes(single, *on_gpu, wrap=wrap)
        assert all(isinstance(array, penstock.cuda.Array) for array in results[:4])
        for got, wanted in zip(results, expected, strict=True):
            close(here(got), wanted, terms, twice)
        for got, again in zip(passes(single, *on_gpu, wrap=wrap), results, strict=True):
            np.testing.assert_array_equal(here(got), here(again))


@pytest.mark.parametrize("cell", ["lstm", "gru", "slstm", "mingru", "minlstm-log", cuda_peephole], ids=str)
@pytest.mark.parametrize("kind", ["padded", "packed", "time_first"])
@pytest.mark.parametrize("wrap", WAYS, ids=["torch", "dlpack", "interface"])
def test_stacks_with_rows_of_any_length(cell, kind, wrap):
    single, double = networks(cell, 3, 16, layers=2, direction="bidirectional")
    x, h0, dy, dh = arguments(single, 4, 9)
    options = {"lengths": np.array([9, 0, 5, 1]), "reset_mask": np.random.default_rng(4).random((4, 9)) < 0.2}
    if kind == "packed":
        x, dy = x.reshape(36, 3), dy.reshape(36, -1)
        options = {"cu_seqlens": np.array([0, 3, 10, 17, 36]), "reset_mask": options["reset_mask"].reshape(36)}
    if kind == "time_first":
        x, dy = (np.ascontiguousarray(array.transpose(1, 0, 2)) for array in (x, dy))
        options = {"lengths": options["lengths"], "reset_mask": options["reset_mask"].T.copy(), "layout": "time_first"}
    given = x, h0, dy, dh
    expected = passes(double, *(array.astype(np.float64) for array in given), **options)
    for on_gpu in (False, True):
        chosen = {key: wrap(there(value)) if on_gpu and key != "layout" else value for key, value in options.items()}
        for got, wanted in zip(passes(single, *map(there, given), wrap=wrap, **chosen), expected, strict=True):
            close(here(got), wanted, 64, 20)


HALVES = [(torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)]


@pytest.mark.parametrize("cell", CELLS, ids=str)
@pytest.mark.parametrize("dtype, epsilon", HALVES, ids=["bf16", "f16"])
def test_halves_train(cell, dtype, epsilon):
    """Sequences and their gradients have the type of x; states are floats."""
    single, double = networks(cell, 5, 16, layers=2)
    x, h0, dy, dh = arguments(single, 4, 20)
    x, dy = (there(array).to(dtype) for array in (x, dy))
    expected = passes(double, *(here(array.double()) for array in (x, torch.from_numpy(h0), dy, torch.from_numpy(dh))))
    results = passes(single, x, there(h0), dy, there(dh))
    names = [array.dtype for array in results[:4]]
    assert names == [str(dtype).removeprefix("torch."), "float32"] * 2
    for got, wanted in zip(results, expected, strict=True):
        close(here(got), wanted, 80 + 16, 40, epsilon)
    for got, again in zip(passes(single, x, there(h0), dy, there(dh)), results, strict=True):
        np.testing.assert_array_equal(here(got), here(again))
    assert torch.from_dlpack(results[0]).dtype == dtype
    np.testing.assert_array_equal(here(torch.from_dlpack(results[0]).float()), here(results[0]).astype(np.float32))


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_steps_are_those_of_a_sequence(cell):
    single, double = networks(cell, 5, 16, layers=2)
    x, h0, _, _ = arguments(single, 4, 6)
    expected, expected_last = double.forward(x.astype(np.float64), h0.astype(np.float64))
    for wrap in WAYS[:2]:  # no bfloat16 by the third
        for dtype, epsilon in [(torch.float32, np.finfo(np.float32).eps), *HALVES]:
            state, outputs = there(h0), []
            for step in range(6):
                y, state = single.step(wrap(there(x[:, step]).to(dtype)), state)
                outputs.append(here(y).astype(np.float64))
            close(np.stack(outputs, 1), expected, 32, 24, epsilon)
            close(here(state), expected_last, 32, 24, epsilon)
    out = there(h0)
    y, state = single.step(there(x[:, 0]), out, out=out)
    assert state is out
    close(here(out), double.step(x[:, 0].astype(np.float64), h0.astype(np.float64))[1], 32, 4)
    one, _ = single.step(there(x[0, 0]), there(np.ascontiguousarray(np.moveaxis(h0, -2, 0)[0])))
    close(here(one), double.step(x[:, 0].astype(np.float64), h0.astype(np.float64))[0][0], 32, 4)


@pytest.mark.parametrize("dtype, epsilon", [(torch.float32, np.finfo(np.float32).eps), *HALVES], ids=["f32", "bf16", "f16"])
@pytest.mark.parametrize("kind", ["padded", "packed", "time_first"])
@pytest.mark.parametrize("logarithmic", [False, True])
def test_scans(logarithmic, kind, dtype, epsilon):
    a, b, dh = normal(1, 4, 300, 33), normal(2, 4, 300, 33), normal(3, 4, 300, 33)
    a = -np.abs(a) - 0.01 if logarithmic else np.tanh(a)
    h0, dlast, options = normal(4, 4, 33), normal(5, 4, 33), {}
    if kind == "padded":
        options = {"lengths": np.array([300, 0, 5, 129]), "reset_mask": np.random.default_rng(4).random((4, 300)) < 0.02}
    if kind == "packed":
        a, b, dh = (array.reshape(1200, 33) for array in (a, b, dh))
        options = {"cu_seqlens": np.array([0, 3, 700, 700, 1200])}
    if kind == "time_first":
        a, b, dh = (np.ascontiguousarray(array.transpose(1, 0, 2)) for array in (a, b, dh))
        options = {"layout": "time_first", "reverse": True}
    a, b, dh = (there(array).to(dtype) for array in (a, b, dh))
    forward, backward = (penstock.log_scan, penstock.log_scan_backward) if logarithmic else (penstock.scan, penstock.scan_backward)
    signs = {"sign": torch.sign(b)} if logarithmic else {}
    wide = {key: here(value.double()) for key, value in signs.items()}
    h, last = forward(a, b, there(h0), **signs, **options)
    expected = forward(here(a.double()), here(b.double()), h0.astype(np.float64), **wide, **options)
    assert h.dtype == str(dtype).removeprefix("torch.") and last.dtype == "float32"
    for got, wanted in zip((h, last), expected, strict=True):
        close(here(got), wanted, 8, 300, epsilon)
    gradients = backward(a, b, h, dh, there(h0), there(dlast), **signs, **options)
    wanted = backward(here(a.double()), here(b.double()), expected[0], here(dh.double()), h0.astype(np.float64),
                      dlast.astype(np.float64), **wide, **options)  # fmt: skip
    for got, reference in zip(gradients, wanted, strict=True):
        close(here(got), reference, 8, 600, epsilon)
    for got, again in zip(backward(a, b, h, dh, there(h0), there(dlast), **signs, **options), gradients, strict=True):
        np.testing.assert_array_equal(here(got), here(again))


def test_one_row_strides_and_out():
    single, double = networks("gru", 3, 16)
    wide = there(normal(1, 4, 9, 8))
    x = wide[:, ::2, 1:4]  # channels side by side, other strides
    out = torch.full((4, 9, 20), 7.0, device="cuda")
    y, last = single.forward(x, out=out[:, :5, 2:18])
    wanted, wanted_last = double.forward(here(x).astype(np.float64))
    assert y.data_ptr() == out[:, :5, 2:18].data_ptr()
    close(here(out)[:, :5, 2:18], wanted, 19, 5)
    close(here(last), wanted_last, 19, 5)
    assert (out[:, 5:] == 7).all() and (out[:, :5, :2] == 7).all() and (out[:, :5, 18:] == 7).all()
    close(here(single.forward(x[0])[0]), wanted[0], 19, 5)
    with pytest.raises(penstock.InvalidArgument, match="x on a GPU must have contiguous channels"):
        single.forward(wide[..., :6:2])


def test_states_continue():
    single, double = networks("lstm", 3, 16)
    x = normal(1, 4, 9, 3)
    wanted, _ = double.forward(x.astype(np.float64))
    on_gpu = there(x)
    y, state = single.forward(on_gpu[:, :4])
    h, c = state
    as_tensors = torch.from_dlpack(h), torch.as_tensor(c, device="cuda")
    assert as_tensors[0].data_ptr() + 4 * h.shape[0] * 4 * 16 == as_tensors[1].data_ptr()  # views, no copies
    for given in (state, (h, c), as_tensors, torch.stack(as_tensors)):
        close(here(single.forward(on_gpu[:, 4:], given)[0]), wanted[:, 4:], 19, 9)


def test_weights_change_between_passes():
    single, double = networks("lstm", 3, 16)
    given = arguments(single, 4, 9)
    on_gpu = [there(array) for array in given]
    passes(single, *on_gpu)
    for network in (single, double):
        with network.edit() as weights:
            for value in weights.values():
                value *= 0.5
    expected = passes(double, *(array.astype(np.float64) for array in given))
    for got, wanted in zip(passes(single, *on_gpu), expected, strict=True):
        close(here(got), wanted, 64, 18)
    tape = single.tape()
    y, _ = single.forward(on_gpu[0], tape=tape)
    with single.edit():
        pass
    with pytest.raises(penstock.InvalidArgument, match="weights as they are now"):
        single.backward(y, tape=tape)


@pytest.mark.parametrize("wrap", WAYS[1:], ids=["dlpack", "interface"])
def test_calls_wait_for_the_stream_that_writes_x(wrap):
    network = penstock.Recurrent("gru", 8, 32)
    x, rest = there(normal(1, 4, 9, 8)), torch.zeros(4, 9, 8, device="cuda")
    expected = here(network.forward(x)[0])
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(SLEEP)
        rest.copy_(x)
        y, _ = network.forward(wrap(rest))
    np.testing.assert_array_equal(here(y), expected)


def test_memory_waits_for_those_who_read_it():
    network = penstock.Recurrent("gru", 8, 32)
    x = there(normal(1, 4, 9, 8))
    expected = here(network.forward(x)[0])
    side = torch.cuda.Stream()
    y, _ = network.forward(x)
    with torch.cuda.stream(side):
        tensor = torch.from_dlpack(y)
        torch.cuda._sleep(SLEEP)
        copy = tensor.clone()
    del tensor, y
    gc.collect()
    for _ in range(20):
        network.forward(10 * x)  # takes memory that was freed
    side.synchronize()
    np.testing.assert_array_equal(here(copy), expected)


def test_states_that_others_write_are_waited_for():
    network = penstock.Recurrent("gru", 8, 32)
    x = there(normal(1, 4, 9, 8))
    _, state = network.forward(x)
    expected = here(network.forward(x, there(2 * here(state)))[0])
    with torch.cuda.stream(torch.cuda.Stream()):
        tensor = torch.from_dlpack(state)
        torch.cuda._sleep(SLEEP)
        tensor.mul_(2)
    np.testing.assert_array_equal(here(network.forward(x, state)[0]), expected)


def test_a_loss_of_pytorch_falls():
    network = penstock.Recurrent("lstm", 4, 32, layers=2, dropout=0.1)
    x = there(normal(1, 16, 12, 4))
    target = torch.cumsum(x, 1).tanh().repeat(1, 1, 8)
    tape, losses = network.tape(), []
    for _ in range(60):
        y = torch.from_dlpack(network.forward(x, tape=tape)[0]).requires_grad_()
        loss = (y - target).square().mean()
        loss.backward()
        network.zero_gradients()
        network.backward(y.grad, tape=tape, input_gradient=False)
        with network.edit() as weights:
            for name, gradient in network.gradients.items():
                weights[name] -= 20 * gradient
        losses.append(loss.item())
    assert losses[-1] < 0.4 * losses[0]


def test_dropout_follows_the_seed():
    def results(seed):
        network = penstock.Recurrent("gru", 4, 32, layers=2, dropout=0.5, seed=seed)
        with network.edit() as weights:
            for value in weights.values():
                value[...] = 0.05
        tape = network.tape()
        return [network.forward(normal(1, 4, 9, 4), tape=tape, device="cuda")[0].copy() for _ in range(2)]

    first, second = results(1)
    assert (first != second).any()
    np.testing.assert_array_equal(results(1), [first, second])
    assert (results(2)[0] != first).any()


def test_threads_share_a_network():
    network = penstock.Recurrent("gru", 8, 32)
    inputs = [there(normal(seed, 4, 9 + seed, 8)) for seed in range(8)]
    expected = [here(network.forward(x)[0]) for x in inputs]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda i: here(network.forward(inputs[i % 8])[0]), range(80)))
    for i, got in enumerate(results):
        np.testing.assert_array_equal(got, expected[i % 8])


def test_memory_is_returned():
    network = penstock.Recurrent("lstm", 8, 64)
    given = [there(array) for array in arguments(network, 64, 200)]

    def taken_by_twenty_passes():
        free = []
        for _ in range(20):
            passes(network, *given)
            torch.from_dlpack(network.forward(given[0])[0]).sum().item()
            gc.collect()
            free.append(torch.cuda.mem_get_info()[0])
        return free[0] - free[-1]

    # The first passes fill pools. Other processes take and return memory of the same GPU; a leak would show every time.
    assert min(taken_by_twenty_passes() for _ in range(4)) < 4 << 20


def test_refusals():
    network = penstock.Recurrent("gru", 8, 32)
    x = there(normal(1, 4, 9, 8))
    for message, call in {
        "h0 must be in the memory of cuda:0, where the call runs, not of cpu": lambda: network.forward(x, network.zero_state(4)),
        "out must be in the memory of the CPU, not of cuda:0": lambda: network.forward(x.cpu(), out=x),
        "y must not overlap x": lambda: penstock.Recurrent("gru", 8, 8).forward(x, out=x),
        "device must be 'cuda:0', where x is, not 'cuda:1'": lambda: network.forward(x, device="cuda:1"),
        "h must be in the memory of cuda:0, where the call runs": lambda: penstock.GRUCell(8, 32).step(x[:, 0], np.zeros((4, 32), "f4")),
        "b must be in the memory of cuda:0": lambda: penstock.scan(x, here(x)),
    }.items():
        with pytest.raises(penstock.InvalidArgument, match=message):
            call()
    with pytest.raises(TypeError, match="out must be bfloat16, not float32"):
        network.forward(x.bfloat16(), out=torch.zeros(4, 9, 32, device="cuda"))
    with pytest.raises(TypeError, match="x must be float32, bfloat16 or float16, not float64"):
        network.forward(x.double())


@pytest.mark.skipif(penstock.cuda.device_count() < 2, reason="there is one GPU")
def test_the_gpu_of_x():
    network = penstock.Recurrent("gru", 8, 32)
    x = there(normal(1, 4, 9, 8))
    expected = here(network.forward(x)[0])
    for wrap in WAYS:
        with torch.cuda.device(1):
            y, _ = network.forward(wrap(x.to("cuda:1")))
        assert y.device == "cuda:1"
        np.testing.assert_array_equal(here(y), expected)
    with pytest.raises(penstock.InvalidArgument, match="h0 must be in the memory of cuda:1, where the call runs, not of cuda:0"):
        network.forward(x.to("cuda:1"), torch.zeros(1, 4, 32, device="cuda"))


def test_arrays_of_cupy_are_read_and_written():
    cupy = pytest.importorskip("cupy")
    cell = penstock.LSTMCell(3, 8)
    x = cupy.random.rand(2, 5, 3, dtype=cupy.float32)
    y, state = cell.forward(x)
    expected, _ = cell.forward(cupy.asnumpy(x), device="cuda")
    np.testing.assert_array_equal(cupy.asnumpy(cupy.from_dlpack(y)), expected)
    np.testing.assert_array_equal(cupy.asnumpy(cupy.asarray(y)), expected)
    out = cupy.zeros((2, 5, 8), cupy.float32)
    cell.forward(x, out=out)
    np.testing.assert_array_equal(cupy.asnumpy(out), expected)
    h, _ = penstock.scan(x, x)
    np.testing.assert_array_equal(cupy.asnumpy(cupy.from_dlpack(h)), here(penstock.scan(there(cupy.asnumpy(x)), x)[0]))
