"""penstock.jax against jax.lax.scan, penstock.reference and PyTorch's layers, under JAX's transformations."""

import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed")
import jax.export  # noqa: E402, F811
import jax.numpy as jnp  # noqa: E402

import penstock  # noqa: E402
import penstock.jax as pj  # noqa: E402
from penstock import reference  # noqa: E402
from penstock.equations import sigmoid, tanh  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)  # the tests would wait for XLA's compiler most of the time
jax.config.update("jax_num_cpu_devices", 2)
KEY = jax.random.key(0)
ROOT = pathlib.Path(__file__).parents[2]
LENGTHS = np.array([5, 2, 0])
MASK = np.array([[0, 0, 1, 0, 0], [1, 1, 0, 1, 0], [1, 0, 0, 0, 0]], bool)


@penstock.cell(states=("h", "c"), gates=4)
def sees_c_in_jax(wx, rh, s, p):
    i, f = sigmoid(wx[0] + rh[0] + p.i * s.c), sigmoid(wx[1] + rh[1] + p.f * s.c)
    c = f * s.c + i * tanh(wx[2] + rh[2])
    return sigmoid(wx[3] + rh[3] + p.o * c) * tanh(c), c


def make(cell, dtype=np.float64, rows=3, steps=5, inputs=3, hidden=4, **options):
    """Returns (x, weights)."""
    weights = pj.initial_weights(KEY, cell, inputs, hidden, dtype=dtype, **options)
    return jax.random.normal(jax.random.key(1), (rows, steps, inputs), dtype), weights


def states_for(count, shape):
    drawn = tuple(jax.random.uniform(jax.random.key(i), shape, np.float64, 0.5, 1.5) for i in range(count))
    return drawn[0] if count == 1 else drawn


def mixed(results):
    """Returns one number that every result reaches, each element with another weight."""
    parts = jax.tree.leaves(results)
    return sum(
        (jnp.sin(part) * jnp.cos(jnp.arange(part.size, dtype=part.dtype)).reshape(part.shape)).sum() for part in parts
    )


def assert_alike(found, expected, tolerance=1e-10):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        assert a.shape == b.shape
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=tolerance, atol=tolerance)


def by_scan(cell, x, weights, state, lengths=None, mask=None):
    """One layer by jax.lax.scan, as JAX's users write it. `state` is a tuple of [B, H]."""
    gates = reference.CELLS[cell][1]

    class Functions:
        exp, tanh, maximum, where, relu = jnp.exp, jnp.tanh, jnp.maximum, jnp.where, jax.nn.relu
        sigmoid, log_sigmoid = jax.nn.sigmoid, jax.nn.log_sigmoid

    def step(carry, given):
        wx, runs, begins = given
        carry = tuple(jnp.where((begins & runs)[:, None], 0, s) for s in carry)

        def recurrent(h):
            return jnp.split(h @ weights["weight_hh_l0"].T + weights["bias_hh_l0"], gates, -1)

        after = reference.CELLS[cell][0](Functions, jnp.split(wx, gates, -1), recurrent, *carry)
        carry = tuple(jnp.where(runs[:, None], new, old) for new, old in zip(after, carry))
        return carry, jnp.where(runs[:, None], after[0], 0)

    rows, steps, _ = x.shape
    runs = jnp.arange(steps)[:, None] < (steps if lengths is None else lengths) * jnp.ones(rows, int)
    begins = jnp.zeros((steps, rows), bool) if mask is None else jnp.asarray(mask).T
    wx = (x @ weights["weight_ih_l0"].T + weights["bias_ih_l0"]).swapaxes(0, 1)
    last, y = jax.lax.scan(step, state, (wx, runs, begins))
    return y.swapaxes(0, 1), last


@pytest.mark.parametrize("cell", ["lstm", "gru", "elman", "slstm", "mingru", "minlstm-log"])
def test_values_and_gradients_equal_lax_scan(cell):
    x, weights = make(cell)
    count = reference.CELLS[cell][2]
    start = states_for(count, (1, 3, 4))

    def ours(x, weights, start):
        y, last = pj.recurrent(x, weights, start, cell=cell, lengths=LENGTHS, reset_mask=MASK)
        return y, tuple(s[0] for s in (last if count > 1 else (last,)))

    def theirs(x, weights, start):
        entering = tuple(s[0] for s in (start if count > 1 else (start,)))
        return by_scan(cell, x, weights, entering, LENGTHS, MASK)

    assert_alike(ours(x, weights, start), theirs(x, weights, start))

    def gradients(layer):
        return jax.jit(jax.grad(lambda *given: mixed(layer(*given)), (0, 1, 2)))(x, weights, start)

    assert_alike(gradients(ours), gradients(theirs))


