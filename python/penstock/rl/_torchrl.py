"""Modules of TorchRL."""

import torch
import torchrl.modules
from tensordict.nn import dispatch

from penstock._cell_forms import CELLS
from penstock.torch import convert
from penstock.torch._rnn_base import RNNBase


class _OneCall:
    """Mixin that runs a rollout in one call of Penstock's layer, with TorchRL's contract.

    The states at the first step and at each step with ``is_init`` are those in the tensordict, and the states are
    written at the last step of each episode; elsewhere they are zeros.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.recurrent_backend != "pad":
            backend = self.recurrent_backend
            raise ValueError(f"recurrent_backend must not be given, not {backend!r}: Penstock runs rollouts")
        convert(self)
        layer, count = self._layer(), len(self.in_keys) - 2
        if not isinstance(layer, RNNBase):
            raise ValueError(f"the layer must be one of penstock.torch or torch.nn, not {type(layer).__name__}")
        if CELLS[layer._cell()][1] != count:
            raise ValueError(f"{type(self).__name__} needs a layer with the number of states {count}, not {layer}")
        if layer.bidirectional:
            raise ValueError("bidirectional must be False: a policy does not see later steps")

    def _layer(self):
        return self.lstm if hasattr(self, "lstm") else self.gru

    @dispatch
    def forward(self, tensordict):
        """Runs one step, or in recurrent mode a rollout whose last batch dimension is time, and writes the results."""
        if not self.recurrent_mode:
            return super().forward(tensordict)
        if tensordict.ndim == 0:
            name = type(self).__name__
            raise ValueError(f"{name} in recurrent mode needs a tensordict with a time dimension, not 0-D")
        given = tensordict.select(*self.in_keys, strict=False).reshape(-1, tensordict.shape[-1])
        states = [given.get(key, None) for key in self.in_keys[1:-1]]  # each [B, T, L, H]
        absent = [key for key, state in zip(self.in_keys[1:-1], states) if state is None]
        if absent and len(absent) < len(states):
            raise RuntimeError(f"the tensordict must have all states or none, and has no {absent[0]!r}")
        y, after = self._rollout(given.get(self.in_keys[0]), given["is_init"].squeeze(-1), None if absent else states)
        for key, value in zip(self.out_keys, (y, *after)):
            tensordict.set(key, value.reshape(*tensordict.shape, *value.shape[2:]))
        return tensordict

    def _rollout(self, x, starts, states):
        """Returns y [B, T, H] and the states [B, T, L, H] at the ends of episodes."""
        layer, count = self._layer(), len(self.in_keys) - 2
        single = x.shape[1] == 1
        resets = None
        if not single:
            resets = starts.clone()
            resets[:, 0] = False  # there the state is given
        hx = restarts = None
        if states is not None:
            hx = [state[:, 0].transpose(0, 1).contiguous() for state in states]
            if not single and any(state.requires_grad or state[resets].any() for state in states):
                restarts = [state.permute(2, 0, 1, 3) for state in states]
        y, after = x, []
        for i in range(layer.num_layers):  # for the states of each
            first, again = ([state[i : i + 1] for state in given] if given else None for given in (hx, restarts))
            y = torch.nn.functional.dropout(y, layer.dropout, layer.training and i > 0)
            one = layer._layer_alone(i)
            y, _, *every = one(y, first, reset_mask=resets, every_state=count > 1 or None, reset_to=again)
            after.append((y, *(every[0] if every else ())))
        after = [torch.stack(layers, 2) for layers in zip(*after)]
        if single:
            return y, after
        ends = torch.ones_like(starts)
        ends[:, :-1] = starts[:, 1:]
        at_end = ends[:, :, None, None]
        return y, [torch.where(at_end, state, state.new_zeros(())) for state in after]


class GRUModule(_OneCall, torchrl.modules.GRUModule):
    """``torchrl.modules.GRUModule`` with a layer of Penstock, in arguments, keys and results the same.

    ``gru=`` also takes any other layer of ``penstock.torch`` with one state, such as
    ``MinGRU(8, 16, batch_first=True)``. ``recurrent_backend`` must not be given.
    """


class LSTMModule(_OneCall, torchrl.modules.LSTMModule):
    """``torchrl.modules.LSTMModule`` with Penstock's LSTM. ``recurrent_backend`` must not be given."""
