"""A build without the libraries that it needs names them, and the script that installs them."""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def configure(source, *options, **environment):
    with tempfile.TemporaryDirectory() as build:
        command = ["cmake", "-S", source, "-B", build, *options]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})


class Dependencies(unittest.TestCase):
    def test_missing_libraries_are_named(self):
        absent = ["fmt", "hwy", "OpenMP", "CLI11"]
        result = configure(ROOT, *[f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in absent])
        self.assertNotEqual(result.returncode, 0)
        named = {line.removeprefix("CMake finds no ") for line in result.stderr.splitlines() if line.startswith("CMake finds no ")}
        self.assertEqual(named, set(absent))
        self.assertIn("run tools/setup.sh in the checkout", " ".join(result.stderr.split()))

    def test_a_missing_compiler_is_named(self):
        with tempfile.TemporaryDirectory() as tools:
            for name in ("cmake", "ninja", "make"):
                found = subprocess.run(["which", name], capture_output=True, text=True).stdout.strip()
                if found:
                    os.symlink(found, pathlib.Path(tools, name))
            result = configure(ROOT, "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF", PATH=tools, CXX="")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("There is no C++ compiler", result.stderr)

    def test_setup_reads_the_names(self):
        # The probe of the script, with a package that CMake is told not to find.
        script = (ROOT / "tools" / "setup.sh").read_text()
        probe = script[script.index("probe() {") : script.index("\n}\n", script.index("probe() {")) + 3]
        modules = f"set(CMAKE_DISABLE_FIND_PACKAGE_hwy ON)\ninclude({ROOT}/cmake/PenstockDependencies.cmake)"
        result = subprocess.run(["bash", "-c", f"tools=(cmake)\nmodules='{modules}'\n{probe}\nprobe"], capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stdout), (1, "CMake finds no hwy\n"))


if __name__ == "__main__":
    unittest.main()
