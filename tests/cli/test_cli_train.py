"""What train reports, how it stops, and how it goes on."""

import json
import pathlib
import re
import signal
import time

import pytest

from program import CELL, PATIENCE, TINY, FullPipe, labelled_csv, read_terminal, refuses, run, start


def test_reports_in_a_pipe_are_plain_lines(models, tmp_path):
    result = run("train", models / "text.txt", *TINY, "--steps", 30, "--length", 16, cwd=tmp_path)
    assert "\r" not in result.err and "\x1b" not in result.err
    lines = result.err.splitlines()
    assert lines[0].startswith(f"data   {models / 'text.txt'}: 4,380 bytes of text, the last 5 % held out")
    assert lines[1].startswith("model  mingru, 1 block of width 16, ")
    assert re.fullmatch(
        r"100 %  \d\.\d+ bits/byte  val \d\.\d+  [\d.]+ k?B/s  step 30  0:0\d  0:00 left  loss \d\.\d+", lines[-1]
    )
    summary = result.out.splitlines()
    assert [line.split()[0] for line in summary if line[0] != " "] == ["done", "valid", "score", "saved", "next"]
    assert "30 steps" in summary[0] and "on 219 held-out bytes" in summary[1]
    assert summary[-1] == "next   penstock generate model.safetensors --prompt 'The '"


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_reports_on_a_terminal_are_one_bar(models, tmp_path, columns):
    text = read_terminal(columns, "train", models / "text.txt", *TINY, "--length", 16, "--steps", 40, "--validate-steps", 10,
                         cwd=tmp_path)  # fmt: skip
    bars = re.findall(r"\r([^\r\n]*%[^\r\n]*)\x1b\[K", text)
    assert len(bars) >= 5
    assert all(len(bar) < columns for bar in bars)
    assert all("▕" in bar and "bits/byte" in bar for bar in bars)
    assert bars[-1].startswith("100 % ") and "█" in bars[-1]
    if columns >= 80:
        assert "val " in bars[-1] and "left" in bars[-1] and "B/s" in bars[-1]
    assert "\r\ndone   " in text


def test_filters_stand_beside_the_layers_of_labelled_sequences(tmp_path):
    (tmp_path / "many.csv").write_text(labelled_csv(150))
    result = run("train", "many.csv", *TINY, "--steps", 3, cwd=tmp_path)
    assert "convolution filters next to the layers, with a linear classifier" in result.err
    assert re.search(r"^weight .* of the layers' answer and .* of the filters'|^weight the .* alone", result.out, re.M)
    trained = run("train", "many.csv", *TINY, "--steps", 3, "--json", "--force", cwd=tmp_path).json()
    assert trained["share_of_filters"] > 0
    filters = trained["model"]["filters"] * trained["model"]["dilations"]
    assert 1000 < filters <= 1024
    assert f"plus {filters:,} filters" in run("info", "model.safetensors", cwd=tmp_path).out


def test_few_labelled_sequences_are_told_apart_by_filters_alone(models, tmp_path):
    data = models / "labelled.csv"
    held_out = 8
    result = run("train", data, "--cell", "lstm", "--steps", 3, "--metrics", "m.jsonl", cwd=tmp_path)
    assert (
        "model  convolution filters with a linear classifier; layers are not trained, because a hold-out set of "
        f"{held_out} sequences is too small to show their gain (--no-filters trains layers)\n"
        "note   without layers, --cell, --steps have no effect\n"
    ) in result.err
    assert "filters fitted in" in result.out and "weight" not in result.out
    run("report", "m.jsonl", cwd=tmp_path)
    trained = run("train", data, "--json", "--force", cwd=tmp_path).json()
    assert (trained["share_of_layers"], trained["share_of_filters"], trained["steps"]) == (0.0, 1.0, 0)
    assert trained["loss"] is None and trained["model"]["blocks"] == 0
    assert " 1,0" in run("info", "model.safetensors", cwd=tmp_path).out
    assert run("evaluate", "model.safetensors", data, "--json", cwd=tmp_path).json()["files"][0]["accuracy"] > 0.9
    predicted = run("predict", "model.safetensors", data, "--exact", cwd=tmp_path).out.splitlines()
    streamed = run("stream", "model.safetensors", stdin=data.read_bytes(), cwd=tmp_path).out.splitlines()
    assert len(streamed) > len(predicted) > 1
    again = run("train", data, "--init", "model.safetensors", "-o", "b", cwd=tmp_path)
    assert "from   model.safetensors: its columns, their scaling and its labels\n" in again.err
    (tmp_path / "many.csv").write_text(labelled_csv(150))
    refused = run("train", "many.csv", "--init", "model.safetensors", "-o", "c", cwd=tmp_path, expect=2)
    assert "the model to go on from must have layers, not filters alone" in refused.err


