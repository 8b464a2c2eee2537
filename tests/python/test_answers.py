"""Models that answer files and tables in memory, as the program does."""

import gzip
import pathlib

import numpy as np
import penstock
import pytest
from program import run

ROOT = pathlib.Path(__file__).parents[2]
SHOPS = ROOT / "examples" / "data" / "shops.csv"


def trained(data, **options):
    model = penstock.Model(data, cell="mingru", width=8, blocks=1, seed=1)
    penstock.train(model, data, steps=5, batch=2, length=16, progress=False, threads=1, **options)
    return model


@pytest.fixture
def series(tmp_path):
    steps = np.arange(150)
    values = np.round(np.stack([np.sin(steps / 4) + steps / 50, steps % 7], 1), 6)
    path = tmp_path / "series.csv"
    np.savetxt(path, values, delimiter=";", header="level;flow", comments="", fmt="%.6f")
    return path, values


def test_files_are_forecast_as_their_rows_are(series):
    path, values = series
    model = trained(penstock.open_series(path, targets=["level"], horizon=3))
    for given in (path, str(path)):
        np.testing.assert_array_equal(model.predict(given, exact=True), model.predict(values, exact=True))


def test_files_are_scored_as_by_the_program(series, tmp_path):
    path, _ = series
    model = trained(penstock.open_series(path, targets=["level"], horizon=3))
    model.save(tmp_path / "model.safetensors")
    expected = run("evaluate", tmp_path / "model.safetensors", path, "--skip", 100, "--threads", 1, "--json").json()
    assert {"file": str(path), **model.evaluate(path, skip=100, threads=1)} == expected["files"][0]
    few = model.evaluate(path, skip=100, quantiles=[0.2, 0.8])["columns"]["level"]["quantiles"]
    assert few["levels"] == [0.2, 0.8]
    with pytest.raises(penstock.InvalidArgument, match="there is nothing to score after row 150"):
        model.evaluate(path, skip=150)
    with pytest.raises(penstock.InvalidArgument, match="skip must not be negative, not -1"):
        model.evaluate(path, skip=-1)


def test_many_series_are_answered_by_name(tmp_path):
    data = penstock.open_series(SHOPS, inputs=["sales"], group="shop", known=["promotion"], horizon=6)
    model = trained(data)
    answers = model.predict(SHOPS)
    assert list(answers) == ["Aachen", "Bonn", "Essen", "Kiel"]
    assert all(answer.shape == (60, 6, 1) for answer in answers.values())
    assert np.isfinite(answers["Bonn"][:54]).all() and np.isnan(answers["Bonn"][54:]).all(), "no plans behind the end"
    both = tmp_path / "both.csv"
    plan = (ROOT / "examples" / "data" / "shops_plan.csv").read_text().splitlines(keepends=True)
    both.write_text(SHOPS.read_text() + "".join(line for line in plan if not line.startswith("month")))
    planned = model.predict(both)
    assert all(answer.shape == (60, 6, 1) and np.isfinite(answer).all() for answer in planned.values())
    model.save(tmp_path / "model.safetensors")
    said = run("predict", tmp_path / "model.safetensors", both, "--last", "--json", "--threads", 1).json_lines()
    forecasts = [line["forecast"]["sales"] for line in said]
    assert [planned[name][-1, :, 0].tolist() for name in planned] == forecasts
    scored = run("evaluate", tmp_path / "model.safetensors", SHOPS, "--skip", 48, "--threads", 1, "--json").json()
    assert {"file": str(SHOPS), **model.evaluate(SHOPS, skip=48, threads=1)} == scored["files"][0]


