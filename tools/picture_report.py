#!/usr/bin/env python3
"""Puts charts of a report into one picture, for the documentation.

    penstock report gru.jsonl lstm.jsonl -o cells.html
    tools/picture_report.py cells.html docs/images/report.svg "Loss over steps" "Gradient norm" co2

A chart is named by its heading; of several with one name, the first is taken. Charts that fill the page's width fill the
picture's, others stand side by side. The picture has the page's colours, for light and dark screens.
"""

import argparse
import html
import pathlib
import re
import sys

from screens import on_both_screens

WIDTH, GAP, EDGE = 1000, 16, 16  # of the picture, between cards, and inside a card
LETTER = 6.6  # average width of a letter of 13 pixels
KEPT = re.compile(r"^(?:svg text|\.end|\.middle|\.grid|\.axis|\.line|\.faint|\.dashed|\.dotted|\.dot|\.band)\b.*$", re.M)


def cards(page):
    """Yields (heading, note, legend, chart, (width, height) of the chart) of each chart of the page."""
    for card in re.findall(r'<section class="card[^"]*">(.*?)</section>', page, re.S):
        chart = re.search(r'<svg viewBox="0 0 (\d+) (\d+)" role="img"[^>]*>(.*?)</svg>', card, re.S)
        if chart is None:
            continue
        heading = re.search(r"<h3>(.*?)</h3>", card, re.S)[1]
        note = re.search(r'<p class="note">(.*?)</p>', card, re.S)
        legend = re.findall(r"<li><svg[^>]*>(.*?)</svg>(.*?)</li>", card, re.S)
        yield heading, note[1] if note else "", legend, chart[3], (int(chart[1]), int(chart[2]))


def plain(text):
    return html.unescape(re.sub(r"<[^>]*>", "", text)).strip()


def style(page):
    """The rules of the page's charts, and its colours: {name: (light, dark)}. A rule for the colour of any line becomes one
    for each line."""
    sheet = re.search(r"<style>(.*?)</style>", page, re.S)[1]
    light, dark = (dict(re.findall(r"--(\w+): (#\w+);", root)) for root in re.findall(r":root \{(.*?)\}", sheet, re.S))
    lines = dict(re.findall(r"\.(\w+) \{ --line: var\(--(\w+)\); \}", sheet))
    rules = []
    for rule in KEPT.findall(re.sub(r"\.\w+ \{ --line: [^}]*\}", "", sheet)):
        selector, _, declarations = rule.partition("{")
        shapes = [shape.strip() for shape in selector.split(",")]
        for each, colour in lines.items() if "var(--line)" in rule else []:
            rules.append(", ".join(f"{shape}.{each}" for shape in shapes) + " {" + declarations.replace("--line", f"--{colour}"))
        if "var(--line)" not in rule:
            rules.append(rule)
    return "\n".join(rules), {name: (light[name], dark[name]) for name in light}


def drawn(card, x, y, width):
    """Returns (SVG text without a frame, height) of a card at this place."""
    heading, note, legend, chart, (across, down) = card
    title = heading.partition("<span")[0]
    unit = heading[len(title) :]
    inner = width - 2 * EDGE
    out, line = [], y + 28
    out.append(f'<text x="{x + EDGE}" y="{line}" class="title">{html.escape(plain(title))} '
               f'<tspan class="unit">{html.escape(plain(unit))}</tspan></text>')  # fmt: skip
    if note:
        line += 19
        out.append(f'<text x="{x + EDGE}" y="{line}" class="words">{html.escape(plain(note))}</text>')
    line, place = line + 20, x + EDGE
    for mark, name in legend:
        needed = 30 + LETTER * len(plain(name)) + 12
        if place + needed > x + width - EDGE and place > x + EDGE:
            line, place = line + 19, x + EDGE
        out.append(f'<g transform="translate({place:g},{line - 10})">{mark}</g>')
        out.append(f'<text x="{place + 28:g}" y="{line}" class="words">{html.escape(plain(name))}</text>')
        place += needed
    height = inner * down / across
    chart = re.sub(r' data-[\w-]+="[^"]*"', "", chart)
    out.append(f'<svg x="{x + EDGE}" y="{line + 10}" width="{inner}" height="{height:g}" viewBox="0 0 {across} {down}">{chart}</svg>')
    return "\n".join(out), line + 10 + height + EDGE - y


def rows_of(chosen):
    """Yields the cards that stand side by side: two that are narrow, or a wide one."""
    row = []
    for card in chosen:
        wide = card[4][0] > WIDTH // 2
        if row and (wide or len(row) == 2):
            yield row
            row = []
        row.append(card)
        if wide:
            yield row
            row = []
    if row:
        yield row


def picture(page, names):
    found = {}
    for card in cards(page):
        for key in (plain(card[0]), plain(re.sub(r"<span.*?</span>", "", card[0]))):
            found.setdefault(key, card)
    missing = [name for name in names if name not in found]
    if missing:
        raise SystemExit(f"tools/picture_report.py: there is no chart '{missing[0]}', only {', '.join(found)}")
    body, y = [], GAP
    for row in rows_of([found[name] for name in names]):
        width = WIDTH - 2 * GAP if row[0][4][0] > WIDTH // 2 else (WIDTH - 3 * GAP) // 2
        placed = [(GAP + (width + GAP) * place, *drawn(card, GAP + (width + GAP) * place, y, width)) for place, card in enumerate(row)]
        tallest = max(height for _, _, height in placed)
        for x, text, _ in placed:
            body.append(f'<rect x="{x}" y="{y}" width="{width}" height="{tallest:g}" rx="10" fill="var(--card)" stroke="var(--edge)"/>\n{text}')
        y += tallest + GAP
    title = f"Charts of a report: {', '.join(names)}"
    rules, colours = style(page)
    rules += "\n.title{font-weight:600}svg text.title{fill:var(--ink);font-size:15px}svg .unit{fill:var(--faint);font-weight:400}svg text.words{fill:var(--second);font-size:13px}"
    return on_both_screens("\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y:g}" viewBox="0 0 {WIDTH} {y:g}"'
        " font-family=\"system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif\" role=\"img\">",
        f"<title>{html.escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{y:g}" fill="var(--page)"/>', *body, "</svg>\n",
    ]), rules, colours)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=pathlib.Path)
    parser.add_argument("picture", type=pathlib.Path)
    parser.add_argument("charts", nargs="+")
    arguments = parser.parse_args()
    arguments.picture.write_text(picture(arguments.report.read_text(), arguments.charts))


if __name__ == "__main__":
    sys.exit(main())
