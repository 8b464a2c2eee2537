"""A cell of one's own as a JSON file: train, then use the model without the file."""

import json

from program import CELL, TEXT, TINY, run


def test_a_model_of_a_custom_cell_needs_no_other_file(tmp_path):
    (tmp_path / "text.txt").write_bytes(TEXT)
    (tmp_path / "cell.json").write_text(json.dumps(CELL))
    run("train", "text.txt", "--cell", "cell.json", "--output", "m.safetensors", "--steps", 20, "--length", 16, "--quiet",
        *TINY, cwd=tmp_path)  # fmt: skip
    (tmp_path / "cell.json").unlink()
    assert "leaky-elman" in run("info", "m.safetensors", cwd=tmp_path).out
    assert len(run("generate", "m.safetensors", "-n", 20, cwd=tmp_path).bytes) >= 20
    run("export", "m.safetensors", "--output", "m.onnx", cwd=tmp_path)


def test_wrong_cells_are_refused_by_node_and_field(tmp_path):
    (tmp_path / "text.txt").write_bytes(TEXT)
    wrong = CELL | {"nodes": [*CELL["nodes"][:-1], {"op": "tanh", "of": [6]}]}
    (tmp_path / "wrong.json").write_text(json.dumps(wrong))

    def refused(name):
        result = run("train", "text.txt", "--cell", name, "--output", "m.safetensors", cwd=tmp_path, expect=1)
        assert result.out == ""
        return result.err

    assert "wrong.json: cell.nodes[6].of[0] must be 0 to 5, not 6" in refused("wrong.json")
    assert "--cell none.json: cannot read: No such file or directory" in refused("none.json")
    (tmp_path / "lstm.json").write_text(json.dumps(CELL | {"name": "lstm"}))
    assert '"lstm" is a cell that Penstock brings along: choose another name' in refused("lstm.json")
