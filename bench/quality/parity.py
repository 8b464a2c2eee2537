"""State tracking: trains cells on the parity of 40 bits and scores them on 256.

    python3 bench/quality/parity.py build/release/penstock > docs/results/parity.md
"""

import json
import subprocess
import sys
import tempfile

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


def main():
    program = sys.argv[1]
    machine = json.loads(subprocess.run([program, "info", "--json"], check=True, capture_output=True, text=True).stdout)
    print("# Parity: what can track a state\n")
    print("Trained on the running parity of 40 random bits, answered at every step; scored on 1,024 fresh sequences of 40")
    print("and of 256 bits. One block of width 32 on one thread, three seeds, accuracy of the worst and the best.\n")
    print(f"    bench/quality/parity.py build/release/penstock > docs/results/parity.md\n\nPenstock {machine['version']}, "
          f"{machine['cpu']}, {machine['isa']}. Options: `{' '.join(OPTIONS)}`.\n")
    print("| cell | parameters | length 40 | length 256 | seconds to train |\n|---|---|---|---|---|")
    for cell in CELLS:
        short = [train(program, cell, seed, 40, OPTIONS) for seed in SEEDS]
        long = [train(program, cell, seed, 256, OPTIONS) for seed in SEEDS]
        spread = ["{:.1%} - {:.1%}".format(min(run[0] for run in runs), max(run[0] for run in runs))
                  for runs in (short, long)]
        print(f"| {cell} | {long[0][2]:,} | {spread[0]} | {spread[1]} | {min(run[1] for run in long):.1f} |", flush=True)
    accuracy = [train(program, "mingru", 0, length, DEEPER) for length in (40, 256)]
    print(f"| mingru, `{' '.join(DEEPER[:6])}` | {accuracy[1][2]:,} | {accuracy[0][0]:.1%} | {accuracy[1][0]:.1%} | "
          f"{accuracy[1][1]:.1f} |")
    print("""
## Why

Parity is one bit that flips whenever a 1 comes in. A network that computes it for any length must turn its state over
and back again, without limit: its next state has to be a *decreasing* function of the last one when the input is 1.

A cell with memory mixing can do that, since its gates and candidate see the previous state through the recurrent matrix,
whose entries may be negative. Once it has found the two stable states it stays in them, and the length no longer matters.

In a minimal RNN h_t = a_t h_{t-1} + b_t with a_t between 0 and 1 and a_t, b_t functions of the input alone. The next state
always *grows* with the last one: whatever the input, of two states the larger stays the larger. No choice of weights makes
a bit flip. A second layer, reading the first one's outputs, learns part of the trained length (last row) and does not
generalise. This is the price of gates that look at the input only, which is what makes the parallel scan possible: choose minGRU or minLSTM for throughput on long sequences, and
LSTM, GRU or sLSTM where a state has to be tracked.""")


if __name__ == "__main__":
    main()
