"""Cells of papers as their equations: peephole and layer-norm LSTM, IndRNN, CfC, leaky integrator.

It trains each on one task: at the last step, repeat the input of the first.

python examples/paper_cells.py
"""

import functools

import numpy as np

import penstock
from penstock.equations import mean, sigmoid, sqrt, tanh


@penstock.cell(states=("h", "c"), gates=4, keep_gate=1, learnt=("i", "f", "o"))
def peephole_lstm(wx, rh, s, p):
    """An LSTM whose gates see the cell state (Gers and Schmidhuber 2000, "Recurrent nets that time and count")."""
    i = sigmoid(wx[0] + rh[0] + p.i * s.c)
    f = sigmoid(wx[1] + rh[1] + p.f * s.c)
    c = f * s.c + i * tanh(wx[2] + rh[2])
    o = sigmoid(wx[3] + rh[3] + p.o * c)
    return o * tanh(c), c


def normalised(x, gain, shift=0.0):
    """Returns x with mean 0 and variance 1 over the units of a head, times a gain."""
    centred = x - mean(x)
    return gain * centred / sqrt(mean(centred * centred) + 1e-5) + shift


@penstock.cell(states=("h", "c"), gates=4, keep_gate=1, learnt={"i": 1, "f": 1, "g": 1, "o": 1, "gain": 1, "shift": 0})
def norm_lstm(wx, rh, s, p):
    """An LSTM with layer norm of R h, gate by gate, and of the cell state (Ba et al. 2016, arXiv:1607.06450)."""
    i, f = sigmoid(wx[0] + normalised(rh[0], p.i)), sigmoid(wx[1] + normalised(rh[1], p.f))
    c = f * s.c + i * tanh(wx[2] + normalised(rh[2], p.g))
    return sigmoid(wx[3] + normalised(rh[3], p.o)) * tanh(normalised(c, p.gain, p.shift)), c


#: IndRNN (Li et al. 2018, arXiv:1803.04831): an Elman network with relu whose recurrent matrix is diagonal. No cell has
#: to be written: give it as many heads as units.
indrnn = "elman-relu"


def remember(layer):
    """Draws the recurrent weights of an IndRNN from [0, 1], as the paper does for long memories."""
    with layer.edit() as weights:
        weights["weight_hh_l0"][:] = np.random.default_rng(0).random(weights["weight_hh_l0"].shape)


@penstock.cell(gates=4)
def cfc(wx, rh):
    """A closed-form continuous-time cell (Hasani et al. 2022, Nature Machine Intelligence 4).

    Gates: f, g, h of the paper, and the time since the last step. Time is an input column; ``clock()`` sets the rows of
    the last gate to read it.
    """
    f, g, h = wx[0] + rh[0], tanh(wx[1] + rh[1]), tanh(wx[2] + rh[2])
    share = sigmoid(-f * wx[3])
    return share * g + (1 - share) * h


def clock(layer, column):
    """Makes each unit of a layer of cfc read the elapsed time of an input column."""
    hidden = layer.hidden_size
    with layer.edit() as weights:
        weights["weight_ih_l0"][3 * hidden :] = 0
        weights["weight_ih_l0"][3 * hidden :, column] = 1
        weights["bias_ih_l0"][3 * hidden :] = 0


@penstock.cell(gates=1, scan=True, learnt={"rate": 1.0})
def leaky_integrator(wx, p):
    """A leaky integrator with a learnt rate for each unit. All steps run in parallel (Bradbury et al. 2017 pool so)."""
    keep = sigmoid(p.rate)
    return keep, (1 - keep) * wx[0]


def first_inputs(rows, steps, random):
    """Returns noisy sequences [B, T, 2] and their first inputs [B, 1].

    The second column is the time since the last step, which differs from step to step.
    """
    x = random.normal(0, 1, (rows, steps, 2)).astype(np.float32)
    x[:, :, 1] = random.uniform(0.5, 1.5, (rows, steps))
    x[:, 1:, 0] *= 0.1
    return x, x[:, 0, :1].copy()


def train(layer, steps=300, rate=0.01, after_step=None):
    """Trains a layer and a readout by Adam. Returns the mean squared error at the start and at the end.

    ``after_step()`` is called after each update of the weights.
    """
    random, hidden = np.random.default_rng(0), layer.hidden_size
    readout, tape, errors = np.zeros((1, hidden), np.float32), layer.tape(), []
    moments: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    readout[:] = random.normal(0, 0.1, readout.shape)
    for step in range(1, steps + 1):
        x, wanted = first_inputs(64, 8, random)
        y, _ = layer.forward(x, tape=tape)
        difference = y[:, -1] @ readout.T - wanted
        errors.append(float((difference**2).mean()))
        dy = np.zeros_like(y)
        dy[:, -1] = 2 / 64 * difference @ readout
        layer.zero_gradients()
        layer.backward(dy, tape=tape, input_gradient=False)
        gradients = {**layer.gradients, "readout": 2 / 64 * difference.T @ y[:, -1]}
        with layer.edit() as weights:
            for name, value in {**weights, "readout": readout}.items():
                first, second = moments.setdefault(name, (np.zeros_like(value), np.zeros_like(value)))
                first += 0.1 * (gradients[name] - first)
                second += 0.01 * (gradients[name] ** 2 - second)
                value -= rate * first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
        if after_step is not None:
            after_step()
    return errors[0], errors[-1]


def main():
    for name, cell, heads in (
        ("peephole LSTM", peephole_lstm, 1),
        ("layer-norm LSTM", norm_lstm, 1),
        ("IndRNN", indrnn, 16),
        ("CfC", cfc, 1),
        ("leaky integrator", leaky_integrator, 1),
    ):
        layer = penstock.Recurrent(cell, 2, 16, heads=heads)
        if cell == indrnn:
            remember(layer)
        keep_clock = functools.partial(clock, layer, 1) if cell == cfc else None
        if keep_clock is not None:
            keep_clock()
        before, after = train(layer, after_step=keep_clock)
        print(f"{name:17} squared error {before:.3f} -> {after:.3f}")
        assert after < before / 2, name


if __name__ == "__main__":
    main()
