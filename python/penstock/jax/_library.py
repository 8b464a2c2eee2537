"""Loads the library of handlers and registers them with XLA."""

import ctypes
import pathlib

from .._cell_forms import CallNumbers
from .._frameworks import require_framework
from ..errors import Error

require_framework("jax", "JAX", (0, 8))

import jax


def _load():
    path = pathlib.Path(__file__).parent.parent / "libpenstock_jax.so"
    if not path.exists():
        raise ImportError(f"penstock was installed without its library of handlers for JAX: {path} is missing")
    library = ctypes.CDLL(str(path))
    for name in ("recurrent", "recurrent_backward", "scan", "scan_backward"):
        for end, platform in (("", "cpu"), ("_cuda", "CUDA")):
            handler = getattr(library, f"penstock_jax_{name}{end}")
            jax.ffi.register_ffi_target(f"penstock_{name}", jax.ffi.pycapsule(handler), platform=platform)
    return library


_loaded = _load()


def gpus():
    """Returns the numbers of the GPUs of this process. Without any, calls for GPU 0 say what is missing."""
    try:
        return [device.local_hardware_id for device in jax.local_devices(backend="cuda")]
    except RuntimeError:
        return [0]


def generations():
    """Returns the first number of the compute capability of each GPU of this process, 0 without any."""
    try:
        return [int(device.compute_capability.split(".")[0]) for device in jax.local_devices(backend="cuda")]
    except RuntimeError:
        return [0]


def _bytes(function, *given, count):
    """Returns `count` sizes of memory. Raises the library's error for a call that is not possible."""
    sizes, message = (ctypes.c_int64 * count)(), ctypes.create_string_buffer(1000)
    code = function(*given, sizes, message, ctypes.c_size_t(len(message)))
    if code:
        raise Error.__subclasses__()[code - 1](message.value.decode(errors="replace"))  # in the library's order
    return tuple(sizes)


def recurrent_bytes(cell, numbers, backward, extra):
    """Returns the bytes of the tape of a call, and those of the workspace of a pass. `extra`: the forward pass has a
    tape, the backward pass a gradient of x. On a GPU, compiles the kernels of the pass."""
    given = ctypes.byref(CallNumbers(cell.encode(), *numbers))
    return _bytes(_loaded.penstock_jax_recurrent_bytes, given, int(backward), int(extra), count=2)


def scan_bytes(numbers, backward, gpu):
    """Returns the bytes of the workspace of a pass of a scan on a GPU, and compiles its kernels."""
    given = (ctypes.c_int64 * len(numbers))(*map(int, numbers))
    return _bytes(_loaded.penstock_jax_scan_bytes, given, int(backward), gpu, count=1)[0]
