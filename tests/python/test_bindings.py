"""What crosses the border between Python and the library: arrays of all sorts, mistakes, threads. Never a crash."""

import copy
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from layer_checks import Dlpack

import penstock

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in cast")
F32 = np.float32


class Foreign:
    """An array of another library that speaks one protocol."""

    def __init__(self, array, protocol):
        self._array = array
        if protocol == "__array_interface__":
            self.__array_interface__ = array.__array_interface__


@pytest.mark.parametrize(
    "wrap", [lambda a: Foreign(a, "__array_interface__"), Dlpack, memoryview, lambda a: a.tolist()]
)
def test_arrays_of_others(wrap):
    cell = penstock.MinGRUCell(3, 5)
    x = np.random.default_rng(0).standard_normal((2, 7, 3)).astype(F32)
    assert (cell.forward(wrap(x))[0] == cell.forward(x)[0]).all()


@pytest.mark.parametrize("wrap", [lambda a: Foreign(a, "__array_interface__"), memoryview])
def test_results_go_where_others_keep_them(wrap):
    cell = penstock.MinGRUCell(3, 5)
    x, out = np.ones((2, 7, 3), F32), np.zeros((2, 7, 5), F32)
    cell.forward(x, out=wrap(out))
    assert (out == cell.forward(x)[0]).all()


def test_inputs_that_cannot_be_written_to_are_read():
    cell = penstock.MinGRUCell(3, 5)
    x = np.ones((2, 7, 3), F32)
    x.flags.writeable = False
    y, _ = cell.forward(x)
    with pytest.raises(ValueError, match="out must be writable"):
        out = np.zeros_like(y)
        out.flags.writeable = False
        cell.forward(x, out=out)
    assert np.from_dlpack(y).shape == y.__array_interface__["shape"] == (2, 7, 5)


def test_arrays_live_as_long_as_they_are_needed():
    cell = penstock.MinGRUCell(3, 5)
    x = np.ones((2, 7, 3), F32)
    before = sys.getrefcount(x)
    tape = cell.tape()
    cell.forward(x, tape=tape)
    assert sys.getrefcount(x) > before
    for _ in range(100):
        cell.forward(x, tape=tape)
        cell.forward(x)
        cell.step(x[:, 0])
        with pytest.raises(TypeError):
            cell.forward(x, out=np.zeros((2, 7, 5)))
    del tape
    assert sys.getrefcount(x) == before


