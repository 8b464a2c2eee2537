"""JSON, an object a row: learnt, scored and answered as the same table with commas."""

import csv
import gzip
import io
import json

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
KINDS = {"series": (SERIES, ["--calendar", "none"]), "labelled": (LABELLED, []), "texts": (TEXTS, [])}


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
    assert "bytes" in out
    said = run("predict", "model.safetensors", "corpus.jsonl", "--json", cwd=tmp_path).json()["files"][0]
    assert said["bytes"] == (tmp_path / "corpus.jsonl").stat().st_size


def test_what_is_no_object_is_refused_with_its_line(tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"x": 1}\n{"x": [2]}\n')
    result = run("train", "bad.jsonl", "--as", "series", expect=1, cwd=tmp_path)
    assert result.err.startswith('penstock train: bad.jsonl:2: an array under "x", not a value; each object is a row')
