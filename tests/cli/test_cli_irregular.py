"""Rows at irregular dates: what training makes of them, and that forecasts later on are made of the same inputs."""

import datetime
import math

import pytest

from program import TINY, refuses, run

QUICK = [*TINY, "--steps", 3, "--length", 8]
FIRST = datetime.date(2020, 1, 6)  # a Monday


def days(numbers):
    lines = [f"{FIRST + datetime.timedelta(days=i)},{10 + math.sin(i / 2):.4f}\n" for i in numbers]
    return "day,x\n" + "".join(lines)


GAPS = [i for i in range(120) if i not in (20, 21, 22, 70, 110)]
AT_RANDOM = [i for i in range(240) if i * i % 7 < 3]


@pytest.fixture(params=["fill", "elapsed"])
def trained(request, tmp_path):
    numbers = GAPS if request.param == "fill" else AT_RANDOM
    (tmp_path / "x.csv").write_text(days(numbers))
    return request.param, tmp_path, numbers, run("train", "x.csv", "--horizon", 2, *QUICK, cwd=tmp_path)


def test_what_suits_the_dates_is_chosen_and_said(trained):
    kind, folder, _, result = trained
    if kind == "fill":
        assert "read   day: a row a day, with 3 irregular steps, a day to 4 days; 5 missing rows inserted as missing values" in result.err  # fmt: skip
        assert "read   5 missing values replaced by the last one, and left out of the loss and scores\n" in result.err
        assert "x in 96 rows" in result.err
    else:
        assert "; the time since the row before as input" in result.err
    assert ("x (missing)" if kind == "fill" else "day (elapsed)") in run("info", "model.safetensors", cwd=folder).out


def test_a_stream_answers_as_predict_does(trained):
    kind, folder, numbers, _ = trained
    predicted = run("predict", "model.safetensors", "x.csv", "--keep", "day", "--exact", cwd=folder)
    assert len(predicted.out.splitlines()) == 1 + len(numbers)
    streamed = run("stream", "model.safetensors", "--keep", "day", stdin=days(numbers), cwd=folder)
    assert streamed.out == predicted.out
    note = "note: 5 missing rows were inserted as missing values\n"
    assert all((note in result.err) == (kind == "fill") for result in (predicted, streamed))
    last = run("predict", "model.safetensors", "x.csv", "--keep", "day", "--exact", "--last", cwd=folder).out
    assert last.splitlines()[1] == predicted.out.splitlines()[-1]


def test_a_stream_sees_how_long_nothing_came(trained):
    _, folder, numbers, _ = trained
    lines = days(numbers).splitlines(keepends=True)
    split = 1 + numbers.index(24 if 24 in numbers else 23)  # behind a gap
    command = ["stream", "model.safetensors", "--keep", "day", "--state", "s"]
    first = run(*command, stdin="".join(lines[:split]), cwd=folder).out
    rest = run(*command, stdin=lines[0] + "".join(lines[split:]), cwd=folder).out
    whole = run("stream", "model.safetensors", "--keep", "day", stdin="".join(lines), cwd=folder).out
    assert first + "".join(rest.splitlines(keepends=True)[1:]) == whole


def test_a_blank_line_forgets_dates_and_values(trained):
    _, folder, numbers, _ = trained
    head, *rows = days(numbers).splitlines(keepends=True)
    rows[0] = rows[0].split(",")[0] + ",\n"  # for which no value is carried on
    command = ["stream", "model.safetensors", "--keep", "day", "--quantiles", "0.1"]
    streamed = run(*command, "--reset-on-blank-line", stdin="".join([head, *rows, "\n", *rows]), cwd=folder)
    answers = streamed.out.splitlines()[1:]
    assert answers[: len(rows)] == answers[len(rows) :]
    assert "2 values were replaced" in streamed.err, "no date is earlier than the one before"


def test_a_state_keeps_the_values_that_are_carried_on(trained):
    _, folder, numbers, _ = trained
    head, *rows = days(numbers).splitlines(keepends=True)
    rows[30] = rows[30].split(",")[0] + ",\n"
    command = ["stream", "model.safetensors", "--keep", "day"]
    whole = run(*command, stdin="".join([head, *rows]), cwd=folder).out.splitlines()
    parts = [run(*command, "--state", "s", stdin="".join([head, *part]), cwd=folder).out.splitlines()[1:]
             for part in (rows[:30], rows[30:])]  # fmt: skip
    assert sum(parts, []) == whole[1:]


def test_rows_that_are_missing_are_not_scored(trained):
    kind, folder, numbers, _ = trained
    score = run("evaluate", "model.safetensors", "x.csv", "--skip", 0, "--json", cwd=folder).json()["files"][0]
    there = set(numbers)
    rows = range(max(numbers) + 1) if kind == "fill" else numbers
    aims = [rows[i + k] for k in (1, 2) for i in range(len(rows) - k)]
    assert score["columns"]["x"]["scored"] == sum(aim in there for aim in aims)


def test_the_choice_can_be_made_otherwise(tmp_path):
    (tmp_path / "x.csv").write_text(days(GAPS))
    ignored = run("train", "x.csv", "--irregular", "ignore", *QUICK, cwd=tmp_path)
    assert "x in 92 rows" in ignored.err
    refuses("train", "x.csv", "--irregular", "refuse", "-o", "b", cwd=tmp_path, status=1, verb="train",
            message="x.csv:22: column \"day\": \"2020-01-29\" is not a day after the row before; --irregular "
            "(ignore, elapsed or fill) accepts such rows")  # fmt: skip
    (tmp_path / "n.csv").write_text("x\n" + "".join(f"{i % 7}\n" for i in range(60)))
    result = run("train", "n.csv", "--irregular", "fill", "-o", "b", cwd=tmp_path, expect=2)
    assert "irregular: n.csv has no column of dates that rise" in result.err
    result = run("train", "x.csv", "--init", "model.safetensors", "--irregular", "fill", "-o", "b", cwd=tmp_path, expect=2)
    assert "--irregular must not be given with --init" in result.err


def test_it_is_trained_further(trained):
    kind, folder, numbers, _ = trained
    (folder / "y.csv").write_text(days([i for i in range(100) if i not in (30, 31)]))
    run("train", "y.csv", "--init", "model.safetensors", "-o", "b", "--threads", 1, "--steps", 2, cwd=folder)
    before, after = (run("info", path, "--json", cwd=folder).json()["inputs"] for path in ("model.safetensors", "b"))
    assert before == after


def test_series_of_a_group_are_each_at_their_dates(tmp_path):
    first, second = days(GAPS).splitlines()[1:], days(range(119)).splitlines()[1:]
    rows = [f"{line},a" for line in first] + [f"{line},b" for line in second]
    rows.sort(key=lambda row: row.split(",")[0])
    text = "day,x,shop\n" + "\n".join(rows) + "\n"
    (tmp_path / "x.csv").write_text(text)
    result = run("train", "x.csv", "--group", "shop", *QUICK, cwd=tmp_path)
    assert "5 missing rows inserted" in result.err
    predicted = run("predict", "model.safetensors", "x.csv", "--keep", "day", "--exact", cwd=tmp_path).out
    streamed = run("stream", "model.safetensors", "--keep", "day", stdin=text, cwd=tmp_path).out
    assert sorted(streamed.splitlines()) == sorted(predicted.splitlines())
    assert len(predicted.splitlines()) == 1 + len(rows)
