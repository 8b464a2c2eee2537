"""Models and sessions in Python, beside the program's answers."""

import datetime
import math

import numpy as np
import pytest
from trained_models import QUICK, SMALL, TEXT, classifier, folder, forecaster, language  # noqa: F401: fixtures

import penstock
from program import run


def test_the_same_seed_writes_what_the_program_writes(language, folder):
    for prompt, seed, temperature in ((b"In the", 7, 0.8), (b"", 1, 1.0), (b"\xff\x00", 2, 0.0)):
        (folder / "prompt").write_bytes(prompt)
        written = run(
            "generate",
            "text.safetensors",
            "--prompt-file",
            "prompt",
            "-n",
            200,
            "--seed",
            seed,
            "--temperature",
            temperature,
            cwd=folder,
        )
        ours = penstock.Model.load(folder / "text.safetensors").generate(
            prompt, 200, seed=seed, temperature=temperature
        )
        assert prompt + ours == written.bytes
    assert language.generate("In the", 50, seed=3) == language.generate(b"In the", 50, seed=3)
    assert len(language.generate(bytes=5)) == 5


def test_forecasts_are_the_programs(forecaster, folder):
    rows = np.loadtxt(folder / "series.csv", delimiter=",", skiprows=1)[:, 1:]
    ours = forecaster.predict(rows)
    assert ours.shape == (300, 2, 2) and ours.dtype == np.float64
    lines = run("predict", "series.safetensors", "series.csv", "--json", cwd=folder).json_lines()
    for step, line in enumerate(lines):
        forecast = line["forecast"]
        assert forecast["level"] == ours[step, :, 0].tolist() and forecast["flow"] == ours[step, :, 1].tolist()
    assert len(lines) == 300
    both = forecaster.predict(np.stack([rows, rows[::-1]]), exact=True)
    assert (both[0] == forecaster.predict(rows, exact=True)).all()


def test_series_are_opened_as_by_the_program(tmp_path):
    dates = np.datetime64("2024-01-01") + np.arange(120)
    values = [round(10 + i / 20 + 3 * math.sin(2 * math.pi * i / 7) + i % 3, 3) for i in range(120)]
    lines = [f"{date},{value}\n" for date, value in zip(dates, values)]
    (tmp_path / "days.csv").write_text("day,level\n" + "".join(lines))
    data = penstock.open_series(tmp_path / "days.csv", horizon=2)
    model = penstock.Model(data, width=16, blocks=1)
    penstock.train(model, data, steps=6, **QUICK)
    run("train", "days.csv", "--horizon", 2, "--width", 16, "--blocks", 1, "--steps", 6, "--batch", 4, "--length", 32,
        "--threads", 1, "--quiet", cwd=tmp_path)  # fmt: skip
    theirs = penstock.Model.load(tmp_path / "model.safetensors")
    assert model.data == theirs.data and model.spec == theirs.spec
    assert model.spec["lags"] > 0 and [c["feature"] for c in model.data["inputs"]][1:] == ["week_sine", "week_cosine"]
    rows = [[value, date] for value, date in zip(values, dates.astype(datetime.date))]
    expected = model.predict([[value, float(date.astype(float)) * 86400] for value, date in zip(values, dates)])
    assert (theirs.predict(rows) == expected).all()
    aware = [[value, datetime.datetime(date.year, date.month, date.day, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))]
             for value, date in rows]  # fmt: skip
    assert (model.predict(aware) == expected).all()
    assert (model.predict([[value, date] for value, date in zip(values, dates)]) == expected).all()
    hourly = [[value, datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=i)] for i, value in enumerate(values)]
    said = "by the dates of column day rows are an hour apart, and the model learnt rows a day apart: give it rows a day"
    with pytest.raises(penstock.InvalidArgument, match=said):
        model.predict(hourly)
    (tmp_path / "hours.csv").write_text("level,day\n" + "".join(f"{value},{date}\n" for value, date in hourly))
    for given in (tmp_path / "hours.csv", pytest.importorskip("pandas").DataFrame(hourly, columns=["level", "day"])):
        for verb in (model.predict, model.evaluate):
            with pytest.raises(penstock.BadInput, match='by the dates of column "day" rows are an hour apart'):
                verb(given)
    # A target that is not read has no last value.
    other = penstock.open_series(tmp_path / "days.csv", inputs=["level"], targets=["level"], calendar="none", transform="none")
    assert penstock.Model(other).spec["from_last"] and len(other.description["inputs"]) == 1


