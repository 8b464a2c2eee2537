"""Gated recurrent networks on NumPy arrays: cells, stacks, scans, and models to train, run and stream.

>>> import numpy as np, penstock
>>> cell = penstock.MinGRUCell(input_size=4, hidden_size=8)
>>> y, h = cell.forward(np.zeros((2, 100, 4), np.float32))
>>> y.shape, h.shape
((2, 100, 8), (2, 8))

``penstock.torch`` has modules for PyTorch, ``penstock.reference`` every cell in plain NumPy. Both are imported when
they are first used, and so is NumPy.
"""

from . import _load_library  # isort: skip, must run before the library is loaded
from . import cuda
from ._cells import (
    Cell,
    ElmanCell,
    GRUCell,
    LSTMCell,
    MinGRUCell,
    MinLSTMCell,
    SLSTMCell,
)
from ._core import cells, system_info
from .errors import (
    BadInput,
    DeviceFailure,
    Error,
    Incompatible,
    Interrupted,
    InvalidArgument,
    IoFailure,
    NumericalError,
    OutOfMemory,
    Unsupported,
)
from .layers import Recurrent, Tape
from .models import Model, Session, SessionBatch, SessionPool
from .scans import log_scan, log_scan_backward, scan, scan_backward

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:  # names that __getattr__() below imports on first use
    from . import csp, datasets, equations, interchange, networks, quantization, reference, tokens, training, variants
    from .equations import CustomCell, cell, load_cell
    from .datasets import Dataset, open_labelled, open_labelled_texts, open_series, open_sound, open_task, open_text
    from .networks import Network, NetworkSession, import_audio, import_onnx
    from .quantization import quantize
    from .training import Evaluation, Progress, TrainResult, evaluate, train

__all__ = [
    "BadInput",
    "Cell",
    "CustomCell",
    "Dataset",
    "DeviceFailure",
    "ElmanCell",
    "Error",
    "Evaluation",
    "GRUCell",
    "Incompatible",
    "Interrupted",
    "InvalidArgument",
    "IoFailure",
    "LSTMCell",
    "MinGRUCell",
    "MinLSTMCell",
    "Model",
    "Network",
    "NetworkSession",
    "NumericalError",
    "OutOfMemory",
    "Progress",
    "Recurrent",
    "SLSTMCell",
    "Session",
    "SessionBatch",
    "SessionPool",
    "Tape",
    "TrainResult",
    "Unsupported",
    "cell",
    "cells",
    "cuda",
    "equations",
    "evaluate",
    "import_audio",
    "import_onnx",
    "load_cell",
    "log_scan",
    "log_scan_backward",
    "open_labelled",
    "open_labelled_texts",
    "open_series",
    "open_sound",
    "open_task",
    "open_text",
    "quantize",
    "scan",
    "scan_backward",
    "system_info",
    "train",
    "csp",
    "datasets",
    "interchange",
    "networks",
    "quantization",
    "reference",
    "tokens",
    "training",
    "variants",
]

__version__ = system_info()["version"]


# Modules and names that are imported on first use: a program that only runs models needs none of them.
_MODULES = (
    "csp", "datasets", "equations", "interchange", "jax", "networks", "quantization", "reference", "rl", "serve",
    "tokens", "torch", "training", "variants",
)
_NAMES = {
    "datasets": ("Dataset", "open_labelled", "open_labelled_texts", "open_series", "open_sound", "open_task", "open_text"),
    "equations": ("CustomCell", "cell", "load_cell"),
    "networks": ("Network", "NetworkSession", "import_audio", "import_onnx"),
    "quantization": ("quantize",),
    "training": ("Evaluation", "Progress", "TrainResult", "evaluate", "train"),
}


def __getattr__(name):
    import importlib

    if name in _MODULES:
        return importlib.import_module("." + name, __name__)
    for module, names in _NAMES.items():
        if name in names:
            value = globals()[name] = getattr(importlib.import_module("." + module, __name__), name)
            return value
    hint = ""
    if not name.startswith("_"):
        from ._keywords import attribute_hint

        hint = attribute_hint(name)
    raise AttributeError(f"module 'penstock' has no attribute '{name}'{hint}")


def __dir__():
    return sorted({*globals(), *_MODULES, *sum(_NAMES.values(), ())} - ({"jax", "torch"} - set(globals())))
