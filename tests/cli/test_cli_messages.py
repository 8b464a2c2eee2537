"""Models that cannot be opened, outputs that are standard output, and reports that are complete and said once."""

import re
import socket

from program import PATIENCE, TINY, refuses, run, start

QUICK = [*TINY, "--steps", 2, "--length", 8]


def test_a_model_that_cannot_be_opened_is_not_called_data(models, tmp_path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "m.safetensors"))  # which nobody can open as a file, not even root
    reason = "cannot read 'm.safetensors': No such device or address"
    for verb, words in (("predict", [models / "series.csv"]), ("evaluate", [models / "series.csv"]), ("export", []),
                        ("predict", []), ("generate", []), ("why", [])):  # fmt: skip
        refuses(verb, "m.safetensors", *words, message=reason, status=1, verb=verb, cwd=tmp_path)
    listener.close()


def test_standard_output_is_not_a_file_to_write(models, tmp_path):
    for words in (["export", models / "text.safetensors", "-o"], ["report", models / "text.safetensors", "-o"],
                  ["predict", models / "series.safetensors", models / "series.csv", "-o"],
                  ["train", models / "text.txt", *QUICK, "-o"], ["stream", models / "text.safetensors", "--state"]):
        with open(tmp_path / "out", "wb") as out:
            process = start(*words, "/dev/stdout", cwd=tmp_path, stdout=out)
            _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 2 and b"must name a file, not /dev/stdout" in said, said
        assert (tmp_path / "out").read_bytes() == b"" and [path.name for path in tmp_path.iterdir()] == ["out"]
    with open(tmp_path / "out", "wb") as out:  # another open file
        command = ["stream", models / "text.safetensors", "--state", "/dev/stderr"]
        process = start(*command, cwd=tmp_path, stderr=out)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    said = (tmp_path / "out").read_text()
    assert "it names an open file; name a file of a folder" in said and "mkdir" not in said


def test_the_end_of_a_run_is_reported_once(models, tmp_path):
    for data in ("text.txt", "series.csv", "labelled.csv"):
        said = run("train", models / data, *TINY, "--steps", 6, "--validate-steps", 2, "--force", cwd=tmp_path).err
        assert len(re.findall(r"^100 %", said, re.MULTILINE)) <= 1, said


def test_a_report_of_a_model_alone_says_what_is_missing(models, tmp_path):
    model = models / "series.safetensors"
    said = run("report", model, cwd=tmp_path).err
    assert said == f"note: {model} is a model, so the report has no scores and no forecasts of it; --data FILE adds them\n"
    assert run("report", model, "--data", models / "series.csv", cwd=tmp_path).err == ""
