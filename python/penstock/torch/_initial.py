"""Initial weights of recurrent layers."""

import torch
from torch import nn
from torch.nn.utils import parametrize

from ._rnn_base import RNNBase

_CELLS = {"LSTM": "lstm", "GRU": "gru", "RNN_TANH": "elman", "RNN_RELU": "elman-relu"}


def cell_of(module):
    """Returns the name of the cell of a recurrent layer or a cell, of Penstock or of torch.nn's layers."""
    return module._cell() if hasattr(module, "_cell") else _CELLS[module.mode]


def evaluated_cell(module):
    """Returns the same of what the module evaluates: with zoneout, a cell that computes the expectation, or no cell."""
    return module._evaluated() if hasattr(module, "_evaluated") else cell_of(module)


def recurrent_layers(model):
    """Returns all recurrent layers of a model."""
    return [module for module in model.modules() if isinstance(module, (RNNBase, nn.RNNBase))]


def initialise(model, weights="standard", *, chrono=0.0):
    """Draws new initial weights for all recurrent layers of a model, of Penstock or of torch.nn, and returns the model.

    The random numbers follow from ``torch.manual_seed``. Other layers stay as they are.

    Args:
        model: A module.
        weights: ``"standard"`` keeps the weights. ``"uniform"``: all weights and biases in +-1/sqrt(H).
            ``"orthogonal"``: recurrent matrices of each head and gate (Saxe et al. 2013). ``"identity"``: recurrent
            matrices of cells with one gate, with biases of 0 (Le et al. 2015).
        chrono: Longest time constant of a unit in steps, above 2: draws the biases of gates so that units remember
            over 1 to ``chrono`` steps (Tallec and Ollivier 2018). 0: biases stay.

    Raises:
        ValueError: The model has no recurrent layer, a layer has projections or parametrised weights, or a cell
            cannot start so.

    >>> import torch
    >>> layer = initialise(torch.nn.LSTM(3, 5), "orthogonal", chrono=100)
    >>> recurrent = layer.weight_hh_l0[:5].double()
    >>> torch.allclose(recurrent @ recurrent.T, torch.eye(5).double(), atol=1e-6)
    True
    """
    layers = recurrent_layers(model)
    if not layers:
        raise ValueError(f"model must have a recurrent layer, got {type(model).__name__}")
    if any(getattr(layer, "proj_size", 0) for layer in layers):
        raise ValueError("proj_size must be 0 in all recurrent layers")
    if any(parametrize.is_parametrized(layer) for layer in layers):
        raise ValueError("model has a recurrent layer with parametrised weights: initialise it before it gets them")
    drawn = [_drawn(layer, weights, chrono) for layer in layers]
    with torch.no_grad():
        for layer, values in zip(layers, drawn):
            for name, value in values.items():
                getattr(layer, name).copy_(torch.from_numpy(value))
    return model


def _drawn(layer, weights, chrono):
    from ..interchange._modules import weights_of  # whose modules are those of this package

    network = weights_of(layer, plain=True).to_numpy("float32")
    network.initialise(weights, chrono=chrono, seed=int(torch.randint(2**62, ()).item()))
    return network.state_dict()
