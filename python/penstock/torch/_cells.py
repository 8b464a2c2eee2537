"""Single steps of cells as modules: replacements of torch.nn's cells, and cells that torch.nn does not have."""

import torch
from torch import nn

from .._cell_forms import CELLS, parameter_shapes
from .._keywords import check_unknown
from .._minimal import minimal_cell
from ._checks import Foreign
from ._cell_names import CellNote
from ._ops import one_step, run_layers


_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class Cell(CellNote, Foreign, nn.Module):
    """Base of all cells: one step ``[B, I] -> [B, H]`` or ``[I] -> [H]``. Parameters are those of torch.nn's cells."""

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None, *, num_heads=1):
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        self.num_heads = num_heads
        if hidden_size % num_heads != 0:
            raise ValueError(f"num_heads must divide hidden_size {hidden_size}, got {num_heads}")
        shapes = parameter_shapes(self._cell(), input_size, hidden_size, num_heads, "both" if bias else "none")
        for name in _WEIGHTS:
            given = nn.Parameter(torch.empty(shapes[name], device=device, dtype=dtype)) if name in shapes else None
            self.register_parameter(name, given)
        self.reset_parameters()

    def _cell(self):
        """Returns the name of the cell in the library."""
        return self._kind

    def reset_parameters(self):
        bound = self.hidden_size**-0.5
        for weight in self.parameters():
            nn.init.uniform_(weight, -bound, bound)

    def extra_repr(self):
        text = f"{self.input_size}, {self.hidden_size}"
        if not self.bias:
            text += ", bias=False"
        return text + (f", num_heads={self.num_heads}" if self.num_heads != 1 else "")

    def forward(self, input, hx=None, **unknown):
        """Runs one step and returns the new state.

        Args:
            input: ``[B, I]`` or ``[I]``.
            hx: The state before the step, ``[B, H]`` or ``[H]``; a tuple for cells with several states. None: zeros.

        Returns:
            The new state in the shape of ``hx``. The first of several states is the output.

        Raises:
            ValueError, RuntimeError: A shape or a dtype does not fit, as in torch.nn.
        """
        if unknown:
            check_unknown(Cell.forward, unknown)
        cell = self._cell()
        count = CELLS[cell][1]
        shape = input.shape
        if len(shape) not in (1, 2):
            raise ValueError(f"{type(self).__name__}: Expected input to be 1D or 2D, got {len(shape)}D instead")
        if shape[-1] != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {shape[-1]} expected {self.input_size}")
        has_rows = len(shape) == 2
        states = () if hx is None else (hx,) if count == 1 else tuple(hx)
        if hx is not None:
            self._check_states(shape, states, count)
        weights = self._weights()
        dtype = weights[0].dtype
        if input.dtype != dtype or (states and any(state.dtype != dtype for state in states)):
            self._refuse_types(input, dtype, states)
        after = one_step(input, weights, states, cell)
        if after is not None:
            return after[0] if count == 1 else tuple(after)
        steps = () if has_rows else (1,)  # and an axis B
        x, *states = (t.reshape(1, *steps, *t.shape) for t in (input, *states))
        y, *last = run_layers(x, weights, states, (None, None, None), cell, 1, False, False, False)
        last = tuple(state.to(y.dtype).flatten(0, 0 if has_rows else 1)[0] for state in last)
        return last[0] if count == 1 else last

    def _weights(self):
        """Returns the existing weights in the order of the op."""
        parameters = self._parameters
        try:
            weights = [parameters[name] for name in _WEIGHTS]
        except KeyError:  # parametrised weights are computed on access
            weights = [getattr(self, name) for name in _WEIGHTS]
        return [w for w in weights if w is not None]

    def _refuse_types(self, input, dtype, states):
        """Raises RuntimeError for mixed dtypes, as torch.nn does, except under autocast, which produces them."""
        if torch.is_autocast_enabled(input.device.type):
            return
        found = [str(tensor.dtype) for tensor in (input, *states)]
        raise RuntimeError(f"input and hx must have the dtype of the weights, {dtype}, and are {', '.join(found)}")

    def _check_states(self, input_shape, states, count):
        if len(states) != count:
            raise RuntimeError(f"{type(self).__name__}: hx must hold {count} states, got {len(states)}")
        for i, state in enumerate(states):
            shape = state.shape
            if len(shape) not in (1, 2):
                what = "hidden" if count == 1 else f"hx[{i}]"
                raise ValueError(
                    f"{type(self).__name__}: Expected {what} to be 1D or 2D, got {len(shape)}D instead"
                )
            if shape[-1] != self.hidden_size:
                raise RuntimeError(
                    f"hidden{i} has inconsistent hidden_size: got {shape[-1]}, expected {self.hidden_size}"
                )
            if shape[:-1] != input_shape[:-1]:
                rows, wanted = (s[0] if len(s) == 2 else 1 for s in (shape, input_shape))
                raise RuntimeError(f"Input batch size {wanted} doesn't match hidden{i} batch size {rows}")


class RNNCell(Cell):
    """One step of an Elman network, like ``torch.nn.RNNCell``."""

    def __init__(self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None, *,
                 num_heads=1):  # fmt: skip
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, bias, device, dtype, num_heads=num_heads)

    def _cell(self):
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return "elman" if self.nonlinearity == "tanh" else "elman-relu"


class GRUCell(Cell):
    """One step of a gated recurrent unit, like ``torch.nn.GRUCell``."""

    _kind = "gru"


class LSTMCell(Cell):
    """One step of an LSTM, like ``torch.nn.LSTMCell``. Returns ``(h, c)``."""

    _kind = "lstm"


class SLSTMCell(Cell):
    """One step of an sLSTM. Returns ``(h, c, n, m)``."""

    _kind = "slstm"


class _ScanCell(Cell):
    """Base of cells whose gates depend on the input only."""

    candidate = "linear"  # of cells pickled when they had no other

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None, *, num_heads=1,
                 candidate="linear"):  # fmt: skip
        self.candidate = candidate
        super().__init__(input_size, hidden_size, bias, device, dtype, num_heads=num_heads)

    def _cell(self):
        return minimal_cell(self._kind, self.candidate)


class MinGRUCell(_ScanCell):
    """One step of a minGRU.

    Args:
        candidate: ``"linear"`` or ``"positive"``, as for :class:`MinGRU`.

    The other arguments are those of ``torch.nn.GRUCell``.
    """

    _kind = "mingru"


class MinLSTMCell(_ScanCell):
    """One step of a minLSTM. The arguments are those of :class:`MinGRUCell`."""

    _kind = "minlstm"
