"""The C runtime as programs link it: sizes, what it needs, the vendored folder, and the examples in C and Rust.

    check_library.py LIBRARY COMPILER WORK_DIR [TEST...]

LIBRARY is libpenstock_runtime.a of a release build, COMPILER a C++ compiler. Without names of tests, all run.
"""

import json
import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
RELEASED = ROOT / "tests/released/0.1"
MOST = {"static library": 2_000_000, "program of one LSTM": 600_000, "program of a network": 600_000, "program for int8 weights": 640_000,
        "program for one instruction set": 400_000, "program of a network for one instruction set": 600_000}
LINK = ["-static-libstdc++", "-static-libgcc", "-Wl,--gc-sections", "-s"]
VENDORED = "-std=c++20 -O2 -fno-exceptions -fno-rtti -ffp-contract=off -I. -c".split()
LIBRARY = COMPILER = WORK = None

# A program with the model inside, which prints its outputs.
EMBEDDED = """
#include <penstock.h>
#include <stdio.h>
static const unsigned char file[] = {%s};
int main(void) {
  penstock_model* model;
  penstock_session* session;
  penstock_error error;
  penstock_model_info info = {0};
  float features[64] = {0}, outputs[64];
  info.struct_size = sizeof info;
  if (%s &model, &error) != PENSTOCK_OK ||
      penstock_model_get_info(model, &info, &error) != PENSTOCK_OK ||
      penstock_session_open(model, NULL, 0, &session, &error) != PENSTOCK_OK) return puts(error.text), 1;
  for (int step = 0; step < 20; ++step) {
    for (unsigned i = 0; i < info.inputs; ++i) features[i] = (float)((step * 7 + i) %% 11) / 4 - 1;
    if (penstock_session_step(session, features, info.inputs, outputs, info.outputs, &error) != PENSTOCK_OK)
      return puts(error.text), 1;
    for (unsigned i = 0; i < info.outputs; ++i) printf("%%a\\n", outputs[i]);
  }
  return 0;
}
"""


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


def program_of(model, name, *library, kind="model"):
    """Links a program with the model inside against a library; returns its path."""
    source, program = WORK / f"{name}.c", WORK / name
    is_network = b"penstock.network" in model.read_bytes()
    opened = "penstock_network_open_memory(file, sizeof file, NULL, 0," if is_network else f"penstock_{kind}_open_memory(file, sizeof file,"
    source.write_text(EMBEDDED % (",".join(map(str, model.read_bytes())), opened), encoding="utf-8")
    obj = WORK / f"{name}.o"
    run(shutil.which("cc") or COMPILER, "-std=c11", "-Os", "-Wall", "-Wextra", "-Werror", "-I", ROOT / "include", "-c", source, "-o", obj)
    run(COMPILER, obj, *library, *LINK, "-o", program)
    return program


def vendored(name, *options):
    """Builds the vendored folder by the lines of its README; returns the library."""
    folder = WORK / name
    run(sys.executable, ROOT / "tools/vendor.py", folder, COMPILER)
    sources = sorted(path.name for path in folder.glob("*.cc"))
    run(COMPILER, *VENDORED, "-ffunction-sections", "-fno-asynchronous-unwind-tables", *options, *sources, cwd=folder)
    run("ar", "rcs", "libpenstock_runtime.a", *(Path(source).with_suffix(".o") for source in sources), cwd=folder)
    return folder / "libpenstock_runtime.a"


