"""tools/plot_results.py: the pictures show what the tables of their pages have."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = pathlib.Path("tools") / "plot_results.py"


def check(root):
    return subprocess.run([sys.executable, root / SCRIPT, "--check"], capture_output=True, text=True)


class PlotResults(unittest.TestCase):
    def test_pictures_show_the_numbers_of_their_tables(self):
        result = check(ROOT)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_picture_that_is_behind_its_table_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder)
            shutil.copytree(ROOT / "docs", copy / "docs")
            (copy / "tools").mkdir()
            for script in ("plot_results.py", "screens.py"):
                shutil.copy(ROOT / "tools" / script, copy / "tools" / script)
            for name, old, new, picture in [
                ("gpu.md", "| **8.5** |", "| **8.4** |", "scan_algorithms_gpu.svg"),
                ("gpu.md", "FlashRNN, fused: 2.84 / 7.98 |", "FlashRNN, fused: 2.84 / 7.97 |", "flashrnn_gpu.svg"),
                # A pair of times that were not measured in one run may not stand among those that were.
                ("gpu.md", "FlashRNN: 4.75 / 13.5 | bf16, H200, not the same run |",
                 "FlashRNN: 4.75 / 13.5 | bf16, H200, same run |", "flashrnn_gpu.svg"),
                ("gpu_tables.md", "| 6.06 (5.81x) |", "| 6.05 (5.81x) |", "flashrnn_gpu.svg"),
            ]:  # fmt: skip
                with self.subTest(changed=new):
                    page = copy / "docs" / "results" / name
                    text = page.read_text()
                    self.assertEqual(text.count(old), 1)
                    page.write_text(text.replace(old, new))
                    result = check(copy)
                    page.write_text(text)
                    self.assertEqual(result.returncode, 1)
                    self.assertTrue(result.stderr.startswith(f"{picture}: "), result.stderr)

    def test_every_picture_is_on_a_page_and_has_both_screens(self):
        pages = "".join(page.read_text() for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
        pictures = list((ROOT / "docs" / "images").glob("*.svg"))
        self.assertGreater(len(pictures), 10)
        for path in pictures:
            self.assertTrue(f"images/{path.name})" in pages or f"images/{path.name}\"" in pages, path.name)
            self.assertIn("prefers-color-scheme:dark", path.read_text())

    def test_programs_without_variables_of_css_see_colours(self):
        for path in (ROOT / "docs" / "images").glob("*.svg"):
            light, _, dark = path.read_text().partition("@media(prefers-color-scheme:dark)")
            self.assertNotIn("var(", light + dark, path.name)
            ground = re.search(r"<rect [^>]*fill=\"(#\w+)\"|style=\"fill: (#\w+)", dark)
            self.assertGreater(int((ground[1] or ground[2])[1:3], 16), 0xF0, path.name)

    def test_pictures_beside_each_other_are_drawn_for_half_a_page(self):
        for row in re.findall(r"^\| \[!.*$", (ROOT / "README.md").read_text(), re.MULTILINE):
            for name in re.findall(r"\]\(docs/images/(\w+)\.svg\)\]", row):
                width = re.search(r'<svg [^>]*width="([\d.]+)pt"', (ROOT / "docs" / "images" / f"{name}.svg").read_text())[1]
                self.assertLess(float(width), 420, name)

    def test_panels_in_which_every_network_guesses_are_left_out(self):
        text = (ROOT / "docs" / "images" / "papers_tracking.svg").read_text()
        self.assertIn("without a5 and s5, which no network learns", text)
        self.assertIn(">s3</text>", text)
        self.assertNotIn(">a5</text>", text)


if __name__ == "__main__":
    unittest.main()