def test_what_is_forecast_and_not_read(folder):
    data = penstock.open_series(folder / "series.csv", inputs=["level"], targets=["flow"])
    assert not penstock.Model(data, **SMALL).spec["from_last"]
    data = penstock.open_series(folder / "series.csv", inputs=["level"], targets=["flow"], from_last=True)
    with pytest.raises(penstock.InvalidArgument, match="from_last must be false"):
        penstock.Model(data, **SMALL)


def test_norms_at_the_ends(folder):
    beside_a_linear_forecast = penstock.open_series(folder / "series.csv")
    assert penstock.Model(beside_a_linear_forecast, **SMALL).spec["end_norms"]
    data = penstock.open_series(folder / "series.csv", autoregression=False)
    suits, all_norms = penstock.Model(data, **SMALL), penstock.Model(data, **SMALL, end_norms=True)
    assert not suits.spec["end_norms"] and all_norms.spec["end_norms"]
    assert all_norms.parameter_count - suits.parameter_count == 2 * suits.spec["width"]
    assert penstock.Model(penstock.open_labelled(folder / "labelled.csv"), **SMALL).spec["end_norms"]


def test_what_is_not_said_of_a_series_is_as_the_program_has_it(tmp_path):
    """Defaults of both, for each of the arguments that decides others."""
    days = np.arange("2021-01-01", "2022-01-01", dtype="datetime64[D]")
    values = 5 + np.sin(2 * np.pi * np.arange(365) / 7) + 0.01 * np.arange(365)
    rows = "".join(f"{day},{value:.4f}\n" for day, value in zip(days, values) if str(day) != "2021-03-04")
    (tmp_path / "days.csv").write_text("day,level\n" + rows)
    quick = ["--width", 8, "--blocks", 1, "--steps", 1, "--batch", 4, "--length", 32, "--threads", 1, "--quiet", "--force"]
    for options, ours in (
        ([], {}),
        (["--calendar", "none"], {"calendar": "none"}),
        (["--calendar", "week,year"], {"calendar": ["week", "year"]}),
        (["--irregular", "ignore"], {"irregular": "ignore"}),
        (["--calendar", "none", "--irregular", "fill"], {"calendar": "none", "irregular": "fill"}),
        (["--no-changes"], {"from_last": False}),
        (["--no-linear"], {"autoregression": False}),
        (["--transform", "none"], {"transform": "none"}),
    ):
        run("train", "days.csv", *quick, *options, cwd=tmp_path)
        theirs = penstock.Model.load(tmp_path / "model.safetensors")
        data = penstock.open_series(tmp_path / "days.csv", **ours)
        model = penstock.Model(data, **SMALL)
        assert data.description == theirs.data
        assert (model.spec["from_last"], model.spec["lags"]) == (theirs.spec["from_last"], theirs.spec["lags"]), options
    with pytest.raises(penstock.InvalidArgument, match="calendar must be auto, none, or some of day,week,year, not \"month\""):
        penstock.open_series(tmp_path / "days.csv", calendar="month")


def test_missing_values_are_dealt_with_as_in_the_model_that_is_trained_further(tmp_path):
    gaps = "".join(f"{i % 5 if i % 9 else 'NA'},{i % 4}\n" for i in range(80))
    (tmp_path / "gaps.csv").write_text("x,y\n" + gaps)
    with pytest.raises(penstock.BadInput, match="missing"):
        penstock.open_series(tmp_path / "gaps.csv")
    model = penstock.Model(penstock.open_series(tmp_path / "gaps.csv", missing="carry"), **SMALL)
    assert any("missing" in line for line in penstock.open_series(tmp_path / "gaps.csv", origin=model).reading)


