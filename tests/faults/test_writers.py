"""A sample of the campaign of writers.py against the Python package, and writers that it must find."""

import dataclasses
import io
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cli"))

import writers
import written


def test_writers_lose_nothing():
    pytest.importorskip("penstock", reason="penstock is not installed")
    table = io.StringIO()
    wrong = writers.campaign(written.python_writers(), kills=4, calls=2, sample=1, out=table)
    sys.stdout.write(table.getvalue())
    assert wrong == []


CARELESS = {
    "in place": "open('out/f', 'w').write(text)",
    "beside": "open('out/f.tmp', 'w').write(text); os.rename('out/f.tmp', 'out/f')",
    "quiet": "try: open('out/f', 'w').write(text)\nexcept OSError: pass",
}


@pytest.mark.parametrize("name, fault, message", [
    ("in place", "full disk", "f is torn: 0 bytes of 9000"),
    ("beside", "planted link", "a planted link was followed"),
    ("beside", "link", "the link is gone"),
    ("beside", "permissions", "a protected file was replaced"),
    ("beside", "FIFO, device", "the FIFO is gone"),
    ("quiet", "permissions", "lost, status 0"),
])  # fmt: skip
def test_careless_writers_are_found(monkeypatch, name, fault, message):
    monkeypatch.setattr(writers, "prepare", lambda folder: None)  # they read nothing
    script = f"import os, sys\ntext = sys.argv[1] * 9000\n{CARELESS[name]}"
    writer = written.Writer(name, "f", [sys.executable, "-c", script, "{v}"])
    wrong = writers.campaign([writer], faults=[fault], out=io.StringIO())
    assert any(message in line for line in wrong), wrong
