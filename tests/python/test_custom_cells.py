"""Cells that Python functions define: tracing, errors by line, layers, models, files, PyTorch."""

import copy
import json
import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

import penstock
from penstock.equations import clamp, equal, erf, exp, gelu, log, maximum, mean, minimum, multiply_add, relu
from penstock.equations import sigmoid, softplus, sqrt, tanh, where


@penstock.cell(states=("h", "c"), gates=4, keep_gate=1)
def py_lstm(wx, rh, s):
    i, f = sigmoid(wx[0] + rh[0]), sigmoid(wx[1] + rh[1])
    c = f * s.c + i * tanh(wx[2] + rh[2])
    return sigmoid(wx[3] + rh[3]) * tanh(c), c


@penstock.cell(states=("h", "c"), gates=4, learnt={"i": 0.1, "f": 0.0, "o": -0.2})
def py_peephole(wx, rh, s, p):
    """An LSTM whose gates see the cell state."""
    i, f = sigmoid(wx[0] + rh[0] + p.i * s.c), sigmoid(wx[1] + rh[1] + p.f * s.c)
    c = f * s.c + i * tanh(wx[2] + rh[2])
    return sigmoid(wx[3] + rh[3] + p.o * c) * tanh(c), c


@penstock.cell(gates=2, scan=True, spread_memory=True, overwrite_gate=0)
def py_mingru(wx):
    return sigmoid(-wx[0]), sigmoid(wx[0]) * wx[1]


@penstock.cell(states=("h", "c"), gates=4, learnt={"gain": 1.0, "shift": 0.1})
def py_norm(wx, rh, s, p):
    """An LSTM with layer norm of R h and of the cell state."""

    def normalised(x, gain):
        centred = x - mean(x)
        return gain * centred / sqrt(mean(centred * centred) + 1e-5)

    i, f, g, o = (wx[k] + normalised(rh[k], p.gain) for k in range(4))
    c = sigmoid(f) * s.c + sigmoid(i) * tanh(g)
    return sigmoid(o) * tanh(normalised(c, p.gain) + p.shift), c


@penstock.cell(gates=2, scan=True, learnt={"decay": 1.0, "gain": 0.5})
def py_leaky(wx, p):
    """A leaky integrator whose decay and gain are learnt for each unit."""
    a = sigmoid(p.decay + wx[0])
    return a, (1 - a) * tanh(p.gain * wx[1])


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_a_cell_is_its_name():
    assert py_peephole == "py_peephole" and isinstance(py_peephole, penstock.CustomCell)
    assert py_peephole.gates == 4 and py_peephole.states == ("h", "c") and not py_peephole.scan
    assert py_peephole.learnt == {"i": 0.1, "f": 0.0, "o": -0.2}
    assert json.loads(py_peephole.json)["description"] == "An LSTM whose gates see the cell state."
    assert pickle.loads(pickle.dumps(py_peephole)) == py_peephole


@pytest.mark.parametrize("own, written", [("lstm", py_lstm), ("mingru", py_mingru)])
def test_the_librarys_cells_written_here_give_the_same(own, written):
    x, dy = normal(3, 9, 4), normal(3, 9, 6, seed=1)
    results = []
    for cell in (own, written):
        network = penstock.Recurrent(cell, 4, 6, layers=2)
        tape = network.tape()
        y, _ = network.forward(x, tape=tape)
        results.append((y, network.backward(dy, tape=tape)))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(results[0][1][0], results[1][1][0], rtol=1e-4, atol=1e-5)


def sigmoid_of(x):
    return 1 / (1 + np.exp(-x))


