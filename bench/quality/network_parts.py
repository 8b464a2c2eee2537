"""Forecasts of sunspots and CO2 over several parts of the series: compares our recurrent layers with PyTorch's of equal
size and treatment (networks.py). Both train on the first rows and are scored on those that follow. Prints Markdown.

    python3 bench/quality/network_parts.py build/release/penstock data            # a Python that has torch and numpy

Every part ends before the scored rows of the next one. The last fifth, which networks.py scores, is listed but not
pooled. Unknown options go to `penstock train`, to measure a change of our layers.
"""

import argparse
import csv
import json
import pathlib
import tempfile

import numpy as np

from networks import PEERS, SERIES, SERIES_ALONE, Penstock, run, spread
from forecasts import errors, read_column
import sys

PARTS = [(0.4, 0.5), (0.5, 0.6), (0.6, 0.7), (0.7, 0.8)]  # trained on the rows before the first, scored up to the second
LAST = (0.8, 1.0)
PEER_OF = {"mingru": "gru", "minlstm": "lstm", "gru": "gru", "lstm": "lstm"}


class Part:
    """The rows of a series up to the end of what is scored, as a file of its own."""

    def __init__(self, source, folder, column, bounds):
        self.column, (training, end) = column, bounds
        self.path = folder / f"{column}_{training:g}_{end:g}.csv"
        with open(source, newline="", encoding="utf-8") as file:
            head, *rows = csv.reader(file)
        rows = rows[:round(len(rows) * end)]
        # A little above, so that the product with the rows is not one less by rounding.
        held_out = len(rows) - round(len(rows) * training / end)
        self.held_out = (held_out + 0.01) / len(rows)
        with open(self.path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([head, *rows])
        self.series = read_column(self.path, column)
        self.first = len(self.series) - held_out - 1
        self.name = f"{training:.0%} to {end:.0%}"


class Comparison:
    """Both sides on one series, one distance and one cell. What PyTorch's side came to is kept in a folder."""

    def __init__(self, penstock, kept, column, horizon, season, cell, options):
        self.penstock, self.kept, self.cell, self.options = penstock, kept, cell, options
        self.column, self.horizon, self.season = column, horizon, season

    def ours(self, part, seed):
        result = self.penstock.train(part.path, self.cell, seed, "--columns", self.column, "--horizon", self.horizon, "--season",
                                     self.season, "--validation-fraction", part.held_out, *SERIES_ALONE, *self.options)
        forecasts = np.array(self.penstock.predict(part.path), dtype=float)
        return {**result, **errors(forecasts, part.series, part.first)}

    def theirs(self, part, seed, parameters):
        path = self.kept / f"{part.path.stem}_{self.horizon}_{PEER_OF[self.cell]}_{parameters}_{seed}.json"
        if not path.exists():
            path.write_text(run(sys.executable, PEERS / "torch_series.py", part.path, self.column, "--cell", PEER_OF[self.cell],
                                "--horizon", self.horizon, "--parameters", parameters, "--seed", seed, "--view", "treated",
                                "--validation-fraction", part.held_out), encoding="utf-8")
        return json.loads(path.read_text(encoding="utf-8"))

    def print_row(self, part, seeds, form):
        """Returns the ratio of the errors for every seed: ours to PyTorch's of the same seed."""
        ours = [self.ours(part, seed) for seed in seeds]
        theirs = [self.theirs(part, seed, ours[0]["parameters"]) for seed in seeds]
        rmse = [np.array([result["rmse"] for result in side]) for side in (ours, theirs)]
        seconds = [np.mean([result["cpu_seconds"] for result in side]) for side in (ours, theirs)]
        print(f"| {part.name} | {spread(rmse[0], form)} | {spread(rmse[1], form)} | {rmse[0].mean() / rmse[1].mean():.3f} | "
              f"{seconds[0]:.2f} | {seconds[1]:.2f} |", flush=True)
        return rmse[0] / rmse[1]


def geometric_mean(ratios, axis=None):
    return np.exp(np.log(ratios).mean(axis=axis))


def pooled(ratios):
    """Of ratios [parts, seeds]: their geometric mean, and how far it differs among parts and among seeds."""
    of_parts, of_seeds = geometric_mean(ratios, axis=1), geometric_mean(ratios, axis=0)
    return (f"{geometric_mean(ratios):.3f} (parts {of_parts.min():.3f} – {of_parts.max():.3f}, "
            f"seeds {of_seeds.min():.3f} – {of_seeds.max():.3f})")


def series_table(compare, parts, seeds):
    form = "{:.2f}" if compare.column == "sunspots" else "{:.3f}"
    ahead = "1 row" if compare.horizon == 1 else f"1 to {compare.horizon} rows"
    print(f"\n### {compare.cell}: {compare.column}, {ahead} ahead\n")
    print(f"| scored | penstock {compare.cell} | PyTorch nn.{PEER_OF[compare.cell].upper()} | ratio | CPU seconds | of PyTorch |\n"
          "|---|---|---|---|---|---|")
    earlier = np.array([compare.print_row(part, seeds, form) for part in parts[:len(PARTS)]])
    for part in parts[len(PARTS):]:
        compare.print_row(part, seeds, form)
    print(f"\nPooled over the parts before the last fifth: {pooled(earlier)}", flush=True)
    return earlier


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--cells", default="lstm,gru,mingru", help="cells of Penstock, separated by commas")
    parser.add_argument("--only", help="COLUMN:HORIZON,...: only these")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--no-last", action="store_true", help="do not score the last fifth")
    parser.add_argument("--kept", type=pathlib.Path, default=pathlib.Path("build/networks"), help="folder for PyTorch's results")
    arguments, options = parser.parse_known_args()
    arguments.kept.mkdir(parents=True, exist_ok=True)
    chosen = [one for one in SERIES if not arguments.only or f"{one[0]}:{one[1]}" in arguments.only.split(",")]
    bounds = PARTS if arguments.no_last else [*PARTS, LAST]
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        penstock = Penstock(arguments.program, scratch)
        for cell in arguments.cells.split(","):
            ratios = []
            for column, horizon, season in chosen:
                parts = [Part(arguments.data / f"{column}.csv", scratch, column, each) for each in bounds]
                compare = Comparison(penstock, arguments.kept, column, horizon, season, cell, options)
                ratios.append(series_table(compare, parts, range(arguments.seeds)))
            print(f"\n**{cell}, all series**: {pooled(np.concatenate(ratios))}", flush=True)


if __name__ == "__main__":
    main()
