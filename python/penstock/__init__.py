"""Gated recurrent networks on NumPy arrays: cells, stacks, scans, and models that train, answer and stream.

>>> import numpy as np, penstock
>>> cell = penstock.MinGRUCell(input_size=4, hidden_size=8)
>>> y, h = cell.forward(np.zeros((2, 100, 4), np.float32))
>>> y.shape, h.shape
((2, 100, 8), (2, 8))

``penstock.torch`` has modules for PyTorch; it is not imported until it is asked for.
"""

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
from .layers import (
    Cell,
    ElmanCell,
    GRUCell,
    LSTMCell,
    MinGRUCell,
    MinLSTMCell,
    Recurrent,
    SLSTMCell,
    Tape,
)

__version__ = system_info()["version"]
