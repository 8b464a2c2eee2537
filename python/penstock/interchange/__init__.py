"""Converts weights of recurrent layers from and to other libraries.

Each format has a pair of functions that convert its arrays to :class:`RecurrentWeights` and back. From these you get
layers on NumPy arrays or PyTorch modules. :func:`load` and :func:`save` do the same with files.

>>> import numpy as np, penstock
>>> kernel, recurrent, bias = np.zeros((3, 20)), np.zeros((5, 20)), np.zeros(20)  # of a Keras LSTM of 5 units
>>> lstm = penstock.interchange.from_keras([kernel, recurrent, bias]).to_numpy()
>>> lstm.forward(np.zeros((1, 7, 3)))[0].shape
(1, 7, 5)
"""

from .._keywords import explain_keywords
from ._files import FORMATS, load, read_tensors, save, write_tensors
from ._weights import RecurrentWeights
from .flashrnn import from_flashrnn, to_flashrnn
from .haste import from_haste, to_haste
from .keras import from_keras, read_keras, to_keras, write_keras
from .lucidrains import from_lucidrains, to_lucidrains
from .onnx import from_onnx, read_onnx, to_onnx
from .torch_nn import from_torch, to_torch
from .xlstm import from_xlstm, to_xlstm

__all__ = [
    "FORMATS",
    "RecurrentWeights",
    "from_flashrnn",
    "from_haste",
    "from_keras",
    "from_lucidrains",
    "from_onnx",
    "from_torch",
    "from_xlstm",
    "load",
    "read_keras",
    "read_onnx",
    "read_tensors",
    "save",
    "to_flashrnn",
    "to_haste",
    "to_keras",
    "to_lucidrains",
    "to_onnx",
    "to_torch",
    "to_xlstm",
    "write_keras",
    "write_tensors",
]

explain_keywords(globals())
