"""penstock.quantize: models of int8 from Python."""

import pickle

import numpy as np
import pytest

import penstock
from trained_models import LABELLED, SERIES, TEXT, classifier, folder, forecaster, language  # noqa: F401


@pytest.mark.parametrize(("name", "data"), [("language", "text.txt"), ("forecaster", "series.csv"), ("classifier", "labelled.csv")])
def test_every_task(request, folder, tmp_path, name, data):  # noqa: F811
    model = request.getfixturevalue(name)
    made, report = penstock.quantize(model, folder / data, each_layer=True)
    assert "int8" not in model.spec and "blocks.0.recurrent" in made.spec["int8"]
    assert abs(report["loss"]) < 0.05
    assert report["error_before"] > 0 or name == "classifier"
    assert all(layer["int8"] and layer["loss"] is not None for layer in report["layers"])
    assert made.memory(1, 1)["weights"] < 0.7 * model.memory(1, 1)["weights"]

    made.save(tmp_path / "int8.safetensors")
    loaded = penstock.Model.load(tmp_path / "int8.safetensors")
    copied = pickle.loads(pickle.dumps(made))
    for other in (loaded, copied):
        assert other.spec == made.spec
        assert other.evaluate(folder / data) == made.evaluate(folder / data)


def test_sessions_have_the_bits_of_sequences(language):  # noqa: F811
    made, _ = penstock.quantize(language, TEXT)
    tokens = np.frombuffer(TEXT[:60], np.uint8).astype(np.int32)
    whole, _ = made.forward(tokens)
    session = penstock.Session(made)
    steps = np.stack([session.push(int(token)) for token in tokens])
    assert np.array_equal(steps, whole)


def test_the_limit_is_kept_or_refused(language, folder):  # noqa: F811
    with pytest.raises(penstock.InvalidArgument, match="max_loss must be 0 or more"):
        penstock.quantize(language, folder / "text.txt", max_loss=-0.1)
    _, report = penstock.quantize(language, folder / "text.txt", max_loss=0.5)
    assert report["loss"] <= 0.5
    with pytest.raises(TypeError, match="model must be a penstock.Model, which penstock.Model.load"):
        penstock.quantize("model.safetensors", folder / "text.txt")
    with pytest.raises(penstock.IoFailure, match="cannot read"):
        penstock.quantize(language, folder / "none.txt")


def test_training_is_refused(language, folder):  # noqa: F811
    made, _ = penstock.quantize(language, TEXT)
    with pytest.raises(penstock.InvalidArgument, match="weights of int8"):
        penstock.train(made, penstock.open_text(folder / "text.txt"), steps=1, batch=4, length=32, progress=False)
    with pytest.raises(penstock.Unsupported, match="weights of int8"):
        made.save_onnx(folder / "int8.onnx")
