"""The page of `penstock report`: what runs measured, as people look at it."""

import datetime
import html.parser
import json
import math
import re
import sys

import pytest

from program import TINY, refuses, run


class Page(html.parser.HTMLParser):
    """Elements of a page that is well-formed: every one that is opened is closed, in order."""

    EMPTY = {"meta", "line", "circle", "polyline", "polygon", "rect", "html"}

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.words = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if tag not in self.EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    def lines(self, name):
        """Points of the lines of that name, in the order of the charts."""
        found = [a["points"] for tag, a in self.elements if tag == "polyline" and a["data-name"] == name]
        return [[tuple(map(float, point.split(","))) for point in points.split()] for points in found]


def report(folder, *arguments):
    run("report", *arguments, cwd=folder)
    return Page((folder / "report.html").read_text())


def test_one_page_with_everything_in_it(runs):
    result = run("report", "text.jsonl", "series.jsonl", "labelled.jsonl", cwd=runs)
    assert re.fullmatch(r"saved  report.html \([\d.]+ kB\), 3 runs\n", result.out)
    text = (runs / "report.html").read_text()
    page = Page(text)
    words = " ".join(page.words)
    for expected in ("Loss over steps", "Loss over time", "Accuracy", "Gradient norm", "Learning rate", "Throughput",
                     "Forecasts and actual values", "level", "flow", "a season ago", "Confusion", "Samples",
                     "forecast 3 rows ahead"):  # fmt: skip
        assert expected in words
    assert "prefers-color-scheme: dark" in text
    assert not [a for _, a in page.elements if re.search(r"\b(nan|inf)", " ".join(filter(None, a.values())))]
    # Nothing comes from elsewhere.
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert not [tag for tag, a in page.elements if tag in ("link", "img", "iframe") or "src" in a]


def entries(page):
    """What the card of a single run lists, by name."""
    words = iter(page.words[page.words.index("Runs") :])
    found, name = {}, None
    for word in words:
        if word in ("model", "data", "trained", "steps", "kept", "weight", "held out", "state"):
            name = word
        elif name:
            found[name], name = word, None
    return found


def test_what_counts_in_the_model(tmp_path):
    """The card and the last lines speak of a best step only if its layers count."""
    rows = "".join(f"{math.sin(i * i):.3f}\n" for i in range(400))
    (tmp_path / "noise.csv").write_text("v\n" + rows)
    options = ["noise.csv", "--horizon", 3, "--width", 8, "--blocks", 1, "-o", "m.safetensors"]
    result = run("train", *options, "--steps", 60, "--validate-steps", 20, "--metrics", "m.jsonl", "--patience", 2,
                 "--learning-rate", 0.1, cwd=tmp_path)  # fmt: skip
    said = re.search(r"^weight (the linear forecast alone: .*)$", result.out, re.M)[1]
    assert not re.search("^best ", result.out, re.M)
    assert f"weight       {said}\n" in run("info", "m.safetensors", cwd=tmp_path).out
    assert run("info", "m.safetensors", "--json", cwd=tmp_path).json()["history"]["weight"] == said
    of_metrics = entries(report(tmp_path, "m.jsonl"))
    assert of_metrics["weight"] == said and "kept" not in of_metrics
    history = run("info", "m.safetensors", "--json", cwd=tmp_path).json()["history"]
    of_model = entries(report(tmp_path, "m.safetensors"))
    assert of_model["weight"] == said
    assert of_model["held out"] == history["score"] and "RMSE" in history["score"]
    assert of_model["trained"] == history["trained"] and of_model["steps"] == str(history["steps"])
    assert "on noise.csv" in " ".join(report(tmp_path, "m.safetensors", "--data", "noise.csv").words)
    # Layers that nobody trained.
    alone = run("train", "noise.csv", "--horizon", 3, "-o", "a.safetensors", cwd=tmp_path)
    assert "no layers trained" in alone.out
    assert entries(report(tmp_path, "a.safetensors"))["weight"] == "the linear forecast alone: no layers were trained"


