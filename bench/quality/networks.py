"""Forecasts of sunspots and CO2 and labels of handwritten digits: compares the recurrent layers of `penstock train` with
PyTorch's nn.GRU and nn.LSTM of equal size and with naive forecasts. Prints tables of docs/results/networks.md.

    python3 bench/quality/networks.py build/release/penstock data          # a Python that has torch and numpy
    python3 bench/quality/networks.py build/release/penstock data --times  # CPU seconds alone, ours and PyTorch's in turns
"""

import csv
import io
import json
import pathlib
import resource
import subprocess
import sys
import tempfile

import numpy as np

from forecasts import errors, naive, read_column

PEERS = pathlib.Path(__file__).parent

SEEDS = [0, 1, 2, 3, 4]  # of networks with equal treatment of the series
FEWER_SEEDS = SEEDS[:3]  # of everything else
CELLS = [("mingru", "gru"), ("gru", "gru"), ("lstm", "lstm")]  # ours, and PyTorch's to compare with
SERIES = [("sunspots", 1, 132), ("sunspots", 12, 132), ("co2", 1, 52), ("co2", 52, 52)]  # column, horizon, season
HELD_OUT = 0.2
# The recurrent layers by themselves, for as many passes as PyTorch's and with the same inputs: dates are left out. The
# season only goes with the linear forecast and the score; given, it need not be found.
SERIES_ALONE = ["--no-linear", "--transform", "none", "--calendar", "none", "--epochs", 70, "--patience", 0, "--keep-last"]
DIGITS_ALONE = ["--no-filters", "--dropout", 0, "--validation-fraction", 0, "--epochs", 30]