def test_quantiles_are_those_of_the_program(series, tmp_path):
    path, values = series
    model = trained(penstock.open_series(path, horizon=3))
    levels = [0.1, 0.5, 0.95]
    forecast, quantiles = model.predict(path, quantiles=levels, exact=True)
    np.testing.assert_array_equal(forecast, model.predict(path, exact=True))
    assert quantiles.shape == (150, 3, 2, 3) and quantiles.dtype == np.float64
    assert (np.diff(quantiles, axis=-1) >= 0).all()
    model.save(tmp_path / "model.safetensors")
    said = run("predict", tmp_path / "model.safetensors", path, "--exact", "--json", "--threads", 1, "--quantiles", "0.1,0.5,0.95")
    for row, line in enumerate(said.json_lines()):
        for target, name in enumerate(("level", "flow")):
            for i, level in enumerate(levels):
                assert line["quantiles"][name][f"{level:g}"] == quantiles[row, :, target, i].tolist()
    # Arrays are followed as files are, each row of a batch from its own start.
    alone = model.predict(values, quantiles=levels, exact=True)
    np.testing.assert_array_equal(alone[0], forecast)
    np.testing.assert_array_equal(alone[1], quantiles)
    batch = model.predict(np.stack([values[:90], values[60:]]), quantiles=(0.9,), exact=True)
    assert batch[0].shape == (2, 90, 3, 2) and batch[1].shape == (2, 90, 3, 2, 1)
    for row, part in enumerate((values[:90], values[60:])):
        np.testing.assert_array_equal(batch[1][row], model.predict(part, quantiles=(0.9,), exact=True)[1])


def test_quantiles_of_many_series(tmp_path):
    model = trained(penstock.open_series(SHOPS, inputs=["sales"], group="shop", known=["promotion"], horizon=6))
    answers = model.predict(SHOPS, quantiles=[0.1, 0.9])
    assert list(answers) == ["Aachen", "Bonn", "Essen", "Kiel"]
    for forecast, quantiles in answers.values():
        assert quantiles.shape == (60, 6, 1, 2) and np.isfinite(quantiles[:54]).all()
        assert np.isnan(quantiles[54:]).all() and np.isnan(forecast[54:]).all(), "no plans behind the end"


def test_levels_that_make_no_quantiles(series, tmp_path):
    path, values = series
    model = trained(penstock.open_series(path, targets=["level"], horizon=3))
    for given in (path, values):
        for levels in (0.1, "0.1,0.9", ["low"], []):
            with pytest.raises(penstock.InvalidArgument, match=r"^quantiles must be levels such as \[0.1, 0.5, 0.9\], not "):
                model.predict(given, quantiles=levels)
        with pytest.raises(penstock.InvalidArgument, match="^quantiles must be 0.005 to 0.995, not 10; 10 % is 0.1$"):
            model.predict(given, quantiles=[10, 90])
        with pytest.raises(penstock.InvalidArgument, match="^quantiles must be 0.005 to 0.995, not -0.1$"):
            model.predict(given, quantiles=[-0.1])
    with pytest.raises(penstock.InvalidArgument, match="^quantiles must be levels such as"):
        model.evaluate(path, quantiles=0.1)
    untrained = penstock.Model(penstock.open_series(path, horizon=3), width=8, blocks=1)
    with pytest.raises(penstock.InvalidArgument, match="does not know the errors of its forecasts: train it with held-out rows"):
        untrained.predict(values, quantiles=[0.5])
    (tmp_path / "text.txt").write_text("the rain in spain stays mainly in the plain. " * 60)
    language = penstock.Model(penstock.open_text(tmp_path / "text.txt"), width=8, blocks=1)
    with pytest.raises(penstock.InvalidArgument, match="quantiles are for models that forecast a series, and this is a language model"):
        language.predict(b"rain", quantiles=[0.5])


def test_labelled_files(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"s{i},{'up' if i % 2 else 'down'},{(t if i % 2 else -t) + 0.1 * rng.normal():.4f}" for i in range(30) for t in range(5 + i % 4)]
    path = tmp_path / "labelled.csv"
    path.write_text("sequence,label,x\n" + "\n".join(rows) + "\n")
    data = penstock.open_labelled(path)
    model = penstock.Model(data)
    with pytest.warns(UserWarning, match="filters stand alone"):
        penstock.train(model, data, progress=False, threads=1)
    answers = model.predict(path, exact=True)
    assert answers.shape == (30, 2)
    np.testing.assert_allclose(answers.sum(-1), 1)
    first = np.array([[float(row.split(",")[2])] for row in rows if row.startswith("s0,")])
    np.testing.assert_array_equal(answers[0], model.predict(first, exact=True))
    model.save(tmp_path / "model.safetensors")
    expected = run("evaluate", tmp_path / "model.safetensors", path, "--threads", 1, "--json").json()["files"][0]
    assert {"file": str(path), **model.evaluate(path, threads=1)} == expected
    with pytest.raises(penstock.InvalidArgument, match='the header of .*labelled.csv has no column "class"'):
        model.evaluate(path, label_column="class")


