"""Calls the handlers of GPUs as XLA does, for test_jax_errors.py.

The process uses the driver of tests/fake_cuda: one GPU whose memory is the host's and whose kernels do nothing. Arrays
are aligned as XLA aligns them.
"""

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_int32, c_int64, c_size_t, c_void_p, pointer, sizeof

import numpy as np

import penstock.jax  # noqa: F401
from penstock.jax import _library

ERRORS, KEPT = [], []
TYPES = {"bool": 1, "int32": 4, "uint8": 6, "float32": 11}


class Arguments(Structure):
    """Those of the functions that XLA offers: a message, a stream or the number of a device comes third or fourth."""

    _fields_ = [("size", c_size_t), ("extension", c_void_p), ("first", c_char_p), ("second", c_int64)]


def struct(name, *fields):
    head = [("size", c_size_t), ("extension", c_void_p)]
    return type(name, (Structure,), {"_fields_": [*head, *fields]})


Function = ctypes.CFUNCTYPE(c_void_p, POINTER(Arguments))
Api = struct(
    "Api", ("version", c_size_t * 3), ("internal", c_void_p), ("error_create", Function), ("others", c_void_p * 3),
    ("stream_get", Function), ("more", c_void_p * 12), ("device_ordinal_get", Function),
)  # fmt: skip
Buffer = struct("Buffer", ("dtype", c_int32), ("data", c_void_p), ("rank", c_int64), ("dims", POINTER(c_int64)))
Buffers = struct("Buffers", ("count", c_int64), ("types", POINTER(c_int32)), ("values", POINTER(c_void_p)))
Text = type("Text", (Structure,), {"_fields_": [("text", c_char_p), ("length", c_size_t)]})
Array = type("Array", (Structure,), {"_fields_": [("dtype", c_int32), ("length", c_size_t), ("data", c_void_p)]})
Attributes = struct(
    "Attributes", ("count", c_int64), ("types", POINTER(c_int32)), ("names", POINTER(POINTER(Text))),
    ("values", POINTER(c_void_p)),
)  # fmt: skip
Frame = struct(
    "Frame", ("api", POINTER(Api)), ("context", c_void_p), ("stage", c_int32), ("arguments", Buffers),
    ("results", Buffers), ("attributes", Attributes),
)  # fmt: skip


@Function
def error_create(arguments):
    ERRORS.append(arguments.contents.first.decode())
    return 1


@Function
def succeed(arguments):
    """Gives GPU 0, and the default stream."""
    arguments.contents.second = 0


def kept(value):
    KEPT.append(value)
    return value


def array(shape, dtype="float32"):
    """Returns zeros at a multiple of 128 bytes that is none of 256."""
    memory = kept(np.zeros(int(np.prod(shape)) * np.dtype(dtype).itemsize + 512, np.uint8))
    begin = -memory.ctypes.data % 256 + 128
    return memory[begin : len(memory) - 512 + begin].view(dtype).reshape(shape)


def buffers(arrays):
    found = kept([
        Buffer(sizeof(Buffer), None, TYPES[a.dtype.name], a.ctypes.data, a.ndim, (c_int64 * a.ndim)(*a.shape))
        for a in arrays
    ])  # fmt: skip
    count = len(found)
    return Buffers(
        sizeof(Buffers), None, count, (c_int32 * count)(*[1] * count),
        (c_void_p * count)(*map(ctypes.addressof, found)),
    )  # fmt: skip


def call(name, arguments, results, numbers, cell=None):
    """Returns the message of an error, None without one."""
    numbers = kept(np.array(numbers, np.int64))
    values = [(1, "numbers", Array(5, len(numbers), numbers.ctypes.data))]
    if cell is not None:
        values.insert(0, (4, "cell", Text(cell.encode(), len(cell))))
    count = len(values)
    attributes = Attributes(
        sizeof(Attributes), None, count, (c_int32 * count)(*(kind for kind, _, _ in values)),
        (POINTER(Text) * count)(*(pointer(Text(name.encode(), len(name))) for _, name, _ in values)),
        (c_void_p * count)(*(ctypes.addressof(value) for _, _, value in values)),
    )  # fmt: skip
    api = Api(size=sizeof(Api), error_create=error_create, stream_get=succeed, device_ordinal_get=succeed)
    frame = Frame(sizeof(Frame), None, pointer(api), None, 3, buffers(arguments), buffers(results), attributes)
    handler = getattr(_library._loaded, f"penstock_jax_{name}_cuda")
    handler.restype, handler.argtypes = c_void_p, [POINTER(Frame)]
    return ERRORS.pop() if handler(frame) else None


