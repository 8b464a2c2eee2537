#!/usr/bin/env python3
"""Gives the OpenMP library inside a repaired wheel its own name back.

    tools/one_openmp.py WHEEL

auditwheel renames the libraries that it puts into a wheel, so that they meet no others. Of OpenMP that would make two
pools of threads in a process that also has PyTorch, whose wheel brings libgomp.so.1 under that name: the threads of one
wait actively while the other computes. Under its own name the library that is loaded first serves both. That is safe as
long as nothing in the wheel needs more of it than the interfaces of GCC 5 and before, which this checks.
"""

import re
import subprocess
import sys
from pathlib import Path

from auditwheel.wheeltools import InWheelCtx

NAME = "libgomp.so.1"
OLDEST = {"GOMP_1.0", "GOMP_2.0", "GOMP_3.0", "GOMP_4.0", "OMP_1.0", "OMP_2.0", "OMP_3.0", "OMP_3.1", "OMP_4.0"}


def output(*command):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout


def is_elf(path):
    return path.is_file() and path.open("rb").read(4) == b"\x7fELF"


def versions_needed(file):
    """The versions of libgomp's interface that a file refers to."""
    section = output("readelf", "--version-info", "--wide", file).partition("File: " + NAME)[2].partition("File: ")[0]
    return set(re.findall(r"Name: (\S+)", section))


def main():
    wheel = Path(sys.argv[1])
    with InWheelCtx(wheel, wheel) as context:
        root = Path(context.path)
        renamed = list(root.glob("*.libs/libgomp-*.so*"))
        if len(renamed) != 1:
            sys.exit(f"one_openmp.py: {wheel} has {len(renamed)} libraries libgomp-*, not one")
        (library,) = renamed
        for file in filter(is_elf, root.rglob("*")):
            if file == library or library.name not in output("patchelf", "--print-needed", file).split():
                continue
            output("patchelf", "--replace-needed", library.name, NAME, file)
            needed = versions_needed(file)
            if not needed or needed - OLDEST:
                sys.exit(f"one_openmp.py: {file.name} needs {', '.join(sorted(needed)) or 'nothing known'} of {NAME}")
        output("patchelf", "--set-soname", NAME, library)
        library.rename(library.with_name(NAME))


if __name__ == "__main__":
    main()
