"""Recurrent layers as modules of Equinox. The weights have PyTorch's names and layouts.

>>> import jax
>>> from penstock.jax.equinox import GRU
>>> layer = GRU(8, 16, key=jax.random.key(0))
>>> y, last = jax.vmap(layer)(jax.numpy.zeros((4, 100, 8)))  # the rows of one call
>>> y.shape
(4, 100, 16)
"""

import equinox
import jax
import jax.numpy as jnp

from ._layers import initial_weights, named_layers, recurrent

__all__ = ["GRU", "LSTM", "RNN", "SLSTM", "MinGRU", "MinLSTM", "Recurrent"]


class Recurrent(equinox.Module):
    """A stack of layers of any cell.

    Args:
        cell: The name of a cell, or a custom cell (:func:`penstock.cell`).
        input_size: I.
        hidden_size: H.
        weights: {name: array}, such as the state_dict of a layer of PyTorch. None: new weights, drawn with ``key``.
        key: A key of ``jax.random`` for new weights.
        options: Those of :func:`penstock.jax.initial_weights`, for new weights.
    """

    weights: dict[str, jax.Array]
    cell: str = equinox.field(static=True)

    def __init__(self, cell, input_size, hidden_size, *, weights=None, key=None, **options):
        if weights is None:
            weights = initial_weights(key, cell, input_size, hidden_size, **options)
        self.weights = {name: jnp.asarray(value) for name, value in weights.items()}
        self.cell = cell

    def __call__(self, x, state=None, **others):
        """Runs :func:`penstock.jax.recurrent`, which describes the arguments and the results."""
        return recurrent(x, self.weights, state, cell=self.cell, **others)


RNN, GRU, LSTM, SLSTM, MinGRU, MinLSTM = named_layers(Recurrent)
