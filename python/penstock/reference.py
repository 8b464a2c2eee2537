"""Definitions of all cells in plain NumPy, one line per equation.

The code is slow and independent of the library; the tests compare the library with it in float64. A cell is a function
of these arguments:

* ``of``: the functions of arrays, such as :class:`OfArrays` for NumPy.
* ``wx``: the input term W x + b, one array ``[B, H]`` per gate.
* ``recurrent``: a function that returns R h + b for a vector h, one array ``[B, H]`` per gate.
* the states before the step, each ``[B, H]``.

It returns the states after the step; the first one is the output h.
"""

from __future__ import annotations

import numpy as np

__all__ = ["CELLS", "TERMS", "OfArrays", "forward", "scan"]


class OfArrays:
    """The functions of cells, for NumPy arrays."""

    exp, tanh, maximum, where = np.exp, np.tanh, np.maximum, np.where

    @staticmethod
    def sigmoid(x):
        return 0.5 * (1 + np.tanh(0.5 * x))

    @staticmethod
    def log_sigmoid(x):
        return -np.logaddexp(0, -x)

    @staticmethod
    def relu(x):
        return np.maximum(x, 0)


def linear(of, x):
    return x


def positive(of, x):
    """Returns the positive candidate of minGRU and minLSTM: x + 0.5 for x >= 0, sigmoid(x) below."""
    return of.where(x >= 0, x + 0.5, of.sigmoid(x))


def elman(of, wx, recurrent, h):
    return (of.tanh(wx[0] + recurrent(h)[0]),)


def elman_relu(of, wx, recurrent, h):
    return (of.relu(wx[0] + recurrent(h)[0]),)


def gru(of, wx, recurrent, h):
    """GRU with the reset gate after the recurrent product, as in PyTorch and cuDNN."""
    rh = recurrent(h)
    r = of.sigmoid(wx[0] + rh[0])
    z = of.sigmoid(wx[1] + rh[1])
    n = of.tanh(wx[2] + r * rh[2])
    return ((1 - z) * n + z * h,)


def gru_before(of, wx, recurrent, h):
    """GRU with the reset gate before the recurrent product, as first published."""
    rh = recurrent(h)
    r = of.sigmoid(wx[0] + rh[0])
    z = of.sigmoid(wx[1] + rh[1])
    n = of.tanh(wx[2] + recurrent(r * h)[2])
    return ((1 - z) * n + z * h,)


def lstm(of, wx, recurrent, h, c):
    rh = recurrent(h)
    i = of.sigmoid(wx[0] + rh[0])
    f = of.sigmoid(wx[1] + rh[1])
    g = of.tanh(wx[2] + rh[2])
    o = of.sigmoid(wx[3] + rh[3])
    c = f * c + i * g
    return o * of.tanh(c), c


def slstm(of, wx, recurrent, h, c, n, m):
    """sLSTM with the states h, c, normaliser n and stabiliser m. A row with n = 0 has no past."""
    rh = recurrent(h)
    log_i = wx[0] + rh[0]
    carried = of.log_sigmoid(wx[1] + rh[1]) + m
    z = of.tanh(wx[2] + rh[2])
    o = of.sigmoid(wx[3] + rh[3])
    empty = n == 0
    m = of.where(empty, log_i, of.maximum(log_i, carried))
    i = of.exp(log_i - m)
    f = of.where(empty, 0.0, of.exp(of.where(empty, m, carried) - m))
    c = f * c + i * z
    n = f * n + i
    return o * c / n, c, n, m


def mingru(of, wx, candidate):
    return of.sigmoid(-wx[0]), of.sigmoid(wx[0]) * candidate(of, wx[1])


def minlstm(of, wx, candidate):
    """minLSTM terms. The gates are normalised: f / (f + i) and i / (f + i)."""
    log_f, log_i = of.log_sigmoid(wx[0]), of.log_sigmoid(wx[1])
    return of.sigmoid(log_f - log_i), of.sigmoid(log_i - log_f) * candidate(of, wx[2])


#: Cells with a linear recurrence h_t = a_t h_{t-1} + b_t, as functions ``terms(of, wx)`` that return (a, b).
TERMS = {
    "mingru": lambda of, wx: mingru(of, wx, linear),
    "mingru-log": lambda of, wx: mingru(of, wx, positive),
    "minlstm": lambda of, wx: minlstm(of, wx, linear),
    "minlstm-log": lambda of, wx: minlstm(of, wx, positive),
}


def _step_of(terms):
    def step(of, wx, recurrent, h):
        a, b = terms(of, wx)
        return (a * h + b,)

    return step