@pytest.mark.parametrize("layer", ["lstm", "gru", "elman", "slstm", "min_gru", "min_lstm"])
def test_stacks_equal_the_reference(layer):
    cell = layer.replace("_", "")
    x, weights = make(cell, num_layers=2, bidirectional=True, num_heads=1 if cell.startswith("min") else 2)
    count = reference.CELLS[cell][2]
    start = states_for(count, (4, 3, 4))
    y, last = getattr(pj, layer)(x, weights, start, lengths=LENGTHS, reset_mask=MASK)
    expected, states = reference.forward(
        cell, weights, x, np.stack(start if count > 1 else [start]), layers=2, direction="bidirectional",
        heads=1 if cell.startswith("min") else 2, lengths=LENGTHS, reset_mask=MASK,
    )  # fmt: skip
    assert_alike((y, last), (expected, tuple(states) if count > 1 else states[0]))
    time_major, _ = getattr(pj, layer)(
        x.swapaxes(0, 1), weights, start, lengths=LENGTHS, reset_mask=MASK.T, time_major=True
    )
    assert_alike(time_major.swapaxes(0, 1), expected)


def test_every_state_leads_from_step_to_step():
    x, weights = make("lstm", bidirectional=True)
    y, _, (c,) = pj.lstm(x, weights, every_state=True)
    forward = {name: value for name, value in weights.items() if "reverse" not in name}
    state = None
    for t in range(5):
        step, state = pj.lstm(x[:, t : t + 1], forward, state)
        assert_alike((step[:, 0], state[1][0]), (y[:, t, :4], c[:, t, :4]))


@pytest.mark.parametrize("cell", ["gru", "mingru", sees_c_in_jax])
def test_forward_mode_and_second_derivatives(cell):
    x, weights = make(cell, rows=2, steps=3)
    moving = jax.tree.map(jnp.cos, (x, weights))

    @jax.jit
    def derivatives(x, weights):
        def loss(x, weights):
            return mixed(pj.recurrent(x, weights, cell=cell))

        def slope(x, weights):
            _, tangent = jax.jvp(loss, (x, weights), moving)
            return tangent

        def along(x, weights):
            parts = zip(jax.tree.leaves(jax.grad(loss, (0, 1))(x, weights)), jax.tree.leaves(moving))
            return sum((g * m).sum() for g, m in parts)

        return slope(x, weights), along(x, weights), jax.grad(slope)(x, weights), jax.grad(along)(x, weights)

    slope, along, of_slope, of_along = derivatives(x, weights)
    assert_alike(slope, along)
    assert_alike(of_slope, of_along)
    near = [
        mixed(pj.recurrent(x + s * moving[0], jax.tree.map(lambda w, m: w + s * m, weights, moving[1]), cell=cell))
        for s in (1e-5, -1e-5)
    ]
    assert_alike((near[0] - near[1]) / 2e-5, slope, 1e-6)


def test_calls_with_shared_weights_become_rows_under_vmap():
    x, weights = make("gru", rows=6)
    groups = x.reshape(2, 3, 5, 3)

    def loss(weights, x):
        return mixed(pj.gru(x, weights)[0] ** 2)

    rows = jax.vmap(lambda x: pj.gru(x, weights)[0])
    assert_alike(rows(groups).reshape(6, 5, 4), pj.gru(x, weights)[0])
    assert str(jax.make_jaxpr(rows)(groups)).count("penstock_forward") == 1
    assert "scan" not in str(jax.make_jaxpr(rows)(groups))
    assert_alike(jax.vmap(lambda x: pj.gru(x, weights)[0])(x), pj.gru(x, weights)[0])  # [T, I] of a single row
    mean = jax.grad(lambda weights, x: jax.vmap(loss, (None, 0))(weights, x).sum(), (0, 1))
    text = str(jax.make_jaxpr(mean)(weights, groups))
    assert text.count("penstock_backward") == 1 and "scan" not in text
    one_by_one = [jax.grad(loss, (0, 1))(weights, each) for each in groups]
    assert_alike(
        mean(weights, groups), jax.tree.map(lambda a, b: a + b if a.ndim < 3 else jnp.stack([a, b]), *one_by_one)
    )
    each = jax.jit(jax.vmap(jax.grad(loss, (0, 1)), (None, 0)))(weights, groups)
    assert_alike(each, jax.tree.map(lambda a, b: jnp.stack([a, b]), *one_by_one))