def test_texts(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the rain in spain stays mainly in the plain. " * 60)
    model = trained(penstock.open_text(path))
    assert model.predict(path).shape == (len(path.read_bytes()), 256)
    score = model.evaluate(path, threads=1)
    assert score == model.evaluate(path.read_text(), threads=1)
    model.save(tmp_path / "model.safetensors")
    expected = run("evaluate", tmp_path / "model.safetensors", path, "--threads", 1, "--json").json()["files"][0]
    assert score["bytes"] == expected["bytes"]
    # Sums of logarithms of floats, in another order of pieces.
    assert score["bits_per_byte"] == pytest.approx(expected["bits_per_byte"], rel=1e-5)
    with pytest.raises(penstock.InvalidArgument, match="at least two bytes"):
        model.evaluate(b"x")


def test_tables_in_memory(series):
    polars = pytest.importorskip("polars")
    path, values = series
    model = trained(penstock.open_series(path, targets=["level"], horizon=3))
    frame = polars.DataFrame(values, schema=["level", "flow"])
    np.testing.assert_array_equal(model.predict(frame), model.predict(path))
    assert model.evaluate(frame, skip=100) == model.evaluate(path, skip=100)
    with pytest.raises(penstock.InvalidArgument, match="inputs must be one table, not several"):
        model.predict([frame, frame])
    with pytest.raises(penstock.InvalidArgument, match="inputs must be a file or a table in memory, not ndarray"):
        model.evaluate(values)


def test_what_gzip_has_compressed_is_read_whatever_its_name(series, tmp_path):
    path, _ = series
    model = trained(penstock.open_series(path, targets=["level"], horizon=3))
    (tmp_path / "rows").write_bytes(gzip.compress(path.read_bytes()))
    np.testing.assert_array_equal(model.predict(tmp_path / "rows"), model.predict(path))
    assert model.evaluate(tmp_path / "rows", skip=100) == model.evaluate(path, skip=100)
    assert (
        penstock.open_series(tmp_path / "rows", targets=["level"], horizon=3).description
        == penstock.open_series(path, targets=["level"], horizon=3).description
    )


def test_what_cannot_be_read(series, tmp_path):
    path, _ = series
    model = trained(penstock.open_series(path, targets=["level"], horizon=3))
    with pytest.raises(penstock.IoFailure, match="No such file or directory"):
        model.predict(tmp_path / "none.csv")
    (tmp_path / "empty.csv").write_text("level;flow\n")
    with pytest.raises(penstock.InvalidArgument, match="empty.csv: there are no rows after the header"):
        model.predict(tmp_path / "empty.csv")
    of_gru = penstock.Model(penstock.open_series(path, targets=["level"]), cell="gru")
    for inputs in (path, np.zeros((5, 2))):
        with pytest.raises(penstock.InvalidArgument, match="must be auto or sequential for cell gru, not scan"):
            of_gru.predict(inputs, mode="scan")


def test_a_level_changes_no_answer():
    polars = pytest.importorskip("polars")
    random = np.random.default_rng(1)
    waves = 10 * np.sin(np.arange(300) / 4) + random.standard_normal(300)
    answers = {}
    for level in (100, 1e9):
        table = polars.DataFrame({"y": waves + level})
        data = penstock.open_series(table, horizon=2)
        model = trained(data)
        rows = model.predict(waves[:, np.newaxis] + level)
        assert np.abs(model.predict(table) - rows).max() <= 1e-3
        answers[level] = rows - level, model.evaluate(table, skip=200)["columns"]["y"]
    (low, low_score), (high, high_score) = answers.values()
    assert np.abs(high[50:] - low[50:]).max() <= 0.01
    assert high_score["rmse"] == pytest.approx(low_score["rmse"], rel=0.01)
    assert high_score["quantiles"]["coverage"] == pytest.approx(low_score["quantiles"]["coverage"], abs=0.02)
