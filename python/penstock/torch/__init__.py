"""Penstock's recurrent layers for PyTorch: replacements of torch.nn's layers, and layers that it does not have.

It needs PyTorch 2.10 or later. To migrate, change the import:

>>> import torch
>>> from penstock.torch import LSTM
>>> y, (h, c) = LSTM(8, 16, batch_first=True)(torch.zeros(4, 100, 8))
>>> y.shape
torch.Size([4, 100, 16])

``convert(model)`` replaces the layers of an existing model.
"""

from ._library import library_path, release_memory  # first: it checks the version of PyTorch

from .._keywords import explain_keywords
from ._cells import GRUCell, LSTMCell, MinGRUCell, MinLSTMCell, RNNCell, SLSTMCell
from ._convert import convert, convert_back
from ._episodes import episode_starts
from ._export import export_files
from ._fit import fit
from ._fitting.group import RankFailure
from ._fitting.optimizers import Lion
from ._initial import initialise
from ._model import SequenceModel
from ._modules import GRU, LSTM, RNN, SLSTM, MinGRU, MinLSTM, Recurrent
from ._recurrence import recurrence
from ._regularise import regularise
from ._scan import log_scan, scan
from ._session import Session
from ._stable_trainer import StableTrainer

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "SLSTM",
    "GRUCell",
    "LSTMCell",
    "Lion",
    "MinGRU",
    "MinGRUCell",
    "MinLSTM",
    "MinLSTMCell",
    "RNNCell",
    "RankFailure",
    "Recurrent",
    "SLSTMCell",
    "SequenceModel",
    "Session",
    "StableTrainer",
    "convert",
    "convert_back",
    "episode_starts",
    "export_files",
    "fit",
    "initialise",
    "library_path",
    "log_scan",
    "recurrence",
    "regularise",
    "release_memory",
    "scan",
]

explain_keywords(globals(), constructors_alone=True)


def __getattr__(name):
    import sys

    from .._keywords import elsewhere_hint, near_hint

    this = sys.modules[__name__]
    hint = "" if name.startswith("_") else elsewhere_hint(name) or near_hint(name, this)
    raise AttributeError(f"module 'penstock.torch' has no attribute '{name}'{hint}", name=name, obj=this)
