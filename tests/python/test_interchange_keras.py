"""Weights of Keras: against the package where it is installed; its files need h5py."""

import json
import os
import zipfile

import numpy as np
import pytest

penstock = pytest.importorskip("penstock", reason="penstock is not installed")

from interchange_checks import TOLERANCE, check, outputs, same, values  # noqa: E402

from penstock import interchange  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras' own


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
