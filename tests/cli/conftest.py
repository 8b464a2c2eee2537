"""One small model of each kind, trained once for all tests of the penstock program."""

import signal

import pytest

from program import LABELLED, SERIES, TEXT, TINY, run

# Under nohup SIGHUP is ignored, and so it would be by the programs that tests start.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """A folder with text.txt, series.csv, labelled.csv and a model of each, and of a task."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "text.txt").write_bytes(TEXT)
    (folder / "series.csv").write_text(SERIES)
    (folder / "labelled.csv").write_text(LABELLED)

    def train(data, name, *more):
        run("train", data, "--output", f"{name}.safetensors", "--quiet", *TINY, *more, cwd=folder)

    train("text.txt", "text", "--steps", 60, "--length", 32)
    train("series.csv", "series", "--steps", 60, "--length", 32, "--columns", "level,flow", "--horizon", 2)
    train("labelled.csv", "labelled", "--steps", 60)
    train("task:parity", "parity", "--steps", 200, "--cell", "lstm", "--task-length", 8, "--learning-rate", 0.02)
    return folder


@pytest.fixture(scope="session")
def runs(models, tmp_path_factory):
    """A folder with the metrics, events and models of a run of each kind."""
    folder = tmp_path_factory.mktemp("runs")
    for data in ("text.txt", "series.csv", "labelled.csv"):
        name = data.split(".")[0]
        more = {"series": ["--columns", "level,flow", "--horizon", 3, "--length", 16], "text": ["--length", 16],
                "labelled": ["--no-filters"]}
        run(
            "train",
            models / data,
            *TINY,
            *more.get(name, []),
            "--steps",
            12,
            "--validate-steps",
            4,
            "--quiet",
            "--metrics",
            f"{name}.jsonl",
            "--tensorboard",
            f"events/{name}",
            "-o",
            f"{name}.safetensors",
            cwd=folder,
        )
    return folder
