"""Rows that go back in time or stand twice, dates that name time zones, and tables in which nothing says when a row was."""

import csv
import datetime
import io
import json
import math
import random

import pytest

from program import TINY, run

QUICK = [*TINY, "--steps", 2, "--length", 16]
START = datetime.datetime(2023, 1, 1)
HEADER = "day,place,x\n"
ROWS = [f"{(START + datetime.timedelta(days=i)).date()},{'ab'[i % 2]},{10 + math.sin(i / 3):.4f}\n" for i in range(140)]


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    folder = tmp_path_factory.mktemp("days")
    (folder / "days.csv").write_text(HEADER + "".join(ROWS))
    for cell, calendar in (("dates", "week"), ("steps", "auto")):  # read as an input, or only remembered
        run("train", "days.csv", "--calendar", calendar, *QUICK, "-o", f"{cell}.safetensors", cwd=folder)
    return folder


def disorder():
    shuffled = list(ROWS)
    random.Random(1).shuffle(shuffled)
    earlier = sum(after[:10] < before[:10] for before, after in zip(shuffled, shuffled[1:]))
    sort = "earlier than the one before: sort the rows from old to new; the first: "
    yield "shuffled", shuffled, f"note: {earlier} rows are {sort}"
    yield "halves", ROWS[70:] + ROWS[:70], f"note: 1 row is {sort}"
    yield "tail", ROWS + ROWS[-40:], f"note: 1 row is {sort}"
    twice = [row for row in ROWS for _ in "12"]
    yield "twice", twice, "note: 140 rows have the date of the one before: leave out what is there twice; the first: "


@pytest.mark.parametrize("name, rows, note", list(disorder()), ids=["shuffled", "halves", "tail", "twice"])
def test_rows_out_of_order_are_named(days, name, rows, note):
    (days / f"{name}.csv").write_text(HEADER + "".join(rows))
    for model in ("dates.safetensors", "steps.safetensors"):
        for verb, *more in (("predict", "--last"), ("predict",), ("predict", "--last", "--long"), ("evaluate",)):
            sound = run(verb, model, "days.csv", *more, cwd=days)
            assert "note" not in sound.err
            assert note in run(verb, model, f"{name}.csv", *more, cwd=days).err
        streamed = run("stream", model, stdin=HEADER + "".join(rows), cwd=days)
        kind = "the date of the row before, too" if name == "twice" else "earlier than the row before"
        assert streamed.err.count(f"; {kind}\n") == 1
        assert (note in streamed.err) == (name in ("shuffled", "twice"))  # of one row all was said


def test_evaluate_names_unknown_categories(days):
    (days / "places.csv").write_text(HEADER + "".join(ROWS).replace(",b,", ",c,"))
    note = ('note: 70 fields have a category that is not in the training part and are read as no category; the first: '
            'places.csv:3:12: column "place": "c"\n')  # fmt: skip
    for verb in ("predict", "evaluate"):
        assert note in run(verb, "dates.safetensors", "places.csv", cwd=days).err


def test_evaluate_names_unknown_categories_of_labelled_sequences(tmp_path):
    rows = [f"s{i},{'up' if i % 2 else 'down'},{'ab'[t % 2]},{(1 if i % 2 else -1) * t}\n" for i in range(40) for t in range(6)]
    header = "sequence,label,place,x\n"
    (tmp_path / "a.csv").write_text(header + "".join(rows))
    (tmp_path / "c.csv").write_text(header + "".join(rows).replace(",b,", ",c,"))
    run("train", "a.csv", *TINY, "--steps", 3, cwd=tmp_path)
    for verb in ("predict", "evaluate"):
        assert "note" not in run(verb, "model.safetensors", "a.csv", cwd=tmp_path).err
        assert "note: 120 fields have a category" in run(verb, "model.safetensors", "c.csv", cwd=tmp_path).err


def hours(zone, count=24 * 30):
    """Hours of local time. Where `zone` sets its clocks back, one hour comes twice."""
    times = [START + datetime.timedelta(hours=i) for i in range(count)]
    return "time,x\n" + "".join(f"{zone(time)},{10 + math.sin(2 * math.pi * time.hour / 24):.4f}\n" for time in times)


