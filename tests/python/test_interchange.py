"""Weights of other libraries: each format both ways, against the library where there is one, or its equations."""

import json
import os
import pathlib
import re
import struct
import subprocess
import zipfile

import numpy as np
import pytest

penstock = pytest.importorskip("penstock", reason="penstock is not installed")

from penstock import _core, interchange  # noqa: E402
from penstock.interchange import RecurrentWeights  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras' own

BUILD = pathlib.Path(os.environ.get("PENSTOCK_BUILD", pathlib.Path(__file__).parents[2] / "build" / "release"))
PROBE = BUILD / "tests" / "torch_probe"

# Both sides compute in float32 what is between -1 and 1.
TOLERANCE = 1e-6
SIZES = [(1, 1), (3, 5), (7, 16), (33, 17)]  # I, H


def values(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng([seed, *shape]).normal(0, 0.5, shape).astype(dtype)


def sigmoid(x):
    return 1 / (1 + np.exp(-np.asarray(x, np.float64)))


def random_weights(cell, inputs, hidden, *, layers=1, direction="forward", heads=1, bias=True):
    network = penstock.Recurrent(
        cell, inputs, hidden, layers=layers, direction=direction, heads=heads, bias=bias, seed=4
    )
    return RecurrentWeights.from_numpy(network)


def same(a, b):
    assert a.cell == b.cell and list(sorted(a.tensors)) == list(sorted(b.tensors))
    for name in a.tensors:
        np.testing.assert_array_equal(a.tensors[name], b.tensors[name], err_msg=name)


def outputs(weights, x):
    return weights.to_numpy().forward(x)[0]


def check(found, expected):
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


# haste: written out, since it is on no index of packages.


def haste_gru(t, x):
    h, ys = np.zeros((x.shape[0], t["recurrent_kernel"].shape[0])), []
    for step in range(x.shape[1]):
        vx = np.split(x[:, step] @ t["kernel"].astype(np.float64) + t["bias"], 3, 1)
        vh = np.split(h @ t["recurrent_kernel"].astype(np.float64) + t["recurrent_bias"], 3, 1)
        z, r = sigmoid(vx[0] + vh[0]), sigmoid(vx[1] + vh[1])
        h = z * h + (1 - z) * np.tanh(vx[2] + r * vh[2])
        ys.append(h)
    return np.stack(ys, 1)


def haste_lstm(t, x):
    h = c = np.zeros((x.shape[0], t["recurrent_kernel"].shape[0]))
    ys = []
    for step in range(x.shape[1]):
        v = x[:, step] @ t["kernel"].astype(np.float64) + h @ t["recurrent_kernel"].astype(np.float64) + t["bias"]
        i, g, f, o = np.split(v, 4, 1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        ys.append(h)
    return np.stack(ys, 1)


@pytest.mark.parametrize("inputs, hidden", SIZES)
@pytest.mark.parametrize("gates, equations", [(3, haste_gru), (4, haste_lstm)])
def test_haste(inputs, hidden, gates, equations):
    t = {
        "kernel": values(inputs, gates * hidden),
        "recurrent_kernel": values(hidden, gates * hidden, seed=1),
        "bias": values(gates * hidden, seed=2),
    }
    if gates == 3:
        t["recurrent_bias"] = values(gates * hidden, seed=3)
    x = values(2, 9, inputs, seed=4)
    weights = interchange.from_haste(t)
    check(outputs(weights, x), equations(t, x))
    back = interchange.to_haste(weights)
    assert back.keys() == t.keys()
    for name in t:
        np.testing.assert_array_equal(back[name], t[name])


# FlashRNN: written out, too.


def flashrnn(t, x, function):
    r, b, w = (t[n].astype(np.float64) for n in ("R", "b", "W"))
    gates, heads, size, _ = r.shape
    rows, hidden = x.shape[0], heads * size
    h, c, n, m = np.zeros((4, rows, heads, size))
    ys = []
    for step in range(x.shape[1]):
        wx = (x[:, step] @ w.T).reshape(rows, -1, heads, size).transpose(1, 0, 2, 3)
        rh = np.einsum("ghdp,bhp->gbhd", r, h)
        if function == "gru":
            reset, z = sigmoid(wx[0] + rh[1] + b[1]), sigmoid(wx[1] + rh[2] + b[2])
            h = z * h + (1 - z) * np.tanh(wx[2] + b[3] + reset * (rh[0] + b[0]))
        else:
            raw = wx + rh + b[:, None]
            if function == "elman":
                h = np.tanh(raw[0])
            else:
                i, f, z, o = raw
                if function == "lstm":
                    c = sigmoid(f) * c + sigmoid(i) * np.tanh(z)
                    h = sigmoid(o) * np.tanh(c)
                else:
                    kept = m - np.logaddexp(0, -f)
                    m = i if step == 0 else np.maximum(i, kept)
                    i, f = np.exp(i - m), np.exp(kept - m)
                    c, n = f * c + i * np.tanh(z), np.maximum(f * n + i, 1)
                    h = sigmoid(o) * c / n
        ys.append(h.reshape(rows, hidden))
    return np.stack(ys, 1)


@pytest.mark.parametrize("heads, size", [(1, 5), (3, 4), (4, 1)])
@pytest.mark.parametrize(
    "function, of_r, of_w, of_b", [("lstm", 4, 4, 4), ("slstm", 4, 4, 4), ("gru", 3, 3, 4), ("elman", 1, 1, 1)]
)
def test_flashrnn(heads, size, function, of_r, of_w, of_b):
    inputs = 6
    t = {
        "R": values(of_r, heads, size, size),
        "b": values(of_b, heads, size, seed=1),
        "W": values(of_w * heads * size, inputs, seed=2),
    }
    x = values(2, 9, inputs, seed=3)
    weights = interchange.from_flashrnn(t, function=function)
    check(outputs(weights, x), flashrnn(t, x, function))
    back = interchange.to_flashrnn(weights)
    for name in t:
        np.testing.assert_allclose(back[name], t[name], rtol=0, atol=1e-7)


# torch.nn and files of state_dicts.


@pytest.mark.parametrize("kind, options", [("LSTM", {}), ("GRU", {"num_layers": 2, "bidirectional": True}),
                                           ("RNN", {"bias": False}), ("RNN", {"nonlinearity": "relu"}),
                                           ("LSTM", {"num_layers": 3, "dtype": "float64"})])  # fmt: skip
def test_torch(tmp_path, kind, options):
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, options.pop("dtype", "float32"))
    theirs = getattr(torch.nn, kind)(5, 7, batch_first=True, dtype=dtype, **options)
    x = values(2, 9, 5, dtype=np.float64 if dtype == torch.float64 else np.float32)
    expected = theirs(torch.from_numpy(x))[0].detach()
    weights = RecurrentWeights.from_torch(theirs)
    check(outputs(weights, x), expected.numpy())
    check(weights.to_torch()(torch.from_numpy(x))[0].detach().numpy(), expected.numpy())
    cell = None if kind != "RNN" else "elman-relu" if options.get("nonlinearity") == "relu" else "elman"
    # A module among others, in one file and in shards; a state_dict of PyTorch's own.
    model = torch.nn.ModuleDict({"encoder": theirs, "head": torch.nn.Linear(7, 2)})
    torch.save(model.state_dict(), tmp_path / "model.pt")
    arrays = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    interchange.write_tensors(tmp_path / "one.safetensors", arrays)
    interchange.write_tensors(tmp_path / "many.safetensors", arrays, max_shard_bytes=200)
    assert len(list(tmp_path.glob("many-*-of-*.safetensors"))) > 2
    for name in ("model.pt", "one.safetensors", "many.safetensors.index.json"):
        loaded = interchange.load(tmp_path / name, cell=cell)
        assert list(loaded) == ["encoder"]
        same(loaded["encoder"], weights)
    interchange.save(tmp_path / "back.safetensors", {"encoder": weights})
    again = getattr(torch.nn, kind)(5, 7, batch_first=True, dtype=dtype, **options)
    state = interchange.read_tensors(tmp_path / "back.safetensors")
    again.load_state_dict({name.removeprefix("encoder."): torch.from_numpy(array) for name, array in state.items()})
    assert torch.equal(again(torch.from_numpy(x))[0], theirs(torch.from_numpy(x))[0])


@pytest.mark.parametrize(
    "cell, heads", [("slstm", 2), ("gru-before", 1), ("mingru", 1), ("minlstm-log", 1), ("lstm", 4)]
)
def test_what_torch_does_not_have(tmp_path, cell, heads):
    torch = pytest.importorskip("torch")
    weights = random_weights(
        cell, 3, 8, layers=2, heads=heads, bias=True if cell not in ("mingru", "minlstm-log") else "single"
    )
    x = values(2, 9, 3)
    module = weights.to_torch()
    check(module(torch.from_numpy(x))[0].detach().numpy(), outputs(weights, x))
    same(RecurrentWeights.from_torch(module), weights)
    interchange.save(tmp_path / "a.safetensors", weights)
    same(interchange.load(tmp_path / "a.safetensors", prefix="", cell=cell)[""] if cell.startswith("min") else
         interchange.load(tmp_path / "a.safetensors", cell=cell)[""], weights)  # fmt: skip


def test_safetensors_are_those_of_the_package(tmp_path):
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    state = {
        "a.weight": torch.randn(3, 4),
        "b": torch.randn(5).bfloat16(),
        "n": torch.arange(3),
        "e": torch.empty(0, 2),
    }
    theirs.save_file(state, tmp_path / "theirs.safetensors", metadata={"format": "pt"})
    found = interchange.read_tensors(tmp_path / "theirs.safetensors")
    for name, tensor in state.items():
        np.testing.assert_array_equal(found[name], tensor.float().numpy() if name == "b" else tensor.numpy())
    interchange.write_tensors(tmp_path / "ours.safetensors", found)
    for name, tensor in theirs.load_file(tmp_path / "ours.safetensors").items():
        np.testing.assert_array_equal(tensor.numpy(), found[name])


@pytest.mark.parametrize("form", ["torch", "penstock"])
def test_no_damage_to_safetensors_goes_unnoticed(tmp_path, form):
    path = tmp_path / "a.safetensors"
    interchange.save(path, random_weights("gru", 1, 2), format=form)
    whole = path.read_bytes()
    assert b'"penstock.checksum"' in whole
    interchange.load(path)
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with pytest.raises(penstock.Error):
            interchange.load(path)
    older = whole.replace(b"penstock.checksum", b"another.checksum_").replace(b"penstock.checked", b"another.checked_")
    path.write_bytes(older)
    interchange.load(path)  # from before there were checksums


# minGRU-pytorch and xlstm: against the packages themselves.


@pytest.mark.parametrize("kind, expansion", [("minGRU", 1.0), ("minGRU", 1.5), ("minLSTM", 1.0), ("minLSTM", 2.0)])
def test_lucidrains(tmp_path, kind, expansion):
    torch = pytest.importorskip("torch")
    package = pytest.importorskip("minGRU_pytorch." + kind, reason="minGRU-pytorch is not installed")
    theirs = getattr(package, kind)(6, expansion_factor=expansion)
    arrays = {name: tensor.numpy() for name, tensor in theirs.state_dict().items()}
    interchange.write_tensors(tmp_path / "a.safetensors", {"layers.0." + name: array for name, array in arrays.items()})
    weights = interchange.load(tmp_path / "a.safetensors")["layers.0"]
    x = torch.from_numpy(values(2, 33, 6))
    with torch.no_grad():
        found = interchange.lucidrains.to_module(weights)(x)[0].numpy()
        # In double precision: sums of logarithms lose in single what is allowed between the two.
        check(found, theirs.double()(x.double()).float().numpy())
    back = interchange.to_lucidrains(weights)
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)


