"""Every cell as its definition: plain NumPy, one line an equation, made to be read.

Nothing here is fast, and nothing here knows how the library computes: the tests hold the library to it in float64.
A cell is a function of what its gates get from the input (``wx``, ``[B, G, H]``), of what they get from a vector
through the recurrent matrix (``recurrent(gate, vector)``), and of its states before the step, each ``[B, H]``; it
returns the states after it, the first of which is the output h.
"""

from __future__ import annotations

import numpy as np

__all__ = ["CELLS", "forward", "scan"]


def sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))


def log_sigmoid(x):
    return -np.logaddexp(0, -x)


def positive(x):
    """The candidate of the log-space cells: x + 0.5 from 0 on, sigmoid(x) below."""
    return np.where(x >= 0, x + 0.5, sigmoid(x))


def elman(wx, recurrent, h):
    return (np.tanh(wx[:, 0] + recurrent(0, h)),)


def elman_relu(wx, recurrent, h):
    return (np.maximum(wx[:, 0] + recurrent(0, h), 0),)


def gru(wx, recurrent, h):
    """Reset after the product, as PyTorch and cuDNN have it."""
    r = sigmoid(wx[:, 0] + recurrent(0, h))
    z = sigmoid(wx[:, 1] + recurrent(1, h))
    n = np.tanh(wx[:, 2] + r * recurrent(2, h))
    return ((1 - z) * n + z * h,)


def gru_before(wx, recurrent, h):
    """Reset before the product, as first published."""
    r = sigmoid(wx[:, 0] + recurrent(0, h))
    z = sigmoid(wx[:, 1] + recurrent(1, h))
    n = np.tanh(wx[:, 2] + recurrent(2, r * h))
    return ((1 - z) * n + z * h,)


def lstm(wx, recurrent, h, c):
    i = sigmoid(wx[:, 0] + recurrent(0, h))
    f = sigmoid(wx[:, 1] + recurrent(1, h))
    g = np.tanh(wx[:, 2] + recurrent(2, h))
    o = sigmoid(wx[:, 3] + recurrent(3, h))
    c = f * c + i * g
    return o * np.tanh(c), c


def slstm(wx, recurrent, h, c, n, m):
    """States h, c, the normaliser n and the stabiliser m. n = 0: this row has seen nothing yet."""
    log_i = wx[:, 0] + recurrent(0, h)
    log_f = log_sigmoid(wx[:, 1] + recurrent(1, h))
    z = np.tanh(wx[:, 2] + recurrent(2, h))
    o = sigmoid(wx[:, 3] + recurrent(3, h))
    empty = n == 0
    m_new = np.where(empty, log_i, np.maximum(log_i, log_f + m))
    i = np.exp(log_i - m_new)
    f = np.where(empty, 0, np.exp(np.where(empty, 0, log_f + m - m_new)))
    c = f * c + i * z
    n = f * n + i
    return o * c / n, c, n, m_new


def mingru(wx, recurrent, h, candidate=lambda x: x):
    z = sigmoid(wx[:, 0])
    return ((1 - z) * h + z * candidate(wx[:, 1]),)


def minlstm(wx, recurrent, h, candidate=lambda x: x):
    """The two gates are shares: f / (f + i) and i / (f + i)."""
    log_f, log_i = log_sigmoid(wx[:, 0]), log_sigmoid(wx[:, 1])
    return (sigmoid(log_f - log_i) * h + sigmoid(log_i - log_f) * candidate(wx[:, 2]),)


def mingru_log(wx, recurrent, h):
    return mingru(wx, recurrent, h, positive)


def minlstm_log(wx, recurrent, h):
    return minlstm(wx, recurrent, h, positive)


#: Each cell by name: its function, the number of its gates, the number of its states.
CELLS = {
    "elman": (elman, 1, 1),
    "elman-relu": (elman_relu, 1, 1),
    "gru": (gru, 3, 1),
    "gru-before": (gru_before, 3, 1),
    "lstm": (lstm, 4, 2),
    "slstm": (slstm, 4, 4),
    "mingru": (mingru, 2, 1),
    "mingru-log": (mingru_log, 2, 1),
    "minlstm": (minlstm, 3, 1),
    "minlstm-log": (minlstm_log, 3, 1),
}


def _layer(cell, weights, suffix, x, state, lengths, reset_mask, reverse, heads):
    """One layer in one direction: y ``[B, T, H]`` and the states ``[S, B, H]`` from x ``[B, T, I]``."""
    step, gates, states = CELLS[cell]
    rows, steps, _ = x.shape
    hidden = weights["weight_ih" + suffix].shape[0] // gates
    size = hidden // heads

    def bias(name):
        return weights.get(name + suffix, np.zeros(gates * hidden))

    # Rows of both matrices lie gate after gate; with heads, those of the recurrent one head after head, and in each
    # head gate after gate.
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

        def recurrent(gate, vector):
            parts = [vector[:, k * size : (k + 1) * size] @ r[k, gate].T for k in range(heads)]
            return np.concatenate(parts, axis=1) + b_hh[gate]

        # Padding may hold anything, NaN too.
        x_t = np.where(runs, x[:, t], 0)
        wx = np.stack([x_t @ w[gate].T + b_ih[gate] for gate in range(gates)], axis=1)
        new = step(wx, recurrent, *state)
        state = [np.where(runs, after, before) for after, before in zip(new, state)]
        y[:, t] = np.where(runs, new[0], 0)
    return y, np.stack(state)


def forward(cell, weights, x, h0=None, *, layers=1, direction="forward", heads=1, lengths=None, reset_mask=None):
    """What ``Recurrent.forward`` computes, in float64.

    Args:
        cell: A key of :data:`CELLS`.
        weights: As ``Recurrent.parameters`` names and shapes them.
        x: ``[B, T, I]``.
        h0: ``[S, layers * directions, B, H]``; zeros if it is None.

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
    """``h_t = a_t h_{t-1} + b_t`` over the axis of T: ``[B, T, C]`` from ``[B, T, C]``."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    h = np.zeros((a.shape[0], a.shape[2])) if h0 is None else np.asarray(h0, np.float64)
    states = []
    for t in range(a.shape[1]):
        h = a[:, t] * h + b[:, t]
        states.append(h)
    return np.stack(states, axis=1)
