"""Converts weights to PyTorch modules and back. Imported only when a module is needed."""

import functools

import torch
from torch import nn
from torch.nn import functional

from ..errors import InvalidArgument
from ..torch import GRU, LSTM, RNN, SLSTM, MinGRU, MinLSTM, Recurrent
from ..torch._initial import cell_of, evaluated_cell
from ._weights import RecurrentWeights, is_cell

_KINDS = {
    "elman": (RNN, {"nonlinearity": "tanh"}),
    "elman-relu": (RNN, {"nonlinearity": "relu"}),
    "gru": (GRU, {}),
    "gru-before": (GRU, {"reset_after": False}),
    "lstm": (LSTM, {}),
    "slstm": (SLSTM, {}),
    "mingru": (MinGRU, {}),
    "mingru-log": (MinGRU, {"candidate": "positive"}),
    "minlstm": (MinLSTM, {}),
    "minlstm-log": (MinLSTM, {"candidate": "positive"}),
}


def module_of(weights, batch_first):
    kind, options = _KINDS.get(weights.cell, (functools.partial(Recurrent, weights.cell), {}))
    if weights.direction == "reverse":
        raise InvalidArgument("modules of PyTorch have no layers that run in reverse alone")
    if weights.heads > 1:
        options = {**options, "num_heads": weights.heads}
    tensors = {name: torch.from_numpy(array.copy()) for name, array in weights.tensors.items()}
    module = kind(
        weights.input_size,
        weights.hidden_size,
        num_layers=weights.layers,
        bias=any(name.startswith("bias") for name in tensors),
        batch_first=batch_first,
        bidirectional=weights.direction == "bidirectional",
        dtype=next(iter(tensors.values())).dtype,
        **options,
    )
    own = module.state_dict()
    for name in own:
        if name not in tensors:  # the format has one bias
            tensors[name] = torch.zeros_like(own[name])
    for name in [name for name in tensors if name not in own]:  # modules of scan cells have one bias, the sum of two
        tensors[name.replace("bias_hh", "bias_ih")] += tensors.pop(name)
    module.load_state_dict(tensors)
    return module


def weights_of(module, plain=False):
    """Returns the weights of a module, and the cell that it evaluates; `plain`: as if it had no zoneout."""
    if not hasattr(module, "_cell") and not isinstance(module, nn.RNNBase):
        raise InvalidArgument(
            f"module must be a recurrent layer of torch.nn or penstock.torch, not {type(module).__name__}"
        )
    cell = cell_of(module) if plain else evaluated_cell(module)
    if not is_cell(cell):
        raise InvalidArgument(
            f"module must have no zoneout, which penstock.variants has for LSTM, GRU and RNN alone, not {module}: remove "
            "it by penstock.torch.regularise(module), or save the module by torch.save"
        )
    if getattr(module, "proj_size", 0) > 0:
        raise InvalidArgument(
            f"module must have no projections (proj_size), not {module.proj_size}, since RecurrentWeights cannot hold "
            "them: save its state_dict by torch.save"
        )
    tensors = {}
    for name, tensor in module.state_dict().items():
        tensor = tensor.detach().cpu()
        tensor = tensor if tensor.dtype == torch.float64 else tensor.float()
        tensors[name if "_l" in name else name + "_l0"] = tensor.numpy().copy()
    return RecurrentWeights(cell, tensors)


class Projected(nn.Module):
    """A recurrent layer and an optional projection of its outputs."""

    def __init__(self, layer, projection):
        super().__init__()
        self.layer = layer
        self.to_out = None
        if projection is not None:
            self.to_out = nn.Linear(projection.shape[1], projection.shape[0], bias=False)
            self.to_out.load_state_dict({"weight": torch.from_numpy(projection.copy())})

    def forward(self, x, hx=None):
        """Returns the outputs [B, T, width] and the last state."""
        y, last = self.layer(x, hx)
        return (y if self.to_out is None else self.to_out(y)), last


class XLSTMLayer(nn.Module):
    """The sLSTM layer of the package xlstm: a causal convolution before two gates, and a norm of each head at the end.

    Gates i and f read the convolved input, z and o the input itself. The inner layer has twice the inputs; each gate
    reads one half of them.
    """

    def __init__(self, layer, convolution, gain):
        super().__init__()
        self.layer = layer
        self.convolution = None
        if convolution is not None:
            weight, bias = (torch.from_numpy(array.copy()) for array in convolution)
            channels, _, taps = weight.shape
            self.convolution = nn.Conv1d(channels, channels, taps, groups=channels)
            self.convolution.load_state_dict({"weight": weight, "bias": bias})
        gain = torch.ones(layer.hidden_size) if gain is None else torch.from_numpy(1 + gain)
        self.gain = nn.Parameter(gain)

    def forward(self, x):
        """Returns the outputs [B, T, H] of whole sequences [B, T, I]."""
        if self.convolution is not None:
            taps = self.convolution.kernel_size[0]
            past = functional.pad(x.transpose(1, 2), (taps - 1, 0))
            x = torch.cat([functional.silu(self.convolution(past).transpose(1, 2)), x], -1)
        y, _ = self.layer(x)
        rows = functional.group_norm(y.flatten(0, 1), self.layer.num_heads, self.gain, eps=1e-5)
        return rows.view_as(y)
