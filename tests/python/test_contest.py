"""bench/contest.py: what is timed, what is not, and how a row tells. The packages themselves are not needed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH / "contest"))
import measuring  # noqa: E402
from measuring import OURS, Contender  # noqa: E402

EXACT = torch.linspace(-1, 1, 24, dtype=torch.double).reshape(1, 4, 6)
now = [0.0]  # seconds, of a clock that only calls move
SETTINGS = measuring.Settings("cpu", 1, 0.001, quick=True, clock=lambda: now[0])


def after(ms, result):
    def call():
        now[0] += 1e-3 * ms
        return result

    return call


def rows_of(*contenders, training=None):
    return measuring.compare("a layer", contenders, EXACT, training, SETTINGS)


def test_a_wrong_result_gets_no_time():
    right, wrong = EXACT.float(), EXACT.float() * 1.01
    (row,) = rows_of(Contender(OURS, after(1, right)), Contender("peer", after(1, wrong)))
    assert "| peer | no time: wrong: off by 1.0e-02 |" in row
    (row,) = rows_of(Contender(OURS, after(1, wrong)), Contender("peer", after(1, right)))
    assert row == "| a layer, forward | no time: wrong: off by 1.0e-02 | | | | |"


def test_a_result_of_another_shape_or_of_nan_is_wrong():
    for result in (EXACT.float()[:, 1:], torch.full_like(EXACT, torch.nan)):
        (row,) = rows_of(Contender(OURS, after(1, EXACT)), Contender("peer", after(1, result)))
        assert "no time: wrong" in row


def test_a_peer_that_fails_says_why():
    def failing():
        raise RuntimeError("no kernel | image")

    (row,) = rows_of(Contender(OURS, after(1, EXACT)), Contender("peer", failing))
    assert "| peer | no time: RuntimeError: no kernel / image | | |" in row


def test_a_lost_row_stands_in_bold_and_a_won_one_does_not():
    lost, won = (rows_of(Contender(OURS, after(ours, EXACT)), Contender("peer", after(5, EXACT)))[0] for ours in (9, 2))
    assert lost.startswith("| **a layer, forward** |") and "**peer**" in lost
    assert "**" not in won


def test_the_quickest_right_form_of_a_contender_counts():
    forms = [Contender("peer", after(9, EXACT)), Contender("peer", after(3, EXACT), kind="bf16"),
             Contender("peer", after(1, EXACT * 2), kind="f16")]
    (row,) = rows_of(Contender(OURS, after(1, EXACT)), *forms)
    assert ", bf16 |" in row and "no time" not in row


def test_training_compares_gradients_of_those_that_have_them():
    contenders = [Contender(OURS, after(1, EXACT), after(1, EXACT * 2)), Contender("peer", after(1, EXACT))]
    other = Contender("other", after(1, EXACT), after(1, EXACT * 2))
    rows = rows_of(*contenders, other, training=EXACT * 2)
    assert [row.split("|")[1].strip("* ") for row in rows] == ["a layer, forward"] * 2 + ["a layer, training"]


def test_another_cell_is_timed_if_its_result_is_finite():
    def row_of(result):
        return rows_of(Contender(OURS, after(2, EXACT)), Contender("other", after(5, result), read=None))[0]

    assert row_of(EXACT * 2).endswith("| 2.50 | 0e+00, – |")
    for result in (torch.full_like(EXACT, torch.nan), EXACT[:, 1:]):
        assert "| other | no time: wrong: another shape, or not finite |" in row_of(result)


def test_other_cells_have_times_beside_a_mingru():
    pytest.importorskip("penstock")
    import scans

    cells = {"LSTM of torch.nn": (torch.nn.LSTM(16, 16, batch_first=True), lambda y: y[0])}
    rows = scans.beside_mingru(cells, 2, 8, 16, measuring.Settings("cpu", 1, 0.001, quick=True))
    assert [row.count("no time") for row in rows] == [0, 0]
    assert all(re.search(r"bf16 \| [\d.]+(\*\*)? \| (\*\*)?\de-\d\d, –", row) for row in rows), rows


def test_a_package_that_is_missing_is_named():
    assert measuring.optional("no_such_module", "no-such-package") is None
    assert "no-such-package (not installed)" in measuring.left_out()


def test_the_command_checks_scans_of_this_machine():
    command = [sys.executable, BENCH / "contest.py", "--quick", "--check", "--only", "scans"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    ours = re.findall(r"^\| (.*) \| \| Penstock, f32 \| \| \| (\S+) \|$", result.stdout, re.M)
    assert len(ours) >= 4 and all(float(error) < 1e-5 for _, error in ours), result.stdout


def test_a_part_that_there_is_not_is_refused():
    result = subprocess.run([sys.executable, BENCH / "contest.py", "--only", "layer"], capture_output=True, text=True)
    assert result.returncode == 2 and "--only has layer; the parts are layers, floats" in result.stderr
