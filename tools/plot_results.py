#!/usr/bin/env python3
"""Draws the pictures of the pages of results from the tables on those pages, into docs/images.

    tools/plot_results.py            # draws them all; needs matplotlib
    tools/plot_results.py --check    # fails if a picture shows other numbers than its table, and draws nothing

A picture brings its own background, light or dark as the reader's screen is, and keeps the numbers that it shows in its
metadata, by which --check compares it with the page.
"""

import argparse
import dataclasses
import html
import json
import math
import pathlib
import re
import sys
import textwrap

from screens import COLOURS, svg_of

ROOT = pathlib.Path(__file__).resolve().parents[1]
OURS = "Penstock"


# ---- tables of a page ------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Table:
    heading: str
    header: list
    rows: list


def plain_text(text):
    return re.sub(r"[*`]", "", text).strip()


def cells(line):
    return [plain_text(cell) for cell in line.strip().strip("|").split("|")]


def tables(page):
    """The tables of a page in docs/."""
    return tables_of((ROOT / "docs" / page).read_text())


def tables_of(text):
    """The tables of a Markdown text, their headings and cells without marks."""
    found, heading, lines = [], "", []
    for line in text.splitlines() + [""]:
        if line.startswith("#"):
            heading = plain_text(line.lstrip("# "))
        if line.startswith("|"):
            lines.append(line)
        elif lines:
            found.append(Table(heading, cells(lines[0]), [cells(row) for row in lines[2:]]))
            lines = []
    return found


def table(page, heading, first=None, column=None):
    """The table below a heading, of several the one whose first column is called `first` and that has `column`."""
    for one in tables(page):
        if one.heading == heading and first in (None, one.header[0]) and (column is None or column in one.header):
            return one
    raise SystemExit(f"tools/plot_results.py: docs/{page} has no table '{first or ''}' below '{heading}'")


def number(cell, which=0):
    """A number of a cell such as "8.37 / 9.02 (2.1x)", or None if there is none."""
    found = re.findall(r"\d[\d,]*\.?\d*", cell)
    return float(found[which].replace(",", "")) if len(found) > which else None


def labelled(rows):
    """The rows with the whole label each, where a row says but "training" of the shape above it."""
    shape = ""
    for first, *rest in rows:
        if first.endswith("forward"):
            shape = first.removesuffix("forward")
            yield first, rest
        else:
            yield shape + first, rest


# ---- pictures --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Panel:
    title: str
    labels: list  # of rows of points, or of the places along the axis of lines
    series: dict  # name: a number or None for each label


@dataclasses.dataclass
class Picture:
    name: str
    kind: str  # "points": a row for each label, values along the axis; "shares": the same, per cent from 0 to 100;
    # "lines": labels along the axis, values upwards
    axis: str  # what the values are
    panels: list
    across: str = ""  # what the labels of lines are
    level: str = ""  # what the value 1 stands for, drawn as a line
    half: bool = False  # also shown at half the width of a page, so narrower with the same letters

    def content(self):
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))


def torch_on_the_cpu():
    panels = []
    for title in ("LSTM, float32", "LSTM, bfloat16", "GRU, float32", "GRU, bfloat16"):
        found = table("results/python.md", "torch.nn.LSTM and torch.nn.GRU, whole sequences", title)
        rows = list(labelled(found.rows))
        series = {"one thread": [number(rest[2]) for _, rest in rows]}
        if len(found.header) > 4:
            series["two threads"] = [number(rest[5]) for _, rest in rows]
        panels.append(Panel(title, [label for label, _ in rows], series))
    axis = "times as fast as torch.nn on the same CPU (rows, steps, inputs, hidden size)"
    return Picture("torch_cpu", "points", axis, panels, level="torch.nn", half=True)


