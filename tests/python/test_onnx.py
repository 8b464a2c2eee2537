"""Models as ONNX: whatever onnxruntime makes of the file is what the model answers, however a sequence is cut."""

import json
import math

import numpy as np
import pytest

from small_data import labelled_of, series_of, text_of

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
penstock = pytest.importorskip("penstock", reason="penstock is not installed")

from penstock._safetensors import read_file, write_file  # noqa: E402

TEXT, SERIES, LABELLED = text_of(20), series_of(200), labelled_of(20)
CELLS = [(cell["name"], heads) for cell in penstock.cells() for heads in ((1,) if cell["scan"] else (1, 3))]


def tolerance(model, outputs, steps):
    """That of oracle/tolerance.h, between two honest computations in float: of the longest sum and all steps."""
    spec = model.spec
    summed = max(spec["width"] + (spec["hidden_size"] or spec["width"]), spec["lags"], 9 * spec["filters"])
    growth = math.log2(1 + steps * max(1, spec["blocks"]))
    return np.finfo(np.float32).eps * (8 + math.sqrt(summed)) * growth * max(1, np.abs(outputs).max())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "text.txt").write_bytes(TEXT)
    (folder / "series.csv").write_text(SERIES)
    (folder / "labelled.csv").write_text(LABELLED)
    return folder


def open_data(folder, kind):
    if kind == "text":
        return penstock.open_text(folder / "text.txt")
    if kind == "series":
        return penstock.open_series(folder / "series.csv", inputs=["level", "flow"], horizon=2)
    return penstock.open_labelled(folder / "labelled.csv")


def shaken(model, path, seed=5):
    """The model with weights that no initialisation would have left at 0 or 1."""
    random = np.random.default_rng(seed)
    model.save(path)
    tensors, metadata = read_file(path)
    changed = {name: (value + 0.1 * random.standard_normal(value.shape)).astype(np.float32) for name, value in tensors.items()}
    path.unlink()
    # Files of the first version have no checksum.
    write_file(path, changed, {"penstock": metadata["penstock"].replace('"format_version":2', '"format_version":1')})
    return penstock.Model.load(path)


def session(path):
    onnx.checker.check_model(str(path), full_check=True)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(network, inputs, state=None):
    """The outputs, and the state behind them, of a network that has one."""
    places = network.get_inputs()
    types = {"tensor(int64)": np.int64, "tensor(float)": np.float32, "tensor(double)": np.float64}
    feed = {places[0].name: inputs.astype(types[places[0].type])}
    if len(places) > 1:
        feed["state"] = np.zeros((len(inputs), places[1].shape[1]), np.float32) if state is None else state
    outputs = network.run(None, feed)
    return outputs if len(places) > 1 else (outputs[0], None)


def some_inputs(model, rows, steps, seed=1):
    random = np.random.default_rng(seed)
    if model.data["vocabulary"]:
        return random.integers(0, model.data["vocabulary"], (rows, steps)).astype(np.int32)
    return random.standard_normal((rows, steps, model.data["input_size"])).astype(np.float32)


