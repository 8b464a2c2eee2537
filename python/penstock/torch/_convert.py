"""Replaces recurrent layers of existing models in place."""

import warnings

from torch import nn

from ._checks import AS_ONNX
from ._cells import Cell, GRUCell, LSTMCell, RNNCell
from ._model import Recurrence
from ._modules import GRU, LSTM, RNN
from ._rnn_base import RNNBase

_OURS = {nn.RNN: RNN, nn.GRU: GRU, nn.LSTM: LSTM, nn.RNNCell: RNNCell, nn.GRUCell: GRUCell, nn.LSTMCell: LSTMCell}
_THEIRS = {ours: theirs for theirs, ours in _OURS.items()}
_OPTIONS = ("bias", "nonlinearity", "num_layers", "batch_first", "dropout", "bidirectional")
_HOOKS = [name for name in vars(nn.Module()) if "_hook" in name]


def _other(module, kind):
    """Returns a module of class `kind` with the options, parameter objects, hooks and training mode of `module`.

    Returns None if the parameters are computed (weight_norm, pruning).
    """
    options = {name: getattr(module, name) for name in _OPTIONS if hasattr(module, name)}
    if getattr(module, "proj_size", 0) > 0:
        options["proj_size"] = module.proj_size
    with warnings.catch_warnings():  # the old module has already issued the same warnings
        warnings.simplefilter("ignore")
        other = kind(module.input_size, module.hidden_size, device="meta", **options)
    if list(other._parameters) != list(module._parameters) or module._buffers:
        return None
    other._parameters.update(module._parameters)
    if hasattr(other, "_init_flat_weights"):
        other._init_flat_weights()
    vars(other).update({name: value for name, value in vars(module).items() if name in _HOOKS})
    return other.train(module.training)


def _swapped(module, kind_of, seen):
    if module in seen:  # a module used in several places stays one module
        return seen[module]
    kind = kind_of(module)
    new = None if kind is None else _other(module, kind)
    seen[module] = new or module
    for name, child in list(module._modules.items()):
        if child is not None and new is None:
            module._modules[name] = _swapped(child, kind_of, seen)
    return seen[module]


def _check_module(model):
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")


def convert(model):
    """Replaces every nn.RNN, nn.GRU, nn.LSTM and their cells in a model by Penstock's, in place, and returns the model.

    Parameters stay the same objects: optimisers, tied weights and state_dicts remain valid. If the model itself is such
    a layer, the function returns the new layer. It leaves subclasses unchanged, and layers with computed parameters
    (weight_norm, pruning, parametrizations).

    Args:
        model: A ``torch.nn.Module``.

    Raises:
        TypeError: ``model`` is not a module.

    >>> import torch, penstock.torch
    >>> penstock.torch.convert(torch.nn.Sequential(torch.nn.GRU(3, 5)))
    Sequential(
      (0): GRU(3, 5)
    )
    """
    _check_module(model)
    return _swapped(model, lambda module: _OURS.get(type(module)), {})


def convert_back(model):
    """Reverses :func:`convert`, for tools that need torch.nn's own classes, and returns the model.

    Raises:
        ValueError: A layer cannot be converted; the message names it, and nothing has changed. These are layers that
            torch.nn does not have (MinGRU, several heads, a GRU with ``reset_after=False``, layers of a
            SequenceModel, layers with :func:`regularise`), subclasses, and layers with computed parameters.
        TypeError: ``model`` is not a module.
    """
    _check_module(model)
    for name, module in model.named_modules():
        if isinstance(module, (RNNBase, Cell, Recurrence)) and _in_torch_nn(module) is None:
            raise ValueError(
                f"torch.nn has no such layer: {name or 'the model'} is {type(module).__name__}({module.extra_repr()}); "
                f"nothing was converted. {AS_ONNX}"
            )
    return _swapped(model, lambda module: _THEIRS.get(type(module)), {})


def _in_torch_nn(module):
    """Returns the same layer as a module of torch.nn; None if torch.nn does not have it."""
    if type(module) not in _THEIRS or module.num_heads != 1 or not getattr(module, "reset_after", True):
        return None
    if getattr(module, "_noise", None):
        return None
    return _other(module, _THEIRS[type(module)])
