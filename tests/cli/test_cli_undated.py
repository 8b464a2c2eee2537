"""Rows whose date cannot be read: an error that says where, or left out, by the same option in all verbs."""

import datetime
import math

from program import TINY, refuses, run

QUICK = [*TINY, "--steps", 3, "--length", 8]
FIRST = datetime.date(2023, 1, 1)


def days(numbers):
    return [f"{FIRST + datetime.timedelta(days=i)},{10 + math.sin(i / 2):.4f}\n" for i in numbers]


HEADER, ROWS = "day,x\n", days(range(120))
WITH_SUMS = [*ROWS[:31], "Total,310\n", *ROWS[31:59], "2023-02-30,280\n", *ROWS[59:], "Total,\n"]


def test_training_says_line_and_value_or_leaves_out(tmp_path):
    (tmp_path / "sums.csv").write_text(HEADER + "".join(WITH_SUMS))
    (tmp_path / "days.csv").write_text(HEADER + "".join(ROWS))
    refuses("train", "sums.csv", "--missing", "carry", *QUICK, cwd=tmp_path, status=1, verb="train",
            message='sums.csv:33: column "day": "Total" is no date, unlike the others (2 more have none); '
                    "--undated drop leaves such rows out, --calendar none ignores all dates")  # fmt: skip
    left = run("train", "sums.csv", "--undated", "drop", *QUICK, "-o", "left.safetensors", cwd=tmp_path)
    assert 'read   3 rows without a readable date in day left out, the first "Total" in line 33\n' in left.err
    run("train", "days.csv", *QUICK, "-o", "days.safetensors", cwd=tmp_path)
    forecasts = [run("predict", f"{model}.safetensors", "days.csv", cwd=tmp_path).out for model in ("left", "days")]
    assert forecasts[0] == forecasts[1]


def test_what_is_read_later_on_is_treated_as_in_training(tmp_path):
    (tmp_path / "sums.csv").write_text(HEADER + "".join(WITH_SUMS[:-1]))
    (tmp_path / "days.csv").write_text(HEADER + "".join(ROWS))
    for irregular in ("ignore", "elapsed"):
        for undated in ("refuse", "drop"):
            run("train", "days.csv", "--undated", undated, "--irregular", irregular, *QUICK, "--force",
                "-o", f"{undated}.safetensors", cwd=tmp_path)  # fmt: skip
        expected = run("predict", "drop.safetensors", "days.csv", cwd=tmp_path).out
        note = 'note: 2 rows without a readable date left out; the first: sums.csv:33:1: column "day": "Total" is no date\n'
        for options in (["drop.safetensors"], ["refuse.safetensors", "--undated", "drop"]):
            result = run("predict", options[0], "sums.csv", *options[1:], cwd=tmp_path)
            assert result.out == expected and note in result.err
            scored = run("evaluate", options[0], "sums.csv", *options[1:], cwd=tmp_path)
            assert scored.out == run("evaluate", options[0], "days.csv", cwd=tmp_path).out and note in scored.err
        for options in (["refuse.safetensors"], ["drop.safetensors", "--undated", "refuse"]):
            for verb in ("predict", "evaluate"):
                refuses(verb, options[0], "sums.csv", *options[1:], cwd=tmp_path, status=1, verb=verb,
                        message='sums.csv:33:1: column "day": "Total" is no date in the form of training; --undated drop '
                                "leaves such rows out")  # fmt: skip
        streamed = run("stream", "drop.safetensors", stdin=HEADER + "".join(WITH_SUMS[:-1]), cwd=tmp_path)
        assert len(streamed.out.splitlines()) == 1 + len(ROWS)
        assert 'note: -:33:1: column "day": "Total" is no date; left out\n' in streamed.err


def test_rows_from_new_to_old_are_refused(tmp_path):
    (tmp_path / "days.csv").write_text(HEADER + "".join(ROWS))
    (tmp_path / "down.csv").write_text(HEADER + "".join(reversed(ROWS)))
    (tmp_path / "parts.csv").write_text(HEADER + "".join([*ROWS[60:], *ROWS[:60]]))
    run("train", "days.csv", *QUICK, "-o", "m.safetensors", cwd=tmp_path)
    said = 'the dates of column "day" are descending, and a series is read from old to new: sort the rows by it'
    refuses("train", "down.csv", cwd=tmp_path, status=1, verb="train", message=f"down.csv: {said}")
    for verb, *more in (("predict", "--last"), ("evaluate",), ("predict", "--long")):
        result = run(verb, "m.safetensors", "down.csv", *more, expect=1, cwd=tmp_path)
        assert result.err == f"penstock {verb}: down.csv:5: {said}\n"
    # Rows that go back now and then were read, and are.
    run("predict", "m.safetensors", "parts.csv", cwd=tmp_path)