def torch_on_a_gpu():
    found = next(one for one in tables("pytorch.md") if one.heading == "How fast")
    theirs, ours, labels, name = [], [], [], ""
    for first, *rest in found.rows:
        name = first.partition("),")[0] + ")" if ")," in first else name
        labels.append(re.sub(r"the same, packed.*", "training, packed", first.removeprefix(name).lstrip(", ")))
        labels[-1] = f"{name} {labels[-1]}".replace("forward and backward", "training").strip()
        theirs.append(number(rest[0], 1))
        ours.append(number(rest[1], 1))
    panel = Panel("bfloat16 autocast", labels, {OURS: ours, "torch.nn": theirs})
    return Picture("torch_gpu", "points", "milliseconds on an NVIDIA H200 (rows, steps, inputs to hidden size)", [panel], half=True)


def layers_on_the_cpu():
    found = table("results/cpu_layers.md", "One layer over whole sequences")
    peers = [name for name in found.header if name in ("torch", "torch-compile", "onnxruntime", "onednn")]
    panels = []
    for passes in ("forward f32", "training f32"):
        rows = [dict(zip(found.header, row)) for row in found.rows]
        rows = [row for row in rows if row["pass"] == passes and row["thr"] == "1"]
        rows = [row for row in rows if row["cell"] in ("lstm", "gru", "mingru-log", "minlstm-log")]
        labels = [f"{row['cell']} {row['B,T,I,H']}" for row in rows]
        panels.append(Panel(passes, labels, {peer: [number(row[peer], 1) for row in rows] for peer in peers}))
    axis = "time of each peer, in times of Penstock's; one thread (cell, B,T,I,H)"
    return Picture("layers_cpu", "points", axis, panels, level=OURS)


def layers_on_a_gpu():
    found = table("results/gpu_tables.md", "One layer over whole sequences")
    panels = []
    for passes in ("forward bf16", "training bf16", "forward f32", "training f32"):
        rows = [dict(zip(found.header, row)) for row in found.rows if row[2] == passes]
        values = {
            OURS: [number(row["penstock ms"]) for row in rows],
            "limit": [number(row["limit"]) for row in rows],
        }
        panels.append(Panel(passes, [f"{row['cell']} {row['B,T,I,H']}" for row in rows], values))
    return Picture("layers_gpu", "points", "milliseconds on an NVIDIA H200 (cell, B,T,I,H)", panels)


def flashrnn_on_a_gpu():
    """FlashRNN in turns with Penstock, and apart from that FlashRNN in a run of its own."""
    columns = {"forward": 0, "forward + backward": 1}
    same_run = Panel("same run (Triton kernels of FlashRNN)", [], {OURS: [], "FlashRNN": []})
    other_run = Panel("not the same run", [], {OURS: [], "FlashRNN": []})

    def add(panel, label, ours, theirs):
        panel.labels.append(label)
        panel.series[OURS].append(ours)
        panel.series["FlashRNN"].append(theirs)

    found = table("results/gpu_tables.md", "Networks with memory mixing", "cell", column="flashrnn")
    for row in (dict(zip(found.header, row)) for row in found.rows):
        heads = row["B,T,I,H"].rpartition(",")[2].replace("x", " x ")
        passes = "forward" if row["pass"].startswith("forward") else "forward + backward"
        if number(row["flashrnn"]):
            add(same_run, f"sLSTM {heads}, {passes}", number(row["penstock-recurrence"]), number(row["flashrnn"]))

    name = ""
    for what, ours, theirs, condition, _ in table("results/gpu.md", "On a GPU").rows:
        heads = re.match(r"LSTM, (\d+) heads? of (\d+),", what)
        name = f"LSTM {heads[1]} x {heads[2]}" if heads else name
        kernels, _, times = theirs.partition(":")
        if kernels.startswith("FlashRNN"):
            panel = other_run if "not the same run" in condition else same_run
            for passes, which in columns.items():
                if number(times, which):
                    add(panel, f"{name}, {passes}", number(ours, which), number(times, which))
    axis = "milliseconds on an NVIDIA H200, bfloat16, without the input product (16 rows, 1,024 steps, heads x units)"
    return Picture("flashrnn_gpu", "points", axis, [same_run, other_run], half=True)


