"""Models of amplifiers: imported, streamed, and exported for RTNeural. tests/python/test_audio.py checks their values."""

import json
import math
import random
import re
import wave

import pytest

from program import refuses, run

LSTM = {
    "in_shape": [None, None, 1],
    "samplerate": "8000",
    "layers": [
        {"type": "lstm", "activation": "tanh", "shape": [None, None, 1], "weights": [[[1, 2, 3, 4]], [[1, 1, 1, 1]], [0, 0, 0, 0]]},
        {"type": "dense", "activation": "", "shape": [None, None, 1], "weights": [[[0.5]], [0.1]]},
    ],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audio")
    for name, gain, rate in (("in.wav", 1, 8000), ("amp.wav", 3, 8000), ("other.wav", 1, 16000)):
        with wave.open(str(folder / name), "wb") as file:
            file.setparams((1, 2, rate, 0, "NONE", ""))
            for t in range(4000):
                sample = int(20000 * math.tanh(gain * 0.6 * math.sin(t * t / 4e4)))
                file.writeframes(sample.to_bytes(2, "little", signed=True))
    (folder / "amp.json").write_text(json.dumps(LSTM))
    return folder


def test_an_amplifier_becomes_a_stream(folder):
    lines = run("import", "amp.json", cwd=folder).out.splitlines()
    assert lines[:3] == ["file         amp.safetensors", "input        input  f32 [batch, time, 1]", "output       output"]
    assert "sound        8000 Hz" in lines
    assert run("info", "amp.safetensors", "--json", cwd=folder).json()["sample_rate"] == 8000
    said = run("stream", "amp.safetensors", "in.wav", "out.wav", "--target", "in.wav", "--stats", cwd=folder).out
    assert re.match(r"out.wav: 0.500 s of sound in \d.\d+ s, real-time factor \d.\d+\nerror-to-signal ratio .*\n4,000 steps, p50", said)


def test_several_channels_are_averaged_and_said(folder):
    with wave.open(str(folder / "in.wav")) as file:
        samples = file.readframes(file.getnframes())
    with wave.open(str(folder / "two.wav"), "wb") as file:
        file.setparams((2, 2, 8000, 0, "NONE", ""))
        file.writeframes(b"".join(2 * samples[i : i + 2] for i in range(0, len(samples), 2)))
    run("import", "amp.json", "-o", "mono.safetensors", cwd=folder)
    one = run("stream", "mono.safetensors", "in.wav", "of_one.wav", cwd=folder)
    two = run("stream", "mono.safetensors", "two.wav", "of_two.wav", cwd=folder)
    assert one.err == "" and two.err == "two.wav: 2 channels, averaged\n"
    assert (folder / "of_one.wav").read_bytes() == (folder / "of_two.wav").read_bytes()
    trained = run("train", "two.wav", "--target", "amp.wav", "--steps", 1, "--width", 4, "-o", "t.safetensors", cwd=folder)
    assert "two.wav: 2 channels, averaged" in trained.out + trained.err


def test_what_does_not_fit_is_refused(folder):
    run("import", "amp.json", "-o", "net.safetensors", cwd=folder)

    def refused(message, status, *command):
        refuses(*command, message=message, status=status, verb=command[0], cwd=folder)

    refused("--set is for ONNX files: a model of an amplifier or effect becomes a stream by itself", 2, "import", "amp.json", "-o", "x.safetensors", "--set", "a=1")  # fmt: skip
    refused("net.safetensors is an imported network, which streams sound: 'penstock stream net.safetensors IN.wav OUT.wav'", 2, "stream", "net.safetensors")  # fmt: skip
    refused("other.wav: 16000 Hz, the model was trained at 8000 Hz", 1, "stream", "net.safetensors", "other.wav", "y.wav")
    refused("--exact does not apply to imported networks", 2, "stream", "net.safetensors", "in.wav", "y.wav", "--exact")
    (folder / "two.json").write_text(json.dumps({**LSTM, "layers": LSTM["layers"][:1], "in_skip": 3}))
    refused("two.json: in_skip is 3, expected a whole number from 0 to 1", 1, "import", "two.json", "-o", "x.safetensors")


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_rtneural_has_the_values_of_the_model(folder, cell):
    small = ["--cell", cell, "--blocks", 1, "--width", 6, "--norms", "between", "--steps", 30, "--length", 64, "--batch", 4]
    if cell == "gru":
        small += ["--hidden-size", 5]
    run("train", "in.wav", "--target", "amp.wav", *small, "-o", f"{cell}.safetensors", "--force", cwd=folder)
    run("stream", f"{cell}.safetensors", "in.wav", f"{cell}.wav", cwd=folder)
    assert "JSON of RTNeural, 8000 Hz" in run("export", f"{cell}.safetensors", "-o", f"{cell}.json", cwd=folder).out
    layers = json.loads((folder / f"{cell}.json").read_text())["layers"]
    assert [each["type"] for each in layers] == [cell, "dense"]
    run("import", f"{cell}.json", "-o", f"{cell}.net.safetensors", cwd=folder)
    said = run("stream", f"{cell}.net.safetensors", "in.wav", "again.wav", "--target", f"{cell}.wav", "--force", cwd=folder).out
    assert float(re.search(r"error-to-signal ratio (\S+),", said)[1]) < 1e-11  # the square of a few units of a float's last place


def test_what_rtneural_cannot_express_is_refused(folder):
    for options, message in (
        (["--norms", "all"], "norms is all, expected between: train with --norms between"),
        (["--norms", "between", "--cell", "mingru"], 'cell is "mingru", expected lstm or gru'),
        (["--norms", "between", "--blocks", 2], "blocks is 2, expected 1: RTNeural has no sums of layers"),
    ):
        given = ["--cell", "lstm", "--blocks", 1, "--width", 4, "--steps", 2, "--length", 16, "--batch", 2]
        run("train", "in.wav", "--target", "amp.wav", *given, *options, "-o", "m.safetensors", "--force", cwd=folder)
        refuses("export", "m.safetensors", "-o", "m.json", message=f"RTNeural cannot express this model: {message}", status=1, verb="export", cwd=folder)  # fmt: skip


def drawn_layers(*kinds):
    drawn = random.Random(3)

    def matrix(rows, columns):
        return [[drawn.uniform(-0.6, 0.6) for _ in range(columns)] for _ in range(rows)]

    layers, channels = [], 1
    for kind, size, activation in kinds:
        gates = {"lstm": 4, "gru": 3, "dense": 1}[kind]
        weights = [matrix(channels, gates * size)] + ([matrix(size, gates * size)] if gates > 1 else [])
        weights.append(matrix(2, 3 * size) if kind == "gru" else matrix(1, gates * size)[0])
        layers.append({"type": kind, "activation": activation, "shape": [None, None, size], "weights": weights})
        channels = size
    return {"in_shape": [None, None, 1], "samplerate": 8000, "layers": layers}


def test_an_imported_network_returns_to_rtneural(folder):
    kinds = [("lstm", 5, "tanh"), ("gru", 4, "tanh"), ("dense", 3, "elu"), ("dense", 1, "")]
    first = drawn_layers(*kinds)
    (folder / "layers.json").write_text(json.dumps(first))
    run("import", "layers.json", cwd=folder)
    said = run("export", "layers.safetensors", "-o", "back.json", cwd=folder).out
    assert said == "file back.json, JSON of RTNeural\n"
    second = json.loads((folder / "back.json").read_text())
    assert second["samplerate"] == 8000
    assert [(each["type"], each["shape"][2], each["activation"]) for each in second["layers"]] == kinds
    for one, other in zip(first["layers"], second["layers"]):
        flat = [[float(value) for value in re.findall(r"-?\d[\d.e+-]*", json.dumps(each["weights"]))] for each in (one, other)]
        assert flat[1] == pytest.approx(flat[0], abs=1e-6)


def test_convolutions_and_norms_return_to_rtneural(folder):
    drawn = random.Random(4)

    def numbers(*shape):
        return [numbers(*shape[1:]) for _ in range(shape[0])] if shape else drawn.uniform(-0.6, 0.6)

    def layer(kind, size, weights, activation="", **more):
        return {"type": kind, "activation": activation, "shape": [None, None, size], "weights": weights, **more}

    layers = [
        layer("conv1d", 4, [numbers(40, 1, 4), numbers(4)], "tanh", kernel_size=[40], dilation=[2]),
        layer("batchnorm", 4, [numbers(4), numbers(4), numbers(4), [1, 2, 3, 4]], epsilon=0.01),
        layer("prelu", 4, [numbers(1, 4)]),
        layer("conv1d", 6, [numbers(3, 2, 6), numbers(6)], kernel_size=[3], dilation=[1], groups=2),
        layer("batchnorm", 6, [numbers(6), [1, 2, 3, 4, 5, 6]], epsilon=0.5),
        layer("prelu", 6, [[[0.3]]]),
        layer("conv1d", 2, [numbers(1, 6, 2), numbers(2)], kernel_size=[1], dilation=[1]),
        layer("gru", 3, [numbers(2, 9), numbers(3, 9), numbers(2, 9)], "tanh"),
        layer("dense", 1, [numbers(3, 1), numbers(1)]),
    ]
    (folder / "chain.json").write_text(json.dumps({"in_shape": [None, None, 1], "out_gain": 6, "layers": layers}))
    run("import", "chain.json", cwd=folder)
    run("export", "chain.safetensors", "-o", "chain_back.json", cwd=folder)
    back = json.loads((folder / "chain_back.json").read_text())["layers"]
    fields = ("type", "activation", "shape", "kernel_size", "dilation")
    assert [[each.get(field) for field in fields] for each in back[:-1]] == [[each.get(field) for field in fields] for each in layers]
    assert back[0]["groups"] == 1 and back[3]["groups"] == 2
    assert back[-1]["type"] == "batchnorm" and back[-1]["weights"][0] == pytest.approx([10**0.3]), "the gain"
    run("import", "chain_back.json", cwd=folder)
    run("stream", "chain.safetensors", "in.wav", "chain.wav", cwd=folder)
    said = run("stream", "chain_back.safetensors", "in.wav", "chain_back.wav", "--target", "chain.wav", cwd=folder).out
    assert float(re.search(r"error-to-signal ratio (\S+),", said)[1]) < 1e-11


def test_convolutions_over_features_return_to_rtneural(folder):
    def conv(padding, stride, features, maps, weights):
        sizes = {"kernel_size_time": 2, "kernel_size_feature": 2, "num_filters_in": 1, "num_features_in": 5, "num_filters_out": maps}
        more = {"activation": "tanh", "shape": [None, None, features, maps], "dilation": 3, "strides": stride, "padding": padding}
        return {"type": "conv2d", **sizes, **more, "weights": weights}

    kernel = [[[[0.5, -1]], [[0.25, 2]]], [[[1, 3]], [[-2, 0.75]]]]
    norm = {"type": "batchnorm2d", "activation": "", "shape": [None, None, 4, 2], "epsilon": 0.5, "num_filters_in": 2, "num_features_in": 4}
    for first in (conv("valid", 1, 4, 2, [kernel, [0.5, -0.5]]), conv("same", 2, 3, 2, [kernel, [1, 2]])):
        layers = [first] + [{**norm, "weights": [[1, 2], [0.5, 1.5]]}] * (first["padding"] == "valid")
        (folder / "axes.json").write_text(json.dumps({"in_shape": [None, None, 5, 1], "layers": layers}))
        run("import", "axes.json", "--force", cwd=folder)
        run("export", "axes.safetensors", "-o", "axes_back.json", "--force", cwd=folder)  # which compares the outputs
        back = json.loads((folder / "axes_back.json").read_text())["layers"]
        assert back[0] == first
        assert [each["type"] for each in back[1:]] == ["batchnorm"] * (len(layers) - 1)


def node(op, *constants, **attributes):
    """A network of one ONNX operator, for x [1, 1, 8, 4]."""
    from onnx import TensorProto, helper

    tensors = [helper.make_tensor(f"c{i}", TensorProto.FLOAT, shape, [0.5] * math.prod(shape)) for i, shape in enumerate(constants)]
    x, y = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 8, 4]), helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    made = helper.make_node(op, ["x", *(each.name for each in tensors)], ["y"], name="it", **attributes)
    graph = helper.make_graph([made], "one", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def test_networks_that_rtneural_cannot_express_are_refused(folder):
    skip = json.dumps({**LSTM, "in_skip": 1}).encode()
    for name, file, message in (
        ("skip.json", skip, 'both read "input"; RTNeural has one layer after the other'),
        ("sin.onnx", node("Sin"), 'Sin "it": RTNeural has no such operator; supported: lstm, gru, dense, conv1d, conv2d, prelu'),
        ("ahead.onnx", node("Conv", [1, 1, 2, 1], pads=[0, 0, 1, 0]), 'Conv "it": RTNeural\'s reads the present sample and earlier ones'),
        ("past.onnx", node("Conv", [1, 1, 2, 1]), 'Conv "it": RTNeural\'s reads the present sample and earlier ones'),
        ("padded.onnx", node("Conv", [1, 1, 1, 2], pads=[0, 1, 0, 0]), 'no padding but "same" or "valid"'),
        ("wide.onnx", node("Conv", [1, 1, 1, 2], dilations=[1, 2]), "no dilation over features"),
        ("table.onnx", node("Add", [8, 4]), 'Add "it": its input 2 has the shape [8, 4], expected 4 values'),
        ("turned.onnx", node("Transpose", perm=[0, 1, 3, 2]), "the layers alone differ from it by"),
    ):
        (folder / name).write_bytes(file)
        network = name.split(".")[0] + ".safetensors"
        run("import", name, cwd=folder)
        refused = run("export", network, "-o", "x.json", expect=1, cwd=folder).err
        assert refused.startswith(f"penstock export: {network}: RTNeural cannot express this network: ") and message in refused, refused


def test_a_network_of_bytes_has_no_layers_of_rtneural(folder):
    import onnx
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.UINT8, [1, 8, 1]) for name in "xy")
    shape = helper.make_tensor("shape", TensorProto.INT64, [3], [1, 8, 1])
    graph = helper.make_graph([helper.make_node("Reshape", ["x", "shape"], ["y"])], "bytes", [x], [y], [shape])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "bytes.onnx")
    run("import", "bytes.onnx", cwd=folder)
    message = 'bytes.safetensors: RTNeural cannot express this network: input "x" is not of the type f32'
    refuses("export", "bytes.safetensors", "-o", "bytes.json", message=message, status=1, verb="export", cwd=folder)


