"""Cases of test_gpu_arrays.py, each in a process of its own: python gpu_arrays_worker.py CASE.

The process uses the driver of tests/fake_cuda: one GPU whose memory is the host's and whose kernels do nothing. So
NumPy's memory serves as the memory of that GPU, and the cases see every wait.
"""

import ctypes
import gc
import os
import sys

import numpy as np

import penstock

DRIVER = ctypes.CDLL(os.path.join(os.environ["PENSTOCK_CUDA_PATH"], "libcuda.so.1"))
DRIVER.penstock_fake_recorded.restype = ctypes.c_size_t
CELL = penstock.LSTMCell(3, 8)
X = np.ones((2, 5, 3), np.float32)


class Dlpack:
    """An array that is on a GPU, as its owner says."""

    def __init__(self, array, device=(2, 0), old=False):
        self.array, self.device, self.old, self.streams = array, device, old, []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, **options):
        if self.old and options:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        if stream is None:
            raise BufferError("NumPy cannot read memory of a GPU")
        self.streams.append(stream)
        return self.array.__dlpack__(**options)


class Interface:
    """The same by __cuda_array_interface__; `changes` of its dictionary."""

    def __init__(self, array, remove=(), **changes):
        self.array = array  # keeps the memory
        whole = array.__array_interface__
        self.__cuda_array_interface__ = {**whole, "version": 3, "stream": None, "mask": None, **changes}
        for key in remove:
            del self.__cuda_array_interface__[key]


def refused(expected, message, function):
    try:
        function()
    except expected as error:
        assert message in str(error), str(error)
    else:
        raise AssertionError(f"not refused: {message}")


def case_results():
    for x in (Dlpack(X), Dlpack(X, old=True), Dlpack(X, device=(13, 0)), Interface(X)):
        y, state = CELL.forward(x)
        assert isinstance(y, penstock.cuda.Array) and y.shape == (2, 5, 8) and state.shape == (2, 2, 8)
        assert y.dtype == "float32" and y.device == "cuda:0" and len(y) == 2
        assert repr(y) == "penstock.cuda.Array(shape=(2, 5, 8), dtype='float32', device='cuda:0')"
        h, c = state
        assert h.shape == c.shape == (2, 8)
        assert y.__dlpack_device__() == (2, 0)
        interface = state[1].__cuda_array_interface__
        assert interface["data"][0] == state.__cuda_array_interface__["data"][0] + 4 * 16
        assert (interface["shape"], interface["typestr"], interface["version"]) == ((2, 8), "<f4", 3)
        assert interface["data"][1] is False and interface["stream"] is None and interface["strides"] is None
        copy = np.asarray(y)
        assert copy.shape == (2, 5, 8) and copy.dtype == np.float32
        assert np.asarray(y, np.float64).dtype == np.float64
        refused(ValueError, "copy must not be False", lambda y=y: y.__array__(copy=False))
        refused(BufferError, "numpy() copies it", lambda y=y: y.__dlpack__(dl_device=(1, 0)))
        refused(BufferError, "copy must not be True", lambda y=y: y.__dlpack__(copy=True))
        refused(IndexError, "index must be below 2, not 2", lambda y=y: y[2])
        assert y[-1].shape == (5, 8)


def case_halves():
    """Results have the type of the arrays, and states are floats."""
    for wrap in (Dlpack, Interface):
        h, last = penstock.scan(wrap(X.astype(np.float16)), wrap(X.astype(np.float16)))
        assert (h.dtype, last.dtype) == ("float16", "float32")
        assert h.__cuda_array_interface__["typestr"] == "<f2" and np.asarray(h).dtype == np.float16
    half = Dlpack(X.astype(np.float16))
    refused(TypeError, "out must be float16, not float32", lambda: CELL.forward(half, out=Dlpack(np.zeros((2, 5, 8), np.float32))))
    refused(TypeError, "b must be float16, not float32", lambda: penstock.scan(half, Dlpack(X)))