def steps_of_a_stream():
    peers = table("results/streaming.md", "Against ONNX Runtime, oneDNN and torch")
    compiled = next(one for one in tables("results/streaming.md") if one.heading == "Against RTNeural")
    panels = []
    for cell in ("lstm", "gru"):
        rows = [dict(zip(peers.header, row)) for row in peers.rows if row[0].startswith(cell)]
        series = {
            name: [number(row[column]) for row in rows]
            for name, column in [
                (OURS, "Penstock (quartiles)"), ("onednn", "oneDNN"), ("onnxruntime", "ONNX Runtime"), ("torch", "torch"),
                ("limit", "limit"),
            ]
        }  # fmt: skip
        series["RTNeural"] = [number(row[2]) for row in compiled.rows if row[0].startswith(cell)]
        panels.append(Panel(cell, [row["cell I, H"].removeprefix(cell).strip() for row in rows], series))
    return Picture("streaming", "lines", "nanoseconds a step", panels, across="inputs, hidden size", half=True)


def scan_algorithms_on_a_gpu():
    found = table("results/gpu.md", "Algorithms")
    panels = []
    for first, steps, *times in found.rows:
        if first:
            panels.append(Panel(first, [], {name: [] for name in found.header[2:]}))
        panels[-1].labels.append(steps)
        for values, time in zip(panels[-1].series.values(), times):
            values.append(number(time))
    across = "steps of minGRU, forward, on an NVIDIA H200"
    return Picture("scan_algorithms_gpu", "lines", "microseconds", panels, across=across)


def layer_name(text):
    """Of a network or a layer: "mingru, 3 blocks" without its blocks."""
    return re.sub(r", \d blocks?", "", text)


def picture_of_papers(name, text):
    """The picture of a table of bench/papers.py. text: its Markdown, or a page with it."""
    headings = {"tracking": "State tracking", "recall": "Associative recall", "copying": "Selective copying",
                "digits": "Permuted digits", "characters": "Characters", "parallel": "Where each is parallel",
                "long": "Long sequences"}  # fmt: skip
    found = [one for one in tables_of(text) if one.heading.startswith(headings[name])]
    if name == "parallel":
        panels = [Panel(one.heading.partition(": ")[2], [row[0] for row in one.rows],
                        {layer: [number(row[i]) if row[i][0].isdigit() else None for row in one.rows]
                         for i, layer in enumerate(one.header) if i > 0})
                  for one in found if one.header[0] == "T"]  # fmt: skip
        return Picture("papers_parallel", "lines", "milliseconds forwards and backwards", panels, across="steps")
    if name == "long":
        panels = [Panel(f"{one.heading.partition(': ')[2]}, {what}", [row[0] for row in one.rows if row[1][0].isdigit()],
                        {"layer": [number(row[i]) for row in one.rows if row[1][0].isdigit()]})
                  for one in found for i, what in ((1, "ms"), (2, "memory, MB"))]  # fmt: skip
        return Picture("papers_long", "points", "a pass forwards and backwards over 65,536 steps", panels)
    if name == "characters":
        generation = [one for one in found if one.header[1].startswith("behind")]
        panels = [Panel("generation", [f"{number(title):,.0f}" for title in one.header[1:]],
                        {layer_name(row[0]): [number(cell) for cell in row[1:]] for row in one.rows if "ms" in row[1]})
                  for one in generation]  # fmt: skip
        return Picture("papers_characters", "lines", "milliseconds a byte", panels, across="bytes before")
    panels, guessed = [], []
    section = text.partition(f"## {headings[name]}\n")[2].partition("\n## ")[0]
    for task, one in zip(re.findall(r"^`(\w+)`, accuracy", section, re.MULTILINE), found):
        scores = [i for i, title in enumerate(one.header) if title.endswith("steps")]
        rows = [row for row in one.rows if row[1] != "-"]
        if max(number(row[i]) for row in rows for i in scores) < 10:
            guessed.append(task)  # which no network learns: a page of dots at the edge
            continue
        panels.append(Panel(task, [row[0] for row in rows],
                            {one.header[i]: [number(row[i]) for row in rows] for i in scores}))  # fmt: skip
    without = f" (without {' and '.join(guessed)}, which no network learns)" if guessed else ""
    return Picture(f"papers_{name}", "shares", f"accuracy in per cent{without}", panels)