@pytest.mark.parametrize("value", ["", "now", "12.5", "-1", "253402300800", "9" * 5000])
def test_a_bad_time_of_reproducible_files_is_refused_before_training(folder, monkeypatch, value):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", value)
    data = penstock.open_text(folder / "text.txt")
    model, begun = penstock.Model(data, **SMALL), []
    with pytest.raises(penstock.InvalidArgument, match="SOURCE_DATE_EPOCH must be 0 to 253402300799, in seconds since 1970"):
        penstock.train(model, data, steps=1, callback=begun.append, **QUICK)
    assert not begun and model.history == {}


def test_data_and_models_say_what_they_are(folder, language, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    data = penstock.open_series(folder / "series.csv", targets=["level"], horizon=3, known=[])
    assert repr(data) == (
        f"<penstock.Dataset {folder / 'series.csv'}: level 1 to 3 rows ahead from level, flow; "
        "239 rows to train on, 60 held out>"
    )
    model = penstock.Model(data, **SMALL)
    spec = f"1 x mingru of width 16, a linear forecast of {model.spec['lags']} rows, {model.parameter_count:,} parameters"
    what = f"<penstock.Model forecast, level 1 to 3 rows ahead from level, flow: {spec}; "
    assert repr(model) == what + "untrained>" and model.history == {}
    result = penstock.train(model, data, steps=4, **QUICK)
    assert repr(model) == what + f"trained 1970-01-02T00:00:00Z on {folder / 'series.csv'}>"
    model.save(tmp_path / "m.safetensors")
    loaded = penstock.Model.load(tmp_path / "m.safetensors")
    assert repr(loaded) == repr(model) and loaded.history == model.history
    assert loaded.history["steps"] == 4 and loaded.history["version"] == penstock.__version__
    assert loaded.history["score"] == f"loss {result.validation.loss:.4g} on {result.validation.scored} held-out rows"
    shown = run("info", "m.safetensors", "--json", cwd=tmp_path).json()
    assert shown["history"] == model.history
    assert repr(penstock.Session(model)) == f"<penstock.Session of {model!r}>"
    further = penstock.Model.continue_from(model, penstock.open_series(folder / "series.csv", origin=model))
    assert further.history == {} and repr(further).endswith("untrained>")
    (tmp_path / "copy.txt").write_bytes((folder / "text.txt").read_bytes())
    text = penstock.open_text([folder / "text.txt", tmp_path / "copy.txt"])
    assert repr(text).startswith(f"<penstock.Dataset {folder / 'text.txt'} and 1 more: text; ")
    assert repr(text).endswith(" bytes to train on, 292 held out>")
    labelled = penstock.open_labelled(folder / "labelled.csv")
    assert repr(labelled) == (
        f"<penstock.Dataset {folder / 'labelled.csv'}: value in 2 classes; 32 sequences to train on, 8 held out>"
    )
    task = penstock.open_task("parity")
    assert repr(task) == "<penstock.Dataset task:parity: tokens below 2 in 2 classes; generated without end>"
    assert repr(penstock.GRUCell(2, 3).tape()) == "Tape(dtype='float32')"


def test_a_model_that_the_program_trained_answers_alike(folder):
    """A series that grows: the program learns its logarithm, beside a linear forecast."""
    values = 100 * np.exp(0.02 * np.arange(200) + 0.1 * np.sin(np.arange(200)))
    np.savetxt(folder / "growth.csv", values, header="value", comments="", fmt="%.3f")
    run("train", "growth.csv", "--steps", 5, "--width", 8, "--blocks", 1, "--quiet", "-o", "g.safetensors", cwd=folder)
    model = penstock.Model.load(folder / "g.safetensors")
    assert model.data["inputs"][0]["logarithm"] and model.spec["lags"] > 0
    ours = model.predict(np.loadtxt(folder / "growth.csv", skiprows=1)[:, None])
    lines = run("predict", "g.safetensors", "growth.csv", "--json", cwd=folder).json_lines()
    assert [line["forecast"]["value"] for line in lines] == ours[:, :, 0].tolist()


def test_data_are_opened_as_the_program_opens_them(folder, tmp_path):
    (tmp_path / "stores").mkdir()
    files = [tmp_path / "stores" / f"{name}.csv" for name in ("a", "b")]
    for file in files:
        file.write_text("x;y\n" + "".join(f"{i},5;{2 * i}\n" for i in range(30)))
    data = penstock.open_series(files, group_by_file=True)
    assert data.description["groups"] == ["a", "b"] and "separator ';', decimal ','" in data.reading
    assert penstock.open_series(tmp_path / "stores").training_steps == data.training_steps
    with pytest.raises(penstock.InvalidArgument, match="decimal must be '.' or ',', not ';'"):
        penstock.open_series(files, decimal=";")
    (tmp_path / "program").write_bytes(bytes(range(256)) * 4)
    with pytest.raises(penstock.BadInput, match="program"):
        penstock.open_text(tmp_path / "program")
    assert penstock.open_text([tmp_path / "program", folder / "text.txt"], bytes=True).training_steps > 1000


def test_series_of_one_file_are_told_apart_by_name(tmp_path):
    rng = np.random.default_rng(0)
    levels = {"small": 1.0, "large": 4000.0}
    rows = [f"{name},{size * (10 + rng.normal()):.6g}" for _ in range(60) for name, size in levels.items()]
    (tmp_path / "shops.csv").write_text("\n".join(["shop,x", *rows]) + "\n")
    data = penstock.open_series(tmp_path / "shops.csv", horizon=2, group="shop")
    assert data.description["group_column"] == "shop" and data.description["groups"] == list(levels)
    model = penstock.Model(data, cell="gru", **SMALL)
    penstock.train(model, data, steps=5, **QUICK)
    for name, size in levels.items():
        forecasts = model.predict(np.full((7, 1), 10.0 * size), group=name)
        assert forecasts.shape == (7, 2, 1) and np.abs(forecasts / (10 * size) - 1).max() < 1
    for name in ("", "middle"):
        with pytest.raises(penstock.InvalidArgument, match="group must be one of 2 series, such as small, not"):
            model.predict(np.ones((7, 1)), group=name)


def test_a_series_may_have_a_forecast_of_its_own(tmp_path):
    rng, t = np.random.default_rng(5), np.arange(60)
    values = {
        "rising": 5 + 2.5 * t + rng.normal(size=60),
        "weekly": 50 + 20 * np.sin(2 * np.pi * t / 7) + 2 * rng.normal(size=60),
        "walk": 60 + np.cumsum(3 * rng.normal(size=60)),
    }
    rows = [f"{name},{x:.4f}" for name, series in values.items() for x in series]
    (tmp_path / "shops.csv").write_text("\n".join(["shop,x", *rows]) + "\n")
    data = penstock.open_series(tmp_path / "shops.csv", horizon=2, group="shop", autoregression=True, from_last=True)
    model = penstock.Model(data, **SMALL)
    penstock.train(model, data, progress=False, threads=1)
    own = model.data["own_forecasts"]
    assert own and len(own) < 3
    tables = model.predict(tmp_path / "shops.csv", quantiles=[0.1, 0.9])
    for name, series in values.items():
        column = np.round(series, 4)[:, None]
        for ours, table in zip(model.predict(column, group=name, quantiles=[0.1, 0.9]), tables[name], strict=True):
            np.testing.assert_allclose(ours, table, rtol=1e-4, atol=1e-4)
        features = rng.normal(size=(9, 1)).astype(np.float32)
        alone, shared = model.forward(features, group=name)[0], model.forward(features)[0]
        np.testing.assert_allclose(penstock.Session(model, group=name).run(features), alone, rtol=1e-5, atol=1e-6)
        assert (np.abs(alone - shared).max() > 1e-3) == (name in own)
        model.save_onnx(tmp_path / f"{name}.onnx", group=name)
        onnx = pytest.importorskip("onnxruntime").InferenceSession(tmp_path / f"{name}.onnx")
        feeds = {each.name: np.zeros([1, each.shape[1]], np.float32) for each in onnx.get_inputs() if each.name == "state"}
        feeds["features"] = column[None].astype(np.float32)
        np.testing.assert_allclose(onnx.run(["forecast"], feeds)[0][0], tables[name][0], rtol=1e-3, atol=1e-3)
    with pytest.raises(penstock.InvalidArgument, match="group must be one of 3 series"):
        model.forward(features, group="new")


def test_labels_are_the_programs(classifier, folder):
    values = np.loadtxt(folder / "labelled.csv", delimiter=",", skiprows=1, usecols=2).reshape(40, 8, 1)
    ours = classifier.predict(values)
    np.testing.assert_allclose(ours.sum(axis=1), 1)
    lines = run("predict", "labels.safetensors", "labelled.csv", "--json", cwd=folder).json_lines()
    for probabilities, line in zip(ours, lines, strict=True):
        assert line["label"] == classifier.data["classes"][probabilities.argmax()]


def test_probabilities_of_bytes(language):
    p = language.predict(b"In the beginning")
    assert p.shape == (16, 256)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (p == language.predict("In the beginning")).all()


def test_a_model_chooses_its_device_and_says_why(language, folder):
    model = language
    chosen = penstock.Model.load(folder / "text.safetensors", device="auto")
    assert (model.device, chosen.device) == ("cpu", "auto")
    device, why = chosen.choose_device(2, 9)
    assert why.startswith("there is no GPU: ") or ": by estimate " in why
    tokens = np.arange(18, dtype=np.int32).reshape(2, 9)
    np.testing.assert_array_equal(chosen.forward(tokens)[0], model.forward(tokens, device=device)[0])
    assert chosen.generate("a", 5, seed=1, device="cpu") == model.generate("a", 5, seed=1)
    chosen.device = "cuda"
    assert chosen.device == "cuda:0"
    with pytest.raises(penstock.InvalidArgument, match="device must be cpu, cuda or cuda:N"):
        chosen.device = "tpu"
    assert chosen.device == "cuda:0"


@pytest.mark.parametrize("exact", [True, False])
def test_a_session_is_the_sequence(language, forecaster, exact):
    tokens = np.frombuffer(b"In the beginning", np.uint8).astype(np.int32)
    outputs, _ = language.forward(tokens, exact=exact)
    session = penstock.Session(language)
    out = np.empty(256, np.float32)
    for token, expected in zip(tokens.tolist(), outputs):
        answer = session.push(token)
        assert not exact or (answer == expected).all()
        np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-4)
    session.reset()
    assert session.push(int(tokens[0]), out=out) is out
    np.testing.assert_allclose(out, outputs[0], rtol=1e-4, atol=1e-4)
    features = np.zeros(2, np.float32)
    assert penstock.Session(forecaster).push(features).shape == (4,)


