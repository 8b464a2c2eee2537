"""Measures forecasts and labels of small public data: `penstock train` with its defaults, one command per file, compared
with the usual alternatives, each tuned by its own automatic procedure. Updates docs/results/quality.md and, for the
series that were used in development, quality_development.md beside it.

    python3 -m venv build/quality
    build/quality/bin/pip install numpy scipy pandas statsmodels statsforecast scikit-learn lightgbm aeon sktime
    build/quality/bin/pip install --no-deps pmdarima                 # its data alone
    build/quality/bin/python bench/quality/quality.py build/release/penstock docs/results/quality.md

Results of peers are kept in build/quality/peers, those of Penstock (by quality_runs.py) in build/quality/ours. Remove a
file there to measure it again.

Both pages must exist. This script replaces their sections "Series" and "Labelled sequences" and the name of the machine;
all other text is written by hand and stays.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import textwrap

import numpy as np

from labels import SETS
from public_data import FRESH, SERIES, YEARLY, origins, series

HERE = pathlib.Path(__file__).resolve().parent

STRONG = ["ETS", "AutoARIMA", "ridge on lags"]
PEERS = ["seasonal naive", *STRONG, "Theta", "LightGBM on lags"]
CLASSIFIERS = ["1-NN with DTW", "logistic regression", "MiniRocket"]
SERIES_HEADING = "## Series\n"
LABELS_HEADING = "## Labelled sequences\n"
NEXT_HEADING = "## What falls short\n"  # of the section behind those
DEVELOPMENT_PAGE = "quality_development.md"
UNSEEN = (("Months and quarters not used for development", [name for name in FRESH if name not in YEARLY]),
          ("Years not used for development", [name for name in FRESH if name in YEARLY]))
USED = (("Series used in development", [name for name in SERIES if name not in FRESH and name not in YEARLY]),
        ("Years used in development", [name for name in YEARLY if name not in FRESH]))
MACHINE = re.compile(r"^Penstock \S+, .*?, one thread: .*?\n\n", re.MULTILINE | re.DOTALL)  # the paragraph
WIDTH = 118  # of lines of prose


def run(*command):
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


class Peers:
    """Results of other programs, from a folder or by running them."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def kept(self, script, name):
        return self.folder / f"{pathlib.Path(script).stem}_{name}.json"

    def ask(self, script, names):
        """Runs a script for the results that are missing, once for all of them because imports take long. Keeps each as it comes."""
        missing = [name for name in names if not self.kept(script, name).exists()]
        if not missing:
            return
        with subprocess.Popen([sys.executable, HERE / script, *missing], stdout=subprocess.PIPE,
                              text=True) as process:
            for line in process.stdout:
                self.kept(script, json.loads(line)["name"]).write_text(line, encoding="utf-8")
        if process.returncode != 0:
            sys.exit(f"{script} failed")

    def answer(self, script, name):
        return json.loads(self.kept(script, name).read_text(encoding="utf-8"))


def write_series(folder, name):
    """Writes the files of a series that quality_runs.py reads."""
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
    """Results of all seeds that were run."""
    kept = [folder / f"{name}_{seed}.json" for seed in range(seeds)]
    return [json.loads(path.read_text(encoding="utf-8")) for path in kept if path.exists()]


def short(value):
    return f"{value:.4g}"


def of(results, key):
    return [result[key] for result in results]


def mean_ratio(ratios):
    return float(np.exp(np.mean(np.log(ratios))))


def spread_of(values):
    """Mean (smallest – largest), or one value where all seeds agree."""
    mean = short(float(np.mean(values)))
    return mean if min(values) == max(values) else f"{mean} ({short(min(values))} – {short(max(values))})"


def summary(ratios, named=True):
    mean, median, worst = f"{mean_ratio(ratios):.3f}", f"{np.median(ratios):.3f}", f"{max(ratios):.2f}"
    return f"geometric mean {mean}, median {median}, worst {worst}" if named else f"{mean}, {median}, {worst}"


def paragraph(text, indent=""):
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


class SeriesTable:
    """Rows of a table of series, and the summary below it."""

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
        peers = [f"{peer} {summary(ratios, named=peer == STRONG[0])}" for peer, ratios in self.alone.items()]
        items = [f"**Relative to the best of ETS, AutoARIMA and ridge:** {summary(self.ratios)}. It is at most 1.05 on "
                 f"{near} of {count}, and the best on {sum(ratio <= 1 for ratio in self.ratios)}.",
                 f"By the same measure: {'; '.join(peers)}.",
                 "**Relative to the seasonal naive forecast** (the last value without a season): median "
                 f"{np.median(self.naive):.3f}, worst {max(self.naive):.3f}; above 1.02 on "
                 f"{sum(ratio > 1.02 for ratio in self.naive)}.",
                 f"**Intervals** of 80 % cover {np.mean(self.coverages):.0%} in the mean, {min(self.coverages):.0%} to "
                 f"{max(self.coverages):.0%}; 70 to 90 % on {within} of {count}."]
        return "\n" + "\n".join(paragraph("* " + item, indent="  ") for item in items) + "\n"


def series_page(runs, peers, names, groups, out):
    about = ("RMSE over all origins and distances of the hold-out set; smaller is better. *Mean of three* is the plain mean of the "
             "forecasts of ETS, AutoARIMA and ridge. It shows what a combination reaches without knowing in advance which of "
             "them will be best.")
    out.append(f"{SERIES_HEADING}\n{paragraph(about)}\n")
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
    out.append(f"{LABELS_HEADING}\nAccuracy on the published test part; larger is better.\n")
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
    out.append("\n" + paragraph("Compared with the better of 1-NN with DTW and logistic regression: worst "
                               f"{min(points):+.1f} points, mean {np.mean(points):+.1f}. Compared with MiniRocket: mean "
                               f"{np.mean(rocket):+.1f}.") + "\n")


def replaced(page, heading, next_heading, lines):
    """The page with the section of a heading replaced."""
    begin = page.index(heading)
    return page[:begin] + "\n".join(lines) + "\n" + page[page.index(next_heading, begin):]


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

    def runs(name):
        return results_of(folder / "ours", name, arguments.seeds)

    measured = (f"Penstock {machine['version']}, {machine['cpu']}, one thread: mean (smallest – largest). Seconds are CPU time of one "
                "training, on a machine that was shared with other work.")
    development = arguments.page.with_name(DEVELOPMENT_PAGE)
    for path, groups, behind in ((arguments.page, UNSEEN, LABELS_HEADING), (development, USED, NEXT_HEADING)):
        page = MACHINE.sub(lambda _: paragraph(measured) + "\n\n", path.read_text(encoding="utf-8"), count=1)
        if names:
            out = []
            series_page(runs, peers, names, groups, out)
            page = replaced(page, SERIES_HEADING, behind, out)
        if labelled and path == arguments.page:
            out = []
            labels_page(runs, peers, labelled, out)
            page = replaced(page, LABELS_HEADING, NEXT_HEADING, out)
        path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
