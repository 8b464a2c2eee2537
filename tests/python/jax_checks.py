"""What tests of penstock.jax share. On a machine with a GPU they run there, in float32."""

import pathlib

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed")
import jax.numpy as jnp  # noqa: E402

import penstock  # noqa: E402
import penstock.jax as pj  # noqa: E402
from penstock import reference  # noqa: E402
from penstock.equations import sigmoid, tanh  # noqa: E402

jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_default_matmul_precision", "highest")
ON_GPU = jax.default_backend() == "gpu"
jax.config.update("jax_enable_x64", not ON_GPU)  # on a GPU, the arrays of float64 below are of float32
# On CPUs, the tests would wait for XLA's compiler most of the time.
jax.config.update("jax_disable_most_optimizations", not ON_GPU)
KEY = jax.random.key(0)
ROOT = pathlib.Path(__file__).parents[2]
EXACT = 3e-5 if ON_GPU else 1e-10
#: For tests that are for CPUs alone.
ON_CPUS = pytest.mark.skipif(ON_GPU, reason="for CPUs")
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


def assert_alike(found, expected, tolerance=EXACT):
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
