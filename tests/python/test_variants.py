"""Ready-written variants of cells: against NumPy, ONNX Runtime and Keras, and through files."""

import itertools
import json
import math
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import penstock
from penstock import interchange, variants
from penstock.interchange import RecurrentWeights

TOLERANCE = 2e-6


def values(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def erf(x):
    return np.vectorize(math.erf)(x)


#: Each activation in NumPy.
EXPECTED = {
    "affine": lambda x: x,
    "celu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "exponential": np.exp,
    "gelu": lambda x: x * 0.5 * (1 + erf(x / np.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "hard_shrink": lambda x: np.where(abs(x) > 0.5, x, 0),
    "hard_sigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hard_silu": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "hard_tanh": lambda x: np.clip(x, -1, 1),
    "leaky_relu": lambda x: np.where(x < 0, 0.01 * x, x),
    "linear": lambda x: x,
    "log_sigmoid": lambda x: -np.logaddexp(0, -x),
    "mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "scaled_tanh": np.tanh,
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "soft_shrink": lambda x: np.sign(x) * np.maximum(abs(x) - 0.5, 0),
    "softplus": lambda x: np.logaddexp(0, x),
    "softsign": lambda x: x / (1 + abs(x)),
    "sparse_plus": lambda x: np.where(x >= 1, x, np.where(x <= -1, 0, (x + 1) ** 2 / 4)),
    "sparse_sigmoid": lambda x: np.clip((x + 1) / 2, 0, 1),
    "squareplus": lambda x: (x + np.sqrt(x * x + 4)) / 2,
    "tanh": np.tanh,
    "tanh_shrink": lambda x: x - np.tanh(x),
    "thresholded_relu": lambda x: np.where(x > 1, x, 0),
}


def test_every_activation_is_tested():
    assert EXPECTED.keys() == variants.ACTIVATIONS.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_activations(name):
    network = penstock.Recurrent(variants.elman(activation=name), 1, 1, dtype="float64")
    with network.edit() as weights:
        for parameter, value in weights.items():
            value[:] = parameter == "weight_ih_l0"
    x = np.linspace(-7, 7, 1001)
    y, _ = network.forward(x.reshape(-1, 1, 1))
    np.testing.assert_allclose(y.ravel(), EXPECTED[name](x), rtol=1e-12, atol=1e-13)


def random_network(cell, **options):
    network = penstock.Recurrent(cell, 3, 5, dtype="float64", **options)
    with network.edit() as weights:
        for i, value in enumerate(weights.values()):
            value[:] = values(*value.shape, seed=i)
    return network


def run_lstm(weights, x, peepholes, coupled, clip, cell_clip, zoneout):
    """Returns the outputs of a variant with elu as its candidate."""
    hidden, gates = 5, 3 if coupled else 4
    limited = (lambda v: v) if clip is None else (lambda v: np.clip(v, -clip, clip))
    held = (lambda v: v) if cell_clip is None else (lambda v: np.clip(v, -cell_clip, cell_clip))
    learnt = weights["bias_ih_l0"][gates * hidden :].reshape(-1, hidden)
    p = dict(zip("io" if coupled else "ifo", learnt)) if peepholes else {"i": 0, "f": 0, "o": 0}
    h = c = np.zeros((2, hidden))
    outputs = []
    for t in range(x.shape[1]):
        z = x[:, t] @ weights["weight_ih_l0"].T + weights["bias_ih_l0"][: gates * hidden]
        parts = np.split(z + h @ weights["weight_hh_l0"].T + weights["bias_hh_l0"], gates, axis=1)
        i = sigmoid(limited(parts[0] + p["i"] * c))
        f = 1 - i if coupled else sigmoid(limited(parts[1] + p["f"] * c))
        new = held(f * c + i * EXPECTED["elu"](limited(parts[-2])))
        h = zoneout * h + (1 - zoneout) * sigmoid(limited(parts[-1] + p["o"] * new)) * np.tanh(new)
        c = zoneout / 2 * c + (1 - zoneout / 2) * new
        outputs.append(h)
    return np.stack(outputs, axis=1)


OPTIONS = list(itertools.product([False, True], [False, True], [None, 0.5], [None, 0.75], [0.0, 0.25]))


@pytest.mark.parametrize("peepholes, coupled, clip, cell_clip, zoneout", OPTIONS)
def test_lstm(peepholes, coupled, clip, cell_clip, zoneout):
    options = {"peepholes": peepholes, "coupled": coupled, "clip": clip, "cell_clip": cell_clip, "zoneout": zoneout}
    cell = variants.lstm(candidate="elu", cell_zoneout=zoneout / 2, **options)
    network, x = random_network(cell), values(2, 9, 3).astype(np.float64)
    np.testing.assert_allclose(network.forward(x)[0], run_lstm(network.parameters, x, **options), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("clip, zoneout", list(itertools.product([None, 0.5], [0.0, 0.25])))
def test_gru(clip, zoneout):
    cell = variants.gru(gates=("hard_sigmoid", 0.2, 0.5), candidate="softsign", clip=clip, zoneout=zoneout)
    network, x = random_network(cell), values(2, 9, 3).astype(np.float64)
    weights, h = network.parameters, np.zeros((2, 5))
    limited = (lambda v: v) if clip is None else (lambda v: np.clip(v, -clip, clip))
    y, _ = network.forward(x)
    for t in range(9):
        wx = np.split(x[:, t] @ weights["weight_ih_l0"].T + weights["bias_ih_l0"], 3, axis=1)
        rh = np.split(h @ weights["weight_hh_l0"].T + weights["bias_hh_l0"], 3, axis=1)
        r, z = (np.clip(0.2 * limited(wx[g] + rh[g]) + 0.5, 0, 1) for g in (0, 1))
        n = EXPECTED["softsign"](limited(wx[2] + r * rh[2]))
        h = zoneout * h + (1 - zoneout) * ((1 - z) * n + z * h)
        np.testing.assert_allclose(y[:, t], h, rtol=1e-11, atol=1e-12)


def test_names_are_those_of_the_options():
    assert variants.lstm() == "lstm" and variants.gru() == "gru" and variants.gru(reset_after=False) == "gru-before"
    assert variants.elman() == "elman" and variants.elman(activation="relu") == "elman-relu"
    assert variants.elman(activation=("leaky_relu", 0.2)) == "elman-activation-leaky_relu-0_2"
    assert variants.elman(activation=("leaky_relu", 0.25)) != variants.elman(activation=("leaky_relu", -0.25))
    long = {"gates": "sparse_sigmoid", "candidate": "tanh_shrink", "output": "log_sigmoid", "clip": 3, "cell_clip": 4}
    assert len(variants.lstm(**long)) <= 64 and variants.lstm(**long) != variants.lstm(**{**long, "cell_clip": 5})
    assert variants.lstm(name="mine", clip=2) == "mine"
    assert variants.elman(activation=lambda x: x * x, name="squared") == "squared"


@pytest.mark.parametrize(
    "call, problem",
    [
        (lambda: variants.lstm(gates="sigmod"), "gates must be one of affine, .* or a function, not 'sigmod'"),
        (lambda: variants.lstm(gates=("elu", 1, 2)), "gates: elu has 1 parameters, not 2"),
        (lambda: variants.lstm(gates=("tanh", 1)), "gates: tanh has 0 parameters, not 1"),
        (lambda: variants.lstm(gates=("elu", "much")), "gates: each parameter of elu must be a finite number, not 'much'"),
        (lambda: variants.lstm(clip=0), "clip must be positive, or None for no limit, not 0"),
        (lambda: variants.lstm(cell_clip=float("nan")), "cell_clip must be a finite number, not nan"),
        (lambda: variants.gru(zoneout=1.5), "zoneout must be 0 to 1, not 1.5"),
        (lambda: variants.gru(reset_after=False, clip=1), "reset_after must be True for a GRU with clip, 1, not False"),
        (lambda: variants.elman(activation=lambda x: x + 1) + variants.elman(activation=lambda x: x + 2),
         "has other equations: .*such as name=\"elman-activation-_lambda_-2\""),
    ],
)  # fmt: skip
def test_impossible_options_are_refused(call, problem):
    with pytest.raises(penstock.InvalidArgument, match=problem):
        call()


# Files of ONNX.

NODES = [
    ("LSTM", {"activations": ["HardSigmoid", "LeakyRelu", "Tanh"], "activation_alpha": [0.3, 0.1], "activation_beta": [0.4]}),
    ("LSTM", {"activations": ["Sigmoid", "Elu", "Softsign"]}),
    ("LSTM", {"clip": 0.5}),
    ("LSTM", {"input_forget": 1}),
    ("LSTM", {"P": True}),
    ("LSTM", {"P": True, "input_forget": 1, "clip": 0.75, "activations": ["Sigmoid", "Softplus", "Relu"]}),
    ("GRU", {"linear_before_reset": 1, "activations": ["HardSigmoid", "Relu"]}),
    ("GRU", {"linear_before_reset": 1, "clip": 0.5}),
    ("RNN", {"activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.25]}),
    ("RNN", {"activations": ["ScaledTanh"], "activation_alpha": [0.5], "activation_beta": [2.0]}),
    ("RNN", {"activations": ["ThresholdedRelu"], "activation_alpha": [0.3]}),
    ("RNN", {"activations": ["Relu"], "clip": 0.5}),
]


def node_file(path, kind, options, directions=1, bias=True):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    options, hidden = dict(options), 4
    rows = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind] * hidden
    shapes = {"W": (directions, rows, 3), "R": (directions, rows, hidden), "B": (directions, 2 * rows)}
    if options.pop("P", False):
        shapes["P"] = (directions, 3 * hidden)
    stored = [onnx.numpy_helper.from_array(values(*shape, seed=i), name) for i, (name, shape) in enumerate(shapes.items())]
    inputs = ["x", "W", "R", "B" if bias else "", "", "", "", "P"][: 8 if "P" in shapes else 4]
    for name in ("activations", "activation_alpha", "activation_beta"):
        options[name] = options.get(name, []) * directions
    options["direction"] = "bidirectional" if directions == 2 else "forward"
    node = onnx.helper.make_node(kind, inputs, ["y"], hidden_size=hidden, **{k: v for k, v in options.items() if v != []})
    given = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("x", "y")]
    graph = onnx.helper.make_graph([node], "g", given[:1], given[1:], stored)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), str(path))


def in_onnx_runtime(path, *inputs):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {each.name: value for each, value in zip(session.get_inputs(), inputs)})[0]


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("kind, options", NODES)
def test_nodes_of_onnx(tmp_path, kind, options, directions):
    node_file(tmp_path / "m.onnx", kind, options, directions, bias=options.get("clip") != 0.75)
    (weights,) = interchange.load(tmp_path / "m.onnx").values()
    x = values(2, 9, 3, seed=7)
    expected = in_onnx_runtime(tmp_path / "m.onnx", x.swapaxes(0, 1)).transpose(2, 0, 1, 3).reshape(2, 9, -1)
    network = weights.to_numpy()
    allowed = TOLERANCE * max(1, np.abs(expected).max())
    np.testing.assert_allclose(network.forward(x)[0], expected, rtol=0, atol=allowed)
    # Written as a loop over the equations, and read by ONNX Runtime again.
    interchange.save(tmp_path / "again.onnx", weights, format="onnx")
    states = np.zeros((len(getattr(weights.cell, "states", "h")), directions, 2, 4), np.float32)
    np.testing.assert_allclose(in_onnx_runtime(tmp_path / "again.onnx", x, states), expected, rtol=0, atol=allowed)


@pytest.mark.parametrize(
    "kind, options, error, problem",
    [
        ("GRU", {"clip": 0.5}, penstock.Unsupported, "linear_before_reset=0 and other activations or a clip.*export it with linear_before_reset=1"),
        ("RNN", {"activations": ["Affine"]}, penstock.Unsupported, "its activation Affine has no activation_alpha, whose default"),
        ("RNN", {"activations": ["ThresholdedRelu"]}, penstock.Unsupported, "has no activation_alpha, whose default is not settled"),
        ("RNN", {"activations": ["Cos"]}, penstock.Unsupported, "its activation is .Cos., expected one of affine, elu"),
        ("LSTM", {"activations": ["Sigmoid", "Tanh"]}, penstock.BadInput, "has 2 activations, expected 3"),
        ("LSTM", {"activation_alpha": [0.5, 0.25]}, penstock.Unsupported, "it has 2 activation_alpha and 0 activation_beta"),
    ],
)  # fmt: skip
def test_nodes_of_onnx_that_are_refused(tmp_path, kind, options, error, problem):
    node_file(tmp_path / "m.onnx", kind, options)
    with pytest.raises(error, match=problem):
        interchange.load(tmp_path / "m.onnx")


# Files of Keras.


def keras_or_skip():
    pytest.importorskip("torch")
    pytest.importorskip("h5py")
    os.environ.setdefault("KERAS_BACKEND", "torch")
    return pytest.importorskip("keras", reason="keras is not installed")


#: Activations of Keras by their names there, which other kinds of layers test with the built-in ones.
KERAS_ONLY = ["hard_swish", "leaky_relu", "swish"]
NOT_IN_KERAS = ["affine", "gelu_tanh", "scaled_tanh", "thresholded_relu"]


@pytest.mark.parametrize("name", [*(name for name in EXPECTED if name not in NOT_IN_KERAS), *KERAS_ONLY])
def test_activations_of_keras(tmp_path, name):
    keras = keras_or_skip()
    layer = keras.layers.SimpleRNN(4, activation=name, return_sequences=True, name="rec")
    check_keras(keras, layer, tmp_path / "m.keras", 0.1 if name == "exponential" else 0.5)


@pytest.mark.parametrize("ending", ["keras", "h5"])
@pytest.mark.parametrize(
    "layer",
    [
        lambda k: k.LSTM(4, activation="relu", recurrent_activation="hard_sigmoid", return_sequences=True),
        lambda k: k.LSTM(4, activation="softsign", use_bias=False, return_sequences=True),
        lambda k: k.GRU(4, activation="elu", recurrent_activation="hard_sigmoid", return_sequences=True),
        lambda k: k.Bidirectional(k.GRU(4, activation="gelu", return_sequences=True)),
        lambda k: k.RNN([k.LSTMCell(4, activation="selu"), k.LSTMCell(4, activation="selu")], return_sequences=True),
        lambda k: k.SimpleRNN(4, activation=None, return_sequences=True),
    ],
)
def test_layers_of_keras(tmp_path, layer, ending):
    keras = keras_or_skip()
    check_keras(keras, layer(keras.layers), tmp_path / f"m.{ending}")


def check_keras(keras, layer, path, scale=0.5):
    model = keras.Sequential([keras.Input((None, 3)), layer])
    model.set_weights([scale * values(*w.shape, seed=i) for i, w in enumerate(model.get_weights())])
    model.save(path)
    (weights,) = interchange.load(path).values()
    x = values(2, 9, 3)
    expected = np.asarray(keras.ops.convert_to_numpy(model(x)))
    allowed = 2 * TOLERANCE * max(1, np.abs(expected).max())
    np.testing.assert_allclose(weights.to_numpy().forward(x)[0], expected, rtol=0, atol=allowed)
    if weights.layers == 1 and weights.direction == "forward":
        again = interchange.from_keras(layer.get_weights(), cell=weights.cell)
        for name, array in weights.tensors.items():
            np.testing.assert_array_equal(again.tensors[name], array)


def test_hard_sigmoid_of_keras_2(tmp_path):
    h5py = pytest.importorskip("h5py")
    settings = {"name": "rec", "units": 4, "activation": "hard_sigmoid"}
    config = '{"class_name": "Sequential", "config": {"layers": [{"class_name": "SimpleRNN", "config": %s}]}}'
    with h5py.File(tmp_path / "old.h5", "w") as file:
        file.attrs["model_config"] = config % json.dumps(settings)
        file.attrs["keras_version"] = "2.15.0"
        for name, shape in (("kernel:0", (3, 4)), ("recurrent_kernel:0", (4, 4)), ("bias:0", (4,))):
            file.create_dataset(f"model_weights/rec/rec/simple_rnn_cell/{name}", data=values(*shape))
    weights, x = interchange.load(tmp_path / "old.h5")["rec"], values(1, 1, 3)
    z = x[:, 0] @ weights.tensors["weight_ih_l0"].T + weights.tensors["bias_ih_l0"]
    np.testing.assert_allclose(weights.to_numpy().forward(x)[0][:, 0], np.clip(0.2 * z + 0.5, 0, 1), atol=TOLERANCE)


# haste, and files of Penstock.


def test_layers_of_haste(tmp_path):
    scale = {"kernel": values(3, 5), "recurrent_scale": values(5, seed=1), "bias": values(5, seed=2)}
    interchange.write_tensors(tmp_path / "indrnn.safetensors", scale)
    (weights,) = interchange.load(tmp_path / "indrnn.safetensors").values()
    assert (weights.cell, weights.heads) == ("elman", 5)
    x, h = values(2, 7, 3), np.zeros((2, 5))
    y, _ = weights.to_numpy("float64").forward(x.astype(np.float64))
    for t in range(7):
        h = np.tanh(x[:, t] @ scale["kernel"] + scale["bias"] + h * scale["recurrent_scale"])
        np.testing.assert_allclose(y[:, t], h, rtol=0, atol=1e-6)
    for name, array in interchange.to_haste(weights).items():
        np.testing.assert_array_equal(array, scale[name])
    lstm = {"kernel": values(3, 20), "recurrent_kernel": values(5, 20), "bias": values(20)}
    interchange.write_tensors(tmp_path / "lstm.safetensors", lstm)
    (weights,) = interchange.load(tmp_path / "lstm.safetensors", zoneout=0.25).values()
    assert weights.cell == variants.lstm(zoneout=0.25)
    with pytest.raises(penstock.InvalidArgument, match="zoneout must be 0 for an IndRNN"):
        interchange.load(tmp_path / "indrnn.safetensors", zoneout=0.25)


@pytest.mark.parametrize("form", ["torch", "penstock"])
def test_files_hold_the_equations(tmp_path, form):
    cell = variants.lstm(candidate="elu", peepholes=True)
    weights, x = RecurrentWeights.from_numpy(random_network(cell)), values(2, 9, 3).astype(np.float64)
    expected = weights.to_numpy().forward(x)[0]
    path = tmp_path / "m.safetensors"
    interchange.save(path, weights, format=form)
    program = (
        "import sys, numpy as np; from penstock import interchange;"
        "(weights,) = interchange.load(sys.argv[1]).values();"
        "np.save(sys.argv[2], weights.to_numpy().forward(np.load(sys.argv[3]))[0])"
    )
    np.save(tmp_path / "x.npy", x)
    arguments = [str(path), str(tmp_path / "y.npy"), str(tmp_path / "x.npy")]
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(penstock.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", program, *arguments], check=True, timeout=60, env=environment)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)


def test_modules_of_variants():
    torch = pytest.importorskip("torch")
    cell = variants.lstm(candidate="elu", peepholes=True)
    weights, x = RecurrentWeights.from_numpy(random_network(cell, layers=2)), values(2, 9, 3).astype(np.float64)
    module = weights.to_torch()
    np.testing.assert_allclose(module(torch.from_numpy(x))[0].detach(), weights.to_numpy().forward(x)[0], atol=1e-12)
    for name, array in RecurrentWeights.from_torch(module.double()).tensors.items():
        np.testing.assert_array_equal(array, weights.tensors[name])
    assert [part.layers for part in weights.split()] == [1, 1]
