"""What the program makes of people's files on a GPU: the scores and the answers of a CPU, with the models of its
defaults, which hold more than layers."""

import math
import random
import wave

import pytest

from program import TEXT, run

TRAIN = ["--threads", 1, "--json", "--quiet", "--output"]


@pytest.fixture(scope="session", autouse=True)
def gpu():
    missing = run("info", "--json").json()["cuda"]["missing"]
    if missing:
        pytest.skip(f"there is no GPU: {missing}")


def series(rows, columns, missing=0):
    """Dated rows of cycles and noise; every `missing`th cell is empty."""
    drawn = random.Random(5)
    lines = ["date," + ",".join(f"x{c}" for c in range(columns))]
    for t in range(rows):
        values = [20 + 5 * math.sin(t / 12 * math.tau + c) + 0.01 * t + drawn.gauss(0, 1) for c in range(columns)]
        cells = [f"{value:.3f}" if not missing or (t + c) % missing else "" for c, value in enumerate(values)]
        lines.append(f"20{10 + t // 336}-{1 + t // 28 % 12:02}-{1 + t % 28:02}," + ",".join(cells))
    return "\n".join(lines) + "\n"


def labelled(sequences, columns):
    """Waves of three shapes."""
    drawn = random.Random(6)
    lines = ["sequence,label," + ",".join(f"x{c}" for c in range(columns))]
    for i in range(sequences):
        kind, phase = i % 3, drawn.random()
        for t in range(20 + i % 7):
            wave_at = math.sin((kind + 1) * t / 5 + phase)
            cells = (f"{wave_at * (1 + c) + drawn.gauss(0, 0.5):.3f}" for c in range(columns))
            lines.append(f"s{i},{'abc'[kind]}," + ",".join(cells))
    return "\n".join(lines) + "\n"


def sound(path, distort):
    drawn = random.Random(7)
    values = [0.5 * math.sin(t * t / 4e4) + 0.1 * drawn.gauss(0, 1) for t in range(6000)]
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        for value in values:
            value = math.tanh(3 * value) if distort else value
            file.writeframes(int(20000 * max(-1, min(1, value))).to_bytes(2, "little", signed=True))


KINDS = {
    "series": (series(1100, 1), ["--horizon", 12, "--steps", 60]),
    "columns": (series(400, 3), ["--horizon", 5, "--columns", "x0,x1,x2", "--target-columns", "x0,x2", "--steps", 40]),
    "gaps": (series(400, 2, 9), ["--horizon", 3, "--columns", "x0,x1", "--missing", "mask", "--steps", 40]),
    "known": (series(400, 2), ["--horizon", 4, "--known", "x1", "--steps", 40]),
    "lstm": (series(300, 1), ["--cell", "lstm", "--conv", 4, "--ffn", 1.5, "--horizon", 2, "--steps", 40]),
    "layers alone": (series(300, 1), ["--no-linear", "--horizon", 3, "--steps", 40]),
    "layers alone, no norm": (series(300, 2), ["--columns", "x0,x1", "--no-linear", "--norms", "between", "--conv", 3, "--steps", 40]),
    "members": (series(300, 1), ["--horizon", 2, "--seeds", 2, "--steps", 20]),
    "labels": (labelled(210, 1), ["--steps", 40]),
    "labels of columns": (labelled(180, 3), ["--cell", "minlstm", "--steps", 40]),
    "filters alone": (labelled(45, 2), []),
}


def numbers(text):
    return [cell for line in text.splitlines()[1:] for cell in line.split(",")]


def expect_alike(ours, wanted):
    """Numbers up to what one order of sums differs from another by, after a training; words exactly."""
    assert len(ours) == len(wanted)
    for got, want in zip(ours, wanted):
        try:
            value = float(want)
        except ValueError:
            assert got == want
        else:
            assert float(got) == pytest.approx(value, rel=2e-3, abs=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_files(kind, tmp_path):
    text, options = KINDS[kind]
    (tmp_path / "data.csv").write_text(text)
    scores = {}
    for device in ("cpu", "cuda"):
        command = ["train", "data.csv", *options, "--device", device, *TRAIN, f"{device}.st"]
        scores[device] = run(*command, cwd=tmp_path).json()["score"]
        assert scores[device], "the run has a score"
    flat = {device: [str(value) for value in leaves(score)] for device, score in scores.items()}
    expect_alike(flat["cuda"], flat["cpu"])
    # One model has the same answers everywhere, a row at a time as well.
    answers = {}
    for device in ("cpu", "cuda"):
        answers[device] = run("predict", "cuda.st", "data.csv", "--device", device, cwd=tmp_path).out
    expect_alike(numbers(answers["cuda"]), numbers(answers["cpu"]))
    if "label" not in text.splitlines()[0] and kind != "known":  # whose later rows a stream does not hold yet
        streamed = run("stream", "cuda.st", "--device", "cuda", cwd=tmp_path, stdin=text).out
        expect_alike(numbers(streamed), numbers(answers["cpu"]))


def leaves(value):
    if isinstance(value, dict):
        return [leaf for each in value.values() for leaf in leaves(each)]
    return [leaf for each in value for leaf in leaves(each)] if isinstance(value, list) else [value]


def test_texts_and_sounds(tmp_path):
    (tmp_path / "text.txt").write_bytes(TEXT)
    sound(tmp_path / "in.wav", distort=False)
    sound(tmp_path / "out.wav", distort=True)
    for data in (["text.txt", "--width", 32], ["in.wav", "--target", "out.wav"]):
        losses = {}
        for device in ("cpu", "cuda"):
            command = ["train", *data, "--steps", 30, "--device", device, "--precision", "f32", "--force", *TRAIN, f"{device}.st"]
            losses[device] = run(*command, cwd=tmp_path).json()["validation"]["loss"]
        assert losses["cuda"] == pytest.approx(losses["cpu"], rel=2e-3), data


def test_a_text_gets_what_a_gpu_is_good_for(tmp_path):
    (tmp_path / "text.txt").write_bytes(TEXT)
    (tmp_path / "long.txt").write_bytes((TEXT * (1_200_000 // len(TEXT) + 1))[:1_200_000])
    for device, precision in (("cpu", ""), ("cuda", "bf16")):
        says = run("train", "text.txt", "--steps", 5, "--device", device, "--force", cwd=tmp_path).err
        assert precision in says.split("on     ")[1].splitlines()[0]
    command = ["train", "long.txt", "--steps", 5, "--device", "cuda", *TRAIN, "long.st"]
    model = run(*command, cwd=tmp_path).json()["model"]
    assert (model["width"], model["blocks"], model["dropout"]) == (256, 4, 0.2)
    text = run("generate", "long.st", "--device", "cpu", "--bytes", 20, cwd=tmp_path).out
    assert len(text) >= 20  # a model of a GPU writes on a CPU