def test_rows_at_another_step_than_was_learnt_are_refused(tmp_path):
    start = datetime.datetime(2023, 1, 1)
    # The second model reads the day of the week from the dates, the first one only remembers how far they are apart.
    for name, period in (("days", 13), ("week", 7)):
        rows = [f"{start + datetime.timedelta(days=i)},{10 + math.sin(2 * math.pi * i / period):.4f}\n" for i in range(140)]
        (tmp_path / f"{name}.csv").write_text(HEADER + "".join(rows))
        run("train", f"{name}.csv", *QUICK, "-o", f"{name}.safetensors", cwd=tmp_path)
    gaps = [row for i, row in enumerate(rows) if i % 5 and i not in range(60, 90)]
    (tmp_path / "gaps.csv").write_text(HEADER + "".join(gaps))
    hours = HEADER + "".join(f"{start + datetime.timedelta(hours=i)},{10 + math.sin(i / 2):.4f}\n" for i in range(60))
    weeks = HEADER + "".join(f"{start + datetime.timedelta(weeks=i)},{10 + math.sin(i / 2):.4f}\n" for i in range(60))
    (tmp_path / "hours.csv").write_text(hours)
    (tmp_path / "weeks.csv").write_text(weeks)
    hourly = ("rows are an hour apart, and the model learnt rows a day apart: give it rows a day apart, such as means or "
              "sums of these, or train a model on rows an hour apart")  # fmt: skip
    weekly = "rows are a week apart, and the model learnt rows a day apart: train a model on rows a week apart"
    for model in ("days.safetensors", "week.safetensors"):
        for verb, *more in (("predict", "--last"), ("predict",), ("evaluate",), ("report", "--data")):
            for file, said in (("hours.csv", hourly), ("weeks.csv", weekly)):
                result = run(verb, model, *more, file, expect=1, cwd=tmp_path)
                assert result.err.endswith(f'penstock {verb}: {file}:7: by the dates of column "day" {said}\n'), result.err
            run(verb, model, *more, "days.csv", cwd=tmp_path)
        assert f'-:7: by the dates of column "day" {hourly}' in run("stream", model, stdin=hours, cwd=tmp_path, expect=1).err
        run("predict", model, "gaps.csv", cwd=tmp_path)
    down = HEADER + "".join(reversed(rows))
    assert "are descending" in run("stream", "week.safetensors", stdin=down, cwd=tmp_path, expect=1).err


def test_a_sequence_that_comes_back(tmp_path):
    rows = [f"s{i},{'up' if i % 2 else 'down'},{(1 if i % 2 else -1) * t + i / 7:.2f}\n" for t in range(10) for i in range(40)]
    header = "sequence,label,x\n"
    (tmp_path / "by_time.csv").write_text(header + "".join(rows))
    (tmp_path / "sorted.csv").write_text(header + "".join(sorted(rows, key=lambda row: int(row[1 : row.index(",")]))))
    message = ('by_time.csv:42:1: sequence "s0" appears again after others: the rows of a sequence must follow each other. '
               'Sort the rows by column "sequence", or give different sequences different names')  # fmt: skip
    refuses("train", "by_time.csv", *QUICK[:-2], cwd=tmp_path, status=1, verb="train", message=message)
    run("train", "sorted.csv", *TINY, "--steps", 3, cwd=tmp_path)
    assert len(run("predict", "model.safetensors", "sorted.csv", cwd=tmp_path).out.splitlines()) == 41
    for verb in ("predict", "evaluate"):
        refuses(verb, "model.safetensors", "by_time.csv", cwd=tmp_path, status=1, verb=verb, message=message)
    streamed = run("stream", "model.safetensors", stdin=header + "".join(rows), cwd=tmp_path)
    assert streamed.err.count("appears again after others") == 1 and len(streamed.out.splitlines()) == 401


def test_counters_are_not_forecast(tmp_path):
    lines = [f"{i},{10 + math.sin(i / 2):.4f},{math.cos(i / 3):.4f}\n" for i in range(300)]
    (tmp_path / "x.csv").write_text("time,level,flow\n" + "".join(lines))
    result = run("train", "x.csv", *QUICK, cwd=tmp_path)
    assert "predicts level, flow, 1 row ahead" in result.err
    assert "read   2 columns read, 1 left out: time (an index: 1 more in each row)\n" in result.err
    named = run("train", "x.csv", "--columns", "time,level", *QUICK, "-o", "named.safetensors", cwd=tmp_path)
    assert "predicts time, level, 1 row ahead" in named.err


def test_a_category_that_is_known_is_named_once(tmp_path):
    names = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
    (tmp_path / "x.csv").write_text("day,x\n" + "".join(f"{names[i % 7]},{i * i % 17}\n" for i in range(120)))
    run("train", "x.csv", "--known", "day", "--horizon", 2, *QUICK, cwd=tmp_path)
    said = run("predict", "model.safetensors", "x.csv", "--last", cwd=tmp_path, expect=1).err
    assert "add 2 more rows with the known values of day" in said


def test_the_hour_that_a_clock_skips_is_none(tmp_path):
    start, change = datetime.datetime(2023, 3, 20), datetime.datetime(2023, 3, 26, 2)
    shown = [start + datetime.timedelta(hours=i) for i in range(300)]
    shown = [time if time < change else time + datetime.timedelta(hours=1) for time in shown]
    rows = [f"{time:%Y-%m-%d %H:%M},{10 + math.sin(i / 4):.4f}\n" for i, time in enumerate(shown)]
    (tmp_path / "x.csv").write_text("time,x\n" + "".join(rows))
    result = run("train", "x.csv", *QUICK, cwd=tmp_path)
    assert "time: a row an hour;" in result.err and "missing" not in result.err
