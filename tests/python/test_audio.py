"""Models of amplifiers in the JSON of RTNeural, GuitarML and Neural Amp Modeler, compared with their equations in float64."""

import json

import numpy as np
import pytest

penstock = pytest.importorskip("penstock", reason="penstock is not installed")

STEPS = 200


def numbers(random, *shape):
    """Weights as the files hold them: floats of 32 bits."""
    return random.normal(0, 0.6, shape).astype(np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    raised = np.exp(x - x.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


ACTIVATIONS = {
    "": lambda x: x,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": sigmoid,
    "softmax": softmax,
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
}


# RTNeural: the layers of Keras, in float64, on x [T, C].


def lstm(x, w, u, b):
    h = c = np.zeros(len(u))
    out = []
    for step in x:
        i, f, g, o = np.split(step @ w + h @ u + b, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        out.append(h)
    return np.array(out)


def gru(x, w, u, b):
    h = np.zeros(len(u))
    out = []
    for step in x:
        xz, xr, xn = np.split(step @ w + b[0], 3)
        hz, hr, hn = np.split(h @ u + b[1], 3)
        z = sigmoid(xz + hz)
        h = (1 - z) * np.tanh(xn + sigmoid(xr + hr) * hn) + z * h
        out.append(h)
    return np.array(out)


def conv1d(x, w, b, dilation, groups):
    taps, inner, maps = w.shape
    before = np.concatenate([np.zeros(((taps - 1) * dilation, x.shape[1])), x])
    out = np.tile(b, (len(x), 1))
    for each in range(maps):
        first = each // (maps // groups) * inner
        for k in range(taps):
            out[:, each] += before[k * dilation : k * dilation + len(x), first : first + inner] @ w[k, :, each]
    return out


def conv2d(x, w, b, layer):
    """Over steps, causally, and features: x [T, features * C] with w [steps, width, C, O]."""
    taps, width, inner, maps = w.shape
    dilation, stride, features = layer["dilation"], layer["strides"], layer["num_features_in"]
    same = layer["padding"] == "same"
    outputs = -(-features // stride) if same else -(-(features - width + 1) // stride)
    added = max((outputs - 1) * stride + width - features, 0) if same else 0
    before = np.zeros((len(x) + (taps - 1) * dilation, features + added, inner))
    before[(taps - 1) * dilation :, added // 2 : added // 2 + features] = x.reshape(len(x), features, inner)
    out = np.tile(b, (len(x), outputs, 1))
    for step in range(taps):
        for place in range(outputs):
            seen = before[step * dilation : step * dilation + len(x), place * stride : place * stride + width]
            out[:, place] += np.einsum("twc,wco->to", seen, w[step])
    return out.reshape(len(x), -1)


def evaluate(layer, x):
    w = [np.asarray(each, np.float64) for each in layer["weights"]]
    kind = layer["type"]
    if kind in ("dense", "time-distributed-dense"):
        x = x @ w[0] + (w[1] if len(w) == 2 else 0)
    elif kind == "conv1d":
        x = conv1d(x, w[0], w[1], layer["dilation"][0], layer.get("groups", 1))
    elif kind == "conv2d":
        x = conv2d(x, w[0], w[1], layer)
    elif kind == "prelu":
        x = np.where(x >= 0, x, x * w[0][0])
    elif kind in ("batchnorm", "batchnorm2d"):
        w = [np.tile(each, x.shape[1] // len(each)) for each in w]
        gamma, beta, mean, variance = w if len(w) == 4 else (1, 0, *w)
        x = gamma * (x - mean) / np.sqrt(variance + layer["epsilon"]) + beta
    elif kind in ("lstm", "gru"):
        return {"lstm": lstm, "gru": gru}[kind](x, *w)
    return ACTIVATIONS[layer["activation"]](x)


def layer(kind, size, *weights, activation="", **more):
    return {"type": kind, "activation": activation, "shape": [None, None, size], "weights": [w.tolist() for w in weights], **more}


def rtneural(*layers, channels=1, **more):
    return {"in_shape": [None, None, channels], "layers": list(layers), **more}


def every_layer():
    """A model with each kind of layer and activation."""
    r = np.random.default_rng(1)
    positive = r.uniform(0.5, 1.5, 6).astype(np.float32)
    return rtneural(
        layer("time-distributed-dense", 6, numbers(r, 1, 6), numbers(r, 6), activation="tanh"),
        layer("conv1d", 6, numbers(r, 3, 6, 6), numbers(r, 6), activation="elu", kernel_size=[3], dilation=[2]),
        layer("batchnorm", 6, numbers(r, 6), numbers(r, 6), numbers(r, 6), positive, epsilon=0.01),
        layer("prelu", 6, numbers(r, 1, 6)),
        layer("lstm", 5, numbers(r, 6, 20), numbers(r, 5, 20), numbers(r, 20), activation="tanh"),
        layer("dense", 8, numbers(r, 5, 8), activation="sigmoid"),
        layer("gru", 6, numbers(r, 8, 18), numbers(r, 6, 18), numbers(r, 2, 18), activation="tanh"),
        layer("conv1d", 4, numbers(r, 2, 3, 4), numbers(r, 4), activation="relu", kernel_size=[2], dilation=[1], groups=2),
        layer("gru", 6, numbers(r, 4, 18), numbers(r, 6, 18), numbers(r, 2, 18)),
        layer("batchnorm", 6, numbers(r, 6), positive, epsilon=0.5),
        layer("prelu", 6, numbers(r, 1, 1)),
        layer("lstm", 4, numbers(r, 6, 16), numbers(r, 4, 16), numbers(r, 16)),
        layer("activation", 4, activation="softmax"),
        layer("dense", 1, numbers(r, 4, 1), numbers(r, 1)),
    )


def two_axes():
    """Convolutions over steps and features, which both ways of padding leave alone, fill or cut."""
    r = np.random.default_rng(8)

    def conv(size, features, inner, maps, taps, width, dilation, stride, padding, activation=""):
        sizes = {"kernel_size_time": taps, "kernel_size_feature": width, "num_filters_in": inner, "num_features_in": features}
        more = {**sizes, "num_filters_out": maps, "dilation": dilation, "strides": stride, "padding": padding}
        made = layer("conv2d", size, numbers(r, taps, width, inner, maps) / 2, numbers(r, maps), activation=activation, **more)
        return {**made, "shape": [None, None, size // maps, maps]}

    positive = r.uniform(0.5, 1.5, 3).astype(np.float32)
    norm = layer("batchnorm2d", 3, numbers(r, 3), numbers(r, 3), numbers(r, 3), positive, epsilon=0.01, num_filters_in=3, num_features_in=5)
    layers = [
        conv(9 * 2, 11, 1, 2, 3, 3, 2, 1, "valid", "tanh"),
        layer("batchnorm2d", 18, numbers(r, 2), positive[:2], epsilon=0.5, num_filters_in=2, num_features_in=9),
        conv(5 * 3, 9, 2, 3, 2, 4, 1, 2, "same"),
        {**norm, "shape": [None, None, 5, 3]},
        layer("activation", 15, activation="elu"),
        conv(2 * 2, 5, 3, 2, 1, 2, 1, 3, "valid"),
        layer("dense", 1, numbers(r, 4, 1), numbers(r, 1)),
    ]
    return {"in_shape": [None, None, 11, 1], "layers": layers}


def small_lstm(**more):
    r = np.random.default_rng(2)
    return rtneural(
        layer("lstm", 8, numbers(r, 1, 32), numbers(r, 8, 32), numbers(r, 32), activation="tanh"),
        layer("dense", 1, numbers(r, 8, 1), numbers(r, 1)),
        **more,
    )


def guitarml(unit="LSTM", layers=1, skip=1, inputs=1, outputs=1, bias=True):
    r = np.random.default_rng(3)
    size, gates = 7, {"LSTM": 4, "GRU": 3, "RNN": 1}[unit]
    tensors = {}
    for k in range(layers):
        shapes = {"weight_ih": [inputs if k == 0 else size], "weight_hh": [size], "bias_ih": [], "bias_hh": []}
        tensors.update({f"rec.{name}_l{k}": numbers(r, gates * size, *shape).tolist() for name, shape in shapes.items()})
    tensors["lin.weight"] = numbers(r, outputs, size).tolist()
    if bias:
        tensors["lin.bias"] = numbers(r, outputs).tolist()
    data = {"model": "SimpleRNN", "input_size": inputs, "skip": skip, "output_size": outputs, "unit_type": unit}
    return {"model_data": {**data, "num_layers": layers, "hidden_size": size, "bias_fl": bias}, "state_dict": tensors}


def nam(layers=2, initial=True, **more):
    r = np.random.default_rng(4)
    size, weights = 5, []
    for k in range(layers):
        states = [numbers(r, size) if initial else np.zeros(size) for _ in range(2)]
        weights += [numbers(r, 4 * size, (1 if k == 0 else size) + size), numbers(r, 4 * size), *states]
    weights += [numbers(r, size), numbers(r, 1)]
    flat = np.concatenate([np.ravel(each) for each in weights]).tolist()
    config = {"input_size": 1, "hidden_size": size, "num_layers": layers}
    return {"version": "0.5.4", "metadata": {"name": "x"}, "architecture": "LSTM", "config": config, "weights": flat, **more}


def torch_cell(unit, x, w, u, b, v, state):
    """One layer with the order of gates of torch.nn, on x [T, I]."""
    h, c = state
    out = []
    for step in x:
        if unit == "LSTM":
            i, f, g, o = np.split(w @ step + b + u @ h + v, 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        elif unit == "GRU":
            (xr, xz, xn), (hr, hz, hn) = np.split(w @ step + b, 3), np.split(u @ h + v, 3)
            z = sigmoid(xz + hz)
            h = (1 - z) * np.tanh(xn + sigmoid(xr + hr) * hn) + z * h
        else:
            h = np.tanh(w @ step + b + u @ h + v)
        out.append(h)
    return np.array(out)


def expected(model, x):
    """The outputs [T, O] of a file, in float64."""
    x = x.astype(np.float64)
    if "layers" in model:
        x = start = x * 10 ** (model.get("in_gain", 0) / 20)
        for each in model["layers"]:
            x = evaluate(each, x)
        return (x + model.get("in_skip", 0) * start[:, :1]) * 10 ** (model.get("out_gain", 0) / 20)
    start = x
    if "state_dict" in model:
        data = model["model_data"]
        tensors = {name: np.asarray(each, np.float64) for name, each in model["state_dict"].items()}
        zero = np.zeros(data["hidden_size"])
        for k in range(data["num_layers"]):
            parts = [tensors[f"rec.{name}_l{k}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
            x = torch_cell(data["unit_type"], x, *parts, (zero, zero))
        return x @ tensors["lin.weight"].T + tensors.get("lin.bias", 0) + (start[:, : data["skip"]] if data["skip"] else 0)
    rest, size = np.asarray(model["weights"], np.float64), model["config"]["hidden_size"]

    def take(*shape):
        nonlocal rest
        taken, rest = rest[: int(np.prod(shape))].reshape(shape), rest[int(np.prod(shape)) :]
        return taken

    for _ in range(model["config"]["num_layers"]):
        both, bias, h, c = take(4 * size, x.shape[1] + size), take(4 * size), take(size), take(size)
        x = torch_cell("LSTM", x, both[:, : x.shape[1]], both[:, x.shape[1] :], bias, 0 * bias, (h, c))
    head, bias = take(1, size), take(1)
    return x @ head.T + bias


MODELS = {
    "rtneural, every layer": every_layer(),
    "rtneural": small_lstm(samplerate="48000"),
    "rtneural, two axes": two_axes(),
    "aida-x": small_lstm(in_skip=1, in_gain=-3.5, out_gain=6, metadata={"samplerate": "44100", "name": {"a": [1, "b"]}}),
    "guitarml": guitarml(),
    "guitarml, gru of two layers": guitarml("GRU", layers=2, skip=0),
    "guitarml, rnn with a knob": guitarml("RNN", inputs=2, bias=False),
    "guitarml, stereo": guitarml(inputs=2, outputs=2, skip=2),
    "nam": nam(sample_rate=44100.5),
    "nam, from zero": nam(1, initial=False, sample_rate=None),
}


@pytest.mark.parametrize("name", MODELS)
def test_streams_have_the_values_of_the_equations(name, tmp_path):
    model = MODELS[name]
    (tmp_path / "amp.json").write_text(json.dumps(model, indent=1))
    penstock.import_audio(tmp_path / "amp.json").save(tmp_path / "amp.safetensors")
    network = penstock.Network.load(tmp_path / "amp.safetensors")
    x = np.random.default_rng(5).normal(0, 1, (STEPS, network.inputs[0].shape[2])).astype(np.float32)
    y = expected(model, x)
    # Each layer rounds sums of tens of products of values of about 1; recurrences forget that again.
    bound = 64 * np.finfo(np.float32).eps * (1 + np.abs(y).max())
    session = penstock.NetworkSession(network)
    chunks = [session.run(chunk[None])["output"][0] for chunk in np.split(x, [1, 2, 9, 50, 51, 150])]
    assert np.abs(np.concatenate(chunks) - y).max() <= bound
    session.reset()
    assert np.abs(session.run(x[None])["output"][0] - y).max() <= bound
    assert np.abs(y).max() > 0.1 and np.abs(np.diff(y, axis=0)).max() > 1e-3  # which a wrong network would not match


def test_sampling_rates():
    rates = {name: penstock.import_audio(json.dumps(model).encode()).sample_rate for name, model in MODELS.items()}
    assert [rates[name] for name in ("rtneural", "aida-x", "guitarml", "nam", "nam, from zero")] == [48000, 44100, 0, 44100.5, 48000]


def test_batches_of_streams():
    network = penstock.import_audio(json.dumps(MODELS["rtneural"]).encode())
    x = np.random.default_rng(6).normal(0, 1, (3, 20, 1)).astype(np.float32)
    together = network.run(x)["output"]
    assert all(np.allclose(network.run(row[None])["output"][0], y, atol=1e-6) for row, y in zip(x, together))


def changed(model, **fields):
    """A copy in which fields, "layers.0.type" or "weights", have other values, or are missing (None)."""
    copy = json.loads(json.dumps(model))
    for path, value in fields.items():
        *folders, last = (int(part) if part.isdigit() else part for part in path.split("/"))
        place = copy
        for folder in folders:
            place = place[folder]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return copy


LSTM, AXES, RNN, NAM = MODELS["rtneural"], MODELS["rtneural, two axes"], MODELS["guitarml"], MODELS["nam"]
REFUSALS = [
    (changed(LSTM, **{"layers/0/type": "conv3d"}), "Unsupported", r"layers\[0\] \(conv3d\): there is no such layer here"),
    (changed(AXES, **{"layers/0/padding": "full"}), "BadInput", r'layers\[0\] \(conv2d\): padding "full", expected "valid" or "same"'),
    (changed(AXES, **{"layers/0/num_features_in": 12}), "BadInput", r"num_features_in \* num_filters_in is 12, but there are 11 values"),
    (changed(AXES, **{"layers/0/kernel_size_feature": 12}), "BadInput", "kernel_size_feature is 12, more than the 11 features"),
    (changed(AXES, **{"layers/0/strides": 2}), "BadInput", "its shape has 18 values a step, expected 5 features of 2 filters"),
    (changed(AXES, **{"layers/0/dilation": 1 << 20}), "Unsupported", "its history of 3145728 steps of 11 values has more than"),
    (changed(AXES, **{"layers/1/num_filters_in": 4}), "BadInput", "4 filters do not divide 18 values"),
    (changed(AXES, in_shape=[None, None, 4000, 4000]), "BadInput", "in_shape has 16000000 values a step, expected"),
    (changed(LSTM, **{"layers/0/type": "a\nb"}), "Unsupported", r'layers\[0\] \("a\\nb"\)'),
    (changed(LSTM, **{"layers/0/shape": [None, None, 6]}), "BadInput", r"\(lstm\): weights\[0\] has the shape \[1, 32\], expected \[1, 24\]"),
    (changed(LSTM, **{"layers/0/shape": [1.5]}), "BadInput", "shape is 1.5, expected a whole number from 1 to"),
    (changed(LSTM, **{"layers/0/activation": "relu"}), "Unsupported", 'activation "relu"; such a layer of RTNeural has tanh'),
    (changed(LSTM, **{"layers/1/activation": "swish"}), "Unsupported", r'layers\[1\] \(dense\): activation "swish"; supported'),
    (changed(LSTM, **{"layers/1/weights": []}), "BadInput", "0 arrays of weights, expected 2"),
    (changed(LSTM, in_skip=2), "BadInput", "in_skip is 2, expected a whole number from 0 to 1"),
    (changed(LSTM, in_shape=None), "BadInput", "the number in_shape is missing"),
    (changed(RNN, **{"model_data/model": "GatedConvNet"}), "Unsupported", 'model_data: model "GatedConvNet"; supported: SimpleRNN'),
    (changed(RNN, **{"model_data/unit_type": "QRNN"}), "Unsupported", 'unit_type "QRNN"; supported: LSTM, GRU, RNN'),
    (changed(RNN, **{"model_data/num_layers": 2}), "BadInput", "state_dict: 6 tensors, expected 10 of 2 layers and lin"),
    (changed(RNN, **{"state_dict/lin.bias": None, "state_dict/x": [1]}), "BadInput", "the array lin.bias is missing"),
    (changed(RNN, **{"model_data/skip": None}), "BadInput", "the number skip is missing"),
    (changed(NAM, architecture="WaveNet"), "Unsupported", 'architecture "WaveNet"; supported: LSTM'),
    (changed(NAM, **{"config/hidden_size": 6}), "BadInput", r"weights has the shape \[386\], expected \[535\]"),
    (changed(NAM, **{"config/hidden_size": 1e9}), "BadInput", "hidden_size is 1000000000, expected"),
    ({"weight": [[1.0]]}, "Incompatible", r"no model: expected in_shape and layers \(RTNeural\), .*; the weights of PyTorch alone"),
    ({"in_shape": [[1, 2], [3]]}, "BadInput", "lists of equal length expected at byte"),
    ({"in_shape": [1, [2]]}, "BadInput", "lists of equal depth expected at byte"),
    ({"in_shape": [[[[[1]]]]]}, "BadInput", "at most 4 lists in each other expected at byte"),
    ({"in_shape": [1e39]}, "BadInput", "a float of 32 bits expected at byte"),
]


@pytest.mark.parametrize("model, error, message", REFUSALS)
def test_refusals_name_the_layer_and_the_reason(model, error, message):
    with pytest.raises(getattr(penstock.errors, error), match=message):
        penstock.import_audio(json.dumps(model).encode())


def test_broken_text():
    for text in (b"", b"{", b'{"layers": [{', b'{"in_shape": [1], "in_shape": [1]}', b'{"layers": [' + b"{}," * 600 + b"{}]}"):
        with pytest.raises(penstock.errors.BadInput):
            penstock.import_audio(text)
    with pytest.raises(penstock.errors.IoFailure):
        penstock.import_audio("missing.json")
