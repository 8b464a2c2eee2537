"""Any arguments at all for the bindings: the answer is a result of the right shape or an exception, never a crash."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from hypothesis.extra import numpy as arrays

import penstock

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in cast")
F32 = np.float32


# Anything at all, in any place: a result of the right shape, or an exception.
DTYPES = some.sampled_from(["f4", "f8", "f2", ">f4", "i4", "i8", "u1", "?", "c8"])
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)


@some.composite
def any_array(draw):
    array = draw(arrays.arrays(draw(DTYPES), draw(SHAPES), elements=some.just(0)))
    if array.ndim and draw(some.booleans()):
        axes = draw(some.permutations(range(array.ndim)))
        array = array.transpose(axes)
        array = array[tuple(slice(None, None, draw(some.sampled_from([1, 2, -1]))) for _ in axes)]
    if draw(some.booleans()):
        array = array.view()
        array.flags.writeable = False
    return array


ANYTHING = some.one_of(
    any_array(),
    some.none(),
    some.integers(-3, 1 << 65),
    some.floats(),
    some.text(max_size=3),
    some.binary(max_size=5),
    some.lists(some.floats(width=32), max_size=4),
    some.just(object()),
)
ALLOWED = (TypeError, ValueError, OverflowError, BufferError, KeyError, AttributeError, penstock.Error)
MAYBE = lambda good: some.one_of(some.just(good), ANYTHING)  # noqa: E731


@given(
    x=some.one_of(ANYTHING, some.just(np.ones((2, 4, 3), F32))),
    h0=MAYBE(None),
    out=MAYBE(None),
    lengths=MAYBE(None),
    cu_seqlens=MAYBE(None),
    reset_mask=MAYBE(None),
    layout=some.sampled_from(["batch_first", "time_first", ""]),
    mode=some.sampled_from(["auto", "sequential", "scan"]),
)
def test_fuzz_forward(x, h0, out, lengths, cu_seqlens, reset_mask, layout, mode):
    cell = penstock.MinGRUCell(3, 2)
    try:
        y, state = cell.forward(
            x, h0, out=out, lengths=lengths, cu_seqlens=cu_seqlens, reset_mask=reset_mask, layout=layout, mode=mode
        )
    except ALLOWED:
        return
    assert np.asarray(y).shape[-1] == state.shape[-1] == 2


@given(x=MAYBE(np.ones((2, 3), F32)), h=MAYBE(None), out=MAYBE(None))
def test_fuzz_step(x, h, out):
    try:
        assert penstock.LSTMCell(3, 2).step(x, h, out=out).shape[-1] == 2
    except ALLOWED:
        pass


@given(dy=ANYTHING, dstate=MAYBE(None))
def test_fuzz_backward(dy, dstate):
    cell = penstock.LSTMCell(3, 2)
    tape = cell.tape()
    cell.forward(np.ones((2, 4, 3), F32), tape=tape)
    try:
        cell.backward(dy, dstate, tape=tape)
    except ALLOWED:
        pass


@given(a=MAYBE(np.ones((2, 4, 3), F32)), b=MAYBE(np.ones((2, 4, 3), F32)), h0=MAYBE(None), sign=MAYBE(None))
def test_fuzz_scans(a, b, h0, sign):
    for call in (lambda: penstock.scan(a, b, h0), lambda: penstock.log_scan(a, b, h0, sign=sign)):
        try:
            call()
        except ALLOWED:
            pass


@given(size=some.one_of(some.integers(-2, 6), ANYTHING), heads=some.integers(-1, 4), weights=ANYTHING, seed=ANYTHING)
def test_fuzz_construction(size, heads, weights, seed):
    try:
        cell = penstock.GRUCell(size, 4, heads=heads, seed=seed)
        cell.load_state_dict(dict.fromkeys(cell.parameters, weights))
    except ALLOWED:
        pass
