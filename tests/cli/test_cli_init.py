"""Training that goes on from a model: `train --init`."""

import numpy as np
import pytest

from program import TINY, refuses, run

QUICK = ["--batch", 4, "--threads", 1, "--steps", 6]  # the model's size is that of the one it goes on from


@pytest.mark.parametrize("kind, data", [("text", "text.txt"), ("series", "series.csv"), ("labelled", "labelled.csv")])
def test_a_model_is_trained_further(models, tmp_path, kind, data):
    origin, layers = models / f"{kind}.safetensors", []
    if kind == "labelled":  # of so few sequences filters alone are made
        origin, layers = tmp_path / "origin.safetensors", ["--no-filters"]
        run("train", models / data, *TINY, *layers, "--steps", 6, "-o", origin, cwd=tmp_path)
    result = run("train", models / data, "--init", origin, *QUICK, *layers, "--metrics", "m.jsonl", cwd=tmp_path)
    before, after = (run("info", path, "--json", cwd=tmp_path).json() for path in (origin, "model.safetensors"))
    for field in ("cell", "width", "blocks", "task", "inputs", "targets", "classes"):
        assert after.get(field) == before.get(field), field
    assert f"from   {origin}, checksum {before['checksum']}\n" in result.err
    assert "AdamW at 0.001\n" in result.err
    assert after["history"]["origin"] == f"{origin}, checksum {before['checksum']}" and before["history"]["origin"] == ""
    assert f"from         {origin}, checksum " in run("info", "model.safetensors", cwd=tmp_path).out


def test_no_step_leaves_the_model_as_it_was(models, tmp_path):
    command = ["train", models / "text.txt", "--init", models / "text.safetensors", "--threads", 1, "--batch", 4]
    run(*command, "--steps", 4, "--learning-rate", 1e-30, "--weight-decay", 0, "--optimizer", "sgd", cwd=tmp_path)
    text = ["generate", "--bytes", 40, "--temperature", 0, "--prompt", "the "]
    first = run(text[0], models / "text.safetensors", *text[1:], cwd=tmp_path).out
    assert run(text[0], "model.safetensors", *text[1:], cwd=tmp_path).out == first


@pytest.mark.parametrize(
    "option", [["--cell", "lstm"], ["--width", 16], ["--columns", "level"], ["--horizon", 2], ["--no-linear"],
               ["--norms", "all"],
               ["--transform", "none"], ["--calendar", "none"]])  # fmt: skip
def test_what_the_model_decides(models, tmp_path, option):
    origin = models / "series.safetensors"
    refuses("train", models / "series.csv", "--init", origin, *option, *QUICK, cwd=tmp_path, status=2, verb="train",
            message=f"{option[0]} must not be given with --init, which takes it from {origin}")  # fmt: skip


def test_rows_at_another_step(tmp_path):
    def write(name, hours):
        dates = (np.datetime64("2024-01-01T00:00") + np.timedelta64(i * hours, "h") for i in range(200))
        rows = (f"{date},{10 + i % 7}\n" for i, date in enumerate(dates))
        (tmp_path / name).write_text("time,load\n" + "".join(rows))

    write("hours.csv", 1), write("more.csv", 1), write("days.csv", 24)
    run("train", "hours.csv", *TINY, "--steps", 6, "-o", "m", cwd=tmp_path)
    run("train", "more.csv", "--init", "m", *QUICK, "-o", "n", cwd=tmp_path)
    result = run("train", "days.csv", "--init", "m", *QUICK, "-o", "n2", cwd=tmp_path, expect=1)
    assert "days.csv: rows are a day apart, and the model learnt rows an hour apart" in result.err
    assert not (tmp_path / "n2").exists()


def test_data_that_do_not_fit(models, tmp_path):
    origin = models / "series.safetensors"
    command = ["train", "other.csv", "--init", origin, *QUICK]
    (tmp_path / "other.csv").write_text("day,level\n" + "".join(f"{i},{i % 5}\n" for i in range(50)))
    result = run(*command, cwd=tmp_path, expect=2)
    assert 'the model\'s inputs: other.csv has no column "flow"' in result.err
    rows = [line.split(",") for line in (models / "series.csv").read_text().splitlines()[1:]]
    (tmp_path / "other.csv").write_text("level,flow\n" + "".join(f"{1000 * float(a)},{b}\n" for _, a, b in rows))
    result = run(*command, cwd=tmp_path, expect=1)
    assert 'other.csv: column "level" has mean ' in result.err and "it must be in the same unit" in result.err
    result = run("train", models / "labelled.csv", "--init", origin, *QUICK, cwd=tmp_path, expect=1)
    assert "the model is for series, not for labelled sequences" in result.err
    result = run("train", models / "text.txt", "--init", models / "nothing", *QUICK, cwd=tmp_path, expect=1)
    assert "nothing" in result.err
    assert [path.name for path in tmp_path.iterdir() if path.name != "other.csv"] == []


def test_an_ensemble_is_not_trained_further(models, tmp_path):
    command = ["train", models / "labelled.csv", "--no-filters"]
    run(*command, *TINY, "--steps", 2, "--seeds", 2, cwd=tmp_path)
    result = run(*command, "--init", "model.safetensors", "-o", "b", *QUICK, cwd=tmp_path, expect=1)
    assert "an ensemble of 2 cannot be trained further" in result.err


def test_a_run_goes_on_from_the_same_model_only(models, tmp_path):
    command = ["train", models / "text.txt", "--batch", 4, "--threads", 1, "--length", 16, "--checkpoint", "c"]
    init = ["--init", models / "text.safetensors"]
    run(*command, *init, "--steps", 3, cwd=tmp_path)
    assert run(*command, *init, "--steps", 5, "--resume", "--json", cwd=tmp_path).json()["steps"] == 5
    assert "text.safetensors, checksum" in run("info", "model.safetensors", cwd=tmp_path).out
    (tmp_path / "other").write_bytes((tmp_path / "model.safetensors").read_bytes())
    for other in (["--init", "other"], []):
        result = run(*command, *other, "--steps", 7, "--resume", cwd=tmp_path, expect=1)
        assert "c: checkpoint of another run: options." in result.err
