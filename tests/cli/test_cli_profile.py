"""`penstock profile`: where a model's time goes."""

import json

import pytest

from program import run


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profile")
    (folder / "text").write_text("to be or not to be " * 60)
    run("train", "text", "--output", "model.safetensors", "--steps", "1", "--width", "16", "--batch", "2",
        "--length", "16", "--quiet", cwd=folder)
    return folder / "model.safetensors"


def test_table_has_every_op_and_its_share(model):
    out = run("profile", model, "--shape", "2x30", "--passes", "3").out
    assert out.startswith("A forward pass of 2x30 rows and steps on cpu, full: ")
    rows = [line.split() for line in out.splitlines()[3:]]
    ops = rows[: rows.index([])]
    assert {"mingru", "linear", "embedding"} <= {row[0] for row in ops}
    shares = [float(row[4].rstrip("%")) for row in ops if row[0] != "total"]
    assert sum(shares) == pytest.approx(100, abs=0.1 * len(shares))
    assert "Limits, measured in the same run: " in out


def test_json_of_training(model):
    profile = json.loads(run("profile", model, "--training", "--shape", "2x30", "--passes", "2", "--json").out)
    assert profile["training"] and profile["passes"] == 2 and profile["seconds"] > 0
    assert {"mingru.backward", "optimizer"} <= {op["op"] for op in profile["ops"]}


@pytest.mark.parametrize("cell", ["lstm", "mingru"])
def test_a_layer_alone(cell):
    out = run("profile", "--cell", cell, "--shape", "2x30x8x16", "--passes", "3", "--threads", "1").out
    assert out.startswith(f"A forward pass of {cell}, 2x30x8x16 rows, steps, inputs and units on cpu, full: ")
    profile = json.loads(run("profile", "--cell", cell, "--layers", "2", "--shape", "2x30x8x16", "--passes", "3",
                             "--threads", "2", "--training", "--json").out)  # fmt: skip
    assert profile["cell"] == cell and profile["seconds"] > 0
    backward = [op for op in profile["ops"] if op["op"].startswith(cell) and op["op"].endswith(".backward")]
    assert backward and all(op["seconds"] > 0 and op["operations"] > 0 for op in backward)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["MODEL", "--cell", "lstm"], "MODEL and --cell exclude each other"),
        (["--cell", "lstm", "--shape", "2x30"], "--shape must be BxTxIxH"),
        (["--cell", "lsmt", "--shape", "2x30x8x8"], "lsmt"),
        (["--cell", "lstm", "--shape", "2x30x8x9", "--heads", "2"], "heads"),
        (["MODEL", "--threads", "-1"], "threads must be 0"),
        ([], "MODEL"),
        (["MODEL", "--shape", "30"], "--shape must be BxT"),
        (["MODEL", "--shape", "0x30"], "rows must be at least 1, not 0"),
        (["MODEL", "--passes", "0"], "passes must be at least 1, not 0"),
    ],
)
def test_bad_arguments(model, arguments, complaint):
    arguments = [model if argument == "MODEL" else argument for argument in arguments]
    assert complaint in run("profile", *arguments, expect=2).err