@pytest.mark.parametrize(
    "call, kind, message",
    [
        (
            lambda c, x: c.forward(x.astype(np.float64)),
            TypeError,
            "x must be float32, not float64; convert it with .ast",
        ),
        (lambda c, x: c.forward(x.astype(np.float16)), TypeError, "x must be float32, not float16"),
        (lambda c, x: c.forward(x.astype(">f4")), TypeError, "x must be float32"),
        (lambda c, x: c.forward(x.astype(complex)), TypeError, "not complex128"),
        (lambda c, x: c.forward(x.astype(object)), TypeError, "x must be float32, not object"),
        (lambda c, x: c.forward(None), TypeError, "x must be float32, not object"),
        (lambda c, x: c.forward("text"), TypeError, "x must be float32, not <U4"),
        (lambda c, x: c.forward(b"text"), TypeError, "x must be float32, not uint8"),
        (
            lambda c, x: c.forward(x[:, :, :2]),
            ValueError,
            r"x must have the shape \(B, T, C\) = \(2, 7, 3\), not \(2, 7, 2\)",
        ),
        (lambda c, x: c.forward(x[0, 0]), ValueError, r"x must have the shape \(T, C\) or \(B, T, C\), not \(3,\)"),
        (lambda c, x: c.forward(np.zeros((2, 0, 3), F32)), ValueError, "at least one row and one step"),
        (lambda c, x: c.forward(np.zeros((0, 7, 3), F32)), ValueError, "at least one row and one step"),
        (
            lambda c, x: c.forward(x, np.zeros((3, 5), F32)),
            ValueError,
            r"h0 must have the shape \(B, H\) = \(2, 5\), not \(3, 5\)",
        ),
        (lambda c, x: c.forward(x, out=np.zeros((2, 7, 4), F32)), ValueError, "out must have the shape"),
        (
            lambda c, x: c.forward(x, out=np.zeros((2, 7, 10), F32)[:, :, ::2]),
            ValueError,
            "out must have contiguous chan",
        ),
        (lambda c, x: c.forward(x, out=[1.0]), TypeError, "out must be an array to write to, not list"),
        (lambda c, x: c.forward(x, out=x), ValueError, r"out must have the shape \(B, T, C\) = \(2, 7, 5\), not \(2, 7, 3\)"),
        (
            lambda c, x: c.forward(x, lengths=[7]),
            ValueError,
            r"lengths must have the shape \(B,\) = \(2,\), not \(1,\)",
        ),
        (lambda c, x: c.forward(x, lengths=[8, 1]), ValueError, "lengths must be 0 to T = 7, not 8"),
        (lambda c, x: c.forward(x, lengths=[1, -1]), ValueError, "lengths must be 0 to T = 7, not -1"),
        (lambda c, x: c.forward(x, lengths=[1.5, 1]), TypeError, "lengths must be int64, not float64"),
        (lambda c, x: c.forward(x, lengths=[float("nan"), 1]), TypeError, "lengths must be int64, not float64"),
        (lambda c, x: c.forward(x, lengths=np.array([np.inf, 1], F32)), TypeError, "lengths must be int64, not float32"),
        (lambda c, x: c.forward(x, lengths=[None, 1]), TypeError, "lengths must be int64, not object"),
        (lambda c, x: c.forward(x, lengths=["7", "1"]), TypeError, "lengths must be int64, not <U1"),
        (lambda c, x: penstock.scan(x, x, lengths=[float("nan"), 1]), TypeError, "lengths must be int64, not float64"),
        (lambda c, x: penstock.log_scan(x, x, lengths=[np.inf, 1]), TypeError, "lengths must be int64, not float64"),
        (lambda c, x: c.forward(x, lengths=np.array([1.5, 1])), TypeError, "lengths must be int64, not float64"),
        (lambda c, x: c.forward(x[0], cu_seqlens=[0, 8]), ValueError, "cu_seqlens must end at the number of steps"),
        (lambda c, x: c.forward(x[0], cu_seqlens=[1, 7]), ValueError, "cu_seqlens must start at 0, not 1"),
        (lambda c, x: c.forward(x[0], cu_seqlens=[0, 9, 7]), ValueError, "cu_seqlens must never fall"),
        (lambda c, x: c.forward(x[0], cu_seqlens=[0, 7], lengths=[7]), ValueError, "cannot be given both"),
        (lambda c, x: c.forward(x, reset_mask=np.zeros((2, 6), bool)), ValueError, "reset_mask must have the shape"),
        (lambda c, x: c.forward(x, layout="BTC"), ValueError, "layout must be 'batch_first' or 'time_first'"),
        (lambda c, x: c.forward(x, mode="parallel"), ValueError, "mode must be"),
        (lambda c, x: c.forward(x, device="cuda"), penstock.Unsupported, "device cuda:0 is not there"),
        (lambda c, x: c.forward(x, device="gpu"), ValueError, "gpu"),
        (lambda c, x: c.forward(x, threads=-1), ValueError, "threads must be at least 0"),
        (lambda c, x: c.forward(x, precision="f16"), penstock.Error, "f16"),
        (lambda c, x: c.step(x), ValueError, r"x must have the shape \(I,\) or \(B, I\) with I = 3, not \(2, 7, 3\)"),
        (lambda c, x: c.step(x[:, 0], np.zeros(5, F32)), ValueError, "h must have the shape"),
        (lambda c, x: c.step(F32(1)), ValueError, "x must have the shape"),
        (lambda c, x: c.backward(x, tape=c.tape()), ValueError, "tape must have been filled"),
        (lambda c, x: c.load_state_dict({"w": x}), ValueError, "missing: bias_hh_l0"),
        (lambda c, x: c.zero_state(-3), ValueError, "rows must be at least 1, not -3"),
        (lambda c, x: penstock.GRUCell(0, 5), ValueError, "input_size must be 1 to"),
        (lambda c, x: penstock.GRUCell(3, 5, heads=2), ValueError, "heads"),
        (lambda c, x: penstock.GRUCell(3, 5, dtype="float16"), ValueError, "dtype must be 'float32' or 'float64'"),
        (lambda c, x: penstock.Recurrent("lstn", 3, 5), ValueError, "lstm"),
        (lambda c, x: penstock.Recurrent("lstm", 3, 5, dropout=2.0), ValueError, "dropout"),
        (lambda c, x: penstock.scan(x, x[:, :3]), ValueError, "b must have the shape"),
        (lambda c, x: penstock.scan(x, x.astype(np.float64)), TypeError, "b must be float32"),
        (lambda c, x: penstock.scan(1.0, 2.0), ValueError, "a must have the shape"),
    ],
)
def test_mistakes_say_what_was_wrong(call, kind, message):
    with pytest.raises(kind, match=message):
        call(penstock.GRUCell(3, 5), np.ones((2, 7, 3), F32))


