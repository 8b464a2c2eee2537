"""Files as people have them: what was guessed is said, and can be said otherwise."""

import datetime
import gzip
import math
import struct
import subprocess
import time
import zlib

import pytest

from program import TINY, refuses, run, start

QUICK = [*TINY, "--steps", 2, "--length", 8]


def german(value, digits=2):
    return f"{value:,.{digits}f}".translate(str.maketrans(",.", ".,"))


def rows(count=60):
    for i in range(count):
        day = datetime.date(2020, 1 + i // 28, 1 + i % 28)
        yield f"{day:%d.%m.%Y}", 1000 + 200 * math.sin(i / 5), day.weekday() < 5


GERMAN = "\ufeffDatum;\"Menge, brutto\";offen;Ort\r\n" + "".join(
    f"{day};{german(value)};{str(flag).lower()};Köln\r\n" for day, value, flag in rows()
)
PANDAS = ",date,x\n" + "".join(f"{i},2020-01-{1 + i % 28:02d},{value}\n" for i, (_, value, _) in enumerate(rows()))
UNSORTED = (
    "date: not read, because 2 rows are earlier than the one before, first in line 30; sort the rows by it, or if the file holds many series, "
    "--group separates them"
)
UNDATED = (
    "no column says when a row was: each row is read as the step behind the row before; if they are a series, "
    "--as series says so; if they are sequences with labels, --sequence-column and --label-column name both; other rows "
    "need a model that knows no order"
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
          "Datum: a row a day, with 2 irregular steps, a day to 4 days; "
          "4 missing rows inserted as missing values; the day of the week as input",
          "8 missing values replaced by the last one, and left out of the loss and scores"]),
        ("pandas.csv", PANDAS, [], ["x"], ["1 column read, 2 left out: column1 (no name), date (dates)", UNSORTED]),
        ("pandas.csv", PANDAS, ["--columns", "column1,x"], ["column1", "x"], [UNSORTED]),
        ("bare.csv", "".join(f"{v:.2f}|{i % 5}\n" for i, (_, v, _) in enumerate(rows())), [], ["column1", "column2"],
         ["separator '|', decimal '.'; no header: the columns are called column1, column2, ...",
      UNDATED]),
        ("us.csv", "a\tb\n" + "".join(f"1,{100 + i * i % 47}\t{i % 4}\n" for i in range(40)), [], ["a", "b"],
         ["separator tab, decimal '.'", UNDATED]),
        ("us.csv", "a\tb\n" + "".join(f"1,{100 + i * i % 47}\t{i % 4}\n" for i in range(40)), ["--decimal", "comma"], ["a", "b"],
         ["separator tab, decimal ','", UNDATED]),
        ("numpy.txt", "# made in 1958\n# a b\n" + "".join(f"{i * i % 47:5}  {100 + i % 4}\n" for i in range(40)), [], ["a", "b"],
         ["a table, as its first lines show; --as text reads its bytes", "separator blank, decimal '.'", UNDATED]),
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


def test_lines_in_front_of_a_table_are_no_rows_wherever_it_is_read(tmp_path):
    values = [(i % 7 + i / 10, i % 5) for i in range(60)]

    def table(front, between):
        return f"{front}a{between}b\n" + "".join(f"{a:.1f}{between}{b}\n" for a, b in values)

    forms = {"plain.csv": table("", ","), "excel.csv": table("sep=;\n", ";"), "notes.csv": table("# by me\n#\n", ","),
             "numpy.dat": table("# ", "   ")}  # fmt: skip
    for name, content in forms.items():
        (tmp_path / name).write_text(content)
    run("train", "plain.csv", *QUICK, cwd=tmp_path)
    whole = run("predict", "model.safetensors", "plain.csv", cwd=tmp_path).out
    for name, content in forms.items():
        assert run("predict", "model.safetensors", name, cwd=tmp_path).out == whole, name
        assert run("stream", "model.safetensors", stdin=content, cwd=tmp_path).out == whole, name
    trained = run("train", "numpy.dat", *QUICK, "--force", cwd=tmp_path)
    assert "a table, as its first lines show" in trained.err
    assert run("predict", "model.safetensors", "numpy.dat", cwd=tmp_path).out == whole.replace(",", " ")


@pytest.mark.parametrize("encoding, said", [
    ("cp1252", ["as text in Windows-1252, because it is not UTF-8"]), ("utf-16", []), ("utf-16-be", [])])
