"""The search for a model: `train --search`."""

import json
import re
import signal
import time

import pytest

from program import PATIENCE, TINY, FullPipe, refuses, run, start

SMALL = ["--blocks", 1, "--batch", 4, "--threads", 1]
ONE_RATE = ["--cell", "gru", "--width", 8, "--learning-rate", 0.02]  # so that dropout alone is left


def test_what_was_tried_and_found_is_said(models, tmp_path):
    command = ["train", models / "labelled.csv", "--no-filters", *SMALL, "--steps", 12, "--search", 1, *ONE_RATE]
    result = run(*command, cwd=tmp_path)
    lines = result.err.splitlines()
    assert lines[0] == "search 1:00 for a model on the training part only: its first part trains, the rest scores"
    assert lines[1].split() == ["cell", "width", "dropout", "rate", "loss", "trained"]
    trials = [line.split() for line in lines[2 : 2 + 5 + 6]]  # five dropouts, then three of them twice more
    assert {trial[1] for trial in trials} == {"gru"} and {trial[2] for trial in trials} == {"8"}
    assert [trial[3] for trial in trials][0] == "0.2" and len({trial[3] for trial in trials}) == 5
    found = re.fullmatch(r"found  11 trainings of 5 models in 0:\d\d; best: gru of width 8, dropout [\d.]+, learning rate 0.02: "
                         r"loss [\d.]+ on the rest of the training part, [\d.]+ with the defaults", lines[13])  # fmt: skip
    assert found, lines[13]
    shown = run("info", "model.safetensors", cwd=tmp_path).out
    assert "search       11 trainings of 5 models in " in shown
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_json_has_the_trials(models, tmp_path):
    result = run("train", models / "text.txt", *SMALL, "--steps", 5, "--search", 1, *ONE_RATE, "--dropout", 0, "--json",
                 "--quiet", cwd=tmp_path)  # fmt: skip
    assert result.err == ""
    search = json.loads(result.out)["search"]
    assert [(trial["cell"], trial["width"], trial["dropout"], len(trial["losses"])) for trial in search["trials"]] == [
        ("gru", 8, 0, 3)
    ]
    assert search["best"] == "gru of width 8, dropout 0, learning rate 0.02"


def test_an_interrupted_search_goes_on(models, tmp_path):
    command = ["train", models / "text.txt", *SMALL, "--steps", 5, "--search", 1, *ONE_RATE]
    full = FullPipe(room=400)  # for the heading and the first of eleven trainings
    process = start(*command, cwd=tmp_path, stderr=full.theirs)
    record = tmp_path / "model.safetensors.checkpoint.search"
    while not record.exists() or record.read_text().count("\n") < 2:  # what is searched, and a training
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    err = full.rest()
    assert process.wait(PATIENCE) == 130
    assert err.endswith(b"stop   the same command with --resume continues the search\n")
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors.checkpoint.search"]
    refused = run(*command, cwd=tmp_path, expect=2)
    assert "--checkpoint model.safetensors.checkpoint.search is there already" in refused.err
    assert "--resume continues that search, --force replaces it" in refused.err
    result = run(*command, "--resume", cwd=tmp_path)
    assert "found  11 trainings of 5 models" in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_run_behind_a_search_goes_on(models, tmp_path):
    command = ["train", models / "text.txt", *SMALL, "--search", 1, *ONE_RATE, "--checkpoint", "c", "--json", "--quiet"]
    first = run(*command, "--steps", 5, cwd=tmp_path).json()
    again = run(*command, "--steps", 7, "--resume", cwd=tmp_path).json()
    assert again["steps"] == 7 and again["model"]["dropout"] == first["model"]["dropout"]
    assert again["search"]["trials"] == first["search"]["trials"]


@pytest.mark.parametrize("data, more, message", [
    ("text.txt", ["--init", "text.safetensors"], "--search cannot be combined with weights to continue from, which determine the model"),
    ("text.txt", ["--search", 0], "--search must be positive, not 0"),
    ("text.txt", ["--search", 1e-9], "--search: not one training ended within 6e-08 s; it needs more time"),
])  # fmt: skip
def test_refusals(models, tmp_path, data, more, message):
    more = [models / word if str(word).endswith(".safetensors") else word for word in more]
    options = [*TINY, "--steps", 3] if "--init" not in more else ["--steps", 3]
    search = [] if "--search" in more else ["--search", 1]
    refuses("train", models / data, *options, *search, *more, "-q", cwd=tmp_path, status=2, verb="train", message=message)


def test_no_search_without_an_end(tmp_path):
    result = run("train", "task:parity", "--search", 1, cwd=tmp_path, expect=2)
    assert "--search does not apply to a built-in task" in result.err
