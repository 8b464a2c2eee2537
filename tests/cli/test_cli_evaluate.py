"""What evaluate says of a model, what train says at its end, and that both say whether the model is worth having."""

import json
import math
import random
import re

import pytest

from program import TINY, refuses, run

SEASON = 8


def season_csv(rows):
    noise = random.Random(5)
    values = [20 + 0.1 * i + 5 * math.sin(2 * math.pi * i / SEASON) + noise.gauss(0, 0.2) for i in range(rows)]
    return "t,x\n" + "".join(f"{i},{value:.4f}\n" for i, value in enumerate(values))


@pytest.fixture
def seasonal(tmp_path):
    (tmp_path / "all.csv").write_text(season_csv(160))
    (tmp_path / "train.csv").write_text(season_csv(130))
    run("train", "train.csv", *TINY, "--columns", "x", "--horizon", 4, "--steps", 30, "-q", cwd=tmp_path)
    return tmp_path


def test_a_series_beside_what_costs_nothing(seasonal):
    lines = run("evaluate", "model.safetensors", "all.csv", "--skip", 130, cwd=seasonal).out.splitlines()
    assert re.fullmatch(r"x: RMSE [\d.]+, MAE [\d.]+, MASE [\d.]+, sMAPE [\d.]+ % of 114 forecast values", lines[0])
    assert re.fullmatch(r"\d+ % of the values lie in the 80 % interval \(quantiles 0.1 to 0.9\); pinball loss [\d.]+", lines[1])
    assert re.fullmatch(
        r"RMSE of the last value [\d.]+, a season ago [\d.]+ \(8 rows\), drift [\d.]+", lines[2])
    assert re.fullmatch(r"better than a season ago by \d+ %", lines[3])
    result = run("evaluate", "model.safetensors", "all.csv", "--skip", 130, "--json", cwd=seasonal).json()
    column = result["files"][0]["columns"]["x"]
    assert column["scored"] == 114 and column["season"] == SEASON
    assert column["best_rival"] == "a season ago"
    assert column["rmse"] < column["rivals"]["a season ago"]["rmse"] < column["rivals"]["the last value"]["rmse"]


def test_the_score_is_that_of_predict(seasonal):
    rows = [line.split(",") for line in run("predict", "model.safetensors", "all.csv", cwd=seasonal).out.splitlines()[1:]]
    values = [float(line.split(",")[1]) for line in season_csv(160).splitlines()[1:]]
    errors = [float(rows[row][ahead]) - values[row + 1 + ahead]
              for row in range(129, 160) for ahead in range(4) if row + 1 + ahead < 160]
    said = run("evaluate", "model.safetensors", "all.csv", "--skip", 130, "--json", cwd=seasonal).json()
    column = said["files"][0]["columns"]["x"]
    assert column["rmse"] == pytest.approx(math.sqrt(sum(e * e for e in errors) / len(errors)), rel=1e-4)
    assert column["mae"] == pytest.approx(sum(map(abs, errors)) / len(errors), rel=1e-4)


def test_train_ends_with_the_score_of_what_was_held_out(seasonal):
    result = run("train", "train.csv", *TINY, "--columns", "x", "--horizon", 4, "--steps", 30, "--no-linear",
                 "--force", "--json", cwd=seasonal).json()
    held_out = result["score"]["columns"]["x"]
    assert held_out["scored"] == 26 + 25 + 24 + 23
    again = run("evaluate", "model.safetensors", "train.csv", "--skip", 104, "--json", cwd=seasonal).json()
    assert again["files"][0]["columns"]["x"] == held_out


def test_rows_that_the_linear_forecast_has_no_past_for_lead_in(seasonal):
    result = run("evaluate", "model.safetensors", "train.csv", cwd=seasonal)
    lags = run("info", "model.safetensors", "--json", cwd=seasonal).json()["lags"]
    assert lags > 1
    assert result.out.startswith(f"the first {lags} rows are read but not scored (--skip 0 scores them too)\n")
    without = run("evaluate", "model.safetensors", "train.csv", "--json", cwd=seasonal).json()["files"][0]["columns"]["x"]
    explicit = run("evaluate", "model.safetensors", "train.csv", "--skip", lags, "--json", cwd=seasonal)
    assert explicit.json()["files"][0]["columns"]["x"] == without
    (seasonal / "short.csv").write_text(season_csv(lags))
    refuses("evaluate", "model.safetensors", "short.csv", cwd=seasonal, status=1, verb="evaluate",
            message=f"short.csv: there is nothing to score after row {lags}, because the linear forecast reads that many: "
                    f"it has {lags} rows; --skip 0 scores all rows")
    (seasonal / "one.csv").write_text(season_csv(1))
    refuses("evaluate", "model.safetensors", "one.csv", cwd=seasonal, status=1, verb="evaluate",
            message="one.csv: there is nothing to score: it has 1 row, and forecasts are compared with later ones")


