"""tools/picture_report.py: charts of a report become one picture."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
STYLE = """<style>
:root { --page: #f6f6f3; --card: #fdfdfc; --edge: #e2e1da; --ink: #16150f; --faint: #6f6d66; --second: #55534c; --c0: #2a78d6; --c1: #d9591c; }
@media (prefers-color-scheme: dark) { :root { --page: #0e0e0d; --card: #191918; --edge: #2e2e2b; --ink: #f4f3ee; --faint: #98968d; --second: #c3c2b7; --c0: #4f97ec; --c1: #e8713a; } }
.line { stroke: var(--line); }
.c0 { --line: var(--c0); } .c1 { --line: var(--c1); }
h1 { margin: 0; }
</style>"""


def card(name, width, unit=' <span class="unit">mse</span>'):
    return (
        f'<section class="card"><h3>{name}{unit}</h3><p class="note">Less is better.</p>'
        '<ul class="legend"><li><svg viewBox="0 0 22 11"><line class="line c0"/></svg>gru &amp; co</li></ul>'
        f'<svg viewBox="0 0 {width} 270" role="img" aria-label="x"><polyline class="line c0" points="1,2 3,4"/></svg></section>'
    )


class PictureReport(unittest.TestCase):
    def draw(self, *charts):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "r.html").write_text(STYLE + card("Loss", 420) + card("Norm", 420) + card("co2", 1000, ""))
            command = [sys.executable, ROOT / "tools" / "picture_report.py", folder / "r.html", folder / "r.svg", *charts]
            result = subprocess.run(command, capture_output=True, text=True)
            return result, (folder / "r.svg").read_text() if result.returncode == 0 else ""

    def test_charts_stand_side_by_side_and_wide_ones_below(self):
        result, text = self.draw("Loss", "Norm", "co2")
        self.assertEqual(result.returncode, 0, result.stderr)
        root = xml.etree.ElementTree.fromstring(text)
        frames = [rect.attrib for rect in root.findall("{http://www.w3.org/2000/svg}rect")][1:]
        places = [(float(frame["x"]), float(frame["y"]), float(frame["width"])) for frame in frames]
        self.assertEqual([width for *_, width in places], [476, 476, 968])
        self.assertEqual(places[0][1], places[1][1])
        self.assertLess(places[0][1] + float(frames[0]["height"]), places[2][1])
        self.assertEqual(text.count("polyline"), 3)
        for word in ("gru &amp; co", "Less is better.", "prefers-color-scheme:dark", ".line.c0 { stroke: #2a78d6; }", ".line.c0{stroke: #4f97ec}"):
            self.assertIn(word, text)
        self.assertFalse(re.search("var\\(|h1|data-|span &|&lt;", text))

    def test_a_chart_that_is_not_there(self):
        result, _ = self.draw("Accuracy")
        self.assertEqual(result.returncode, 1)
        self.assertIn("there is no chart 'Accuracy', only Loss mse, Loss, Norm mse", result.stderr)


if __name__ == "__main__":
    unittest.main()
