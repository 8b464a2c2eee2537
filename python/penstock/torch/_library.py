"""Loads the library of ops, which registers itself with PyTorch."""

import contextlib
import ctypes
import pathlib

from .._cell_forms import CallNumbers
from .._frameworks import require_framework

require_framework("torch", "PyTorch", (2, 10))

import torch

#: Path of the library of ops. C++ programs that run an exported model load it with dlopen().
library_path = pathlib.Path(__file__).parent.parent / "libpenstock_torch.so"


def _load():
    if not library_path.exists():
        raise ImportError(f"penstock was installed without its library of ops for PyTorch: {library_path} is missing")
    library = ctypes.CDLL(str(library_path))
    library.penstock_torch_failure.restype = ctypes.c_char_p
    failure = library.penstock_torch_failure()
    if failure is not None:
        raise ImportError(failure.decode())
    return library


_loaded = _load()


_loaded.penstock_torch_tape_bytes.argtypes = [ctypes.POINTER(CallNumbers)]
_loaded.penstock_torch_tape_bytes.restype = ctypes.c_int64

_loaded.penstock_torch_release_memory.argtypes = []
_loaded.penstock_torch_release_memory.restype = ctypes.c_int64


_full_precisions = 0  # blocks of full_precision() that run


def _tf32():
    return _full_precisions == 0 and torch.backends.cudnn.rnn.fp32_precision == "tf32"


@contextlib.contextmanager
def full_precision(asked=True):
    """Within it, if asked, float32 layers multiply in float32, whatever PyTorch's flags permit; in every thread."""
    global _full_precisions
    _full_precisions += asked
    try:
        yield
    finally:
        _full_precisions -= asked


#: Kept alive for the library, which reads PyTorch's flag at every call on a GPU: compiled graphs see its changes, too.
_permits_tf32 = ctypes.CFUNCTYPE(ctypes.c_int)(_tf32)
_loaded.penstock_torch_read_tf32_by.argtypes = [type(_permits_tf32)]
_loaded.penstock_torch_read_tf32_by.restype = None
_loaded.penstock_torch_read_tf32_by(_permits_tf32)


def release_memory():
    """Frees CPU memory that is kept for the next training step.

    Tapes above 4 MB, which a forward pass saves for the backward pass, use memory blocks that later calls use again.
    The blocks never take more memory than was in use at once. A block that 32 calls in a row did not need is freed
    automatically. Call this function after training to free the rest.

    Returns:
        The number of freed bytes.
    """
    return _loaded.penstock_torch_release_memory()


#: Dtypes of sequences and weights, and their numbers in the library.
TYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}


def tape_bytes(cell, x, weights, lengths, reset, hidden, scans, layers, bidirectional, batch_first, every_state):
    """Returns the bytes of the tape of a forward pass, computed from shapes.

    Returns None if a shape is unknown, if x is W x, or if the device does not exist here.
    """
    rows, steps = x.shape[0 if batch_first else 1], x.shape[1 if batch_first else 0]
    numbers = (x.shape[-1], hidden, rows, steps)
    if not all(type(n) is int for n in numbers) or x.device.type not in ("cpu", "cuda", "meta"):
        return None
    if weights[0].shape[1] == 0:  # x is W x, which CallNumbers does not say
        return None
    each = len(weights) // (layers * (2 if bidirectional else 1))
    form = CallNumbers(
        cell=cell.encode(),
        input=x.shape[-1],
        hidden=hidden,
        heads=weights[1].shape[0] if not scans and weights[1].dim() == 3 else 1,
        layers=layers,
        bidirectional=bidirectional,
        biases=each - (1 if scans else 2),
        type=TYPES[x.dtype],
        weight_type=TYPES[weights[0].dtype],
        rows=rows,
        steps=steps,
        lengths=lengths is not None,
        reset=reset is not None,
        batch_first=batch_first,
        every_state=every_state,
        cuda=(x.device.index or 0) if x.device.type == "cuda" else -1,
    )
    size = _loaded.penstock_torch_tape_bytes(ctypes.byref(form))
    return None if size < 0 else size