def test_dates_of_files_with_time_zones_are_marked(tmp_path):
    change = START + datetime.timedelta(days=20)

    def local(time):
        offset = 2 if time < change else 1
        return f"{time + datetime.timedelta(hours=offset):%Y-%m-%dT%H:%M:%S}+0{offset}:00"

    (tmp_path / "zones.csv").write_text(hours(local))
    (tmp_path / "utc.csv").write_text(hours(lambda time: f"{time:%Y-%m-%d %H:%M}Z"))
    (tmp_path / "plain.csv").write_text(hours(lambda time: f"{time:%Y-%m-%d %H:%M}"))
    for name, said in (
        ("zones", ", in UTC (where clocks change, habits of local time move by an hour; local times without a time zone keep"),
        ("utc", ", in UTC; "),
        ("plain", "time: a row an hour; "),
    ):
        trained = run("train", f"{name}.csv", "--horizon", 2, *QUICK, "-o", f"{name}.safetensors", cwd=tmp_path)
        assert said in trained.err
        out = run("predict", f"{name}.safetensors", f"{name}.csv", "--last", "--long", cwd=tmp_path).out
        mark = "" if name == "plain" else "Z"
        dates = [row["time"] for row in csv.DictReader(io.StringIO(out))]
        assert dates == [f"2023-01-31 00:00:00{mark}", f"2023-01-31 01:00:00{mark}"]
        # The dates that were written can be read again.
        with (tmp_path / f"{name}.csv").open("a") as file:
            file.writelines(f"{date},10\n" for date in dates)
        again = run("predict", f"{name}.safetensors", f"{name}.csv", "--last", "--long", cwd=tmp_path)
        assert again.out.splitlines()[1].startswith(f"2023-01-31 02:00:00{mark},") and not again.err


def flowers(rows=150, index=False):
    noise = random.Random(4)
    header = "Id,sepal,petal,species\n" if index else "sepal,petal,species\n"
    return header + "".join(
        (f"{i + 1}," if index else "") + f"{noise.uniform(4, 8):.1f},{noise.uniform(1, 7):.1f},{'abc'[i * 3 // rows]}\n"
        for i in range(rows)
    )


NO_SERIES = ("read   no column says when a row was: each row is read as the step behind the row before; if they are a "
             "series, --as series says so; if they are sequences with labels, --sequence-column and --label-column name both; "
             "other rows need a model that knows no order\n")  # fmt: skip


@pytest.mark.parametrize("table", [
    flowers(), flowers(index=True), flowers().replace("species", "timezone"),
    flowers().replace(",", ";"),
])  # fmt: skip
def test_a_table_that_shows_no_order_is_named(tmp_path, table):
    (tmp_path / "flowers.csv").write_text(table)
    assert NO_SERIES in run("train", "flowers.csv", *QUICK, cwd=tmp_path).err
    assert NO_SERIES.removeprefix("read   ").strip() in run("info", "flowers.csv", cwd=tmp_path).out
    asked = run("train", "flowers.csv", "--as", "series", "--force", *QUICK, cwd=tmp_path).err
    assert "no column says" not in asked


@pytest.mark.parametrize("header, first", [("t,x", "{i}"), ("step,x", "{i}"), ("date,x", "2023-01-{i:02d}")])
def test_a_series_is_not_doubted(tmp_path, header, first):
    rows = "".join(f"{first.format(i=i)},{math.sin(i):.3f}\n" for i in range(1, 31))
    (tmp_path / "series.csv").write_text(f"{header}\n{rows}")
    assert "no column says" not in run("train", "series.csv", *QUICK, cwd=tmp_path).err


def market(days=60):
    """Hours from nine to five on working days, the last row on a Thursday at five."""
    times = [datetime.datetime(2023, 1, 2) + datetime.timedelta(days=i, hours=h) for i in range(days) for h in range(9, 18)]
    return [(time, f"{50 + math.sin(i / 7):.3f}") for i, time in enumerate(times) if time.weekday() < 5]


def test_forecasts_are_dated_when_there_are_rows(tmp_path):
    rows = market()
    (tmp_path / "market.csv").write_text("time,price\n" + "".join(f"{time},{price}\n" for time, price in rows))
    late = rows[-1][0] + datetime.timedelta(minutes=30)
    (tmp_path / "late.csv").write_text((tmp_path / "market.csv").read_text() + f"{late},50\n")
    run("train", "market.csv", "--horizon", 11, *QUICK, cwd=tmp_path)

    def dates(file):
        out = run("predict", "model.safetensors", file, "--last", "--long", cwd=tmp_path).out
        return [row["time"] for row in csv.DictReader(io.StringIO(out))]

    friday = [f"2023-03-03 {hour:02}:00:00" for hour in range(9, 18)]
    assert dates("market.csv") == [*friday, "2023-03-06 09:00:00", "2023-03-06 10:00:00"]
    # A last row at a time of its own: dates are counted from it.
    assert dates("late.csv")[0] == "2023-03-02 18:30:00"