def xlstm_layer(t, x):
    """The layer of xlstm written out, for weights of its backend "vanilla"."""
    t = {name: array.astype(np.float64) for name, array in t.items()}
    rows, steps, width = x.shape
    heads, size = t["fgate.weight"].shape[:2]
    x = x.astype(np.float64)
    convolved = x
    if "conv1d.conv.weight" in t:
        kernel = t["conv1d.conv.weight"][:, 0]
        past = np.concatenate([np.zeros((rows, kernel.shape[1] - 1, width)), x], 1)
        sums = (
            sum(past[:, tap : tap + steps] * kernel[:, tap] for tap in range(kernel.shape[1])) + t["conv1d.conv.bias"]
        )
        convolved = sums * sigmoid(sums)

    def projected(values, name):
        return np.einsum("bthi,hoi->btho", values.reshape(rows, steps, heads, -1), t[name])

    gates = [projected(convolved, "fgate.weight"), projected(convolved, "igate.weight"),
             projected(x, "zgate.weight"), projected(x, "ogate.weight")]  # fmt: skip
    kernel = t["slstm_cell._recurrent_kernel_"].reshape(heads, 4, size, size)
    bias = t["slstm_cell._bias_"].reshape(4, 1, heads, size)
    h, c, n, m = np.zeros((4, rows, heads, size))
    ys = []
    for step in range(steps):
        i, f, z, o = np.stack([gate[:, step] for gate in gates]) + np.einsum("hgop,bhp->gbho", kernel, h) + bias
        kept = m - np.logaddexp(0, -f)
        m = i if step == 0 else np.maximum(i, kept)
        i, f = np.exp(i - m), np.minimum(np.exp(kept - m), 1)
        c, n = f * c + i * np.tanh(z), f * n + i
        h = sigmoid(o) * c / n
        ys.append(h)
    y = np.stack(ys, 1)
    spread = np.sqrt(y.var(-1, keepdims=True) + 1e-5)
    return ((y - y.mean(-1, keepdims=True)) / spread).reshape(rows, steps, -1) * (1 + t["group_norm.weight"])