def test_a_wrong_state_dict_changes_nothing():
    cell = penstock.GRUCell(3, 5)
    weights = cell.state_dict()
    wrong = dict(weights, bias_hh_l0=np.zeros(3, F32), weight_ih_l0=weights["weight_ih_l0"] + 1)
    with pytest.raises(ValueError, match=r"bias_hh_l0"):
        cell.load_state_dict(wrong)
    assert (cell.parameters["weight_ih_l0"] == weights["weight_ih_l0"]).all()


def test_masked_values_are_refused():
    cell, x = penstock.GRUCell(3, 5), np.ones((2, 7, 3), F32)
    masked, plain = np.ma.masked_array(x, mask=x > 0), np.ma.masked_array(x)
    before = sys.getrefcount(masked)
    for call in (lambda: cell.forward(masked), lambda: penstock.scan(x, masked), lambda: penstock.scan(x, x, out=masked)):
        with pytest.raises(TypeError, match=r"must be an array without masked values; give it \.filled\(number\)"):
            call()
    assert sys.getrefcount(masked) == before
    assert (cell.forward(plain)[0] == cell.forward(x)[0]).all()


def test_weights_that_were_edited_are_no_longer_written_to():
    cell = penstock.GRUCell(3, 5)
    with cell.edit() as weights:
        weights["weight_ih_l0"][:] = 1
    with pytest.raises(ValueError, match="read-only"):
        weights["weight_ih_l0"][:] = 2
    assert (cell.parameters["weight_ih_l0"] == 1).all()
    with cell.edit() as weights:
        weights["weight_ih_l0"][:] = 3
    assert (cell.parameters["weight_ih_l0"] == 3).all()


def test_weights_of_another_cell_are_refused():
    slstm, lstm = (penstock.Recurrent(cell, 3, 4) for cell in ("slstm", "lstm"))
    before, weights = lstm.state_dict(), slstm.state_dict()
    with pytest.raises(penstock.InvalidArgument, match="weights are those of a cell 'slstm', and this is 'lstm'"):
        lstm.load_state_dict(weights)
    assert all((lstm.parameters[name] == array).all() for name, array in before.items())
    lstm.load_state_dict(dict(weights))  # who says nothing of a cell
    assert all((lstm.parameters[name] == array).all() for name, array in weights.items())
    slstm.load_state_dict(copy.deepcopy(weights))


def test_a_tape_of_another_network_is_refused():
    cell, other = penstock.GRUCell(3, 5), penstock.GRUCell(4, 6)
    tape = cell.tape()
    cell.forward(np.ones((2, 7, 3), F32), tape=tape)
    with pytest.raises(ValueError):
        other.backward(np.ones((2, 7, 6), F32), tape=tape)
    with pytest.raises(TypeError):
        penstock.GRUCell(3, 5, dtype="float64").backward(None, tape=tape)