def check_layers(cell, gates, states, time_major):
    rows, steps, inputs, hidden = 4, 6, 16, 32
    numbers = (inputs, hidden, 1, 1, 0, 2, 0, 0, rows, steps, 0, 1, 1, int(not time_major), 0, 0, 0)
    first = (steps, rows) if time_major else (rows, steps)
    weights = [(gates * hidden, inputs), (gates * hidden, hidden), (gates * hidden,), (gates * hidden,)]
    state = (states, 1, rows, hidden)
    given = [*map(array, [(*first, inputs), *weights, state]), array((rows, 2), "int32"), array((rows, steps), "bool")]
    (tape, forward), (_, backward) = (_library.recurrent_bytes(cell, numbers, way, True) for way in (False, True))
    saved = [array((*first, hidden)), array(tape, "uint8")]
    results = [saved[0], array(state), saved[1], array(forward, "uint8")]
    assert call("recurrent", given, results, [*numbers, 1, 1], cell) is None
    message = call("recurrent", given, [*results[:3], array(128, "uint8")], [*numbers, 1, 1], cell)
    assert "workspace must have at least" in message, message
    gradients = [*map(array, [(*first, inputs), *weights, state]), array(backward, "uint8")]
    given += [*saved, array((*first, hidden)), array(state)]
    assert call("recurrent_backward", given, gradients, [*numbers, 1, 1], cell) is None
    given[-3] = array(tape - 1, "uint8")
    message = call("recurrent_backward", given, gradients, [*numbers, 1, 1], cell)
    assert message == f"the tape must be u8 [{tape}]", message


def check_parts(cell, gates, states):
    """Parts of 4 rows of 6 steps as 24 packed rows."""
    positions, inputs, hidden = 24, 16, 32
    numbers = (inputs, hidden, 1, 1, 0, 2, 0, 0, positions, 6, positions, 0, 0, 1, 0, 0, 0)
    weights = [(gates * hidden, inputs), (gates * hidden, hidden), (gates * hidden,), (gates * hidden,)]
    state = (states, 1, positions, hidden)
    given = [*map(array, [(positions, inputs), *weights, state]), array((positions + 1, 2), "int32")]
    (tape, forward), (_, backward) = (_library.recurrent_bytes(cell, numbers, way, True) for way in (False, True))
    saved = [array((positions, hidden)), array(tape, "uint8")]
    results = [saved[0], array(state), saved[1], array(forward, "uint8")]
    assert call("recurrent", given, results, [*numbers, 1, 1], cell) is None
    message = call("recurrent", [*given[:-1], array((4, 2), "int32")], results, [*numbers, 1, 1], cell)
    assert message == "the offsets of packed rows must be i32 [25, 2]", message
    gradients = [*map(array, [(positions, inputs), *weights, state]), array(backward, "uint8")]
    given += [*saved, array((positions, hidden)), array(state)]
    assert call("recurrent_backward", given, gradients, [*numbers, 1, 1], cell) is None


def check_scans(channels):
    numbers, whole, state = [0, 0, 1, 1, 1, 4, 300, channels, 0], (4, 300, channels), (4, channels)
    workspaces = [array(_library.scan_bytes(numbers, way, 0), "uint8") for way in (False, True)]
    given = [*map(array, [whole, whole, state]), array((4, 2), "int32"), array((4, 300), "bool")]
    assert call("scan", given, [array(whole), array(state), workspaces[0]], numbers) is None
    given += map(array, [whole, whole, state])
    assert call("scan_backward", given, [*map(array, [whole, whole, state]), workspaces[1]], numbers) is None


if __name__ == "__main__":
    for place in (False, True):
        check_layers("gru", 3, 1, place)
        check_layers("lstm", 4, 2, place)
    check_parts("gru", 3, 1)
    check_parts("lstm", 4, 2)
    check_scans(64)
    check_scans(5)
