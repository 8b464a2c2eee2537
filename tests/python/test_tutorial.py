"""The notebook of the documentation runs as a reader would run it."""

import pathlib
import re
import sys

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import run_tutorial  # noqa: E402

NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"


@pytest.fixture(scope="module")
def notebook():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    return notebook


def outputs_of(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def printed_by(notebook):
    return "".join(output.text for output in outputs_of(notebook) if output.get("name") == "stdout")


def kinds_of(notebook):
    """The outputs of each cell: names of streams, and types of what is displayed."""
    return [[output.get("name") or sorted(output.get("data", {})) for output in cell.get("outputs", [])] for cell in notebook.cells]


def test_its_outputs_are_those_of_a_run_and_small(notebook):
    kept = nbformat.from_dict(notebook)
    ran = run_tutorial.run(nbformat.read(NOTEBOOK, as_version=4))
    for each in (kept, ran):
        assert sum("image/png" in output.get("data", {}) for output in outputs_of(each)) == 4
        assert [output.text for output in outputs_of(each) if output.get("name") == "stderr"] == []
        printed = printed_by(each)
        assert "lstm     accuracy at 256 bits: 100.0%" in printed and "mingru   accuracy at 256 bits: 5" in printed
        assert re.search(r"^layer of mingru: B = 1, T = 16384", printed, re.MULTILINE)
    assert kinds_of(kept) == kinds_of(ran)
    counts = [cell.execution_count for cell in kept.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    # The same words; numbers and the plan are those of a machine.
    words = [re.sub(r"[\d.e+-]+", "N", printed_by(each).partition("layer of")[0]) for each in (kept, ran)]
    assert words[0] == words[1]
    assert NOTEBOOK.stat().st_size < 150_000
