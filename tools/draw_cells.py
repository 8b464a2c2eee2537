#!/usr/bin/env python3
"""Draws a diagram of each cell into docs/images, for docs/cells.md.

    tools/draw_cells.py            # draws them all
    tools/draw_cells.py --check    # fails if a picture differs from what this script draws, and draws nothing

States run along the top from left to right, x_t comes in below. A box is a gate with its function: blue if it reads
h_{t-1}, orange if it reads x_t alone. A circle is an operation on elements.
"""

import argparse
import html
import pathlib
import re
import sys

from screens import on_both_screens

ROOT = pathlib.Path(__file__).resolve().parents[1]
WIDTH, LEFT, RIGHT = 640, 70, 560  # of the picture, and where rails begin and end
RADIUS, BOX_WIDTH, BOX_HEIGHT = 11, 46, 30


def words(text):
    """Returns SVG text in which "_x" and "_{x}" are subscripts."""
    parts = re.split(r"_(\{[^}]*\}|.)", text)
    out = []
    for place, part in enumerate(parts):
        part = html.escape(part.strip("{}"))
        lowered = f'<tspan dy="4" font-size="70%">{part}</tspan>'
        after_subscript = place > 0 and place % 2 == 0 and part
        out.append(lowered if place % 2 else f'<tspan dy="-4">{part}</tspan>' if after_subscript else part)
    return "".join(out)


class Diagram:
    def __init__(self, title, height, top=0):
        self.title, self.height, self.top, self.lines, self.nodes = title, height, top, [], []

    def text(self, x, y, text, anchor="middle", colour="ink", size=15):
        """Adds a text whose middle line is at y."""
        self.nodes.append(f'<text x="{x}" y="{y + 5}" text-anchor="{anchor}" fill="var(--{colour})" font-size="{size}">{words(text)}</text>')

    def line(self, *points, arrow=True, colour="ink"):
        """Adds a line through these points; with an arrow, it ends at the edge of a circle."""
        path = "M" + "L".join(f"{x},{y}" for x, y in points)
        end = f' marker-end="url(#{colour})"' if arrow else ""
        self.lines.append(f'<path d="{path}" fill="none" stroke="var(--{colour})" stroke-width="1.5"{end}/>')

    def dot(self, x, y, colour="ink"):
        self.nodes.append(f'<circle cx="{x}" cy="{y}" r="3" fill="var(--{colour})"/>')

    def circle(self, x, y, text, size=15):
        self.nodes.append(f'<circle cx="{x}" cy="{y}" r="{RADIUS}" fill="var(--ground)" stroke="var(--ink)" stroke-width="1.5"/>')
        self.text(x, y, text, size=size)

    def box(self, x, y, text, colour, width=BOX_WIDTH):
        self.nodes.append(
            f'<rect x="{x - width / 2:g}" y="{y - BOX_HEIGHT / 2:g}" width="{width}" height="{BOX_HEIGHT}" rx="5" '
            f'fill="var(--ground)" stroke="var(--{colour})" stroke-width="2"/>'
        )
        self.text(x, y, text, colour=colour, size=14)

    def pill(self, x, y, text):
        """Adds a function of elements."""
        self.plate(x, y, text, 32 if len(text) < 4 else 42, 2 * RADIUS, RADIUS, 13)

    def plate(self, x, y, text, width, height=BOX_HEIGHT, corner=5, size=14):
        self.nodes.append(
            f'<rect x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width}" height="{height}" rx="{corner}" '
            'fill="var(--ground)" stroke="var(--ink)" stroke-width="1.5"/>'
        )
        self.text(x, y, text, size=size)

    def rail(self, y, before, after, *stops):
        """Adds a state that runs from left to right through circles at these places."""
        self.text(LEFT - 10, y, before, "end")
        self.text(RIGHT + 10, y, after, "start")
        places = [LEFT, *stops, RIGHT]
        for left, right in zip(places, places[1:]):
            begin = left + (RADIUS if left != LEFT else 0)
            self.line((begin, y), (right - (RADIUS if right != RIGHT else 0), y))

    def bus(self, y, text, ends, colour="ink"):
        """Adds what gates read: a line from the left edge."""
        self.text(LEFT - 10, y, text, "end", colour)
        self.line((LEFT, y), (ends, y), arrow=False, colour=colour)

    def gate(self, x, y, function, name, buses, colour=None):
        """Adds a gate that reads the buses, (y, colour) each, from below; its name stands beside its output."""
        colour = colour or buses[0][1]
        for place, (below, of) in enumerate(buses):
            at = x - 8 + 16 * place if len(buses) > 1 else x
            self.dot(at, below, of)
            self.line((at, below), (at, y + BOX_HEIGHT / 2), colour=of)
        self.box(x, y, function, colour)
        self.text(x + 8, y - BOX_HEIGHT / 2 - 11, name, "start")

    def svg(self):
        def marker(colour):
            return (
                f'<marker id="{colour}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
                f'<path d="M0,0L8,4L0,8z" fill="var(--{colour})"/></marker>'
            )

        markers = "".join(map(marker, ("ink", "blue", "orange")))
        return on_both_screens("\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{self.height}" viewBox="0 {self.top} {WIDTH} {self.height}"'
            ' font-family="Georgia, \'DejaVu Serif\', serif" role="img">',
            f"<title>{html.escape(self.title)}</title>",
            f"<defs>{markers}</defs>",
            f'<rect y="{self.top}" width="{WIDTH}" height="{self.height}" fill="var(--ground)"/>',
            *self.lines, *self.nodes, "</svg>\n",
        ]))  # fmt: skip