def test_many_threads_share_one_network():
    network = penstock.Recurrent("lstm", 3, 5, layers=2)
    x = np.random.default_rng(1).standard_normal((8, 4, 20, 3)).astype(F32)
    expected = [network.forward(part, threads=1, exact=True)[0] for part in x]
    wrong = []

    def work(i):
        for _ in range(20):
            y, _ = network.forward(x[i], threads=1, exact=True)
            state = None
            for t in range(3):
                step, state = network.step(x[i, :, t], state)
                if not (step == y[:, t]).all():
                    wrong.append(i)
            tape = network.tape()
            network.forward(x[i], tape=tape, threads=1)
            network.backward(y, tape=tape)
            if not (y == expected[i]).all():
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---- what a refused call leaves behind --------------------------------------------------------------------------------


def network_calls():
    """Every argument of every call that reads arrays: (call of an array, a shape that is right)."""
    cell, stack = penstock.GRUCell(3, 5), penstock.Recurrent("lstm", 3, 5)
    x, state = np.zeros((2, 7, 3), F32), np.zeros((2, 1, 2, 5), F32)
    tape = stack.tape()
    stack.forward(x, tape=tape)
    y, last = np.zeros((2, 7, 5), F32), np.zeros((2, 1, 2, 5), F32)
    scan = np.full((2, 7, 3), 0.5, F32)
    weights = stack.state_dict()
    yield "forward x", lambda a: stack.forward(a), x.shape
    yield "forward h0", lambda a: stack.forward(x, a), state.shape
    yield "forward out", lambda a: stack.forward(x, out=a), y.shape
    yield "forward lengths", lambda a: stack.forward(x, lengths=a), (2,)
    yield "forward cu_seqlens", lambda a: stack.forward(x[0], cu_seqlens=a), (2,)
    yield "forward reset_mask", lambda a: stack.forward(x, reset_mask=a), (2, 7)
    yield "backward dy", lambda a: stack.backward(a, tape=tape), y.shape
    yield "backward dstate", lambda a: stack.backward(y, a, tape=tape), last.shape
    yield "stack step x", lambda a: stack.step(a), (2, 3)
    yield "stack step h", lambda a: stack.step(x[:, 0], a), state.shape
    yield "cell step x", lambda a: cell.step(a), (2, 3)
    yield "cell step h", lambda a: cell.step(x[:, 0], a), (2, 5)
    yield "cell step out", lambda a: cell.step(x[:, 0], out=a), (2, 5)
    yield "load_state_dict", lambda a: stack.load_state_dict({**weights, "bias_ih_l0": a}), (20,)
    for name, forward, backward in (
        ("scan", penstock.scan, penstock.scan_backward),
        ("log_scan", penstock.log_scan, penstock.log_scan_backward),
    ):
        yield f"{name} a", lambda a, f=forward: f(a, scan), scan.shape
        yield f"{name} b", lambda a, f=forward: f(scan, a), scan.shape
        yield f"{name} h0", lambda a, f=forward: f(scan, scan, a), (2, 3)
        yield f"{name} out", lambda a, f=forward: f(scan, scan, out=a), scan.shape
        yield f"{name} lengths", lambda a, f=forward: f(scan, scan, lengths=a), (2,)
        yield f"{name} cu_seqlens", lambda a, f=forward: f(scan[0], scan[0], cu_seqlens=a), (2,)
        yield f"{name} reset_mask", lambda a, f=forward: f(scan, scan, reset_mask=a), (2, 7)
        for place, argument in enumerate(("a", "b", "h", "dh", "h0", "dlast")):
            shape = (2, 3) if place > 3 else scan.shape
            given = [scan, scan, scan, scan, None, None]
            yield (
                f"{name}_backward {argument}",
                lambda a, b=backward, g=given, p=place: b(*g[:p], a, *g[p + 1 :]),
                shape,
            )
    yield "log_scan sign", lambda a: penstock.log_scan(scan, scan, sign=a), scan.shape


def model_calls():
    data = penstock.open_task("parity", length=8, validation_length=8)
    model = penstock.Model(data, cell="lstm", width=4, blocks=1)
    tokens = np.zeros(8, np.int32)
    yield "Model.forward x", lambda a: model.forward(a), (8,)
    yield "Model.forward state", lambda a: model.forward(tokens, a), (8,)
    yield "Session.push", lambda a: penstock.Session(model).push(a), (1,)
    yield "SessionBatch.push", lambda a: penstock.SessionBatch(model, 3).push(a), (3,)
    pool = penstock.SessionPool(model, 3)
    sessions = [pool.open() for _ in range(3)]
    yield "SessionPool.push", lambda a: pool.push(sessions, a), (3,)


