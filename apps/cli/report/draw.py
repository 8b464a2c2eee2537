"""Draws charts of a report: answers each line of JSON, a chart, by "bytes HEXADECIMAL", a PNG file, or by a complaint."""

import io
import json
import sys

STYLES = {
    "solid": {"linewidth": 1.8},
    "faint": {"linewidth": 0.9, "alpha": 0.5},
    "dashed": {"linewidth": 1.8, "linestyle": (0, (4, 2))},
    "neutral": {"linewidth": 1.2, "color": "#333333"},
}
COLOURS = ["#2a78d6", "#d9591c", "#128a5f", "#a87400", "#c4437f", "#55721f", "#4a3aa7", "#c93334"]


def gaps(values):
    return [float("nan") if value is None else value for value in values]


def draw(pyplot, chart):
    figure, axis = pyplot.subplots(figsize=(11, 4) if chart["wide"] else (6, 4), dpi=150, layout="constrained")
    for band in chart["bands"]:
        colour = COLOURS[band["colour"] % len(COLOURS)]
        axis.fill_between(
            band["x"], gaps(band["low"]), gaps(band["high"]), color=colour, alpha=0.18, linewidth=0, label=band["name"]
        )
    for line in chart["lines"]:
        colour = COLOURS[line["colour"] % len(COLOURS)]
        marker = "o" if len(line["x"]) == 1 else None
        axis.plot(
            line["x"],
            gaps(line["y"]),
            **{"color": colour, "marker": marker, "label": line["name"], **STYLES[line["style"]]},
        )
    if chart["log"]:
        axis.set_yscale("log")
    if "ticks" in chart:
        axis.set_xticks(chart["ticks"]["places"], chart["ticks"]["labels"])
    axis.set_title(chart["title"], loc="left", fontsize=11)
    axis.set_xlabel(chart["x_name"])
    axis.set_ylabel(chart["y_name"])
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    if len(chart["lines"]) + len(chart["bands"]) > 1:
        axis.legend(fontsize=8, frameon=False)
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    pyplot.close(figure)
    return picture.getvalue()


def answer(line):
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        return f"bytes {draw(pyplot, json.loads(line)).hex()}"
    except ImportError as error:
        return f"{error}; pip install matplotlib"
    except Exception as error:  # one line for the program that called
        return f"{type(error).__name__}: {error}".replace("\n", " ")


for line in sys.stdin:
    print(answer(line), flush=True)