def test_a_session_runs_chunks(language, forecaster):
    tokens = np.frombuffer(TEXT[:60], np.uint8).astype(np.int32)
    expected, _ = language.forward(tokens, exact=True)
    session = penstock.Session(language)
    out = np.empty((37, 256), np.float32)
    assert session.run(tokens[:37], out=out) is out and session.run(tokens[:0]).shape == (0, 256)
    np.testing.assert_array_equal(np.concatenate([out, session.run(tokens[37:].tolist())]), expected)
    rows = np.random.default_rng(0).standard_normal((9, 2)).astype(np.float32)
    other = penstock.Session(forecaster)
    np.testing.assert_array_equal(other.run(rows), forecaster.forward(rows, exact=True)[0])
    for wrong, said in ((rows[0], r"\(T, I\)"), (np.zeros((3, 5), np.float32), r"\(T, I\)"), ([[0.0, 0], [np.nan, 0]], "step 1: ")):
        state = other.state
        with pytest.raises(penstock.InvalidArgument, match=said):
            other.run(wrong)
        np.testing.assert_array_equal(other.state, state)
    state = session.state
    with pytest.raises(penstock.InvalidArgument, match="step 2: .*256"):
        session.run([1, 2, 256])
    np.testing.assert_array_equal(session.state, state)
    with pytest.raises(penstock.InvalidArgument, match="out"):
        session.run([1, 2], out=np.empty((3, 256), np.float32))


