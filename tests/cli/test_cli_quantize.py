"""penstock quantize: scores before and after, layers that stay in float, and what it refuses."""

import pytest

from program import CELL, LABELLED, SERIES, TEXT, TINY, refuses, run

import json
import struct
import wave
from pathlib import Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quantize")
    (folder / "series.csv").write_text(SERIES)
    (folder / "text.txt").write_bytes(TEXT)
    (folder / "labelled.csv").write_text(LABELLED)
    options = {
        "text.txt": ["--steps", 150, "--cell", "gru", "--learning-rate", 0.02],
        "series.csv": ["--steps", 40, "--horizon", 2, "--calendar", "none", "--cell", "lstm", "--no-linear"],
        "labelled.csv": ["--steps", 60, "--no-filters", "--cell", "minlstm"],
    }
    for data, given in options.items():
        name = data.partition(".")[0]
        run("train", data, "-o", f"{name}.safetensors", *TINY, *given, cwd=folder)
    return folder


@pytest.mark.parametrize(
    ("name", "data", "worst"),
    [("text", "text.txt", "byte "), ("series", "series.csv", "scored row "), ("labelled", "labelled.csv", None)],
)
def test_every_task(folder, name, data, worst):
    lines = run("quantize", f"{name}.safetensors", "--data", data, "--force", "--report", cwd=folder).out.splitlines()
    words = [line.split(maxsplit=1) for line in lines]
    assert words[0][0] == "score" and "with int8" in lines[0]
    if worst:
        assert lines[1].startswith("worst    " + worst)
    assert any("blocks.0.recurrent" in line and "by itself" in line for line in lines)
    assert words[-1][0] == "file" and f"{name}.int8.safetensors" in lines[-1]
    small, large = ((folder / f"{name}{kind}.safetensors").stat().st_size for kind in (".int8", ""))
    assert small < large
    told = run("quantize", f"{name}.safetensors", "--data", data, "--json", "-o", "again.safetensors", "--force", cwd=folder).json()
    assert abs(told["loss"]) < 0.05 and told["bytes"] == small and told["bytes_before"] == large
    assert [layer["int8"] for layer in told["layers"]] == [True] * len(told["layers"])
    assert (folder / "again.safetensors").read_bytes() == (folder / f"{name}.int8.safetensors").read_bytes()


def test_the_file_is_a_model_like_others(folder):
    run("quantize", "text.safetensors", "--data", "text.txt", "-o", "small.safetensors", "--force", cwd=folder)
    score = run("evaluate", "small.safetensors", "text.txt", "--json", cwd=folder).json()["files"][0]
    told = run("quantize", "text.safetensors", "--data", "text.txt", "--json", "-o", "b.safetensors", cwd=folder).json()
    assert score["bits_per_byte"] == pytest.approx(told["error_after"], rel=1e-6)
    info = run("info", "small.safetensors", "--json", cwd=folder).json()
    assert "blocks.0.recurrent" in json.dumps(info)
    streamed = run("stream", "small.safetensors", stdin=TEXT[:200], cwd=folder).out
    assert streamed.count("\n") >= 200
    run("generate", "small.safetensors", "-n", 20, cwd=folder)
    run("why", "small.safetensors", cwd=folder)
    assert "linear" in run("profile", "small.safetensors", "--passes", 2, cwd=folder).out
    assert "int8" in run("info", "small.safetensors", cwd=folder).out


def test_layers_stay_in_float(folder):
    told = run("quantize", "text.safetensors", "--data", "text.txt", "--report", "--json", "-o", "c.safetensors", cwd=folder).json()
    losses = sorted(layer["loss"] for layer in told["layers"])
    least = max(losses[0], 0.0)  # one layer of int8 keeps this
    too_much = told["loss"] > least
    limit = (least + told["loss"]) / 2 if too_much else max(told["loss"], 0.0)
    kept = run(
        "quantize", "text.safetensors", "--data", "text.txt", "--max-loss", limit, "--json", "-o", "d.safetensors", cwd=folder
    ).json()
    assert kept["loss"] <= limit
    assert all(layer["int8"] for layer in kept["layers"]) != too_much
    assert any(layer["int8"] for layer in kept["layers"])


