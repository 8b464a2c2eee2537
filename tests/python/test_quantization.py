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


def network_of(tmp_path, bidirectional=False, steps=2):
    """An imported network with a convolution, a recurrent layer and both kinds of products."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(3)
    directions = 2 if bidirectional else 1

    def constant(name, *shape):
        return numpy_helper.from_array(rng.normal(0, 0.3, shape).astype(np.float32), name)

    direction = {"direction": "bidirectional"} if bidirectional else {}
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], name="conv", pads=[1, 1]),
        helper.make_node("Transpose", ["c"], ["t"], perm=[2, 0, 1]),
        helper.make_node("LSTM", ["t", "w", "r", "b"], ["ys", "h"], name="lstm", hidden_size=12, **direction),
        helper.make_node("Reshape", ["h", "flat"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["p"]),
        helper.make_node("Gemm", ["p", "g", "gb"], ["y"], name="gemm", transB=1),
    ]
    weights = [constant("k", 16, 4, 3), constant("w", directions, 48, 16), constant("r", directions, 48, 12),
               constant("b", directions, 96), constant("m", 12 * directions, 20), constant("g", 5, 20), constant("gb", 5),
               numpy_helper.from_array(np.array([1, -1], np.int64), "flat")]
    shape = [1, 4, steps]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    path = tmp_path / "network.onnx"
    onnx.save(model, path)
    return penstock.import_onnx(path)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_networks(tmp_path, bidirectional):
    network = network_of(tmp_path, bidirectional)
    data = np.random.default_rng(5).normal(size=(20, 1, 4, 2)).astype(np.float32)
    made, report = penstock.quantize(network, data, each_layer=True)
    names = [layer["name"] for layer in report["layers"]]
    assert names == ["conv", "lstm", "p", "gemm"]
    assert 1e-5 < report["loss"] < 0.02
    assert all(0 < layer["loss"] < 0.02 and layer["int8"] for layer in report["layers"])
    assert network.operators.get("DequantizeLinear", 0) == 0
    assert made.operators["DequantizeLinear"] == 5

    # Weights are those that numpy rounds, with a scale for each output.
    def rounded(weights, axis):
        scale = np.abs(weights).max(axis=axis, keepdims=True).astype(np.float32) / np.float32(127)
        return np.rint(weights / scale).clip(-127, 127).astype(np.int8).astype(np.float32) * scale

    import onnx
    from onnx import numpy_helper

    model = onnx.load(tmp_path / "network.onnx")
    for initializer in model.graph.initializer:
        axis = {"k": (1, 2), "w": 2, "r": 2, "m": 0, "g": 1}.get(initializer.name)
        if axis is not None:
            initializer.CopyFrom(numpy_helper.from_array(rounded(numpy_helper.to_array(initializer), axis), initializer.name))
    want = penstock.import_onnx(model.SerializeToString())
    np.testing.assert_array_equal(made.run(data[0])["y"], want.run(data[0])["y"])

    network.save(tmp_path / "float.safetensors")
    made.save(tmp_path / "int8.safetensors")
    assert (tmp_path / "int8.safetensors").stat().st_size < 0.7 * (tmp_path / "float.safetensors").stat().st_size
    loaded = penstock.Network.load(tmp_path / "int8.safetensors")
    np.testing.assert_array_equal(loaded.run(data[3])["y"], made.run(data[3])["y"])

    worst = max(report["layers"], key=lambda layer: layer["loss"])
    _, less = penstock.quantize(network, data, max_loss=0.9 * report["loss"])
    assert not next(layer for layer in less["layers"] if layer["name"] == worst["name"])["int8"]
    with pytest.raises(penstock.NumericalError, match="no layer can be int8 without a loss of more than 1e-07 %"):
        penstock.quantize(network, data, max_loss=1e-9)
    with pytest.raises(penstock.InvalidArgument, match="at least one step"):
        penstock.quantize(network, [])
    for bad in (np.nan, np.inf):
        with pytest.raises(penstock.NumericalError, match="the loss of the unchanged network is nan"):
            penstock.quantize(network, np.full_like(data, bad))
    with pytest.raises(penstock.InvalidArgument, match="apply to models of penstock.train only"):
        penstock.quantize(network, data, threads=2)
    with pytest.raises(penstock.Unsupported, match="no node of this network can become int8"):
        penstock.quantize(made, data)


def test_networks_that_round_inputs(tmp_path):
    from onnx import helper

    random = np.random.default_rng(4)
    frames, channels = 60, 40

    def constant(name, *shape):
        return helper.make_tensor(name, 1, shape, (random.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).ravel().astype(np.float32))

    nodes = [
        helper.make_node("Conv", ["x", "k", "kb"], ["c"], name="conv", pads=[4, 0]),
        helper.make_node("Relu", ["c"], ["a"]),
        helper.make_node("Transpose", ["a"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["t", "m"], ["y"], name="product"),
    ]
    weights = [constant("k", 64, channels, 5), constant("kb", 64), constant("m", 64, 90)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, ["B", channels, "T"])],
                              [helper.make_tensor_value_info("y", 1, ["B", "T", 90])], weights)
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    network = penstock.import_onnx(content, stream="T")
    data = random.normal(size=(4, 1, channels, frames)).astype(np.float32)
    plain, less = penstock.quantize(network, data)
    made, report = penstock.quantize(network, data, round_inputs=True)
    assert made.operators["RoundedConv"] == made.operators["RoundedMatMul"] == 1
    assert not any(name.startswith("Rounded") for name in plain.operators)
    assert 1e-4 < report["loss"] < 0.02 and report["loss"] != less["loss"]
    made.save(tmp_path / "made.safetensors")
    made = penstock.Network.load(tmp_path / "made.safetensors")

    # Chunks, rows of a pool and sessions have the same bits.
    shapes = {"x": [1, channels, 4]}
    whole = [penstock.NetworkSession(made).run(sound)["y"] for sound in data]
    pool = penstock.SessionPool(made, 4, shapes=shapes, threads=1)
    streams, alone = [pool.open() for _ in data], penstock.NetworkSession(made)
    for begin in range(0, frames, 4):
        chunk = np.ascontiguousarray(data[..., begin : begin + 4])
        answers, failures = pool.push(streams, chunk.reshape(4, -1))
        assert not failures
        for i in range(4):
            np.testing.assert_array_equal(answers[i].reshape(4, 90), whole[i][0, begin : begin + 4])
        np.testing.assert_array_equal(alone.run(chunk[0])["y"], whole[0][:, begin : begin + 4])
    with pytest.raises(penstock.InvalidArgument, match="round_inputs applies to networks only"):
        penstock.quantize(penstock.Model.__new__(penstock.Model), data, round_inputs=True)
