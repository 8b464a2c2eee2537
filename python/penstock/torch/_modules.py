"""Recurrent layers as modules: replacements of torch.nn's layers, and layers that torch.nn does not have."""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parameter import Parameter

from .._cell_forms import describe_cell, initial_values, learnt_vectors, parameter_shapes
from .._minimal import minimal_cell
from ._checks import check_sizes, refuse_projection
from ._composed import terms_of
from ._ops import autocast_sequence, keeps_tape
from ._parallel_layer import Reach, shared_layer
from ._sequence_parallel import Shared
from ._rnn_base import RNNBase


class RNN(RNNBase):
    """Elman network with the arguments and results of ``torch.nn.RNN``.

    Args:
        num_heads: Number of diagonal blocks of the recurrent matrix; must divide ``hidden_size``.

    The other arguments are those of ``torch.nn.RNN``.
    """

    def __init__(self, input_size, hidden_size, num_layers=1, nonlinearity="tanh", bias=True, batch_first=False,
                 dropout=0.0, bidirectional=False, device=None, dtype=None, *, num_heads=1, **others):  # fmt: skip
        refuse_projection(others, RNN)
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        self.nonlinearity = nonlinearity
        super().__init__(
            f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias, batch_first, dropout,
            bidirectional, device=device, dtype=dtype,
        )  # fmt: skip
        self._divide_into_heads(num_heads)

    def _cell(self):
        return "elman" if self.nonlinearity == "tanh" else "elman-relu"


class GRU(RNNBase):
    """Gated recurrent unit with the arguments and results of ``torch.nn.GRU``.

    Args:
        num_heads: Number of diagonal blocks of the recurrent matrices; must divide ``hidden_size``.
        reset_after: True: the reset gate applies after the recurrent product, as in torch.nn. False: before it, as
            first published and in older models of TensorFlow.

    The other arguments are those of ``torch.nn.GRU``.
    """

    def __init__(self, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
                 bidirectional=False, device=None, dtype=None, *, num_heads=1, reset_after=True, **others):  # fmt: skip
        refuse_projection(others, GRU)
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device,
            dtype=dtype,
        )  # fmt: skip
        self.reset_after = reset_after
        self._divide_into_heads(num_heads)

    def _cell(self):
        return "gru" if self.reset_after else "gru-before"


class LSTM(RNNBase):
    """Long short-term memory with the arguments and results of ``torch.nn.LSTM``.

    Projections (``proj_size > 0``) run in the kernels, except for single steps and, on a CPU, for calls in which
    PyTorch's own LSTM needs much less arithmetic (docs/pytorch.md, Limits).

    Args:
        num_heads: Number of diagonal blocks of the recurrent matrices; must divide ``hidden_size``. It excludes
            ``proj_size``.

    The other arguments are those of ``torch.nn.LSTM``.
    """

    _kind = "lstm"

    def __init__(self, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
                 bidirectional=False, proj_size=0, device=None, dtype=None, *, num_heads=1):  # fmt: skip
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device,
            dtype,
        )  # fmt: skip
        self._divide_into_heads(num_heads)


