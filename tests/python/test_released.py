"""Files of every released version load in this one, and give the answers of their version bit for bit.

released.py makes the folders of tests/released and says what is asked of their files.
"""

import json
import math
import os
import platform
import re
import subprocess
import sys

import pytest

import released
from program import run

FOLDERS = sorted(path for path in released.RELEASED.iterdir() if path.is_dir())
CASES = [
    pytest.param(folder, case.stem, id=f"{folder.name}-{case.stem}")
    for folder in FOLDERS
    for case in sorted((folder / "answers").glob("*.jsonl"))
]


def released_answers(folder, case):
    return [json.loads(line) for line in (folder / "answers" / f"{case}.jsonl").read_text().splitlines()]


def known(answer, expected):
    """The answer without the fields that a later version has added."""
    if isinstance(answer, dict) and isinstance(expected, dict):
        return {name: known(value, expected[name]) for name, value in answer.items() if name in expected}
    if isinstance(answer, list) and isinstance(expected, list) and len(answer) == len(expected):
        return [known(*pair) for pair in zip(answer, expected)]
    return answer


def same(answers, expected):
    # Compared as text, which tells 0.0 from -0.0, and every number from its neighbours.
    return json.dumps(known(answers, expected), sort_keys=True) == json.dumps(expected, sort_keys=True)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors fuse multiply-adds in their baseline")
@pytest.mark.parametrize("folder, case", CASES)
def test_a_released_file_gives_its_answers(folder, case):
    command = [sys.executable, released.__file__, folder, case]
    done = subprocess.run(command, env={**os.environ, **released.ENVIRONMENT}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    expected = released_answers(folder, case)
    assert same(answers, expected), f"{known(answers, expected)} is not {expected}"


@pytest.mark.parametrize("folder, case", CASES)
def test_the_nearest_other_number_would_be_noticed(folder, case):
    expected = released_answers(folder, case)
    assert same(expected, expected)
    text = json.dumps(expected)
    numbers = list(re.finditer(r"-?\d+\.\d+(e-?\d+)?", text))
    assert numbers
    for number in numbers:
        neighbour = math.nextafter(float(number[0]), math.inf)
        changed = f"{text[: number.start()]}{neighbour}{text[number.end() :]}"
        assert not same(json.loads(changed), expected), number[0]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_released_plans_of_another_version_or_machine_are_not_used(folder, monkeypatch):
    command = ["plan", "--cell", "gru", "--shape", "1x20x8x8", "--threads", 1]
    for name, value in released.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    without = run(*command)
    monkeypatch.setenv("PENSTOCK_PLANS", str(folder / "plans.json"))
    given = run(*command)
    assert given.out == without.out
    assert re.fullmatch(
        rf"penstock: warning: {re.escape(str(folder))}/plans.json: its plans were measured "
        r"(with Penstock|on) \".*\", and this is .*; plans are made by estimates\n",
        given.err,
    )