@pytest.mark.parametrize("heads, convolution", [(1, 0), (2, 4), (3, 1)])
def test_xlstm_by_its_equations(heads, convolution):
    torch = pytest.importorskip("torch")
    width, size = 4 * heads, 4
    t = {f"{gate}gate.weight": values(heads, size, size, seed=i) for i, gate in enumerate("fizo")}
    t["slstm_cell._recurrent_kernel_"] = values(heads, 4 * size, size, seed=4)
    t["slstm_cell._bias_"] = values(4 * width, seed=5)
    t["group_norm.weight"] = values(width, seed=6)
    if convolution:
        t["conv1d.conv.weight"], t["conv1d.conv.bias"] = values(width, 1, convolution, seed=7), values(width, seed=8)
    x = values(2, 11, width, seed=9)
    module = interchange.xlstm.to_module(interchange.from_xlstm(t)).double()
    found = module(torch.from_numpy(x).double()).detach().numpy()
    check(found, xlstm_layer(t, x))


@pytest.mark.parametrize("heads, convolution", [(1, 0), (2, 4), (4, 3)])
def test_xlstm(heads, convolution):
    torch = pytest.importorskip("torch")
    package = pytest.importorskip("xlstm.blocks.slstm.layer", reason="xlstm is not installed")
    config = package.sLSTMLayerConfig(
        embedding_dim=8, num_heads=heads, conv1d_kernel_size=convolution, backend="vanilla"
    )
    theirs = package.sLSTMLayer(config).eval()
    with torch.no_grad():
        for i, parameter in enumerate(theirs.parameters()):
            parameter.copy_(torch.from_numpy(values(*parameter.shape, seed=i)))
    arrays = {name: tensor.detach().numpy() for name, tensor in theirs.state_dict().items()}
    weights = interchange.from_xlstm(arrays)
    x = torch.from_numpy(values(2, 19, 8))
    with torch.no_grad():
        expected = theirs(x).numpy()
        found = interchange.xlstm.to_module(weights)(x).numpy()
    # The norm divides by the spread of a head, which enlarges what rounding leaves; its inputs are compared above.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * max(1, np.abs(expected).max()) * 10)
    back = interchange.to_xlstm(weights)
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
    # The other backend has the same values in other places.
    other = interchange.to_xlstm(weights, backend="cuda")
    assert other["slstm_cell._recurrent_kernel_"].shape == (heads, 8 // heads, 4 * 8 // heads)
    same(interchange.from_xlstm(other), weights)


# Keras: against the package where it is installed; its files need h5py.


def keras_or_skip():
    pytest.importorskip("torch")
    os.environ.setdefault("KERAS_BACKEND", "torch")
    return pytest.importorskip("keras", reason="keras is not installed")


KERAS_LAYERS = [
    ("LSTM", {}, "lstm"),
    ("LSTM", {"use_bias": False}, "lstm"),
    ("GRU", {}, "gru"),
    ("GRU", {"reset_after": False}, "gru-before"),
    ("SimpleRNN", {}, "elman"),
    ("SimpleRNN", {"activation": "relu"}, "elman-relu"),
]


@pytest.mark.parametrize("kind, options, cell", KERAS_LAYERS)
def test_keras_layers(kind, options, cell):
    keras = keras_or_skip()
    layer = getattr(keras.layers, kind)(7, return_sequences=True, **options)
    x = values(2, 9, 5)
    layer.build(x.shape)
    layer.set_weights([values(*w.shape, seed=i) for i, w in enumerate(layer.get_weights())])
    weights = interchange.from_keras(layer.get_weights(), cell=cell)
    expected = np.asarray(keras.ops.convert_to_numpy(layer(x)))
    np.testing.assert_allclose(outputs(weights, x), expected, rtol=0, atol=TOLERANCE * max(1, np.abs(expected).max()))
    if options.get("use_bias", True):
        for ours, theirs in zip(interchange.to_keras(weights), layer.get_weights()):
            np.testing.assert_array_equal(ours, theirs)


def test_keras_files(tmp_path):
    keras = keras_or_skip()
    pytest.importorskip("h5py")
    layers = keras.layers
    model = keras.Sequential([
        keras.Input((None, 5)),
        layers.LSTM(7, return_sequences=True, name="first"),
        layers.Dropout(0.1),
        layers.Bidirectional(layers.GRU(4, return_sequences=True), name="both"),
        layers.GRU(3, reset_after=False, return_sequences=True, name="last"),
        layers.Dense(2),
    ])  # fmt: skip
    model.set_weights([values(*w.shape, seed=i) for i, w in enumerate(model.get_weights())])
    x = values(2, 9, 5)
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    found = interchange.load(tmp_path / "model.keras")
    with pytest.raises(penstock.BadInput, match="does not say what layer 'bidirectional' computes .*give cell="):
        interchange.load(tmp_path / "model.weights.h5")
    y = x
    for name, cell, direction, stem, layer in [
        ("first", "lstm", "forward", "lstm", 0),
        ("both", "gru", "bidirectional", "bidirectional", 2),
        ("last", "gru-before", "forward", "gru", 3),
    ]:
        assert (found[name].cell, found[name].direction) == (cell, direction)
        # Without a configuration, layers are called by class and number, and their cells have to be said.
        same(interchange.load(tmp_path / "model.weights.h5", prefix=stem, cell=cell)[stem], found[name])
        expected = np.asarray(keras.ops.convert_to_numpy(model.layers[layer](y)))
        check(outputs(found[name], y), expected)
        y = expected
    assert list(found) == ["first", "both", "last"]
    # And back: a file that Keras opens.
    interchange.save(tmp_path / "ours.keras", found, format="keras")
    opened = keras.saving.load_model(tmp_path / "ours.keras")
    check(np.asarray(keras.ops.convert_to_numpy(opened(x))), y)
    for name, weights in interchange.load(tmp_path / "ours.keras").items():
        same(weights, found[name])


def test_hdf5_of_keras_2(tmp_path):
    h5py = pytest.importorskip("h5py")
    arrays = [values(5, 28), values(7, 28, seed=1), values(28, seed=2)]
    config = {
        "class_name": "Sequential",
        "config": {"layers": [{"class_name": "LSTM", "config": {"name": "lstm_3", "units": 7}}]},
    }
    with h5py.File(tmp_path / "old.h5", "w") as file:
        file.attrs["model_config"] = json.dumps(config)
        for name, array in zip(("kernel:0", "recurrent_kernel:0", "bias:0"), arrays):
            file.create_dataset(f"model_weights/lstm_3/lstm_3/lstm_cell/{name}", data=array)
    same(interchange.load(tmp_path / "old.h5")["lstm_3"], interchange.from_keras(arrays))


def keras_model(keras):
    """Layers in each other, with two of one name in two submodels."""
    layers = keras.layers

    def submodel(name, activation):
        return keras.Sequential(
            [keras.Input((None, 5)), layers.LSTM(5, return_sequences=True, name="rec", use_bias=activation)], name=name
        )

    first = keras.Input((None, 5))
    y = submodel("encoder", True)(first)
    y = submodel("decoder", False)(y)
    y = layers.RNN(layers.SimpleRNNCell(4, activation="relu"), return_sequences=True, name="relu")(y)
    y = layers.RNN(layers.GRUCell(4, reset_after=False), return_sequences=True, name="before")(y)
    y = layers.RNN([layers.LSTMCell(6), layers.LSTMCell(6)], return_sequences=True, name="stack")(y)
    y = layers.Bidirectional(layers.GRU(3, return_sequences=True, reset_after=False), name="both")(y)
    model = keras.Model(first, y)
    model.set_weights([values(*w.shape, seed=i) for i, w in enumerate(model.get_weights())])
    return model


@pytest.mark.parametrize("ending", ["keras", "h5"])
def test_keras_layers_in_each_other(tmp_path, ending):
    keras = keras_or_skip()
    pytest.importorskip("h5py")
    model = keras_model(keras)
    model.save(tmp_path / f"m.{ending}")
    found = interchange.load(tmp_path / f"m.{ending}")
    assert {name: (w.cell, w.direction, w.layers) for name, w in found.items()} == {
        "encoder.rec": ("lstm", "forward", 1),
        "decoder.rec": ("lstm", "forward", 1),
        "relu": ("elman-relu", "forward", 1),
        "before": ("gru-before", "forward", 1),
        "stack": ("lstm", "forward", 2),
        "both": ("gru-before", "bidirectional", 1),
    }
    x = values(2, 7, 5)
    y = x
    for weights in found.values():
        y = outputs(weights, y)
    expected = np.asarray(keras.ops.convert_to_numpy(model(x)))
    np.testing.assert_allclose(y, expected, rtol=0, atol=TOLERANCE * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("ending", ["keras", "h5"])
@pytest.mark.parametrize(
    "layer, problem",
    [
        (lambda k: k.RNN(k.LSTMCell(3, activation="softmax")), "has the activation softmax, expected one of celu, elu"),
        (lambda k: k.GRU(3, reset_after=False, activation="relu"), "reset_after=False and other activations.*reset_after=True"),
        (lambda k: k.RNN(k.GRUCell(3), go_backwards=True), "goes backwards"),
        (lambda k: k.LSTM(3, go_backwards=True), "goes backwards"),
        (lambda k: k.TimeDistributed(k.GRU(3, recurrent_activation="softmax")), "has the activation softmax"),
        (lambda k: k.Bidirectional(k.GRU(3), backward_layer=k.GRU(3, reset_after=False, go_backwards=True)),
         "has a gru of 3 units forward and a gru-before of 3 backward"),
        (lambda k: k.Bidirectional(k.SimpleRNN(3), backward_layer=k.SimpleRNN(3, activation="relu", go_backwards=True)),
         "has a elman of 3 units forward and a elman-relu of 3 backward"),
        (lambda k: k.RNN([k.LSTMCell(3), k.GRUCell(3)]), "'it' is a stack of lstm of 3 units, gru of 3"),
    ],
)  # fmt: skip
def test_keras_layers_that_no_cell_computes(tmp_path, layer, problem, ending):
    keras = keras_or_skip()
    pytest.importorskip("h5py")
    made = layer(keras.layers)
    made.name = "it"
    shape = (2, None, 5) if isinstance(made, keras.layers.TimeDistributed) else (None, 5)
    keras.Sequential([keras.Input(shape), made]).save(tmp_path / f"m.{ending}")
    with pytest.raises(penstock.Error, match=problem):
        interchange.load(tmp_path / f"m.{ending}")


def random_keras_layer(layers, random):
    """A layer with any of the settings that change what it computes."""

    def settings():
        kind = random.choice(["LSTM", "GRU", "SimpleRNN"])
        options = {"activation": str(random.choice(["tanh", "elu", "relu"])), "use_bias": bool(random.random() < 0.7)}
        if kind == "GRU":
            options["reset_after"] = bool(random.integers(2))
        return kind, options

    (kind, options), form, units = settings(), random.integers(4), int(random.integers(1, 4))
    ends = {"return_sequences": True}
    if form == 0:
        cells = [getattr(layers, kind + "Cell")(units, **options) for _ in range(random.integers(1, 4))]
        return layers.RNN(cells if len(cells) > 1 else cells[0], **ends)
    forward = getattr(layers, kind)(units, **ends, **options)
    if form == 1:
        other, others = settings() if random.random() < 0.5 else (kind, options)
        backward = getattr(layers, other)(units, go_backwards=True, **ends, **others)
        return layers.Bidirectional(forward, backward_layer=backward)
    return layers.Bidirectional(forward) if form == 2 else forward


@pytest.mark.parametrize("ending", ["keras", "h5"])
def test_any_layer_of_keras_is_read_or_refused(tmp_path, ending):
    keras = keras_or_skip()
    pytest.importorskip("h5py")
    random, read = np.random.default_rng(3), 0
    x = values(2, 5, 3)
    for _ in range(40):
        model = keras.Sequential([keras.Input((None, 3)), random_keras_layer(keras.layers, random)])
        model.set_weights([random.normal(0, 0.5, w.shape) for w in model.get_weights()])
        model.save(tmp_path / f"m.{ending}")
        try:
            (weights,) = interchange.load(tmp_path / f"m.{ending}").values()
        except penstock.Unsupported:
            continue
        expected = keras.ops.convert_to_numpy(model(x))
        np.testing.assert_allclose(
            outputs(weights, x), expected, rtol=0, atol=TOLERANCE * max(1, np.abs(expected).max())
        )
        read += 1
    assert 10 <= read < 40


def test_any_node_of_onnx_is_read_or_refused(tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    random, read, x = np.random.default_rng(5), 0, values(4, 2, 3)
    given = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("x", "y")]
    for _ in range(80):
        kind, size = str(random.choice(["LSTM", "GRU", "RNN"])), int(random.integers(1, 4))
        rows, both = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind] * size, int(random.integers(1, 3))
        stored = {"W": (both, rows, 3), "R": (both, rows, size), "B": (both, 2 * rows), "h": (both, 2, size)}
        stored = {name: random.normal(0, 0.5, shape).astype(np.float32) for name, shape in stored.items()}
        stored["h"] *= random.random() < 0.5
        stored["lengths"] = np.array([2, 4], np.int32)
        inputs = ["x", "W", "R", *(name if random.random() < p else "" for name, p in [("B", 0.7), ("lengths", 0.2), ("h", 0.6)])]
        attributes = {"hidden_size": size, "direction": "bidirectional" if both == 2 else str(random.choice(["forward", "reverse"]))}
        if random.random() < 0.2:
            attributes["clip"] = float(random.choice([0.1, np.finfo(np.float32).max]))
        if kind == "GRU":
            attributes["linear_before_reset"] = int(random.integers(2))
        if kind == "RNN":
            attributes["activations"] = [str(random.choice(["Tanh", "Relu", "Sigmoid"]))] * both
        node = onnx.helper.make_node(kind, inputs, ["y"], **attributes)
        arrays = [onnx.numpy_helper.from_array(array, name) for name, array in stored.items()]
        graph = onnx.helper.make_graph([node], "g", given[:1], given[1:], arrays)
        version = onnx.helper.make_opsetid("", int(random.choice([7, 14, 21])))
        model = onnx.helper.make_model(graph, opset_imports=[version], ir_version=8)
        onnx.save(model, str(tmp_path / "m.onnx"))
        try:
            weights = interchange.load(tmp_path / "m.onnx")["y"]
        except penstock.Unsupported:
            continue
        session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        y = session.run(None, {"x": x})[0]
        check(outputs(weights, np.ascontiguousarray(x.swapaxes(0, 1))), y.transpose(2, 0, 1, 3).reshape(2, 4, -1))
        read += 1
    assert 20 <= read < 80


def test_files_say_the_cell_of_each_layer(tmp_path):
    layers = {cell: random_weights(cell, 3, 4) for cell in ("slstm", "gru-before", "elman-relu", "elman", "mingru")}
    for form, shard in ((None, None), (None, 100), ("flashrnn", None)):
        chosen = layers if form is None else {"slstm": layers["slstm"], "elman": layers["elman"]}
        interchange.save(tmp_path / "a.safetensors", chosen, format=form or "torch", max_shard_bytes=shard)
        found = interchange.load(tmp_path / ("a.safetensors" + (".index.json" if shard else "")))
        assert {name: w.cell for name, w in found.items()} == {name: name for name in chosen}
    interchange.save(tmp_path / "b.safetensors", layers)
    with pytest.raises(penstock.InvalidArgument, match="layer 'slstm' is of the cell 'slstm', not 'lstm'"):
        interchange.load(tmp_path / "b.safetensors", prefix="slstm", cell="lstm")
    interchange.write_tensors(tmp_path / "c.safetensors", layers["elman-relu"].tensors)
    with pytest.raises(penstock.BadInput, match='does not say its cell.*cell="elman" or cell="elman-relu"'):
        interchange.load(tmp_path / "c.safetensors")
    torch = pytest.importorskip("torch")
    module = layers["slstm"].to_torch()
    torch.save({"model": {"x": 1}, "state": module.state_dict()}, tmp_path / "d.pt")
    same(interchange.load(tmp_path / "d.pt")[""], layers["slstm"])


def test_checkpoints(tmp_path):
    torch = pytest.importorskip("torch")
    lstm = torch.nn.LSTM(3, 4, batch_first=True)
    state = torch.nn.ModuleDict({"e": lstm}).state_dict()
    path, x = tmp_path / "a.ckpt", torch.randn(2, 5, 3)
    optimizer = torch.optim.Adam(lstm.parameters())
    lstm(x)[0].sum().backward()
    optimizer.step()
    whole = {"epoch": 1, "state_dict": state, "optimizer": optimizer.state_dict(), "path": tmp_path}
    torch.save(whole, path)
    assert list(interchange.load(path)) == ["e"]
    torch.save({**whole, "ema": {name: tensor * 2 for name, tensor in state.items()}}, path)
    assert list(interchange.load(path)) == ["state_dict.e", "ema.e"]
    (tmp_path / "a.safetensors").write_bytes(path.read_bytes())
    assert list(interchange.load(tmp_path / "a.safetensors")) == ["state_dict.e", "ema.e"]
    torch.save({"epoch": 1, "model": lstm}, path)
    with pytest.raises(penstock.BadInput, match=r"it holds epoch .int., model .torch.nn.modules.rnn.LSTM.; save one by"):
        interchange.load(path)
    for normalise in (torch.nn.utils.weight_norm, torch.nn.utils.parametrizations.weight_norm):
        for dim in (0, 1, None):
            normed = torch.nn.LSTM(3, 4, batch_first=True)
            normalise(normed, "weight_hh_l0", dim=dim)
            normalise(normed, "weight_ih_l0", dim=dim)
            with torch.no_grad():
                for parameter in normed.parameters():
                    parameter.mul_(1.5)
            torch.save(normed.state_dict(), path)
            check(outputs(interchange.load(path)[""], x.numpy()), normed(x)[0].detach().numpy())
    projected = torch.nn.LSTM(3, 4, proj_size=2)
    torch.save(projected.state_dict(), path)
    with pytest.raises(penstock.BadInput, match="'weight_hr_l0' is a projection.*into penstock.torch.LSTM"):
        interchange.load(path)
    with pytest.raises(penstock.InvalidArgument, match="must have no projections .proj_size., not 2"):
        interchange.RecurrentWeights.from_torch(projected)
    spectral = torch.nn.utils.parametrizations.spectral_norm(torch.nn.GRU(3, 4), "weight_hh_l0")
    torch.save(spectral.state_dict(), path)
    with pytest.raises(penstock.BadInput, match="no weight but a part of one.*remove_parametrizations"):
        interchange.load(path)


@pytest.mark.parametrize("names", [("", ""), ("same", "same"), ("same", "")])
def test_nodes_of_onnx_have_names_of_their_own(tmp_path, names):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    made, given = [], []
    for i, name in enumerate(names):
        weights = random_weights("gru", 3, 3)
        weights.tensors["bias_ih_l0"] += i
        tensors, attributes = interchange.to_onnx(weights)
        given += [onnx.numpy_helper.from_array(array, f"{key}{i}") for key, array in tensors.items()]
        made.append(onnx.helper.make_node("Identity", [f"B{i}"], [f"b{i}"]))
        attributes.pop("op_type")
        inputs = ["x", f"W{i}", f"R{i}", f"b{i}", "", "h"]
        made.append(onnx.helper.make_node("GRU", inputs, ["", f"y{i}"], name=name, **attributes))
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(made, "g", [], [], given)), str(tmp_path / "m.onnx"))
    found = interchange.load(tmp_path / "m.onnx")
    assert len(found) == 2
    first, second = (weights.tensors["bias_ih_l0"] for weights in found.values())
    np.testing.assert_allclose(second - first, 1, atol=1e-6)


