"""Forecasts of a quantity that ends at 0, such as rain, are at least 0 everywhere, unless --allow-negative lifts that."""

import datetime
import json
import math
import random

import pytest

from program import TINY, refuses, run
from test_cli_report import records_of

QUANTILES = ["--quantiles", "0.05,0.1,0.5,0.9"]
OPTIONS = [*TINY, "--horizon", 4, "--steps", 3, "--length", 16, "--quiet"]
SAID = "forecasts are at least 0 (--allow-negative lifts this)"


def table(path, columns):
    """Writes columns of numbers, a row a day."""
    first = datetime.date(2021, 1, 1)
    rows = zip(*columns.values())
    lines = [",".join([str(first + datetime.timedelta(i)), *map(str, row)]) for i, row in enumerate(rows)]
    path.write_text("\n".join([",".join(["day", *columns]), *lines]) + "\n")


def rain(rows=260, seed=4):
    """Mostly dry, with falls at the end that pull a regression below 0."""
    draw = random.Random(seed)
    return [round(draw.expovariate(0.1), 1) if draw.random() < 0.3 else 0.0 for _ in range(rows - 4)] + [90.0, 40.0, 10.0, 0.0]


def waves(rows=300):
    """Cycles with a flat minimum at 0, as sunspots have."""
    return [round(80 * max(0.0, math.sin(i / 7)) ** 2 + abs(3 * math.sin(i * i)), 2) for i in range(rows)]


