"""Forecasts and labels of small public data: `penstock train` with its defaults, one command a file, beside what a
forecaster or a statistician would try first, each tuned by its own automatic procedure. Writes docs/results/quality.md.

    python3 -m venv build/quality
    build/quality/bin/pip install numpy scipy pandas statsmodels statsforecast scikit-learn lightgbm aeon sktime
    build/quality/bin/pip install --no-deps pmdarima                 # its data alone
    build/quality/bin/python bench/quality/quality.py build/release/penstock docs/results/quality.md

Results of peers are kept in build/quality/peers, ours (by quality_runs.py) in build/quality/ours; remove a file there to have
it anew. What stands on the page from "What falls short" on is written by people, and stays.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import numpy as np

from labels import SETS
from public_data import FRESH, SERIES, YEARLY, origins, series

HERE = pathlib.Path(__file__).resolve().parent

STRONG = ["ETS", "AutoARIMA", "ridge on lags"]
PEERS = ["seasonal naive", *STRONG, "Theta", "LightGBM on lags"]
CLASSIFIERS = ["1-NN with DTW", "logistic regression", "MiniRocket"]
BY_HAND = "## What falls short"  # the first section that is


def run(*command):
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


class Peers:
    """Results of other programs, from a folder or by asking them."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def kept(self, script, name):
        return self.folder / f"{pathlib.Path(script).stem}_{name}.json"

    def ask(self, script, names):
        """Asks for what is not known yet, all at once because imports take long. Each answer is kept as it comes."""
        missing = [name for name in names if not self.kept(script, name).exists()]
        if not missing:
            return
        with subprocess.Popen([sys.executable, HERE / script, *missing], stdout=subprocess.PIPE,
                              text=True) as process:
            for line in process.stdout:
                self.kept(script, json.loads(line)["name"]).write_text(line, encoding="utf-8")
        if process.returncode != 0:
            sys.exit(f"{script} has failed")

    def answer(self, script, name):
        return json.loads(self.kept(script, name).read_text(encoding="utf-8"))


def write_series(folder, name):
    """What quality_runs.py reads of a series."""
    one = series(name)
    folder.mkdir(parents=True, exist_ok=True)
    for part, values in (("train", one.values[:one.training]), ("all", one.values)):
        text = "value\n" + "".join(f"{value!r}\n" for value in values.tolist())
        (folder / f"{part}.csv").write_text(text, encoding="ascii")
    about = {"horizon": one.horizon, "season": one.season, "origins": origins(one).tolist()}
    (folder / "about.json").write_text(json.dumps(about), encoding="ascii")


def prepare(data, names, labelled):
    for name in names:
        if not (data / name / "about.json").exists():
            write_series(data / name, name)
    missing = [name for name in labelled if not (data / name / "test.csv").exists()]
    if missing:
        run(sys.executable, HERE / "labels.py", *missing, "--write", data)


def results_of(folder, name, seeds):
    """Of the seeds that there are."""
    kept = [folder / f"{name}_{seed}.json" for seed in range(seeds)]
    return [json.loads(path.read_text(encoding="utf-8")) for path in kept if path.exists()]


def short(value):
    return f"{value:.4g}"


def of(results, key):
    return [result[key] for result in results]


def mean_ratio(ratios):
    return float(np.exp(np.mean(np.log(ratios))))


def spread_of(values):
    """Mean (smallest – largest), or the one value that all seeds have."""
    mean = short(float(np.mean(values)))
    return mean if min(values) == max(values) else f"{mean} ({short(min(values))} – {short(max(values))})"


def summary(ratios):
    return f"geometric mean {mean_ratio(ratios):.3f}, median {np.median(ratios):.3f}, worst {max(ratios):.2f}"


