"""Penstock's recurrent layers for PyTorch: `torch.nn`'s by their names, and those it does not have.

Needs PyTorch 2.10 or later. Changing the import is the whole migration:

>>> import torch
>>> from penstock.torch import LSTM
>>> y, (h, c) = LSTM(8, 16, batch_first=True)(torch.zeros(4, 100, 8))
>>> y.shape
torch.Size([4, 100, 16])

`convert(model)` swaps the layers of a model that exists.
"""

from ._library import library_path, release_memory  # first: it refuses what is older

from .._keywords import explain_keywords
from ._cells import GRUCell, LSTMCell, MinGRUCell, MinLSTMCell, RNNCell, SLSTMCell
from ._convert import convert, convert_back
from ._model import SequenceModel
from ._modules import GRU, LSTM, RNN, SLSTM, MinGRU, MinLSTM
from ._scan import log_scan, scan
from ._trainer import StableTrainer

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "SLSTM",
    "GRUCell",
    "LSTMCell",
    "MinGRU",
    "MinGRUCell",
    "MinLSTM",
    "MinLSTMCell",
    "RNNCell",
    "SLSTMCell",
    "SequenceModel",
    "StableTrainer",
    "convert",
    "convert_back",
    "library_path",
    "log_scan",
    "release_memory",
    "scan",
]

explain_keywords(globals(), constructors_alone=True)
