"""Forecasts of a column that ends at 0 are at least 0: in Python, in a session, and in an ONNX file."""

import math
import random

import numpy as np
import pytest

penstock = pytest.importorskip("penstock", reason="penstock is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    draw = random.Random(4)
    # Waves that end at 0 abruptly, below which a regression goes on.
    values = [round(max(0.0, 40 * math.sin(i / 6) + draw.random()), 2) for i in range(260)]
    level = [15 * draw.random() - 5 for _ in values]
    (folder / "rain.csv").write_text("mm,level\n" + "".join(f"{a},{b:.3f}\n" for a, b in zip(values, level)))
    return folder


@pytest.fixture(scope="module", params=[False, True], ids=["bounded", "free"])
def trained(request, folder):
    data = penstock.open_series(folder / "rain.csv", horizon=3, allow_negative=request.param)
    model = penstock.Model(data, width=8, blocks=1)
    penstock.train(model, data, steps=2, batch=2, threads=1, progress=False)
    return model, folder / "rain.csv", request.param


def rows_of(path):
    return np.loadtxt(path, delimiter=",", skiprows=1)


def lowest(values, free):
    """The least value of the column of rain, which is 0 or below it; that of the other column is always below it."""
    assert values[..., 1].min() < 0
    assert (values[..., 0].min() < -1) if free else (values[..., 0].min() == 0)


def test_forecasts_and_quantiles(trained):
    model, path, free = trained
    forecasts, quantiles = model.predict(rows_of(path), quantiles=[0.05, 0.5, 0.9])
    lowest(quantiles.min(axis=-1), free)
    assert np.all(np.diff(quantiles, axis=-1) >= 0)
    assert (forecasts[..., 0].min() < 0) == free
    again = penstock.Model.load(saved(model, path))
    assert np.array_equal(again.predict(rows_of(path)), forecasts)


def test_a_trained_model_can_be_allowed_to_be_negative(trained):
    model, path, _ = trained
    again = penstock.Model.load(saved(model, path))
    again.allow_negative()
    assert again.predict(rows_of(path))[..., 0].min() < 0
    assert penstock.Model.load(saved(again, path)).predict(rows_of(path))[..., 0].min() < 0


def saved(model, path):
    model.save(path.parent / "m.safetensors")
    return path.parent / "m.safetensors"


def test_an_onnx_file_has_one_node_for_it(trained, tmp_path):
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    model, path, free = trained
    model.save_onnx(tmp_path / "m.onnx")
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    nodes = [node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node]
    assert nodes.count("Max") == (0 if free else 1)
    network = ort.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    state = np.zeros((1, network.get_inputs()[1].shape[1]), np.float32)
    rows = rows_of(path)[None].astype(np.float32)
    outputs, _ = network.run(None, {"features": rows, "state": state})
    expected = model.predict(rows_of(path))
    assert np.allclose(outputs[0], expected, atol=1e-3)
    assert (outputs[..., 0].min() < 0) == free and (free or outputs[..., 0].min() == 0)