class SeriesTable:
    """Rows of a table of series, and what is said of all of them."""

    def __init__(self, runs, peers):
        self.runs, self.peers = runs, peers
        self.ratios, self.naive, self.coverages = [], [], []
        self.alone = {peer: [] for peer in [*STRONG, "mean of three"]}

    def row(self, name):
        one, theirs, ours = series(name), self.peers.answer("statistical.py", name), self.runs(name)
        rmse, coverage = (float(np.mean(of(ours, key))) for key in ("rmse", "coverage"))
        best = min(theirs[peer] for peer in STRONG if peer in theirs)
        for peer, ratios in self.alone.items():
            ratios += [theirs[peer] / best] if peer in theirs else []
        self.ratios.append(rmse / best)
        self.naive.append(rmse / theirs.get("seasonal naive", theirs["last value"]))
        self.coverages.append(coverage)
        cells = [name, f"{one.training} + {len(one.values) - one.training}", f"{one.season} ({ours[0]['season']})", one.horizon,
                 spread_of(of(ours, "rmse")), *(short(theirs[peer]) if peer in theirs else "-" for peer in PEERS),
                 f"{rmse / best:.3f}", f"{self.naive[-1]:.3f}", f"{coverage:.0%}", f"{np.mean(of(ours, 'cpu_seconds')):.2g}"]
        return "| " + " | ".join(map(str, cells)) + " |"

    def said_of_all(self):
        count = len(self.ratios)
        near = sum(ratio <= 1.05 for ratio in self.ratios)
        within = sum(0.7 <= coverage <= 0.9 for coverage in self.coverages)
        return (f"\nRatio to the best of ETS, AutoARIMA and ridge: {summary(self.ratios)}; at most 1.05 on {near} of {count}, the "
                f"best on {sum(ratio <= 1 for ratio in self.ratios)}. By the same measure "
                + "; ".join(f"{peer}: {summary(ratios)}" for peer, ratios in self.alone.items()) + ".\n\n"
                f"Ratio to the seasonal naive forecast (the last value without a season): median {np.median(self.naive):.3f}, worst "
                f"{max(self.naive):.3f}; above 1.02 on {sum(ratio > 1.02 for ratio in self.naive)}. Intervals of 80 % cover "
                f"{np.mean(self.coverages):.0%} in the mean, {min(self.coverages):.0%} to {max(self.coverages):.0%}; 70 to 90 % on "
                f"{within} of {count}.\n")


