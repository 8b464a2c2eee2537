"""What several files of tests share: arrays of other libraries, and layers held to float64."""

import numpy as np

import penstock

EPSILON = np.finfo(np.float32).eps


class Dlpack:
    """An array that can be reached by DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def close(got, expected, terms, steps, epsilon=EPSILON):
    """Sums of `terms` products, and a random walk of `steps` roundings."""
    bound = 8 * epsilon * (terms**0.5 + 4) * (steps + 1) ** 0.5 * max(1.0, np.abs(expected).max(initial=0.0))
    np.testing.assert_allclose(got, expected, rtol=0, atol=bound)


def networks(cell, *sizes, **options):
    """The same weights in float32 and in float64."""
    single = penstock.Recurrent(cell, *sizes, seed=3, **options)
    double = penstock.Recurrent(cell, *sizes, seed=3, dtype="float64", **options)
    with double.edit() as weights:
        for key, value in single.parameters.items():
            weights[key][...] = value
    return single, double
