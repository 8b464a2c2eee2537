"""Many series in one file: one model learns them, and scores, forecasts and streams tell them apart."""

import json
import math
import pathlib
import random
import shutil

import pytest

from program import TINY, run

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "data"
QUICK = [*TINY, "--steps", 2, "--length", 8, "--calendar", "none"]
SIZES = {"small": 1, "middle": 20, "large": 4000}


def shops(rows, sizes=SIZES, seed=1):
    noise = random.Random(seed)
    text = "t,shop,x\n"
    for i in range(rows):
        for name, size in sizes.items():
            text += f"{i},{name},{size * (10 + math.sin(i / 2) + noise.gauss(0, 0.1)):.6g}\n"
    return text


@pytest.fixture
def trained(tmp_path):
    (tmp_path / "shops.csv").write_text(shops(60))
    result = run("train", "shops.csv", "--group", "shop", "--columns", "x", "--horizon", 2, *QUICK, cwd=tmp_path)
    return tmp_path, result


def test_training_says_what_it_read_and_how_each_series_did(trained):
    folder, result = trained
    assert "data   shops.csv: x in 144 rows of 3 series, of each the next 20 % held out; predicts x, 1 to 2 rows ahead" in (
        result.err
    )
    assert "read   3 series named by shop, of 60 rows\n" in result.err
    lines = [line.strip() for line in result.out.splitlines()]
    assert any("forecast values in 3 series" in line for line in lines)
    table = lines[next(i for i, line in enumerate(lines) if line.startswith("series ")) + 1 :][:3]
    assert {line.split()[0] for line in table} == set(SIZES)
    ratios = [float(line.split()[3]) for line in table]
    assert ratios == sorted(ratios, reverse=True)
    assert f"in {sum(ratio < 1 for ratio in ratios)} of 3 series" in result.out


def test_a_forecast_of_each_is_that_of_its_rows_alone(trained):
    folder, _ = trained
    lines = run("predict", "model.safetensors", "shops.csv", "--last", cwd=folder).out.splitlines()
    assert lines[0] == "shop,x+1,x+2"
    assert [line.split(",")[0] for line in lines[1:]] == list(SIZES)
    for line in lines[1:]:
        name, *forecasts = line.split(",")
        assert all(0.5 < float(value) / (10 * SIZES[name]) < 1.5 for value in forecasts)
        rows = [row for row in shops(60).splitlines() if row.startswith("t,") or f",{name}," in row]
        (folder / "one.csv").write_text("\n".join(rows) + "\n")
        assert run("predict", "model.safetensors", "one.csv", "--last", cwd=folder).out.splitlines()[1] == line
    told = run("predict", "model.safetensors", "shops.csv", "--last", "--json", "--keep", "shop,t", cwd=folder).json_lines()
    assert [each["columns"] for each in told] == [
        {"shop": name, "t": "59"} for name in SIZES
    ]


def test_a_stream_keeps_a_state_for_each(trained):
    folder, _ = trained
    text = shops(60)
    rows = text.splitlines(keepends=True)
    streamed = run("stream", "model.safetensors", "--keep", "t", stdin=text, cwd=folder).out.splitlines()
    predicted = run("predict", "model.safetensors", "shops.csv", "--keep", "t", "--exact", cwd=folder).out.splitlines()
    assert sorted(streamed) == sorted(predicted)
    first = run("stream", "model.safetensors", "--keep", "t", "--state", "s", stdin="".join(rows[:76]), cwd=folder).out
    rest = run("stream", "model.safetensors", "--keep", "t", "--state", "s", stdin=rows[0] + "".join(rows[76:]), cwd=folder)
    assert first.splitlines() + rest.out.splitlines()[1:] == streamed


