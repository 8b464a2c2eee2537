"""One step of a cell as a module: torch.nn's cells by their names, and those it does not have."""

import torch
from torch import nn

from ._composed import CELLS
from ._ops import keeps_tape, recurrent


class _Cell(nn.Module):
    """One step [B, I] -> [B, H] or [I] -> [H], with the state of the step before; parameters as torch.nn's cells."""

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None, *, num_heads=1):
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        self.num_heads = num_heads
        if hidden_size % num_heads != 0:
            raise ValueError(f"num_heads must divide hidden_size {hidden_size}, got {num_heads}")
        gates, _, scans = CELLS[self._cell()]
        rows = gates * hidden_size
        recurrent_shape = (
            (rows, hidden_size) if num_heads == 1 else (num_heads, rows // num_heads, hidden_size // num_heads)
        )
        for name, shape in [
            ("weight_ih", (rows, input_size)),
            ("weight_hh", None if scans else recurrent_shape),
            ("bias_ih", (rows,) if bias else None),
            ("bias_hh", (rows,) if bias and not scans else None),
        ]:
            value = None if shape is None else nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
            self.register_parameter(name, value)
        self.reset_parameters()

    def _cell(self):
        raise NotImplementedError

    def reset_parameters(self):
        bound = self.hidden_size**-0.5
        for weight in self.parameters():
            nn.init.uniform_(weight, -bound, bound)

    def extra_repr(self):
        text = f"{self.input_size}, {self.hidden_size}"
        if not self.bias:
            text += ", bias=False"
        return text + (f", num_heads={self.num_heads}" if self.num_heads != 1 else "")

    def forward(self, input, hx=None):
        """The state after one step.

        Args:
            input: [B, I] or [I].
            hx: The state before, [B, H] or [H], a tuple for cells with several; None: zeros.

        Returns:
            The state after it, shaped as hx; the first of several is the output.
        """
        name, count = type(self).__name__, CELLS[self._cell()][1]
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {input.shape[-1]} expected {self.input_size}")
        has_rows = input.dim() == 2
        x = input if has_rows else input.unsqueeze(0)
        state = None if hx is None else self._entering(x, (hx,) if count == 1 else hx, has_rows, count)
        weights = [w for w in (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh) if w is not None]
        y, last, *_ = recurrent(
            x.unsqueeze(0), weights, state, None, None, None, self._cell(), 1, False, False, keeps_tape(), False
        )
        last = last.to(y.dtype)[:, 0]
        if not has_rows:
            last = last.squeeze(1)
        return last[0] if count == 1 else tuple(last.unbind(0))

    def _entering(self, x, states, has_rows, count):
        """[S, 1, B, H] of the states that are given."""
        name = type(self).__name__
        if len(states) != count:
            raise RuntimeError(f"{name}: hx must hold {count} states, got {len(states)}")
        for i, state in enumerate(states):
            what = "hidden" if count == 1 else f"hx[{i}]"
            if state.dim() not in (1, 2):
                raise ValueError(f"{name}: Expected {what} to be 1D or 2D, got {state.dim()}D instead")
            if state.shape[-1] != self.hidden_size:
                raise RuntimeError(
                    f"hidden{i} has inconsistent hidden_size: got {state.shape[-1]}, expected {self.hidden_size}"
                )
            rows = state.shape[0] if state.dim() == 2 else 1
            if (state.dim() == 2) != has_rows or rows != x.shape[0]:
                raise RuntimeError(f"Input batch size {x.shape[0]} doesn't match hidden{i} batch size {rows}")
        stacked = torch.stack(tuple(states))
        return stacked.unsqueeze(1) if has_rows else stacked.unsqueeze(1).unsqueeze(1)


class RNNCell(_Cell):
    """One step of an Elman network, as `torch.nn.RNNCell`."""

    def __init__(self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None, *,
                 num_heads=1):  # fmt: skip
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, bias, device, dtype, num_heads=num_heads)

    def _cell(self):
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return "elman" if self.nonlinearity == "tanh" else "elman-relu"


class GRUCell(_Cell):
    """One step of a gated recurrent unit, as `torch.nn.GRUCell`."""

    def _cell(self):
        return "gru"


class LSTMCell(_Cell):
    """One step of an LSTM, as `torch.nn.LSTMCell`: (h, c) after it."""

    def _cell(self):
        return "lstm"


class SLSTMCell(_Cell):
    """One step of an sLSTM: its states (h, c, n, m) after it."""

    def _cell(self):
        return "slstm"


class MinGRUCell(_Cell):
    """One step of a minGRU with a linear candidate."""

    def _cell(self):
        return "mingru"


class MinLSTMCell(_Cell):
    """One step of a minLSTM with a linear candidate."""

    def _cell(self):
        return "minlstm"
