"""Models of int8 as ONNX: onnxruntime computes nearly what Penstock does, from the same whole numbers."""

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
penstock = pytest.importorskip("penstock", reason="penstock is not installed")

from penstock._safetensors import read_file, write_file  # noqa: E402
from small_data import labelled_of, series_of, text_of  # noqa: E402

CELLS = [(cell["name"], heads) for cell in penstock.cells() for heads in ((1,) if cell["scan"] else (1, 3))]
LAYERS = ("lstm", "gru", "gru-before", "elman", "elman-relu")  # of one head: their matrices are in the main graph
FORMS = [("text", {"cell": cell, "heads": heads}) for cell, heads in CELLS]
FORMS += [
    ("text", {"cell": "lstm", "convolution": 3, "feed_forward": 1.5}),
    ("series", {"cell": "gru", "feed_forward": 2}),
    ("labelled", {"cell": "minlstm"}),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "text").write_bytes(text_of(20))
    (folder / "series").write_text(series_of(200))
    (folder / "labelled").write_text(labelled_of(20))
    return folder


def open_data(folder, kind):
    if kind == "text":
        return penstock.open_text(folder / kind)
    if kind == "series":
        return penstock.open_series(folder / kind, inputs=["level", "flow"], horizon=2)
    return penstock.open_labelled(folder / kind)


def changed(model, path, change):
    """The model whose tensors, by name, and description `change` has changed in place."""
    model.save(path)
    tensors, metadata = read_file(path)
    path.unlink()
    description = json.loads(metadata["penstock"])
    description["format_version"] = 1  # without a checksum
    change(tensors, description)
    write_file(path, tensors, {"penstock": json.dumps(description)})
    return penstock.Model.load(path)


def shake(tensors, _):
    """No weight stays at what it was initialised to."""
    random = np.random.default_rng(5)
    for name, value in tensors.items():
        tensors[name] = (value + 0.1 * random.standard_normal(value.shape)).astype(np.float32)


def take_floats(tensors, description):
    """Weights become the floats that those of int8 stand for."""
    for name in [name for name in tensors if tensors[name].dtype == np.int8]:
        tensors[name] = tensors[name].astype(np.float32) * tensors.pop(name + ".scale")[..., None]
    del description["model"]["int8"]


def run(path, inputs):
    """Returns what onnxruntime makes of a file, and the next state."""
    onnx.checker.check_model(str(path), full_check=True)
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: inputs.astype(np.int64 if inputs.dtype == np.int32 else np.float32)}
    if len(session.get_inputs()) > 1:
        feed["state"] = np.zeros((len(inputs), session.get_inputs()[1].shape[1]), np.float32)
    return session.run(None, feed)[0]


def rms(values):
    return np.sqrt(np.mean(np.square(values, dtype=np.float64)))


def whole_numbers(arrays):
    return np.sort(np.concatenate([array.ravel() for array in arrays if array.dtype == np.int8]))


@pytest.mark.parametrize(("kind", "spec"), FORMS)
def test_onnxruntime_rounds_as_much(folder, tmp_path, kind, spec):
    path = tmp_path / "m.safetensors"
    model = penstock.Model(open_data(folder, kind), **{"width": 24, "hidden_size": 36, "blocks": 2, **spec})
    made, _ = penstock.quantize(changed(model, path, shake), folder / kind)
    made.save_onnx(tmp_path / "m.onnx", normalised=True)
    random = np.random.default_rng(1)
    if kind == "text":
        inputs = random.integers(0, model.data["vocabulary"], (3, 40)).astype(np.int32)
    else:
        inputs = random.standard_normal((3, 40, model.data["input_size"])).astype(np.float32)
    expected, exact = made.forward(inputs)[0], changed(made, path, take_floats).forward(inputs)[0]
    got = run(tmp_path / "m.onnx", inputs).reshape(expected.shape)

    # Both round activations to eight bits. A scale of all rows and steps is at most a little coarser than one of each.
    noise = rms(expected - exact)
    assert noise > 1e-4 * rms(exact)
    assert rms(got - exact) <= 1.5 * noise
    if spec["cell"].startswith("min"):  # all its products are of whole numbers, and few of these are rounded otherwise
        assert rms(got - expected) <= 0.5 * noise
    imported = penstock.import_onnx(tmp_path / "m.onnx").run(inputs.astype(np.int64) if kind == "text" else inputs)
    (ours,) = imported.values()
    assert rms(ours.reshape(expected.shape) - got) <= 0.5 * noise

    made.save(path)
    stored = [onnx.numpy_helper.to_array(each) for each in onnx.load(tmp_path / "m.onnx").graph.initializer if not each.name.endswith(".zero")]
    if spec["cell"].startswith("min") or (spec["cell"] in LAYERS and spec.get("heads", 1) == 1):
        assert np.array_equal(whole_numbers(stored), whole_numbers(read_file(path)[0].values()))


def test_filters_of_labelled_sequences(folder, tmp_path):
    data = open_data(folder, "labelled")
    model = penstock.Model(data, cell="minlstm", width=12, blocks=1)
    model.add_filters(data, seed=1, threads=1)
    made, report = penstock.quantize(model, folder / "labelled")
    assert "filters.0.combine" in {layer["name"] for layer in report["layers"] if layer["int8"]}
    made.save_onnx(tmp_path / "m.onnx", normalised=True)
    inputs = np.random.default_rng(1).standard_normal((3, 40, model.data["input_size"])).astype(np.float32)
    expected, exact = made.forward(inputs)[0], changed(made, tmp_path / "m.safetensors", take_floats).forward(inputs)[0]
    noise = rms(expected - exact)
    assert 1e-4 * rms(exact) < noise < 0.05 * rms(exact)
    assert rms(run(tmp_path / "m.onnx", inputs).reshape(expected.shape) - expected) <= 0.5 * noise


def test_the_batch_of_other_rows_does_not_count(folder, tmp_path):
    """This holds for all layers but LSTM: onnxruntime rounds all rows of those by one scale."""
    model = penstock.Model(open_data(folder, "text"), cell="mingru", width=24, blocks=1)
    made, _ = penstock.quantize(changed(model, tmp_path / "m.safetensors", shake), folder / "text")
    made.save_onnx(tmp_path / "m.onnx")
    inputs = np.random.default_rng(2).integers(0, model.data["vocabulary"], (3, 40)).astype(np.int32)
    assert np.array_equal(run(tmp_path / "m.onnx", inputs)[:1], run(tmp_path / "m.onnx", inputs[:1]))
