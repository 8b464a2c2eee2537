#!/usr/bin/env python3
"""Runs docs/tutorial.ipynb and keeps its outputs in it; needs nbclient, ipykernel, Matplotlib and Penstock."""

import pathlib
import tempfile

import nbclient
import nbformat

NOTEBOOK = pathlib.Path(__file__).resolve().parents[1] / "docs" / "tutorial.ipynb"


def run(notebook):
    """Runs a notebook in an empty folder. Returns it without what differs from run to run beside the outputs."""
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        ran = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    for cell in ran.cells:
        cell.metadata.pop("execution", None)
    ran.metadata["language_info"] = {"name": "python"}
    return ran


if __name__ == "__main__":
    nbformat.write(run(nbformat.read(NOTEBOOK, as_version=4)), NOTEBOOK)
