"""The C++ examples of PAGES compile against the public headers, the README's commands name verbs and options there
are, and links of every page lead somewhere."""

import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
# Pages with C++ examples.
PAGES = [ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in ("cpp", "csp", "cuda", "index", "custom_cells"))]
LINKED = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BUILD = pathlib.Path.cwd().parent  # CTest runs us in BUILD/tests


class Readme(unittest.TestCase):
    def test_cpp_examples_compile(self):
        for page in PAGES:
            self.check_examples(page.read_text())

    def check_examples(self, page):
        examples = re.findall(r"```cpp\n(.*?)```", page, re.S)
        self.assertTrue(examples)
        for example in examples:
            if "int main" in example and re.search(r"(Model|Recurrent)::load\(|open_\w+\(", example):
                self.assertIn("catch (const penstock::Error&", example)  # a missing file ends in a line, not in abort()
            with tempfile.NamedTemporaryFile("w", suffix=".cc") as source:
                source.write(example)
                source.flush()
                subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-Wall", "-Werror", "-fsyntax-only",
                                f"-I{ROOT / 'include'}", f"-I{BUILD / 'include'}", source.name], check=True)

    def test_rows_of_the_table_stand_on_the_page_of_peers(self):
        table = README.partition("| task | Penstock | peer |")[2].partition("\n\n")[0].splitlines()[2:]
        self.assertTrue(0 < len(table) <= 8)
        page = (ROOT / "docs" / "results" / "peers.md").read_text().splitlines()
        rows = [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in table if "results/peers.md" in row]
        self.assertTrue(rows)
        for task, ours, peer, ratio, _ in rows:
            numbers = [re.search(r"\d[\d,]*(\.\d+)?", text)[0] for text in (ours, peer.rpartition(": ")[2])] + [ratio]
            with self.subTest(task):
                found = [line for line in page if all(re.search(rf"(?<![\d.,]){re.escape(number)}(?![\d.,]*\d)", line)
                                                      for number in numbers)]
                self.assertTrue(found, f"no line of peers.md has {numbers}")

    def test_commands_exist(self):
        program = BUILD / "penstock"
        commands = re.findall(r"penstock (\w+)([^|\n#]*)", "\n".join(re.findall(r"```console\n(.*?)```", README, re.S)))
        self.assertGreater(len(commands), 3)
        for verb, rest in commands:
            help_text = subprocess.run([program, verb, "--help"], check=True, capture_output=True, text=True).stdout
            for word in shlex.split(rest):
                if word.startswith("--"):
                    self.assertIn(word, help_text, f"penstock {verb}")

    def test_links_lead_somewhere(self):
        for page in LINKED:
            prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
            for target in re.findall(r"\]\((?!https?:)([^)#:]+)", prose):
                self.assertTrue((page.parent / target).exists(), f"{page.name}: {target}")


if __name__ == "__main__":
    unittest.main()