def test_vmap_over_weights_and_tangents():
    x, weights = make("gru")
    many = jax.tree.map(lambda w: jnp.stack([w, 0.5 * w]), weights)

    def loss(weights, x):
        return mixed(pj.gru(x, weights))

    both = jax.jit(jax.vmap(jax.value_and_grad(loss), (0, None)))(many, x)
    expected = [jax.value_and_grad(loss)(jax.tree.map(lambda w: w[i], many), x) for i in range(2)]
    assert_alike(both, jax.tree.map(lambda a, b: jnp.stack([a, b]), *expected))

    def ends(x):
        return pj.gru(x, weights)[1].sum((0, 1))

    assert_alike(jax.jit(jax.jacfwd(ends))(x), jax.jit(jax.jacrev(ends))(x))
    jacobians = jax.jit(jax.vmap(jax.jacfwd(ends)))(jnp.stack([x, 2 * x]))
    assert_alike(jacobians[1], jax.jit(jax.jacrev(ends))(2 * x))


def test_lengths_and_masks_may_be_mapped():
    x, weights = make("gru")
    lengths, masks = jnp.array([LENGTHS, LENGTHS[::-1]]), jnp.array([MASK, ~MASK])
    found = jax.vmap(lambda lengths, mask: pj.gru(x, weights, lengths=lengths, reset_mask=mask)[0])(lengths, masks)
    expected = [pj.gru(x, weights, lengths=length, reset_mask=mask)[0] for length, mask in zip(lengths, masks)]
    assert_alike(found, jnp.stack(expected))


@pytest.mark.parametrize("again", [lambda chunk: chunk, jax.checkpoint])
def test_chunks_in_a_loop(again):
    """The loop stacks tapes, which changes their alignment; with checkpoints it runs forward passes again."""
    x, weights = make("lstm")

    def in_chunks(weights, x):
        def chunk(state, x):
            y, state = pj.lstm(x, weights, state)
            return state, y

        zeros = (jnp.zeros((1, 3, 4)),) * 2
        return mixed(jax.lax.scan(again(chunk), zeros, x.reshape(3, 5, 1, 3).swapaxes(0, 1))[1].sum(2))

    def whole(weights, x):
        return mixed(pj.lstm(x, weights)[0].swapaxes(0, 1))

    assert_alike(jax.jit(jax.grad(in_chunks))(weights, x), jax.jit(jax.grad(whole))(weights, x))