# Files of the C++ library.


@pytest.mark.parametrize("kind, options, cell", [
    ("LSTM", {"num_layers": 2, "bidirectional": True}, "lstm"),
    ("GRU", {"num_layers": 2}, "gru"),
    ("RNN", {"bidirectional": True}, "elman"),
    ("RNN", {"nonlinearity": "relu", "bias": False}, "elman-relu"),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore")  # of the exporter by traces
def test_layers_that_pytorch_has_exported_as_onnx(tmp_path, kind, options, cell):
    pytest.importorskip("onnx", reason="onnx is not installed")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    module = getattr(torch.nn, kind)(5, 7, batch_first=True, **options)
    x = torch.randn(2, 11, 5)
    torch.onnx.export(module, (x,), str(tmp_path / "m.onnx"), dynamo=False)
    layers = list(interchange.load(tmp_path / "m.onnx").values())
    assert len(layers) == options.get("num_layers", 1) and {layer.cell for layer in layers} == {cell}
    y = x.numpy()
    for layer in layers:
        y = outputs(layer, y)
    with torch.no_grad():
        check(y, module(x)[0].numpy())


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("cell", ["lstm", "gru", "gru-before", "elman", "elman-relu"])
def test_nodes_of_onnx(cell, direction):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    weights = random_weights(cell, 3, 5, direction=direction)
    tensors, attributes = interchange.to_onnx(weights)
    same(interchange.from_onnx(tensors, cell=cell, direction=direction), weights)
    given = {name: onnx.numpy_helper.from_array(array, name) for name, array in tensors.items()}
    node = onnx.helper.make_node(attributes.pop("op_type"), ["x", "W", "R", "B"], ["y"], **attributes)
    kinds = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("x", "y")]
    graph = onnx.helper.make_graph([node], "g", kinds[:1], kinds[1:], list(given.values()))
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    x = values(2, 7, 3)
    y = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x.swapaxes(0, 1)})[0]
    check(y.transpose(2, 0, 1, 3).reshape(2, 7, -1), outputs(weights, x))