def test_what_is_refused(folder, tmp_path):
    refuses("quantize", message="MODEL is missing", status=2, verb="quantize", cwd=folder)
    refuses("quantize", "text.safetensors", message="--data is missing", status=2, verb="quantize", cwd=folder)
    refuses(
        "quantize", "text.safetensors", "--data", "-",
        message="--data must be a file, not -: it is read once for each model that is scored",
        status=2, verb="quantize", cwd=folder,
    )  # fmt: skip
    assert "max-loss must be 0 or more" in run(
        "quantize", "text.safetensors", "--data", "text.txt", "--max-loss", -1, "-o", "e.safetensors", expect=2, cwd=folder
    ).err
    (tmp_path / "empty.txt").write_bytes(b"x")
    assert "there is nothing to score: give a text of at least 2 bytes" in run(
        "quantize", "text.safetensors", "--data", tmp_path / "empty.txt", "-o", "f.safetensors", expect=1, cwd=folder
    ).err
    (tmp_path / "wrong.csv").write_text("a,b\n1,2\n3,4\n")
    run("quantize", "series.safetensors", "--data", tmp_path / "wrong.csv", "-o", "f.safetensors", expect=1, cwd=folder)
    assert not (folder / "f.safetensors").exists()

    run("quantize", "text.safetensors", "--data", "text.txt", "-o", "int8.safetensors", "--force", cwd=folder)
    assert "those that can already are" in run(
        "quantize", "int8.safetensors", "--data", "text.txt", "-o", "g.safetensors", expect=1, cwd=folder
    ).err
    assert run("export", "int8.safetensors", "-o", "x.onnx", "--json", cwd=folder).json()["inputs"][0]["name"] == "tokens"
    for words, text in (("profile --training", "cannot be trained"), ("why --device cuda --chip h100", "run on CPUs only")):
        command, *options = words.split()
        assert text in run(command, "int8.safetensors", *options, expect=1, cwd=folder).err
    assert "go on from the one that was quantised" in run(
        "train", "text.txt", "--init", "int8.safetensors", "-o", "h.safetensors", "--steps", 1, expect=2, cwd=folder
    ).err


def test_custom_cells_stay_in_float(tmp_path):
    (tmp_path / "cell.json").write_text(json.dumps(CELL))
    (tmp_path / "text.txt").write_bytes(TEXT)
    run("train", "text.txt", "--cell", "cell.json", "-o", "m.safetensors", *TINY, "--steps", 3, cwd=tmp_path)
    told = run("quantize", "m.safetensors", "--data", "text.txt", "--json", cwd=tmp_path).json()
    assert "blocks.0.recurrent" not in [layer["name"] for layer in told["layers"]]
    assert "head" in [layer["name"] for layer in told["layers"]]