def test_layers_of_a_short_series_are_not_trained(models, tmp_path):
    (tmp_path / "three.csv").write_text("value\n1\n2\n4\n")
    result = run("train", "three.csv", "--metrics", "m.jsonl", cwd=tmp_path)
    assert "layers are not trained, because a hold-out set of 1 row is too small to show their gain" in result.err
    assert "done   linear forecast fitted, no layers trained\n" in result.out and "weight" not in result.out
    run("report", "m.jsonl", cwd=tmp_path)
    trained = run("train", "three.csv", "--json", "--force", cwd=tmp_path).json()
    assert (trained["share_of_layers"], trained["steps"], trained["loss"]) == (0.0, 0, None)
    # Training of the layers ends with the linear forecast, too, since the same few rows cannot confirm a gain.
    forecast = run("predict", "model.safetensors", "three.csv", "--exact", cwd=tmp_path).out
    steps = run("train", "three.csv", *TINY, "--steps", 3, "--json", "--force", cwd=tmp_path).json()
    assert (steps["share_of_layers"], steps["steps"]) == (0.0, 3)
    assert run("predict", "model.safetensors", "three.csv", "--exact", cwd=tmp_path).out == forecast
    # The calendar is no more than the season that the linear forecast has.
    months = "".join(f"{2010 + i // 12}-{1 + i % 12:02}-01,{i % 12 + i / 9:.2f}\n" for i in range(90))
    (tmp_path / "months.csv").write_text("month,value\n" + months)
    dated = run("train", "months.csv", "--json", "--force", cwd=tmp_path).json()
    assert (dated["share_of_layers"], dated["steps"]) == (0.0, 0)
    # Layers that read more than the linear forecast does, or whose keeping is asked for, are trained.
    (tmp_path / "two.csv").write_text("value,other\n" + "".join(f"{i % 7},{i % 5}\n" for i in range(60)))
    more = run("train", "two.csv", "--seconds", 1, "--json", "--threads", 1, "--force", cwd=tmp_path).json()
    assert more["steps"] > 0
    kept = run("train", "three.csv", *TINY, "--keep-last", "--steps", 2, "--json", "--force", cwd=tmp_path).json()
    assert kept["steps"] == 2


def test_labelled_sequences_without_filters(models, tmp_path):
    data = models / "labelled.csv"
    without = run("train", data, *TINY, "--steps", 3, "--no-filters", "--json", "--force", cwd=tmp_path).json()
    assert without["model"]["filters"] == 0 and "share_of_filters" not in without and without["steps"] == 3
    refused = run("train", models / "text.txt", "--no-filters", *TINY, "--force", cwd=tmp_path, expect=2)
    assert "--no-filters does not apply to a text" in refused.err


def test_quiet_says_nothing(models, tmp_path):
    result = run("train", models / "text.txt", *TINY, "--steps", 3, "--length", 8, "--quiet", cwd=tmp_path)
    assert (result.out, result.err) == ("", "")


@pytest.mark.parametrize(
    "data, task, measure",
    [
        ("text.txt", "language", "bits_per_byte"),
        ("series.csv", "forecast", "loss"),
        ("labelled.csv", "classify", "accuracy"),
        ("task:parity", "classify", "accuracy"),
    ],
)
def test_json_is_one_object(models, tmp_path, data, task, measure):
    alone = ["--no-filters"] if data == "labelled.csv" else []  # the metrics are of the layers
    data = data if data.startswith("task:") else models / data
    result = run("train", data, *TINY, *alone, "--steps", 5, "--json", "--metrics", "metrics.jsonl", cwd=tmp_path).json()
    assert result["steps"] == 5 and result["interrupted"] is False
    assert result["model"]["task"] == task and result["model"]["parameters"] > 0
    assert result["validation"][measure] >= 0 and result["validation"]["scored"] > 0
    assert result["output"] == "model.safetensors" and result["checkpoint"] is None
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    kinds = [record["kind"] for record in records]
    assert kinds[:2] == ["run", "train"] and kinds.count("final") == 1
    final = records[kinds.index("final")]
    assert final["validation"]["loss"] == pytest.approx(result["validation"]["loss"])
    assert records[0]["task"] == task and records[0]["model"] == "model.safetensors"
    weight = ["weight"] if result.get("share_of_layers", 1) < 1 else []
    behind = {"language": ["score", "sample"], "forecast": 2 * ["forecast"] + weight + ["score"]}
    expected = [] if str(data).startswith("task:") else behind.get(task, ["score"])
    assert kinds[kinds.index("final") + 1 :] == expected
    if "score" in result:
        assert next(record for record in records if record["kind"] == "score")["score"] == result["score"]


