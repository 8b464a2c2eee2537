"""Loads the library of handlers and registers them with XLA."""

import ctypes
import pathlib

from .._cell_forms import CallNumbers
from .._frameworks import require_framework
from ..errors import InvalidArgument

require_framework("jax", "JAX", (0, 8))

import jax


def _load():
    path = pathlib.Path(__file__).parent.parent / "libpenstock_jax.so"
    if not path.exists():
        raise ImportError(f"penstock was installed without its library of handlers for JAX: {path} is missing")
    library = ctypes.CDLL(str(path))
    library.penstock_jax_tape_bytes.argtypes = [ctypes.POINTER(CallNumbers), ctypes.c_char_p, ctypes.c_size_t]
    library.penstock_jax_tape_bytes.restype = ctypes.c_int64
    for name in ("recurrent", "recurrent_backward", "scan", "scan_backward"):
        handler = getattr(library, f"penstock_jax_{name}")
        jax.ffi.register_ffi_target(f"penstock_{name}", jax.ffi.pycapsule(handler), platform="cpu")
    return library


_loaded = _load()


def tape_bytes(cell, numbers):
    """Returns the bytes of the tape of a call. Raises InvalidArgument for a call that is not possible."""
    message = ctypes.create_string_buffer(1000)
    given = CallNumbers(cell.encode(), *numbers)
    size = _loaded.penstock_jax_tape_bytes(ctypes.byref(given), message, len(message))
    if size < 0:
        raise InvalidArgument(message.value.decode(errors="replace"))
    return size
