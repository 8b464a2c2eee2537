"""Regularisation of the recurrence in training: DropConnect, dropout of the state, zoneout."""

import torch
from torch.nn import functional

from .._cell_forms import CELLS
from ._checks import is_exported
from ._composed import composed_op
from ._higher_derivatives import entering
from ._masked_cells import VARIANTS, masked_cell, run_masked
from ._ops import is_eager


class Noise:
    """Dropout and zoneout in the recurrence of layers of a cell. The other arguments are those of regularise()."""

    def __init__(self, cell, drop_connect, recurrent_dropout, zoneout, cell_zoneout):
        self.drop_connect, self.recurrent_dropout = drop_connect, recurrent_dropout
        self.zoneout = (zoneout, cell_zoneout)
        self._arguments = (cell, drop_connect, recurrent_dropout, zoneout, cell_zoneout)
        options = {name: value for name, value in zip(("zoneout", "cell_zoneout"), self.zoneout) if value}
        self._expected = str(VARIANTS[cell](**options)) if cell in VARIANTS and options else None
        #: The cell that the layer evaluates, or a text if there is none that does.
        self.evaluated = self._expected or (f"{cell}{self!r} in evaluation" if options else cell)

    def __reduce__(self):
        return Noise, self._arguments  # the expected cell becomes known in the other process, too

    def __repr__(self):
        names = ("drop_connect", "recurrent_dropout", "zoneout", "cell_zoneout")
        values = (self.drop_connect, self.recurrent_dropout, *self.zoneout)
        return "".join(f", {name}={value}" for name, value in zip(names, values) if value)

    def steps(self, training):
        """Returns True if the noise changes what a step computes, and not only the recurrent matrix."""
        return any(self.zoneout) or (training and self.recurrent_dropout > 0)

    def expected_cell(self, x):
        """Returns the cell that computes the expectation under zoneout; None if no kernel does for x."""
        types = (torch.float32, torch.float64) if x.device.type == "cpu" else (torch.float32, torch.bfloat16, torch.float16)
        return self._expected if x.dtype in types else None

    def weights(self, names, weights):
        """Returns weights with DropConnect on the recurrent matrices."""
        if not self.drop_connect:
            return weights
        dropped = zip(names, weights)
        return [functional.dropout(w, self.drop_connect, True) if n.startswith("weight_hh") else w for n, w in dropped]


class _Around:
    """What _composed._layer() does around a cell."""

    def __init__(self, noise, training, dtype):
        self._noise, self._training, self._dtype = noise, training, dtype

    def layer(self, cell, wx, weight_hh, bias_hh, learnt, states, valid, reset, reverse, kept):
        """Runs a dense layer with the masks in one call. `states` may have those of resets behind those of the rows.
        Returns None if it has to run step by step."""
        zoned = tuple(k for k, share in enumerate(self._noise.zoneout) if share)
        share = self._noise.recurrent_dropout
        kernels = wx.device.type == "cpu" or (wx.is_cuda and self._dtype != torch.float64)
        eager = is_eager(wx, weight_hh, bias_hh, learnt, states)
        name = masked_cell(cell, zoned, share > 0) if self._training and kernels and eager else None
        if name is None:
            return None
        # The same random numbers in the same order as step by step, on a CPU.
        before = states[0][: wx.shape[1]]
        dropped = functional.dropout(torch.ones_like(before), share, True) == 0 if share else None
        draws = torch.rand(len(wx), len(zoned), *before.shape, dtype=states[0].dtype, device=wx.device)
        draws = draws.flip(0) if reverse else draws
        keeps = {k: draws[:, i] < self._noise.zoneout[k] for i, k in enumerate(zoned)}
        wx = wx.to(self._dtype) if wx.is_cuda else wx
        rows = None if valid is None else valid.sum(0), reset
        return run_masked(name, wx, weight_hh, bias_hh, learnt, states, rows, reverse, kept, keeps, dropped, share)

    def product(self, product, states):
        """Returns the recurrent product with one mask for the whole sequence."""
        if not (self._training and self._noise.recurrent_dropout):
            return product
        mask = functional.dropout(torch.ones_like(states[0]), self._noise.recurrent_dropout, True)
        return lambda h: product(h * mask)

    def states(self, before, after):
        """Returns the next states."""
        shares = (*self._noise.zoneout, *[0.0] * len(after))
        return tuple(self._zoned(*each) if each[0] else each[2] for each in zip(shares, before, after))

    def _zoned(self, share, before, after):
        if self._training:
            return torch.where(torch.rand_like(before) < share, before, after)
        return share * before + (1 - share) * after

    def terms(self, a, b):
        """Returns a and b of a scan cell: where a state keeps its value, they are 1 and 0."""
        share = self._noise.zoneout[0]
        if not self._training:
            return share + (1 - share) * a, (1 - share) * b
        keeps = torch.rand_like(a) < share
        return a.masked_fill(keeps, 1.0), b.masked_fill(keeps, 0.0)