def test_parts_of_dates_are_not_forecast(tmp_path):
    rows = [f"{time.date()},{time.month},{time.day},{time.hour},{price}\n" for time, price in market()]
    (tmp_path / "parts.csv").write_text("date,month,day,hour,price\n" + "".join(rows))
    said = run("info", "parts.csv", cwd=tmp_path).out
    assert " predicts price, 1 row ahead" in said
    assert "read         month, day, hour as input alone: parts of dates are not forecast\n" in said
    assert "write the date and hour into one column, as in 2024-03-01 12:30\n" in said and "--group" not in said
    # Numbers that no date has, and what is asked for, are forecast.
    (tmp_path / "level.csv").write_text("month,x\n" + "".join(f"{i % 17},{math.sin(i):.3f}\n" for i in range(60)))
    assert "predicts month, x, " in run("info", "level.csv", cwd=tmp_path).out
    asked = run("train", "parts.csv", "--target-columns", "hour", *QUICK, cwd=tmp_path)
    assert "; predicts hour, 1 row ahead" in asked.err


def test_a_line_of_units_is_named(tmp_path):
    rows = "".join(f"{i},{20 + math.sin(i / 3):.3f}\n" for i in range(60))
    (tmp_path / "units.csv").write_text("time,temp\ns,degC\n" + rows)
    for verb in ("info", "train"):
        err = run(verb, "units.csv", cwd=tmp_path, expect=1).err
        assert err == (f'penstock {verb}: units.csv:2:1: column "time": "s" is no number, unlike "0" below it: if this is a '
                       "line of units, leave it out\n")  # fmt: skip


def test_few_texts_with_labels_are_texts(tmp_path):
    words = ["red", "blue", "green", "yellow", "black", "white", "pink", "grey"]
    rows = [json.dumps({"text": words[i % 8], "label": "ab"[i % 8 < 4]}) for i in range(120)]
    (tmp_path / "words.jsonl").write_text("\n".join(rows) + "\n")
    assert " texts in 2 classes" in run("info", "words.jsonl", cwd=tmp_path).out


def test_a_label_that_training_does_not_see_is_named(tmp_path):
    def labelled(lone):
        label = lambda i: "lone" if i == lone else "ab"[i % 2]  # noqa: E731
        rows = [f"s{i},{label(i)},{math.sin(t + i):.3f}\n" for i in range(12) for t in range(5)]
        (tmp_path / "s.csv").write_text("sequence,label,x\n" + "".join(rows))
        said = run("info", "s.csv", cwd=tmp_path).out
        return "all sequences of a label are held out, so that training learns nothing of it: lone" in said

    assert sum(labelled(i) for i in range(12)) == 2  # as many as are held out of twelve


def test_long_sequences_come_in_small_batches(tmp_path):
    def labelled(steps):
        rows = [f"s{i},{'ab'[i % 2]},{math.sin(t + i):.3f}\n" for i in range(6) for t in range(steps if i == 3 else 5)]
        (tmp_path / "s.csv").write_text("sequence,label,x\n" + "".join(rows))

    labelled(40_000)
    err = run("train", "s.csv", *TINY[:4], "--threads", 1, "--steps", 1, "--no-filters", cwd=tmp_path).err
    assert "in batches of 3 sequences" in err
    command = ["train", "s.csv", "--batch", 64, "--steps", 1, "--no-filters", "--force"]
    refused = run(*command, cwd=tmp_path, memory=1 << 30, expect=1)
    assert " of memory on cpu: " in refused.err and "; --batch lowers that, and so do shorter sequences" in refused.err


def test_wide_tables_say_what_takes_long(tmp_path):
    noise = random.Random(2)
    rows = [",".join([str((START + datetime.timedelta(days=i)).date()), *(f"{noise.gauss(9, 1):.2f}" for _ in range(120))])
            for i in range(40)]  # fmt: skip
    (tmp_path / "wide.csv").write_text(",".join(["day", *(f"c{i}" for i in range(120))]) + "\n" + "\n".join(rows) + "\n")
    err = run("train", "wide.csv", *QUICK, "--threads", 2, cwd=tmp_path).err
    assert err.startswith("fit    choosing linear forecasts of 120 columns\n")