def noise(path, latency=0, seed=5, gain=1.0):
    drawn = random.Random(seed)
    values = [drawn.gauss(0, 0.3) for _ in range(9000)]
    values = [0.0] * latency + values[: len(values) - latency]
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(b"".join(round(20000 * math.tanh(gain * value)).to_bytes(2, "little", signed=True) for value in values))


def test_a_latency_is_found_and_kept(tmp_path):
    noise(tmp_path / "in.wav")
    noise(tmp_path / "out.wav", latency=25, gain=2.0)
    command = ["train", "in.wav", "--target", "out.wav", "--cell", "lstm", "--blocks", 1, "--width", 8, "--steps", 60]
    command += ["--learning-rate", 0.02, "--batch", 4, "--length", 1024, "--loss", "esr-stft", "--metrics", "run.jsonl"]
    said = run(*command, "--json", "-o", "amp.safetensors", cwd=tmp_path)
    assert re.search(r"latency 25 samples \(3.12 ms\), by cross-correlation: its peak is [\d.]+ times the next; the last 25 samples of "
                     r"the input are cut; the first 25 samples of the target are cut", said.err)  # fmt: skip
    score = said.json()["score"]
    assert score["samples"] == 1795 and 0 < score["esr"] < 0.5, "the sounds are lined up, so a model of one step learns"
    shown = run("stream", "amp.safetensors", "in.wav", "o.wav", "--target", "out.wav", cwd=tmp_path).out
    assert "; the target moved by the model's latency of 25 samples\n" in shown
    assert float(re.search(r"error-to-signal ratio (\S+),", shown)[1]) == pytest.approx(score["esr"], rel=0.2)
    assert "latency      25 samples, removed in training" in run("info", "amp.safetensors", cwd=tmp_path).out
    run("report", "run.jsonl", "-o", "page.html", cwd=tmp_path)
    assert re.search(r"ESR 0\.\d+, 0\.\d+ with pre-emphasis", (tmp_path / "page.html").read_text())

    noise(tmp_path / "other.wav", seed=6)
    start = ["train", "in.wav", "-o", "x.safetensors", "--target"]
    said = run(*start, "other.wav", expect=1, cwd=tmp_path).err
    assert said.startswith("penstock train: other.wav: cross-correlation cannot tell how far it follows in.wav: a shift of ")
    assert said.endswith("; --latency 0 if both begin together, else their distance in samples\n")
    refuses(*start, "out.wav", "--latency", 9000, verb="train", status=1, cwd=tmp_path,
            message="out.wav: a latency of 9000 samples leaves nothing of 9000 samples, and of 9000 samples in in.wav")  # fmt: skip
    refuses(*start, "out.wav", "--loss", "stft", "--length", 512, verb="train", status=2, cwd=tmp_path,
            message="--length must be at least 1024 for the loss stft, whose longest frame that is, not 512")  # fmt: skip