def network_file(path, kind, nodes, inputs=4, outputs=2):
    """An ONNX file with an input x [1, inputs] and an output y of nodes that read w [inputs, outputs]."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    values = [(i * 37 + 5) % 101 / 50 - 1 for i in range(inputs * outputs)]
    weights = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [inputs, outputs], values)
    ends = [onnx.helper.make_tensor_value_info(*end) for end in (("x", kind, [1, inputs]), ("y", 1, [1, outputs]))]
    nodes = [onnx.helper.make_node(op, reads, writes, **attributes) for op, reads, writes, attributes in nodes]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], [weights])
    opsets = [onnx.helper.make_opsetid("", 17)]
    path.write_bytes(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


@pytest.mark.parametrize("kind, nodes, status, message", [
    (7, [("Cast", ["x"], ["f"], {"to": 1}), ("MatMul", ["f", "w"], ["y"], {})], 1,
     "input 'x' of net.safetensors has the type i64, expected f32, samples"),
    (1, [("MatMul", ["x", "w"], ["f"], {}), ("Cast", ["f"], ["y"], {"to": 7})], 1,
     "net.safetensors has no values of the type f32 among its outputs, whose change would be the loss"),
    (1, [("MatMul", ["x", "w"], ["f"], {}), ("Abs", ["f"], ["a"], {}), ("Neg", ["a"], ["b"], {}), ("Log", ["b"], ["y"], {})], 1,
     "the loss of the unchanged network is nan: its outputs for this data are not finite"),
])  # fmt: skip
def test_networks_without_a_loss(tmp_path, kind, nodes, status, message):
    network_file(tmp_path / "net.onnx", kind, nodes)
    run("import", "net.onnx", cwd=tmp_path)
    with wave.open(str(tmp_path / "a.wav"), "wb") as sound:
        sound.setparams((1, 2, 16000, 0, "NONE", ""))
        sound.writeframes(struct.pack("<64h", *range(1000, 1640, 10)))
    for options in ([], ["--max-loss", 0.5]):
        told = run("quantize", "net.safetensors", "--data", "a.wav", "-o", "q.safetensors", *options, expect=status, cwd=tmp_path)
        assert message in told.err and told.err.count("\n") == 1
    assert not (tmp_path / "q.safetensors").exists()


def test_networks_that_round_inputs(tmp_path):
    network_file(tmp_path / "net.onnx", 1, [("MatMul", ["x", "w"], ["y"], {})], 80, 80)
    run("import", "net.onnx", cwd=tmp_path)
    with wave.open(str(tmp_path / "a.wav"), "wb") as sound:
        sound.setparams((1, 2, 16000, 0, "NONE", ""))
        sound.writeframes(struct.pack("<160h", *range(-8000, 8000, 100)))
    told = run("quantize", "net.safetensors", "--data", "a.wav", "--round-inputs", "--json", cwd=tmp_path).json()
    assert 0 < told["loss"] < 0.02
    assert "RoundedMatMul" in run("info", "net.int8.safetensors", cwd=tmp_path).out


def test_imported_networks(folder):
    network = Path(__file__).parents[1] / "released/0.1/network.safetensors"
    for name, samples in (("sound.wav", 1600), ("short.wav", 10)):
        with wave.open(str(folder / name), "wb") as sound:
            sound.setparams((1, 2, 16000, 0, "NONE", ""))
            sound.writeframes(b"".join(struct.pack("<h", (i * i * 37 + i * 101) % 20001 - 10000) for i in range(samples)))
    (folder / "network.safetensors").write_bytes(network.read_bytes())
    lines = run("quantize", "network.safetensors", "--data", "sound.wav", "--report", cwd=folder).out.splitlines()
    assert lines[0].startswith("score    outputs differ by 0.") and lines[0].endswith(" % of their mean size")
    assert lines[1].startswith("layers   ") and "int8" in lines[1] and "by itself" in lines[1]
    assert "network.int8.safetensors" in lines[-1]
    told = run("quantize", "network.safetensors", "--data", "sound.wav", "--hop", 8, "--json", "-o", "n.safetensors", cwd=folder).json()
    assert 0 < told["loss"] < 0.02 and told["bytes"] == (folder / "n.safetensors").stat().st_size
    assert all(layer["int8"] for layer in told["layers"])
    assert "DequantizeLinear" in run("info", "n.safetensors", cwd=folder).out

    def refused(message, status, *given, model="network.safetensors", data="sound.wav"):
        told = run("quantize", model, "--data", data, "-o", "m.safetensors", *given, expect=status, cwd=folder)
        assert message in told.err and told.err.count("\n") == 1 and told.out == ""

    refused("--data must be a sound for an imported network, such as speech.wav, not text.txt", 2, data="text.txt")
    refused("--threads applies to a model of 'penstock train'; MODEL is none", 2, "--threads", 2)
    refused("--hop applies to an imported network; MODEL is none", 2, "--hop", 2, model="text.safetensors", data="text.txt")
    refused("--round-inputs applies to an imported network; MODEL is none", 2, "--round-inputs", model="text.safetensors", data="text.txt")
    refused("--hop must be 0 or more, not -2", 2, "--hop", -2)
    refused("--shape must be whole numbers of at least 1, not 0.5", 2, "--shape", "1,0.5")
    refused("input 'x' has the shape [1, 16], not [1, 8]", 2, "--shape", "1,8")
    refused("short.wav has 10 samples, and one input of the network takes 16", 1, data="short.wav")
    refused("no layer can be int8 without a loss of more than 1e-07 %", 1, "--max-loss", 1e-9)
    refused("no node of this network can become int8", 1, model="n.safetensors")
    assert not (folder / "m.safetensors").exists()
