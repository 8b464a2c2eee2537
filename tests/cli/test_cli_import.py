"""penstock import: what it writes and says, and what it refuses."""

import pytest

from program import refuses, run

onnx = pytest.importorskip("onnx", reason="onnx is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("import")
    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("Mul", ["x", "rate"], ["z"]),
        helper.make_node("Add", ["z", "state"], ["y"]),
        helper.make_node("Abs", ["y"], ["next_state"]),
    ]
    inputs = [helper.make_tensor_value_info(name, real, shape) for name, shape in [("x", ["time"]), ("state", [1]), ("rate", [1])]]
    outputs = [helper.make_tensor_value_info(name, real, [1]) for name in ("y", "next_state")]
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "a.onnx").write_bytes(model.SerializeToString())
    return folder


def test_a_model_becomes_a_network(folder):
    text = run("import", "a.onnx", "--set", "rate=2", cwd=folder).out
    assert text.splitlines() == [
        "file         a.safetensors",
        "input        x  f32 [time]",
        "output       y",
        "state        state  f32 [1], next next_state",
        "parameters   1",
        "operators    1 Abs, 1 Add, 1 Mul",
    ]
    told = run("info", "a.safetensors", "--json", cwd=folder).json()
    assert told["kind"] == "network" and told["states"][0]["next"] == "next_state"
    assert "is           a network that 'penstock import' made" in run("info", "a.safetensors", cwd=folder).out


def test_what_does_not_fit_is_refused(folder):
    run("import", "a.onnx", "-o", "b.safetensors", "--state", "none", cwd=folder)
    refuses("import", "a.onnx", "-o", "b.safetensors", message="--output b.safetensors is there already, an imported network; --force replaces it, -o FILE writes another one", status=2, verb="import", cwd=folder)
    refuses("import", "a.onnx", "-o", "c.safetensors", "--set", "speed=2", message='--set: a.onnx has no input "speed", but x, state, rate', status=2, verb="import", cwd=folder)
    refuses("import", "a.onnx", "-o", "c.safetensors", "--set", "rate", message="--set must be INPUT=NUMBER, not 'rate'", status=2, verb="import", cwd=folder)
    refuses("import", "a.onnx", "-o", "c.safetensors", "--state", "x=z", message='--state: a.onnx has no output "z", but y, next_state', status=2, verb="import", cwd=folder)
    (folder / "text.onnx").write_text("text")
    refuses("import", "text.onnx", message="text.onnx: damaged at byte 1 of a part of 4 bytes: a field has an unknown encoding", status=1, verb="import", cwd=folder)
    result = run("predict", "b.safetensors", "a.csv", cwd=folder, expect=1)
    assert "b.safetensors is a network that was imported, not a model of 'penstock train'" in result.err