class Library(unittest.TestCase):
    def expect_below(self, path, what, weights=0):
        size = path.stat().st_size - weights
        print(f"{what}: {size} bytes of {MOST[what]}")
        self.assertLess(size, MOST[what], what)

    def test_sizes_and_what_it_needs(self):
        self.expect_below(LIBRARY, "static library")
        program = program_of(RELEASED / "lstm.safetensors", "embedded", LIBRARY)
        self.expect_below(program, "program of one LSTM")
        self.expect_below(program_of(RELEASED / "lstm.safetensors", "embedded_int8", LIBRARY, kind="int8_model"), "program for int8 weights")
        file = RELEASED / "network.safetensors"
        network = program_of(file, "embedded_network", LIBRARY)
        self.expect_below(network, "program of a network", file.stat().st_size)
        for line in (run("ldd", program) + run("ldd", network)).splitlines():
            self.assertRegex(line, r"linux-vdso|ld-linux|libc\.so|libm\.so")
        symbols = run("nm", "-C", LIBRARY)
        for unwanted in ("fmt::", "nlohmann", "dnnl", "GOMP", "__cxa_throw", "std::ios", "std::locale", "typeinfo for"):
            self.assertFalse(unwanted in symbols, unwanted)

    @unittest.skipUnless(os.uname().machine == "x86_64", "the instruction set is of x86-64")
    def test_vendored_for_one_instruction_set(self):
        library = vendored("vendored", "-march=x86-64-v3", "-DHWY_COMPILE_ONLY_STATIC")
        program = program_of(RELEASED / "lstm.safetensors", "embedded_v3", library)
        self.expect_below(program, "program for one instruction set")
        file = RELEASED / "network.safetensors"
        network = program_of(file, "embedded_network_v3", library)
        self.expect_below(network, "program of a network for one instruction set", file.stat().st_size)
        if "avx2" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
            return
        chosen = program_of(RELEASED / "lstm.safetensors", "embedded_choice", LIBRARY)
        avx2 = {**os.environ, "PENSTOCK_ISA": "avx2"}
        self.assertEqual(run(program), run(chosen, env=avx2))
        self.assertEqual(run(network), run(program_of(file, "embedded_network_choice", LIBRARY), env=avx2))

    def example(self, name):
        """Builds an example in C; returns the program."""
        program, source = WORK / f"{name}_c", ROOT / f"examples/runtime/{name}.c"
        run(shutil.which("cc") or COMPILER, "-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I", ROOT / "include", "-c", source,
            "-o", WORK / f"{name}_c.o")
        run(COMPILER, WORK / f"{name}_c.o", LIBRARY, "-lm", "-o", program)
        return program

    def test_example_of_a_network(self):
        program = self.example("network")
        numbers = "".join(f"{i * 5 % 17 / 8 - 1}\n" for i in range(5 * 16))
        lines = (RELEASED / "answers/network.jsonl").read_text(encoding="utf-8").splitlines()
        got = [float(value) for value in run(program, RELEASED / "network.safetensors", "x=1,16", input=numbers).split()]
        self.assertEqual(len(got), 10)
        for mine, theirs in zip(got, (value for line in lines for value in json.loads(line)["y"])):
            self.assertAlmostEqual(mine, theirs, delta=2e-6)
        refused = subprocess.run([program, RELEASED / "network.safetensors", "x=1,8"], capture_output=True, text=True, check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("input 'x' has the shape [1, 16], not [1, 8]", refused.stderr)

    def test_example_in_c(self):
        program = self.example("stream")
        rows = "".join(f"{i % 7} {i % 5}\n" for i in range(12))
        answers = run(program, RELEASED / "series.safetensors", input=rows).splitlines()
        self.assertGreater(len(answers), 3)
        self.assertTrue(all(float(value) == float(value) for line in answers for value in line.split()))
        refused = subprocess.run([program, RELEASED / "layers.safetensors"], capture_output=True, text=True, check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("not a model of Penstock", refused.stderr)

    @unittest.skipUnless(shutil.which("rustc"), "there is no rustc")
    def test_example_in_rust(self):
        program = WORK / "stream_rs"
        run("rustc", "-O", "-D", "warnings", ROOT / "examples/runtime/stream.rs", "-o", program, "-L", LIBRARY.parent, "-l",
            "static=penstock_runtime", "-l", "dylib=stdc++", "-l", "dylib=m")
        embedded = program_of(RELEASED / "lstm.safetensors", "embedded_rust", LIBRARY)
        want = [float.fromhex(line) for line in run(embedded).split()]
        inputs = 1
        for inputs in range(1, 9):  # the program says how many the model wants
            rows = "".join(" ".join(str(((step * 7 + i) % 11) / 4 - 1) for i in range(inputs)) + "\n" for step in range(20))
            done = subprocess.run([program, RELEASED / "lstm.safetensors"], input=rows, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                break
            self.assertIn("features must hold", done.stderr)
        got = [float(value) for value in done.stdout.split()]
        self.assertEqual(len(got), len(want))
        for mine, theirs in zip(got, want):
            self.assertAlmostEqual(mine, theirs, delta=1e-7 * max(1.0, abs(theirs)))


if __name__ == "__main__":
    LIBRARY, COMPILER, WORK = Path(sys.argv[1]).resolve(), sys.argv[2], Path(sys.argv[3])
    WORK.mkdir(parents=True, exist_ok=True)
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
