"""Draws a report of `penstock bench`: for each case how many times our time each peer takes.

    plot.py REPORT.json PICTURE.svg

The ending of the second name says in which format. Nothing is written there: the picture goes to standard output, as one
line "bytes HEXADECIMAL", to the program that called.
"""

import io
import json
import pathlib
import sys


def rows_of(table):
    """(label, {name: ratio}) for each case of which we have a time."""
    rows = []
    for case in table["cases"]:
        timed = {entry["name"]: entry["ratio"] for entry in case["results"] if entry["outcome"] == "timed"}
        if case["results"][0]["outcome"] == "timed":
            sizes = ",".join(str(case[axis]) for axis in "BTIH")
            label = f"{case['cell']} {sizes} {case['pass']} {case['dtype']}, {case['threads']} thr"
            rows.append((label, dict(list(timed.items())[1:])))
    return rows


def main():
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with open(sys.argv[1], encoding="utf-8") as file:
        report = json.load(file)
    tables = [(table, rows_of(table)) for table in report["tables"]]
    tables = [(table, rows) for table, rows in tables if rows]
    if not tables:
        return "there is nothing to draw"
    names = sorted({name for _, rows in tables for _, ratios in rows for name in ratios})
    colours = {name: f"C{i}" for i, name in enumerate(names)}
    heights = [1.2 + 0.2 * len(rows) for _, rows in tables]
    figure, axes = pyplot.subplots(
        len(tables), 1, figsize=(10, sum(heights)), gridspec_kw={"height_ratios": heights}, squeeze=False
    )
    for axis, (table, rows) in zip(axes[:, 0], tables):
        for name in names:
            points = [(ratios[name], y) for y, (_, ratios) in enumerate(rows) if name in ratios]
            if points:
                axis.plot(*zip(*points), "o", color=colours[name], label=name, markersize=4)
        axis.axvline(1, color="black", linewidth=1)
        axis.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=7)
        axis.set_xscale("log")
        axis.invert_yaxis()
        axis.grid(axis="x", alpha=0.3)
        axis.set_title(f"{table['title']}: time, in times of penstock's", fontsize=9)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1))
    figure.tight_layout()
    picture = io.BytesIO()
    figure.savefig(picture, format=pathlib.Path(sys.argv[2]).suffix[1:] or "png")
    return f"bytes {picture.getvalue().hex()}"


if __name__ == "__main__":
    try:
        print(main())
    except Exception as error:  # one line for the program that called
        print(f"{type(error).__name__}: {error}".replace("\n", " "))
