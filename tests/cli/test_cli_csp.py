"""penstock csp: the examples of docs/csp.md, what it prints, and how it refuses."""

import pathlib
import re
import shlex

import pytest

from program import refuses, run

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "csp.md").read_text()
PLAN = re.search(r"```text\n(.*?)```", PAGE, re.S)[1]


@pytest.fixture(name="folder", scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("csp")
    (folder / "plan.csp").write_text(PLAN)
    (folder / "tight.csp").write_text(PLAN + "stages >= 3\ntile >= 128\n")
    return folder


def test_the_page_shows_what_is_printed(folder):
    shown = re.findall(r"^\$ penstock ([^\n]*)\n(.*?)(?=^\$|\Z)", "".join(re.findall(r"```console\n(.*?)```", PAGE, re.S)),
                       re.S | re.M)
    assert len(shown) == 3
    for command, output in shown:
        assert run(*shlex.split(command), cwd=folder, expect=1 if "tight" in command else 0).out == output


def test_the_best_any_and_all(folder):
    best = "warps = 1, tile = 128, stages = 2, cost 65\n"
    everything = run("csp", "plan.csp", "--all", cwd=folder).out.splitlines(keepends=True)
    assert everything[0] == best
    assert len(everything) > 50
    costs = [int(line.rsplit(" ", 1)[1]) for line in everything]
    assert costs == sorted(costs)
    three = run("csp", "plan.csp", "--max", 3, cwd=folder).out.splitlines(keepends=True)
    assert [line.rsplit(" ", 1)[1] for line in three] == [line.rsplit(" ", 1)[1] for line in everything[:3]]
    assert set(three) <= set(everything)
    assert run("csp", "plan.csp", "--first", cwd=folder).out in everything


def test_standard_input():
    assert run("csp", "-", "--all", stdin="x in 1..9; y in 1..9; x * y == 12; x < y").out == "x = 2, y = 6\nx = 3, y = 4\n"
    assert run("csp", "-", stdin="").out == "nothing to choose, all holds\n"


HARD = "x in 1..2000000000; y in 1..2000000000; x * y == 1000000000000000003; x < y"


@pytest.mark.parametrize("problem, options, message", [
    (HARD, ["--limit-seconds", "0.2"], "no answer within 0.2 s: allow more time, or smaller domains"),
    (HARD + "; x != 3", ["--limit-memory", 1], "no answer within 1048576 bytes of memory: allow more, or smaller domains"),
    ("x in 1..2000; y in 1..2000", ["--all"], "there are more than 1000000 solutions: allow more, or ask for fewer of them"),
    ("x in 1..9; y in 1..9", ["--all", "--limit-solutions", 80], "there are more than 80 solutions"),
    ("x in 1..9999; y in 1..9999; z in 1..9999", ["--all", "--limit-memory", 1], "no answer within 1048576 bytes of memory"),
])
def test_a_limit_that_is_reached_is_no_answer(problem, options, message):
    stopped = run("csp", "-", *options, stdin=problem, expect=3)
    assert stopped.out == ""
    assert stopped.err.startswith(f"penstock csp: {message}")


def test_limits_that_are_not_reached_change_nothing():
    assert len(run("csp", "-", "--all", "--limit-solutions", 81, stdin="x in 1..9; y in 1..9").out.splitlines()) == 81
    assert len(run("csp", "-", "--max", 5, "--limit-solutions", 5, stdin="x in 1..9; y in 1..9").out.splitlines()) == 5
    refuses("csp", "-", "--limit-seconds", 0, message="--limit-seconds must be above 0, not 0", status=2, verb="csp")


def test_a_range_in_steps_of_one_is_a_range():
    largest = 4611686018427387903
    assert run("csp", "-", "--first", stdin=f"x in 1..{largest} step 1; x >= {largest}").out == f"x = {largest}\n"


def test_json(folder):
    answer = run("csp", "plan.csp", "--json", cwd=folder).json()
    assert answer == {"satisfiable": True,
                      "solutions": [{"variables": {"warps": 1, "tile": 128, "stages": 2}, "cost": 65}]}
    answer = run("csp", "plan.csp", "--json", "--explain", cwd=folder).json()
    assert {"variable": "warps", "value": 2, "cost": 66} in answer["alternatives"]
    assert {"variable": "tile", "value": 12, "excluded_by": ["whole tiles of 8"]} in answer["alternatives"]
    answer = run("csp", "tight.csp", "--json", cwd=folder, expect=1).json()
    assert answer["satisfiable"] is False
    assert [c["name"] for c in answer["conflict"]] == ["shared memory fits", "stages >= 3", "tile >= 128"]
    # A cost of more digits than a double has.
    big = run("csp", "-", "--json", stdin="x in 0..1; maximise 4611686018427387901 + x").json()
    assert big["solutions"][0]["cost"] == 4611686018427387902


def test_one_constraint_alone_can_be_the_conflict():
    result = run("csp", "-", stdin="x in 1..9\nno prime: x * x == 13", expect=1)
    assert result.out == "no solution; this cannot hold:\n  no prime: x * x == 13\n"
    assert result.err == ""


@pytest.mark.parametrize(
    "text, message",
    [
        ("x in 1..3\n y == 2", '-:2:2: "y" is not declared'),
        ("x in 1..3; x = 2", "-:1:14: '==' compares; '=' stands behind 'let' only"),
        ("x in 0..3\nfits: 7 % x == 1", "-:2:1: constraint \"fits\": the divisor 'x' can be 0"),
        ("\xff", '-:1:1: "\\xc3" means nothing here'),
    ],
)
def test_mistakes_in_the_text(text, message):
    refuses("csp", "-", stdin=text, message=message, status=2, verb="csp")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "FILE is missing"),
        (["plan.csp", "--max", 0], "--max must be at least 1, not 0"),
        (["plan.csp", "--first", "--all"], "--first and --all exclude each other"),
        (["plan.csp", "--all", "--max", 2], "--all and --max exclude each other"),
        (["plan.csp", "--explain", "--max", 2], "--explain and --max exclude each other"),
        (["plan.csp", "--al"], "there is no option '--al', did you mean '--all'?"),
    ],
)
def test_misuse(folder, arguments, message):
    refuses("csp", *arguments, cwd=folder, message=message, status=2, verb="csp")


def test_a_file_that_is_not_there():
    refuses("csp", "none.csp", message="none.csp: cannot read: No such file or directory", status=1, verb="csp")