@pytest.mark.parametrize("check", [False, True])
def test_rows_are_shared_among_devices(check):
    x, weights = make("lstm", rows=4)
    rows = jax.sharding.PartitionSpec("rows")
    mesh = jax.make_mesh((2,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    layer = jax.shard_map(
        lambda x, weights: pj.lstm(x, weights)[0], mesh=mesh, in_specs=(rows, jax.sharding.PartitionSpec()),
        out_specs=rows, check_vma=check,
    )  # fmt: skip

    def gradients(layer):
        return jax.jit(jax.value_and_grad(lambda *given: mixed(layer(*given)), (0, 1)))(x, weights)

    assert_alike(gradients(layer), gradients(lambda x, weights: pj.lstm(x, weights)[0]))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("logarithmic", [False, True])
def test_scans_equal_their_steps(logarithmic, reverse):
    a, b = (jax.random.uniform(jax.random.key(i), (3, 5, 4), np.float64, 0.1, 0.9) for i in range(2))
    h0 = jax.random.normal(KEY, (3, 4), np.float64)

    def ours(a, b, h0):
        return (pj.log_scan if logarithmic else pj.scan)(a, b, h0, lengths=LENGTHS, reset_mask=MASK, reverse=reverse)

    def theirs(a, b, h):
        a, b = (jnp.exp(a), jnp.exp(b)) if logarithmic else (a, b)
        steps = {}
        for t in reversed(range(5)) if reverse else range(5):
            runs = (t < LENGTHS)[:, None]
            h = jnp.where(runs, a[:, t] * jnp.where(MASK[:, t, None], 0, h) + b[:, t], h)
            steps[t] = jnp.where(runs, h, 0)
        return jnp.stack([steps[t] for t in range(5)], 1), h

    def derivatives(scan):
        loss = lambda *given: mixed(scan(*given))  # noqa: E731
        moving = (jnp.cos(a), jnp.cos(b), jnp.cos(h0))
        return jax.jit(lambda *given: (scan(*given), jax.grad(loss, (0, 1, 2))(*given), jax.jvp(loss, given, moving)))(
            a, b, h0
        )

    assert_alike(derivatives(ours), derivatives(theirs))
    many = jnp.stack([a, 0.5 * a])
    assert_alike(jax.vmap(ours, (0, None, None))(many, b, h0)[0][1], ours(0.5 * a, b, h0)[0])


@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float32, 1e-5), (jnp.bfloat16, 0.05), (jnp.float16, 0.01)])
def test_types(dtype, tolerance):
    x, weights = make("lstm", np.float32)
    x, narrow = x.astype(dtype), jax.tree.map(lambda w: w.astype(dtype), weights)
    exact = jax.tree.map(lambda w: w.astype(np.float64), (x, narrow))

    def passes(x, weights):
        return pj.lstm(x, weights), jax.grad(lambda x, w: mixed(pj.lstm(x, w)[0].astype(np.float64)), (0, 1))(
            x, weights
        )

    found, expected = jax.jit(passes)(x, narrow), jax.jit(passes)(*exact)
    assert found[0][0].dtype == dtype and found[0][1][0].dtype == np.float32
    assert all(g.dtype == dtype for g in jax.tree.leaves(found[1]))
    assert_alike(found, expected, tolerance)
    of_wide = pj.lstm(x, weights)[0]
    assert of_wide.dtype == dtype
    a = jnp.full((1, 3, 1), 0.5, dtype)
    assert pj.scan(a, jnp.ones_like(a))[0].astype(float).ravel().tolist() == [1.0, 1.5, 1.75]


def test_weights_are_those_of_pytorch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    layer = torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)
    x = torch.randn(3, 5, 3)
    y, (h, c) = layer(x)
    weights = {name: value.detach().numpy() for name, value in layer.state_dict().items()}
    found = pj.lstm(x.numpy(), weights)
    assert_alike(
        found, tuple(map(lambda t: t.detach().numpy(), (y,))) + ((h.detach().numpy(), c.detach().numpy()),), 1e-5
    )
    assert list(pj.initial_weights(KEY, "lstm", 3, 4, num_layers=2, bidirectional=True)) == list(weights)