@pytest.mark.parametrize("source", ["two files", "-"])
def test_what_was_held_out_of_several_files_and_of_standard_input_is_scored(seasonal, source):
    rows = season_csv(160).splitlines(keepends=True)
    (seasonal / "first.csv").write_text("".join(rows[:121]))
    (seasonal / "second.csv").write_text(rows[0] + "".join(rows[121:]))
    options = [*TINY, "--columns", "x", "--horizon", 4, "--steps", 5, "--force", "--json"]
    if source == "-":
        result = run("train", "-", "--as", "series", *options, stdin="".join(rows), cwd=seasonal).json()
        one = run("train", "all.csv", *options, cwd=seasonal).json()
        assert result["score"] == one["score"]
    else:  # a fifth of each: 24 rows of 120, and 8 of 40
        result = run("train", "first.csv", "second.csv", *options, cwd=seasonal).json()
        assert result["score"]["columns"]["x"]["scored"] == (24 + 23 + 22 + 21) + (8 + 7 + 6 + 5)


def test_quantiles_cover_what_they_promise(seasonal):
    options = ["--skip", 130, "--quantiles", "0.05,0.5,0.95"]
    column = run("evaluate", "model.safetensors", "all.csv", *options, "--json", cwd=seasonal).json()["files"][0]["columns"]["x"]
    assert column["quantiles"]["levels"] == [0.05, 0.5, 0.95]
    out = run("predict", "model.safetensors", "all.csv", "--quantiles", "0.05,0.5,0.95", cwd=seasonal).out
    rows = [line.split(",") for line in out.splitlines()]
    assert rows[0][:4] == ["x+1", "x+1 q0.05", "x+1 q0.5", "x+1 q0.95"]
    values = [float(line.split(",")[1]) for line in season_csv(160).splitlines()[1:]]
    within = [float(rows[1 + row][4 * ahead + 1]) <= values[row + 1 + ahead] <= float(rows[1 + row][4 * ahead + 3])
              for row in range(129, 160) for ahead in range(4) if row + 1 + ahead < 160]
    assert column["quantiles"]["coverage"] == pytest.approx(sum(within) / len(within))
    said = run("evaluate", "model.safetensors", "all.csv", *options, cwd=seasonal).out.splitlines()[1]
    assert re.fullmatch(r"\d+ % of the values lie in the 90 % interval \(quantiles 0.05 to 0.95\); pinball loss [\d.]+", said)
    streamed = run("stream", "model.safetensors", "--quantiles", "0.05,0.5,0.95", stdin=season_csv(160), cwd=seasonal).out
    assert streamed.splitlines()[0] == out.splitlines()[0]
    last = run("predict", "model.safetensors", "all.csv", "--last", "--quantiles", "0.1,0.9", "--json", cwd=seasonal).json()
    assert len(last["quantiles"]["x"]["0.1"]) == 4
    assert all(low < middle < high for low, middle, high in
               zip(last["quantiles"]["x"]["0.1"], last["forecast"]["x"], last["quantiles"]["x"]["0.9"]))


def test_intervals_of_a_stream_are_those_of_predict_and_go_on_from_a_state(seasonal):
    lines = season_csv(160).splitlines(keepends=True)
    # Behind row 120 values leap about: intervals widen.
    wild = [lines[0]] + [line if i < 120 else f"{line.split(',')[0]},{float(line.split(',')[1]) * (1 + 0.4 * (-1)**i)}\n"
                         for i, line in enumerate(lines[1:])]
    (seasonal / "wild.csv").write_text("".join(wild))
    options = ["--quantiles", "0.1,0.9"]
    predicted = run("predict", "model.safetensors", "wild.csv", *options, cwd=seasonal).out.splitlines()
    rows = [[float(cell) for cell in line.split(",")] for line in predicted[1:]]
    widths = [row[2] - row[1] for row in rows]
    assert max(widths[130:]) > 2 * max(widths[100:120])
    first = run("stream", "model.safetensors", *options, "--state", "s", stdin="".join(wild[:131]), cwd=seasonal).out
    rest = run("stream", "model.safetensors", *options, "--state", "s", stdin="".join([lines[0], *wild[131:]]), cwd=seasonal).out
    streamed = [[float(cell) for cell in line.split(",")] for line in first.splitlines()[1:] + rest.splitlines()[1:]]
    assert len(streamed) == 160
    # Forecasts of both agree to rounding; so do their intervals.
    assert all(one == pytest.approx(other, rel=1e-5, abs=1e-5) for one, other in zip(streamed, rows))
    whole = run("stream", "model.safetensors", *options, stdin="".join(wild), cwd=seasonal).out.splitlines()
    assert whole[1:] == first.splitlines()[1:] + rest.splitlines()[1:], "to the bit"
    state = json.loads((seasonal / "s").read_text())
    del state["checksum"], state["version"]  # as an older file
    state["intervals"] = state["intervals"][:-1]
    (seasonal / "s").write_text(json.dumps(state))
    refuses("stream", "model.safetensors", "--state", "s", stdin=lines[0], cwd=seasonal, status=1, verb="stream",
            message=f"--state s: the state of intervals must not hold {len(state['intervals'])} values")