def test_a_series_that_training_did_not_see(trained):
    folder, _ = trained
    text = shops(40, {"new": 3, "small": 1}, seed=2)
    (folder / "new.csv").write_text(text)
    result = run("predict", "model.safetensors", "new.csv", "--last", cwd=folder)
    assert result.err == "note: new is not in the training data: scaled by all of its rows in new.csv\n"
    assert 0.5 < float(result.out.splitlines()[1].split(",")[1]) / 30 < 1.5
    result = run("evaluate", "model.safetensors", "new.csv", "--skip", 20, cwd=folder)
    assert result.err == "note: new is not in the training data: scaled by the first 20 of its rows in new.csv\n"
    (folder / "short.csv").write_text(shops(5, {"new": 3, "newer": 1}, seed=2))
    result = run("evaluate", "model.safetensors", "short.csv", "--skip", 20, cwd=folder, expect=1)
    assert result.err == (
        "note: new, newer are not in the training data: scaled by all of their rows in short.csv\n"
        "penstock evaluate: short.csv: there is nothing to score after row 20: its longest series has 5 rows\n"
    )
    rows = text.splitlines(keepends=True)
    result = run("stream", "model.safetensors", "--state", "s", stdin="".join(rows[:31]), cwd=folder)
    assert result.err.startswith("note: new is not in the training data: its first ")
    answers = [line.split(",")[0] for line in result.out.splitlines()[1:]]
    assert answers.count("small") == 15 and 0 < answers.count("new") < 15
    result = run("stream", "model.safetensors", "--state", "s", stdin="".join([rows[0], *rows[31:]]), cwd=folder)
    assert result.err == "" and len(result.out.splitlines()) == len(rows) - 30, "scaled as it was"


def test_scores_of_each_and_of_all(trained):
    folder, _ = trained
    said = run("evaluate", "model.safetensors", "shops.csv", "--skip", 48, "--json", cwd=folder).json()["files"][0]
    groups = said["groups"]
    assert set(groups) == set(SIZES)
    assert said["columns"]["x"]["scored"] == sum(group["columns"]["x"]["scored"] for group in groups.values()) == 3 * 23
    squares = sum(group["columns"]["x"]["rmse"] ** 2 * 23 for group in groups.values())
    assert said["columns"]["x"]["rmse"] == pytest.approx(math.sqrt(squares / 69))
    assert said["columns"]["x"]["mase"] == pytest.approx(sum(g["columns"]["x"]["mase"] for g in groups.values()) / 3)


def test_many_series_are_told_by_the_worst_and_the_best(tmp_path):
    (tmp_path / "many.csv").write_text(shops(30, {f"shop {i}": i + 1 for i in range(20)}))
    result = run("train", "many.csv", "--group", "shop", "--columns", "x", *QUICK, "--metrics", "m.jsonl", cwd=tmp_path)
    assert "... 12 more; --json has all" in result.out
    records = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    shown = [record["group"] for record in records if record["kind"] == "forecast"]
    assert len(set(shown)) == 3
    run("report", "m.jsonl", cwd=tmp_path)
    assert f"x of {shown[0]}" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    "arguments, status, said",
    [
        (["train", "shops.csv", "--group", "town"], 2, 'has no column "town", only "t", "shop", "x"'),
        (["train", "index.csv", "--group", "id"], 1, 'column "id" has another value in each of 30 rows: it looks like'),
        (["train", "shops.csv", "--as", "text", "--group", "shop"], 2, "--group does not apply to a text"),
        (["predict", "model.safetensors", "index.csv"], 1, 'column "shop" names the series of a row, but the header'),
    ],
)
def test_what_cannot_be_groups_is_refused(trained, arguments, status, said):
    folder, _ = trained
    (folder / "index.csv").write_text("id,x\n" + "".join(f"{i},{i % 4}\n" for i in range(30)))
    more = ["-o", "other.safetensors"] if arguments[0] == "train" else []
    assert said in run(*arguments, *more, cwd=folder, expect=status).err


def test_the_example(tmp_path):
    shutil.copy(EXAMPLES / "shops.csv", tmp_path)
    run("train", "shops.csv", "--group", "shop", "--columns", "sales", "--horizon", 6, "--steps", 40, *TINY,
        "-o", "shops.safetensors", cwd=tmp_path)  # fmt: skip
    said = run("evaluate", "shops.safetensors", "shops.csv", "--skip", 48, "--json", cwd=tmp_path).json()["files"][0]
    assert said["columns"]["sales"]["season"] == 12
    column = said["columns"]["sales"]
    assert column["rmse"] < column["rivals"][column["best_rival"]]["rmse"]
    assert len(run("predict", "shops.safetensors", "shops.csv", "--last", cwd=tmp_path).out.splitlines()) == 5


def write_files(folder, rows=60, sizes=SIZES):
    table = [line.split(",") for line in shops(rows, sizes).splitlines()[1:]]
    (folder / "stores").mkdir()
    for name in sizes:
        text = "t,x\n" + "".join(f"{t},{x}\n" for t, shop, x in table if shop == name)
        (folder / "stores" / f"{name}.csv").write_text(text)
    return [f"stores/{name}.csv" for name in sizes]