def compare(model, path, shapes=((1, 1), (3, 2), (1, 7), (3, 67))):
    """Rows and steps of any number, whole and cut in two, beside the model's own answers."""
    model.save_onnx(path, normalised=True)
    network = session(path)
    for rows, steps in shapes:
        inputs = some_inputs(model, rows, steps)
        expected, _ = model.forward(inputs, threads=1)
        allowed = tolerance(model, expected, steps)
        outputs, state = run(network, inputs)
        assert np.abs(outputs.reshape(expected.shape) - expected).max() <= allowed
        if state is None:
            continue
        for cut in {1, steps // 2, steps - 1} - {0, steps}:
            first, between = run(network, inputs[:, :cut])
            second, after = run(network, inputs[:, cut:], between)
            assert np.abs(np.concatenate([first, second], 1).reshape(expected.shape) - expected).max() <= allowed
            assert np.abs(after - state).max() <= tolerance(model, state, steps)


@pytest.mark.parametrize("cell, heads", CELLS)
def test_every_cell(folder, tmp_path, cell, heads):
    data = penstock.open_text(folder / "text.txt")
    model = penstock.Model(data, cell=cell, heads=heads, width=12, blocks=2, hidden_size=9, convolution=0, feed_forward=0)
    compare(shaken(model, tmp_path / "m.safetensors"), tmp_path / "m.onnx")


FORMS = [
    ("text", {"cell": "gru", "hidden_size": 8, "convolution": 3, "feed_forward": 1.5}),
    ("text", {"cell": "mingru", "convolution": 1, "end_norms": False}),
    ("text", {}),
    ("series", {"cell": "lstm"}),
    ("series", {"cell": "minlstm", "from_last": False, "convolution": 4, "feed_forward": 2}),
    ("labelled", {"cell": "slstm"}),
]


@pytest.mark.parametrize("kind, spec", FORMS)
def test_every_layer(folder, tmp_path, kind, spec):
    model = penstock.Model(open_data(folder, kind), **{"width": 12, "blocks": 2, **spec})
    compare(shaken(model, tmp_path / "m.safetensors"), tmp_path / "m.onnx")


def test_a_long_sequence(folder, tmp_path):
    model = penstock.Model(open_data(folder, "text"), cell="minlstm-log", width=8, blocks=1)
    compare(shaken(model, tmp_path / "m.safetensors"), tmp_path / "m.onnx", shapes=((1, 5000),))


def test_filters_of_labelled_sequences(folder, tmp_path):
    data = open_data(folder, "labelled")
    model = penstock.Model(data, width=12, blocks=1)
    model.add_filters(data, seed=1, threads=1)
    assert model.spec["filters"] > 0
    # Not shaken: its weights are fitted, and the count of steps must go through them as it is.
    compare(model, tmp_path / "m.onnx")


def test_an_ensemble(folder, tmp_path):
    data = open_data(folder, "series")
    model = penstock.Model(data, width=12, blocks=1)
    penstock.train(model, data, steps=4, seeds=3, batch=4, length=16, threads=1, progress=False)
    assert model.spec["members"] == 3
    compare(model, tmp_path / "m.onnx")


@pytest.mark.parametrize("task", ["parity", "modular"])
def test_tasks_of_tokens(tmp_path, task):
    model = penstock.Model(penstock.open_task(task, length=12), cell="lstm", width=8, blocks=1)
    compare(shaken(model, tmp_path / "m.safetensors"), tmp_path / "m.onnx", shapes=((3, 9),))


def test_a_sound(tmp_path):
    import wave

    samples = (8000 * np.sin(np.arange(2000) / 7)).astype("<i2")
    for name, values in (("in", samples), ("out", np.clip(samples, -3000, 3000))):
        with wave.open(str(tmp_path / f"{name}.wav"), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes(values.tobytes())
    try:
        data = penstock.open_sound(tmp_path / "in.wav", tmp_path / "out.wav")
    except penstock.Unsupported as missing:
        pytest.skip(str(missing))
    model = penstock.Model(data, cell="lstm", width=8, blocks=1)
    compare(shaken(model, tmp_path / "m.safetensors"), tmp_path / "m.onnx", shapes=((1, 100),))


def test_columns_of_a_table_are_read_as_the_page_says(tmp_path):
    """docs/onnx.md: a category is 1 or 0, a date a sine and a cosine of where it stands in its cycle, what is known in
    advance the value of a later row."""
    hours = np.arange(24 * 21)
    day, week = 2 * np.pi * hours / 24, 2 * np.pi * (hours % 168) / 168  # from a Monday on
    offer = hours % 5 == 0
    place = np.where(hours // 7 % 2 == 0, "north", "south")
    level = 5 + np.sin(day) + np.cos(week) + 2 * offer
    dates = np.datetime64("2024-01-01T00:00:00") + hours.astype("timedelta64[h]")
    lines = (f"{d},{x:.4f},{int(o)},{p}\n" for d, x, o, p in zip(dates, level, offer, place))
    (tmp_path / "t.csv").write_text("when,level,offer,place\n" + "".join(lines))
    data = penstock.open_series(tmp_path / "t.csv", targets=["level"], horizon=2, known=["offer"], calendar=["day", "week"])
    model = penstock.Model(data, width=8, blocks=1)
    penstock.train(model, data, steps=2, batch=4, length=16, threads=1, progress=False)
    model.save_onnx(tmp_path / "m.onnx")
    network = session(tmp_path / "m.onnx")
    later = lambda n: np.append(offer[n:], np.repeat(offer[-1], n))  # noqa: E731
    columns = {
        "level": level.round(4),
        "offer": offer,
        "offer (+1)": later(1),
        "offer (+2)": later(2),
        "place = north": place == "north",
        "place = south": place == "south",
        "when (day_sine)": np.sin(day),
        "when (day_cosine)": np.cos(day),
        "when (week_sine)": np.sin(week),
        "when (week_cosine)": np.cos(week),
    }
    names = json.loads(network.get_modelmeta().custom_metadata_map["inputs"])
    assert set(names) == set(columns)
    features = np.stack([columns[name] for name in names], axis=1)[np.newaxis]
    forecast, _ = run(network, features)
    expected = model.predict(tmp_path / "t.csv", threads=1)
    answered = ~np.isnan(expected[:, 0, 0])  # behind the last rows too little is known
    assert answered.sum() == len(hours) - 2
    allowed = 4 * tolerance(model, expected[answered], len(hours))
    assert np.abs(forecast[0] - expected)[answered].max() <= allowed


def compare_layers(network, path, shapes=((1, 1), (3, 2), (2, 67))):
    """A stack of recurrent layers from a state that is not zero, beside its own answers."""
    network.save_onnx(path)
    written = session(path)
    random = np.random.default_rng(2)
    for rows, steps in shapes:
        x = random.standard_normal((rows, steps, network.input_size)).astype(np.float32)
        extents = [rows if extent == "batch" else extent for extent in written.get_inputs()[1].shape]
        # Normalisers of sLSTM are positive.
        state = np.abs(random.standard_normal(extents)).astype(np.float32)
        expected, after = network.forward(x, state.reshape(np.shape(network.zero_state(rows))), threads=1)
        y, next_state = written.run(None, {"x": x, "state": state})
        epsilon, growth = np.finfo(np.float32).eps, math.log2(1 + steps * network.layers)
        allowed = epsilon * (8 + math.sqrt(network.input_size + 2 * network.hidden_size)) * growth
        assert y.shape == expected.shape
        assert np.abs(y - expected).max() <= allowed * max(1, np.abs(expected).max())
        assert np.abs(next_state.reshape(np.shape(after)) - after).max() <= allowed * max(1, np.abs(after).max())


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("cell, heads", CELLS)
def test_layers_of_every_cell(tmp_path, cell, heads, direction):
    network = penstock.Recurrent(cell, 5, 9, layers=2, heads=heads, direction=direction, seed=3)
    compare_layers(network, tmp_path / "m.onnx")


@pytest.mark.parametrize("bias", ["none", "single"])
@pytest.mark.parametrize("cell", ["lstm", "gru-before", "slstm", "minlstm"])
def test_layers_without_biases(tmp_path, cell, bias):
    compare_layers(penstock.Recurrent(cell, 1, 3, bias=bias, seed=4), tmp_path / "m.onnx")


def test_layers_of_other_libraries(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    lstm = torch.nn.LSTM(5, 7, num_layers=2, bidirectional=True, batch_first=True)
    penstock.interchange.RecurrentWeights.from_torch(lstm).to_numpy().save_onnx(tmp_path / "m.onnx")
    x = torch.randn(2, 11, 5)
    state = np.zeros((2, 4, 2, 7), np.float32)
    y, (h, c) = session(tmp_path / "m.onnx").run(None, {"x": x.numpy(), "state": state})
    with torch.no_grad():
        expected, (h_expected, c_expected) = lstm(x)
    for ours, theirs in ((y, expected), (h, h_expected), (c, c_expected)):
        assert np.abs(ours - theirs.numpy()).max() <= 1e-6


def test_layers_of_float64_are_refused(tmp_path):
    with pytest.raises(penstock.InvalidArgument, match="dtype must be float32 for ONNX, not float64"):
        penstock.Recurrent("gru", 2, 3, dtype="float64").save_onnx(tmp_path / "m.onnx")


@pytest.fixture(scope="module", params=["some", "all", "none"])
def growing(request, tmp_path_factory):
    """A model of a series that grows, with logarithms of some columns that it reads, of all or of none, and rows of it."""
    folder = tmp_path_factory.mktemp("growing")
    days = np.arange(240)
    rows = np.stack([400 * np.exp(days / 90) * (1.3 + np.sin(days / 3)), 1e4 + np.cos(days)], axis=1).round(3)
    lines = [f"{sales},{height}\n" for sales, height in rows]
    (folder / "sales.csv").write_text("sales,height\n" + "".join(lines))
    data = penstock.open_series(
        folder / "sales.csv",
        horizon=3,
        transform="none" if request.param == "none" else "log",
        targets=["sales"] if request.param == "some" else [],
    )
    logarithms = {"some": [True, False], "all": [True, True], "none": [False, False]}
    assert [column["logarithm"] for column in data.description["inputs"]] == logarithms[request.param]
    model = penstock.Model(data, width=12, blocks=1)
    penstock.train(model, data, steps=8, batch=4, length=16, threads=1, progress=False)
    return model, rows


def test_numbers_are_in_the_units_of_the_data(growing, tmp_path):
    model, rows = growing
    expected = model.predict(rows)
    model.save_onnx(tmp_path / "m.onnx")
    network = session(tmp_path / "m.onnx")
    forecast, _ = run(network, rows[np.newaxis])
    assert [place.name for place in network.get_outputs()] == ["forecast", "next_state"]
    assert forecast.shape == (1, *expected.shape) == (1, 240, 3, len(model.data["targets"]))
    # The file reads and writes floats: the last place of a number far from 0 counts as well, in units of scale.
    normalised = model.forward(model._model.normalised(rows, ""))[0]
    epsilon = np.finfo(np.float32).eps
    for target, column in enumerate(model.data["targets"]):
        ours, theirs = expected[..., target], forecast[0, ..., target]
        if column["logarithm"]:
            ours, theirs = np.log(ours), np.log(theirs)
        places = 2 * epsilon * max(1, np.abs(ours).max()) / column["scale"]
        read = [
            epsilon * (1 if each["logarithm"] else np.abs(rows).max(axis=0)[i]) / each["scale"]
            for i, each in enumerate(model.data["inputs"])
        ]
        allowed = tolerance(model, normalised, 240) + places + sum(read) * np.sqrt(model.spec["lags"])
        assert np.abs(ours - theirs).max() / column["scale"] <= allowed


@pytest.mark.parametrize("level, unit, doubles", [(1e2, 1, False), (1e4, 1, False), (1e9, 1, True), (5e41, 5e39, True)])
@pytest.mark.parametrize("logarithm", [False, True])
def test_levels_that_floats_cannot_tell_apart_are_doubles(tmp_path, level, unit, doubles, logarithm):
    random = np.random.default_rng(1)
    rows = (level + unit * (10 * np.sin(np.arange(200) / 4) + random.standard_normal(200)))[:, np.newaxis]
    (tmp_path / "level.csv").write_text("y\n" + "".join(f"{row!r}\n" for row in rows[:, 0].tolist()))
    data = penstock.open_series(tmp_path / "level.csv", horizon=2, transform="log" if logarithm else "none")
    model = penstock.Model(data, width=8, blocks=1)
    penstock.train(model, data, steps=5, batch=4, length=16, threads=1, progress=False)
    model.save_onnx(tmp_path / "m.onnx")
    network = session(tmp_path / "m.onnx")
    kind = "tensor(double)" if doubles else "tensor(float)"
    assert [place.type for place in network.get_inputs()] == [kind, "tensor(float)"]
    assert [place.type for place in network.get_outputs()] == [kind, "tensor(float)"]
    forecast, _ = run(network, rows[np.newaxis])
    assert np.abs(forecast[0] - model.predict(rows)).max() <= 0.01 * unit
    model.save_onnx(tmp_path / "n.onnx", normalised=True)
    assert session(tmp_path / "n.onnx").get_inputs()[0].type == "tensor(float)"


def test_a_series_of_many(tmp_path):
    days = range(80)
    text = "shop,t,x\n" + "".join(f"{name},{t},{size * (3 + math.sin(t / 4)):.5f}\n" for name, size in (("small", 1), ("large", 500)) for t in days)  # fmt: skip
    (tmp_path / "shops.csv").write_text(text)
    data = penstock.open_series(tmp_path / "shops.csv", inputs=["x"], targets=["x"], group="shop", horizon=2)
    model = penstock.Model(data, width=8, blocks=1)
    penstock.train(model, data, steps=4, batch=4, length=16, threads=1, progress=False)
    for name, size in (("small", 1), ("large", 500)):
        rows = np.array([[size * (3 + math.sin(t / 4))] for t in days])
        model.save_onnx(tmp_path / f"{name}.onnx", group=name)
        forecast, _ = run(session(tmp_path / f"{name}.onnx"), rows[np.newaxis])
        expected = model.predict(rows, group=name)
        assert np.abs(forecast[0] - expected).max() <= 4 * tolerance(model, expected, len(rows))
    for arguments, message in (({}, "name the series that is meant by the option 'group'"), ({"group": "middle"}, 'one of the 2 series .* not "middle"')):
        with pytest.raises(penstock.InvalidArgument, match=message):
            model.save_onnx(tmp_path / "none.onnx", **arguments)
    with pytest.raises(penstock.InvalidArgument, match="group goes without normalised"):
        model.save_onnx(tmp_path / "none.onnx", group="small", normalised=True)
    assert not (tmp_path / "none.onnx").exists()
    model.save_onnx(tmp_path / "normalised.onnx", normalised=True)


def test_the_file_says_what_it_is(growing, folder, tmp_path):
    model, _ = growing
    model.save_onnx(tmp_path / "m.onnx")
    network = session(tmp_path / "m.onnx")
    known = network.get_modelmeta()
    assert known.producer_name == "penstock"
    metadata = known.custom_metadata_map
    assert json.loads(metadata["inputs"]) == ["sales", "height"]
    assert json.loads(metadata["targets"]) == ["sales", "height"][: len(model.data["targets"])]
    described = json.loads(metadata["penstock"])
    assert described["model"]["cell"] == model.spec["cell"] and described["data"]["horizon"] == 3
    proto = onnx.load(str(tmp_path / "m.onnx"))
    assert proto.opset_import[0].version == 17
    assert proto.graph.input[0].doc_string == "In the units of the data: sales, height"
    assert [place.shape for place in network.get_inputs()][0] == ["batch", "time", 2]
    text = penstock.Model(open_data(folder, "labelled"), width=8, blocks=1)
    text.save_onnx(tmp_path / "labels.onnx")
    assert json.loads(session(tmp_path / "labels.onnx").get_modelmeta().custom_metadata_map["classes"]) == ["down", "up"]


def test_the_same_model_is_the_same_file(growing, tmp_path):
    model, _ = growing
    for name in ("a", "b"):
        model.save_onnx(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_file_that_cannot_be_written(growing, tmp_path):
    model, _ = growing
    with pytest.raises(penstock.IoFailure, match="cannot"):
        model.save_onnx(tmp_path / "no" / "m.onnx")
    with pytest.raises(penstock.InvalidArgument, match='group must be empty for a model of one series, not "shop"'):
        model.save_onnx(tmp_path / "m.onnx", group="shop")