def of_papers(name, page):
    return lambda: picture_of_papers(name, (ROOT / "docs" / "results" / page).read_text())


PICTURES = [
    torch_on_the_cpu,
    torch_on_a_gpu,
    layers_on_the_cpu,
    layers_on_a_gpu,
    flashrnn_on_a_gpu,
    steps_of_a_stream,
    scan_algorithms_on_a_gpu,
    of_papers("tracking", "state_tracking.md"),
    of_papers("parallel", "long_sequences.md"),
    of_papers("long", "long_sequences.md"),
]


# ---- how they look ---------------------------------------------------------------------------------------------------

# Every name has one look in all pictures; those that are not here take the first two in order.
LOOKS = {
    OURS: ("blue", "o"), "torch": ("orange", "s"), "torch.nn": ("orange", "s"), "torch-compile": ("purple", "D"),
    "torch.compile": ("purple", "D"), "onnxruntime": ("green", "^"), "onednn": ("yellow", "v"), "limit": ("grey", "|"),
    "RTNeural": ("purple", "D"), "FlashRNN": ("green", "^"), "minGRU": ("blue", "o"), "MinGRU": ("blue", "o"), "LSTM": ("green", "^"),
    "convolution": ("yellow", "v"), "attention": ("purple", "D"), "torch.nn.LSTM": ("orange", "s"),
    "mingru": ("blue", "o"), "minlstm": ("blue", "v"), "gru": ("green", "o"), "lstm": ("green", "^"),
    "slstm": ("green", "s"), "LSTM (PyTorch)": ("orange", "s"), "Transformer (PyTorch)": ("purple", "D"),
    "40 steps": ("blue", "o"), "64 steps": ("blue", "o"), "128 steps": ("green", "^"), "256 steps": ("green", "^"),
    "1,024 steps": ("orange", "s"), "4,096 steps": ("blue", "o"), "direct": ("orange", "s"), "fused": ("green", "^"), "scan": ("blue", "o"),
}  # fmt: skip
NAMES = {"onnxruntime": "ONNX Runtime", "onednn": "oneDNN", "torch": "PyTorch", "torch-compile": "torch.compile"}


def look(name, place):
    colour, marker = LOOKS.get(name, [("blue", "o"), ("orange", "s")][place % 2])
    return COLOURS[colour][0], marker


def value_text(value, _=None):
    """Of an axis: 0.05, 2, 1,000."""
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"


def value_axis(axis, values):
    """A logarithmic axis with as many marks as it has room for."""
    from matplotlib import ticker

    span = max(values) / min(values)
    marks = (1, 1.5, 2, 3, 5, 7) if span < 5 else (1, 2, 5) if span < 200 else (1,)
    axis.set_major_locator(ticker.LogLocator(subs=marks))
    axis.set_major_formatter(value_text)
    axis.set_minor_locator(ticker.NullLocator())


def draw_points(axes, panel, picture):
    axes.set_xscale("log")
    for y, values in enumerate(zip(*panel.series.values())):
        there = [value for value in values if value is not None] + ([1] if picture.level else [])
        axes.plot([min(there), max(there)], [y, y], color=COLOURS["faint"][0], linewidth=2, zorder=1)
    for place, (name, values) in enumerate(panel.series.items()):
        colour, marker = look(name, place)
        points = [(value, y) for y, value in enumerate(values) if value is not None]
        if points:
            axes.plot(*zip(*points), marker, color=colour, markersize=6, markeredgewidth=1.6, label=NAMES.get(name, name))
    if picture.level:
        axes.axvline(1, color=COLOURS["ink"][0], linewidth=1, zorder=0)
    axes.set_yticks(range(len(panel.labels)), panel.labels)
    axes.set_ylim(len(panel.labels) - 0.4, -0.6)
    axes.grid(axis="x", color=COLOURS["faint"][0], linewidth=0.5)
    axes.tick_params(axis="y", length=0)
    value_axis(axes.xaxis, [v for values in panel.series.values() for v in values if v] + ([1] if picture.level else []))


