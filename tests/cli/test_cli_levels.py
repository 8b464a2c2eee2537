"""Raw values keep their digits from the file to the answer, however large they are, and zeros stay zeros."""

import math
import random
import re

import pytest

from program import TINY, run

QUICK = [*TINY, "--horizon", 3, "--steps", 10, "--seed", 1]


def waves(level, rows=400, unit=1.0):
    noise = random.Random(1)
    return [level + unit * (10 * math.sin(2 * math.pi * row / 24) + noise.gauss(0, 1)) for row in range(rows)]


def trained(folder, name, values):
    (folder / f"{name}.csv").write_text("y\n" + "".join(f"{value!r}\n" for value in values))
    return run("train", f"{name}.csv", *QUICK, "--json", "--force", "-o", f"{name}.safetensors", cwd=folder)


def scores(folder, name):
    return run("evaluate", f"{name}.safetensors", f"{name}.csv", "--skip", 320, "--json", cwd=folder).json()["files"][0]["columns"]["y"]


def forecasts(folder, name, *options, verb="predict"):
    source = {"stdin": (folder / f"{name}.csv").read_text()} if verb == "stream" else {}
    files = [] if verb == "stream" else [f"{name}.csv"]
    out = run(verb, f"{name}.safetensors", *files, *options, cwd=folder, **source).out
    return [[float(field) for field in line.split(",")] for line in out.splitlines()[1:]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("levels")
    trained(folder, "low", waves(100))
    return folder


@pytest.mark.parametrize("level, unit", [(1e9, 1.0), (1e12, 1.0), (-1e9, 1.0), (5e41, 5e39), (4e-41, 4e-43)])
def test_a_level_changes_no_answer(folder, level, unit):
    said = trained(folder, "high", waves(level, unit=unit)).json()["score"]["columns"]["y"]
    low = scores(folder, "low")
    # Training scored before the linear forecast was fitted once more to the held-out rows.
    for high in (scores(folder, "high"), said):
        for name in ("rmse", "mae"):
            assert high[name] == pytest.approx(low[name] * unit, rel=0.01 if high is not said else 0.2)
            for rival in high["rivals"]:
                assert high["rivals"][rival][name] == pytest.approx(low["rivals"][rival][name] * unit, rel=0.01)
        assert high["quantiles"]["coverage"] == pytest.approx(low["quantiles"]["coverage"], abs=0.02 if high is not said else 0.1)
    options = ["--quantiles", "0.1,0.9"]
    for verb in ("predict", "stream"):
        low_rows, high_rows = (forecasts(folder, name, *options, verb=verb) for name in ("low", "high"))
        assert len(low_rows) == len(high_rows) == 400
        for low_row, high_row in zip(low_rows[100:], high_rows[100:]):
            assert [(x - level) / unit for x in high_row] == pytest.approx([x - 100 for x in low_row], abs=0.01)


def test_a_report_tells_large_values_apart(tmp_path):
    trained(tmp_path, "high", waves(1e9))
    run("report", "high.safetensors", "--data", "high.csv", "-o", "high.html", cwd=tmp_path)
    page = (tmp_path / "high.html").read_text()
    labels = re.findall(r'<text class="tick end"[^>]*>([^<]*)</text>', page)
    assert labels and labels == ["999999990", "1000000000", "1000000010"] * (len(labels) // 3)


@pytest.mark.parametrize("unit", [1e-310, 1e-200])
def test_values_too_small_for_their_squares_are_refused(tmp_path, unit):
    (tmp_path / "s.csv").write_text("y\n" + "".join(f"{unit * value!r}\n" for value in waves(20, rows=100)))
    said = run("train", "s.csv", *QUICK, expect=1, cwd=tmp_path).err
    assert 'column "y": the values, ' in said and "are too small for a spread; give larger units" in said


def test_answers_of_usual_levels_have_the_digits_of_a_float(folder):
    out = run("predict", "low.safetensors", "low.csv", "--last", cwd=folder).out.splitlines()[1]
    assert all(len(field.replace(".", "")) <= 9 for field in out.split(","))


def test_a_meter_that_counts_by_256(tmp_path):
    steps, value, values = random.Random(1), 4_000_000_000, []
    for _ in range(400):
        value += 256 * steps.choice([0, 1, 1, 2])
        values.append(value)
    said = trained(tmp_path, "meter", values).json()["score"]["columns"]["y"]
    assert 150 < said["rmse"] < 350 and 0.6 < said["quantiles"]["coverage"] < 0.95
    first, low, high = forecasts(tmp_path, "meter", "--last", "--quantiles", "0.1,0.9")[0][:3]
    assert low < first < high and 200 < high - low < 1000


@pytest.mark.parametrize("outlier", [1e12, 5e41])
def test_a_value_far_from_all_others_is_named(folder, outlier):
    values = waves(100)
    values[150] = outlier
    result = trained(folder, "outlier", values)
    column = result.json()["score"]["columns"]["y"]
    assert column["rivals"]["the last value"]["rmse"] == pytest.approx(scores(folder, "low")["rivals"]["the last value"]["rmse"], rel=0.05)
    said = run("train", "outlier.csv", *QUICK, "-o", "outlier.safetensors", "--force", cwd=folder).err
    assert f'column "y": {outlier:g}'[:11] in said and "in line 152 of outlier.csv is so far from the other values that" in said
    assert "never wrong" not in said


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_a_factor_changes_no_answer(tmp_path, factor):
    numbers = random.Random(2)
    values = {"waves": waves(20), "zeros": [numbers.choice([0, 0, 1, 3]) for _ in range(250)]}
    values["tiny"] = [max(value, 1e-6) for value in values["zeros"]]
    values["growing"] = [math.exp(0.01 * row + 0.05 * numbers.gauss(0, 1)) for row in range(250)]
    for name, plain in values.items():
        trained(tmp_path, name, plain)
        trained(tmp_path, "scaled", [factor * value for value in plain])
        options = ["--quantiles", "0.1,0.9", "--last"]
        here, there = forecasts(tmp_path, name, *options)[0], forecasts(tmp_path, "scaled", *options)[0]
        assert [value / factor for value in there] == pytest.approx(here, rel=1e-5, abs=1e-5), name


@pytest.mark.parametrize("seed, least", [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1e-9), (1, 1e-6), (2, 1e-3)])
def test_quantiles_of_series_with_zeros(tmp_path, seed, least):
    numbers = random.Random(seed)
    values = [least if numbers.random() < 0.6 else numbers.choice([1, 2, 3, 5]) for _ in range(250)]
    trained(tmp_path, "zeros", values)
    rows = forecasts(tmp_path, "zeros", "--quantiles", "0.1,0.5,0.9")
    assert max(row[3] for row in rows) < 10
    said = run("evaluate", "zeros.safetensors", "zeros.csv", "--skip", 100, "--json", cwd=tmp_path).json()["files"][0]["columns"]["y"]
    held, count = 0, 0
    for row in range(99, 250):
        for ahead in (1, 2, 3):
            if row + ahead < 250:
                low, high = rows[row][4 * (ahead - 1) + 1], rows[row][4 * (ahead - 1) + 3]
                held, count = held + (low <= values[row + ahead] <= high), count + 1
    assert said["scored"] == count
    assert said["quantiles"]["coverage"] == pytest.approx(held / count, abs=0.01)


@pytest.mark.parametrize("sentinel", ["3.4e38", "-3.4028235e38", "1e30"])
def test_what_stands_for_a_missing_value_poisons_no_stream(folder, sentinel):
    rows = [f"{value!r}" for value in waves(100, rows=60)]
    outs = {}
    for name, field in (("there", sentinel), ("absent", "NA")):
        text = "\n".join(["y", *rows[:20], field, *rows[21:]]) + "\n"
        answered = run("stream", "low.safetensors", "--state", f"{name}{sentinel}.json", cwd=folder, stdin=text)
        again = run("stream", "low.safetensors", "--state", f"{name}{sentinel}.json", cwd=folder, stdin=text)
        outs[name] = answered.out, again.out
        if name == "there":
            assert "is too far from the values that the model is trained on; replaced by the last value" in answered.err
    assert outs["there"] == outs["absent"]
    assert "nan" not in outs["there"][0]