def series_page(runs, peers, names, out):
    out.append("## Series\n\nRMSE over all origins and distances of the held-out part; smaller is better. *Mean of three* is the plain "
               "mean of the forecasts of ETS, AutoARIMA and\nridge: what a combination of them reaches that does not know which of them "
               "will be best.\n")
    groups = (("Months and quarters that no rule was made by", [name for name in FRESH if name not in YEARLY]),
              ("Years that no rule was made by", [name for name in FRESH if name in YEARLY]),
              ("Series that rules were made by", [name for name in SERIES if name not in FRESH and name not in YEARLY]),
              ("Years that rules were made by", [name for name in YEARLY if name not in FRESH]))
    for title, group in groups:
        chosen = [name for name in group if name in names and runs(name)]
        if not chosen:
            continue
        heads = ["series", "rows", "season (found)", "ahead", "penstock", *PEERS, "to the best of three", "to naive", "80 % covers",
                 "CPU s"]
        table = SeriesTable(runs, peers)
        out += [f"### {title}\n", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
        out += [table.row(name) for name in chosen]
        out.append(table.said_of_all())


def labels_page(runs, peers, names, out):
    out.append("## Labelled sequences\n\nAccuracy on the published test part; larger is better.\n")
    out.append("| set | sequences | steps | classes | penstock | " + " | ".join(CLASSIFIERS) + " | to the better of two | CPU s |")
    out.append("|---|" + "---|" * (len(CLASSIFIERS) + 6))
    points, rocket = [], []
    for name in names:
        theirs, ours = peers.answer("labels.py", name), runs(name)
        if not ours:
            continue
        accuracies = of(ours, "accuracy")
        mean = float(np.mean(accuracies))
        points.append(100 * (mean - max(theirs["1-NN with DTW"], theirs["logistic regression"])))
        rocket.append(100 * (mean - theirs["MiniRocket"]))
        out.append(f"| {name} | {theirs['sequences']} | {theirs['steps']} | {theirs['classes']} | {mean:.1%} "
                   f"({min(accuracies):.1%} – {max(accuracies):.1%}) | " +
                   " | ".join(f"{theirs[peer]:.1%}" for peer in CLASSIFIERS) +
                   f" | {points[-1]:+.1f} points | {np.mean(of(ours, 'cpu_seconds')):.1f} |")
    out.append(f"\nAgainst the better of 1-NN with DTW and logistic regression: worst {min(points):+.1f} points, mean "
               f"{np.mean(points):+.1f}; against MiniRocket: mean {np.mean(rocket):+.1f}.\n")


HEAD = """# Forecasts and labels by default

`penstock train FILE.csv` with its defaults (series: `--horizon` alone is given) on small public data, beside what a person would
try first, each tuned by its own automatic procedure on the training part. One command writes this page:

    build/quality/bin/python bench/quality/quality.py build/release/penstock docs/results/quality.md

*Series*: the last fifth of the rows is held out, and no run uses it for a choice. In it are up to 60 origins, evenly spaced, each
forecast with its whole horizon; parameters are those of the training part, and every forecast knows all rows before it. Peers are
statsforecast's AutoETS, AutoARIMA and AutoTheta (with a season above 24 rows, MSTL takes it out first), and ridge regression and LightGBM on
lags whose number and penalty a fifth of the training part chooses. Peers are told the season; Penstock finds it. Five seeds; on series with
fewer than 200 held-out rows the linear forecast stands alone, no layers are trained, and every seed says the same.

*What was looked at*: the rules of the linear forecast, of the layers' part in it and of intervals were made by results on the series of
the last two tables and on others, held-out parts included, so these two flatter Penstock. Those of the first two were looked at after
changes alone. They left out one change that gained elsewhere, kept another (regressions on values have no part where a series wanders
far), and spoke for shares of regressions and smoothings near a half. An [ARIMA as a third part](#an-arima-as-a-third-part) was tried because ETS and AutoARIMA had done
well on the first table, and was decided by other series; the second spoke for leaving it out below fifty rows. Their months and quarters are American figures of the same years as
some of the third table, and some are nearly the same series (four price indices; the gross income here, the product there), so they
count for fewer than seventeen.

*Labelled sequences*: split as published (digits: a fifth, at random), five seeds. The cell, the dropout and when runs end were chosen by the
test parts of UnitTest and ItalyPowerDemand, filters by cross-validation of training parts and by sets made for it. [What training decides](../training.md)
describes the defaults; [networks](networks.md) compares the recurrent layers alone with PyTorch's.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--series", default=",".join(SERIES), help="names, or nothing for none")
    parser.add_argument("--labelled", default=",".join(SETS), help="names, or nothing for none")
    parser.add_argument("--folder", type=pathlib.Path, default=HERE.parents[1] / "build" / "quality")
    arguments = parser.parse_args()
    names, labelled = (text.split(",") if text else [] for text in (arguments.series, arguments.labelled))
    folder, peers = arguments.folder, Peers(arguments.folder / "peers")
    prepare(folder / "data", names, labelled)
    peers.ask("statistical.py", names)
    peers.ask("labels.py", labelled)
    run(sys.executable, HERE / "quality_runs.py", arguments.program, folder / "data", folder / "ours", "--names",
        ",".join([*names, *labelled]), "--seeds", arguments.seeds, "--jobs", arguments.jobs)
    machine = json.loads(run(arguments.program, "info", "--json"))
    out = [HEAD, f"Penstock {machine['version']}, {machine['cpu']}, one thread: mean (smallest – "
                 "largest). Seconds are of CPU time for one training, on a machine that was shared with other work.\n"]

    def runs(name):
        return results_of(folder / "ours", name, arguments.seeds)

    if names:
        series_page(runs, peers, names, out)
    if labelled:
        labels_page(runs, peers, labelled, out)
    before = arguments.page.read_text(encoding="utf-8") if arguments.page.exists() else ""
    if BY_HAND in before:
        out.append(before[before.index(BY_HAND):])
    arguments.page.write_text("\n".join(out), encoding="utf-8")


if __name__ == "__main__":
    main()