def test_lines_go_through_what_was_measured(runs):
    records = [json.loads(line) for line in (runs / "series.jsonl").read_text().splitlines()]
    steps = [record for record in records if record["kind"] == "train"]
    page = report(runs, "series.jsonl")
    chart = next(a for tag, a in page.elements if tag == "svg" and a.get("aria-label") == "Learning rate")
    left, top, width, height = map(float, chart["data-frame"].split())
    (from_x, to_x), (from_y, to_y) = map(float, chart["data-x"].split()), map(float, chart["data-y"].split()[:2])
    # The three lines called "series": gradient norm, learning rate, throughput.
    points = page.lines("series")[1]
    assert len(points) == len(steps)
    for record, (x, y) in zip(steps, points):
        assert left + width * (record["step"] - from_x) / (to_x - from_x) == pytest.approx(x, abs=0.06)
        assert top + height * (1 - (record["learning_rate"] - from_y) / (to_y - from_y)) == pytest.approx(y, abs=0.06)


def records_of(path, kind):
    return [record for record in map(json.loads, path.read_text().splitlines()) if record["kind"] == kind]


def test_forecasts_are_those_of_predict(runs, models):
    record = records_of(runs / "series.jsonl", "forecast")[0]
    assert record["column"] == "level"
    values = [float(line.split(",")[1]) for line in (models / "series.csv").read_text().splitlines()[1:]]
    first = record["first_row"] - 1
    assert record["truth"] == pytest.approx(values[first:], rel=1e-6)
    assert len(record["truth"]) == len(record["ahead"]["1"]) == len(record["ahead"]["3"])
    run(
        "train",
        models / "series.csv",
        *TINY,
        "--columns",
        "level,flow",
        "--horizon",
        3,
        "--steps",
        12,
        "--length",
        16,
        "--no-linear",
        "--quiet",
        "--metrics",
        "plain.jsonl",
        "-o",
        "plain.safetensors",
        "--force",
        cwd=runs,
    )
    record = records_of(runs / "plain.jsonl", "forecast")[0]
    answers = run("predict", "plain.safetensors", models / "series.csv", cwd=runs).out.splitlines()[1:]
    forecasts = [[float(field) for field in line.split(",")] for line in answers]
    checked = 0
    for ahead, field in ((1, 0), (3, 4)):
        for i, value in enumerate(record["ahead"][str(ahead)]):
            made_at = record["first_row"] - 1 + i - ahead
            if value is not None:
                assert value == pytest.approx(forecasts[made_at][field], rel=1e-5)
                checked += 1
    assert checked > 80
    assert record["to_come"] == pytest.approx([forecasts[-1][field] for field in (0, 2, 4)], rel=1e-5)


def test_bands_are_the_quantiles_of_predict(models, tmp_path):
    # Without a linear forecast, which is fitted once more to the held-out rows when these have been scored.
    run("train", models / "series.csv", *TINY, "--columns", "level,flow", "--horizon", 3, "--length", 16, "--steps", 12, "--quiet",
        "--no-linear", "--metrics", "m.jsonl", "-o", "m.safetensors", cwd=tmp_path)
    record = records_of(tmp_path / "m.jsonl", "forecast")[0]
    lines = run("predict", "m.safetensors", models / "series.csv", "--quantiles", "0.1,0.9", cwd=tmp_path).out.splitlines()
    rows = [dict(zip(lines[0].split(","), line.split(","))) for line in lines[1:]]
    checked = 0
    for i, (low, high) in enumerate(zip(record["quantiles"]["0.1"], record["quantiles"]["0.9"])):
        if low is not None:
            made_at = rows[record["first_row"] - 1 + i - 3]
            ends = float(made_at["level+3 q0.1"]), float(made_at["level+3 q0.9"])
            rounding = 4 * 2**-24 * max(map(abs, ends))  # both ends, there and here, are floats
            assert high - low == pytest.approx(ends[1] - ends[0], rel=1e-3, abs=rounding) and high > low
            checked += 1
    assert checked > 40
    for level, values in record["to_come_quantiles"].items():
        assert values == pytest.approx([float(rows[-1][f"level+{k} q{level}"]) for k in (1, 2, 3)], rel=1e-5)
    assert list(record["to_come_quantiles"]) == ["0.1", "0.9"]