def test_states_of_sessions_are_kept_and_cloned(language, tmp_path):
    tokens = np.frombuffer(TEXT[:40], np.uint8).astype(np.int32)
    session = penstock.Session(language)
    expected = session.run(tokens)
    session.reset()
    session.run(tokens[:20])
    np.save(tmp_path / "state.npy", session.state)
    copy = session.clone()
    np.testing.assert_array_equal(session.run(tokens[20:]), expected[20:])
    np.testing.assert_array_equal(copy.run(tokens[20:]), expected[20:])
    resumed = penstock.Session(language)
    resumed.state = np.load(tmp_path / "state.npy")
    np.testing.assert_array_equal(resumed.run(tokens[20:]), expected[20:])
    with pytest.raises(penstock.InvalidArgument, match="state must hold"):
        resumed.state = [0.0, 1.0]
    with pytest.raises(penstock.InvalidArgument, match="state must hold finite values"):
        resumed.state = np.full_like(session.state, np.nan)


def test_rows_of_a_batch_of_sessions_are_sessions(language, forecaster):
    tokens = np.frombuffer(TEXT[:60], np.uint8).astype(np.int32).reshape(3, 20)
    batch = penstock.SessionBatch(language, 3, threads=1)
    assert batch.rows == 3 and repr(batch) == f"<penstock.SessionBatch of 3 rows of {language!r}>"
    sessions = [penstock.Session(language) for _ in range(3)]
    out = np.empty((3, 256), np.float32)
    for t in range(20):
        if t == 7:
            batch.reset(1)
            sessions[1].reset()
        assert batch.push(tokens[:, t], out=out) is out
        np.testing.assert_array_equal(out, [session.push(int(row[t])) for session, row in zip(sessions, tokens)])
    batch.reset()
    np.testing.assert_array_equal(batch.push(tokens[:, 0].tolist()), [penstock.Session(language).push(int(row[0])) for row in tokens])
    rows = np.random.default_rng(0).standard_normal((2, 5, 2)).astype(np.float32)
    batch = penstock.SessionBatch(forecaster, 2)
    answers = np.stack([batch.push(rows[:, t]) for t in range(5)], axis=1)
    np.testing.assert_array_equal(answers, [penstock.Session(forecaster).run(row) for row in rows])


