"""Compares reports of `penstock bench` with the yardsticks of the CPU backend (peers, limits, other figures of its own).
Prints a table in Markdown.

    penstock bench all --threads 1,2 --json all.json
    penstock bench layer --cells lstm,gru --dtypes bf16 --shapes 16x200x256x256,64x100x128x256,64x200x256x512 --json bf16.json
    python3 bench/layers/yardsticks.py all.json bf16.json

A figure has the worst and the best of all shapes, with the shape of the worst. "below" marks a missed yardstick.
"""

import json
import sys

OTHERS = ("torch", "torch-compile", "onnxruntime", "onednn")


class Reports:
    """All cases of some reports in which Penstock has a time."""

    def __init__(self, paths):
        self.cases = []
        for path in paths:
            with open(path, encoding="utf-8") as file:
                tables = json.load(file)["tables"]
            self.cases += [(table["name"], case) for table in tables for case in table["cases"] if seconds(case)]

    def select(self, table, cells, kind, dtype="f32", threads=1, rows=1, shape=None):
        """Cases of these cells, pass and dtype, of at least `rows` rows or of one shape (B, T, I, H)."""
        return [
            case
            for name, case in self.cases
            if name == table and case["cell"] in cells and (case["pass"], case["dtype"]) == (kind, dtype)
            and case["threads"] == threads and case["B"] >= rows and shape in (None, sizes(case))
        ]

    def threads(self):
        return sorted({case["threads"] for _, case in self.cases})


def sizes(case):
    return tuple(case[axis] for axis in "BTIH")


def seconds(case, name="penstock"):
    """The median of a contender, or None where it has no time."""
    return next((entry["median"] for entry in case["results"] if entry["name"] == name and "median" in entry), None)


def against(*names):
    """Ratio of the fastest of these peers' time to ours."""

    def ratio(case, _):
        times = [time for time in (seconds(case, name) for name in names) if time]
        return min(times) / seconds(case) if times else None

    return ratio


def bandwidth(case, _):
    """GB/s on each thread."""
    return case["limit"]["step_bytes"] / seconds(case) / case["threads"] / 1e9


def cost_of_lstm(gates):
    """Ratio of LSTM's time per gate to that of this cell, which has `gates` gates."""

    def ratio(case, reports):
        lstm = reports.select("layer", ["lstm"], case["pass"], threads=case["threads"], shape=sizes(case))
        return (seconds(lstm[0]) / 4) / (seconds(case) / gates) if lstm else None

    return ratio


def speed_up_of_bf16(case, reports):
    full = reports.select("layer", [case["cell"]], case["pass"], threads=case["threads"], shape=sizes(case))
    return seconds(full[0]) / seconds(case) if full else None


MINIMAL, GATED = ["mingru-log", "minlstm-log"], ["lstm", "gru"]
# Work, its yardstick, the least value, its unit, the value of a case, and which cases.
YARDSTICKS = [
    ("minGRU, minLSTM with positive candidate, forward", "6 x compiled PyTorch", 6, "x", against("torch-compile"),
     dict(table="layer", cells=MINIMAL, kind="forward")),
    ("the same, training", "5 x compiled PyTorch", 5, "x", against("torch-compile"),
     dict(table="layer", cells=MINIMAL, kind="training")),
    ("the same in bf16, forward", "3 x our f32", 3, "x", speed_up_of_bf16,
     dict(table="layer", cells=MINIMAL, kind="forward", dtype="bf16")),
    ("the scan alone", "30 GB/s a core", 30, "GB/s", bandwidth, dict(table="scan", cells=["scan"], kind="forward")),
    ("LSTM, GRU forward", "0.95 x the best peer", 0.95, "x", against(*OTHERS),
     dict(table="layer", cells=GATED, kind="forward")),
    ("LSTM, GRU forward bf16, B >= 16", "1.4 x the best peer", 1.4, "x", against(*OTHERS),
     dict(table="layer", cells=GATED, kind="forward", dtype="bf16", rows=16)),
    ("LSTM, GRU training", "the best peer", 1, "x", against(*OTHERS), dict(table="layer", cells=GATED, kind="training")),
    ("GRU training", "1.8 x PyTorch", 1.8, "x", against("torch"), dict(table="layer", cells=["gru"], kind="training")),
    ("LSTM, GRU training bf16, B >= 16", "1.2 x the best peer", 1.2, "x", against(*OTHERS),
     dict(table="layer", cells=GATED, kind="training", dtype="bf16", rows=16)),
    ("Elman forward", "LSTM's time a gate / 1.2", 1 / 1.2, "x", cost_of_lstm(1),
     dict(table="layer", cells=["elman"], kind="forward")),
    ("sLSTM forward", "LSTM's time a gate / 1.2", 1 / 1.2, "x", cost_of_lstm(4),
     dict(table="layer", cells=["slstm"], kind="forward")),
    ("streams", "2 x ONNX Runtime", 2, "x", against("onnxruntime"), dict(table="stream", cells=GATED, kind="step")),
]


def shown(reports, least, unit, value, which, threads):
    """The worst figure, its case and the best one; "below" in front if the worst misses the yardstick."""
    found = [(value(case, reports), case) for case in reports.select(threads=threads, **which)]
    found = sorted(((number, case) for number, case in found if number is not None), key=lambda pair: pair[0])
    if not found:
        return "-"
    (worst, case), (best, _) = found[0], found[-1]
    text = f"{worst:.3g} ({case['cell']} {','.join(map(str, sizes(case)))}) to {best:.3g} {unit}"
    return text if worst >= least else f"**below**: {text}"


def main():
    reports = Reports(sys.argv[1:])
    counts = reports.threads()
    print("| work | yardstick |" + "".join(f" {n} thread{'' if n == 1 else 's'} |" for n in counts))
    print("|---|---|" + "---|" * len(counts))
    for work, yardstick, least, unit, value, which in YARDSTICKS:
        figures = [shown(reports, least, unit, value, which, threads) for threads in counts]
        print(f"| {work} | {yardstick} | " + " | ".join(figures) + " |")


if __name__ == "__main__":
    main()