def test_onnx_files_that_are_written_are_read(tmp_path):
    pytest.importorskip("onnx", reason="onnx is not installed")
    weights = random_weights("lstm", 3, 5, layers=2)
    interchange.save(tmp_path / "m.onnx", weights, format="onnx")
    layers = interchange.load(tmp_path / "m.onnx")
    x = values(2, 7, 3)
    first, second = layers.values()
    check(outputs(second, outputs(first, x)), outputs(weights, x))
    (name, *_) = layers
    assert list(interchange.load(tmp_path / "m.onnx", prefix=name)) == [name]
    interchange.save(tmp_path / "s.onnx", random_weights("slstm", 3, 6, heads=2), format="onnx")
    with pytest.raises(penstock.BadInput, match="there is no RNN, GRU or LSTM in it; its operators are "):
        interchange.load(tmp_path / "s.onnx")
    with pytest.raises(penstock.InvalidArgument, match="a file of ONNX holds one stack, not 2"):
        interchange.save(tmp_path / "m.onnx", {"a": weights, "b": weights}, format="onnx")


def test_what_onnx_has_and_no_cell(tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    tensors, attributes = interchange.to_onnx(random_weights("lstm", 3, 5))
    kind = attributes.pop("op_type")

    def refused(error, message, inputs=("x", "W", "R", "B"), stored=("W", "R", "B"), **changes):
        node = onnx.helper.make_node(kind, list(inputs), ["y"], **{**attributes, **changes})
        given = [onnx.numpy_helper.from_array(tensors[name], name) for name in stored]
        graph = onnx.helper.make_graph([node], "g", [], [], given)
        onnx.save(onnx.helper.make_model(graph), str(tmp_path / "m.onnx"))
        with pytest.raises(error, match=message):
            interchange.load(tmp_path / "m.onnx")

    refused(penstock.Unsupported, "limits its gates to clip=0, expected a positive number", clip=0.0)
    refused(penstock.Unsupported, "has activation_alpha", activation_alpha=[0.5])
    refused(penstock.Unsupported, "the attribute 'linear_before_reset', which the operator LSTM", linear_before_reset=1)
    refused(penstock.BadInput, "has hidden_size 4, and its weights are of 5", hidden_size=4)
    refused(penstock.Unsupported, "starts from initial_h 'B', which the file holds", inputs=("x", "W", "R", "", "", "B"))
    refused(penstock.Unsupported, "starts from initial_c 'B', which the file holds", inputs=("x", "W", "R", "", "", "", "B"))
    refused(penstock.Unsupported, "has sequence_lens 'B', which the file holds", inputs=("x", "W", "R", "", "B"))
    refused(penstock.Unsupported, "has the activation Sine, expected one of affine", activations=["Sigmoid", "Sine", "Tanh"])
    refused(penstock.BadInput, "tensor 'P' is", inputs=("x", "W", "R", "B", "", "", "", "B"))
    refused(penstock.Unsupported, "LSTM 'y': R is 'R', which is computed and not stored", stored=("W", "B"))
    refused(penstock.BadInput, "has the direction 'sideways'", direction="sideways")
    refused(penstock.BadInput, "tensor 'R' has", inputs=("x", "W", "W", "B"))
    refused(penstock.BadInput, "tensor 'B' is", inputs=("x", "W", "R", "R"))
    with pytest.raises(penstock.InvalidArgument, match="ONNX has no operator of the cell 'mingru'"):
        interchange.to_onnx(random_weights("mingru", 3, 5))
    with pytest.raises(penstock.InvalidArgument, match="one layer, not 2"):
        interchange.to_onnx(random_weights("gru", 3, 5, layers=2))
    for content in (b"", b"no protobuf", b"\x0a" * 100):
        (tmp_path / "bad.onnx").write_bytes(content)
        with pytest.raises(penstock.BadInput, match="no sound file of ONNX|there is no RNN"):
            interchange.load(tmp_path / "bad.onnx")
    with pytest.raises(penstock.IoFailure):
        interchange.load(tmp_path / "none.onnx")


@pytest.mark.parametrize(
    "cell, options",
    [
        ("lstm", {"layers": 2, "direction": "bidirectional"}),
        ("slstm", {"heads": 2}),
        ("gru-before", {"bias": False}),
        ("mingru-log", {"bias": "single"}),
    ],
)
def test_stacks_that_cpp_programs_load(tmp_path, cell, options):
    weights = random_weights(cell, 3, 8, **options)
    path = tmp_path / "stack.safetensors"
    interchange.save(path, weights, format="penstock")
    same(interchange.load(path)[""], weights)
    x = values(2, 9, 3)
    done = subprocess.run([PROBE, path, "2", "9"], input=x.tobytes(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    expected = outputs(weights, x)
    np.testing.assert_array_equal(np.frombuffer(done.stdout, np.float32).reshape(expected.shape), expected)


def test_a_stack_with_a_field_of_a_later_version_is_refused(tmp_path):
    path = tmp_path / "stack.safetensors"
    weights = random_weights("gru", 3, 8)
    description = json.dumps({"cell": "gru", "dropout": 0.5, "gradient_clip": 1.0})
    tensors = weights.tensors
    interchange._files._safetensors.write_file(path, tensors, {"penstock.recurrent": description})
    same(interchange.load(path)[""], weights)
    later = description.replace("}", ', "leak": 0.1}')
    interchange._files._safetensors.write_file(path, tensors, {"penstock.recurrent": later})
    known = "cell, input_size, hidden_size, heads, layers, direction, bias, cell_equations, dropout, gradient_clip"
    message = f"{path}: penstock.recurrent has no field 'leak'; it may have {known}: use a newer Penstock"
    with pytest.raises(penstock.BadInput, match=re.escape(message)):
        interchange.load(path)


def test_whole_models_are_read_elsewhere(tmp_path):
    interchange._files._safetensors.write_file(
        tmp_path / "a.safetensors", {"head.weight": values(2, 3)}, {"penstock": "{}"}
    )
    with pytest.raises(penstock.Incompatible, match="a whole model: penstock.Model.load"):
        interchange.load(tmp_path / "a.safetensors")
    interchange._files._safetensors.write_file(tmp_path / "b.safetensors", {}, {"penstock.recurrent": '{"cell": "nn"}'})
    with pytest.raises(penstock.BadInput, match="its cell must be one of elman, .*, not 'nn'"):
        interchange.load(tmp_path / "b.safetensors")


# What is not sound.


def test_bad_tensors():
    good = {"kernel": values(3, 20), "recurrent_kernel": values(5, 20), "bias": values(20)}
    with pytest.raises(penstock.BadInput, match=r"haste: tensor 'bias' is \[19\], expected \[20\]"):
        interchange.from_haste({**good, "bias": values(19)})
    with pytest.raises(penstock.BadInput, match="haste: there is no tensor 'kernel'"):
        interchange.from_haste({n: a for n, a in good.items() if n != "kernel"})
    with pytest.raises(penstock.BadInput, match="haste: tensor 'gamma' is not known"):
        interchange.from_haste({**good, "gamma": values(2, 20)})
    with pytest.raises(penstock.BadInput, match="tensor 'kernel' is of type int64, expected floats"):
        interchange.from_haste({**good, "kernel": np.zeros((3, 20), np.int64)})
    with pytest.raises(penstock.BadInput, match=r"'recurrent_kernel' is \[5, 19\], expected \[5, 20\] of a LSTM"):
        interchange.from_haste({**good, "recurrent_kernel": values(5, 19)})
    with pytest.raises(penstock.BadInput, match=r"tensor 'b' is \[3, 2, 4\], expected \[4, 2, 4\]"):
        interchange.from_flashrnn({"R": values(3, 2, 4, 4), "b": values(3, 2, 4), "W": values(24, 5)}, function="gru")
    with pytest.raises(penstock.BadInput, match="there is neither 'to_hidden_and_gate.weight' nor"):
        interchange.from_lucidrains({"weight": values(4, 2)})
    with pytest.raises(penstock.BadInput, match=r"'to_hidden_and_gate.weight' has 5 rows, expected a multiple of 2"):
        interchange.from_lucidrains({"to_hidden_and_gate.weight": values(5, 2)})
    with pytest.raises(penstock.BadInput, match="which are 1, 3 or 4 gates of no hidden size"):
        interchange.from_torch({"weight_ih_l0": values(10, 3), "weight_hh_l0": values(10, 5)})
    with pytest.raises(penstock.BadInput, match=r"there is no tensor 'weight_hh_l1'"):
        interchange.from_torch(
            {"weight_ih_l0": values(20, 3), "weight_hh_l0": values(20, 5), "weight_ih_l1": values(20, 5)}
        )
    with pytest.raises(penstock.InvalidArgument, match="biases, and those of these weights are not zero"):
        interchange.to_lucidrains(random_weights("mingru-log", 3, 4, bias="single"))
    with pytest.raises(penstock.InvalidArgument, match="gate i reads inputs that are not its head's"):
        interchange.to_xlstm(random_weights("slstm", 4, 4, heads=2))
    with pytest.raises(penstock.InvalidArgument, match="haste has one layer that runs forward, not 2 that run forward"):
        interchange.to_haste(random_weights("lstm", 3, 4, layers=2))
    assert len(random_weights("lstm", 3, 4, layers=2, direction="bidirectional").split()) == 4


def safetensors_file(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    "content, problem",
    [
        (b"", "no safetensors file: 0 bytes are too few for a header"),
        (b"version https://git-lfs.github.com/spec/v1", "a pointer of Git LFS and not the file itself"),
        (struct.pack("<Q", 1 << 60), "it does not begin with the length of a header"),
        (safetensors_file(b"{" * 100_000), "the header is no JSON in UTF-8"),
        (safetensors_file([1]), "the header is no JSON object"),
        (safetensors_file({"a": 5}), 'tensor "a": must be an object with dtype, shape and data_offsets'),
        (safetensors_file({"a": {"dtype": "F31", "shape": [1], "data_offsets": [0, 4]}}),
         'dtype "F31" is none of BOOL'),
        (safetensors_file({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}),
         "shape must be a list of at most 64 whole numbers"),
        (safetensors_file({"a": {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 4]}}, b"1234"),
         "shape [1099511627776, 1099511627776] is too large"),
        (safetensors_file({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, b"1234"),
         "data_offsets [4, 8] reach beyond the 4 bytes of data in the file"),
        (safetensors_file({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"1234"),
         "no recurrent layer that is known; its tensors are a"),
    ],
)  # fmt: skip
def test_bad_safetensors(tmp_path, content, problem):
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(penstock.BadInput) as caught:
        interchange.load(tmp_path / "a.safetensors")
    assert problem in str(caught.value) and str(tmp_path / "a.safetensors") in str(caught.value)


def test_numbers_of_every_type_are_kept(tmp_path):
    given = {kind: np.arange(6).reshape(2, 3).astype(kind) for kind in ("?", "i1", "u1", "i2", "u2", "f2", "i4", "u4", "f4", "i8", "u8", "f8")}
    interchange.write_tensors(tmp_path / "a.safetensors", given)
    read = interchange.read_tensors(tmp_path / "a.safetensors")
    assert {name: (value.dtype, value.tolist()) for name, value in read.items()} == {
        name: (value.dtype, value.tolist()) for name, value in given.items()
    }


def test_shards_stay_beside_their_index(tmp_path):
    secret = tmp_path / "secret.safetensors"
    interchange.write_tensors(secret, {"weight_ih_l0": values(4, 1)})
    folder = tmp_path / "model"
    folder.mkdir()
    for file in ("../secret.safetensors", str(secret), "model.bin", 5):
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"weight_ih_l0": file}}))
        with pytest.raises(penstock.BadInput, match="which is no file beside the index"):
            interchange.read_tensors(folder)
    (folder / "model.safetensors.index.json").write_text("[1]")
    with pytest.raises(penstock.BadInput, match="no index of shards"):
        interchange.read_tensors(folder)
    with pytest.raises(penstock.IoFailure, match="No such file"):
        interchange.read_tensors(folder / "none.safetensors")