def test_a_batch_of_sessions_samples_tokens(language):
    def drawn(batch, steps=(150,), **options):
        batch.reset()
        for row in range(batch.rows):
            batch.seed(row, 5 + row % 2)
        batch.push(np.full(batch.rows, 10, np.int32))
        return np.concatenate([batch.generate(count, **options) for count in steps], axis=1)

    batch = penstock.SessionBatch(language, 3)
    tokens = drawn(batch)
    assert tokens.shape == (3, 150) and tokens.dtype == np.int32 and tokens.min() >= 0 and tokens.max() < 256
    np.testing.assert_array_equal(tokens[0], tokens[2])  # of the same seed
    assert (tokens[0] != tokens[1]).any()
    np.testing.assert_array_equal(drawn(batch, (64, 1, 0, 85)), tokens)
    np.testing.assert_array_equal(drawn(penstock.SessionBatch(language, 1)), tokens[:1])
    likeliest = drawn(batch, (3,), temperature=0.0)
    session = penstock.Session(language)
    token = 10
    for expected in likeliest[0]:
        token = int(session.push(token).argmax())
        assert token == expected


def test_wrong_calls_of_a_batch_of_sessions(language, forecaster):
    batch, other = penstock.SessionBatch(language, 2), penstock.SessionBatch(forecaster, 2)
    expected = batch.push([1, 2])
    batch.reset()
    for call, said in [
        (lambda: penstock.SessionBatch(language, 0), "rows must be at least 1, not 0"),
        (lambda: batch.push([1, 2, 3]), r"tokens must have the shape \(B,\)"),
        (lambda: batch.push([1, 256]), "256"),
        (lambda: batch.push([1, 2], out=np.empty((2, 5), np.float32)), r"out must have the shape \(B, O\)"),
        (lambda: batch.reset(2), r"row must be in 0\.\.1, not 2"),
        (lambda: batch.seed(-1, 0), r"row must be in 0\.\.1, not -1"),
        (lambda: batch.generate(-1), "steps must not be negative, not -1"),
        (lambda: batch.generate(1, temperature=-1.0), "temperature"),
        (lambda: other.push(np.zeros((2, 3), np.float32)), r"features must have the shape \(B, I\)"),
        (lambda: other.push([[0.0, np.nan], [0, 0]]), "features must be numbers"),
        (lambda: other.generate(3), "reads features, not tokens"),
    ]:
        with pytest.raises(penstock.InvalidArgument, match=said):
            call()
    np.testing.assert_array_equal(batch.push([1, 2]), expected)
    with pytest.raises(TypeError, match="model must be a penstock.Model"):
        penstock.SessionBatch("model.safetensors", 2)