def test_files_may_be_the_series(trained):
    folder, _ = trained
    files = write_files(folder)
    command = ["--columns", "x", "--horizon", 2, *QUICK, "-o", "f"]
    result = run("train", *files, "--group-by-file", *command, cwd=folder)
    assert "read   3 series named after their files, of 60 rows\n" in result.err
    by_column = run("predict", "model.safetensors", "shops.csv", "--last", cwd=folder).out
    by_file = run("predict", "f", *files, "--last", cwd=folder).out
    assert by_file == by_column.replace("shop,", "file,"), "one model of the same series"
    assert run("predict", "f", "stores/large.csv", "--last", cwd=folder).out.splitlines()[1] == by_file.splitlines()[-1]
    text = (folder / "stores" / "large.csv").read_text()
    streamed = run("stream", "f", "--series", "large", "--keep", "t", stdin=text, cwd=folder).out
    assert streamed == run("predict", "f", "stores/large.csv", "--keep", "t", "--exact", cwd=folder).out
    assert streamed == run("predict", "f", "-", "--series", "large", "--keep", "t", "--exact", stdin=text, cwd=folder).out
    scores = run("evaluate", "f", *files, "--json", cwd=folder).json()["files"]
    assert [list(score["groups"]) for score in scores] == [[name] for name in SIZES]
    assert "note: other is not in the training data: " in run(
        "predict", "f", "-", "--series", "other", "--last", stdin=text, cwd=folder).err


def test_a_folder_of_series_is_read_by_all_verbs(tmp_path):
    files = sorted(write_files(tmp_path))
    trained = run("train", "stores", "--group-by-file", "--columns", "x", *QUICK, "-o", "f", cwd=tmp_path)
    assert f"next   penstock predict f {files[0]} --last" in trained.out
    for verb in ("predict", "evaluate"):
        of_folder = run(verb, "f", "stores", "--json", cwd=tmp_path).out
        assert of_folder == run(verb, "f", *files, "--json", cwd=tmp_path).out
    (tmp_path / "none").mkdir()
    assert "none: there are no files in this folder" in run("predict", "f", "none", cwd=tmp_path, expect=1).err


def test_files_that_cannot_be_told_apart(tmp_path):
    files = write_files(tmp_path)
    (tmp_path / "small.csv").write_text((tmp_path / files[0]).read_text())
    result = run("train", *files, "small.csv", "--group-by-file", *QUICK, cwd=tmp_path, expect=1)
    assert 'stores/small.csv and small.csv are both called "small": the series of two files need different names' in result.err
    result = run("train", *files, "--group-by-file", "--group", "t", *QUICK, cwd=tmp_path, expect=2)
    assert "group" in result.err
    run("train", *files, "--group-by-file", "--columns", "x", *QUICK, cwd=tmp_path)
    result = run("stream", "model.safetensors", stdin="t,x\n", cwd=tmp_path, expect=2)
    assert "--series NAME" in result.err


def test_a_model_of_many_series_is_trained_further(trained):
    folder, _ = trained
    (folder / "more.csv").write_text(shops(50, {"small": 1, "new": 300}, seed=5))
    command = ["train", "more.csv", "--init", "model.safetensors", "--batch", 4, "--threads", 1, "-o", "b"]
    result = run(*command, "--steps", 4, cwd=folder)
    assert "read   2 series named by shop, of 50 rows\n" in result.err
    after = run("info", "b", "--json", cwd=folder).json()
    assert after["history"]["origin"].startswith("model.safetensors, checksum ")
    lines = run("predict", "b", "more.csv", "--last", cwd=folder)
    assert [line.split(",")[0] for line in lines.out.splitlines()[1:]] == ["small", "new"] and "did not see" not in lines.err
    assert "--group must not be given with --init" in run(*command[:-1], "d", "--group", "shop", cwd=folder, expect=2).err


def test_a_blank_line_starts_all_series_anew(trained):
    folder, _ = trained
    head, *rows = shops(18, {"small": 1, "new": 3}).splitlines(keepends=True)
    first, second = rows[:8], rows[8:]  # training did not see "new": its first rows say how it is scaled, and lie on both sides
    command = ["stream", "model.safetensors", "--keep", "t"]
    whole = run(*command, "--reset-on-blank-line", stdin="".join([head, *first, "\n", *second]), cwd=folder).out
    run(*command, "--reset-on-blank-line", "--state", "s", stdin="".join([head, *rows[:28], "\n"]), cwd=folder)
    again = run(*command, "--state", "s", stdin="".join([head, *second]), cwd=folder).out
    of_new = [line for line in whole.splitlines() if line.startswith("new")]
    assert of_new and of_new == [line for line in again.splitlines() if line.startswith("new")][-len(of_new) :]


