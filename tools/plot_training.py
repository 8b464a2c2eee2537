#!/usr/bin/env python3
"""Draws a training run from its metrics.

    penstock train TEXT --metrics metrics.jsonl ...
    tools/plot_training.py metrics.jsonl training.svg [--line "gzip -9=2.63"] [--line "another=2.1"]
"""

import argparse
import json

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

PARTS = {"train": "#9ab7d3", "validation": "#c0392b"}


def read(path):
    with open(path) as file:
        records = [json.loads(line) for line in file]
    key = "bits_per_step" if any("bits_per_step" in record for record in records) else "loss"
    return {kind: [(r["seconds"], r[key]) for r in records if r["kind"] == kind and key in r] for kind in PARTS}, key


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("metrics")
    parser.add_argument("picture")
    parser.add_argument("--line", action="append", default=[], metavar="NAME=VALUE", help="a level to compare with")
    arguments = parser.parse_args()
    curves, key = read(arguments.metrics)
    figure, axes = plt.subplots(figsize=(7, 3.6), constrained_layout=True)
    axes.plot(*zip(*curves["train"]), color=PARTS["train"], linewidth=1.5, label="training")
    if curves["validation"]:
        axes.plot(*zip(*curves["validation"]), "o-", color=PARTS["validation"], markersize=5, label="held out")
    end = max(seconds for seconds, _ in curves["train"])
    for line in arguments.line:
        name, value = line.rsplit("=", 1)
        axes.axhline(float(value), color="#777777", linestyle="--", linewidth=1)
        axes.text(end, float(value), f"{name}: {float(value):.2f}", ha="right", va="bottom", color="#444444", fontsize=9)
    levels = sorted(value for _, value in curves["train"] + curves["validation"])
    axes.set_ylim(levels[0] * 0.95, levels[int(0.97 * len(levels))] * 1.05)
    axes.set_xlabel("seconds of training")
    axes.set_ylabel("bits per byte" if key == "bits_per_step" else "loss")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper right")
    figure.savefig(arguments.picture)


if __name__ == "__main__":
    main()
