"""The package has the types that its annotations and stubs say, and code that uses it can be checked by them."""

import ast
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("mypy", reason="mypy is not installed")
pytest.importorskip("penstock", reason="penstock is not installed")

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    """A run of mypy over arguments, such as the name of a file whose text is given; NumPy is read once."""
    folder = tmp_path_factory.mktemp("types")

    def run(*arguments, **texts):
        for name, text in texts.items():
            (folder / f"{name}.py").write_text(text)
        options = ["--config-file", ROOT / "pyproject.toml", "--cache-dir", folder / "cache"]
        command = [sys.executable, "-m", "mypy", *options, *arguments]
        return subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True)

    return run


def test_the_package_keeps_to_its_annotations(mypy):
    result = mypy("-p", "penstock")
    assert result.returncode == 0, result.stdout


def public(names):
    return {name for name in names if not name.startswith("_")}


def test_the_stub_names_what_the_extension_module_has():
    from penstock import _core

    tree = ast.parse((pathlib.Path(_core.__file__).parent / "_core.pyi").read_text())
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    values = {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
    assert public(defined) | public(values) == public(dir(_core))
    for name, node in defined.items():
        if isinstance(node, ast.ClassDef):
            members = {member.name for member in node.body if isinstance(member, ast.FunctionDef)}
            names = [target for member in node.body if isinstance(member, ast.Assign) for target in member.targets]
            members |= {target.id for target in names if isinstance(target, ast.Name)}  # values of an enumeration
            assert public(members) == public(vars(getattr(_core, name))), name


def test_examples_keep_to_the_types(mypy):
    result = mypy("--check-untyped-defs", *sorted((ROOT / "examples").rglob("*.py")))
    assert result.returncode == 0, result.stdout


RIGHT = """import numpy as np
import penstock
from penstock import GRUCell, Model, train

cell = penstock.LSTMCell(3, 5)
y, state = cell.forward(np.zeros((2, 7, 3), np.float32), mode="auto")
print(y.shape, penstock.reference, train, Model.load, GRUCell(3, 5).step(np.zeros(3, np.float32)).shape)
"""


def test_a_strict_checker_knows_what_is_public(mypy):
    result = mypy("--strict", "right.py", right=RIGHT)
    assert result.returncode == 0, result.stdout


WRONG = """import penstock

cell = penstock.LSTMCell("three", 5)
cell.forward([[0.0]], mode="quickly")
cell.no_such_method()
"""


def test_wrong_arguments_are_found(mypy):
    result = mypy("wrong.py", wrong=WRONG)
    found = [line.rpartition("[")[2].rstrip("]") for line in result.stdout.splitlines() if "wrong.py:" in line]
    assert found == ["arg-type", "arg-type", "attr-defined"], result.stdout