BINDINGS = {name: (call, shape) for name, call, shape in [*network_calls(), *model_calls()]}
#: No argument is of these types.
WRONG_TYPES = [np.float16, np.complex64, ">f4", "S3"]


@pytest.mark.parametrize("name", BINDINGS)
def test_arrays_that_are_refused_are_given_back(name):
    call, shape = BINDINGS[name]
    for array in [np.zeros(shape, dtype) for dtype in WRONG_TYPES] + [np.zeros((*shape, 1, 1), F32)]:
        for given in (array, memoryview(array) if array.dtype.isnative else array):
            before = sys.getrefcount(array)
            for _ in range(5):
                with pytest.raises((TypeError, ValueError)):
                    call(given)
            assert sys.getrefcount(array) == before, f"{name} keeps what is {array.dtype}"


def test_refused_arrays_take_no_memory():
    """4 GB, if they were kept."""
    script = """
import numpy as np, penstock, resource
network = penstock.Recurrent("gru", 9, 17)
def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for i in range(1000):
    if i == 10:
        before = most()
    for call in (network.forward, lambda a: penstock.scan(np.zeros((4, 9), np.float32), a)):
        try:
            call(np.ones((1, 28000, 9)))
        except (TypeError, ValueError):
            pass
assert most() - before < 200_000, f"{most() - before} kB"
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr


# ---- weights that change between the passes ----------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["load_state_dict", "edit", "inside edit"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_tape_of_other_weights_is_refused(change, dtype):
    network = penstock.Recurrent("gru", 3, 5, dtype=dtype)
    x, dy = np.ones((2, 7, 3), dtype), np.ones((2, 7, 5), dtype)
    tape = network.tape()

    def refused():
        with pytest.raises(penstock.InvalidArgument, match="weights as they are now, and they have changed since"):
            network.backward(dy, tape=tape)

    network.forward(x, tape=tape)
    if change == "load_state_dict":
        network.load_state_dict({name: value + 1 for name, value in network.state_dict().items()})
    else:
        with network.edit() as weights:
            weights["weight_ih_l0"][:] = 0
            if change == "inside edit":
                refused()
    refused()
    assert all((gradient == 0).all() for gradient in network.gradients.values())
    network.forward(x, tape=tape)
    dx, _ = network.backward(dy, tape=tape)
    assert np.isfinite(dx).all()


# ---- gradients that are limited at each step ---------------------------------------------------------------------------


def test_the_recurrent_gradient_is_clipped_at_each_step():
    """By hand, for a single unit; what comes behind the last step is not limited."""
    w, r, limit, x, dy = 0.7, 2.5, 0.3, [0.1, -0.2, 0.15, 0.05], [1, -2, 0.5, 1.5]
    network = penstock.Recurrent("elman", 1, 1, bias=False, dtype="float64", gradient_clip=limit)
    assert network.gradient_clip == limit
    network.load_state_dict({"weight_ih_l0": np.array([[w]]), "weight_hh_l0": np.array([[r]])})
    tape = network.tape()
    y, _ = network.forward(np.array(x).reshape(1, 4, 1), np.full((1, 1, 1), 0.2), tape=tape)
    dx, dh = network.backward(np.array(dy, float).reshape(1, 4, 1), np.full((1, 1, 1), 0.9), tape=tape)
    passed, cut, expected = 0.9, 0, []
    for t in reversed(range(4)):
        gate = (passed + dy[t]) * (1 - y[0, t, 0] ** 2)
        expected.insert(0, gate * w)
        passed, cut = min(max(gate * r, -limit), limit), cut + (abs(gate * r) > limit)
    np.testing.assert_allclose(dx[0, :, 0], expected, rtol=1e-12)
    np.testing.assert_allclose(dh.ravel(), [passed], rtol=1e-12)
    assert cut >= 2
    with pytest.raises(penstock.InvalidArgument, match="gradient_clip must be 0 or a positive number, not -1"):
        penstock.Recurrent("lstm", 2, 3, gradient_clip=-1)
    with pytest.raises(penstock.InvalidArgument, match="gradient_clip must be 0 for cell mingru"):
        penstock.Recurrent("mingru", 2, 3, gradient_clip=1.0)


# ---- fork --------------------------------------------------------------------------------------------------------------

FORKS = {
    "a layer": """