def test_a_clone_has_the_weights_of_its_session(tmp_path):
    (tmp_path / "text.txt").write_bytes(TEXT[:2000])
    data = penstock.open_text(tmp_path / "text.txt")
    model = penstock.Model(data, cell="mingru", width=16, blocks=1)
    session = penstock.Session(model)
    session.push(65)
    copy = session.clone()
    expected = copy.clone().push(66)
    penstock.train(model, data, steps=5, batch=2, length=16, progress=False)
    np.testing.assert_array_equal(copy.push(66), expected)
    np.testing.assert_array_equal(copy.clone().run([67]), session.run([66, 67])[1:])


def test_a_sequence_may_be_split(language):
    tokens = np.frombuffer(TEXT[:200], np.uint8).astype(np.int32).reshape(2, 100)
    whole, end = language.forward(tokens, exact=True)
    first, state = language.forward(tokens[:, :37], exact=True)
    second, state = language.forward(tokens[:, 37:], state, exact=True)
    assert (np.concatenate([first, second], axis=1) == whole).all() and (state == end).all()


def test_models_come_back_from_files(language, folder, tmp_path):
    again = penstock.Model.load(str(folder / "text.safetensors"))
    assert again.spec == language.spec and again.data == language.data and again.task == "language"
    assert again.parameter_count == language.parameter_count > 1000
    assert language.memory(1, 16)["weights"] == 4 * language.parameter_count
    with pytest.raises(penstock.IoFailure, match="none.safetensors"):
        penstock.Model.load(tmp_path / "none.safetensors")
    (tmp_path / "bad").write_bytes(b"\x00" * 100)
    with pytest.raises(penstock.BadInput):
        penstock.Model.load(tmp_path / "bad")
    assert issubclass(penstock.IoFailure, OSError) and issubclass(penstock.BadInput, ValueError)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda m: m.forward(np.zeros(3, np.float32)), "inputs must be int32, not float32"),
        (lambda m: m.forward(np.full(3, 256, np.int32)), "256"),
        (lambda m: m.forward(np.zeros((1, 2, 3), np.int32)), r"inputs must have the shape \(T,\) or \(B, T\)"),
        (lambda m: m.forward(np.zeros(3, np.int32), np.zeros(3, np.float32)), r"state must have the shape"),
        (lambda m: m.forward(np.zeros(3, np.int32), mode="fast"), "mode must be 'auto', 'sequential' or 'scan'"),
        (lambda m: m.forward(np.zeros(3, np.int32), device="tpu"), "tpu"),
        (lambda m: m.forward(np.zeros(3, np.int32), threads=-1), "threads must be at least 0"),
        (lambda m: m.generate(bytes=-1), "count must not be negative"),
        (lambda m: m.generate(top_p=0.0, seed=1), "top_p must be in"),
        (lambda m: penstock.Session(m).push(256), "256"),
        (lambda m: penstock.Session(m).push(-1), "-1"),
        (lambda m: penstock.Session(m).push(np.zeros(2, np.float32)), "reads tokens"),
        (lambda m: penstock.train(m, penstock.open_task("parity"), steps=1, progress=False), "made for other data: data.classes"),
    ],
)
def test_mistakes(language, call, message):
    with pytest.raises((penstock.InvalidArgument, penstock.Incompatible, TypeError), match=message):
        call(language)