GATES, H_BUS, X_BUS = 150, 205, 230  # heights of gates and of what they read
DENSE, SCAN = [(H_BUS, "blue"), (X_BUS, "orange")], [(X_BUS, "orange")]
UP = GATES - BOX_HEIGHT // 2


def dense(title, ends):
    diagram = Diagram(title, 255)
    diagram.bus(X_BUS, "x_t", ends, "orange")
    return diagram


def elman():
    d = dense("Elman: one gate reads the state and the input, and its output is the next state", 308)
    d.bus(H_BUS, "h_{t−1}", 292, "blue")
    d.gate(300, GATES, "φ", "", DENSE)
    d.line((300, UP), (300, 90), (RIGHT, 90))
    d.text(RIGHT + 10, 90, "h_t", "start")
    d.top, d.height = 65, 190
    return d


def gru():
    d = dense("GRU: the update gate z mixes the last state and a candidate n, which the reset gate r lets see the state", 370)
    d.rail(45, "h_{t−1}", "h_t", 140, 370)
    d.dot(95, 45)
    d.line((95, 45), (95, H_BUS), (305, H_BUS), arrow=False, colour="blue")
    d.gate(140, GATES, "σ", "z_t", DENSE)
    d.gate(240, GATES, "σ", "r_t", DENSE)
    d.gate(370, GATES, "tanh", "n_t", SCAN, "blue")
    d.line((305, H_BUS), (305, GATES + RADIUS), colour="blue")
    d.line((240 + BOX_WIDTH / 2, GATES), (305 - RADIUS, GATES))
    d.line((305 + RADIUS, GATES), (370 - BOX_WIDTH / 2, GATES))
    d.line((140, UP), (140, 45 + RADIUS))
    d.dot(140, 95)
    d.line((140, 95), (210 - 16, 95))
    d.line((210 + 16, 95), (370 - RADIUS, 95))
    d.line((370, UP), (370, 95 + RADIUS))
    d.line((370, 95 - RADIUS), (370, 45 + RADIUS))
    d.circle(140, 45, "×")
    d.circle(370, 45, "+")
    d.circle(370, 95, "×")
    d.circle(305, GATES, "×")
    d.pill(210, 95, "1−")
    return d


def lstm():
    d = dense("LSTM: the forget gate f and the input gate i change the cell state c, and the output gate o shows it", 448)
    d.bus(H_BUS, "h_{t−1}", 432, "blue")
    d.rail(35, "c_{t−1}", "c_t", 130, 320)
    for x, function, name in ((130, "σ", "f_t"), (220, "σ", "i_t"), (320, "tanh", "g_t"), (440, "σ", "o_t")):
        d.gate(x, GATES, function, name, DENSE)
    d.line((130, UP), (130, 35 + RADIUS))
    d.line((220, UP), (220, 90), (320 - RADIUS, 90))
    d.line((320, UP), (320, 90 + RADIUS))
    d.line((320, 90 - RADIUS), (320, 35 + RADIUS))
    d.dot(510, 35)
    d.line((510, 35), (510, 59))
    d.line((440, UP), (440, 110), (510 - RADIUS, 110))
    d.line((510, 81), (510, 110 - RADIUS))
    d.line((510 + RADIUS, 110), (RIGHT, 110))
    d.text(RIGHT + 10, 110, "h_t", "start")
    d.circle(130, 35, "×")
    d.circle(320, 35, "+")
    d.circle(320, 90, "×")
    d.circle(510, 110, "×")
    d.pill(510, 70, "tanh")
    return d


