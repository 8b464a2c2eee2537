"""Tables of texts and labels: found, learnt, scored, and answered row by row."""

import csv
import gzip
import io
import random

import pytest

from program import TINY, run

WORDS = {"pos": "good lovely superb", "neg": "awful dull terrible"}


def refused(*arguments, says, status=1, **options):
    result = run(*arguments, expect=status, **options)
    assert says in result.err and len(result.err.splitlines()) == 1 and result.out == ""


def reviews(count, seed=1, names=("text", "sentiment")):
    """Texts with commas, quotes and line ends, of which one word says the label."""
    draw = random.Random(seed)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for i in range(count):
        label = draw.choice(["pos", "neg", "neg"])
        words = [draw.choice("the a film plot actor was is and with".split()) for _ in range(draw.randint(3, 12))]
        words.insert(draw.randrange(len(words)), draw.choice(WORDS[label].split()))
        writer.writerow([" ".join(words) + (', "yes",\nthey say' if i % 5 == 0 else ""), label])
    return out.getvalue()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    (folder / "train.csv").write_text(reviews(500))
    (folder / "test.csv").write_text(reviews(100, seed=2))
    result = run("train", "train.csv", "--output", "texts.safetensors", "--width", 32, "--steps", 300, cwd=folder)
    return folder, result.err + result.out


def test_columns_are_found_and_named(trained):
    _, out = trained
    assert "texts from column text, labels from column sentiment" in out
    assert "--text-column" in out and "in 2 classes" in out
    assert "the most frequent label 'neg'" in out


def test_a_model_is_scored_on_other_texts(trained):
    folder, _ = trained
    labels = run("evaluate", "texts.safetensors", "test.csv", "--json", cwd=folder).json()["files"][0]
    assert labels["scored"] == 100 and labels["classes"] == ["neg", "pos"]
    assert labels["accuracy"] > 0.95 > 0.8 > labels["majority_accuracy"]


def test_rows_are_answered_in_their_order_and_as_a_stream_answers_them(trained):
    folder, _ = trained
    rows = list(csv.DictReader(io.StringIO((folder / "test.csv").read_text())))
    answers = run("predict", "texts.safetensors", "test.csv", "--keep", "sentiment", "--json", cwd=folder).json_lines()
    assert [answer["columns"]["sentiment"] for answer in answers] == [row["sentiment"] for row in rows]
    right = sum(answer["label"] == answer["columns"]["sentiment"] for answer in answers)
    labels = run("evaluate", "texts.safetensors", "test.csv", "--json", cwd=folder).json()["files"][0]
    assert right == round(100 * labels["accuracy"])
    plain = [i for i, row in enumerate(rows) if "\n" not in row["text"]]
    lines = "".join(rows[i]["text"] + "\n" for i in plain)
    streamed = run("stream", "texts.safetensors", "--json", stdin=lines, cwd=folder).json_lines()
    assert [answer["label"] for answer in streamed] == [answers[i]["label"] for i in plain]


def test_an_empty_text_is_answered_too(trained):
    folder, _ = trained
    (folder / "empty.csv").write_text("text,n\n,1\na good film,2\n")
    out = run("predict", "texts.safetensors", "empty.csv", cwd=folder).out.splitlines()
    assert [line.split(",")[0] for line in out] == ["row", "1", "2"]


def test_any_form_of_a_table(tmp_path):
    text = "\ufeff" + reviews(60, names=("body", "kind")).replace("\n", "\r\n")
    (tmp_path / "texts.csv.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "more.csv").write_text(reviews(60, seed=3, names=("body", "kind")))
    out = run("train", "texts.csv.gz", "more.csv", "--label-column", "kind", *TINY, "--steps", 2, cwd=tmp_path).err
    assert "texts from column body, labels from column kind" in out and "2 files" in out
    named = ["--as", "texts", "--text-column", "body", "--label-column", "kind"]
    run("train", "-", *named, *TINY, "--steps", 2, "--force", stdin=reviews(60, names=("body", "kind")), cwd=tmp_path)


def test_long_texts_are_cut_and_incomplete_rows_left_out(tmp_path):
    (tmp_path / "texts.csv").write_text(reviews(60) + ",pos\na film without a label,\n")
    refused("train", "texts.csv", *TINY, "--steps", 2, says="is empty", cwd=tmp_path)
    refused("train", "texts.csv", *TINY, "--missing", "carry", says="must be refuse or mask", status=2, cwd=tmp_path)
    out = run("train", "texts.csv", *TINY, "--steps", 2, "--missing", "mask", "--longest", 4, cwd=tmp_path).err
    assert "2 rows without a text or a label left out" in out
    assert "60 texts cut after 4 bytes" in out
    info = run("info", "model.safetensors", cwd=tmp_path).out
    assert "texts of column text, up to 4 bytes each" in info


def test_what_is_refused(trained, tmp_path):
    folder, _ = trained
    refused("train", "train.csv", "--longest", 0, says="--longest must be 1 to", status=2, cwd=folder)
    refused("train", "train.csv", "--text-column", "words", says='has no column "words"', status=2, cwd=folder)
    (tmp_path / "one.csv").write_text("text,label\n" + "".join(f"a film of {i} hours,good\n" for i in range(20)))
    refused("train", "one.csv", "--as", "texts", "--text-column", "text", "--label-column", "label",
            says="at least two labels", cwd=tmp_path)
    (folder / "other.csv").write_text("text,sentiment\na film,mixed\n")
    refused("evaluate", "texts.safetensors", "other.csv", says='label "mixed"', cwd=folder)


def test_a_series_with_notes_stays_a_series(tmp_path):
    rows = "".join(f"2020-01-{i % 28 + 1:02},{i % 3},a note on the day of number {i}\n" for i in range(28))
    (tmp_path / "series.csv").write_text("date,target,note\n" + rows)
    assert "texts in" not in run("info", "series.csv", cwd=tmp_path).out
