"""penstock.jax against jax.lax.scan, penstock.reference and PyTorch's layers, under JAX's transformations."""

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed")
import jax.numpy as jnp  # noqa: E402
from jax_checks import (  # noqa: E402
    KEY,
    LENGTHS,
    MASK,
    ON_GPU,
    assert_alike,
    by_scan,
    make,
    mixed,
    sees_c_in_jax,
    states_for,
)

import penstock.jax as pj  # noqa: E402
from penstock import reference  # noqa: E402
from penstock.jax import _forms, _primitives  # noqa: E402
from penstock.jax._forms import LayersForm  # noqa: E402


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


def test_calls_run_where_jit_is_disabled():
    x, weights = make("gru")
    gradient = jax.value_and_grad(lambda x: mixed(pj.gru(x, weights)))
    with jax.disable_jit():
        found = gradient(x)
    assert_alike(found, gradient(x))


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
    if ON_GPU:
        return  # float32 has too few digits for differences
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
    mesh = jax.make_mesh((min(2, jax.device_count()),), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
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


def restarted_by_steps(cell, x, weights, state, to):
    """`state` is a tuple of [L, B, H], `to` one of [L, B, T, H]."""
    outputs = []
    for t in range(x.shape[1]):
        state = tuple(jnp.where(MASK[:, t, None], a[:, :, t], s) for a, s in zip(to, state))
        y, state = pj.recurrent(x[:, t : t + 1], weights, state if len(state) > 1 else state[0], cell=cell)
        state = state if isinstance(state, tuple) else (state,)
        outputs.append(y)
    return jnp.concatenate(outputs, 1), state


@pytest.mark.parametrize("axes", [(), (3,), (3, 5)])
@pytest.mark.parametrize("cell", ["lstm", "gru", "mingru", sees_c_in_jax])
def test_restarts_at_given_states(cell, axes):
    x, weights = make(cell, num_layers=2)
    count = 2 if cell in ("lstm", sees_c_in_jax) else 1
    start, to = ((each,) if count == 1 else each for each in (states_for(count, (2, 3, 4)), states_for(count, (2, *axes, 4))))

    def ours(x, weights, start, to):
        states = [each if count > 1 else each[0] for each in (start, to)]
        y, last = pj.recurrent(x, weights, states[0], cell=cell, reset_mask=MASK, reset_to=states[1])
        return y, last if count > 1 else (last,)

    def theirs(x, weights, start, to):
        to = tuple(jnp.broadcast_to(s.reshape(2, *axes, *[1] * (2 - len(axes)), 4), (2, 3, 5, 4)) for s in to)
        return restarted_by_steps(cell, x, weights, start, to)

    given = x, weights, start, to
    assert_alike(ours(*given), theirs(*given))
    found, expected = (jax.jit(jax.grad(lambda *each: mixed(layer(*each)), (0, 1, 2, 3)))(*given) for layer in (ours, theirs))
    assert_alike(found, expected)
    assert (np.asarray(found[3][0]) != 0).any()
    moving = jax.tree.map(jnp.cos, given)
    assert_alike(jax.jvp(ours, given, moving), jax.jvp(theirs, given, moving))


def test_restarts_in_other_layouts():
    x, weights = make("lstm")
    to = states_for(2, (1, 3, 5, 4))
    y, last, (c,) = pj.lstm(x, weights, reset_mask=MASK, reset_to=to, every_state=True)
    swapped = pj.lstm(x.swapaxes(0, 1), weights, reset_mask=MASK.T, reset_to=to, every_state=True, time_major=True)
    assert_alike((swapped[0].swapaxes(0, 1), swapped[1], swapped[2][0].swapaxes(0, 1)), (y, last, c))

    def one(x, mask, to):
        return pj.lstm(x, weights, reset_mask=mask, reset_to=to, every_state=True)

    mapped = jax.vmap(one, (0, 0, 1), (0, 1, 0))
    assert_alike(mapped(x, MASK, to), (y, last, (c,)))
    assert str(jax.make_jaxpr(mapped)(x, MASK, to)).count("penstock_forward[") == 1

    def gradients(layer):
        return jax.grad(lambda x, to: mixed(layer(x, MASK, to)), (0, 1))(x, to)

    assert_alike(gradients(mapped), gradients(one))
    zeros = (jnp.zeros((1, 4)),) * 2
    assert_alike(pj.lstm(x, weights, reset_mask=MASK, reset_to=zeros), pj.lstm(x, weights, reset_mask=MASK))


@pytest.mark.parametrize(("cell", "generation", "cuts"), [("lstm", 8, True), ("lstm", 9, False), ("mingru", 8, False)])
def test_a_gpu_cuts_rows_only_where_its_kernels_do_not_start_them_again(cell, generation, cuts, monkeypatch):
    """With the CPU's handler, which takes packed rows, too."""
    x, weights = make(cell)
    x = x.swapaxes(0, 1)
    start, to = states_for(2, (1, 3, 4)), states_for(2, (1, 4))
    start, to = (each if cell == "lstm" else each[0] for each in (start, to))
    every = {"every_state": True} if cell == "lstm" else {}

    def results(x):  # a new function, which JAX compiles anew
        def layer(x, weights, start, to):
            return pj.recurrent(x, weights, start, cell=cell, reset_mask=MASK.T, reset_to=to, time_major=True, **every)

        given = x, weights, start, to
        return layer(*given), jax.grad(lambda *each: mixed(layer(*each)), (0, 1, 2, 3))(*given)

    expected = results(x)
    handled, numbers, parts = LayersForm.handled, LayersForm.numbers, []

    def cut(form, inputs, extra, platform):
        found = handled(form, inputs, extra, "cuda")
        parts.append(found[2])
        return found

    monkeypatch.setattr(_forms, "generations", lambda: [generation])
    monkeypatch.setattr(LayersForm, "handled", cut)
    monkeypatch.setattr(LayersForm, "numbers", lambda form, inputs, gpu=-1: (*numbers(form, inputs, 0)[:-1], -1))
    jax.clear_caches()
    _primitives._compiled.cache_clear()
    try:
        assert_alike(results(x), expected)
    finally:
        jax.clear_caches()
        _primitives._compiled.cache_clear()
    assert parts and all((part is not None) == cuts for part in parts)


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


@pytest.mark.parametrize("time_major", [False, True])
def test_dones_of_a_step_are_starts_of_the_next(time_major):
    by_layout = (lambda a: a.T) if time_major else (lambda a: a)
    starts = jax.jit(pj.episode_starts, static_argnames="time_major")
    first = np.array([True, False, True])
    expected = np.concatenate([first[:, None], MASK[:, :-1]], 1)
    assert_alike(starts(by_layout(MASK), first, time_major=time_major), by_layout(expected))
    expected[:, 0] = True
    assert_alike(starts(by_layout(MASK), time_major=time_major), by_layout(expected))
    second = starts(by_layout(MASK[:, 2:]), MASK[:, 1], time_major=time_major)  # the rollout that follows two steps
    assert_alike(second, by_layout(expected[:, 2:]))
    assert_alike(starts(MASK[0], False, time_major=time_major), np.concatenate([[False], MASK[0, :-1]]))
    assert starts(by_layout(MASK[:, :0]), time_major=time_major).shape == by_layout(MASK[:, :0]).shape