def test_a_model_on_other_data(runs, models):
    words = " ".join(report(runs, "labelled.safetensors", "--data", models / "labelled.csv").words)
    scored = run("evaluate", "labelled.safetensors", models / "labelled.csv", "--json", cwd=runs).json()["files"][0]
    assert f"{100 * scored['accuracy']:.1f} % accuracy" in words
    # The model that metrics name, also where they have moved to together.
    moved = runs / "moved"
    moved.mkdir()
    for name in ("series.jsonl", "series.safetensors"):
        (moved / name).write_bytes((runs / name).read_bytes())
    (moved / "new.csv").write_text("\n".join((models / "series.csv").read_text().splitlines()[:60]) + "\n")
    run("report", moved / "series.jsonl", "--data", moved / "new.csv", "-o", moved / "page.html", cwd=runs.parent)
    assert (moved / "page.html").exists()


def test_a_run_that_goes_on_or_was_resumed(runs, tmp_path):
    lines = (runs / "series.jsonl").read_text().splitlines()
    begun = [line for line in lines if json.loads(line)["kind"] in ("run", "train")]
    assert len(begun) >= 3
    (tmp_path / "a.jsonl").write_text("\n".join(begun) + "\n" + lines[-1][:20])
    page = report(tmp_path, "a.jsonl")
    assert "still running, or ended without a result" in page.words
    (line,) = set(map(tuple, page.lines("a")[1:2]))
    assert len(line) == len(begun) - 1
    # Steps reported beyond the checkpoint are done again, and drawn once.
    (tmp_path / "a.jsonl").write_text("\n".join(begun) + '\n{"kind":"resume","step":1}\n' + begun[-1] + "\n")
    page = report(tmp_path, "a.jsonl")
    assert len(page.lines("a")[1]) == 2


