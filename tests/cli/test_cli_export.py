"""penstock export: what it writes and says, and what it refuses."""

import json

import pytest

from program import SERIES, TEXT, TINY, refuses, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    (folder / "series.csv").write_text(SERIES)
    (folder / "text.txt").write_bytes(TEXT)
    for data, options in (("series", ["--horizon", 2, "--calendar", "none"]), ("text", [])):
        name = "series.csv" if data == "series" else "text.txt"
        run("train", name, "-o", f"{data}.safetensors", *TINY, "--steps", 2, *options, cwd=folder)
    return folder


def test_what_is_written_is_said(folder):
    result = run("export", "series.safetensors", cwd=folder)
    lines = [line.split(maxsplit=1) for line in result.out.splitlines()]
    assert [line[0] for line in lines] == ["model", "file", "inputs", "state", "outputs", "next_state"]
    assert lines[1][1].startswith("series.onnx, ONNX opset 17, ")
    assert lines[2][1].split(None, 4)[:5] == ["features", "float", "[batch,", "time,", "2]         In the units of the data: level, flow"]
    assert (folder / "series.onnx").stat().st_size > 1000


def test_json_and_a_name(folder):
    told = run("export", "text.safetensors", "--json", "-o", "other.onnx", cwd=folder).json()
    assert told["output"] == "other.onnx" and told["opset"] == 17
    assert told["bytes"] == (folder / "other.onnx").stat().st_size
    tokens, state = told["inputs"]
    assert tokens == {"name": "tokens", "type": "int64", "shape": ["batch", "time"], "description": "Tokens 0 to 255"}
    assert [each["name"] for each in told["outputs"]] == ["logits", "next_state"]
    assert told["outputs"][0]["shape"] == ["batch", "time", "256"] and told["outputs"][1]["shape"] == state["shape"]


def test_answers_are_those_of_predict(folder):
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    np = pytest.importorskip("numpy", reason="NumPy is not installed")
    run("export", "series.safetensors", "-o", "answers.onnx", cwd=folder)
    network = ort.InferenceSession(str(folder / "answers.onnx"), providers=["CPUExecutionProvider"])
    rows = np.loadtxt(folder / "series.csv", delimiter=",", skiprows=1, usecols=(1, 2), dtype=np.float32)
    state = np.zeros((1, network.get_inputs()[1].shape[1]), np.float32)
    forecast, _ = network.run(None, {"features": rows[np.newaxis], "state": state})
    lines = run("predict", "series.safetensors", "series.csv", "--json", cwd=folder).json_lines()
    expected = np.array([[line["forecast"][name] for name in ("level", "flow")] for line in lines])
    ours = forecast[0].transpose(0, 2, 1)
    assert expected.shape == ours.shape == (300, 2, 2)
    assert np.abs(ours - expected).max() <= 1e-5 * np.abs(expected).max()


def test_nothing_is_replaced_unasked(folder):
    (folder / "kept.onnx").write_text("somebody's work")
    refuses(
        "export", "text.safetensors", "-o", "kept.onnx",
        message="--output kept.onnx is there already, no Penstock model; --force replaces it, -o FILE writes another one",
        status=2, verb="export", cwd=folder,
    )  # fmt: skip
    assert (folder / "kept.onnx").read_text() == "somebody's work"
    run("export", "text.safetensors", "-o", "kept.onnx", "--force", cwd=folder)
    assert (folder / "kept.onnx").stat().st_size > 1000


def test_what_cannot_be_exported(folder):
    refuses("export", message="MODEL is missing", status=2, verb="export", cwd=folder)
    run("export", "no.safetensors", expect=1, cwd=folder)
    run("export", "series.csv", expect=2, cwd=folder)
    run("export", "text.safetensors", "-o", "no/such.onnx", expect=1, cwd=folder)
    refuses(
        "export", "text.safetensors", "-o", "a.onnx", "--group", "Berlin",
        message='--group must be empty for a model of one series, not "Berlin"', status=2, verb="export", cwd=folder,
    )  # fmt: skip
    assert not (folder / "a.onnx").exists()


def test_a_model_of_many_series_is_asked_which(tmp_path):
    rows = "".join(f"{name},{t},{t % 7 + size}\n" for name, size in (("a", 1), ("b", 100)) for t in range(40))
    (tmp_path / "m.csv").write_text("shop,t,x\n" + rows)
    run("train", "m.csv", "--group", "shop", "--columns", "x", *TINY, "--steps", 2, "--length", 8, "--calendar", "none", cwd=tmp_path)
    which = "the model is of 2 series with a scaling each; name the series that is meant by --group, or give --normalised"
    none = '--group must be one of the 2 series that the model was trained on, not "c"'
    for given, message in (([], which), (["--group", "c"], none)):
        refuses("export", "model.safetensors", *given, message=message, status=2, verb="export", cwd=tmp_path)
    for given in (["--group", "b"], ["--normalised", "--force"]):
        told = run("export", "model.safetensors", "--json", *given, cwd=tmp_path).json()
        assert told["inputs"][0]["description"].startswith("Normalised" if "--normalised" in given else "In the units")


def test_other_words_for_it(folder):
    for word in ("onnx", "convert"):
        assert "did you mean 'export'?" in run(word, expect=2, cwd=folder).err


def test_a_checkpoint_is_exported_too(folder):
    run("train", "text.txt", "-o", "c.safetensors", "--checkpoint", "c.checkpoint", *TINY, "--steps", 2, cwd=folder)
    run("export", "c.checkpoint", "-o", "from_checkpoint.onnx", cwd=folder)
    run("export", "c.safetensors", "-o", "from_model.onnx", cwd=folder)
    assert (folder / "from_checkpoint.onnx").stat().st_size == (folder / "from_model.onnx").stat().st_size
    assert json.loads(run("export", "c.checkpoint", "-o", "again.onnx", "--json", cwd=folder).out)["output"] == "again.onnx"