def test_saved_again_shards_are_replaced_as_one(tmp_path, monkeypatch):
    path, index = tmp_path / "m.safetensors", tmp_path / "m.safetensors.index.json"
    models = [{f"w{i}": values(2, 3, seed=seed) for i in range(3)} for seed in range(3)]

    def names():
        return sorted(file.name for file in tmp_path.iterdir() if file != index)

    def check_holds(expected):
        found = interchange.read_tensors(index)
        assert found.keys() == expected.keys() and all(np.array_equal(found[name], expected[name]) for name in expected)

    plain = [f"m-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    interchange.write_tensors(path, models[0], max_shard_bytes=24)
    assert names() == plain
    # The disk is full behind any number of files: the old model is still whole.
    write = _core.write_file
    for room in range(4):
        left = [room]

        def write_until_full(*arguments, left=left):
            if left[0] == 0:
                raise penstock.IoFailure("No space left on device")
            left[0] -= 1
            write(*arguments)

        monkeypatch.setattr(_core, "write_file", write_until_full)
        with pytest.raises(penstock.IoFailure, match="No space left"):
            interchange.write_tensors(path, models[1], max_shard_bytes=24)
        check_holds(models[0])
    monkeypatch.undo()
    interchange.write_tensors(path, models[1], max_shard_bytes=24)
    check_holds(models[1])
    assert names() == [name.replace("m-", "m-2-") for name in plain]
    interchange.write_tensors(path, models[2], max_shard_bytes=24)
    check_holds(models[2])
    assert names() == plain


@pytest.mark.parametrize("forms", [(None, 24), (24, None)])
def test_a_save_in_another_form_leaves_no_older_weights(tmp_path, forms):
    path = tmp_path / "m.safetensors"
    (tmp_path / "m-of-somebody.txt").write_text("kept")
    for version, limit in enumerate(forms):
        interchange.write_tensors(path, {name: np.full(4, version, np.float32) for name in "abc"}, max_shard_bytes=limit)
    found = interchange.read_tensors(tmp_path)
    assert found.keys() == set("abc") and all((array == 1).all() for array in found.values())
    kinds = {None: ["m-of-somebody.txt", "m.safetensors"], 24: ["m-00001-of-00003.safetensors", "m-00002-of-00003.safetensors",
             "m-00003-of-00003.safetensors", "m-of-somebody.txt", "m.safetensors.index.json"]}  # fmt: skip
    assert sorted(file.name for file in tmp_path.iterdir()) == kinds[forms[1]]


def test_nothing_is_run_that_a_file_says(tmp_path):
    torch = pytest.importorskip("torch")

    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "was_here"), "w"))

    torch.save({"weight_ih_l0": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(penstock.BadInput, match="no state_dict that can be read without running it"):
        interchange.load(tmp_path / "evil.pt")
    assert not (tmp_path / "was_here").exists()


def test_bad_keras_files(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "a.keras"
    path.write_bytes(b"PK nothing")
    with pytest.raises(penstock.BadInput, match="no sound zip archive"):
        interchange.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", "{}")
    with pytest.raises(penstock.BadInput, match="it has no config.json or no model.weights.h5"):
        interchange.load(path)
    (tmp_path / "a.h5").write_bytes(b"hello")
    with pytest.raises(penstock.BadInput, match="no HDF5 file"):
        interchange.load(tmp_path / "a.h5")
    with h5py.File(tmp_path / "linked.h5", "w") as file:
        file["layers/lstm/cell/vars"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/x")
    with pytest.raises(penstock.BadInput, match="there is no recurrent layer in it"):
        interchange.load(tmp_path / "linked.h5")
    with h5py.File(tmp_path / "top.h5", "w") as file:
        file["lstm"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/x")
        file["/a/cellular/vars/0"] = file["/a/cellular/vars/1"] = values(2, 3)
    with pytest.raises(penstock.BadInput, match="there is no recurrent layer in it"):
        interchange.load(tmp_path / "top.h5")
    with h5py.File(tmp_path / "odd.h5", "w") as file:
        for i, array in enumerate([values(5, 28), values(7, 27)]):
            file.create_dataset(f"layers/lstm/cell/vars/{i}", data=array)
    with pytest.raises(penstock.BadInput, match="'recurrent_kernel' is .7, 27., expected .H, 4 H."):
        interchange.load(tmp_path / "odd.h5", cell="lstm")


@pytest.mark.parametrize("ending", [".pt", ".bin", ".keras", ".h5", ".onnx"])
@pytest.mark.parametrize("form", ["torch", "penstock"])
def test_a_name_that_is_read_as_another_format_is_refused(tmp_path, form, ending):
    path = tmp_path / f"a{ending}"
    with pytest.raises(penstock.InvalidArgument, match=f"must end in '.safetensors' for format '{form}', not '.*a{ending}'"):
        interchange.save(path, random_weights("gru", 1, 2), format=form)
    assert not path.exists()
