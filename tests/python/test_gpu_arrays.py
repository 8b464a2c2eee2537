"""Arrays on a GPU for cells and stacks, on a machine without one; test_cuda_arrays.py is for machines with one."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from layer_checks import Dlpack, normal

import penstock
from penstock import _core

BUILD = pathlib.Path(os.environ.get("PENSTOCK_BUILD", pathlib.Path(__file__).parents[2] / "build" / "release"))
NAMES = [cell["name"] for cell in penstock.cells()]


@pytest.mark.parametrize("case", ["results", "halves", "steps_and_scans", "order", "exported_memory", "training", "rows", "refusals"])
def test_with_a_driver_that_computes_nothing(case, tmp_path):
    fake_cuda = BUILD / "tests" / "fake_cuda"
    if not (fake_cuda / "libcuda.so.1").exists():
        pytest.skip("the C++ tests are not built")
    environment = {
        **os.environ,
        "PENSTOCK_CUDA_PATH": str(fake_cuda),
        "PENSTOCK_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": str(pathlib.Path(penstock.__file__).parents[1]),
    }
    worker = pathlib.Path(__file__).with_name("gpu_arrays_worker.py")
    done = subprocess.run([sys.executable, worker, case], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", ["padded", "packed", "time_first"])
@pytest.mark.parametrize("name", NAMES)
def test_training_on_the_cpu_as_the_device(name, rows, dtype):
    """The same calls with NumPy's arrays and with arrays of DLPack, which take the way of arrays on a GPU."""
    network = penstock.Recurrent(name, 3, 6, layers=2, direction="bidirectional", dtype=dtype)
    x, which = normal(1, 4, 7, 3).astype(dtype), (np.array([7, 2, 5, 1]), None, normal(2, 4, 7) > 1)
    if rows == "packed":
        x, which = x.reshape(28, 3), (None, np.array([0, 3, 10, 17, 28]), None)
    if rows == "time_first":
        x, which = x.transpose(1, 0, 2), (which[0], None, which[2].T)
    h0 = np.abs(normal(3, *network.zero_state(4).shape)).astype(dtype) + dtype_one(dtype)
    execution = _core.Execution("auto", "cpu", 1, True, "full")
    tape = network.tape()

    def passes(wrap, copied):
        network.zero_gradients()
        how = which, rows == "time_first", execution, copied
        y, last = network._network.forward(wrap(x), wrap(h0), None, tape._tape, *how)
        dy = normal(4, *y.shape).astype(dtype)
        dx, dh0 = network.backward(wrap(dy), wrap(dh := np.ones_like(h0)), tape=tape)
        assert dh.shape == last.shape
        arrays = [y, last, dx, dh0]
        assert all(isinstance(array, _core.Array if wrap is Dlpack else np.ndarray) for array in arrays)
        return [np.asarray(array).copy() for array in (*arrays, *network.gradients.values())]

    expected = passes(lambda array: array, False)
    for wrap in (Dlpack, lambda array: array):  # a copy of the network reads both
        for got, wanted in zip(passes(wrap, True), expected, strict=True):
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_steps_on_the_cpu_as_the_device(name, dtype):
    network = penstock.Recurrent(name, 3, 6, layers=2, dtype=dtype)
    for shape in ((4, 3), (1, 3), (3,)):
        x = normal(1, *shape).astype(dtype)
        h = np.abs(normal(2, *network.zero_state(*shape[:-1]).shape)).astype(dtype)
        for state in (None, h):
            expected = network.step(x, state)
            got = network._network.step(Dlpack(x), None if state is None else Dlpack(state), None, True)
            for array, wanted in zip(got, expected, strict=True):
                assert isinstance(array, _core.Array)
                np.testing.assert_array_equal(np.asarray(array), wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", ["padded", "packed", "time_first", "one"])
@pytest.mark.parametrize("logarithmic, signs", [(False, False), (True, False), (True, True)])
def test_scans_on_the_cpu_as_the_device(logarithmic, signs, rows, dtype):
    a, b, dh = (normal(seed, 4, 7, 3).astype(dtype) for seed in range(3))
    sign, h0, which = np.sign(normal(3, 4, 7, 3)).astype(dtype), normal(4, 4, 3).astype(dtype), None
    if rows == "padded":
        which = (np.array([7, 2, 5, 1]), None, normal(2, 4, 7) > 1)
    if rows == "packed":
        a, b, dh, sign = (array.reshape(28, 3) for array in (a, b, dh, sign))
        which = (None, np.array([0, 3, 10, 17, 28]), None)
    if rows == "time_first":
        a, b, dh, sign = (array.transpose(1, 0, 2) for array in (a, b, dh, sign))
    if rows == "one":
        a, b, dh, sign, h0 = (array[0] for array in (a, b, dh, sign, h0))
    how = logarithmic, False, which, rows == "time_first", _core.Execution("auto", "cpu", 1, True, "full")

    typed = type("Typed", (Dlpack,), {"dtype": np.dtype(dtype)})

    def passes(wrap, copied):
        terms = wrap(a), wrap(b), wrap(sign) if signs else None
        h, last = _core.scan(terms, wrap(h0), None, *how, copied)
        gradients = _core.scan_backward(terms, wrap(h0), (h, wrap(dh), wrap(h0)), *how, copied)
        arrays = [array for array in (h, last, *gradients) if array is not None]
        assert len(arrays) == 5 + signs
        assert all(isinstance(array, _core.Array if copied else np.ndarray) for array in arrays)
        return [np.asarray(array) for array in arrays]

    for got, wanted in zip(passes(typed, True), passes(lambda array: array, False), strict=True):
        np.testing.assert_array_equal(got, wanted)


def dtype_one(dtype):
    return np.dtype(dtype).type(1)


def test_gradients_of_a_copy_are_added_and_its_weights_follow():
    network = penstock.Recurrent("gru", 3, 6)
    execution, x, tape = _core.Execution("auto", "cpu", 1, True, "full"), normal(1, 2, 5, 3), network.tape()

    def passes():
        y, _ = network._network.forward(Dlpack(x), None, None, tape._tape, None, False, execution, True)
        network.backward(y, tape=tape)
        return y.numpy()

    passes()
    once = {name: gradient.copy() for name, gradient in network.gradients.items()}
    passes()
    for name, gradient in network.gradients.items():
        np.testing.assert_array_equal(gradient, 2 * once[name])
    with network.edit() as weights:
        for value in weights.values():
            value *= 0.5
    np.testing.assert_array_equal(passes(), network.forward(x, exact=True, threads=1)[0])


def test_a_gpu_that_is_not_there():
    if penstock.cuda.is_available():
        pytest.skip("there is a GPU")

    class OnGpu(Dlpack):
        def __dlpack_device__(self):
            return 2, 0

    with pytest.raises(penstock.Unsupported, match="device cuda:0 is not there: "):
        penstock.GRUCell(3, 5).forward(OnGpu(normal(1, 2, 7, 3)))