def _probability(name, value, most=True):
    number = float(value)
    if not (0 <= number <= 1 if most else 0 <= number < 1):
        raise ValueError(f"{name} must be 0 to 1{'' if most else ', and less than 1'}, not {value}")
    return number


def regularise(layer, *, drop_connect=0.0, recurrent_dropout=0.0, zoneout=0.0, cell_zoneout=0.0):
    """Makes a layer drop parts of its recurrence while it trains, and returns the layer.

    Each call replaces what an earlier one set. All masks come from PyTorch's generator of the layer's device. The layer's
    ``dropout=`` remains what it is in torch.nn: dropout between layers.

    Args:
        layer: A module of :mod:`penstock.torch`: RNN, GRU, LSTM, SLSTM, Recurrent, MinGRU or MinLSTM.
        drop_connect: Probability that an element of a recurrent matrix is zero for one call (Wan et al. 2013; Merity et
            al. 2018). The others are divided by 1 - p. The kernels run as always.
        recurrent_dropout: Probability that a unit's state is zero in the recurrent product. One mask for each row holds
            for the whole sequence and all gates (Gal and Ghahramani 2016). Training runs the kernels of a cell that has
            the masks as one more gate: on a CPU this takes 1.4 to 2.7 times as long. SLSTM, cells with 5 gates or 4
            states, ``torch.compile`` and ``torch.func`` run step by step in PyTorch's operations instead. Evaluation
            has no masks and runs the layer's kernels.
        zoneout: Probability that a unit's output h keeps its value from the step before (Krueger et al. 2017). Training
            runs as with ``recurrent_dropout``. Evaluation computes the expectation: with the kernels as a cell of
            :mod:`penstock.variants` for RNN, GRU and LSTM, in 16 bits on a GPU alone; otherwise step by step. Scan
            cells, such as MinGRU, run as a scan in both.
        cell_zoneout: The same for the state c of an LSTM.

    Raises:
        TypeError: ``layer`` is not such a module.
        ValueError: A probability is impossible, or the layer has nothing to which it could apply.

    >>> import torch, penstock.torch
    >>> penstock.torch.regularise(penstock.torch.LSTM(3, 5), drop_connect=0.3, zoneout=0.1)
    LSTM(3, 5, drop_connect=0.3, zoneout=0.1)
    """
    from ._rnn_base import RNNBase

    if not isinstance(layer, RNNBase):
        raise TypeError(f"layer must be a recurrent layer of penstock.torch, such as LSTM, not {type(layer).__name__}")
    cell = layer._cell()
    of_matrix = _probability("drop_connect", drop_connect, False), _probability("recurrent_dropout", recurrent_dropout, False)
    of_states = _probability("zoneout", zoneout), _probability("cell_zoneout", cell_zoneout)
    _, states, scans = CELLS[cell]
    if scans and any(of_matrix):
        raise ValueError(
            f"drop_connect and recurrent_dropout must be 0 for {type(layer).__name__}, which has no recurrent matrix: use "
            "zoneout, or dropout of its input"
        )
    if of_states[1] and states != 2:
        raise ValueError(f"cell_zoneout must be 0 for {type(layer).__name__}, which has no state c: it is for LSTM")
    noise = Noise(cell, *of_matrix, *of_states)
    if layer.proj_size > 0 and noise.steps(True):
        raise ValueError("recurrent_dropout and zoneout must be 0 for an LSTM with proj_size: use drop_connect")
    if getattr(layer, "process_group", None) is not None and noise.steps(True):
        raise ValueError("zoneout must be 0 for a layer whose sequences several processes share")
    layer._noise = noise
    return layer


def run_noisy(noise, training, x, weights, states, rows, form, every_state):
    """Runs layers with noise; `form` is (cell, layers, bidirectional, batch_first). Returns what
    run_layers() does."""
    if torch.onnx.is_in_onnx_export() or is_exported():
        raise RuntimeError(
            "a layer that trains with recurrent_dropout or zoneout, or evaluates zoneout of such a cell, cannot be "
            "exported: call eval() first, and set zoneout to 0 by penstock.torch.regularise()"
        )
    from ._ops import scan

    if not states:
        states = tuple(entering(x, weights, None, rows[1], *form))
    around = _Around(noise, training, x.dtype)
    y, last, every = composed_op(x, weights, states, *rows, *form, every_state, scan=scan, around=around)
    return [y, *last, every] if every_state else [y, *last]
