"""docs/coming_from.md: every line of ours in its tables runs, after the lines above it."""

import pathlib
import re
import shlex

import pytest
from program import TINY, run

import penstock

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "coming_from.md").read_text()
# Names that are mentioned in words, not lines to run.
NAMES = re.compile(r"[\w.]+(?:\(\.\.\.\))?|y\[:, t\]|x\[:, t\]")


def sections():
    for text in PAGE.split("\n## ")[1:]:
        title, _, body = text.partition("\n")
        setup = re.search(r"```python\n(.*?)```", body, re.S)[1]
        rows = [row.split(" | ") for row in re.findall(r"^\| (.*) \|$", body, re.M)]
        ours = [span for _, right in rows for span in re.findall(r"`([^`]+)`", re.sub(r"\[[^]]*\]\([^)]*\)", "", right))]
        yield pytest.param(setup, ours, id=title)


@pytest.mark.parametrize("setup, lines", list(sections()))
def test_lines_of_ours_run(setup, lines, tmp_path, monkeypatch):
    if "torch" in setup:
        pytest.importorskip("torch", minversion="2.10", reason="penstock.torch needs PyTorch 2.10")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").symlink_to(ROOT / "data")
    (tmp_path / "problem.csp").write_text("x in 1..3\n")
    names = {"penstock": penstock}
    exec(compile(setup, "setup", "exec"), names)
    lines = [line for line in lines if not NAMES.fullmatch(line)]
    assert len(lines) >= 8
    for line in lines:
        if line.startswith("penstock "):
            words = shlex.split(line)[1:]
            needs_a_gpu = "cuda" in words and not penstock.cuda.is_available()
            run(*words, *(TINY if words[0] == "train" else []), cwd=tmp_path, expect=1 if needs_a_gpu else 0)
        else:
            exec(compile(line, line, "exec"), names)