def test_bands_of_quantiles(runs, tmp_path):
    records = [json.loads(line) for line in (runs / "series.jsonl").read_text().splitlines()]
    forecast, *others = (record for record in records if record["kind"] == "forecast")
    for other in others:
        other.pop("quantiles", None)
        other.pop("to_come_quantiles", None)
    rows, to_come = len(forecast["truth"]), forecast["to_come"]
    shifted = {level: [None, *(value + by for value in forecast["truth"][1:])] for level, by in (("0.9", 1), ("0.1", -1))}
    forecast["quantiles"] = shifted
    forecast["to_come_quantiles"] = {"0.1": [value - 1 for value in to_come], "0.9": [value + 1 for value in to_come]}
    score = next(record for record in records if record["kind"] == "score")
    score["score"]["columns"]["level"]["quantiles"] = {"levels": [0.1, 0.9], "coverage": 0.75, "pinball": 0.5}
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    page = report(tmp_path, "a.jsonl")
    bands = [a["points"].split() for tag, a in page.elements if tag == "polygon"]
    assert len(to_come) > 1
    assert [len(points) for points in bands] == [2 * (rows - 1), 2 * len(to_come)] * 2  # on wide and on narrow screens
    for points in bands:
        high, low = points[: len(points) // 2], points[len(points) // 2 :][::-1]
        for above, below in zip(high, low):
            (x, top), (same_x, bottom) = (map(float, point.split(",")) for point in (above, below))
            assert x == same_x and top < bottom
    words = " ".join(page.words)
    assert page.words.count("10 to 90 % quantile") == 1
    assert "75 % of the values lay in the 80 % interval (quantiles 0.1 to 0.9). Pinball loss 0.5" in words


def seconds(*date):
    return datetime.datetime(*date, tzinfo=datetime.timezone.utc).timestamp()


def axis_of(folder, dates, to_come):
    """The dates of all rows, and the labels of the axis on a wide screen."""
    record = {"kind": "forecast", "column": "x", "truth": [1.0] * len(dates), "to_come": [2.0] * to_come, "dates": dates}
    (folder / "a.jsonl").write_text('{"kind": "run", "parameters": 1}\n' + json.dumps(record) + "\n")
    page = report(folder, "a.jsonl")
    chart = next(a for tag, a in page.elements if tag == "svg" and a.get("aria-label") == "x")
    if "data-dates" not in chart:
        return None, None
    texts = re.search(r"<svg[^>]*aria-label=\"x\".*?</svg>", (folder / "report.html").read_text()).group()
    return chart["data-dates"].split("|"), re.findall(r'<text class="tick middle"[^>]*>([^<]*)</text>', texts)


def test_dates_of_rows(tmp_path):
    months = [seconds(1949 + i // 12, 1 + i % 12, 1) for i in range(60)]
    dates, labels = axis_of(tmp_path, months, 14)
    assert dates[:2] == ["1949-01", "1949-02"] and dates[-3:] == ["1954-12", "1955-01", "1955-02"] and len(dates) == 74
    assert labels == ["1949", "1950", "1951", "1952", "1953", "1954", "1955"]
    # Ends of months, quarters, years.
    ends = [seconds(2019 + i // 12, 1 + i % 12, 1) - 86400 for i in range(1, 15)]
    assert axis_of(tmp_path, ends, 3)[0][-3:] == ["2020-03-31", "2020-04-30", "2020-05-31"]
    quarters = [seconds(2019 + i // 4, 1 + 3 * (i % 4), 15, 12) for i in range(9)]
    assert axis_of(tmp_path, quarters, 2)[0][-2:] == ["2021-04-15 12:00", "2021-07-15 12:00"]
    assert axis_of(tmp_path, [seconds(year, 1, 1) for year in range(1960, 1990)], 2)[0][-2:] == ["1990", "1991"]
    # Working days go on behind the weekend, other days on it.
    days = [seconds(2024, 3, day) for day in (4, 5, 6, 7, 8, 11, 12, 13, 14, 15)]
    assert axis_of(tmp_path, days, 2)[0][-3:] == ["2024-03-15", "2024-03-18", "2024-03-19"]
    dates, labels = axis_of(tmp_path, [days[0] + 86400 * i for i in range(12)], 2)
    assert dates[-3:] == ["2024-03-15", "2024-03-16", "2024-03-17"]
    assert labels == [f"2024-03-{day:02}" for day in (4, 6, 8, 10, 12, 14, 16)]
    # Rows that are not known in between, and before 1970.
    hours = [seconds(1969, 12, 31, 20) + 3600 * i for i in range(8)]
    hours[2] = hours[3] = None
    dates, labels = axis_of(tmp_path, hours, 1)
    assert dates[2:5] == ["1969-12-31 22:00", "1969-12-31 23:00", "1970-01-01 00:00"] and dates[-1] == "1970-01-01 04:00"
    assert labels[0] == "12-31 20:00"
    assert axis_of(tmp_path, [0.5, 1.5, 2.5, 3.5], 1)[0][0] == "1970-01-01 00:00:00"


@pytest.mark.parametrize("dates", [[0.0], [0.0, None], [0.0, 1e300], [-1e18, 0.0], [3.0, 3.0, 3.0], [5.0, 3.0, 1.0]])
def test_dates_that_say_nothing(tmp_path, dates):
    texts, _ = axis_of(tmp_path, dates, 2)
    assert texts is None or len(texts) == 5


def test_dates_are_those_of_the_file(tmp_path):
    rows = [f"2020-{1 + i // 28:02}-{1 + i % 28:02},{i % 7 + i % 3}" for i in range(84)]
    (tmp_path / "days.csv").write_text("day,x\n" + "\n".join(rows) + "\n")
    command = ["train", "days.csv", *TINY, "--horizon", 2, "--steps", 3, "--length", 8, "--quiet", "--irregular", "ignore"]
    run(*command, "--metrics", "m.jsonl", "-o", "m", cwd=tmp_path)
    (record,) = records_of(tmp_path / "m.jsonl", "forecast")
    expected = [seconds(2020, *map(int, row[5:10].split("-"))) for row in rows]
    assert record["dates"] == expected
    page = report(tmp_path, "m", "--data", "days.csv")
    chart = next(a for tag, a in page.elements if tag == "svg" and a.get("aria-label") == "x")
    assert chart["data-dates"].split("|")[:84] == [row[:10] for row in rows]
    run(*command, "--calendar", "none", "--metrics", "n.jsonl", "-o", "n", cwd=tmp_path)
    assert "dates" not in records_of(tmp_path / "n.jsonl", "forecast")[0]


def test_numbers_that_no_picture_can_hold(tmp_path):
    """Beyond what an integer or a picture's range can hold; a sanitizer sees conversions that overflow."""
    records = [
        {"kind": "run", "task": "classify", "steps": 1e300},
        *({"kind": "train", "step": 1e17 + 16 * i, "seconds": 1e308, "loss": [1e308, -1e308, 1e-320, 3][i % 4],
           "accuracy": 1e300, "gradient_norm": 1e17 + 32 * i, "learning_rate": 1e-300 + 1e-304 * i,
           "positions_per_second": 1e300, "skipped": 1e300} for i in range(9)),
        {"kind": "validation", "step": -1e300, "seconds": -1e308, "loss": 1e-310, "accuracy": -1e308},
        {"kind": "final", "step": 1e300, "model_step": 1e200, "validation": {"loss": 1e308, "accuracy": 1e300}},
        {"kind": "weight", "text": "some", "layers_count": True},
        {"kind": "score", "score": {"classes": ["a", "b"], "confusion": [[1e300, 0], [1e17, -1e300]], "accuracy": 1e300,
                                    "macro_f1": 1e300, "majority": "a", "majority_accuracy": -1e300}},
        {"kind": "forecast", "column": "x", "first_row": 1e300, "truth": [1, 2, 3], "ahead": {"1": [1e308, None, 2]}},
        {"kind": "forecast", "column": "y", "first_row": 1e17, "truth": [1e17, 1e17 + 32, 1e17 + 64], "to_come": [-1e308],
         "quantiles": {"0.1": [-1e308, 1, 2], "0.9": [1e308, 2, 3]}},
        {"kind": "forecast", "column": "z", "truth": [1, 2, 3], "dates": [0, 1e11, 2e11], "to_come": [1] * 2000},
    ]  # fmt: skip
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    page = report(tmp_path, "a.jsonl")
    assert "1.000e+300" in page.words and "1e+300 positions/s" in page.words
    for tag, attributes in page.elements:
        numbers = [attributes.get(name, "") for name in ("points", "x", "y", "cx", "cy", "x1", "y1", "y2", "data-x", "data-y")]
        assert not re.search("nan|inf", " ".join(numbers)), (tag, attributes)
        assert tag != "svg" or len(attributes.get("data-frame", "")) < 100
    assert not any(re.search(r"\b(nan|inf)\b|\d{40}", word) for word in page.words)


def test_hostile_names_stay_text(runs, tmp_path):
    text = (runs / "series.jsonl").read_text()
    (tmp_path / "a.jsonl").write_text(text.replace('"level"', '"<script>alert(1)</script>\\u0001&\\""'))
    page = report(tmp_path, "a.jsonl")
    assert len([tag for tag, _ in page.elements if tag == "script"]) == 1
    assert any("<script>alert(1)</script>" in word for word in page.words)


@pytest.mark.parametrize(
    "content, problem",
    [
        ("", "a.jsonl: there are no metrics of a run in it"),
        ("hello\n", "a.jsonl:1: not a record of metrics, which 'penstock train --metrics FILE' writes: 'hello'"),
        ('{"kind":"run"}\n{"kind"\n{"kind":"step"}\n', """a.jsonl:2: not a record of metrics, which 'penstock train --metrics FILE' writes: '{"kind"'"""),
        ("[1]\n", "a.jsonl:1: not a record of metrics, which 'penstock train --metrics FILE' writes"),
        ('{"step":1}\n', "a.jsonl:1: kind must be a text"),
        ('{"kind":"train","step":"x"}\n', "a.jsonl:1: step must be a number"),
        ('{"kind":"forecast","column":"x","truth":[1,"a"]}\n', "a.jsonl:1: truth must be a list of numbers"),
        ('{"kind":"forecast","column":"x","truth":[1],"ahead":{"1":[1,2]}}\n',
         "a.jsonl:1: ahead has 2 values, and there is 1 row"),
        ('{"kind":"score","score":{"classes":["a"],"confusion":[[1,2]]}}\n',
         "a.jsonl:1: confusion must be a square of counts, a row a class"),
    ],
)  # fmt: skip
def test_what_is_no_run(tmp_path, content, problem):
    (tmp_path / "a.jsonl").write_text(content)
    refuses("report", "a.jsonl", message=problem, status=1, verb="report", cwd=tmp_path)


def test_what_is_refused(runs, models, tmp_path):
    refuses("report", message="RUN is missing", status=2, verb="report")
    refuses(
        "report",
        *["text.jsonl"] * 17,
        message="at most 16 runs can be told apart on a page, not 17",
        status=2,
        verb="report",
        cwd=runs,
    )
    (tmp_path / "kept.txt").write_text("dear diary")
    refuses(
        "report",
        "text.jsonl",
        "-o",
        tmp_path / "kept.txt",
        status=2,
        verb="report",
        cwd=runs,
        message=f"--output {tmp_path / 'kept.txt'} is there already, not a page of 'penstock report'; --force replaces it",
    )
    assert (tmp_path / "kept.txt").read_text() == "dear diary"
    (tmp_path / "a.jsonl").write_bytes((runs / "series.jsonl").read_bytes())
    refuses(
        "report",
        "a.jsonl",
        "--data",
        models / "series.csv",
        status=1,
        verb="report",
        cwd=tmp_path,
        message="a.jsonl: its model 'series.safetensors' was found neither here nor in the folder of the metrics; give the model itself as RUN",
    )


def test_pictures(runs, tmp_path):
    said = run(
        "report",
        "series.jsonl",
        "-o",
        tmp_path / "page.html",
        "--png",
        tmp_path / "png",
        "--json",
        "--python",
        sys.executable,
        cwd=runs,
    ).json()
    names = {path.name for path in (tmp_path / "png").iterdir()}
    assert {"loss-steps.png", "learning-rate.png", "forecast-series-1.png"} <= names
    assert {path.rsplit("/", 1)[1] for path in said["png"]} == names and said["runs"] == ["series"]
    for path in (tmp_path / "png").iterdir():
        assert path.read_bytes().startswith(b"\x89PNG\r\n")
    refuses(
        "report",
        "text.jsonl",
        "-o",
        tmp_path / "page.html",
        "--png",
        tmp_path / "png",
        "--python",
        "no-such-python",
        message="--png: 'no-such-python' cannot be started, or ended without an answer",
        status=1,
        verb="report",
        cwd=runs,
    )


def test_the_verdict_comes_first_and_training_last(runs):
    page = report(runs, "series.jsonl")
    order = [word for word in page.words if word in ("Runs", "Forecasts and actual values", "Scores and baselines", "Training")]
    assert order == ["Runs", "Forecasts and actual values", "Scores and baselines", "Training"]
    (score,) = records_of(runs / "series.jsonl", "score")
    columns = score["score"]["columns"]
    better = sum(each["rmse"] < each["rivals"][each["best_rival"]]["rmse"] for each in columns.values())
    said = f"better than the best baseline in {better} of" if 2 * better >= len(columns) else "WORSE than the best baseline"
    assert any(word.startswith(said) for word in page.words)
    assert page.words[page.words.index("Runs") - 3 :][0].startswith("series.csv: training report")


def written(folder, *records):
    (folder / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in ({"kind": "run", "task": "forecast"}, *records)))
    return report(folder, "a.jsonl")


def column_score(rmse, rival, name="drift"):
    errors = {"mae": 1, "mase": 1, "smape": 0.1}
    return {"rmse": rmse, **errors, "rivals": {name: {"rmse": rival, **errors}}, "best_rival": name}


@pytest.mark.parametrize(("score", "said"), [
    ({"columns": {"x": column_score(3, 2)}}, "WORSE than the baseline drift by 50 %"),
    ({"columns": {"x": column_score(1, 2)}}, "better than drift by 50 %"),
    ({"columns": {f"c{i}": column_score(i, 2.5) for i in range(5)}}, "better than the best baseline in 3 of 5 columns"),
    ({"columns": {f"c{i}": column_score(i, 1.5) for i in range(5)}}, "WORSE than the best baseline in 3 of 5 columns"),
    ({"columns": {"x": column_score(1, 2)}, "groups": {f"g{i}": {"columns": {"x": column_score(i, 1.5)}} for i in range(4)}},
     "better than drift by 50 %; better than the best baseline in 2 of 4 series"),
    ({"accuracy": 0.5, "majority": "a", "majority_accuracy": 0.6, "macro_f1": 0.5, "classes": ["a"], "confusion": [[1]]},
     "NO BETTER than the most frequent label 'a'"),
    ({"bits_per_byte": 1.5, "compressors": {"gzip -9": 3, "xz -9e": 2}}, "better than xz -9e of these bytes alone by 25 %"),
])  # fmt: skip
def test_verdicts(tmp_path, score, said):
    page = written(tmp_path, {"kind": "score", "score": score})
    assert said in page.words
    bad = [a for tag, a in page.elements if tag == "p" and a.get("class") == "verdict bad"]
    assert bool(bad) == said.startswith(("WORSE", "NO BETTER"))


def test_the_coming_values_are_a_table(tmp_path):
    days = [seconds(2024, 3, 1) + 86400 * i for i in range(20)]
    forecast = {"kind": "forecast", "column": "x", "truth": [1.0] * 20, "to_come": [2.5, 3.5], "dates": days,
                "to_come_quantiles": {"0.1": [1.25, 1.75], "0.9": [4.5, 5.5]}}  # fmt: skip
    words = written(tmp_path, forecast).words
    at = words.index("Coming values")
    assert words[at + 1 : at + 13] == ["date", "forecast", "from", "to", "2024-03-21", "2.500", "1.250", "4.500",
                                       "2024-03-22", "3.500", "1.750", "5.500"]  # fmt: skip
    assert "From and to: 10 to 90 % quantiles." in words
    del forecast["dates"], forecast["to_come_quantiles"]
    words = written(tmp_path, forecast).words
    at = words.index("Coming values")
    assert words[at + 1 : at + 7] == ["row", "forecast", "21", "2.500", "22", "3.500"]


def test_series_that_are_not_drawn_are_counted(tmp_path):
    groups = {f"g{i}": {"columns": {"x": column_score(1 + i, 2)}} for i in range(5)}
    forecasts = [{"kind": "forecast", "column": "x", "group": f"g{i}", "truth": [1.0, 2.0]} for i in (0, 2, 4)]
    page = written(tmp_path, *forecasts, {"kind": "score", "score": {"columns": {"x": column_score(1, 2)}, "groups": groups}})
    words = " ".join(page.words)
    assert "3 of 5 series, compared with their best baselines: the worst, the middle and the best forecast." in words
    assert "a: each series" in page.words
    many = [{"kind": "forecast", "column": f"c{i}", "truth": [1.0, 2.0]} for i in range(13)]
    assert "8 of 13 charts." in " ".join(written(tmp_path, *many).words)


def test_many_columns_are_one_table(tmp_path):
    values = "".join(",".join(f"{math.sin(i * (k + 2)):.3f}" for k in range(13)) + "\n" for i in range(120))
    (tmp_path / "macro.csv").write_text(",".join(f"c{k}" for k in range(13)) + "\n" + values)
    said = run("train", "macro.csv", *TINY, "--horizon", 2, "--steps", 3, "--length", 16, "--metrics", "m.jsonl", "-o", "m",
               cwd=tmp_path).out  # fmt: skip
    score = said.partition("score ")[2].partition("saved ")[0].splitlines()
    assert len(score) == 15 and re.match(r" *better than the best baseline in \d+ of 13 columns; from", score[0])
    assert {line.split()[0] for line in score[2:]} == {f"c{k}" for k in range(13)}
    page = report(tmp_path, "m.jsonl")
    cells = [word for word in page.words if re.fullmatch(r"c\d+", word)]
    assert len(page.words) and cells.count("c12") == 1 and "RMSE / baseline" in page.words