def test_peepholes_are_those_of_the_equations():
    network = penstock.Recurrent(py_peephole, 3, 5, dtype="float64")
    weights = network.parameters
    assert weights["bias_ih_l0"].shape == ((4 + 3) * 5,)
    np.testing.assert_array_equal(weights["bias_ih_l0"][20:], np.repeat([0.1, 0.0, -0.2], 5))
    x = normal(2, 7, 3).astype(np.float64)
    y, (h_last, c_last) = network.forward(x)
    p = weights["bias_ih_l0"][20:].reshape(3, 5)
    h = c = np.zeros((2, 5))
    for t in range(7):
        wx = x[:, t] @ weights["weight_ih_l0"].T + weights["bias_ih_l0"][:20]
        rh = h @ weights["weight_hh_l0"].T + weights["bias_hh_l0"]
        i, f, g, o = np.split(wx + rh, 4, axis=1)
        new = sigmoid_of(f + p[1] * c) * c + sigmoid_of(i + p[0] * c) * np.tanh(g)
        h, c = sigmoid_of(o + p[2] * new) * np.tanh(new), new
        np.testing.assert_allclose(y[:, t], h, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(c_last[0], c, rtol=1e-12, atol=1e-13)


def test_learnt_vectors_of_scan_cells_are_those_of_the_equations():
    network, x = penstock.Recurrent(py_leaky, 3, 5, dtype="float64"), normal(2, 400, 3).astype(np.float64)
    with network.edit() as weights:
        assert weights["bias_ih_l0"].shape == ((2 + 2) * 5,)
        weights["bias_ih_l0"][10:] += normal(10)
    weights = network.parameters
    bias, (decay, gain) = weights["bias_ih_l0"][:10], weights["bias_ih_l0"][10:].reshape(2, 5)
    y, _ = network.forward(x)
    h = np.zeros((2, 5))
    for t in range(400):
        wx = x[:, t] @ weights["weight_ih_l0"].T + bias
        a = sigmoid_of(decay + wx[:, :5])
        h = a * h + (1 - a) * np.tanh(gain * wx[:, 5:])
        np.testing.assert_allclose(y[:, t], h, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("cell", [py_peephole, py_leaky, py_norm])
def test_steps_of_a_stream_are_those_of_a_sequence(cell):
    network, x = penstock.Recurrent(cell, 3, 20), normal(1, 5, 3)
    y, _ = network.forward(x)
    state = None
    for t in range(5):
        step, state = network.step(x[:, t], state)
        np.testing.assert_allclose(step, y[:, t], rtol=1e-5, atol=1e-6)


def test_learnt_vectors_come_into_being_when_used():
    @penstock.cell(gates=1)
    def py_scaled(wx, rh, p):
        return tanh(p.a * wx[0] + rh[0]) * p.b + p.a

    assert py_scaled.learnt == {"a": 0.0, "b": 0.0}


def test_other_learnt_vectors_than_those_with_a_value_start_at_zero():
    cell = penstock.cell(lambda wx, rh, p: p.g * tanh(wx[0] + rh[0] + p.i), name="py_some_learnt", learnt={"g": 1.0})
    assert cell.learnt == {"g": 1.0, "i": 0.0}


def test_options_apply_with_and_without_a_decorator():
    def equations(wx, rh, s, p):
        c = sigmoid(wx[1] + rh[1]) * s.c + tanh(wx[0] + rh[0]) * p.g
        return c, c

    options = {
        "states": ("h", "c"), "gates": 2, "name": "py_two_forms", "description": "Two forms.", "learnt": {"g": 0.5},
        "keep_gate": 1, "overwrite_gate": 0, "spread_memory": True,
    }  # fmt: skip
    assert penstock.cell(equations, **options).json == penstock.cell(**options)(equations).json
    scan = penstock.cell(lambda wx: (sigmoid(wx[0]), wx[1]), gates=2, scan=True, name="py_two_forms_of_scan")
    assert (scan, scan.gates, scan.scan) == ("py_two_forms_of_scan", 2, True)
    assert penstock.cell(py_wrong_by_name) == "py_wrong_by_name"
    for wrong in (lambda: penstock.cell("lstm"), lambda: penstock.cell(gates=4)(3)):
        with pytest.raises(TypeError, match=r"^function must be a function of symbols, .*, not ('lstm'|3)$"):
            wrong()


def py_wrong_by_name(wx, rh):
    return tanh(wx[0] + rh[0])


def test_every_operation_runs():
    @penstock.cell(gates=2)
    def py_everything(wx, rh, s):
        a, b = wx[0] + rh[0], wx[1] - rh[1] / 2.0
        c = clamp(a, -0.5, 1) + where(a < b, minimum(a, b), maximum(a, b)) + relu(b) + abs(a) + gelu(b)
        d = log(exp(tanh(c)) + 1) + sqrt(softplus(b)) + erf(a) + np.sin(b) + np.cos(a) + multiply_add(a, b, 0.5)
        return tanh(d + s.h * (a >= b) + equal(a, b) - (-a) ** 2) + 0 * (a > b) * (a <= b)

    network, x = penstock.Recurrent(py_everything, 3, 4, dtype="float64"), normal(1, 2, 3).astype(np.float64)
    weights = network.parameters
    y, _ = network.forward(x)
    h = np.zeros((1, 4))
    for t in range(2):
        wx = x[:, t] @ weights["weight_ih_l0"].T + weights["bias_ih_l0"]
        rh = h @ weights["weight_hh_l0"].T + weights["bias_hh_l0"]
        a, b = wx[:, :4] + rh[:, :4], wx[:, 4:] - rh[:, 4:] / 2
        erf_of = np.vectorize(__import__("math").erf)
        c = np.clip(a, -0.5, 1) + np.where(a < b, np.minimum(a, b), np.maximum(a, b)) + np.maximum(b, 0) + abs(a)
        c = c + 0.5 * b * (1 + erf_of(b * np.sqrt(0.5)))
        d = np.log(np.exp(np.tanh(c)) + 1) + np.sqrt(np.log1p(np.exp(b))) + erf_of(a) + np.sin(b) + np.cos(a)
        h = np.tanh(d + a * b + 0.5 + h * (a >= b) + (a == b) - a**2)
        np.testing.assert_allclose(y[:, t], h, rtol=1e-12)


def refusal(define):
    with pytest.raises(penstock.InvalidArgument) as caught:
        define()
    return str(caught.value)


def define(function, **options):
    return lambda: penstock.cell(**{"gates": 1, "name": "py_wrong", **options})(function)


def test_errors_name_the_line():
    def branches(wx, rh):
        if wx[0] > 0:
            return wx[0]
        return rh[0]

    line = branches.__code__.co_firstlineno + 1
    assert refusal(define(branches)).startswith(f"test_custom_cells.py, line {line}: a cell cannot branch on a symbol")
    assert "cells have no operation numpy.arctan" in refusal(define(lambda wx: np.arctan(wx[0])))
    assert "there is no state 'c'; there are h" in refusal(define(lambda wx, rh, s: s.c))
    assert "gate of wx must be 0 to 0, not 1" in refusal(define(lambda wx: wx[1]))
    assert "computes with symbols and numbers, not with str" in refusal(define(lambda wx: wx[0] + "1"))
    assert "must be finite" in refusal(define(lambda wx: wx[0] * float("nan")))
    for large in (1e39, -1e39, float("inf"), 10**400, np.float64(3.5e38)):
        assert "a constant of a cell must be finite in 32 bits (3.4e38 at most)" in refusal(define(lambda wx: wx[0] * large))
    assert "there is no learnt vector 'q'; there are p" in refusal(define(lambda wx, p: wx[0] * p.q, learnt=["p"]))
    wrong_count = refusal(define(lambda wx: wx[0], states=("h", "c")))
    assert "the function must return 2, the next h, c, not 1" in wrong_count
    assert "a and b of h' = a h + b" in refusal(define(lambda wx: wx[0], scan=True))
    assert "may have the parameters wx, rh, s, p, not x" in refusal(define(lambda x: x))
    assert "is a mean over units, and those of a scan cell are apart" in refusal(
        define(lambda wx: (sigmoid(wx[0]), mean(wx[0])), scan=True)
    )
    assert "gates must be 1 to 5" in refusal(define(lambda wx: wx[0], gates=6))
    assert "gates must be at least 1, not 0" in refusal(define(lambda wx: wx[0], gates=0))
    assert "gate of wx must be 0 to 1, not 0.0" in refusal(define(lambda wx: wx[0.0], gates=2))
    assert "gate of wx must be 0 to 1, not slice(0, 1, None)" in refusal(define(lambda wx: wx[0:1], gates=2))


@pytest.mark.parametrize("zero", [0, 0.0, -0.0, np.float32(0)])
def test_a_constant_divisor_is_not_0(zero):
    assert "test_custom_cells.py, line " in refusal(define(lambda wx: wx[0] / zero))
    assert "a cell cannot divide by 0: the quotient would not be finite" in refusal(define(lambda wx: 1.0 + wx[0] / zero))


@pytest.mark.parametrize("learnt", [{"gian": 0.5}, {"gain": 1.0, "gian": 0.5}, ["gain", "gian"]])
def test_given_vectors_are_used(learnt):
    expected = "learnt names 'gian', which the function does not use"
    assert expected in refusal(define(lambda wx, p: wx[0] * p.gain, learnt=learnt))
    assert expected in refusal(define(lambda wx, p: (sigmoid(wx[0]), wx[0] * p.gain), learnt=learnt, scan=True))


def test_names_collide_in_words():
    assert "a cell that Penstock brings along" in refusal(define(lambda wx: wx[0], name="lstm"))
    penstock.cell(name="py_first")(lambda wx: tanh(wx[0]))
    penstock.cell(name="py_first")(lambda wx: tanh(wx[0]))  # the same again
    penstock.cell(name="py_first", description="In other words.")(lambda wx: tanh(wx[0]))
    assert 'other equations: give this one another name, such as name="py_first-2"' in refusal(define(lambda wx: wx[0], name="py_first"))
    with pytest.raises(penstock.InvalidArgument, match='cell must be one of .*py_first.*, not "py_frist"'):
        penstock.Recurrent("py_frist", 1, 1)


def test_files_hold_the_equations(tmp_path):
    data = penstock.open_task("parity", length=12)
    penstock.Model(data, cell=py_peephole, width=8, blocks=1).save(tmp_path / "model.safetensors")
    py_peephole.save(tmp_path / "cell.json")
    program = (
        "import penstock; assert penstock.Model.load('model.safetensors').spec['cell'] == 'py_peephole';"
        "assert penstock.Recurrent('py_peephole', 2, 3).parameters['bias_ih_l0'].shape == (21,);"
        "assert penstock.load_cell('cell.json').learnt['i'] == 0.1"  # the same equations again
    )
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(penstock.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path, timeout=60, env=environment)


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "cell.json"
    text = json.loads(py_peephole.json)
    text["nodes"][-1]["of"][0] = 10_000
    path.write_text(json.dumps(text))
    with pytest.raises(penstock.BadInput, match=r"cell\.json: cell\.nodes\[\d+\]\.of\[0\] must be 0 to"):
        penstock.load_cell(path)


@pytest.mark.parametrize("cell", [py_peephole, py_leaky, py_norm])
def test_a_model_trains_saves_and_streams(cell, tmp_path):
    data = penstock.open_task("parity", length=12)
    model = penstock.Model(data, cell=cell, width=8, blocks=1, seed=3)
    penstock.train(model, data, steps=5)
    model.save(tmp_path / "m.safetensors")
    assert penstock.Model.load(tmp_path / "m.safetensors").spec["cell"] == cell


@pytest.mark.parametrize("cell, heads", [(py_peephole, 1), (py_lstm, 3), (py_mingru, 1), (py_leaky, 1), (py_norm, 1), (py_norm, 2)])
def test_onnx_runtime_computes_the_same(cell, heads, tmp_path):
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    network, x = penstock.Recurrent(cell, 3, 6, layers=2, heads=heads), normal(2, 7, 3)
    network.save_onnx(tmp_path / "network.onnx")
    session = ort.InferenceSession(tmp_path / "network.onnx", providers=["CPUExecutionProvider"])
    state = np.zeros((len(cell.states), 2, 2, 6), np.float32)
    given = {each.name: value for each, value in zip(session.get_inputs(), (x, state))}
    np.testing.assert_allclose(session.run(None, given)[0], network.forward(x)[0], rtol=1e-5, atol=1e-6)


def constant_condition(wx, rh, s):
    return where(1.0, tanh(wx[0] + rh[0]), s.h) + where(0.0, s.h, 0.25)


def constant_limits(wx, rh, s):
    return clamp(2.0, 1.0, tanh(wx[0] + rh[0]) + s.h) - multiply_add(where(0.0, s.h, 2.0), 0.5, s.h)


def infinite_constant(wx, rh, s):
    return minimum(tanh(wx[0]) + 0.5 * s.h, exp(where(s.h < 0.0, 800.0, 800.0)))


def learnt_alone(wx, rh, s, p):
    return sigmoid(p.i)


def mean_of_constants(wx, rh, s, p):
    return mean(p.i) + mean(where(1.0, 0.5, s.h))


def scan_of_the_learnt(wx, p):
    return sigmoid(p.i), where(1.0, 0.5, wx[0])


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("equations", [constant_condition, constant_limits, infinite_constant, learnt_alone, mean_of_constants, scan_of_the_learnt])
def test_expressions_without_inputs_are_written_as_onnx(equations, heads, tmp_path):
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    scan = equations is scan_of_the_learnt
    uses_learnt = equations.__code__.co_varnames[: equations.__code__.co_argcount][-1] == "p"
    cell = penstock.cell(gates=1, scan=scan, learnt={"i": 0.3} if uses_learnt else {})(equations)
    network, x = penstock.Recurrent(cell, 3, 6, heads=1 if scan else heads), normal(2, 7, 3)
    network.save_onnx(tmp_path / "network.onnx")
    session = ort.InferenceSession(tmp_path / "network.onnx", providers=["CPUExecutionProvider"])
    given = {each.name: value for each, value in zip(session.get_inputs(), (x, np.zeros((1, 1, 2, 6), np.float32)))}
    np.testing.assert_allclose(session.run(None, given)[0], network.forward(x)[0], rtol=1e-5, atol=1e-6)


torch = pytest.importorskip("torch")


def modules():
    from penstock.torch import Recurrent

    return Recurrent


@pytest.mark.parametrize(
    "cell, heads",
    [(py_peephole, 1), (py_lstm, 2), (py_mingru, 1), (py_leaky, 1), (py_norm, 1), (py_norm, 2), ("lstm", 1)],
)
def test_torch_gradients_are_right(cell, heads):
    layer = modules()(cell, 3, 4, dtype=torch.float64, batch_first=True, num_heads=heads)
    x = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, *_: layer(x)[0], (x, *layer.parameters()))


def test_torch_module_of_a_cell():
    layer = modules()(py_peephole, 3, 4, num_layers=2)
    assert layer.bias_ih_l0.shape == (28,)
    np.testing.assert_allclose(layer.bias_ih_l1[16:].detach(), np.repeat([0.1, 0.0, -0.2], 4))
    x = torch.randn(5, 2, 3)
    y, (h, c) = layer(x)
    assert y.shape == (5, 2, 4) and h.shape == c.shape == (2, 2, 4)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        torch.testing.assert_close(other(x)[0], y)
    with pytest.raises(ValueError, match="bias must be True for the cell py_peephole"):
        modules()(py_peephole, 3, 4, bias=False)


@pytest.mark.parametrize("cell, heads", [(py_peephole, 1), (py_leaky, 1), (py_norm, 1), (py_norm, 2)])
def test_torch_second_derivatives(cell, heads):
    layer = modules()(cell, 2, 4, dtype=torch.float64, num_heads=heads)
    x = torch.randn(3, 1, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: layer(x)[0], (x,))
