"""Forecasts and labels of small public data: `penstock train` with its defaults, one command a file, beside what a
forecaster or a statistician would try first, each tuned by its own automatic procedure. Writes docs/results/quality.md.

    python3 -m venv build/quality
    build/quality/bin/pip install numpy scipy pandas statsmodels statsforecast scikit-learn lightgbm aeon sktime
    build/quality/bin/pip install --no-deps pmdarima                 # its data alone
    build/quality/bin/python bench/quality.py build/release/penstock docs/results/quality.md

Results of peers are kept in build/quality/peers; remove a file there to have them anew.
"""

import argparse
import csv
import io
import json
import pathlib
import resource
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))
from labels import SETS  # noqa: E402
from public_data import SERIES, origins, rmse, series  # noqa: E402

STRONG = ["ETS", "AutoARIMA", "ridge on lags"]
PEERS = ["seasonal naive", *STRONG, "Theta", "LightGBM on lags"]
CLASSIFIERS = ["1-NN with DTW", "logistic regression", "MiniRocket"]


def run(*command):
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def cpu_seconds():
    """Of all programs that have ended: others' work on the machine does not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Peers:
    """Results of other programs, from a folder or by asking them."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def ask(self, script, name):
        kept = self.folder / f"{pathlib.Path(script).stem}_{name}.json"
        if not kept.exists():
            text = run(sys.executable, HERE / "peers" / script, name)
            kept.write_text(text, encoding="utf-8")
        return json.loads(kept.read_text(encoding="utf-8"))


class Penstock:
    def __init__(self, program, folder):
        self.program, self.folder = program, pathlib.Path(folder)
        self.model = self.folder / "model.safetensors"

    def train(self, data, seed, *options):
        before = cpu_seconds()
        result = json.loads(run(self.program, "train", data, "--seed", seed, "--threads", 1, "--json", "--quiet",
                                "--force", "--output", self.model, *options))
        return {**result, "cpu_seconds": cpu_seconds() - before}

    def forecasts(self, data):
        rows = csv.reader(io.StringIO(run(self.program, "predict", self.model, data, "--threads", 1)))
        return np.array(list(rows)[1:], dtype=float)

    def accuracy(self, data):
        return json.loads(run(self.program, "evaluate", self.model, data, "--threads", 1, "--json"))["files"][0]["accuracy"]


def write_series(path, values):
    path.write_text("value\n" + "".join(f"{value!r}\n" for value in values.tolist()), encoding="ascii")


def one_series(penstock, peers, name, seeds):
    one = series(name)
    rows = origins(one)
    write_series(penstock.folder / "train.csv", one.values[:one.training])
    write_series(penstock.folder / "all.csv", one.values)
    result = {"ours": [], "cpu_seconds": [], "one": one, "peers": peers.ask("statistical.py", name)}
    for seed in seeds:
        trained = penstock.train(penstock.folder / "train.csv", seed, "--horizon", one.horizon)
        result["ours"].append(rmse(penstock.forecasts(penstock.folder / "all.csv")[rows], one, rows))
        result["cpu_seconds"].append(trained["cpu_seconds"])
        result["season"] = trained["model"]["season"]
    return result


def short(value):
    return f"{value:.4g}"


def series_page(penstock, peers, names, seeds, out):
    results = [one_series(penstock, peers, name, seeds) for name in names]
    out.append("## Series\n\nRMSE over all origins and distances of the held-out part; smaller is better.\n")
    out.append("| series | rows | season (found) | ahead | penstock | " + " | ".join(PEERS) + " | to the best of three | CPU s |")
    out.append("|---|" + "---|" * (len(PEERS) + 6))
    ratios, naive = [], []
    for result in results:
        one, theirs = result["one"], result["peers"]
        ours = float(np.mean(result["ours"]))
        ratios.append(ours / min(theirs[peer] for peer in STRONG if peer in theirs))
        naive.append(ours / theirs.get("seasonal naive", theirs["last value"]))
        spread = f"{short(ours)} ({short(min(result['ours']))} – {short(max(result['ours']))})"
        cells = [short(theirs[peer]) if peer in theirs else "-" for peer in PEERS]
        out.append(f"| {one.name} | {one.training} + {len(one.values) - one.training} | {one.season} ({result['season']}) | "
                   f"{one.horizon} | {spread} | " + " | ".join(cells) +
                   f" | {ratios[-1]:.3f} | {np.mean(result['cpu_seconds']):.1f} |")
    out.append(f"\nRatio to the best of ETS, AutoARIMA and ridge: median {np.median(ratios):.3f}, worst {max(ratios):.3f}; "
               f"ours is the best on {sum(r <= 1 for r in ratios)} of {len(ratios)}. Ratio to the seasonal naive forecast "
               f"(the last value without a season): median {np.median(naive):.3f}, worst {max(naive):.3f}.\n")