#: By name of the cell: its function, number of gates, number of states.
CELLS = {
    "elman": (elman, 1, 1),
    "elman-relu": (elman_relu, 1, 1),
    "gru": (gru, 3, 1),
    "gru-before": (gru_before, 3, 1),
    "lstm": (lstm, 4, 2),
    "slstm": (slstm, 4, 4),
    "mingru": (_step_of(TERMS["mingru"]), 2, 1),
    "mingru-log": (_step_of(TERMS["mingru-log"]), 2, 1),
    "minlstm": (_step_of(TERMS["minlstm"]), 3, 1),
    "minlstm-log": (_step_of(TERMS["minlstm-log"]), 3, 1),
}


def _layer(cell, weights, suffix, x, state, lengths, reset_mask, reverse, heads):
    """Runs one layer in one direction over x ``[B, T, I]``. Returns y ``[B, T, H]`` and the states ``[S, B, H]``."""
    step, gates, states = CELLS[cell]
    rows, steps, _ = x.shape
    hidden = weights["weight_ih" + suffix].shape[0] // gates
    size = hidden // heads

    def bias(name):
        return weights.get(name + suffix, np.zeros(gates * hidden))

    # Rows of both matrices are ordered by gates. With several heads, those of the recurrent matrix are ordered by
    # heads, then by gates.
    w = weights["weight_ih" + suffix].reshape(gates, hidden, -1)
    b_ih, b_hh = bias("bias_ih").reshape(gates, hidden), bias("bias_hh").reshape(gates, hidden)
    matrix = weights.get("weight_hh" + suffix)
    r = None if matrix is None else matrix.reshape(heads, gates, size, size)

    state = [s.copy() for s in state]
    y = np.zeros((rows, steps, hidden))
    for t in reversed(range(steps)) if reverse else range(steps):
        runs = (t < lengths)[:, None]
        if reset_mask is not None:
            restart = reset_mask[:, t, None] & runs
            state = [np.where(restart, 0, s) for s in state]

        def recurrent(vector):
            parts = [vector[:, k * size : (k + 1) * size] for k in range(heads)]
            products = [[part @ r[k, gate].T for k, part in enumerate(parts)] for gate in range(gates)]
            return [np.concatenate(product, axis=1) + b for product, b in zip(products, b_hh)]

        # Padding may have any value, including NaN.
        x_t = np.where(runs, x[:, t], 0)
        wx = [x_t @ w[gate].T + b_ih[gate] for gate in range(gates)]
        new = step(OfArrays, wx, recurrent, *state)
        state = [np.where(runs, after, before) for after, before in zip(new, state)]
        y[:, t] = np.where(runs, new[0], 0)
    return y, np.stack(state)


def forward(cell, weights, x, h0=None, *, layers=1, direction="forward", heads=1, lengths=None, reset_mask=None):
    """Computes ``Recurrent.forward`` in float64.

    Args:
        cell: A key of :data:`CELLS`.
        weights: {name: array} with the names and shapes of ``Recurrent.parameters``.
        x: The input ``[B, T, I]``.
        h0: The initial states ``[S, layers * directions, B, H]``. None: zeros.
        layers: Number of stacked layers.
        direction: ``"forward"``, ``"reverse"`` or ``"bidirectional"``.
        heads: Number of diagonal blocks of the recurrent matrix.
        lengths: Number of steps of each row, ``[B]``. None: all rows have T steps.
        reset_mask: bool ``[B, T]``. True resets the states to zero before this step.

    Returns:
        y ``[B, T, H * directions]`` and the states ``[S, layers * directions, B, H]``.
    """
    weights = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    x = np.asarray(x, np.float64)
    _, gates, states = CELLS[cell]
    both = [("", False), ("_reverse", True)]
    directions = {"forward": both[:1], "reverse": both[1:], "bidirectional": both}[direction]
    hidden = weights["weight_ih_l0" + directions[0][0]].shape[0] // gates
    if h0 is None:
        h0 = np.zeros((states, layers * len(directions), x.shape[0], hidden))
    lengths = np.full(x.shape[0], x.shape[1]) if lengths is None else np.asarray(lengths)
    last = np.zeros_like(h0)
    for layer in range(layers):
        outputs = []
        for i, (suffix, reverse) in enumerate(directions):
            index = layer * len(directions) + i
            y, last[:, index] = _layer(
                cell, weights, f"_l{layer}{suffix}", x, h0[:, index], lengths, reset_mask, reverse, heads
            )
            outputs.append(y)
        x = np.concatenate(outputs, axis=2)
    return x, last


def scan(a, b, h0=None):
    """Computes ``h_t = a_t h_{t-1} + b_t`` in float64 and returns h ``[B, T, C]``.

    Args:
        a: ``[B, T, C]``.
        b: ``[B, T, C]``.
        h0: The initial state ``[B, C]``. None: zeros.
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    h = np.zeros((a.shape[0], a.shape[2])) if h0 is None else np.asarray(h0, np.float64)
    states = []
    for t in range(a.shape[1]):
        h = a[:, t] * h + b[:, t]
        states.append(h)
    return np.stack(states, axis=1)