@pytest.mark.parametrize(
    "arguments, shown",
    [
        (["labelled.csv"], "sequences of x, y in 2 classes"),
        (["labelled.csv", "--as", "series", "--columns", "x"], "predicts x, 1 row ahead"),
        (["labelled.csv", "--as", "text"], "bytes of text"),
        (["renamed.csv"], "x, y, kind in"),
        (["renamed.csv", "--sequence-column", "id", "--label-column", "kind"], "sequences of x, y in 2 classes"),
        (["series.csv", "--columns", "level", "--target-columns", "flow", "--horizon", "3"],
         "level in 240 rows, the next 20 % held out; predicts flow, 1 to 3 rows ahead"),
        (["tabs.tsv"], "a, b in 40 rows"),
        (["semicolons.csv"], "a, b in 40 rows"),
        (["semicolons.csv", "--delimiter", ";"], "a, b in 40 rows"),
        (["UPPER.CSV"], "a, b in 40 rows"),
    ],
)  # fmt: skip
def test_what_the_data_are(models, tmp_path, arguments, shown):
    for name in ("labelled.csv", "series.csv"):
        (tmp_path / name).write_bytes((models / name).read_bytes())
    renamed = (models / "labelled.csv").read_text().replace("sequence,label", "id,kind")
    (tmp_path / "renamed.csv").write_text(renamed)
    for name, delimiter in (("tabs.tsv", "\t"), ("semicolons.csv", ";"), ("UPPER.CSV", ",")):
        rows = [["a", "b"]] + [[str(i % 5), str(i % 7)] for i in range(50)]
        (tmp_path / name).write_text("".join(delimiter.join(row) + "\n" for row in rows))
    result = run("train", *arguments, *TINY, "--steps", 2, cwd=tmp_path)
    assert shown in result.err.splitlines()[0]


@pytest.mark.parametrize(
    "arguments, from_last",
    [
        ([], True),
        (["--no-changes"], False),
        (["--columns", "level,flow", "--target-columns", "flow"], True),
        (["--columns", "level", "--target-columns", "flow"], False),
    ],
)
def test_forecasts_start_from_the_last_value_of_columns_that_are_read(models, tmp_path, arguments, from_last):
    command = ["train", models / "series.csv", *TINY, *arguments]
    result = run(*command, "--steps", 2, "--json", cwd=tmp_path).json()
    assert result["model"]["from_last"] is from_last
    shown = run("info", "model.safetensors", cwd=tmp_path).out
    assert ("relative to the last value" in shown) is from_last


def test_resume_keeps_where_forecasts_start(models, tmp_path):
    command = ["train", models / "series.csv", *TINY, "--length", 8, "--checkpoint", "run"]
    run(*command, "--no-changes", "--steps", 3, cwd=tmp_path)
    result = run(*command, "--steps", 5, "--resume", "--json", cwd=tmp_path).json()
    assert result["model"]["from_last"] is False and result["steps"] == 5
    run(*command, "--steps", 3, "--force", cwd=tmp_path)
    refused = run(*command, "--no-changes", "--steps", 5, "--resume", cwd=tmp_path, expect=1)
    assert "model.from_last is true in the checkpoint and false in this run" in refused.err


def test_the_same_seed_trains_the_same_model(models, tmp_path):
    def model(name, seed):
        run("train", models / "text.txt", *TINY, "--steps", 5, "--length", 16, "--seed", seed, "-o", name, cwd=tmp_path)
        return (tmp_path / name).read_bytes()

    assert model("a", 1) == model("b", 1) != model("c", 2)


def wait_until(process, happened):
    end = time.monotonic() + PATIENCE
    while not happened():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)