def test_what_spreadsheets_write_in_other_encodings(tmp_path, encoding, said):
    german = GERMAN.removeprefix("\ufeff").replace("brutto", "Größe €")
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    (tmp_path / "utf8.csv").write_bytes(german.encode())
    (tmp_path / "other.csv").write_bytes((mark + german).encode(encoding))
    run("train", "utf8.csv", *QUICK, "-o", "expected", cwd=tmp_path)
    result = run("train", "other.csv", *QUICK, cwd=tmp_path)
    first = [line[7:] for line in result.err.splitlines() if line.startswith("read   ")]
    assert first[: len(said)] == said and first[len(said)] == "separator ';', decimal ','"
    for model in ("expected", "model.safetensors"):
        answers = run("predict", model, "utf8.csv", "--keep", "Ort", cwd=tmp_path).out
        assert answers.splitlines()[1].startswith("Köln;")
        assert run("predict", model, "other.csv", "--keep", "Ort", cwd=tmp_path).out == answers
        assert run("stream", model, "--keep", "Ort", stdin=(tmp_path / "other.csv").read_bytes(), cwd=tmp_path).out == answers


def test_what_is_said_of_data_names_the_options_of_train(tmp_path):
    (tmp_path / "gaps.csv").write_text("x\n1\n\"\"\n3\n")
    refuses("info", "gaps.csv", cwd=tmp_path, status=1, verb="info",
            message='gaps.csv:3:1: column "x": the value is missing; --missing (carry, interpolate or mask) accepts such values')
    (tmp_path / "shops.csv").write_text("day,x\n" + "".join(f"2024-01-{1 + i // 2:02d},{i % 5}\n" for i in range(50)))
    shown = run("info", "shops.csv", cwd=tmp_path).out
    assert "if the file holds many series, --group separates them\n" in shown


def test_numbers_that_stand_for_missing_values_are_warned_of(tmp_path):
    (tmp_path / "tank.csv").write_text("level\n" + "".join(f"{-999 if i % 30 == 8 else 5 + i % 7 / 10}\n" for i in range(120)))
    warning = ('read   warning: column "level": -999 in 4 of 120 rows, first in line 10 of tank.csv, is far from all other values: '
               "if it stands for a missing value, leave these cells empty, and --missing (carry, interpolate or mask) deals "
               "with them\n")  # fmt: skip
    assert warning in run("train", "tank.csv", *QUICK, cwd=tmp_path).err
    labelled = ["sequence,label,x\n", *(f"{i // 5},{i // 50},{9999 if i in (3, 70) else i * i % 13}\n" for i in range(100))]
    (tmp_path / "labelled.csv").write_text("".join(labelled))
    warning = 'read   warning: column "x": 9999 in 2 of 100 rows, first in line 5 of labelled.csv, is far'
    assert warning in run("train", "labelled.csv", *QUICK[:-2], "-o", "l.safetensors", cwd=tmp_path).err


def test_texts_in_utf16_are_learnt_as_utf8(tmp_path):
    text = "Über den Wolken 🎈\n" * 60
    (tmp_path / "a.txt").write_text(text, encoding="utf-16")
    (tmp_path / "b.txt").write_text(text, encoding="utf-8")
    for name in ("a.txt", "b.txt"):
        result = run("train", name, *QUICK, "-o", name[0], cwd=tmp_path)
        assert result.err.startswith(f"data   {name}: {len(text.encode()):,} bytes of text")
    assert run("evaluate", "a", "a.txt", cwd=tmp_path).out == run("evaluate", "a", "b.txt", cwd=tmp_path).out
    result = run("train", "a.txt", "--bytes", *QUICK, "-o", "c", cwd=tmp_path)
    assert result.err.startswith(f"data   a.txt: {(tmp_path / 'a.txt').stat().st_size:,} bytes of text")


@pytest.mark.parametrize("verb, more, first", [
    ("predict", [], "level+1,flow+1,level+2,flow+2"),
    ("evaluate", ["--skip", 100], "level: RMSE"),
])
def test_what_gzip_has_compressed_is_read_whatever_its_name(models, tmp_path, verb, more, first):
    plain = run(verb, models / "series.safetensors", models / "series.csv", *more).out
    assert plain.startswith(first)
    compressed = gzip.compress((models / "series.csv").read_bytes(), mtime=0)
    for name in ("series.csv", "series", "SERIES.CSV.GZ"):
        (tmp_path / name).write_bytes(compressed)
        assert run(verb, models / "series.safetensors", name, *more, cwd=tmp_path).out == plain
    assert run(verb, models / "series.safetensors", "-", *more, stdin=compressed).out == plain


