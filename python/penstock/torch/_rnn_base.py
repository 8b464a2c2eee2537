"""What all stacks of recurrent layers share as modules."""

import copy

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parameter import Parameter
from torch.nn.utils.rnn import PackedSequence

from .._cell_forms import CELLS
from .._keywords import check_unknown
from ._checks import Foreign, check_lengths, check_reset_mask, check_state_types, lengths_as_tensor
from ._episodes import before_step, kernels_start_again, restarts_of, run_episodes, with_restarts
from ._cell_names import CellNote
from ._ops import autocast_sequence, run_layers
from ._projection import run_projected
from ._regularise import run_noisy


def _each_of(states, change):
    """Returns the changed states: one, or a tuple of them."""
    return change(states) if isinstance(states, torch.Tensor) else tuple(map(change, states))


class RNNBase(CellNote, Foreign, nn.RNNBase):
    """Base of all stacks of layers: passes inputs, states, lengths and packed rows to the op.

    Attributes, parameters and errors are those of torch.nn's recurrent layers.
    """

    num_heads: int
    _noise = None  # set by regularise()

    def _cell(self):
        """Returns the name of the cell in the library."""
        return self._kind

    def _evaluated(self):
        return self._noise.evaluated if self._noise else self._cell()

    def flatten_parameters(self):
        """Does nothing: Penstock needs no flattened weights."""

    # torch.onnx.export(dynamo=False) gives all arguments by position, and of other values than tensors None alone.
    def forward(self, input, hx=None, lengths=None, reset_mask=None, every_state=None, reset_to=None, **unknown):
        """Runs whole sequences and returns the outputs and the last states.

        Args:
            input: ``[T, B, I]``, ``[B, T, I]`` with ``batch_first``, ``[T, I]`` without a batch, or a PackedSequence.
            hx: The initial states ``[num_layers * directions, B, H]``; for cells with several states a tuple of them.
                None: zeros.
            lengths: int64 ``[B]`` or a list of B integers: number of steps of each row. Later steps are not read, and
                their outputs are zeros. None: all rows have T steps.
            reset_mask: bool, with the first two axes of the input, or a PackedSequence for a packed input. True resets
                the states to zero before this step.
            every_state: True: also returns the other states of the last layer after each step, for LSTM and SLSTM only.
            reset_to: The states that ``reset_mask`` starts again with; they get gradients. One for all rows
                ``[num_layers, H]``, one for each row ``[num_layers, B, H]``, or one for each step
                ``[num_layers, B, T, H]``, read at the resets only. For cells with several states, a tuple of them.
                None: zeros. On GPUs, except in scans, in single steps and in heads of up to 1,024 units on Hopper, the
                call cuts the rows at the resets and runs the parts as rows; the host waits for their number, except in
                CUDA graphs and ``torch.compile``. It needs ``reset_mask`` and an input with rows; ``lengths``,
                ``bidirectional`` and ``process_group`` are not supported.

        Returns:
            The outputs ``[T, B, directions * H]`` in the layout of the input, and the last states in the shape of
            ``hx``. With ``every_state`` also a tuple of the other states in the layout of the outputs: ``(c,)`` for an
            LSTM, ``(c, n, m)`` for an sLSTM.

        Raises:
            ValueError, RuntimeError, TypeError: An argument does not fit, as in torch.nn.
        """
        if unknown:
            check_unknown(RNNBase.forward, unknown)
        if every_state and CELLS[self._cell()][1] == 1:
            raise ValueError(f"{type(self).__name__} has no states but its outputs: every_state is for LSTM and SLSTM")
        if reset_to is not None:
            self._check_reset_to(input, lengths, reset_mask)
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx, lengths, reset_mask, every_state)
        if input.dim() != 3:
            return self._forward_without_rows(input, hx, lengths, reset_mask, every_state)
        states = self._entering(input, hx, None)
        if lengths is not None:
            lengths = lengths_as_tensor(lengths, input.device)
            check_lengths(lengths, input.shape[0 if self.batch_first else 1])
        if reset_mask is not None:
            check_reset_mask(reset_mask, input.shape[:2], input.device)
            if reset_to is not None and reset_mask.numel():
                restarts = self._as_tuple(reset_to, "reset_to")
                by_rows = input if self.batch_first else input.transpose(0, 1)
                restarts = restarts_of(restarts, self.num_layers, self._state_sizes(), by_rows)
                if input.is_cuda and input.shape[int(self.batch_first)] == 1:
                    states, reset_mask = before_step(states, restarts, reset_mask), None
                elif not self._starts_again(input.device):
                    return run_episodes(self, input, states, reset_mask, restarts, every_state)
                else:
                    states = (*(states or [None] * len(restarts)), *restarts)
            if reset_mask is not None and not self.batch_first:
                reset_mask = reset_mask.t().contiguous()  # here, so that the backward pass need not copy it again
        return self._leaving(self._run(input, states, (lengths, None, reset_mask), every_state), every_state)

    def _starts_again(self, device):
        """Returns whether the kernels start rows again at given states."""
        if device.type == "cuda" and self._noise and self._noise.steps(self.training) and not CELLS[self._cell()][2]:
            return False
        return kernels_start_again(self._cell(), self.hidden_size // self.num_heads, device)

    def _check_reset_to(self, input, lengths, reset_mask):
        """Raises ValueError for arguments that exclude reset_to."""
        if reset_mask is None:
            raise ValueError("reset_to needs reset_mask, which says where the states start again")
        if isinstance(input, PackedSequence) or input.dim() != 3 or lengths is not None or self.bidirectional:
            raise ValueError(
                "reset_to needs a padded input with rows, 3D, one direction, and no lengths: run the layer on each "
                "part of a sequence, with hx"
            )
        if getattr(self, "process_group", None) is not None:
            raise ValueError("reset_to and process_group exclude each other: set the group to None, or use reset_mask")

    def _divided(self, every, dtype):
        """Splits [..., directions * (S - 1) * H] into a tuple of S - 1 states."""
        directions, count = 2 if self.bidirectional else 1, CELLS[self._cell()][1] - 1
        if every.dtype != dtype:
            every = every.to(dtype)
        return tuple(s.flatten(-2) for s in every.unflatten(-1, (directions, count, self.hidden_size)).unbind(-2))

    def _forward_without_rows(self, input, hx, lengths, reset_mask, every_state):
        name = type(self).__name__
        if input.dim() != 2:
            raise ValueError(f"{name}: Expected input to be 2D or 3D, got {input.dim()}D tensor instead")
        if lengths is not None:
            raise ValueError(f"{name}: lengths need an input with rows, 3D")
        if hx is not None:
            states = self._as_tuple(hx)
            if any(s.dim() != 2 for s in states):
                dims = ", ".join(f"{s.dim()}-D" for s in states)
                raise RuntimeError(f"For unbatched 2-D input, hx should also be 2-D but got {dims} tensor")
            hx = tuple(s.unsqueeze(1) for s in states)
        axis = 0 if self.batch_first else 1
        x = input.unsqueeze(axis)
        states = self._entering(x, hx, None)
        if reset_mask is not None:
            check_reset_mask(reset_mask, input.shape[:1], input.device)
            reset_mask = reset_mask.unsqueeze(0)
        results = self._run(x, states, (None, None, reset_mask), every_state)
        y, last, *every = self._leaving(results, every_state)
        last = _each_of(last, lambda s: s.squeeze(1))
        return y.squeeze(axis), last, *(tuple(s.squeeze(axis) for s in others) for others in every)

    def _forward_packed(self, input, hx, lengths, reset_mask, every_state):
        if lengths is not None:
            raise ValueError(f"{type(self).__name__}: a PackedSequence has its own lengths")
        data, batch_sizes, sorted_indices, unsorted_indices = input
        if hx is not None and sorted_indices is not None:
            hx = tuple(s.index_select(1, sorted_indices) for s in self._as_tuple(hx))
        if reset_mask is not None:
            if not isinstance(reset_mask, PackedSequence):
                raise TypeError("reset_mask must be a PackedSequence, packed as the input is")
            reset_mask = reset_mask.data
            check_reset_mask(reset_mask, data.shape[:1], data.device)
        states = self._entering(data, hx, batch_sizes)
        results = self._run(data, states, (None, batch_sizes, reset_mask), every_state)
        y, last, *every = self._leaving(results, every_state)
        if unsorted_indices is not None:
            last = _each_of(last, lambda s: s.index_select(1, unsorted_indices))
        form = (batch_sizes, sorted_indices, unsorted_indices)
        return PackedSequence(y, *form), last, *(tuple(PackedSequence(s, *form) for s in others) for others in every)

    def _as_tuple(self, hx, name="hx"):
        """Returns hx as a tuple of states; a cell with one state takes a tensor."""
        count = CELLS[self._cell()][1]
        states = (hx,) if isinstance(hx, torch.Tensor) else tuple(hx)
        if len(states) != count or (isinstance(hx, torch.Tensor) and count > 1):
            raise RuntimeError(f"{name} must hold the {count} states of {type(self).__name__}, not {len(states)}")
        for state in states:
            if not isinstance(state, torch.Tensor):
                raise TypeError(f"{name} must be a tensor or a tuple of tensors, not of {type(state).__name__}")
        return states

    def _layer_alone(self, i):
        """Returns layer i of a stack as a layer with the same parameters and options."""
        if self.num_layers == 1:
            return self
        one, each = copy.copy(self), len(self._flat_weights_names) // self.num_layers
        one._flat_weights_names = self._flat_weights_names[i * each : (i + 1) * each]
        one.num_layers, one.dropout = 1, 0.0
        if i > 0:
            one.input_size = self._state_sizes()[0] * (2 if self.bidirectional else 1)
        return one

    def _state_sizes(self):
        """Returns the number of units of each state of the cell."""
        return [self.proj_size or self.hidden_size] + [self.hidden_size] * (CELLS[self._cell()][1] - 1)

    def _entering(self, x, hx, batch_sizes):
        """Checks the input and the states. Returns the states as a tuple, empty if hx is None."""
        self.check_input(x, batch_sizes)
        if hx is None:
            return ()
        states = self._as_tuple(hx)
        if batch_sizes is None and any(s.dim() != 3 for s in states):
            dims = ", ".join(f"{s.dim()}-D" for s in states)
            raise RuntimeError(f"For batched 3-D input, hx should also be 3-D but got ({dims}) tensors")
        h_size = self.get_expected_hidden_size(x, batch_sizes)
        for i, state in enumerate(states):
            if len(states) == 1:
                self.check_hidden_size(state, h_size)
            else:
                size = h_size if i == 0 else (*h_size[:2], self.hidden_size)
                self.check_hidden_size(state, size, f"Expected hidden[{i}] size {{}}, got {{}}")
        check_state_types(states, x)
        return states

    def _leaving(self, results, every_state):
        """Returns the outputs, the last states (a tensor or a tuple), and with `every_state` a tuple of the others."""
        if every_state:
            *results, every = results
            return *self._leaving(results, False), self._divided(every, results[0].dtype)
        y, *last = results
        if last[0].dtype != y.dtype:
            last = [state.to(y.dtype) for state in last]
        return y, last[0] if len(last) == 1 else tuple(last)

    def _weights(self):
        parameters = self._parameters
        try:
            weights = [parameters[name] for name in self._flat_weights_names]
        except KeyError:  # parametrised weights are computed on access
            weights = [getattr(self, name) for name in self._flat_weights_names]
        return self._noise.weights(self._flat_weights_names, weights) if self._noise and self.training else weights

    def _run(self, x, states, rows, every_state):
        """Returns [y, last states, each [layers * directions, B, H]] and, with `every_state`, the other states of the
        last layer as the op returns them. `rows` is (lengths, batch_sizes, reset)."""
        weights = self._weights()
        if not (self.training and self.dropout > 0 and self.num_layers > 1):
            return self._run_layers(x, weights, states, rows, self.num_layers, self.batch_first, every_state)
        # PyTorch's own dropout between the layers, in time-first layout: it draws the same mask as torch.nn.
        rows_first = self.batch_first and rows[1] is None
        if rows_first:
            x = x.transpose(0, 1)
        directions = 2 if self.bidirectional else 1
        each = len(weights) // self.num_layers
        last = []
        for layer in range(self.num_layers):
            if layer > 0:
                x = functional.dropout(x, self.dropout, True)
            slots = slice(layer * directions, (layer + 1) * directions)
            entering = tuple(s if s is None else s[slots] for s in states)
            own = weights[layer * each : (layer + 1) * each]
            wanted = every_state and layer == self.num_layers - 1
            x, *after = self._run_layers(x, own, entering, rows, 1, False, wanted)
            every = [after.pop()] if wanted else []
            last.append(after)
        if rows_first:
            x, *every = (sequence.transpose(0, 1) for sequence in (x, *every))
        return [x, *(torch.cat(each) for each in zip(*last)), *every]

    def _run_layers(self, x, weights, states, rows, layers, batch_first, every_state):
        cell, form = self._cell(), (layers, self.bidirectional, batch_first)
        if self.proj_size > 0 or self._noise:
            states = with_restarts(x, states, rows[2], CELLS[cell][1])
        if self.proj_size > 0:
            return run_projected(x, weights, states, rows, cell, *form, every_state)
        if self._noise and self._noise.steps(self.training):
            x = autocast_sequence(x)
            expected = None if self.training else self._noise.expected_cell(x)
            if expected is None:
                return run_noisy(self._noise, self.training, x, weights, states, rows, (cell, *form), every_state)
            cell = expected
        return run_layers(x, weights, states, rows, cell, *form, every_state)

    def _divide_into_heads(self, num_heads):
        """Makes the recurrent matrices block-diagonal, [num_heads, G * D, D] with D = H / num_heads."""
        self.num_heads = num_heads
        if not isinstance(num_heads, int):
            raise TypeError(f"num_heads should be of type int, got: {type(num_heads).__name__}")
        if num_heads < 1 or self.hidden_size % num_heads != 0:
            raise ValueError(f"num_heads must divide hidden_size {self.hidden_size}, got {num_heads}")
        if num_heads == 1:
            return
        if self.proj_size > 0:
            raise ValueError("num_heads and proj_size exclude each other")
        for name in self._flat_weights_names:
            if name.startswith("weight_hh"):
                whole = getattr(self, name)
                gates, hidden = whole.shape
                setattr(self, name, Parameter(whole.new_empty(num_heads, gates // num_heads, hidden // num_heads)))
        self._init_flat_weights()
        self.reset_parameters()

    def extra_repr(self):
        heads = f", num_heads={self.num_heads}" if self.num_heads != 1 else ""
        return super().extra_repr() + heads + (repr(self._noise) if self._noise else "")
