"""JSON, an object a row: learnt, scored and answered as the same table with commas."""

import csv
import gzip
import io
import json
import math

import pytest

from program import SERIES, TINY, run


def as_json(table):
    """A table with commas as JSON lines, numbers as numbers."""

    def value(text):
        try:
            return json.loads(text)
        except ValueError:
            return text

    rows = csv.DictReader(io.StringIO(table))
    return "".join(json.dumps({name: value(text) for name, text in row.items()}) + "\n" for row in rows)


LABELLED = "sequence,label,value\n" + "".join(
    f"{sequence},{'up' if sequence % 2 else 'down'},{(1 if sequence % 2 else -1) * step + sequence / 40:.2f}\n"
    for sequence in range(20)
    for step in range(8)
)
TEXTS = "text,sentiment\n" + "".join(
    f"\"a {'fine' if i % 2 else 'dull'} film, number {i}\",{'good' if i % 2 else 'bad'}\n" for i in range(60)
)
BLANKS = "day,sky,level\n" + "".join(
    f"{i},{('sun ', ' sun', 'rain')[i % 3]},{10 + 5 * math.sin(i / 3):.3f}\n" for i in range(300)
)
PLAIN = ["--calendar", "none"]
KINDS = {"series": (SERIES, PLAIN), "blanks around texts": (BLANKS, PLAIN), "labelled": (LABELLED, []), "texts": (TEXTS, [])}


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_the_same_table(tmp_path, kind):
    table, options = KINDS[kind]
    (tmp_path / "t.csv").write_text(table)
    (tmp_path / "t.jsonl").write_text(as_json(table))
    (tmp_path / "t.json").write_text("[" + as_json(table).strip().replace("\n", ",") + "]")
    (tmp_path / "t.ndjson.gz").write_bytes(gzip.compress(as_json(table).encode()))
    answers = {}
    for name in ("t.csv", "t.jsonl", "t.json", "t.ndjson.gz"):
        run("train", name, "-o", name + ".model", *TINY, "--steps", 3, *options, cwd=tmp_path)
        told = [run("predict", name + ".model", name, cwd=tmp_path).out]
        told.append(run("evaluate", name + ".model", name, "--json", cwd=tmp_path).json()["files"][0])
        told[1].pop("file", None)
        answers[name] = told
    assert answers["t.jsonl"] == answers["t.json"] == answers["t.csv"] == answers["t.ndjson.gz"]
    # A model of the one reads the other.
    assert run("predict", "t.csv.model", "t.jsonl", cwd=tmp_path).out == answers["t.csv"][0]


def test_a_corpus_is_a_text(tmp_path):
    (tmp_path / "corpus.jsonl").write_text("".join(f'{{"text": "line number {i} of a corpus"}}\n' for i in range(100)))
    out = run("train", "corpus.jsonl", *TINY, "--steps", 2, cwd=tmp_path).err
    assert "read   a text, byte by byte, as no column with numbers or with labels was found; --as text " in out
    told = run("train", "corpus.jsonl", "--as", "text", *TINY, "--steps", 2, "--force", cwd=tmp_path).err
    assert "read   " not in told
    said = run("predict", "model.safetensors", "corpus.jsonl", "--json", cwd=tmp_path).json()["files"][0]
    assert said["bytes"] == (tmp_path / "corpus.jsonl").stat().st_size


BROKEN = {
    "nan.jsonl": ('{"x": 1, "y": 2}\n' * 50 + '{"x": NaN, "y": 2}\n', "nan.jsonl:51: no JSON from its byte 7 on; JSON has no NaN"),
    "first.jsonl": ('{"x": NaN}\n' + '{"x": 1}\n' * 90, "first.jsonl:1: no JSON from its byte 7 on; JSON has no NaN: write null"),
    "inf.ndjson": ('{"x": 1}\n{"x": -Infinity}\n', "inf.ndjson:2: no JSON from its byte 8 on; JSON has no Infinity"),
    "inf.json": ('[{"x": 1}, {"x": Infinity}]', "inf.json: object 2 of the array: no JSON from its byte 18 on; JSON has"),
    "broken.jsonl": ('{"x": 1}\n' * 90 + "oops\n" + '{"x": 1}\n' * 90, "broken.jsonl:91: no JSON from its byte 1 on"),
    "nested.json": ('{"name": "x", "of": {"a": [1, 2]}}\n', 'nested.json:1: an object under "of", not a value'),
    "nested.jsonl.gz": ('{"x": 1, "of": [2]}\n' * 40, 'nested.jsonl.gz:1: an array under "of", not a value'),
    "pretty.json": ('{\n  "x": 1\n}\n', "pretty.json:1: no JSON from its byte 2 on; an object needs a line of its own"),
    "list.json": ("[1, 2, 3]", "list.json: object 1 of the array: a value, not an object"),
    "late.jsonl": ('{"x": 1}\n' * 20_000 + '{"x": }\n', "late.jsonl:20001: no JSON from its byte 7 on"),
    "late.json": ("[" + '{"x": 1},' * 20_000 + "{]", "late.json: object 20001 of the array: no JSON from its byte"),
    "torn.json": ('[{"x": 1}, {"x"', "torn.json: object 2 of the array: no JSON from its byte"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_table_is_not_read_as_a_text(tmp_path, name):
    content, message = BROKEN[name]
    (tmp_path / name).write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    result = run("train", name, *TINY, "--steps", 2, expect=1, cwd=tmp_path)
    assert result.err.startswith(f"penstock train: {message}"), result.err
    assert result.err.endswith("; --as text reads the bytes of the file\n")
    if len(content) > 100:
        run("train", name, "--as", "text", *TINY, "--steps", 2, "--length", 8, cwd=tmp_path)


def test_a_table_in_another_format_is_read_as_a_text_with_a_note(tmp_path):
    for name in ("iris.arff", "series.ts"):
        (tmp_path / name).write_text("@relation iris\n" + "5.1,3.5\n" * 200)
        out = run("train", name, *TINY, "--steps", 2, "--length", 8, "--force", cwd=tmp_path).err
        assert "read   a text, byte by byte, " in out


def test_what_is_no_object_is_refused_with_its_line(tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"x": 1}\n{"x": [2]}\n')
    result = run("train", "bad.jsonl", "--as", "series", expect=1, cwd=tmp_path)
    assert result.err.startswith('penstock train: bad.jsonl:2: an array under "x", not a value; each object is a row')