def draw_shares(axes, panel, picture):
    draw_points(axes, panel, picture)
    axes.set_xscale("linear")
    axes.set_xlim(0, 103)


def places_of(labels):
    """Numbers of steps are at the places of their logarithms, other labels one behind the other."""
    numbers = [label.replace(",", "") for label in labels]
    return [math.log2(int(n)) if n.isdigit() else place for place, n in enumerate(numbers)]


def draw_lines(axes, panel, picture):
    axes.set_yscale("log")
    places = places_of(panel.labels)
    for place, (name, values) in enumerate(panel.series.items()):
        colour, marker = look(name, place)
        points = [(x, value) for x, value in zip(places, values) if value is not None]
        style = {"linestyle": ":", "marker": None} if name == "limit" else {"marker": marker}
        axes.plot(*zip(*points), color=colour, linewidth=1.6, markersize=5, label=NAMES.get(name, name), **style)
    apart = 0.09 * (places[-1] - places[0])  # what a label takes
    shown = [place == 0 or x - places[place - 1] > apart for place, x in enumerate(places)]
    axes.set_xticks(places, [label if there else "" for label, there in zip(panel.labels, shown)])
    if picture.half:
        axes.tick_params(axis="x", rotation=60)
    axes.grid(axis="y", color=COLOURS["faint"][0], linewidth=0.5)
    value_axis(axes.yaxis, [v for values in panel.series.values() for v in values if v])


DRAW = {"points": draw_points, "shares": draw_shares, "lines": draw_lines}


def figure_of(picture):
    from matplotlib import pyplot

    count = len(picture.panels)
    alike = all(panel.labels == picture.panels[0].labels for panel in picture.panels)
    columns = 1 if picture.half and not alike else min(count, 3 if picture.kind == "lines" and not picture.half else 2)
    rows = -(-count // columns)
    longest = [max(len(panel.labels) for panel in picture.panels[row * columns : (row + 1) * columns]) for row in range(rows)]
    heights = [3.2 if picture.kind == "lines" else 0.6 + 0.22 * labels for labels in longest]
    figure, grid = pyplot.subplots(
        rows, columns, figsize=(5.6 if picture.half else 9.6, 0.8 + sum(heights)), squeeze=False, layout="constrained",
        sharey=picture.kind == "lines" or picture.half and alike, height_ratios=heights,
    )  # fmt: skip
    drawn = {}
    for axes, panel in zip(grid.flat, picture.panels):
        DRAW[picture.kind](axes, panel, picture)
        axes.set_title(panel.title, loc="right" if picture.half and columns == 1 else "left", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        handles, names = axes.get_legend_handles_labels()
        drawn.update(zip(names, handles))
    for axes in grid.flat[count:]:
        axes.set_visible(False)
    across = 68 if picture.half else 120  # letters
    figure.supxlabel(textwrap.fill(picture.across or picture.axis, across), fontsize=10)
    if picture.across:
        figure.supylabel(picture.axis, fontsize=10)
    if len(drawn) > 1:
        figure.legend(drawn.values(), drawn.keys(), loc="outside upper center", ncols=3 if picture.half else 6, frameon=False)
    return figure


def svg(picture):
    """The picture as text that is the same each time."""
    text = svg_of(picture.name, lambda: figure_of(picture))
    return re.sub(r"(<svg [^>]*>)", lambda tag: f"{tag[1]}\n{keep(picture)}", text, count=1)


def keep(picture):
    return f"<desc>{html.escape(picture.content(), quote=False)}</desc>"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, and draw nothing")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "docs" / "images", help="where pictures are")
    options = parser.parse_args()
    pictures = [make() for make in PICTURES]
    stale = []
    for picture in pictures:
        path = options.folder / f"{picture.name}.svg"
        if not options.check:
            path.write_text(svg(picture))
        elif not path.exists() or keep(picture) not in path.read_text():
            stale.append(path.name)
    if stale:
        sys.exit(f"{', '.join(stale)}: not what the tables have; run tools/plot_results.py")


if __name__ == "__main__":
    main()
