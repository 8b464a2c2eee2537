"""Recurrent layers as modules of Flax NNX. Parameters have PyTorch's names and layouts.

>>> import jax
>>> from flax import nnx
>>> from penstock.jax.nnx import GRU
>>> y, last = GRU(8, 16, rngs=nnx.Rngs(0))(jax.numpy.zeros((4, 100, 8)))
>>> y.shape
(4, 100, 16)
"""

from flax import nnx

from ._layers import initial_weights, named_layers, recurrent

__all__ = ["GRU", "LSTM", "RNN", "SLSTM", "MinGRU", "MinLSTM", "Recurrent"]


class Recurrent(nnx.Module):
    """A stack of layers of any cell.

    Args:
        cell: The name of a cell, or a custom cell (:func:`penstock.cell`).
        input_size: I.
        hidden_size: H.
        weights: {name: array}, such as the state_dict of a layer of PyTorch. None: new weights, drawn with ``rngs``.
        rngs: Where the key of new weights comes from.
        options: Those of :func:`penstock.jax.initial_weights`, for new weights.
    """

    def __init__(self, cell, input_size, hidden_size, *, weights=None, rngs=None, **options):
        if weights is None:
            weights = initial_weights(rngs.params(), cell, input_size, hidden_size, **options)
        self.cell = cell
        self.names = tuple(weights)
        for name, value in weights.items():
            setattr(self, name, nnx.Param(value))

    def __call__(self, x, state=None, **others):
        """Runs :func:`penstock.jax.recurrent`, which describes the arguments and the results."""
        weights = {name: getattr(self, name)[...] for name in self.names}
        return recurrent(x, weights, state, cell=self.cell, **others)


RNN, GRU, LSTM, SLSTM, MinGRU, MinLSTM = named_layers(Recurrent)