@pytest.mark.parametrize("framework", ["nnx", "equinox"])
def test_modules(framework):
    pytest.importorskip("flax" if framework == "nnx" else "equinox", reason="the framework is not installed")
    module = getattr(pj, framework)
    x, weights = make("gru", np.float32)
    layer = module.GRU(3, 4, weights=weights)
    assert_alike(layer(x), pj.gru(x, weights))
    if framework == "nnx":
        from flax import nnx

        new = module.LSTM(3, 4, num_layers=2, rngs=nnx.Rngs(0))
        gradients = nnx.jit(nnx.grad(lambda m: mixed(m(x))))(layer)
        gradients = {name: gradients[name][...] for name in weights}
    else:
        import equinox

        new = module.LSTM(3, 4, num_layers=2, key=KEY)
        gradients = equinox.filter_jit(equinox.filter_grad(lambda m: mixed(jax.vmap(m)(x)[0])))(layer).weights
        weights_of_y = jax.grad(lambda w: mixed(pj.gru(x, w)[0]))(weights)
        assert_alike(gradients, weights_of_y, 1e-4)
        return
    assert_alike(gradients, jax.grad(lambda w: mixed(pj.gru(x, w)))(weights), 1e-4)
    assert new(x)[0].shape == (3, 5, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": jnp.zeros((3, 5, 2))}, r"x must be \[B, T, I = 3\] or \[T, I\] of a single row"),
        ({"x": jnp.zeros((3, 0, 3))}, r"without empty axes, not \[3, 0, 3\]"),
        ({"x": jnp.zeros((3, 5, 3), int)}, "x must be float32, float64, bfloat16 or float16, not int64"),
        ({"state": jnp.zeros((1, 2, 4))}, r"states must be floats \[1, 3, 4\], not float64 \[1, 2, 4\]"),
        ({"state": (jnp.zeros((1, 3, 4)),) * 2}, "state must be one array, not 2"),
        ({"lengths": [1, 2]}, r"lengths must be \[B\] = \[3\] integers, not int64 \[2\]"),
        ({"lengths": [1.0, 2.0, 3.0]}, r"lengths must be \[B\] = \[3\] integers, not float64"),
        ({"reset_mask": jnp.zeros((5, 3), bool)}, r"reset_mask must be bool \[3, 5\], not bool \[5, 3\]"),
        ({"reset_mask": jnp.zeros((3, 5))}, "not float64"),
        ({"every_state": True}, "every_state is for cells with more states than the output, not for gru"),
        ({"cell": "lstn"}, "lstn"),
    ],
)
def test_wrong_arguments_are_refused(change, message):
    x, weights = make("gru")
    with pytest.raises(penstock.InvalidArgument, match=message):
        pj.recurrent(**{"x": x, "weights": weights, "cell": "gru"} | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight_hh_l0": jnp.zeros((12, 5))}, r"weight_hh_l0 must be \[12, 4\], not \[12, 5\]"),
        ({"weight_ih_l0": jnp.zeros((11, 3))}, r"weight_ih_l0 must be \[3 \* H, I\], not \[11, 3\]"),
        ({"weight_ih_l1": jnp.zeros((12, 4))}, "weights lack bias_hh_l1"),
        ({"weight_hr_l0": jnp.zeros((2, 4))}, "named like PyTorch's, such as weight_ih_l0_reverse, not 'weight_hr_l0'"),
    ],
)
def test_wrong_weights_are_refused(change, message):
    x, weights = make("gru")
    with pytest.raises(penstock.InvalidArgument, match=message):
        pj.gru(x, weights | change)


def test_wrong_scans_are_refused():
    a = jnp.ones((3, 5, 4))
    for call, message in (
        (lambda: pj.scan(a, a[:, :4]), r"not \[3, 5, 4\] and \[3, 4, 4\]"),
        (lambda: pj.scan(a, a, a[:, 0, :2]), r"h0 must be \[B, C\] = \[3, 4\], not \[3, 2\]"),
        (lambda: pj.scan(a.astype(int), a.astype(int)), "not int64"),
        (lambda: pj.scan(a, a, reset_mask=a > 0), r"reset_mask must be bool \[3, 5\]"),
    ):
        with pytest.raises(penstock.InvalidArgument, match=message):
            call()


@pytest.mark.parametrize("length", [-1, 6])
def test_lengths_that_only_the_handler_sees_are_refused(length):
    x, weights = make("gru")
    layer = jax.jit(lambda lengths: pj.gru(x, weights, lengths=lengths)[0])
    with pytest.raises(Exception, match=f"lengths must be 0 to T = 5, not {length}"):
        jax.block_until_ready(layer(jnp.array([5, length, 0])))
    assert np.isfinite(layer(LENGTHS)).all()  # the process goes on