def slstm():
    d = Diagram("sLSTM: exponential gates f and i, kept in range by the stabiliser m, change the cell state c and the normaliser n", 335)
    gates, h_bus, x_bus, up, scaled = 230, 285, 310, 215, 133
    d.bus(x_bus, "x_t", 503, "orange")
    d.bus(h_bus, "h_{t−1}", 487, "blue")
    d.rail(35, "c_{t−1}", "c_t", 130, 330)
    d.rail(100, "n_{t−1}", "n_t", 165, 235)
    for x, function, name in ((150, "σ", ""), (235, "exp", ""), (330, "tanh", ""), (495, "σ", "")):
        d.gate(x, gates, function, name, [(h_bus, "blue"), (x_bus, "orange")])
    for x in (150, 235):
        d.line((x, up), (x, 168 + BOX_HEIGHT / 2))
        d.dot(x, scaled)
    d.line((LEFT, 168), (120, 168))
    d.line((270, 168), (RIGHT, 168))
    d.text(LEFT - 10, 168, "m_{t−1}", "end")
    d.text(RIGHT + 10, 168, "m_t", "start")
    d.plate(195, 168, "scale by m_t", 150)
    d.line((150, 153), (150, scaled), (165, scaled), (165, 100 + RADIUS))
    d.line((150, scaled), (130, scaled), (130, 35 + RADIUS))
    d.text(172, 140, "f_t", "start")
    d.line((235, 153), (235, 100 + RADIUS))
    d.text(242, 143, "i_t", "start")
    d.line((235, scaled), (330 - RADIUS, scaled))
    d.line((330, up), (330, scaled + RADIUS))
    d.line((330, scaled - RADIUS), (330, 35 + RADIUS))
    d.line((430, 35), (430, 67 - RADIUS))
    d.line((430, 100), (430, 67 + RADIUS))
    d.dot(430, 35)
    d.dot(430, 100)
    d.line((430 + RADIUS, 67), (495 - RADIUS, 67))
    d.line((495, up), (495, 67 + RADIUS))
    d.line((495 + RADIUS, 67), (RIGHT, 67))
    d.text(RIGHT + 10, 67, "h_t", "start")
    signs = ((130, 35, "×"), (330, 35, "+"), (165, 100, "×"), (235, 100, "+"), (330, scaled, "×"), (430, 67, "÷"), (495, 67, "×"))
    for x, y, sign in signs:
        d.circle(x, y, sign)
    return d


def mixed(d, top, height):
    """Adds the state of a scan cell, h_t = a_t h_{t-1} + b_t; b_t is computed at this height."""
    d.rail(top, "h_{t−1}", "h_t", 140, 370)
    d.gate(370, GATES, "g", "", SCAN)
    d.line((370, UP), (370, height + RADIUS))
    d.line((370, height - RADIUS), (370, top + RADIUS))
    d.circle(140, top, "×")
    d.circle(370, top, "+")
    d.circle(370, height, "×")


def mingru():
    d = dense("minGRU: the gate z and the candidate read the input alone, so all steps can compute them at once", 370)
    mixed(d, 35, 104)
    d.gate(140, GATES, "σ", "z_t", SCAN)
    d.line((140, UP), (140, 83))
    d.line((140, 61), (140, 35 + RADIUS))
    d.dot(140, 104)
    d.line((140, 104), (370 - RADIUS, 104))
    d.pill(140, 72, "1−")
    return d


def minlstm():
    d = dense("minLSTM: the gates f and i, divided by their sum, and the candidate read the input alone", 370)
    mixed(d, 35, 87)
    for x, name in ((140, "f_t"), (240, "i_t")):
        d.gate(x, GATES, "σ", name, SCAN)
        d.line((x, UP), (x, 87 + BOX_HEIGHT / 2))
    d.line((140, 72), (140, 35 + RADIUS))
    d.line((270, 87), (370 - RADIUS, 87))
    d.plate(190, 87, "÷ (f_t + i_t)", 160)
    return d


CELLS = {"elman": elman, "gru": gru, "lstm": lstm, "slstm": slstm, "mingru": mingru, "minlstm": minlstm}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="draw nothing, and fail if a picture is another")
    check = parser.parse_args().check
    wrong = []
    for name, draw in CELLS.items():
        path = ROOT / "docs" / "images" / f"cell_{name}.svg"
        if not check:
            path.write_text(draw().svg())
        elif not path.is_file() or path.read_text() != draw().svg():
            wrong.append(f"{path.name}: run tools/draw_cells.py, which draws something else")
    sys.stderr.write("".join(line + "\n" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
