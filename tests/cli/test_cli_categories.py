"""Columns of text as categories: what train says of them, and what other verbs make of them."""

import json

import pytest

from program import run

QUICK = ["--width", 4, "--blocks", 1, "--steps", 3, "--batch", 2, "--length", 16, "--quiet"]
DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Sales that a weekday and holidays decide, in a folder with a model that knows both in advance, and one that does
    not, with what was said of it in plain.txt."""
    folder = tmp_path_factory.mktemp("shop")
    rows = [f"{100 + 9 * (i % 7 > 4) + 30 * (i % 11 == 0) + i % 3},{DAYS[i % 7]},{'Sale' if i % 11 == 0 else ''}" for i in range(280)]
    (folder / "shop.csv").write_text("sales,weekday,holiday\n" + "\n".join(rows) + "\n")
    run("train", "shop.csv", "--known", "weekday,holiday", "--horizon", 2, *QUICK, "-o", "known.safetensors", cwd=folder)
    (folder / "plain.txt").write_text(run("train", "shop.csv", *QUICK[:-1], "-o", "plain.safetensors", cwd=folder).err)
    return folder


def test_train_and_info_say_what_they_are(shop):
    said = (shop / "plain.txt").read_text()
    assert [line[7:] for line in said.splitlines() if line.startswith("read ")] == [
        "weekday as 7 categories: Mon, Tue, Wed, Thu, Fri, Sat and 1 more",
        "holiday as a category: Sale",
    ]
    text = run("info", "known.safetensors", cwd=shop).out
    assert "weekday (7 categories), holiday (1 category)" in text
    assert "weekday of future rows, holiday of future rows" in text
    assert "weekday = " not in text, "categories are too many to be told one by one"
    inputs = run("info", "plain.safetensors", "--json", cwd=shop).json()["inputs"]
    assert inputs == ["sales", *(f"weekday = {day}" for day in DAYS), "holiday = Sale"]


def test_what_is_known_decides_the_forecast(shop):
    score = run("evaluate", "known.safetensors", "shop.csv", "--skip", 220, "--json", cwd=shop).json()
    column = score["files"][0]["columns"]["sales"]
    assert column["rmse"] < 0.3 * column["rivals"]["the last value"]["rmse"], "holidays come every eleven rows"


def test_streams_say_what_predict_says(shop):
    predicted = run("predict", "plain.safetensors", "shop.csv", cwd=shop).out.splitlines()[1:]
    streamed = run("stream", "plain.safetensors", stdin=(shop / "shop.csv").read_text(), cwd=shop).out.splitlines()[1:]
    assert [float(each) for each in streamed] == pytest.approx([float(each) for each in predicted], rel=1e-5)


@pytest.mark.parametrize("verb", ["predict", "stream"])
def test_unknown_texts_are_counted(shop, verb):
    text = "sales,weekday,holiday\n100,Mon,\n101,Day,Sale\n102,Wed,Party\n"
    result = run(verb, "plain.safetensors", *(["-"] if verb == "predict" else []), stdin=text, cwd=shop)
    assert result.err.count("note:") == 1
    assert ("2 fields have a category that is not in the training part and are read as no category; the first: -:3:5: column "
            '"weekday": "Day"') in result.err  # fmt: skip


def test_labels_and_refusals(shop, tmp_path):
    bases = "".join(f"{i // 4},{'ab'[i // 4 % 2]},{'ACGT'[i % 4 * (i // 4 % 2)]}\n" for i in range(160))
    (tmp_path / "dna.csv").write_text("sequence,label,base\n" + bases)
    run("train", "dna.csv", "--quiet", cwd=tmp_path)
    answers = [json.loads(line) for line in run("predict", "model.safetensors", "dna.csv", "--json", cwd=tmp_path).out.splitlines()]
    assert [answer["label"] for answer in answers] == [i % 2 and "b" or "a" for i in range(40)]
    result = run("train", shop / "shop.csv", "--init", shop / "plain.safetensors", "--categories", "none", "-o", "other.safetensors", cwd=tmp_path,
                 expect=2)  # fmt: skip
    assert "--categories must not be given with --init" in result.err
