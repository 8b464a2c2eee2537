"""tools/plot_results.py: the pictures show what the tables of their pages have."""

import pathlib
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
            shutil.copy(ROOT / SCRIPT, copy / SCRIPT)
            for name, old, new, picture in [
                ("gpu.md", "| **8.5** |", "| **8.4** |", "regimes_gpu.svg"),
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


if __name__ == "__main__":
    unittest.main()