def test_streams_of_what_gzip_has_compressed(models, tmp_path):
    rows, text = (models / "series.csv").read_bytes(), (models / "text.txt").read_bytes()[:2000]
    for model, content in (("series", rows), ("text", text)):
        plain = run("stream", models / f"{model}.safetensors", stdin=content).out
        assert run("stream", models / f"{model}.safetensors", stdin=gzip.compress(content, mtime=0)).out == plain
    (tmp_path / "plain").write_bytes(text)
    (tmp_path / "packed").write_bytes(gzip.compress(text, mtime=0))
    scores = [run("evaluate", models / "text.safetensors", name, cwd=tmp_path).out for name in ("plain", "packed")]
    assert scores[0] == scores[1]
    refuses("stream", models / "series.safetensors", stdin=gzip.compress(rows, mtime=0)[:-9], status=1, verb="stream",
            message="-: damaged gzip data: they end too early")


def zeros(members, parts):
    """Gzip data of `members`, each of so many parts of 16 MiB of zeros."""
    part = bytes(1 << 24)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(part) + packer.flush(zlib.Z_FULL_FLUSH)
    check = 0
    for _ in range(parts):
        check = zlib.crc32(part, check)
    end = struct.pack("<II", check, (parts << 24) % (1 << 32))
    return members * (b"\x1f\x8b\x08" + bytes(7) + parts * packed + packer.flush() + end)


@pytest.mark.parametrize("name, verb, members, parts", [
    ("z.csv.gz", "info", 1, 140),
    ("z.txt.gz", "train", 140, 1),
    ("z.csv.gz", "predict", 1, 260),  # its last bytes claim 64 MiB
    ("-", "stream", 1, 140),
])  # fmt: skip
def test_what_would_not_fit_is_refused_before_it_takes_memory(models, tmp_path, name, verb, members, parts):
    packed = zeros(members, parts)
    (tmp_path / "z.csv.gz").write_bytes(packed)
    (tmp_path / "z.txt.gz").write_bytes(packed)
    model = [models / "series.safetensors"] if verb in ("predict", "stream") else []
    why = "more than 2147483648 bytes once it is decompressed, and no more are read: split it"
    if verb == "train":  # which reads texts of any size
        why = "this is binary data (byte 1 is 0), not a text; --bytes reads it anyway; --tokens uint16 " \
              "reads token ids of two bytes"
    refuses(verb, *model, *([] if name == "-" else [name]), cwd=tmp_path, stdin=packed, memory=1 << 30, status=1, verb=verb,
            message=f"{name}: {why}")


def test_a_stream_may_begin_with_half_of_what_marks_gzip(models):
    process = start("stream", models / "text.safetensors", "--bits", stdin=subprocess.PIPE)
    process.stdin.write(b"\x1f")
    process.stdin.flush()
    time.sleep(0.2)
    out, _ = process.communicate(b"ab")
    assert process.returncode == 0 and len(out.splitlines()) == 3


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
    assert "read   3 files, one after the other\n" in result.err


def test_missing_values_are_remembered(tmp_path):
    (tmp_path / "gaps.csv").write_text("x,y\n" + "".join(f"{i % 5 if i % 9 else 'NA'},{i % 4}\n" for i in range(60)))
    result = run("train", "gaps.csv", "--missing", "interpolate", *QUICK, cwd=tmp_path)
    assert "read   7 missing values interpolated\n" in result.err
    shown = run("predict", "model.safetensors", "gaps.csv", cwd=tmp_path)
    assert (
        "note: 7 values were replaced by the last value of their column (--missing refuse ends with an error instead); "
        'the first: gaps.csv:2:1: column "x"'
    ) in shown.err
    run("predict", "model.safetensors", "gaps.csv", "--missing", "refuse", cwd=tmp_path, expect=1)


@pytest.mark.parametrize("header, column", [("Sequence,Label,v", "sequence"), ("sequence,LABEL,v", "label")])
def test_names_of_labelled_sequences_in_capitals_are_no_series(tmp_path, header, column):
    rows = "".join(f"s{sequence},{'ab'[sequence % 2]},{sequence + step}\n" for sequence in range(20) for step in range(8))
    (tmp_path / "l.csv").write_text(header + "\n" + rows)
    said = run("train", "l.csv", expect=2, cwd=tmp_path).err
    assert f'--{column}-column: l.csv has no column "{column}", only' in said
    names = header.split(",")
    asked = ["--sequence-column", names[0], "--label-column", names[1]]
    assert "in 2 classes" in run("train", "l.csv", *asked, "--steps", 2, cwd=tmp_path).err
