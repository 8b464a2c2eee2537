"""What is known in advance: rows to come say it, and predict asks for them."""

import json
import pathlib
import random

import pytest

from program import TINY, run

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "data"
QUICK = [*TINY, "--length", 16, "--known", "event"]


def events(rows, to_come=0):
    noise = random.Random(1)
    text = "t,x,event\n"
    for i in range(rows + to_come):
        event = int(noise.random() < 0.3)
        text += f"{i},{10 + 5 * event + noise.gauss(0, 0.1):.3f},{event}\n" if i < rows else f"{i},,{event}\n"
    return text


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("known")
    (folder / "e.csv").write_text(events(200))
    result = run("train", "e.csv", "--columns", "x", "--horizon", 2, *QUICK, "--steps", 150, "--seed", 1, cwd=folder)
    assert "data   e.csv: x, event in 160 rows" in result.err and "predicts x, 1 to 2 rows ahead" in result.err
    return folder


def test_forecasts_follow_what_is_to_come(trained):
    plan = {"calm": [0, 0], "busy": [1, 1], "last": [0, 1]}
    for name, (first, second) in plan.items():
        (trained / f"{name}.csv").write_text(events(200) + f"200,,{first}\n201,,{second}\n")
    forecast = {
        name: [float(x) for x in run("predict", "model.safetensors", f"{name}.csv", "--last", cwd=trained).out.split()[1].split(",")]
        for name in plan
    }
    assert forecast["busy"][0] - forecast["calm"][0] > 2.5 and forecast["busy"][1] - forecast["calm"][1] > 2.5
    assert forecast["last"][1] - forecast["calm"][1] > 2.5 and abs(forecast["last"][0] - forecast["calm"][0]) < 2.5


def test_what_lacks_is_asked_for(trained):
    needs = "after the last row, add 2 more rows with the known values of event and an empty x"
    assert f"e.csv: {needs}" in run("predict", "model.safetensors", "e.csv", "--last", cwd=trained, expect=1).err
    result = run("predict", "model.safetensors", "e.csv", "--keep", "t", cwd=trained)
    assert result.err == f"note: e.csv: {needs}, for forecasts from the last rows\n"
    assert [line.split(",")[0] for line in result.out.splitlines()[1:]] == [str(i) for i in range(198)]
    (trained / "one.csv").write_text(events(200, 1))
    assert len(run("predict", "model.safetensors", "one.csv", cwd=trained).out.splitlines()) == 1 + 199
    (trained / "wrong.csv").write_text(events(200, 1) + "201,5,0\n")
    said = run("predict", "model.safetensors", "wrong.csv", cwd=trained, expect=1).err
    assert "wrong.csv: a row with an empty x comes before one with a value" in said
    assert "a stream does not have yet" in run("stream", "model.safetensors", stdin=events(9), cwd=trained, expect=2).err


def test_scores_count_what_has_come(trained):
    (trained / "plan.csv").write_text(events(200, 2))
    options = ["--skip", 160, "--json"]
    column = run("evaluate", "model.safetensors", "plan.csv", *options, cwd=trained).json()["files"][0]["columns"]["x"]
    assert column["scored"] == 40 + 39
    assert column["rmse"] < 0.6 * column["rivals"][column["best_rival"]]["rmse"]


def test_the_example(tmp_path):
    shops = EXAMPLES / "shops.csv"
    run("train", shops, "--group", "shop", "--known", "promotion", "--horizon", 6, "--steps", 40, *TINY,
        "-o", "planned.safetensors", cwd=tmp_path)  # fmt: skip
    text = shops.read_text() + (EXAMPLES / "shops_plan.csv").read_text()
    lines = run("predict", "planned.safetensors", "-", "--last", stdin=text, cwd=tmp_path).out.splitlines()
    assert lines[0].startswith("shop,sales+1,") and len(lines) == 1 + 4
    said = run("predict", "planned.safetensors", shops, "--last", cwd=tmp_path, expect=1).err
    assert "after the last row of Aachen (and of 3 more series), add 6 more rows with the known values of promotion" in said


def forecast_record(path):
    return next(record for record in map(json.loads, path.read_text().splitlines()) if record["kind"] == "forecast")


def test_a_report_draws_no_forecast_that_lacks_what_is_known(trained, tmp_path):
    for rows_ahead in (0, 1, 2):
        name = f"ahead{rows_ahead}"
        (trained / f"{name}.csv").write_text(events(200, rows_ahead))
        options = ["--columns", "x", "--horizon", 2, *QUICK, "--steps", 5, "-o", f"{name}.safetensors"]
        run("train", f"{name}.csv", *options, "--metrics", f"{name}.jsonl", cwd=trained)
        run("report", f"{name}.safetensors", "--data", f"{name}.csv", "-o", f"{name}.html", cwd=trained)
        run("report", f"{name}.jsonl", "-o", f"{name}.metrics.html", "--force", cwd=trained)
        record = forecast_record(trained / f"{name}.jsonl")
        pages = [(trained / f"{name}{middle}.html").read_text() for middle in ("", ".metrics")]
        lacking = 2 - rows_ahead
        needs = f"it needs event of {lacking} more row{'s' if lacking > 1 else ''}, which the data do not have."
        for page in pages:
            assert ('data-name="to come"' in page) == (lacking == 0)
            assert (f"No forecast from the last row{'s' if lacking > 1 else ''}: {needs}" in page) == (lacking > 0)
        assert len(record["to_come"]) == (2 if lacking == 0 else 0)
        assert record.get("lacking") == ({"rows": lacking, "columns": ["event"]} if lacking else None)
        # Like predict, which answers no row that lacks something: of two rows ahead, the last but one lacks a row less.
        assert [value is None for value in record["ahead"]["1"][-2:]] == [False, lacking == 2]