network = penstock.Recurrent("lstm", 64, 256)
x = np.random.default_rng(0).standard_normal((8, 64, 64)).astype(np.float32)
compute = lambda: network.forward(x, threads=4)[0]
""",
    "a backward pass": """
network, x = penstock.Recurrent("gru", 64, 128), np.ones((8, 64, 64), np.float32)
def compute():
    tape = network.tape()
    network.forward(x, tape=tape, threads=4)
    return network.backward(np.ones((8, 64, 128), np.float32), tape=tape)[0]
""",
    "a scan": """
a = np.full((4, 20000, 64), 0.5, np.float32)
compute = lambda: penstock.scan(a, a, threads=4)[0]
""",
    "a model": """
data = penstock.open_task("parity", length=64, validation_length=64)
model = penstock.Model(data, cell="mingru", width=128)
tokens = np.zeros((16, 512), np.int32)
compute = lambda: model.forward(tokens, threads=4)[0]
""",
    "training": """
def compute():
    data = penstock.open_task("parity", length=16, validation_length=16)
    model = penstock.Model(data, cell="lstm", width=64, blocks=1, seed=1)
    penstock.train(model, data, steps=2, batch=16, threads=4, seed=1, progress=False)
    return model.forward(np.zeros(16, np.int32), threads=4)[0]
""",
}


@pytest.mark.parametrize("what", FORKS)
def test_a_child_of_fork_computes_what_its_parent_does(what):
    """As workers of multiprocessing do, and of PyTorch's DataLoader. A time-out ends what hangs."""
    script = f"""
import multiprocessing
import numpy as np, penstock
{FORKS[what]}
def work():
    return compute()
expected = compute()
with multiprocessing.get_context("fork").Pool(2) as pool:
    for child in pool.starmap_async(work, [()] * 3).get(timeout=60):
        np.testing.assert_allclose(child, expected, rtol=1e-5, atol=1e-6)
np.testing.assert_allclose(compute(), expected, rtol=1e-5, atol=1e-6)
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "4"}
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=120, env=environment
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("form", [{}, {"lengths": [3, 0, 7]}, {"layout": "time_first"}, {"cu_seqlens": [0, 3, 3, 21]}])
@pytest.mark.parametrize("cell", ["gru", "mingru"])
def test_arrays_of_a_tape_that_are_written_to_are_noticed(cell, form):
    form = {name: value if isinstance(value, str) else np.array(value) for name, value in form.items()}
    network = penstock.Recurrent(cell, 5, 4, layers=2)
    shape = (21, 5) if "cu_seqlens" in form else (7, 3, 5) if "layout" in form else (3, 7, 5)
    x, tape = np.random.default_rng(0).normal(size=shape).astype(F32), network.tape()

    def run(change_x=lambda x: None, change_y=lambda y: None):
        mine = x.copy()
        y, _ = network.forward(mine, tape=tape, **form)
        change_x(mine)
        change_y(y)
        network.zero_gradients()
        dx, _ = network.backward(np.ones_like(y), tape=tape)
        return dx, {name: gradient.copy() for name, gradient in network.gradients.items()}

    def same(one, other):
        return np.array_equal(one[0], other[0]) and all(np.array_equal(one[1][name], other[1][name]) for name in one[1])

    def add_one(array):
        array += 1

    right = run()
    with pytest.raises(penstock.InvalidArgument, match="x must be as forward.. left it, and has been written to since"):
        run(change_x=add_one)
    if cell == "mingru":
        with pytest.raises(penstock.InvalidArgument, match="y must be as forward.. left it"):
            run(change_y=add_one)
    else:
        assert same(run(change_y=add_one), right)  # nothing reads it
    if "lengths" in form:  # nor what lies behind the end of a row

        def fill_padding(array):
            array[0, 3:] = array[1] = np.nan

        assert same(run(change_x=fill_padding, change_y=fill_padding), right)
    assert same(run(), right)
