"""What the tests of penstock.interchange share: random weights, and comparisons of two layers."""

import numpy as np

import penstock
from penstock.interchange import RecurrentWeights

# Both sides compute in float32 what is between -1 and 1.
TOLERANCE = 1e-6


def values(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng([seed, *shape]).normal(0, 0.5, shape).astype(dtype)


def random_weights(cell, inputs, hidden, *, layers=1, direction="forward", heads=1, bias=True):
    network = penstock.Recurrent(
        cell, inputs, hidden, layers=layers, direction=direction, heads=heads, bias=bias, seed=4
    )
    return RecurrentWeights.from_numpy(network)


def same(a, b):
    assert a.cell == b.cell and list(sorted(a.tensors)) == list(sorted(b.tensors))
    for name in a.tensors:
        np.testing.assert_array_equal(a.tensors[name], b.tensors[name], err_msg=name)


def outputs(weights, x):
    return weights.to_numpy().forward(x)[0]


def check(found, expected):
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)
