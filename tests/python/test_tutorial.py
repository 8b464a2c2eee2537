"""The notebook of the documentation runs as a reader would run it."""

import pathlib

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")

NOTEBOOK = pathlib.Path(__file__).parents[2] / "docs" / "tutorial.ipynb"


@pytest.fixture(scope="module")
def notebook():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    return notebook


def test_it_is_kept_without_outputs(notebook):
    for cell in notebook.cells:
        assert cell.cell_type == "markdown" or (cell.outputs == [] and cell.execution_count is None), cell.id


def test_it_runs(notebook, tmp_path):
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}})
    ran = client.execute()
    outputs = [output for cell in ran.cells for output in cell.get("outputs", [])]
    printed = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
    assert "lstm     accuracy at 256 bits: 100.0%" in printed and "mingru   accuracy at 256 bits: 5" in printed
    assert "layer of mingru: B = 1, T = 16384" in printed
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 4
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
