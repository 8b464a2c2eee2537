"""tune: plans by measurement, kept in a file that later processes plan by."""

import json

import pytest
from program import run

LAYER = ["--cell", "lstm", "--shape", "2x64x16x64", "--threads", "2"]
QUICK = ["--seconds", "0.002", "--candidates", "2", "--quiet"]


@pytest.fixture
def planned(monkeypatch):
    def plan_with(file):
        monkeypatch.setenv("PENSTOCK_PLANS", str(file))
        return run("plan", *LAYER)

    yield plan_with


def test_the_quickest_plan_is_kept_and_used(tmp_path, planned):
    file = tmp_path / "plans.json"
    answer = run("tune", *LAYER, *QUICK, "--output", file, "--json").json()
    assert answer["file"] == str(file)
    (work,) = answer["works"]
    assert work["work"].startswith("lstm B=2 H=64 heads=1 threads=2")
    assert work["tried"] == 2 and work["gain"] > 0
    assert work["planned"]["low"] <= work["planned"]["microseconds"] <= work["planned"]["high"]

    # Whatever was quickest here and now, what the file says is what runs.
    plans = json.loads(file.read_text())
    (machine,) = plans["machines"]
    plans["machines"][machine][work["work"]] = {
        "rule": "sequential",
        "variables": {"row_parts": 1, "channel_parts": 2},
        "microseconds": 10.0,
    }
    file.write_text(json.dumps(plans))
    text = planned(file).out
    assert "1 row part x 2 channel parts" in text
    assert f"the fastest plan that was measured ({file})" in text

    # Training measures a forward and a backward pass together, which share their plan.
    answer = run("tune", *LAYER, "--training", *QUICK, "--output", file, "--json").json()
    assert answer["works"][0]["op"] == "lstm, lstm.backward"


def test_plans_of_others_are_not_used_and_said_so(tmp_path, planned):
    file = tmp_path / "plans.json"
    run("tune", *LAYER, *QUICK, "--output", file)
    plans = json.loads(file.read_text())
    (machine,) = plans["machines"]
    file.write_text(json.dumps({**plans, "machines": {"another chip": {}}, "costs": {"another chip": {"launch": 2}}}))
    answer = planned(file)
    assert 'its plans were measured on "another chip"' in answer.err
    assert "plans are made by estimates" in answer.err and "2 row parts" in answer.out
    file.write_text(json.dumps({**plans, "version": "0.0.1"}))
    assert 'measured with Penstock "0.0.1"' in planned(file).err
    file.write_text("{")
    assert "plans must be one JSON object" in planned(file).err
    assert "there is nothing to read" in planned(tmp_path / "missing.json").err


def test_costs_are_measured_and_estimate_what_was_not(tmp_path, monkeypatch):
    file = tmp_path / "plans.json"
    # One thread: those that meet at a barrier say little on a machine that is busy.
    alone = ["--cell", "gru", "--shape", "4x64x64x64", "--threads", "1"]
    answer = run("tune", *alone, *QUICK, "--plans-only", "--output", file, "--json").json()
    assert answer["costs"]["changed"] == {}
    plans = json.loads(file.read_text())
    assert "costs" not in plans

    # A processor said to be a hundred times slower than any: whatever the clock says here, it will disagree.
    machine = answer["works"][0]["machine"]
    wrong = {"multiply_adds": 500.0, "gates": 5.0, "wave_rows": 17.0}
    file.write_text(json.dumps({**plans, "machines": {}, "costs": {machine: wrong}}))
    monkeypatch.setenv("PENSTOCK_PLANS", str(file))

    def estimate():
        (report,) = run("plan", "--cell", "gru", "--shape", "4x100x32x96", "--threads", "1", "--json").json()
        return report["microseconds"]

    before = estimate()
    costs = run("tune", *alone, *QUICK, "--output", file, "--json").json()["costs"]
    assert costs["off_after"] < costs["off_before"]
    assert costs["changed"]["multiply_adds"]["before"] == 500.0
    kept = json.loads(file.read_text())["costs"][machine]
    assert kept["multiply_adds"] == costs["changed"]["multiply_adds"]["after"] > 750
    assert kept["wave_rows"] == 17.0, "what was not measured stays"
    assert estimate() < before / 1.5

    text = run("tune", *alone, *QUICK, "--output", file).out
    assert "Costs of this machine" in text and "multiply_adds" in text


def test_a_file_that_is_none_of_plans_is_left_alone(tmp_path):
    file = tmp_path / "notes.json"
    file.write_text('{"dear": "diary"}')
    assert "there is no 'format'" in run("tune", *LAYER, *QUICK, "--output", file, expect=1).err
    assert file.read_text() == '{"dear": "diary"}'


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "MODEL or --shape is missing"),
        (["--shape", "1x2"], "--shape must be BxTxIxH"),
        ([*LAYER, "--seconds", "0"], "--seconds must be above 0"),
        ([*LAYER, "--candidates", "0"], "--candidates must be 1 to 1000, not 0"),
    ],
)
def test_mistakes_are_named(arguments, message):
    assert message in run("tune", *arguments, expect=2).err


def test_a_file_that_cannot_be_written_is_refused_before_measuring(tmp_path):
    (tmp_path / "folder").mkdir()
    result = run("tune", *LAYER, "--seconds", 3600, "--output", tmp_path / "folder", expect=1)
    assert f"cannot write '{tmp_path / 'folder'}': Is a directory" in result.err
