#!/usr/bin/env python3
"""docs/adding_a_cell.md, taken literally: its examples join a copy of the list, compile and agree with the oracle; and
what the contract demands is missed by name."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMPILER = [os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]
CONTRACT = """
#include <cmath>
namespace check {
#include "cells/gate_functions.h"
#include "cells/list.h"
#include "cells/contract.h"
}
"""


def examples():
    """The document's blocks of C++, each with the place that its first line names."""
    text = (ROOT / "docs/adding_a_cell.md").read_text()
    blocks = [block.split("\n", 1) for block in re.findall(r"```cpp\n(.*?)```", text, re.DOTALL)]
    return [(first.removeprefix("// "), rest) for first, rest in blocks]


def insert(path, mark, text, after=False):
    before, found, rest = path.read_text().partition(mark)
    assert found, f"{path.name} has no {mark!r}"
    path.write_text(before + found + text + rest if after else before + text + found + rest)


class Copy:
    """src/core/cells and oracle, with the examples added as the document says; `change` rewrites the text of a header."""

    def __init__(self, folder, change=lambda name, text: text):
        self.folder = Path(folder)
        shutil.copytree(ROOT / "src/core/cells", self.folder / "src/core/cells")
        shutil.copytree(ROOT / "oracle", self.folder / "oracle")
        self.cells = []
        for place, text in examples():
            if place.startswith("src/core/cells/"):
                self._add_cell(Path(place), change(Path(place).name, text))
            elif place == "oracle/cells.h":
                insert(self.folder / place, "template <class S>\nconst std::vector<Cell<S>>& cells() {", text + "\n")
            else:
                assert place == "oracle/cells.h, list", place
                insert(self.folder / "oracle/cells.h", "  };\n  return list;", text)

    def _add_cell(self, place, text):
        (self.folder / place).write_text(text)
        struct = re.search(r"^struct (\w+)", text, re.MULTILINE)[1]
        kind = "SCAN" if "bool scan = true" in text else "DENSE"
        lines = self.folder / "src/core/cells/list.h"
        insert(lines, '#include "cells/elman.h"\n', f'#include "cells/{place.name}"\n', after=True)
        insert(lines, f"#define PENSTOCK_{kind}_CELLS(X)", f" X({struct})", after=True)
        self.cells.append(struct)

    def compile(self, *arguments):
        includes = [f"-I{self.folder / 'src/core'}", f"-I{self.folder}"]
        includes += [f"-I{ROOT / place}" for place in ("tests", "tests/core", "include", "src/core", ".")]
        return subprocess.run([*COMPILER, *includes, *map(str, arguments)], capture_output=True, text=True, check=False)

    def contract(self):
        source = self.folder / "contract.cc"
        source.write_text(CONTRACT)
        return self.compile("-fsyntax-only", "-Wno-unused-function", source)


class AddingACell(unittest.TestCase):
    def test_examples_of_both_kinds_are_there(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = Copy(folder)
            self.assertEqual(copy.cells, ["LightGru", "Qrnn"])
            self.assertEqual(copy.contract().stderr, "")

    def test_examples_agree_with_their_oracle(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = Copy(folder)
            for test in ("test_list", "test_special_values"):
                program = copy.folder / test
                built = copy.compile(ROOT / f"tests/core/cells/{test}.cc", "-o", program, "-lgtest", "-lgtest_main", "-lpthread")
                self.assertEqual(built.returncode, 0, built.stderr)
                ran = subprocess.run([program], capture_output=True, text=True, check=False)
                self.assertEqual(ran.returncode, 0, ran.stdout)

    def test_a_wrong_gradient_is_found(self):
        def change(_, text):
            return text.replace("dprev[0] = dnext[0] * z;", "dprev[0] = dnext[0];")

        with tempfile.TemporaryDirectory() as folder:
            copy = Copy(folder, change)
            program = copy.folder / "test_list"
            built = copy.compile(ROOT / "tests/core/cells/test_list.cc", "-o", program, "-lgtest", "-lgtest_main", "-lpthread")
            self.assertEqual(built.returncode, 0, built.stderr)
            ran = subprocess.run([program], capture_output=True, text=True, check=False)
            self.assertNotEqual(ran.returncode, 0)
            self.assertIn("light-gru", ran.stdout)

    def test_what_lacks_is_said_with_the_name_of_the_cell(self):
        mistakes = [
            ("light_gru.h", "bool has_kink", "bool kink", "LightGru lacks something that every cell declares"),
            ("light_gru.h", "int gates = 2", "int doors = 2", "LightGru lacks something that every cell declares"),
            ("light_gru.h", "keep_gate = 0", "keep_gate = 2", "LightGru has no gates or states, or names a gate"),
            ("light_gru.h", "int saved", "int kept", "LightGru lacks something that every dense cell declares"),
            ("light_gru.h", "void backward", "void back", "LightGru lacks a function of dense cells, or it takes other"),
            ("light_gru.h", "V (&save)[2])", "V (&save)[3])", "LightGru lacks a function of dense cells, or it takes other"),
            ("light_gru.h", "phases = 1", "phases = 2", "LightGru lacks a function of dense cells, or it takes other"),
            ("qrnn.h", "states = 1", "states = 2", "Qrnn is no scan cell"),
            ("qrnn.h", "V da, V db", "V db", "Qrnn lacks affine or affine_backward, or they take other"),
            ("qrnn.h", "void affine(const V (&wx)[2]", "void affine(const V (&wx)[1]", "Qrnn lacks affine"),
        ]
        for header, sound, spoilt, message in mistakes:
            def change(name, text, of=header, old=sound, new=spoilt):
                self.assertTrue(name != of or old in text, old)
                return text.replace(old, new) if name == of else text

            with self.subTest(spoilt), tempfile.TemporaryDirectory() as folder:
                self.assertIn(message, Copy(folder, change).contract().stderr)


if __name__ == "__main__":
    unittest.main()
