"""penstock.jax on a GPU, with sizes that use all kinds of kernels; test_jax.py runs there, too."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed")
from jax_checks import ON_GPU, by_scan, mixed, sees_c_in_jax  # noqa: E402

if not ON_GPU:
    pytest.skip("there is no GPU for JAX", allow_module_level=True)
import jax.numpy as jnp  # noqa: E402

import penstock  # noqa: E402
import penstock.jax as pj  # noqa: E402
from penstock import reference  # noqa: E402

KEY = jax.random.key(0)
UNITS = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}


def assert_near(found, expected, dtype, steps):
    """Within sqrt(T) roundings of the largest value."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert a.shape == b.shape and np.isfinite(a).all()
        worst, allowed = abs(a - b).max(), 16 * UNITS[dtype] * steps**0.5 * max(1.0, abs(b).max())
        assert worst <= allowed, f"{worst} is more than {allowed}"


def layer_passes(layer):
    def loss(*given):
        y, last = layer(*given)
        return (y.astype(jnp.float32) ** 2).mean() + sum((s**2).mean() for s in jax.tree.leaves(last))

    return jax.jit(lambda *given: (layer(*given), jax.grad(loss, tuple(range(len(given))))(*given)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("sizes", [(16, 128, 64, 64), (3, 17, 12, 20), (64, 40, 256, 512), (2, 300, 32, 1024)])
@pytest.mark.parametrize("cell", ["lstm", "gru", "mingru"])
def test_layers_equal_lax_scan(cell, sizes, dtype):
    rows, steps, inputs, hidden = sizes
    count = reference.CELLS[cell][2]
    weights = pj.initial_weights(KEY, cell, inputs, hidden)
    x = jax.random.normal(KEY, (rows, steps, inputs))
    state = tuple(jax.random.uniform(KEY, (1, rows, hidden), jnp.float32, -1, 1) for _ in range(count))
    x, weights = jax.tree.map(lambda a: a.astype(dtype), (x, weights))
    lengths = jax.random.randint(KEY, (rows,), 0, steps + 1)
    mask = jax.random.uniform(KEY, (rows, steps)) < 0.05

    def ours(x, weights, state):
        y, last = pj.recurrent(
            x, weights, state if count > 1 else state[0], cell=cell, lengths=lengths, reset_mask=mask
        )
        return y, tuple(s[0] for s in (last if count > 1 else (last,)))

    def theirs(x, weights, state):
        x, weights = jax.tree.map(lambda a: a.astype(jnp.float32), (x, weights))
        return by_scan(cell, x, weights, tuple(s[0] for s in state), lengths, mask)

    found, expected = layer_passes(ours)(x, weights, state), layer_passes(theirs)(x, weights, state)
    assert found[0][0].dtype == dtype and found[1][0].dtype == dtype
    assert_near(found, expected, dtype, steps)


@pytest.mark.parametrize("cell", ["lstm", "gru", "elman", "slstm", "minlstm-log", sees_c_in_jax])
@pytest.mark.parametrize("time_major", [False, True])
def test_stacks_equal_those_on_a_cpu(cell, time_major):
    options = {"num_layers": 2, "bidirectional": True}
    weights = pj.initial_weights(KEY, cell, 48, 64, **options)
    x = jax.random.normal(KEY, (40, 8, 48) if time_major else (8, 40, 48))
    lengths, mask = np.array([40, 0, 1, 39, 20, 40, 7, 8]), np.asarray(jax.random.uniform(KEY, x.shape[:2]) < 0.1)

    def passes(x, weights):
        def layer(x, weights):
            return pj.recurrent(x, weights, cell=cell, lengths=lengths, reset_mask=mask, time_major=time_major)

        return layer(x, weights), jax.grad(lambda *given: mixed(layer(*given)) / 100, (0, 1))(x, weights)

    cpu = jax.devices("cpu")[0]
    with jax.default_device(cpu):
        expected = jax.jit(passes)(*jax.device_put((x, weights), cpu))
    # Arrays on a CPU where calls run on the GPU by default: the tape has the size for the GPU.
    elsewhere = jax.jit(passes)(*jax.device_put((x, weights), cpu))
    assert_near(elsewhere, expected, "float32", 40)
    assert_near(jax.jit(passes)(x, weights), expected, "float32", 40 * 64)


@pytest.mark.parametrize("axes", [(), (16,), (16, 40)], ids=["one", "rows", "steps"])
@pytest.mark.parametrize(("hidden", "dtype"), [(128, "float32"), (256, "bfloat16"), (1024, "bfloat16")])
@pytest.mark.parametrize("cell", ["lstm", "gru", "mingru"])
def test_restarts_equal_sequences_by_themselves(cell, hidden, dtype, axes):
    rows, steps, count = 16, 40, 2 if cell == "lstm" else 1
    restarts = [[], [0], [1], [39], [7, 8], [0, 20, 39]] + [[row, 20 + row] for row in range(1, 11)]
    mask = np.zeros((rows, steps), bool)
    for row, at in enumerate(restarts):
        mask[row, at] = True
    # The sequences: the row, the first step and the end of each.
    cuts = [(row, sorted({0, *at, steps})) for row, at in enumerate(restarts)]
    row, first, end = np.array([(row, a, b) for row, at in cuts for a, b in zip(at, at[1:])]).T
    sequence_of = np.repeat(np.arange(len(row)), end - first).reshape(rows, steps)

    weights = pj.initial_weights(KEY, cell, 32, hidden)
    x, weights = jax.tree.map(lambda a: a.astype(dtype), (jax.random.normal(KEY, (rows, steps, 32)), weights))
    keys = jax.random.split(KEY, count)
    start = tuple(jax.random.uniform(key, (1, rows, hidden), jnp.float32, -1, 1) for key in keys)
    to = tuple(jax.random.uniform(key, (1, *axes, hidden), jnp.float32, -1, 1) for key in keys)

    def layer(x, weights, state, **more):
        y, last = pj.recurrent(x, weights, state if count > 1 else state[0], cell=cell, **more)
        return y, last if count > 1 else (last,)

    def together(x, weights, start, to):
        return layer(x, weights, start, reset_mask=mask, reset_to=to if count > 1 else to[0])

    def apart(x, weights, start, to):
        at = np.minimum(first[:, None] + np.arange(steps), steps - 1)
        to = [s.reshape(1, *axes, *[1] * (2 - len(axes)), hidden) for s in to]
        to = [jnp.broadcast_to(s, (1, rows, steps, hidden))[:, row, first] for s in to]
        state = [jnp.where(mask[row, first][:, None], b, a[:, row]) for a, b in zip(start, to)]
        y, last = layer(x[row[:, None], at], weights, tuple(state), lengths=end - first)
        return y[sequence_of, np.arange(steps) - first[sequence_of]], tuple(s[:, sequence_of[:, -1]] for s in last)

    found, expected = (layer_passes(run)(x, weights, start, to) for run in (together, apart))
    assert_near(found, expected, dtype, steps)
    for a, b in zip(found[1][3], expected[1][3]):  # those of the given states are small
        assert abs(a - b).max() <= 16 * UNITS[dtype] * steps**0.5 * abs(b).max() > 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("sizes", [(4, 1000, 128), (2, 33, 5), (1, 70000, 8)])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans_equal_associative_scan(sizes, reverse, dtype):
    rows, steps, channels = sizes
    a = jax.random.uniform(KEY, sizes, jnp.float32, 0.1, 0.9).astype(dtype)
    b = jax.random.normal(KEY, sizes).astype(dtype)

    def theirs(a, b):
        a, b = a.astype(jnp.float32), b.astype(jnp.float32)
        return jax.lax.associative_scan(
            lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (a, b), axis=1, reverse=reverse
        )[1]

    def passes(scan):
        loss = lambda a, b: (scan(a, b).astype(jnp.float32) ** 2).mean()  # noqa: E731
        return jax.jit(lambda *given: (scan(*given), jax.grad(loss, (0, 1))(*given)))

    ours = lambda a, b: pj.scan(a, b, reverse=reverse)[0]  # noqa: E731
    assert_near(passes(ours)(a, b), passes(theirs)(a, b), dtype, 16)


def test_chunks_in_a_loop_and_many_calls_in_one_function():
    """XLA records such code as CUDA graphs, with calls at other addresses in every run."""
    weights = pj.initial_weights(KEY, "lstm", 64, 128)
    x = jax.random.normal(KEY, (6, 16, 50, 64))

    def in_loop(weights, x):
        def chunk(state, x):
            y, state = pj.lstm(x, weights, state)
            return state, y

        zeros = (jnp.zeros((1, 16, 128)),) * 2
        return (jax.lax.scan(chunk, zeros, x)[1] ** 2).mean()

    def unrolled(weights, x):
        state, total = None, 0.0
        for part in x:
            y, state = pj.lstm(part, weights, state)
            total += (y**2).mean() / 6
        return total

    def whole(weights, x):
        return (pj.lstm(x.swapaxes(0, 1).reshape(16, -1, 64), weights)[0] ** 2).mean()

    expected = jax.jit(jax.value_and_grad(whole, (0, 1)))(weights, x)
    for loss in (in_loop, unrolled):
        step = jax.jit(jax.value_and_grad(loss, (0, 1)))
        for _ in range(5):
            assert_near(step(weights, x), expected, "float32", 300)
        kept = [jnp.zeros(1 << 20) for _ in range(3)]  # other arrays take the places of results
        assert_near(step(weights, x), expected, "float32", 300)
        del kept


def test_training_steps_that_donate():
    weights = pj.initial_weights(KEY, "gru", 32, 64)
    x = jax.random.normal(KEY, (8, 50, 32))

    def step(weights, x):
        loss, gradients = jax.value_and_grad(lambda w: ((pj.gru(x, w)[0] - 0.5) ** 2).mean())(weights)
        return jax.tree.map(lambda w, g: w - 0.5 * g, weights, gradients), loss

    plain, donating = jax.jit(step), jax.jit(step, donate_argnums=0)
    ours, theirs = jax.tree.map(jnp.copy, weights), weights
    for _ in range(20):
        ours, loss = donating(ours, x)
        theirs, expected = plain(theirs, x)
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)  # two programs of XLA
    assert loss < 0.3


@pytest.mark.parametrize("length", [-1, 51])
def test_rows_with_impossible_lengths_are_nan(length):
    weights = pj.initial_weights(KEY, "lstm", 8, 16)
    x = jax.random.normal(KEY, (3, 50, 8))
    layer = jax.jit(lambda lengths: pj.lstm(x, weights, lengths=lengths))
    y, (h, c) = layer(jnp.array([50, length, 7]))
    expected, _ = layer(jnp.array([50, 0, 7]))
    assert np.isnan(y[1]).all() and np.isnan(h[0, 1]).all() and np.isnan(c[0, 1]).all()
    assert (y[0] == expected[0]).all() and (y[2] == expected[2]).all()
    a = jnp.full((3, 50, 4), 0.5)
    h, last = pj.scan(a, a, lengths=jnp.array([length, 3, 50]))
    assert np.isnan(h[0]).all() and np.isnan(last[0]).all() and np.isfinite(h[1:]).all()


def test_float64_and_small_workspaces_are_refused():
    with jax.enable_x64(True):
        x = jnp.zeros((2, 5, 3), jnp.float64)
        weights = pj.initial_weights(KEY, "gru", 3, 4, dtype=jnp.float64)
        with pytest.raises(penstock.Unsupported, match="float64 runs on CPUs only"):
            pj.gru(x, weights)
    x, weights = jnp.zeros((3, 5, 3)), pj.initial_weights(KEY, "gru", 3, 4)
    shapes = [jax.ShapeDtypeStruct((3, 5, 4), "float32"), jax.ShapeDtypeStruct((1, 1, 3, 4), "float32")]
    numbers = np.array([3, 4, 1, 1, 0, 2, 0, 0, 3, 5, 0, 0, 0, 1, 0, 0, -1, 0, 0], np.int64)
    for workspace, message in (
        ([], "too few results: 2"),
        ([jax.ShapeDtypeStruct((1,), "uint8")], "workspace must have at least"),
        ([jax.ShapeDtypeStruct((64,), "float32")], "the workspace and the tape must be u8"),
    ):
        call = jax.ffi.ffi_call("penstock_recurrent", [*shapes, *workspace])
        with pytest.raises(Exception, match=message):
            jax.block_until_ready(call(x, *weights.values(), cell="gru", numbers=numbers))


def run(code, **environment):
    folders = (pathlib.Path(penstock.__file__).parents[1], pathlib.Path(__file__).parent)
    environment = {**os.environ, "PYTHONPATH": ":".join(map(str, folders)), **environment}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


CODE = """
import jax, jax.numpy as jnp, penstock.jax as pj
weights = pj.initial_weights(jax.random.key(0), "gru", 64, 512, dtype="bfloat16")
x = jax.random.normal(jax.random.key(1), (16, 64, 64), "bfloat16")
step = jax.jit(jax.grad(lambda w: (pj.gru(x, w)[0].astype("float32") ** 2).mean()))
gradients = [float(g.astype("float32").sum()) for g in step(weights).values()]
assert gradients == [float(g.astype("float32").sum()) for g in step(weights).values()]
print(gradients)
"""


def test_most_of_the_memory_may_be_taken_by_jax():
    done = run(CODE, XLA_PYTHON_CLIENT_MEM_FRACTION="0.9")
    assert done.returncode == 0, done.stderr


def test_with_and_without_cuda_graphs():
    without = run(CODE, XLA_FLAGS="--xla_gpu_enable_command_buffer=")
    with_them = run(CODE, XLA_FLAGS="--xla_gpu_graph_min_graph_size=1")
    assert without.returncode == 0 and with_them.returncode == 0, without.stderr + with_them.stderr
    assert with_them.stdout == without.stdout
