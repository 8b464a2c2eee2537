"""The package has the types that its annotations and stubs say, and code that uses it can be checked by them."""

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("mypy", reason="mypy is not installed")
pytest.importorskip("penstock", reason="penstock is not installed")

ROOT = pathlib.Path(__file__).parents[2]


def mypy(tmp_path, *arguments, module="mypy"):
    options = [] if module == "mypy.stubtest" else ["--config-file", ROOT / "pyproject.toml", "--cache-dir", tmp_path]
    command = [sys.executable, "-m", module, *options, *arguments]
    return subprocess.run(list(map(str, command)), cwd=tmp_path, capture_output=True, text=True)


def test_the_package_keeps_to_its_annotations(tmp_path):
    result = mypy(tmp_path, "-p", "penstock")
    assert result.returncode == 0, result.stdout


def test_the_stub_is_of_the_extension_module(tmp_path):
    result = mypy(tmp_path, "penstock._core", module="mypy.stubtest")
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("example", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_examples_keep_to_the_types(example, tmp_path):
    result = mypy(tmp_path, "--check-untyped-defs", ROOT / "examples" / example)
    assert result.returncode == 0, result.stdout


def test_a_strict_checker_knows_what_is_public(tmp_path):
    (tmp_path / "right.py").write_text(
        """import numpy as np
import penstock
from penstock import GRUCell, Model, train

cell = penstock.LSTMCell(3, 5)
y, state = cell.forward(np.zeros((2, 7, 3), np.float32), mode="auto")
print(y.shape, penstock.reference, train, Model.load, GRUCell(3, 5).step(np.zeros(3, np.float32)).shape)
"""
    )
    result = mypy(tmp_path, "--strict", "right.py")
    assert result.returncode == 0, result.stdout


def test_a_wrong_argument_is_found(tmp_path):
    (tmp_path / "wrong.py").write_text(
        """import penstock

cell = penstock.LSTMCell("three", 5)
cell.forward([[0.0]], mode="quickly")
cell.no_such_method()
"""
    )
    result = mypy(tmp_path, "wrong.py")
    found = [line.partition("[")[2].rstrip("]") for line in result.stdout.splitlines() if "wrong.py:" in line]
    assert found == ["arg-type", "arg-type", "attr-defined"], result.stdout