def run(*command):
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def cpu_seconds():
    """Of all programs that have ended. All train on one thread, and others' work on the machine does not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def peer(script, *arguments):
    return json.loads(run(sys.executable, PEERS / script, *arguments))


class Penstock:
    """The program, with a folder for its models."""

    def __init__(self, program, folder):
        self.program, self.model = program, pathlib.Path(folder) / "model.safetensors"

    def train(self, data, cell, seed, *options):
        before = cpu_seconds()
        result = json.loads(run(self.program, "train", data, "--cell", cell, "--seed", seed, "--threads", 1, "--json",
                                "--quiet", "--force", "--output", self.model, *options))
        return {"parameters": result["model"]["parameters"], "cpu_seconds": cpu_seconds() - before}

    def predict(self, data, *options):
        """The rows that `penstock predict` writes, each as a list of fields."""
        return list(csv.reader(io.StringIO(run(self.program, "predict", self.model, data, *options))))[1:]


def spread(values, form):
    return f"{form.format(np.mean(values))} ({form.format(min(values))} – {form.format(max(values))})"


def print_row(name, results, measures):
    cells = [f"{results[0]['parameters']:,}", *(spread([r[m] for r in results], form) for m, form in measures),
             f"{np.mean([r['cpu_seconds'] for r in results]):.1f}"]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def series_table(penstock, folder, column, horizon, season):
    path = folder / f"{column}.csv"
    series = read_column(path, column)
    first = len(series) - int(len(series) * HELD_OUT) - 1
    form = "{:.2f}" if column == "sunspots" else "{:.3f}"
    measures = [("rmse", form), ("mae", form)]
    print(f"\n## {column}, {'1 row' if horizon == 1 else f'1 to {horizon} rows'} ahead\n")
    print("| | parameters | RMSE | MAE | CPU seconds to train |\n|---|---|---|---|---|")
    for name, forecasts in naive(series, horizon, season).items():
        result = errors(forecasts, series, first)
        print(f"| {name} | | {form.format(result['rmse'])} | {form.format(result['mae'])} | |")

    def ours(cell, seed, *options):
        result = penstock.train(path, cell, seed, "--columns", column, "--horizon", horizon, "--season", season,
                               *SERIES_ALONE, *options)
        forecasts = np.array(penstock.predict(path), dtype=float)
        return {**result, **errors(forecasts, series, first)}

    for cell, other in CELLS:
        results = [ours(cell, seed) for seed in SEEDS]
        print_row(f"penstock {cell}", results, measures)
        if cell == "mingru":
            print_row(f"penstock {cell}, `--no-changes`", [ours(cell, seed, "--no-changes") for seed in FEWER_SEEDS], measures)
        for name, view, seeds in ((", values", "value", FEWER_SEEDS), (", change from the last value", "change", FEWER_SEEDS),
                                  (", treated as ours", "treated", SEEDS)):
            results_of_peer = [
                peer("torch_series.py", path, column, "--cell", other, "--horizon", horizon, "--parameters",
                     results[0]["parameters"], "--seed", seed, "--view", view) for seed in seeds]
            print_row(f"PyTorch nn.{other.upper()}{name}", results_of_peer, measures)


def split_digits(folder, target, seed, pixels):
    """Writes train.csv and test.csv: a random fifth of the digits is held out. pixels: of one step."""
    with open(folder / "digits_sequences.csv", newline="", encoding="ascii") as file:
        rows = list(csv.DictReader(file))
    digits = [rows[i:i + 8] for i in range(0, len(rows), 8)]
    order = np.random.default_rng(seed).permutation(len(digits))
    held_out = int(len(digits) * HELD_OUT)
    for name, chosen in (("test.csv", order[:held_out]), ("train.csv", order[held_out:])):
        with open(target / name, "w", newline="", encoding="ascii") as file:
            writer = csv.writer(file)
            writer.writerow(["sequence", "label", *(f"p{i}" for i in range(pixels))])
            for digit in chosen:
                values = [row[f"p{i}"] for row in digits[digit] for i in range(8)]
                head = [digits[digit][0]["sequence"], digits[digit][0]["label"]]
                writer.writerows(head + values[i:i + pixels] for i in range(0, 64, pixels))


def digits_table(penstock, folder, scratch, pixels):
    print(f"\n## digits, {64 // pixels} steps of {'one pixel' if pixels == 1 else f'{pixels} pixels'}\n")
    print("| | parameters | accuracy | CPU seconds to train |\n|---|---|---|---|")
    measures = [("accuracy", "{:.1%}")]
    train, test = scratch / "train.csv", scratch / "test.csv"

    def ours(cell, seed):
        split_digits(folder, scratch, seed, pixels)
        result = penstock.train(train, cell, seed, *DIGITS_ALONE)
        said = {row[0]: row[1] for row in penstock.predict(test)}
        with open(test, newline="", encoding="ascii") as file:
            right = {row["sequence"]: row["label"] for row in csv.DictReader(file)}
        return {**result, "accuracy": np.mean([said[name] == label for name, label in right.items()])}

    def theirs(cell, seed, parameters):
        split_digits(folder, scratch, seed, pixels)
        return peer("torch_labelled.py", train, test, "--cell", cell, "--parameters", parameters, "--seed", seed)

    for cell, other in CELLS:
        results = [ours(cell, seed) for seed in FEWER_SEEDS]
        print_row(f"penstock {cell}", results, measures)
        print_row(f"PyTorch nn.{other.upper()}", [theirs(other, seed, results[0]["parameters"]) for seed in FEWER_SEEDS],
                  measures)


def times_row(name, cell, other, train, peer_of):
    """Median CPU seconds of trainings in turns, so other work on the machine affects both sides."""
    ours, theirs = [], []
    for seed in FEWER_SEEDS:
        result = train(cell, seed)
        ours.append(result["cpu_seconds"])
        theirs.append(peer_of(other, seed, result["parameters"])["cpu_seconds"])
    ratio = np.median(theirs) / np.median(ours)
    print(f"| {name} | {cell} | {spread_of_times(ours)} | nn.{other.upper()} | {spread_of_times(theirs)} | {ratio:.1f} |", flush=True)


def spread_of_times(seconds):
    return f"{np.median(seconds):.2f} ({min(seconds):.2f} – {max(seconds):.2f})"


def times_table(penstock, folder, scratch):
    print("\n| | penstock | CPU seconds | PyTorch | CPU seconds | times as long |\n|---|---|---|---|---|---|")
    for column, horizon, season in SERIES:
        path = folder / f"{column}.csv"
        options = ["--columns", column, "--horizon", horizon, "--season", season, *SERIES_ALONE]
        for cell, other in CELLS:
            times_row(f"{column}, {'1' if horizon == 1 else f'1 to {horizon}'} ahead", cell, other,
                      lambda cell, seed: penstock.train(path, cell, seed, *options),
                      lambda other, seed, parameters: peer(
                          "torch_series.py", path, column, "--cell", other, "--horizon", horizon, "--parameters", parameters,
                          "--seed", seed, "--view", "treated"))  # fmt: skip
    train, test = scratch / "train.csv", scratch / "test.csv"
    for pixels in (8, 1):
        split_digits(folder, scratch, 0, pixels)
        for cell, other in CELLS:
            times_row(f"digits, {64 // pixels} steps", cell, other,
                      lambda cell, seed: penstock.train(train, cell, seed, *DIGITS_ALONE),
                      lambda other, seed, parameters: peer(
                          "torch_labelled.py", train, test, "--cell", other, "--parameters", parameters, "--seed", seed))  # fmt: skip


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    machine = json.loads(run(program, "info", "--json"))
    print(f"Penstock {machine['version']}, {machine['cpu']}, {machine['isa']}")
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        penstock = Penstock(program, scratch)
        if "--times" in sys.argv[3:]:
            return times_table(penstock, folder, scratch)
        for column, horizon, season in SERIES:
            series_table(penstock, folder, column, horizon, season)
        for pixels in (8, 1):
            digits_table(penstock, folder, scratch, pixels)


if __name__ == "__main__":
    main()
