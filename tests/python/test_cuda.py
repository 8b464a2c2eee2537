"""Cells and stacks on NumPy arrays, computed on a GPU: held to the CPU's float64."""

import numpy as np
import pytest
from layer_checks import close, networks, normal

import penstock

if not penstock.cuda.is_available():
    pytest.skip(f"there is no GPU: {penstock.cuda.why_not()}", allow_module_level=True)

NAMES = [cell["name"] for cell in penstock.cells()]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (3, 7, 5, 11), (2, 129, 17, 33)])
def test_every_cell(name, sizes):
    rows, steps, inputs, hidden = sizes
    single, double = networks(name, inputs, hidden)
    x = normal(1, rows, steps, inputs)
    y, last = single.forward(x, device="cuda")
    y_ref, last_ref = double.forward(x.astype(np.float64))
    close(y, y_ref, inputs + hidden, steps)
    close(last, last_ref, inputs + hidden, steps)


@pytest.mark.parametrize("name", NAMES)
def test_stacks_with_lengths_resets_and_states(name):
    single, double = networks(name, 3, 8, layers=2, direction="bidirectional")
    x, lengths = normal(3, 4, 9, 3), np.array([9, 0, 5, 1])
    reset_mask = np.random.default_rng(4).random((4, 9)) < 0.2
    h0 = np.abs(normal(5, *np.shape(single.zero_state(4)))) + 0.5
    options = {"lengths": lengths, "reset_mask": reset_mask}
    y, last = single.forward(x, h0, device="cuda", **options)
    y_ref, last_ref = double.forward(x.astype(np.float64), h0.astype(np.float64), **options)
    close(y, y_ref, 19, 18)
    close(last, last_ref, 19, 18)


def test_weights_that_change_are_seen():
    single, _ = networks("lstm", 3, 8)
    x = normal(1, 2, 5, 3)
    single.forward(x, device="cuda")
    with single.edit() as weights:
        for value in weights.values():
            value *= 0.5
    close(single.forward(x, device="cuda")[0], single.forward(x, exact=True)[0], 11, 5)