def case_steps_and_scans():
    """Their results stay on the GPU, and arrays elsewhere are refused."""
    step, zeros = X[:, 0].copy(), np.zeros((2, 2, 8), np.float32)
    state = CELL.step(Dlpack(step))
    assert isinstance(state, penstock.cuda.Array) and state.shape == (2, 2, 8)
    assert CELL.step(Dlpack(step), state, out=state) is state
    assert CELL.step(Dlpack(step[0]), (state[0][0], state[1][0])).shape == (2, 8)
    y, _ = penstock.Recurrent("gru", 3, 8, layers=2).step(Dlpack(step))
    assert y.shape == (2, 8) and y.device == "cuda:0"
    h, last = penstock.scan(Dlpack(X), Interface(X), Dlpack(step))
    assert h.shape == (2, 5, 3) and last.shape == (2, 3) and h.device == "cuda:0"
    gradients = penstock.log_scan_backward(Dlpack(X), Dlpack(X), h, h, sign=Dlpack(X))
    assert [array.shape for array in gradients] == [(2, 5, 3), (2, 5, 3), (2, 5, 3), (2, 3)]
    refused(ValueError, "h must be in the memory of cuda:0, where the call runs", lambda: CELL.step(Dlpack(step), Dlpack(zeros, (1, 0))))
    refused(ValueError, "h must be in the memory of cuda:0, where the call runs", lambda: CELL.step(Dlpack(step), zeros))
    refused(ValueError, "b must be in the memory of cuda:0", lambda: penstock.scan(Dlpack(X), X))
    refused(penstock.Unsupported, "not 'cuda:1'", lambda: penstock.scan(Dlpack(X), Dlpack(X), device="cuda:1"))
    refused(penstock.Unsupported, "'cpu', or 'auto' for a scan, not 'cuda:0'", lambda: penstock.scan(X, X, device="cuda"))
    refused(TypeError, "a must be float32, bfloat16 or float16, not float64", lambda: penstock.scan(Dlpack(X.astype(float)), Dlpack(X)))


def case_order():
    """Every array is asked for use in the stream of the network, or its stream is waited for."""
    x = Dlpack(X)
    CELL.forward(x)
    CELL.forward(x)
    assert len(set(x.streams)) == 1 and x.streams[0] > 2
    CELL.forward(Interface(X, stream=77))
    assert DRIVER.penstock_fake_recorded() == 77
    CELL.forward(Interface(X, version=2, remove=["stream"]))  # as before version 3: the default stream
    assert DRIVER.penstock_fake_recorded() == 1
    CELL.forward(Interface(X, stream=2))
    CELL.forward(Interface(X))  # nothing to wait for
    assert DRIVER.penstock_fake_recorded() == 2
    refused(ValueError, "x must name a stream other than 0", lambda: CELL.forward(Interface(X, stream=0)))


def case_exported_memory():
    """Others work in unknown streams, so memory that they have seen waits for the device."""
    waits = DRIVER.penstock_fake_device_waits
    y, state = CELL.forward(Dlpack(X))
    CELL.forward(Dlpack(X), state)
    state.numpy()
    del y, state
    assert waits() == 0
    y, state = CELL.forward(Dlpack(X))
    capsule = state.__dlpack__(stream=1, max_version=(1, 0))
    assert waits() == 0
    CELL.forward(Dlpack(X), state)
    assert waits() == 1
    state.numpy()
    assert waits() == 2
    del state
    gc.collect()
    assert waits() == 2  # the capsule keeps the memory
    del capsule
    gc.collect()
    assert waits() == 3
    assert y.__cuda_array_interface__["version"] == 3
    del y
    assert waits() == 4


def case_training():
    for wrap in (Dlpack, Interface):
        tape = CELL.tape()
        out = Dlpack(np.zeros((2, 5, 8), np.float32))
        y, state = CELL.forward(wrap(X), lengths=[5, 3], tape=tape, out=out)
        assert y is out
        dx, dstate = CELL.backward(wrap(out.array), state, tape=tape)
        assert dx.shape == X.shape and dstate.shape == state.shape and dx.device == "cuda:0"
        refused(ValueError, "tape must have been filled by forward()", lambda: CELL.backward(y, tape=tape))
        CELL.forward(wrap(X), tape=tape)
        dx, _ = CELL.backward(None, tape=tape, input_gradient=False)
        assert dx is None
        CELL.forward(wrap(X), tape=tape)
        refused(ValueError, "dy must be in the memory of cuda:0, where the call runs, not of cpu", lambda: CELL.backward(X, tape=tape))
        with CELL.edit():
            pass
        refused(ValueError, "the weights as they are now", lambda wrap=wrap: CELL.backward(wrap(out.array), tape=tape))


