"""tools/draw_cells.py: the diagrams on the page of cells are those that it draws."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
CELLS = ("elman", "gru", "lstm", "slstm", "mingru", "minlstm")


def draw(root, *arguments):
    return subprocess.run([sys.executable, root / "tools" / "draw_cells.py", *arguments], capture_output=True, text=True)


class DrawCells(unittest.TestCase):
    def test_pictures_are_those_that_are_drawn(self):
        result = draw(ROOT, "--check")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_picture_of_its_own_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder)
            shutil.copytree(ROOT / "docs" / "images", copy / "docs" / "images")
            shutil.copytree(ROOT / "tools", copy / "tools")
            picture = copy / "docs" / "images" / "cell_gru.svg"
            picture.write_text(picture.read_text().replace("1−", "1+"))
            result = draw(copy, "--check")
            self.assertEqual(result.returncode, 1)
            self.assertTrue(result.stderr.startswith("cell_gru.svg: "), result.stderr)
            self.assertEqual(draw(copy).returncode, 0)
            self.assertEqual(draw(copy, "--check").returncode, 0)

    def test_they_are_xml_with_a_title(self):
        for cell in CELLS:
            root = xml.etree.ElementTree.parse(ROOT / "docs" / "images" / f"cell_{cell}.svg").getroot()
            self.assertGreater(len(root.find("{http://www.w3.org/2000/svg}title").text), 40, cell)


if __name__ == "__main__":
    unittest.main()
