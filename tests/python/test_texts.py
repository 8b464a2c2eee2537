"""Tables of texts and labels in Python: learnt, answered and scored as by the program."""

import json
import random

import numpy as np
import pytest

import penstock
from program import run

WORDS = {"pos": "good lovely superb", "neg": "awful dull terrible"}
QUICK = {"batch": 16, "threads": 1, "progress": False}


def rows(count, seed=1):
    """Texts of which one word says the label."""
    draw = random.Random(seed)
    for i in range(count):
        label = draw.choice(["pos", "neg", "neg"])
        words = [draw.choice("the a film plot actor was is and with".split()) for _ in range(draw.randint(3, 12))]
        words.insert(draw.randrange(len(words)), draw.choice(WORDS[label].split()))
        yield " ".join(words) + (' "yes"' if i % 5 == 0 else ""), label


def table(count, seed=1):
    quoted = (f'"{text.replace(chr(34), chr(34) * 2)}",{label}\n' for text, label in rows(count, seed))
    return "text,sentiment\n" + "".join(quoted)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    (folder / "train.csv").write_text(table(400))
    (folder / "test.csv").write_text(table(80, seed=2))
    return folder


@pytest.fixture(scope="module")
def model(folder):
    data = penstock.open_labelled_texts(folder / "train.csv")
    model = penstock.Model(data, width=32)
    penstock.train(model, data, steps=200, **QUICK)
    model.save(folder / "texts.safetensors")
    return model


def test_what_is_read_is_said(folder):
    data = penstock.open_labelled_texts(folder / "train.csv", longest=20)
    assert repr(data) == f"<penstock.Dataset {folder / 'train.csv'}: texts of text in 2 classes; 320 texts to train on, 80 held out>"
    assert data.description["classes"] == ["neg", "pos"] and data.description["longest_text"] == 20
    assert any("texts from column text, labels from column sentiment" in line for line in data.reading)
    assert any("cut after 20 bytes" in line for line in data.reading)


def test_answers_are_the_programs(folder, model):
    lines = run("predict", "texts.safetensors", "test.csv", "--json", "--threads", 1, cwd=folder).json_lines()
    answers = model.predict(folder / "test.csv", threads=1)
    assert answers.shape == (80, 2) and answers.dtype == np.float64
    assert [line["label"] for line in lines] == [model.data["classes"][i] for i in answers.argmax(axis=1)]
    said = np.array([[line["probabilities"][name] for name in ("neg", "pos")] for line in lines])
    assert np.abs(said - answers).max() < 1e-6


def test_texts_by_themselves(folder, model):
    texts = [text for text, _ in rows(80, seed=2)]
    together = model.predict(texts, exact=True)
    assert (together == model.predict(folder / "test.csv", exact=True)).all()
    assert (model.predict(texts[3], exact=True) == together[3]).all()
    assert (model.predict(texts[3].encode(), exact=True) == together[3]).all()
    assert model.predict("a good film").argmax() == 1 and model.predict("an awful film").argmax() == 0
    assert model.predict([]).shape == (0, 2)
    assert np.allclose(model.predict("").sum(), 1)
    assert np.allclose(model.predict("größe \u4f60").sum(), 1)


def test_scores_are_the_programs(folder, model):
    ours = model.evaluate(folder / "test.csv", threads=1)
    theirs = run("evaluate", "texts.safetensors", "test.csv", "--json", "--threads", 1, cwd=folder).json()["files"][0]
    assert ours["scored"] == 80 and ours["accuracy"] > 0.95
    for name in ("accuracy", "macro_f1", "confusion", "majority_accuracy", "classes"):
        assert ours[name] == theirs[name]
    assert model.evaluate(folder / "test.csv", label_column="sentiment") == ours


def test_tables_in_memory(folder, model):
    polars = pytest.importorskip("polars", reason="Polars is not installed")
    frame = polars.read_csv(folder / "test.csv")
    assert (model.predict(frame, exact=True) == model.predict(folder / "test.csv", exact=True)).all()
    assert model.evaluate(frame) == model.evaluate(folder / "test.csv")
    data = penstock.open_labelled_texts(polars.read_csv(folder / "train.csv"))
    assert data.description["text_column"] == "text" and data.training_steps == 320


def test_a_model_is_trained_further(folder, model):
    data = penstock.open_labelled_texts(folder / "test.csv", origin=model)
    again = penstock.Model.continue_from(model, data)
    assert (again.predict("a good film", exact=True) == model.predict("a good film", exact=True)).all()
    penstock.train(again, data, steps=2, **QUICK)
    with pytest.raises(penstock.InvalidArgument, match="text_column"):
        penstock.open_labelled_texts(folder / "test.csv", origin=model, text_column="text")


def test_it_is_exported_as_onnx(model, tmp_path):
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model.save_onnx(tmp_path / "m.onnx")
    session = ort.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    tokens = np.frombuffer(b"a lovely film\0", np.uint8).astype(np.int64)[np.newaxis]
    state = np.zeros((1, session.get_inputs()[1].shape[1]), np.float32)
    logits = session.run(None, {"tokens": tokens, "state": state})[0][0, -1]
    assert np.abs(np.exp(logits) / np.exp(logits).sum() - model.predict("a lovely film")).max() < 1e-5


def test_what_is_refused(folder, model, tmp_path):
    with pytest.raises(penstock.InvalidArgument, match='has no column "words"'):
        penstock.open_labelled_texts(folder / "train.csv", text_column="words")
    with pytest.raises(penstock.InvalidArgument, match="longest must be 1 to"):
        penstock.open_labelled_texts(folder / "train.csv", longest=0)
    with pytest.raises(penstock.InvalidArgument, match="missing must be refuse or mask"):
        penstock.open_labelled_texts(folder / "train.csv", missing="carry")
    with pytest.raises(TypeError, match="inputs must be a text"):
        model.predict([1, 2])
    with pytest.raises(TypeError):
        model.predict(3)
    with pytest.raises(penstock.InvalidArgument, match="inputs must be a file or a table"):
        model.evaluate("text,sentiment\n")
    (tmp_path / "other.csv").write_text("text,sentiment\na film,mixed\n")
    with pytest.raises(penstock.BadInput, match='label "mixed" is none that the model knows'):
        model.evaluate(tmp_path / "other.csv")
    (tmp_path / "none.csv").write_text("text,sentiment\n")
    with pytest.raises(penstock.InvalidArgument, match="there are no rows after the header"):
        model.predict(tmp_path / "none.csv")
    with pytest.raises(penstock.IoFailure):
        model.predict(tmp_path / "no.csv")