def test_calls_of_the_handlers_with_lying_shapes_are_refused():
    x, weights = make("gru", np.float32)
    arrays = [x, *weights.values()]
    numbers = [3, 4, 1, 1, 0, 2, 0, 0, 3, 5, 0, 0, 1, 0, -1, 0, 0]
    results = [((3, 5, 4), np.float32), ((1, 1, 3, 4), np.float32)]

    def call(arrays=arrays, results=results, numbers=numbers, cell="gru", target="penstock_recurrent"):
        shapes = [jax.ShapeDtypeStruct(*each) for each in results]
        return jax.block_until_ready(
            jax.ffi.ffi_call(target, shapes)(*arrays, cell=cell, numbers=np.array(numbers, np.int64))
        )

    assert_alike(call()[0], pj.gru(x, weights)[0])
    for change, message in (
        ({"arrays": [x[:, :4], *arrays[1:]]}, r"x must be \[3, 5, 3\], not \[3, 4, 3\]"),
        ({"arrays": [*arrays[:2], arrays[2][:6], *arrays[3:]]}, "weight_hh_l0|weights"),
        ({"arrays": [x.astype(np.float64), *arrays[1:]]}, "f64"),
        ({"results": [((3, 5, 3), np.float32), results[1]]}, r"y must be \[3, 5, 4\], not \[3, 5, 3\]"),
        ({"arrays": arrays[:-1]}, "too few arguments: 4"),
        ({"results": results[:1]}, "too few results: 1"),
        ({"arrays": [*arrays, x]}, "must have 5 arguments and 2 results, not 6 and 2"),
        ({"numbers": numbers[:-1]}, "the attribute 'numbers' must be 17 integers"),
        ({"cell": "gro"}, "gro"),
        ({"numbers": [*numbers[:-1], 1], "results": [*results, ((10,), np.uint8)]}, r"the tape must be u8 \["),
        ({"target": "penstock_scan"}, "numbers"),
    ):
        with pytest.raises(Exception, match=message):
            call(**change)


def test_other_devices_are_refused_in_words():
    x, weights = make("gru")
    exported = jax.jit(lambda x: pj.gru(x, weights)[0])
    with pytest.raises(penstock.Unsupported, match="penstock.jax runs on CPUs"):
        jax.export.export(exported, platforms=["cuda"])(x)


def test_declarations_equal_the_header_of_jaxlib(tmp_path):
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler is installed")
    pairs = {
        "Extension": ("Extension_Base", "struct_size type next"),
        "ApiVersion": ("Api_Version", "struct_size extension_start major_version minor_version"),
        "Metadata": ("Metadata", "struct_size api_version traits"),
        "MetadataExtension": ("Metadata_Extension", "extension_base metadata"),
        "ErrorArguments": ("Error_Create_Args", "struct_size extension_start message errc"),
        "Buffer": ("Buffer", "struct_size extension_start dtype data rank dims"),
        "Text": ("ByteSpan", "ptr len"),
        "Array": ("Array", "dtype size data"),
        "Attributes": ("Attrs", "struct_size extension_start size types names"),
        "Buffers": ("Args", "struct_size extension_start size types"),
        "CallFrame": ("CallFrame", "struct_size extension_start api stage args rets attrs"),
    }
    checks = [
        f"static_assert(offsetof(penstock::xla::{ours}, {field}) == offsetof(XLA_FFI_{theirs}, {field}));"
        for ours, (theirs, fields) in pairs.items()
        for field in fields.split()
    ]
    checks += [
        "static_assert(offsetof(penstock::xla::Api, error_create) == offsetof(XLA_FFI_Api, XLA_FFI_Error_Create));",
        *(
            f"static_assert(int(penstock::xla::{name}) == XLA_FFI_DataType_{name.upper()});"
            for name in "pred s32 s64 u8 f16 f32 f64 bf16".split()
        ),
        "static_assert(penstock::xla::kMetadataExtension == XLA_FFI_Extension_Metadata);",
        "static_assert(penstock::xla::kBuffer == XLA_FFI_ArgType_BUFFER);",
        "static_assert(penstock::xla::kArrayAttribute == XLA_FFI_AttrType_ARRAY);",
        "static_assert(penstock::xla::kTextAttribute == XLA_FFI_AttrType_STRING);",
    ]
    source = tmp_path / "layout.cc"
    source.write_text('#include "xla/ffi/api/c_api.h"\n#include "jax/xla_ffi.h"\n' + "\n".join(checks))
    command = [
        compiler,
        "-std=c++20",
        "-fsyntax-only",
        f"-I{jax.ffi.include_dir()}",
        f"-I{ROOT / 'python/src'}",
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_jax_the_package_is_named(tmp_path):
    (tmp_path / "jax.py").write_text("raise ModuleNotFoundError(\"No module named 'jax'\", name='jax')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import penstock.jax"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "penstock.jax needs JAX 0.8 or later: pip install 'jax>=0.8'" in done.stderr
