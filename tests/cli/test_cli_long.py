"""predict --long: a table with a row for each date and column; -o FILE: whole or not there."""

import csv
import datetime
import io
import json
import math
import random

import pytest

from program import TINY, refuses, run
from test_cli_files import joined, split

QUICK = [*TINY, "--steps", 2, "--length", 16]


def day(number, start=datetime.date(2023, 1, 1)):
    return (start + datetime.timedelta(number)).isoformat()


def sales(days, stores=("Aachen", "Bonn"), date=day):
    noise = random.Random(3)
    rows = [(date(i), store, 10 * (k + 1) + math.sin(i / 2) + noise.gauss(0, 0.1))
            for i in range(days) for k, store in enumerate(stores)]  # fmt: skip
    return "date,store,sales\n" + "".join(f"{date},{store},{value:.3f}\n" for date, store, value in rows)


def table(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    (folder / "sales.csv").write_text(sales(80))
    run("train", "sales.csv", "--group", "store", "--columns", "sales", "--horizon", 3, *QUICK, cwd=folder)
    return folder


def test_a_row_for_each_date_group_and_column(stores):
    command = ["predict", "model.safetensors", "sales.csv", "--last", "--quantiles", "0.1,0.9"]
    wide = table(run(*command, cwd=stores).out)
    out = run(*command, "--long", cwd=stores).out
    assert out.splitlines()[0] == "date,store,column,forecast,q0.1,q0.9"
    rows = table(out)
    assert [(row["date"], row["store"], row["column"]) for row in rows] == [
        (day(80 + step), store, "sales") for store in ("Aachen", "Bonn") for step in range(3)
    ]
    for series, of in enumerate(wide):
        for step in range(3):
            row = rows[3 * series + step]
            assert row["forecast"] == of[f"sales+{step + 1}"]
            assert row["q0.1"] == of[f"sales+{step + 1} q0.1"] and row["q0.9"] == of[f"sales+{step + 1} q0.9"]


def test_forecasts_from_every_row_name_their_origin(stores):
    rows = table(run("predict", "model.safetensors", "sales.csv", "--long", cwd=stores).out)
    wide = table(run("predict", "model.safetensors", "sales.csv", cwd=stores).out)
    assert list(rows[0]) == ["origin", "date", "store", "column", "forecast"]
    assert len(rows) == 2 * 80 * 3
    assert [(row["origin"], row["date"]) for row in rows[3 * 79 : 3 * 80]] == [(day(79), day(80 + i)) for i in range(3)]
    assert (rows[0]["origin"], rows[0]["date"], rows[2]["date"]) == (day(0), day(1), day(3))
    assert [row["forecast"] for row in rows[:3]] == [wide[0][f"sales+{i}"] for i in (1, 2, 3)]


def test_as_json_and_with_kept_columns(stores):
    command = ["predict", "model.safetensors", "sales.csv", "--last", "--long", "--keep", "sales", "--quantiles", "0.5"]
    lines = run(*command, "--json", cwd=stores).json_lines()
    assert list(lines[0]) == ["columns", "date", "store", "column", "forecast", "quantiles"]
    assert lines[0]["date"] == day(80) and list(lines[0]["quantiles"]) == ["0.5"]
    rows = table(run(*command, cwd=stores).out)
    assert list(rows[0])[:2] == ["sales", "date"] and rows[0]["sales"] == lines[0]["columns"]["sales"]
    assert float(rows[0]["forecast"]) == pytest.approx(lines[0]["forecast"], rel=1e-6)


def test_several_columns_without_dates_count_rows(models):
    rows = table(run("predict", "series.safetensors", "series.csv", "--last", "--long", cwd=models).out)
    assert [(row["row"], row["column"]) for row in rows] == [("301", "level"), ("301", "flow"), ("302", "level"), ("302", "flow")]
    wide = table(run("predict", "series.safetensors", "series.csv", "--last", cwd=models).out)[0]
    assert [row["forecast"] for row in rows] == [wide[name] for name in ("level+1", "flow+1", "level+2", "flow+2")]


def month(number):
    return f"{2010 + number // 12}-{number % 12 + 1:02}-01"


def month_end(number):
    return (datetime.date.fromisoformat(month(number + 1)) - datetime.timedelta(1)).isoformat()


def working_day(number):
    return day(number + 2 * (number // 5), datetime.date(2023, 1, 2))


def hour(number):
    return (datetime.datetime(2023, 3, 1) + datetime.timedelta(hours=number)).isoformat(" ")


def half_second(number):
    return f"2023-03-01 00:{number // 120:02}:{number // 2 % 60:02}.{5 * (number % 2)}"


@pytest.mark.parametrize(
    "date, written",
    [
        (day, day),
        (month, month),
        (month_end, month_end),
        (working_day, working_day),
        (hour, hour),
        (lambda i: day(7 * i), lambda i: day(7 * i)),
        (lambda i: str(1900 + i), lambda i: str(1900 + i)),
        (lambda i: f"{2000 + i // 4}Q{i % 4 + 1}", lambda i: month(3 * i - 120)),
        (half_second, lambda i: half_second(i) + "00000"),
    ],
    ids=["day", "month", "month end", "working day", "hour", "week", "year", "quarter", "half a second"],
)
@pytest.mark.parametrize("rows", [90, 3, 1])
def test_dates_go_on_as_in_training(tmp_path, date, written, rows):
    name = "year" if date(0) == "1900" else "date"
    text = f"{name},x\n" + "".join(f"{date(i)},{math.sin(i / 3):.4f}\n" for i in range(90))
    (tmp_path / "all.csv").write_text(text)
    (tmp_path / "some.csv").write_text("".join(text.splitlines(keepends=True)[: 1 + rows]))
    run("train", "all.csv", "--columns", "x", "--horizon", 4, *QUICK, cwd=tmp_path)
    found = table(run("predict", "model.safetensors", "some.csv", "--last", "--long", cwd=tmp_path).out)
    assert [row[name] for row in found] == [written(rows + i) for i in range(4)]


def test_a_model_that_reads_dates_writes_them(tmp_path):
    text = "month,x\n" + "".join(f"{month(i)[:7]},{math.sin(i * math.pi / 6) + i / 100:.4f}\n" for i in range(90))
    (tmp_path / "x.csv").write_text(text)
    said = run("train", "x.csv", "--columns", "x", "--calendar", "year", "--horizon", 2, *QUICK, cwd=tmp_path).err
    assert "the day of the year as input" in said
    (tmp_path / "one.csv").write_text("".join(text.splitlines(keepends=True)[:2]))
    expected = {"x.csv": [month(90), month(91)], "one.csv": [month(1), month(2)]}
    for name, dates in expected.items():
        rows = table(run("predict", "model.safetensors", name, "--last", "--long", cwd=tmp_path).out)
        assert [row["month"] for row in rows] == dates
    # A file from before models kept how far their rows are apart.
    header, data = split((tmp_path / "model.safetensors").read_bytes())
    description = json.loads(header["__metadata__"]["penstock"])
    del description["data"]["row_dates"]
    header["__metadata__"]["penstock"] = json.dumps(description, separators=(",", ":"))
    (tmp_path / "old.safetensors").write_bytes(joined(header, data))
    rows = table(run("predict", "old.safetensors", "x.csv", "--last", "--long", cwd=tmp_path).out)
    assert [row["month"] for row in rows] == expected["x.csv"]
    said = run("predict", "old.safetensors", "one.csv", "--last", "--long", cwd=tmp_path, expect=1).err
    assert said == "penstock predict: one.csv: --long needs two rows or more, of which the first and the last have a date in column 'month'\n"


def test_dates_of_rows_to_come_are_those_of_the_file(tmp_path):
    def text(rows, to_come):
        lines = [f"{day(i)},{i % 5},{i % 2}\n" for i in range(rows)] + [f"{day(rows + 10 + i)},,{i % 2}\n" for i in range(to_come)]
        return "date,x,open\n" + "".join(lines)

    (tmp_path / "x.csv").write_text(text(80, 0))
    run("train", "x.csv", "--columns", "x", "--known", "open", "--irregular", "ignore", "--horizon", 2, *QUICK, cwd=tmp_path)
    (tmp_path / "plan.csv").write_text(text(80, 2))
    rows = table(run("predict", "model.safetensors", "plan.csv", "--last", "--long", cwd=tmp_path).out)
    assert [row["date"] for row in rows] == [day(90), day(91)]


def test_what_has_no_dates_is_refused(stores, models):
    (stores / "bare.csv").write_text("store,sales\nBonn,3\nBonn,4\n")
    said = run("predict", "model.safetensors", "bare.csv", "--long", cwd=stores, expect=1).err
    assert said == "penstock predict: bare.csv: the header has no column 'date', from which --long takes the dates of the forecasts\n"
    message = "--long is for forecast models, and text.safetensors is a language model"
    refuses("predict", "text.safetensors", "text.txt", "--long", message=message, status=2, verb="predict", cwd=models)


def test_a_file_is_written_whole_and_nothing_is_replaced_unasked(stores):
    command = ["predict", "model.safetensors", "sales.csv", "--last", "--long"]
    told = run(*command, cwd=stores).out
    said = run(*command, "-o", "next.csv", cwd=stores)
    assert (stores / "next.csv").read_text() == told and said.out.startswith("saved  next.csv (")
    assert run(*command, "-o", "-", cwd=stores).out == told
    message = "--output next.csv is there already, no Penstock model; --force replaces it, -o FILE writes another one"
    refuses(*command, "-o", "next.csv", message=message, status=2, verb="predict", cwd=stores)
    (stores / "next.csv").write_text("old")
    run(*command, "-o", "next.csv", "--force", cwd=stores)
    assert (stores / "next.csv").read_text() == told
    for name, what in (("sales.csv", "DATA"), ("model.safetensors", "MODEL")):
        message = f"--output {name} would overwrite {what}"
        refuses(*command, "-o", name, "--force", message=message, status=2, verb="predict", cwd=stores)
    before = sorted(stores.iterdir())
    (stores / "short.csv").write_text("date,store,sales\n2023-01-01,Bonn,3\n2023-01-02,Bonn,x\n")
    run("predict", "model.safetensors", "short.csv", "-o", "half.csv", cwd=stores, expect=1)
    assert sorted(stores.iterdir()) == sorted([*before, stores / "short.csv"]), "no half a file, no temporary one"