def case_rows():
    mask, lengths = np.zeros((2, 5), bool), np.array([5, 2])
    CELL.forward(Dlpack(X), lengths=Dlpack(lengths), reset_mask=Dlpack(mask))
    CELL.forward(Interface(X), lengths=Interface(lengths.astype(np.int32)), reset_mask=mask)
    CELL.forward(Dlpack(X.transpose(1, 0, 2)), layout="time_first", reset_mask=Dlpack(mask.T.copy()))
    assert CELL.forward(Dlpack(X[0]), cu_seqlens=Interface(np.array([0, 3, 5])))[1].shape == (2, 2, 8)
    assert CELL.forward(Dlpack(X[0]))[0].shape == (5, 8)
    assert CELL.forward(Dlpack(X[:, :, :]), (Dlpack(np.zeros((2, 8), np.float32)),) * 2)[0].shape == (2, 5, 8)
    refused(ValueError, "lengths must be 0 to T = 5, not 6", lambda: CELL.forward(Dlpack(X), lengths=Dlpack(lengths + 1)))
    refused(ValueError, "lengths must be in the memory of the CPU", lambda: CELL.forward(X, lengths=Dlpack(lengths)))
    refused(TypeError, "lengths must be int64, not float32", lambda: CELL.forward(Dlpack(X), lengths=Dlpack(X[0, 0, :2])))


def case_refusals():
    read_only = X.copy()
    read_only.flags.writeable = False
    y = np.zeros((2, 5, 8), np.float32)
    state = np.zeros((2, 2, 8), np.float32)
    forward = CELL.forward
    refused(TypeError, "x must be float32, bfloat16 or float16, not float64", lambda: forward(Dlpack(X.astype(float))))
    refused(TypeError, "x must be float32, bfloat16 or float16, not float64", lambda: forward(Interface(X.astype(float))))
    refused(TypeError, "x must be float32, bfloat16 or float16, not int16", lambda: forward(Interface(X.astype(np.int16))))
    refused(TypeError, "x must be float32, bfloat16 or float16, not >f4", lambda: forward(Interface(X, typestr=">f4")))
    refused(TypeError, "x must be float32, bfloat16 or float16, not |V4", lambda: forward(Interface(X, typestr="|V4")))
    refused(ValueError, "x on a GPU must have contiguous channels", lambda: forward(Dlpack(np.ones((2, 5, 6), np.float32)[..., ::2])))
    refused(ValueError, "not the strides (30, 6, 2)", lambda: forward(Interface(np.ones((2, 5, 6), np.float32)[..., ::2])))
    refused(ValueError, "x must not be an empty array", lambda: forward(Interface(X, data=(0, False))))
    refused(ValueError, "x must be an array without a mask", lambda: forward(Interface(X, mask=X)))
    refused(ValueError, "x must have the shape", lambda: forward(Dlpack(X[..., :2])))
    refused(ValueError, "x must be in the memory of the CPU or of an NVIDIA GPU, not on a device of DLPack's type 10",
            lambda: forward(Dlpack(X, device=(10, 0))))  # fmt: skip
    refused(ValueError, "device must be 'cuda:0', where x is, not 'cuda:1'", lambda: forward(Dlpack(X), device="cuda:1"))
    refused(ValueError, "device must be 0 to 0", lambda: forward(Dlpack(X, device=(2, 1))))
    refused(ValueError, "h0 must be in the memory of cuda:0, where the call runs, not of cpu", lambda: forward(Dlpack(X), state))
    refused(ValueError, "h0 must be in the memory of cuda:0, where the call runs, not of cuda:1",
            lambda: forward(Dlpack(X), Dlpack(state, device=(2, 1))))  # fmt: skip
    refused(ValueError, "h0 must be in the memory of the CPU, not of cuda:0", lambda: forward(X, Dlpack(state)))
    refused(ValueError, "out must be in the memory of the CPU, not of cuda:0", lambda: forward(X, out=Dlpack(y)))
    refused(ValueError, "out must be in the memory of cuda:0, where the call runs, not of cpu", lambda: forward(Dlpack(X), out=y))
    refused(ValueError, "h0 on a GPU must be contiguous", lambda: forward(Dlpack(X), Dlpack(state.transpose(1, 0, 2))))
    read_only = y.copy()
    read_only.flags.writeable = False
    refused(ValueError, "out must be writable", lambda: forward(Dlpack(X), out=Dlpack(read_only)))
    refused(ValueError, "out must be writable", lambda: forward(Dlpack(X), out=Interface(read_only)))
    refused(ValueError, "y must not overlap x", lambda: penstock.LSTMCell(8, 8).forward(Dlpack(y), out=Dlpack(y)))
    refused(penstock.Unsupported, "dtype must be 'float32' on a GPU",
            lambda: penstock.LSTMCell(3, 8, dtype="float64").forward(Dlpack(X.astype(float))))  # fmt: skip


if __name__ == "__main__":
    globals()["case_" + sys.argv[1]]()
