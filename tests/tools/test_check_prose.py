"""tools/check_prose.py on small pages, each with one fault, which it must name."""

import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import check_prose  # noqa: E402

WORDS = "\n".join(["ten words are in this line of a long page"] * 10)
WIDE = "word " * 25


class CheckProse(unittest.TestCase):
    def complaints(self, text):
        return check_prose.complaints("page.md", text)

    def test_short_pages_pass(self):
        self.assertEqual(self.complaints("# Title\n\nA sentence.\n\n- an item\n- another\n\n| a | b |\n"), [])

    def test_long_paragraphs_are_named_with_their_first_line(self):
        found = self.complaints("# Title\n\n" + WORDS + "\n")
        self.assertEqual(len(found), 1)
        self.assertIn("page.md:3: a paragraph of 100 words", found[0])

    def test_paragraphs_end_at_blank_lines_items_and_tables(self):
        half = "\n".join(WORDS.split("\n")[:5])
        for between in ("\n\n", "\n- ", "\n1. ", "\n| a |\n", "\n```\ncode\n```\n"):
            self.assertEqual(self.complaints(half + between + half), [], repr(between))

    def test_long_list_items_are_named(self):
        self.assertEqual(len(self.complaints("- " + WORDS.replace("\n", "\n    "))), 1)

    def test_wide_lines_are_named(self):
        self.assertEqual(self.complaints("short\n" + WIDE), ["page.md:2: 125 characters; 120 are allowed"])

    def test_tables_code_headings_and_links_may_be_wide(self):
        for wide in ("| " + WIDE, "# " + WIDE, "```\n" + WIDE + "\n```", "    " + WIDE, "[x]: " + "a" * 200, "a" * 200):
            self.assertEqual(self.complaints(wide), [], wide)

    def test_a_fence_hides_other_fences(self):
        self.assertEqual(self.complaints("````\n```\n" + WIDE + "\n````\n"), [])


if __name__ == "__main__":
    unittest.main()
