"""Files as people have them: what was guessed is said, and can be said otherwise."""

import gzip
import math

import pytest

from program import TINY, run

QUICK = [*TINY, "--steps", 2, "--length", 8]


def german(value, digits=2):
    return f"{value:,.{digits}f}".translate(str.maketrans(",.", ".,"))


def rows(count=60):
    for i in range(count):
        yield f"{1 + i % 28:02d}.{1 + i // 28:02d}.2020", 1000 + 200 * math.sin(i / 5), i % 3 == 0


GERMAN = "\ufeffDatum;\"Menge, brutto\";offen;Ort\r\n" + "".join(
    f"{day};{german(value)};{str(flag).lower()};Köln\r\n" for day, value, flag in rows()
)
PANDAS = ",date,x\n" + "".join(f"{i},2020-01-{1 + i % 28:02d},{value}\n" for i, (_, value, _) in enumerate(rows()))
UNSORTED = (
    "date: not read, as 2 rows are earlier than the one before, first in line 30; if the file holds many series, the option 'group' tells "
    "them apart"
)
TS = "@problemName T\n@timeStamps false\n@data\n" + "".join(
    ",".join(f"{math.sin(t * (1 + i % 2)):.3f}" for t in range(9)) + (":up\n" if i % 2 else ":down\n") for i in range(20)
)


@pytest.mark.parametrize(
    "name, content, more, columns, said",
    [
        ("de.csv", GERMAN, ["--calendar", "none"], ["Menge, brutto", "offen"],
         ["separator ';', decimal ','", "2 columns read, 2 left out: Datum (dates), Ort (text)"]),
        ("de.csv", GERMAN, [], ["Menge, brutto", "offen", "Datum (week_sine)", "Datum (week_cosine)", "Menge, brutto (missing)", "offen (missing)"],
         ["separator ';', decimal ','", "2 columns read, 1 left out: Ort (text)",
          "Datum: a row a day, 2 of them not: the steps between dates differ, a day to 4 days; "
          "4 missing rows put in without values; the day of the week as input",
          "8 missing values carried on from the last one, and never asked for"]),
        ("pandas.csv", PANDAS, [], ["x"], ["1 column read, 2 left out: column1 (no name), date (dates)", UNSORTED]),
        ("pandas.csv", PANDAS, ["--columns", "column1,x"], ["column1", "x"], [UNSORTED]),
        ("bare.csv", "".join(f"{v:.2f}|{i % 5}\n" for i, (_, v, _) in enumerate(rows())), [], ["column1", "column2"],
         ["separator '|', decimal '.'; no header: the columns are called column1, column2, ..."]),
        ("us.csv", "a\tb\n" + "".join(f"1,{100 + i}\t{i % 4}\n" for i in range(40)), [], ["a", "b"],
         ["separator tab, decimal '.'"]),
        ("us.csv", "a\tb\n" + "".join(f"1,{100 + i}\t{i % 4}\n" for i in range(40)), ["--decimal", "comma"], ["a", "b"],
         ["separator tab, decimal ','"]),
    ],
)  # fmt: skip
def test_what_is_found_is_said(tmp_path, name, content, more, columns, said):
    (tmp_path / name).write_bytes(content.encode())
    result = run("train", name, *more, *QUICK, cwd=tmp_path)
    assert [line[7:] for line in result.err.splitlines() if line.startswith("read   ")] == said
    shown = run("info", "model.safetensors", "--json", cwd=tmp_path).json()
    assert shown["inputs"] == columns


def test_forecasts_read_what_training_read(tmp_path):
    (tmp_path / "de.csv").write_bytes(GERMAN.encode())
    run("train", "de.csv", "--calendar", "none", *QUICK, cwd=tmp_path)
    whole = run("predict", "model.safetensors", "de.csv", cwd=tmp_path).out
    (tmp_path / "de.csv.gz").write_bytes(gzip.compress(GERMAN.encode(), mtime=0))
    assert run("predict", "model.safetensors", "de.csv.gz", cwd=tmp_path).out == whole
    english = '"Menge, brutto",offen\n' + "".join(f"{value:.2f},{int(flag)}\n" for _, value, flag in rows())
    assert run("predict", "model.safetensors", "-", stdin=english, cwd=tmp_path).out == whole
    assert run("stream", "model.safetensors", stdin=GERMAN, cwd=tmp_path).out == whole


def test_ts_files_from_training_to_labels(tmp_path):
    (tmp_path / "T_TRAIN.ts").write_text(TS)
    (tmp_path / "T_TEST.ts").write_text(TS)
    run("train", "T_TRAIN.ts", *TINY, "--steps", 5, cwd=tmp_path)
    answers = run("predict", "model.safetensors", "T_TEST.ts", cwd=tmp_path).out.splitlines()
    assert len(answers) == 1 + 20 and answers[1].startswith("1,")


def test_folders_and_several_files(tmp_path):
    (tmp_path / "books" / "more").mkdir(parents=True)
    (tmp_path / "books" / "b.txt").write_text("second " * 50)
    (tmp_path / "books" / "more" / "c.txt").write_text("third " * 50)
    (tmp_path / "books" / ".hidden").write_bytes(bytes(9))
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"first " * 50, mtime=0))
    result = run("train", "a.txt.gz", "books", *QUICK, cwd=tmp_path)
    assert result.err.startswith("data   a.txt.gz and 1 more: 950 bytes of text, the last 5 % held out\n")
    assert "read   3 files, one behind the other\n" in result.err


def test_missing_values_are_remembered(tmp_path):
    (tmp_path / "gaps.csv").write_text("x,y\n" + "".join(f"{i % 5 if i % 9 else 'NA'},{i % 4}\n" for i in range(60)))
    result = run("train", "gaps.csv", "--missing", "interpolate", *QUICK, cwd=tmp_path)
    assert "read   7 missing values interpolated\n" in result.err
    shown = run("predict", "model.safetensors", "gaps.csv", cwd=tmp_path)
    assert "note: 7 values were replaced by the last of their column; the first: gaps.csv:2:1: column \"x\"" in shown.err
    run("predict", "model.safetensors", "gaps.csv", "--missing", "refuse", cwd=tmp_path, expect=1)
