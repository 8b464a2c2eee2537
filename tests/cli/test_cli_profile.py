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


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "MODEL"),
        (["MODEL", "--shape", "30"], "--shape must be BxT"),
        (["MODEL", "--shape", "0x30"], "rows must be at least 1, not 0"),
        (["MODEL", "--passes", "0"], "passes must be at least 1, not 0"),
    ],
)
def test_bad_arguments(model, arguments, complaint):
    arguments = [model if argument == "MODEL" else argument for argument in arguments]
    assert complaint in run("profile", *arguments, expect=2).err