def numbers(text, columns):
    """The forecasts and quantiles of some columns in a table of answers."""
    header, *rows = (line.split(",") for line in text.splitlines())
    places = [i for i, name in enumerate(header) if name.split("+")[0] in columns and "+" in name]
    assert len(places) == 20 * len(columns)
    return [float(row[i]) for row in rows for i in places if row[i]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bounds")
    table(folder / "rain.csv", {"mm": rain()})
    for name, more in (("rain", []), ("free", ["--allow-negative"])):
        run("train", "rain.csv", *OPTIONS, *more, "--metrics", f"{name}.jsonl", "-o", name, cwd=folder)
    return folder


def test_predict_stream_and_report_agree_that_rain_is_not_negative(folder):
    answers = run("predict", "rain", "rain.csv", *QUANTILES, cwd=folder).out
    assert min(numbers(answers, ["mm"])) == 0 and "-0" not in answers.replace("2021-0", "")
    assert min(numbers(run("predict", "free", "rain.csv", *QUANTILES, cwd=folder).out, ["mm"])) < -1
    rows = (folder / "rain.csv").read_bytes()
    assert min(numbers(run("stream", "rain", *QUANTILES, stdin=rows, cwd=folder).out, ["mm"])) == 0
    for name, bounded in (("rain", True), ("free", False)):
        (record,) = records_of(folder / f"{name}.jsonl", "forecast")
        shown = [*record["to_come"], *record["ahead"]["1"], *record["quantiles"]["0.1"], *record["to_come_quantiles"]["0.1"]]
        assert (min(value for value in shown if value is not None) >= 0) == bounded


def test_a_trained_model_can_be_allowed_to_be_negative(folder):
    for verb in (["predict", "rain", "rain.csv"], ["stream", "rain"]):
        answers = run(*verb, "--allow-negative", *QUANTILES, stdin=(folder / "rain.csv").read_bytes(), cwd=folder).out
        assert min(numbers(answers, ["mm"])) < -1


def test_scores_are_those_of_what_is_shown(folder):
    """Negative forecasts of rain are worse than those at 0, in the command and on the page."""
    scores = [
        run("evaluate", "rain", "rain.csv", *more, "--json", cwd=folder).json()["files"][0]["columns"]["mm"]["quantiles"]
        for more in ([], ["--allow-negative"])
    ]
    assert scores[1]["pinball"] > scores[0]["pinball"]
    pages = []
    for more in ([], ["--allow-negative"]):
        run("report", "rain", "--data", "rain.csv", "-o", "r.html", "--force", *more, cwd=folder)
        pages.append((folder / "r.html").read_text().split("Pinball loss", 1)[1][:8])
    assert pages[0] != pages[1]
    (folder / "t.txt").write_text("words " * 200)
    run("train", "t.txt", *TINY, "--steps", 1, "-o", "text", "--quiet", cwd=folder)
    message = "--allow-negative is for forecast models, and text is a language model"
    refuses("evaluate", "text", "t.txt", "--allow-negative", message=message, status=2, verb="evaluate", cwd=folder)
    refuses("predict", "text", "t.txt", "--allow-negative", message=message, status=2, verb="predict", cwd=folder)
    refuses("export", "text", "--allow-negative", message=message, status=2, verb="export", cwd=folder)
    refuses("stream", "text", "--allow-negative", message=message, status=2, verb="stream", cwd=folder)


def test_quantiles_do_not_cross(folder):
    answers = run("predict", "rain", "rain.csv", *QUANTILES, "--json", cwd=folder).json_lines()
    for row in answers[60:]:
        for each in zip(*(row["quantiles"]["mm"][level] for level in ("0.05", "0.1", "0.5", "0.9"))):
            assert list(each) == sorted(each)


def test_the_terminal_says_so(folder):
    said = run("train", "rain.csv", *OPTIONS[:-1], "-o", "said", cwd=folder)
    assert SAID in said.err + said.out
    said = run("train", "rain.csv", *OPTIONS[:-1], "--allow-negative", "-o", "said", "--force", cwd=folder)
    assert "at least 0" not in said.err + said.out


def column_of(tmp_path, values, *more):
    """The description of a target of these values in the model's file."""
    table(tmp_path / "x.csv", {"x": values})
    said = run("train", "x.csv", *OPTIONS[:-1], "--steps", 1, *more, "-o", "m", "--force", cwd=tmp_path)
    head = (tmp_path / "m").read_bytes()
    length = int.from_bytes(head[:8], "little")
    fields = json.loads(json.loads(head[8 : 8 + length])["__metadata__"]["penstock"])
    (target,) = fields["data"]["targets"]
    assert (SAID in said.err + said.out) == target.get("non_negative", False)
    return target


@pytest.mark.parametrize("values", [rain(), waves(), [float(v) for v in rain()][:60], [i % 3 for i in range(99)],
                                    [abs(math.sin(i * i)) ** 8 for i in range(200)]],
                         ids=["rain", "waves", "few", "counts", "near"])  # fmt: skip
def test_columns_that_end_at_zero(tmp_path, values):
    assert column_of(tmp_path, values)["non_negative"] is True


@pytest.mark.parametrize("values", [[1000 + 50 * math.sin(i / 9) + i % 7 for i in range(200)], [v - 0.1 for v in rain()],
                                    [-1e-9, *rain()], [5 + math.sin(i * i) for i in range(200)], [0.0, *[9 + i % 5 for i in range(150)]]],
                         ids=["large", "below", "once below", "level", "once zero"])  # fmt: skip
def test_other_columns_are_as_before(tmp_path, values):
    assert "non_negative" not in column_of(tmp_path, values)


def test_one_column_of_several_is_named_and_bounded(tmp_path):
    drift = [20 * math.sin(i / 5) + i % 7 for i in range(260)]
    table(tmp_path / "x.csv", {"mm": rain(), "level": drift})
    said = run("train", "x.csv", *OPTIONS[:-1], "-o", "m", cwd=tmp_path)
    assert "forecasts of mm are at least 0 (--allow-negative lifts this)" in said.err + said.out
    answers = run("predict", "m", "x.csv", *QUANTILES, cwd=tmp_path).out
    assert min(numbers(answers, ["mm"])) == 0 > min(numbers(answers, ["level"]))


def test_series_of_different_sizes_are_judged_by_their_own_means(tmp_path):
    lines = [f"{name},2021-{1 + i // 28:02}-{1 + i % 28:02},{factor * value}"
             for name, factor in (("small", 1), ("large", 10_000)) for i, value in enumerate(rain(200))]  # fmt: skip
    (tmp_path / "x.csv").write_text("\n".join(["shop,day,mm", *lines]) + "\n")
    run("train", "x.csv", "--group", "shop", *OPTIONS, "-o", "m", cwd=tmp_path)
    assert min(numbers(run("predict", "m", "x.csv", *QUANTILES, cwd=tmp_path).out, ["mm"])) == 0


def test_it_is_for_series(tmp_path):
    (tmp_path / "t.txt").write_text("words " * 200)
    message = "--allow-negative does not apply to a text: t.txt is read as a text"
    refuses("train", "t.txt", "--allow-negative", message=message, status=2, verb="train", cwd=tmp_path)


def test_a_checkpoint_goes_on(folder, tmp_path):
    table(tmp_path / "rain.csv", {"mm": rain()})
    options = ["rain.csv", *OPTIONS, "--checkpoint", "c", "-o", "m", "--force"]
    run("train", *options, cwd=tmp_path)
    run("train", *options, "--resume", "--steps", 5, cwd=tmp_path)
    assert min(numbers(run("predict", "m", "rain.csv", *QUANTILES, cwd=tmp_path).out, ["mm"])) == 0