@pytest.mark.parametrize("levels, message", [
    ("0.9,0.1", "--quantiles must ascend"),
    ("0.1,1", "--quantiles must be 0.005 to 0.995, not 1"),
    ("0.1,x", "--quantiles must be numbers with commas between them, such as 0.1,0.5,0.9, not '0.1,x'"),
])
def test_quantiles_that_there_are_not(seasonal, levels, message):
    refuses("predict", "model.safetensors", "all.csv", "--quantiles", levels, cwd=seasonal, status=2, verb="predict",
            message=message)


def test_quantiles_of_a_model_that_knows_none(models):
    refuses("predict", models / "text.safetensors", models / "text.txt", "--quantiles", "0.5", status=2, verb="predict",
            message=f"--quantiles is for forecast models, and {models / 'text.safetensors'} is a language model")


def test_options_of_another_kind_of_data(models):
    text, series = models / "text.safetensors", models / "series.safetensors"
    refuses("predict", text, models / "text.txt", "--delimiter", ";", status=2, verb="predict",
            message=f"--delimiter is for models that read tables, and {text} reads text")
    refuses("stream", text, "--missing", "carry", status=2, verb="stream",
            message=f"--missing is for models that read tables, and {text} reads text")
    refuses("predict", series, models / "series.csv", "--modulus", 3, status=2, verb="predict",
            message=f"--modulus is for built-in tasks, such as task:parity, and DATA is {models / 'series.csv'}")  # fmt: skip


def test_labels_with_their_confusion(models):
    lines = run("evaluate", models / "labelled.safetensors", models / "labelled.csv").out.splitlines()
    assert re.fullmatch(r"accuracy [\d.]+ %, macro-F1 [\d.]+ on 40 sequences", lines[0])
    assert "the most frequent label 'down' (50.0 %)" in lines[1]
    table = [line.split() for line in lines[2:]]
    assert table[0][:4] == ["truth", "|", "down", "up"]
    assert sum(int(count) for row in table[1:] for count in row[2:]) == 40
    result = run("evaluate", models / "labelled.safetensors", models / "labelled.csv", "--json").json()["files"][0]
    assert sum(result["confusion"][i][i] for i in range(2)) == round(40 * result["accuracy"])


def test_a_text_beside_compressors(models):
    result = run("evaluate", models / "text.safetensors", models / "text.txt", "--json").json()["files"][0]
    scored = run("predict", models / "text.safetensors", models / "text.txt", "--json").json()["files"][0]
    assert result["bytes"] == scored["scored"]
    assert result["bits_per_byte"] == pytest.approx(scored["bits_per_byte"])
    out = run("evaluate", models / "text.safetensors", models / "text.txt").out
    assert out.startswith(f"{scored['bits_per_byte']:.3f}"[:4])


def test_what_cannot_be_scored(seasonal, models):
    refuses("evaluate", "model.safetensors", "all.csv", "--skip", 160, cwd=seasonal, status=1, verb="evaluate",
            message="all.csv: there is nothing to score after row 160: it has 160 rows")
    refuses("evaluate", models / "text.safetensors", "all.csv", "--skip", 3, cwd=seasonal, status=2, verb="evaluate",
            message=f"--skip is for forecast models, and {models / 'text.safetensors'} is a language model")
    refuses("evaluate", cwd=seasonal, status=2, verb="evaluate", message="MODEL is missing")


def test_rows_with_missing_values(seasonal, tmp_path):
    """The option that a message names is one of this command."""
    lines = (seasonal / "all.csv").read_text().splitlines()
    lines[150] = lines[150].rsplit(",", 1)[0] + ","
    (tmp_path / "gap.csv").write_text("\n".join(lines) + "\n")
    command = ["evaluate", seasonal / "model.safetensors", tmp_path / "gap.csv"]
    assert "the value is missing; --missing (carry, interpolate or mask) accepts such values" in run(*command, expect=1).err
    assert "RMSE" in run(*command, "--missing", "carry").out


def test_few_rows_get_enough_steps_and_a_run_that_gains_nothing_ends(tmp_path):
    (tmp_path / "all.csv").write_text(season_csv(100))
    result = run("train", "all.csv", *TINY, "--columns", "x", "--json", cwd=tmp_path)
    said = result.err.splitlines()
    assert "a season of 8 rows" in said[0]
    assert re.match(r"run    at most [\d,]+ steps \([\d,]+ passes over the data\)", said[2])
    assert re.match(r"stop   after 10 validations without improvement, one every [\d,]+ steps; the best", said[3])
    assert result.json()["steps"] > 100
    assert result.json()["model_step"] <= result.json()["steps"]