def labels_page(penstock, peers, names, seeds, out):
    out.append("## Labelled sequences\n\nAccuracy on the published test part; larger is better.\n")
    out.append("| set | sequences | steps | classes | penstock | " + " | ".join(CLASSIFIERS) + " | to the better of two | CPU s |")
    out.append("|---|" + "---|" * (len(CLASSIFIERS) + 6))
    points, rocket = [], []
    for name in names:
        theirs = peers.ask("labels.py", name)
        run(sys.executable, HERE / "peers" / "labels.py", name, "--write", penstock.folder)
        accuracies, seconds = [], []
        for seed in seeds:
            seconds.append(penstock.train(penstock.folder / "train.csv", seed)["cpu_seconds"])
            accuracies.append(penstock.accuracy(penstock.folder / "test.csv"))
        ours = float(np.mean(accuracies))
        points.append(100 * (ours - max(theirs["1-NN with DTW"], theirs["logistic regression"])))
        rocket.append(100 * (ours - theirs["MiniRocket"]))
        out.append(f"| {name} | {theirs['sequences']} | {theirs['steps']} | {theirs['classes']} | {ours:.1%} "
                   f"({min(accuracies):.1%} – {max(accuracies):.1%}) | " +
                   " | ".join(f"{theirs[peer]:.1%}" for peer in CLASSIFIERS) +
                   f" | {points[-1]:+.1f} points | {np.mean(seconds):.1f} |")
    out.append(f"\nAgainst the better of 1-NN with DTW and logistic regression: worst {min(points):+.1f} points, mean "
               f"{np.mean(points):+.1f}; against MiniRocket: mean {np.mean(rocket):+.1f}.\n")


HEAD = """# Forecasts and labels by default

`penstock train FILE.csv` with its defaults (series: `--horizon` alone is given) on small public data, beside what a person would
try first, each tuned by its own automatic procedure on the training part. One command writes this page:

    build/quality/bin/python bench/quality.py build/release/penstock docs/results/quality.md

*Series*: the last fifth of the rows is held out, and no run uses it for a choice. (The parts of Penstock's linear forecast were
compared on these same series while it was written, so the table flatters it a little.) Up to 60 origins in it, evenly spaced, each
with its whole horizon; parameters are those of the training part, and every forecast knows all rows before it. Peers: statsforecast's
AutoETS, AutoARIMA and AutoTheta (with a season above 24 rows, MSTL takes it out first), ridge regression and LightGBM on lags
whose number and penalty a fifth of the training part chooses. Peers are told the season; Penstock finds it. *Labelled sequences*:
split as published (digits: a fifth, at random). [What training decides](../training.md) describes the defaults;
[networks](networks.md) compares the recurrent layers alone with PyTorch's.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--series", default=",".join(SERIES), help="names, or nothing for none")
    parser.add_argument("--labelled", default=",".join(SETS), help="names, or nothing for none")
    parser.add_argument("--peers", default=HERE.parent / "build" / "quality" / "peers")
    arguments = parser.parse_args()
    machine = json.loads(run(arguments.program, "info", "--json"))
    out = [HEAD, f"Penstock {machine['version']}, {machine['cpu']}, one thread, {arguments.seeds} seeds: mean (smallest – "
                 "largest). Seconds are of CPU time for one training.\n"]
    peers, seeds = Peers(arguments.peers), range(arguments.seeds)
    with tempfile.TemporaryDirectory() as folder:
        penstock = Penstock(arguments.program, folder)
        for page, names in ((series_page, arguments.series), (labels_page, arguments.labelled)):
            if names:
                page(penstock, peers, names.split(","), seeds, out)
    arguments.page.write_text("\n".join(out), encoding="utf-8")


if __name__ == "__main__":
    main()