def test_many_groups_take_no_longer_each(tmp_path):
    # With a time that grows with the square of their number, 50,000 of them took a quarter of an hour.
    rows = [f"s{group},{(group * 7 + row * 13) % 101}\n" for group in range(50_000) for row in range(3)]
    (tmp_path / "many.csv").write_text("shop,v\n" + "".join(rows))
    run("train", "many.csv", "--group", "shop", "--horizon", 1, *TINY, "--steps", 1, "--threads", 1, "-o", "many.safetensors", cwd=tmp_path, timeout=200)
    out = run("stream", "many.safetensors", stdin=(tmp_path / "many.csv").read_text(), cwd=tmp_path, timeout=200).out
    assert len(out.splitlines()) == 150_001


def unlike_shops(rows, seed=5):
    """Returns a table of series with different dynamics: no linear forecast fits all of them."""
    noise = random.Random(seed)
    text, walk = "t,shop,x\n", 0.0
    for i in range(rows):
        walk += noise.gauss(0, 3)
        values = {
            "rising": 5 + 2.5 * i + noise.gauss(0, 1),
            "falling": 100 - 0.7 * i + noise.gauss(0, 1),
            "weekly": 50 + 20 * math.sin(2 * math.pi * i / 7) + noise.gauss(0, 2),
            "walk": 60 + walk,
        }
        text += "".join(f"{i},{name},{x:.4f}\n" for name, x in values.items())
    return text


@pytest.fixture(scope="module")
def unlike(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unlike")
    (folder / "all.csv").write_text(unlike_shops(80))
    rows = (folder / "all.csv").read_text().splitlines(keepends=True)
    (folder / "known.csv").write_text("".join(rows[: 1 + 4 * 50]))
    train = ("train", "known.csv", "--group", "shop", "--columns", "x", "--horizon", 2, "--calendar", "none")
    return folder, run(*train, cwd=folder), run(*train, "--json", "--force", cwd=folder).json()


def test_a_series_that_the_shared_forecast_does_not_fit_gets_its_own(unlike):
    folder, told, as_json = unlike
    names = as_json["model"]["own_forecasts"]
    assert names and set(names) < {"rising", "falling", "weekly", "walk"}
    line = f"{len(names)} of 4 series have a linear forecast of their own"
    assert f"own    {line}, better on their hold-out rows: {', '.join(names)}\n" in told.out
    assert line in run("info", "model.safetensors", cwd=folder).out
    assert run("info", "model.safetensors", "--json", cwd=folder).json()["own_forecasts"] == names
    later = run("evaluate", "model.safetensors", "all.csv", "--skip", 50, "--json", cwd=folder).json()["files"][0]
    for name in names:
        column = later["groups"][name]["columns"]["x"]
        best = min(rival["rmse"] for rival in column["rivals"].values())
        assert column["rmse"] < 1.1 * best, f"{name}: on rows that nothing was chosen by"


def test_all_commands_use_the_forecast_of_a_series(unlike):
    folder, _, as_json = unlike
    text = (folder / "all.csv").read_text()
    streamed = run("stream", "model.safetensors", "--keep", "t", stdin=text, cwd=folder).out.splitlines()
    predicted = run("predict", "model.safetensors", "all.csv", "--keep", "t", "--exact", cwd=folder).out.splitlines()
    assert sorted(streamed) == sorted(predicted)
    rows = text.splitlines(keepends=True)
    first = run("stream", "model.safetensors", "--keep", "t", "--state", "s", stdin="".join(rows[:138]), cwd=folder).out
    rest = run("stream", "model.safetensors", "--keep", "t", "--state", "s", stdin=rows[0] + "".join(rows[138:]), cwd=folder)
    assert first.splitlines() + rest.out.splitlines()[1:] == streamed, "a stream that stops and goes on"
    name = as_json["model"]["own_forecasts"][0]
    run("export", "model.safetensors", "--group", name, "-o", "own.onnx", cwd=folder)
    said = run("export", "model.safetensors", "--normalised", "-o", "shared.onnx", cwd=folder).out
    assert f"not for {', '.join(as_json['model']['own_forecasts'])}: give the group" in " ".join(said.split())
    (folder / "as_new.csv").write_text(text.replace(f",{name},", ",new,"))
    new = run("predict", "model.safetensors", "as_new.csv", "--keep", "t", "--exact", cwd=folder).out.splitlines()
    shared = {line.split(",", 1)[1] for line in new if line.startswith("new,")}
    assert not shared & {line.split(",", 1)[1] for line in predicted if line.startswith(f"{name},")}