class _OwnStack(RNNBase):
    """Base of stacks that torch.nn does not have, with torch.nn's attributes and parameter names."""

    def __init__(self, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
                 bidirectional=False, device=None, dtype=None, *, num_heads=1):  # fmt: skip
        nn.Module.__init__(self)
        check_sizes(input_size, hidden_size, num_layers, bias, batch_first, dropout)
        self.mode = type(self).__name__
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = 0
        self._flat_weight_refs = []
        self._flat_weights_names = []
        self._all_weights = []
        directions = 2 if bidirectional else 1
        for layer in range(num_layers):
            width = input_size if layer == 0 else hidden_size * directions
            for direction in range(directions):
                self._add_parameters(f"_l{layer}" + ("_reverse" if direction else ""), width, device, dtype)
        self._init_flat_weights()
        self.reset_parameters()
        self._divide_into_heads(num_heads)

    def _add_parameters(self, suffix, width, device, dtype):
        shapes = parameter_shapes(self._cell(), width, self.hidden_size, 1, "both" if self.bias else "none")
        names = [name + suffix for name in shapes]
        for name, shape in zip(names, shapes.values()):
            self.register_parameter(name, Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self._flat_weights_names.extend(names)
        self._all_weights.append(names)


class Recurrent(_OwnStack):
    """A stack of layers of any cell, a cell of your own included (:func:`penstock.cell`).

    Learnt vectors of the cell stand behind the gates of ``bias_ih_l0``, and so on.

    Args:
        cell: Name of a cell, or what :func:`penstock.cell` returned.

    The other arguments are those of ``torch.nn.LSTM`` without ``proj_size``, and ``num_heads`` as for :class:`LSTM`.
    """

    def __init__(self, cell, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
                 bidirectional=False, device=None, dtype=None, *, num_heads=1):  # fmt: skip
        self._name, self._json = describe_cell(cell)
        if learnt_vectors(self._name) and not bias:
            raise ValueError(f"bias must be True for the cell {self._name}, whose learnt vectors stand behind bias_ih")
        options = (num_layers, bias, batch_first, dropout, bidirectional, device, dtype)
        super().__init__(input_size, hidden_size, *options, num_heads=num_heads)
        self.mode = self._name

    def _cell(self):
        return self._name

    def reset_parameters(self):
        """Sets initial weights as torch.nn does, and learnt vectors to the initial values of the cell."""
        super().reset_parameters()
        initial = initial_values(self._json)
        for name in self._flat_weights_names if initial else ():
            if name.startswith("bias_ih"):
                with torch.no_grad():
                    learnt = getattr(self, name)[-len(initial) * self.hidden_size :].view(len(initial), -1)
                    learnt.copy_(learnt.new_tensor(initial).unsqueeze(1).expand_as(learnt))

    def __setstate__(self, state):
        describe_cell(state["_name"], state["_json"])  # known in this process from here on
        super().__setstate__(state)


class SLSTM(_OwnStack):
    """sLSTM of xLSTM (Beck et al. 2024) with an exponential input gate, normaliser and stabiliser. Gates: i, f, z, o.

    Its four states are h, c, n, m, each ``[num_layers * directions, B, H]``. A row with n = 0 starts without a past.
    The arguments are those of ``torch.nn.LSTM`` without ``proj_size``, and ``num_heads`` as for :class:`LSTM`.
    """

    _kind = "slstm"


class _ScanStack(_OwnStack):
    """Base of stacks of scan cells, which have no recurrent matrix. Several processes may share a sequence."""

    def __init__(self, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
                 bidirectional=False, device=None, dtype=None, *, candidate="linear",
                 process_group=None):  # fmt: skip
        self.candidate = candidate
        self._cell()  # refuses other candidates
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype)
        self._process_group = Shared(process_group)
        self._reach = Reach()

    def _cell(self):
        return minimal_cell(self._kind, self.candidate)

    @property
    def process_group(self):
        return self._process_group.group

    def _run_layers(self, x, weights, states, rows, layers, batch_first, every_state):
        if self.process_group is None:
            return super()._run_layers(x, weights, states, rows, layers, batch_first, every_state)
        lengths, batch_sizes, reset = rows
        if batch_sizes is not None:
            raise ValueError(f"{type(self).__name__}: a PackedSequence and process_group exclude each other")
        if not batch_first:
            x = x.transpose(0, 1)
        directions = 2 if self.bidirectional else 1
        each = len(weights) // (layers * directions)
        last = []
        for layer in range(layers):
            outputs = []
            for direction in range(directions):
                slot = layer * directions + direction
                own = weights[slot * each : (slot + 1) * each]
                h0 = states[0][slot] if states else None
                form = (lengths, reset, self._cell(), direction == 1, self.process_group, self._reach)
                y, after = shared_layer(x, own, h0, *form)
                outputs.append(y)
                last.append(after)
            x = torch.cat(outputs, -1) if directions == 2 else outputs[0]
        return [x if batch_first else x.transpose(0, 1), torch.stack(last)]

    def _leaving(self, results, every_state):
        """Converts states, except across processes: there they stay float for the next chunk."""
        return super()._leaving(results, every_state) if self.process_group is None else tuple(results)


class MinGRU(_ScanStack):
    """minGRU (Feng et al. 2024): h_t = (1 - z_t) h_{t-1} + z_t h~_t. The gates depend on the input only.

    It runs as a scan, in parallel over the sequence.

    Args:
        candidate: ``"linear"`` (h~ = W x) or ``"positive"`` (h~ = g(W x) with g(x) = x + 0.5 for x >= 0 and sigmoid(x)
            below, as in appendix B of the paper). Files call the cell with a positive candidate ``mingru-log``.
        process_group: A group of torch.distributed that shares each sequence. Each process has a chunk of T, in the
            order of ranks, with the same B. ``hx`` is read by the process where a direction starts. ``lengths`` count
            the steps of the chunk; all processes give them or none. Last states are those after the chunk. Each process
            runs the backward pass and gets the gradients of its chunk; the caller sums them. None: one process.

    The other arguments are those of ``torch.nn.GRU``.
    """

    _kind = "mingru"


class MinLSTM(_ScanStack):
    """minLSTM (Feng et al. 2024): h_t = f_t h_{t-1} + i_t h~_t. The gates f and i are divided by their sum.

    It runs as a scan, in parallel over the sequence. The arguments are those of :class:`MinGRU`.
    """

    _kind = "minlstm"
