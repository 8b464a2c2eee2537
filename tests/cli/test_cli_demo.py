"""penstock demo: norms of gradients before and after clipping, and how it refuses."""

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


MATRIX = (
    "--cell must have a recurrent matrix (elman, gru, lstm, slstm): mingru has none, and its gradient passes through no "
    "products"
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "WHAT is missing"),
        (["explode"], "WHAT must be one of clip, not 'explode'"),
        (["clip", "--cell", "mingru"], MATRIX),
        (["clip", "--scale", 0], "--scale must be a positive number, not 0"),
        (["clip", "--clip", "nan"], "--clip must be a finite number, not 'nan'"),
        (["clip", "--length", 0], "--length must be 1 to 100000, not 0"),
        (["clip", "--width", 100000], "--width must be 1 to 4096, not 100000"),
    ],
)
def test_mistakes_are_named(arguments, message):
    refuses("demo", *arguments, message=message, status=2, verb="demo")
