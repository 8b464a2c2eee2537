"""State tracking: trains every cell on the parity of 40 bits and scores it on 40 and on 256 bits.

    python3 bench/quality/parity.py build/release/penstock > docs/results/parity.md
"""

import json
import subprocess
import sys
import tempfile
import textwrap

CELLS = ["elman", "gru", "gru-before", "lstm", "slstm", "mingru", "mingru-log", "minlstm", "minlstm-log"]
SEEDS = [0, 1, 2]
OPTIONS = ["--width", "32", "--blocks", "1", "--steps", "1000", "--batch", "32", "--learning-rate", "0.01",
           "--threads", "1"]
DEEPER = ["--width", "64", "--blocks", "2", "--steps", "3000", "--batch", "32", "--threads", "1"]


def train(program, cell, seed, length, options):
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "train", "task:parity", "--cell", cell, "--seed", str(seed), "--validation-length",
                   str(length), "--output", f"{folder}/model.safetensors", "--force", "--json", "--quiet", *options]
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        return result["validation"]["accuracy"], result["seconds"], result["model"]["parameters"]


def extremes(runs, cells):
    """The least and the largest accuracy of all runs of these cells."""
    accuracies = [run[0] for cell in cells for run in runs[cell]]
    return f"{min(accuracies):.1%}", f"{max(accuracies):.1%}"


def span(runs, cells):
    least, most = extremes(runs, cells)
    return least if least == most else f"{least} to {most}"


def main():
    program = sys.argv[1]
    machine = json.loads(subprocess.run([program, "info", "--json"], check=True, capture_output=True, text=True).stdout)
    short = {cell: [train(program, cell, seed, 40, OPTIONS) for seed in SEEDS] for cell in CELLS}
    long = {cell: [train(program, cell, seed, 256, OPTIONS) for seed in SEEDS] for cell in CELLS}
    deeper = [train(program, "mingru", 0, length, DEEPER) for length in (40, 256)]
    print(HEAD)
    for title, cells in GROUPS.items():
        print(f"| {title} | {span(short, cells)} | {span(long, cells)} |")
    print(METHOD, end="")
    setup = f"Penstock {machine['version']}, {machine['cpu']}, {machine['isa']}. Options: `{' '.join(OPTIONS)}`."
    print(textwrap.fill(setup, 118, break_on_hyphens=False) + "\n")
    print("| cell | parameters | length 40 | length 256 | seconds to train |\n|---|---|---|---|---|")
    for cell in CELLS:
        print(f"| {cell} | {long[cell][0][2]:,} | {' - '.join(extremes(short, [cell]))} | {' - '.join(extremes(long, [cell]))} | "
              f"{min(run[1] for run in long[cell]):.1f} |")
    print(f"| mingru, `{' '.join(DEEPER[:6])}` | {deeper[1][2]:,} | {deeper[0][0]:.1%} | {deeper[1][0]:.1%} | {deeper[1][1]:.1f} |")
    print(WHY, end="")


HEAD = """# Parity: what can track a state

Which cells learn the running parity of random bits. Cells with a recurrent matrix do, for any length; minimal RNNs do
not.

| cells | accuracy at 40 bits | at 256 bits |
|---|---|---|"""

GROUPS = {"Elman, GRU, LSTM, sLSTM": CELLS[:5], "minGRU, minLSTM, one block": CELLS[5:]}

METHOD = """
## How it was measured

    python3 bench/quality/parity.py build/release/penstock > docs/results/parity.md

The models are trained on the running parity of 40 random bits, with an answer at every step. They are scored on 1,024
new sequences of 40 and of 256 bits. One block of width 32 on one thread, three seeds; the table has the accuracy of
the worst and the best.

"""

WHY = """
## Why

Parity is one bit that flips at every 1. To compute it for any length, a network has to flip its state back and forth
without limit: its next state must be a *decreasing* function of the last one when the input is 1.

A cell with memory mixing can do that. Its gates and candidate see the previous state through the recurrent matrix,
which may have negative entries. Once it has found the two stable states it stays in them, and the length no longer
matters.

In a minimal RNN, h_t = a_t h_{t-1} + b_t with a_t between 0 and 1, and a_t and b_t are functions of the input alone.
The next state always *grows* with the last one: of two states the larger stays the larger, whatever the input. No
choice of weights makes a bit flip.

A second layer, which reads the first one's outputs, learns part of the trained length (last row) and does not
generalise. This is the price of gates that see only the input, and such gates make the parallel scan possible. Choose
minGRU or minLSTM for throughput on long sequences, and LSTM, GRU or sLSTM where a state has to be tracked.
"""


if __name__ == "__main__":
    main()