def catches(process, number):
    """Whether the process has a handler for a signal, from the mask that Linux shows."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16) >> (number - 1) & 1


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interrupt_saves_and_says_where_and_the_run_goes_on(models, tmp_path, number, status):
    command = ["train", models / "text.txt", *TINY, "--length", 16, "--patience", 0]
    process = start(*command, "--steps", 100000, cwd=tmp_path)
    while b" step 1 " not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(number)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == status
    lines = [line for line in out.decode().splitlines() if not line.startswith("best ")]
    assert [line[:6].strip() for line in lines] == ["stop", "saved", "go on"]
    assert "model.safetensors (" in lines[1] and "checkpoint model.safetensors.checkpoint" in lines[1]
    stopped = int(lines[0].split()[1].replace(",", ""))
    assert stopped >= 1

    # The saved model works, and the checkpoint, too.
    for file in ("model.safetensors", "model.safetensors.checkpoint"):
        run("generate", file, "--bytes", 5, cwd=tmp_path)
    result = run(*command, "--steps", stopped + 3, "--resume", "--json", cwd=tmp_path).json()
    assert result["steps"] == stopped + 3
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_no_interrupt_harms_what_it_interrupts(models, tmp_path):
    # A signal may come while generated code runs, which keeps values where a signal's frame would go.
    # Without patience a run does not end by itself before it is interrupted, however busy the machine is.
    command = ["train", models / "text.txt", *TINY, "--length", 16, "--steps", 100000, "--patience", 0, "--force"]
    for _ in range(40):
        process = start(*command, cwd=tmp_path)
        while b" step 1 " not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130, complaint


def test_a_second_interrupt_kills(models, tmp_path):
    full = FullPipe()  # what the run says at its end never goes in
    process = start("train", models / "text.txt", *TINY, "--length", 16, "--steps", 100000, "--patience", 0,
                    cwd=tmp_path, stdout=full.theirs)  # fmt: skip
    while b" step 1 " not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    wait_until(process, lambda: not catches(process, signal.SIGINT))
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == -signal.SIGINT
    full.close()


def test_a_killed_run_resumes_to_the_same_bits(models, tmp_path):
    command = ["train", models / "text.txt", *TINY, "--steps", 1000, "--length", 16, "--quiet"]
    run(*command, "-o", "straight", cwd=tmp_path)
    full = FullPipe(room=2048)  # for the metrics of the first steps
    process = start(*command, "-o", "killed", "--checkpoint-every", 0, "--metrics", full.path, cwd=tmp_path)
    wait_until(process, (tmp_path / "killed.checkpoint").exists)
    time.sleep(0.05)
    process.kill()
    process.wait()
    full.close()
    assert not (tmp_path / "killed").exists()
    run(*command, "-o", "killed", "--resume", cwd=tmp_path)
    assert (tmp_path / "killed").read_bytes() == (tmp_path / "straight").read_bytes()


@pytest.fixture
def checkpoint(models, tmp_path):
    run("train", models / "text.txt", *TINY, "--steps", 3, "--length", 16, "--checkpoint", "run", cwd=tmp_path)
    return (tmp_path / "run").read_bytes()


@pytest.mark.parametrize(
    "change, message",
    [
        (["--width", 8], "model.width is 16 in the checkpoint and 8 in this run"),
        (["--cell", "gru"], 'model.cell is "mingru" in the checkpoint and "gru" in this run'),
        (["--batch", 5], "options.batch is 4 in the checkpoint and 5 in this run"),
        (["--seed", 9], "options.seed is 0 in the checkpoint and 9 in this run"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(models, tmp_path, checkpoint, change, message):
    result = run("train", models / "text.txt", *TINY, "--steps", 9, "--length", 16, *change, "--checkpoint", "run",
                 "--resume", cwd=tmp_path, expect=1)  # fmt: skip
    assert result.err == f"penstock train: run: checkpoint of another run: {message}\n"
    assert (tmp_path / "run").read_bytes() == checkpoint


def test_resume_takes_the_architecture_from_the_checkpoint(models, tmp_path, checkpoint):
    del checkpoint
    result = run("train", models / "text.txt", "--batch", 4, "--threads", 1, "--steps", 5, "--length", 16,
                 "--checkpoint", "run", "--resume", "--json", cwd=tmp_path).json()  # fmt: skip
    assert result["model"]["width"] == 16 and result["steps"] == 5


def test_resume_without_a_checkpoint(models, tmp_path):
    result = run("train", models / "text.txt", "--resume", cwd=tmp_path, expect=1)
    assert result.err == "penstock train: --resume: there is no checkpoint model.safetensors.checkpoint\n"
    (tmp_path / "model").write_bytes((models / "text.safetensors").read_bytes())
    result = run("train", models / "text.txt", "--resume", "--checkpoint", "model", cwd=tmp_path, expect=1)
    assert "model: a model, not a checkpoint" in result.err


def test_a_short_run_without_a_finite_step_gives_up(models, tmp_path):
    """Each number of the cell is finite, but its output never is."""
    nodes = [*CELL["nodes"], {"op": "constant", "value": 1e30}, {"op": "multiply", "of": [6, 7]}, {"op": "multiply", "of": [8, 7]}]
    (tmp_path / "cell.json").write_text(json.dumps({**CELL, "nodes": nodes, "outputs": [9]}))
    command = ["train", models / "text.txt", *TINY, "--cell", "cell.json", "--length", 16, "--quiet"]
    result = run(*command, "--steps", 5, cwd=tmp_path, expect=1)
    last = result.err.splitlines()[-1]
    assert re.fullmatch(r"penstock train: gave up at step 5: the .* was not finite in 5 steps in a row.*", last)
    assert not (tmp_path / "model.safetensors").exists()


def test_a_run_that_only_meets_infinity_gives_up(models, tmp_path):
    result = run("train", models / "text.txt", *TINY, "--steps", 200, "--length", 16, "--learning-rate", 1e30,
                 "--weight-decay", 0, "--optimizer", "sgd", "--clip", 0, "--rollbacks", 0, "--quiet", cwd=tmp_path,
                 expect=1)  # fmt: skip
    lines = result.err.splitlines()
    assert lines[-1].startswith("penstock train: gave up at step ")
    assert all(re.match(r"warning: step \d+ skipped: the .* was not finite", line) for line in lines[:-1])
    assert len(lines) == 11
    assert not (tmp_path / "model.safetensors").exists()


def test_seeds_are_models_in_one_file(models, tmp_path):
    (tmp_path / "series.csv").write_text((models / "series.csv").read_text())
    options = [*TINY, "--horizon", 2, "--steps", 8, "--validate-steps", 4, "--keep-last", "--json", "--force"]
    single = [run("train", "series.csv", *options, "--seed", seed, "-o", f"{seed}.safetensors", cwd=tmp_path).json()
              for seed in (4, 5)]
    both = run("train", "series.csv", *options, "--seed", 4, "--seeds", 2, cwd=tmp_path).json()
    assert [each["seed"] for each in both["seeds"]] == [4, 5]
    assert [each["validation"] for each in both["seeds"]] == [each["validation"] for each in single]
    assert both["steps"] == 16 and both["model"]["members"] == 2
    forecasts = [[float(value) for line in run("predict", f"{name}.safetensors", "series.csv", cwd=tmp_path).out.splitlines()[20:]
                  for value in line.split(",")] for name in (4, 5, "model")]
    assert forecasts[0] != forecasts[1]
    for first, second, mean in zip(*forecasts):
        assert mean == pytest.approx((first + second) / 2, rel=1e-4, abs=1e-4)
    streamed = run("stream", "model.safetensors", stdin=(tmp_path / "series.csv").read_text(), cwd=tmp_path).out
    assert len(streamed.splitlines()) == len((tmp_path / "series.csv").read_text().splitlines())
    assert not list(tmp_path.glob("*.checkpoint*"))


def test_seeds_go_on_after_a_stop(models, tmp_path):
    options = ["train", models / "text.txt", *TINY, "--steps", 6, "--seeds", 2, "--checkpoint", "c", "--json"]
    whole = run(*options, "-o", "whole.safetensors", cwd=tmp_path).json()
    assert (tmp_path / "c").exists() and (tmp_path / "c.2").exists()
    (tmp_path / "c.2").unlink()  # as if the second one had not begun
    again = run(*options, "-o", "again.safetensors", "--resume", cwd=tmp_path).json()
    assert [each["validation"] for each in again["seeds"]] == [each["validation"] for each in whole["seeds"]]
    assert (tmp_path / "whole.safetensors").read_bytes()[-4096:] == (tmp_path / "again.safetensors").read_bytes()[-4096:]


def test_no_seeds(models, tmp_path):
    refuses("train", models / "text.txt", *TINY, "--seeds", 0, cwd=tmp_path, status=2, verb="train",
            message="--seeds must be at least 1, not 0")
