"""penstock train: what it does and says about runs that are unstable, and initial weights."""

import json
import re

import pytest

from program import TINY, refuses, run


def unstable(models, tmp_path, *more):
    return run("train", models / "text.txt", *TINY, "--steps", 400, "--length", 16, "--learning-rate", 1e30,
               "--weight-decay", 0, "--optimizer", "sgd", "--clip", 0, "--rollbacks", 4, *more, cwd=tmp_path,
               expect=1)  # fmt: skip


def test_a_run_that_stays_unstable_ends_with_a_sentence_and_a_model(models, tmp_path):
    result = unstable(models, tmp_path, "--quiet", "--metrics", "metrics.jsonl")
    lines = result.err.splitlines()
    assert re.match(
        r"penstock train: training is unstable: at step \d+ .*, after 4 rollbacks; the model has its last good weights; "
        r"try clipping: --clip 1$",
        lines[-1],
    )
    returns = [line for line in lines if "the run returns to its state after step 0" in line]
    assert len(returns) == 4 and "(1 of 4)" in returns[0] and "with a learning rate of at most" in returns[-1]
    run("evaluate", "model.safetensors", models / "text.txt", cwd=tmp_path)
    assert not (tmp_path / "model.safetensors.checkpoint").exists()
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    final = [record for record in records if record["kind"] == "final"][0]
    assert final["rollbacks"] == 4 and final["gave_up"].startswith("training is unstable")
    assert sum("returns to its state" in record.get("warning", "") for record in records) == 4
    run("report", "metrics.jsonl", cwd=tmp_path)


def test_its_result_says_so_too(models, tmp_path):
    answer = unstable(models, tmp_path, "--json").json()
    assert answer["rollbacks"] == 4 and answer["gave_up"].endswith("try clipping: --clip 1")
    summary = unstable(models, tmp_path, "--force").out
    assert "note   the run was unstable: 4 returns to a good state\n" in summary


@pytest.mark.parametrize("cell", ["lstm", "mingru"])
def test_a_stable_run_is_the_same_without_rollbacks(models, tmp_path, cell):
    options = [*TINY, "--steps", 220, "--length", 16, "--cell", cell, "--quiet"]
    weights = []
    for rollbacks in (0, 10):
        name = f"{rollbacks}.safetensors"
        run("train", models / "text.txt", *options, "--rollbacks", rollbacks, "-o", name, cwd=tmp_path)
        file = (tmp_path / name).read_bytes()
        weights.append(file[8 + int.from_bytes(file[:8], "little") :])  # behind the header, which notes the options
    assert weights[0] == weights[1]


def test_initial_weights_are_an_option(models, tmp_path):
    def losses(*more):
        options = [*TINY, "--steps", 3, "--length", 16, "--json", "--force", *more]
        return run("train", models / "text.txt", *options, cwd=tmp_path).json()["loss"]

    gru = [losses("--cell", "gru", *more) for more in ([], ["--initial-weights", "standard"],
           ["--initial-weights", "orthogonal"], ["--initial-weights", "uniform"], ["--chrono", 50])]  # fmt: skip
    assert gru[0] == gru[1] and len(set(gru)) == 4
    assert losses("--cell", "elman-relu", "--initial-weights", "identity") > 0
    assert losses("--cell", "gru", "--initial-weights", "orthogonal") == gru[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--initial-weights", "glorot"],
         '--initial-weights must be one of standard, uniform, orthogonal, identity, not "glorot"'),
        (["--initial-weights", "orthogonal"], "--initial-weights orthogonal needs a cell with a recurrent matrix, such as "
                                              "gru or lstm: mingru has none"),
        (["--chrono", 1.5], "--chrono must be above 2 steps, or 0, not 1.5"),
        (["--search", 1], "there is no option '--search': examples/search_settings.py searches settings with Optuna"),
        (["--rollbacks", -1], "--rollbacks must be at least 0, not -1"),
    ],
)  # fmt: skip
def test_mistakes_are_named(models, arguments, message):
    refuses("train", models / "text.txt", "-o", "/tmp/none.safetensors", *arguments, message=message, status=2,
            verb="train")  # fmt: skip
