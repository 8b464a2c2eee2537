"""bench/layers/yardsticks.py: the right cases, ratios and verdicts from a report."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench" / "layers" / "yardsticks.py"


def case(cell, kind, hidden, times, rows=16):
    results = [{"name": name, "outcome": "timed", "median": time} for name, time in times.items()]
    return {"cell": cell, "B": rows, "T": 200, "I": hidden, "H": hidden, "pass": kind, "dtype": "f32", "threads": 1,
            "limit": {"step_bytes": 0}, "results": results + [{"name": "onnxruntime", "outcome": "skipped"}]}


class Yardsticks(unittest.TestCase):
    def rows(self, *cases):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"tables": [{"name": "layer", "cases": list(cases)}]}, file)
            file.flush()
            text = subprocess.run([sys.executable, SCRIPT, file.name], check=True, capture_output=True, text=True).stdout
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
        return {row[0]: row[2] for row in rows[2:]}

    def test_worst_and_best(self):
        rows = self.rows(case("lstm", "forward", 8, {"penstock": 2.0, "onednn": 4.0, "torch": 3.0}),
                         case("gru", "forward", 9, {"penstock": 1.0, "onednn": 2.5, "numpy": 0.1}))
        self.assertEqual(rows["LSTM, GRU forward"], "1.5 (lstm 16,200,8,8) to 2.5 x")
        self.assertEqual(rows["streams"], "-")

    def test_what_is_below_says_so(self):
        rows = self.rows(case("gru", "training", 8, {"penstock": 2.0, "torch": 3.0}),
                         case("lstm", "training", 8, {"penstock": 2.0, "onednn": 1.0}),
                         case("lstm", "training", 9, {"onednn": 0.5}))
        self.assertEqual(rows["GRU training"], "**below**: 1.5 (gru 16,200,8,8) to 1.5 x")
        self.assertEqual(rows["LSTM, GRU training"], "**below**: 0.5 (lstm 16,200,8,8) to 1.5 x")

    def test_cost_of_a_gate(self):
        rows = self.rows(case("lstm", "forward", 8, {"penstock": 4.0}), case("elman", "forward", 8, {"penstock": 0.8}),
                         case("slstm", "forward", 8, {"penstock": 8.0}))
        self.assertEqual(rows["Elman forward"], "1.25 (elman 16,200,8,8) to 1.25 x")
        self.assertEqual(rows["sLSTM forward"], "**below**: 0.5 (slstm 16,200,8,8) to 0.5 x")


if __name__ == "__main__":
    unittest.main()
