"""Recurrent layers of existing models, swapped in place."""

import warnings

from torch import nn

from ._checks import AS_ONNX
from ._cells import Cell, GRUCell, LSTMCell, RNNCell
from ._model import Recurrence
from ._modules import GRU, LSTM, RNN, Stack

_OURS = {nn.RNN: RNN, nn.GRU: GRU, nn.LSTM: LSTM, nn.RNNCell: RNNCell, nn.GRUCell: GRUCell, nn.LSTMCell: LSTMCell}
_THEIRS = {ours: theirs for theirs, ours in _OURS.items()}
_OPTIONS = ("bias", "nonlinearity", "num_layers", "batch_first", "dropout", "bidirectional")
_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


def _other(module, kind):
    """A module of that kind with the options, the very parameters, the hooks and the mode of another; None if its
    parameters are not plain ones (weight_norm, pruning)."""
    options = {name: getattr(module, name) for name in _OPTIONS if hasattr(module, name)}
    if getattr(module, "proj_size", 0) > 0:
        options["proj_size"] = module.proj_size
    with warnings.catch_warnings():  # whatever is odd about the options, the old module's user has been told
        warnings.simplefilter("ignore")
        other = kind(module.input_size, module.hidden_size, device="meta", **options)
    if list(other._parameters) != list(module._parameters) or module._buffers:
        return None
    other._parameters.update(module._parameters)
    if hasattr(other, "_init_flat_weights"):
        other._init_flat_weights()
    for hooks in _HOOKS:
        if hasattr(module, hooks):
            setattr(other, hooks, getattr(module, hooks))
    return other.train(module.training)


def _swapped(module, kind_of, seen):
    if module in seen:  # a module that stands in several places stays one
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
    """Swaps every nn.RNN, nn.GRU, nn.LSTM and their cells in `model` for Penstock's, in place, and returns the model.

    Parameters stay the very same objects, so optimisers, tied weights and state_dicts are not touched. A model that is
    itself such a layer comes back as the new one. Subclasses, and layers whose parameters are computed (weight_norm,
    pruning, parametrizations), are left alone.
    """
    _check_module(model)
    return _swapped(model, lambda module: _OURS.get(type(module)), {})


def convert_back(model):
    """The reverse of convert(), for tools that look for torch.nn's own classes.

    Raises ValueError that names the module, and changes nothing, where a layer of Penstock's would be left: one that
    torch.nn does not have (such as MinGRU, heads, GRUs with the reset before the product, and layers of a
    SequenceModel), a subclass, and one whose parameters are computed.
    """
    _check_module(model)
    for name, module in model.named_modules():
        if isinstance(module, (Stack, Cell, Recurrence)) and _in_torch_nn(module) is None:
            raise ValueError(
                f"torch.nn has no such layer: {name or 'the model'} is {type(module).__name__}({module.extra_repr()}); "
                f"nothing was converted. {AS_ONNX}"
            )
    return _swapped(model, lambda module: _THEIRS.get(type(module)), {})


def _in_torch_nn(module):
    """The same layer as a module of torch.nn; None if that has none."""
    if type(module) not in _THEIRS or module.num_heads != 1 or not getattr(module, "reset_after", True):
        return None
    return _other(module, _THEIRS[type(module)])
