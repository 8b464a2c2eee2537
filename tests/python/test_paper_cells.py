"""Cells of papers in examples/paper_cells.py, against plain loops in float64 and the paper's own package."""

import importlib.util
import pathlib

import numpy as np
import pytest

import penstock

PATH = pathlib.Path(__file__).parents[2] / "examples" / "paper_cells.py"


@pytest.fixture(scope="module")
def cells():
    spec = importlib.util.spec_from_file_location("paper_cells", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def values(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def network(cell, **options):
    layer = penstock.Recurrent(cell, 3, 5, dtype="float64", **options)
    with layer.edit() as weights:
        for i, value in enumerate(weights.values()):
            value[:] = values(*value.shape, seed=i)
    return layer


def check(layer, step, states):
    """Compares outputs with a loop of step(x_t, weights, *states) -> states."""
    x, weights = values(2, 40, 3, seed=9), layer.parameters
    x[:, :, 2] = abs(x[:, :, 2])  # elapsed times
    y, _ = layer.forward(x)
    states = tuple(np.zeros((2, 5)) for _ in range(states))
    for t in range(x.shape[1]):
        states = step(x[:, t], weights, *states)
        np.testing.assert_allclose(y[:, t], states[0], rtol=1e-11, atol=1e-12)


def sums(x, weights, h, gates):
    wx = x @ weights["weight_ih_l0"].T + weights["bias_ih_l0"][: gates * 5]
    return np.split(wx + h @ weights["weight_hh_l0"].T + weights["bias_hh_l0"], gates, axis=1)


def test_peephole_lstm(cells):
    def step(x, weights, h, c):
        i, f, g, o = sums(x, weights, h, 4)
        p_i, p_f, p_o = weights["bias_ih_l0"][20:].reshape(3, 5)
        new = sigmoid(f + p_f * c) * c + sigmoid(i + p_i * c) * np.tanh(g)
        return sigmoid(o + p_o * new) * np.tanh(new), new

    check(network(cells.peephole_lstm), step, 2)


@pytest.mark.parametrize("heads", [1, 5])
def test_layer_norm_lstm(cells, heads):
    def normalised(x, gain, shift=0.0):
        parts = x.reshape(2, heads, -1)
        parts = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + 1e-5)
        return gain * parts.reshape(2, 5) + shift

    def step(x, weights, h, c):
        wx = np.split(x @ weights["weight_ih_l0"].T + weights["bias_ih_l0"][:20], 4, axis=1)
        rh = [h * r for r in weights["weight_hh_l0"].reshape(5, 4).T] if heads == 5 else np.split(
            h @ weights["weight_hh_l0"].T, 4, axis=1
        )
        rh = [part + bias for part, bias in zip(rh, np.split(weights["bias_hh_l0"], 4))]
        p_i, p_f, p_g, p_o, p_c, shift = weights["bias_ih_l0"][20:].reshape(6, 5)
        i, f = sigmoid(wx[0] + normalised(rh[0], p_i)), sigmoid(wx[1] + normalised(rh[1], p_f))
        new = f * c + i * np.tanh(wx[2] + normalised(rh[2], p_g))
        return sigmoid(wx[3] + normalised(rh[3], p_o)) * np.tanh(normalised(new, p_c, shift)), new

    check(network(cells.norm_lstm, heads=heads), step, 2)


def test_indrnn(cells):
    def step(x, weights, h):
        wx = x @ weights["weight_ih_l0"].T + weights["bias_ih_l0"] + weights["bias_hh_l0"]
        return (np.maximum(wx + weights["weight_hh_l0"].ravel() * h, 0),)

    layer = network(cells.indrnn, heads=5)
    cells.remember(layer)
    assert layer.parameters["weight_hh_l0"].shape == (5, 1, 1) and layer.parameters["weight_hh_l0"].min() >= 0
    check(layer, step, 1)


def cfc_layer(cells):
    layer = network(cells.cfc)
    cells.clock(layer, 2)
    with layer.edit() as weights:
        weights["weight_ih_l0"][:15, 2] = 0  # the other gates do not see the time
    return layer


def test_cfc(cells):
    def step(x, weights, h):
        f, g, new, _ = sums(x, weights, h, 4)
        share = sigmoid(-f * x[:, 2:])
        return (share * np.tanh(g) + (1 - share) * np.tanh(new),)

    check(cfc_layer(cells), step, 1)


def test_cfc_of_its_authors(cells):
    torch = pytest.importorskip("torch")
    ncps = pytest.importorskip("ncps.torch", reason="ncps is not installed")
    layer = cfc_layer(cells)
    theirs = ncps.CfCCell(2, 5, backbone_layers=0).double()
    inputs = np.split(layer.parameters["weight_ih_l0"][:, :2], 4)
    recurrent = np.split(layer.parameters["weight_hh_l0"], 4)
    biases = np.split(layer.parameters["bias_ih_l0"] + layer.parameters["bias_hh_l0"], 4)
    with torch.no_grad():
        theirs.time_b.weight.zero_()  # the paper has no such term
        theirs.time_b.bias.zero_()
        for i, part in enumerate((theirs.time_a, theirs.ff1, theirs.ff2)):
            part.weight.copy_(torch.from_numpy(np.concatenate([inputs[i], recurrent[i]], axis=1)))
            part.bias.copy_(torch.from_numpy(biases[i]))

    def step(x, weights, h):
        with torch.no_grad():
            x, h = torch.from_numpy(x), torch.from_numpy(h)
            return (theirs(x[:, :2], h, x[:, 2:])[0].numpy(),)

    check(layer, step, 1)


def test_leaky_integrator(cells):
    def step(x, weights, h):
        keep = sigmoid(weights["bias_ih_l0"][5:])
        return (keep * h + (1 - keep) * (x @ weights["weight_ih_l0"].T + weights["bias_ih_l0"][:5]),)

    check(network(cells.leaky_integrator), step, 1)
