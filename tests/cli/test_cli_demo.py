"""penstock demo: cells at work, norms of gradients before and after clipping, and how it refuses."""

import math

import pytest

from program import refuses, run


@pytest.mark.parametrize("cell", ["elman", "lstm"])
def test_a_larger_recurrent_matrix_makes_gradients_explode(cell):
    answer = run("demo", "clip", "--cell", cell, "--scale", 8, "--clip", 0.5, "--json").json()
    assert [norms["steps"] for norms in answer["norms"]] == [25, 50, 100, 200]
    usual = [norms["usual"]["before"] for norms in answer["norms"]]
    scaled = [norms["scaled"]["before"] for norms in answer["norms"]]
    assert max(usual) < 2 * min(usual)
    assert scaled[-1] > 1000 * usual[-1]
    for norms in answer["norms"]:
        for which in (norms["usual"], norms["scaled"]):
            assert which["after"] == min(which["before"], 0.5)


def test_a_table_says_what_clipping_does():
    result = run("demo", "clip")
    assert "W_hh x 3" in result.out
    assert "clipped to 1" in result.out
    assert "StableTrainer" in result.out
    assert result.out == run("demo", "clip").out
    assert run("demo", "clip", "--length", 1).out.count("not finite") == 0


SMALL = ["--width", 8, "--length", 30, "--threads", 1]


@pytest.mark.parametrize("cell", ["gru", "lstm", "mingru", "minlstm"])
def test_a_cell_is_shown_at_work(cell):
    answer = run("demo", "--model", cell, *SMALL, "--json").json()
    assert answer["cell"] == cell and answer["device"] == "cpu"
    assert len(answer["step"]["h"]) == 3 and all(abs(h) < 1 for h in answer["step"]["h"])
    assert answer["difference_of_steps"] < 1e-6
    scans = cell.startswith("min")
    assert (answer["difference_of_scan"] is None) != scans and (answer["difference_of_scan"] or 0) < 1e-6
    assert [each["steps"] for each in answer["seconds"]] == [64, 256, 1024, 4096]
    assert all(each["sequential"] > 0 and (each["scan"] is None) != scans for each in answer["seconds"])
    assert [len(curve) for curve in answer["outputs"]] == [30] * 3
    text = run("demo", "--model", cell, *SMALL).out
    for part in ("Equations", "One step", "A sequence of 30 steps", "Times on cpu", "Outputs of 3 units"):
        assert part in text
    assert ("a scan is impossible" in text) != scans and ("  c'" in text) == (cell == "lstm")


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


# The equations that the demo prints, for h = 0 and c = 0: gates of W x + b to h', with R h = its bias alone.
STEPS = {
    "gru": lambda w, r: (1 - sigmoid(w[1] + r[1])) * math.tanh(w[2] + sigmoid(w[0] + r[0]) * r[2]),
    "lstm": lambda w, r: sigmoid(w[3] + r[3])
    * math.tanh(sigmoid(w[0] + r[0]) * math.tanh(w[2] + r[2])),
    "mingru": lambda w, r: sigmoid(w[0]) * w[1],
    "minlstm": lambda w, r: sigmoid(w[1]) / (sigmoid(w[0]) + sigmoid(w[1])) * w[2],
}


@pytest.mark.parametrize("cell", STEPS)
def test_the_step_follows_the_equations(cell):
    step = run("demo", "--model", cell, *SMALL, "--seed", 3, "--json").json()["step"]
    weights, (x, y) = step["weights"], step["x"]
    matrix, bias = weights["weight_ih_l0"], weights["bias_ih_l0"]
    products = [matrix[2 * i] * x + matrix[2 * i + 1] * y + bias[i] for i in range(len(bias))]
    recurrent = weights.get("bias_hh_l0", [0.0] * len(bias))
    for unit in range(3):
        assert math.isclose(step["h"][unit], STEPS[cell](products[unit::3], recurrent[unit::3]), abs_tol=1e-6)


def test_without_a_word_a_demo_is_shown():
    shown, asked = (run("demo", *words, *SMALL, "--json").json() for words in ([], ["--model", "mingru"]))
    assert shown["step"] == asked["step"]
    assert "norms" in run("demo", "--scale", 2, *SMALL[:2], "--length", 4, "--json").json()


MATRIX = (
    "--cell must have a recurrent matrix (elman, gru, lstm, slstm): mingru has none, and its gradient passes through no "
    "products"
)


CLIP = "is for --model: 'clip' computes in double precision on one thread of the CPU"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mingru"], "'mingru' is a cell: 'penstock demo --model mingru' shows it"),
        (["cilp"], 'WHAT must be one of clip, not "cilp"; did you mean \'clip\'?'),
        (["--model", "ltsm"], '--model must be one of gru, lstm, mingru, minlstm, not "ltsm"; did you mean \'lstm\'?'),
        (["--model", "elman"], '--model must be one of gru, lstm, mingru, minlstm, not "elman"'),
        (["clip", "--model", "gru"], "--model shows a cell and 'clip' shows gradients: give one of them"),
        (["clip", "--device", "cuda"], f"--device {CLIP}"),
        (["clip", "--threads", 2], f"--threads {CLIP}"),
        (["clip", "--precision", "bf16"], f"--precision {CLIP}"),
        (["explode"], 'WHAT must be one of clip, not "explode"'),
        (["clip", "--cell", "mingru"], MATRIX),
        (["clip", "--scale", 0], "--scale must be a positive number, not 0"),
        (["clip", "--clip", "nan"], "--clip must be a finite number, not 'nan'"),
        (["clip", "--length", 0], "--length must be 1 to 100000, not 0"),
        (["clip", "--width", 100000], "--width must be 1 to 4096, not 100000"),
    ],
)
def test_mistakes_are_named(arguments, message):
    refuses("demo", *arguments, message=message, status=2, verb="demo")
