#!/usr/bin/env python3
"""Runs clang-tidy over the sources of src/, bench/, apps/ and python/src/, and over our headers through them.

    tools/tidy.py BUILD_DIR

Nine tenths of clang-tidy's time goes into parsing the headers of libraries, again for every source. So sources that are
compiled alike are checked as one unit: a file that includes them all, on which clang-tidy finds what it finds in each.
A source that is compiled several times (also for the C runtime, for PyTorch and for JAX) is checked once.
Sources that compile themselves once per instruction set stay alone. On x86-64 they are checked for AVX-512 alone, which
compiles all of their code. Programs of one source stay alone, too. A unit that does not parse, because two of its files
give one name to different things, is checked in halves, which takes longer. Exits with status 1 if there are findings.
"""

import argparse
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("src", "bench", "apps", "python/src")
ENGINE = "#define HWY_TARGET_INCLUDE"  # the name under which Highway includes a source again
PROGRAMS = ROOT / "bench" / "kernels"  # each source has a main() of its own
OF_GPU = '#include "bench/contenders/on_gpu.h"'  # its names are ambiguous beside those of the public interface
ONE_TARGET = ("-march=skylake-avx512", "-DHWY_COMPILE_ONLY_STATIC") if platform.machine() == "x86_64" else ()
# Flags that clang does not know, and flags that only concern the generated code or a shared library's name.
WITHOUT_EFFECT = ("-mmemset-strategy=", "-mmemcpy-strategy=", "-O", "-fvisibility", "-ffunction-sections", "-fdata-sections",
                  "-fno-asynchronous-unwind-tables", "-Wno-stringop-overflow")
NAME_OF_LIBRARY = re.compile(r"-D\w+_EXPORTS")
DOES_NOT_PARSE = "[clang-diagnostic-error]"


def flags_of(command):
    """The compiler's flags in a command of compile_commands.json, without launcher, files and precompiled headers."""
    words = shlex.split(command)
    first = next(i for i, word in enumerate(words) if word.startswith("-"))
    flags, skip = [], False
    for word, following in zip(words[first:], [*words[first + 1:], ""]):
        if skip:
            skip = False
        elif word in ("-o", "-c") or (word == "-include" and "cmake_pch" in following):
            skip = True
        elif not word.startswith(WITHOUT_EFFECT) and not NAME_OF_LIBRARY.fullmatch(word):
            flags.append(word)
    return tuple(flags)


def units_of(build):
    """Pairs of flags and the sources to check with them in one go; the longest first."""
    alone, together, seen = [], defaultdict(list), set()
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = Path(entry["directory"], entry["file"]).resolve()
        if source in seen or not any(source.is_relative_to(ROOT / folder) for folder in FOLDERS):
            continue
        seen.add(source)
        flags, text = flags_of(entry["command"]), source.read_text()
        if ENGINE in text:
            alone.append(((*flags, *ONE_TARGET), [source]))
        elif source.parent == PROGRAMS:
            alone.append((flags, [source]))
        else:
            together[flags, OF_GPU in text].append(source)
    units = [(flags, sources) for (flags, _), sources in together.items()]
    return sorted(units, key=lambda unit: -len(unit[1])) + alone


def tidy(flags, source):
    """What clang-tidy finds in a source; empty if nothing."""
    command = ["clang-tidy", "--quiet", f"--config-file={ROOT / '.clang-tidy'}", str(source), "--", *flags]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode == 0:
        return ""
    return result.stdout or result.stderr or f"{source}: clang-tidy ended with status {result.returncode}\n"


def check(unit):
    flags, sources = unit
    if len(sources) == 1:
        return tidy(flags, sources[0])
    with tempfile.NamedTemporaryFile("w", suffix=".cc") as file:
        file.writelines(f'#include "{source}"  // NOLINT(bugprone-suspicious-include)\n' for source in sources)
        file.flush()
        found = tidy((*flags, "-Wno-shadow"), file.name)  # files do not shadow each other; g++ warns of the rest
    if DOES_NOT_PARSE not in found:
        return found
    reason = next(line for line in found.splitlines() if DOES_NOT_PARSE in line)
    print(f"tidy.py: {len(sources)} sources do not parse as one, so halves are checked: {reason}", file=sys.stderr)
    middle = len(sources) // 2
    return check((flags, sources[:middle])) + check((flags, sources[middle:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, help="a configured build folder, for its compile_commands.json")
    units = units_of(parser.parse_args().build)
    known = {source for _, sources in units for source in sources}
    for source in (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.cc"))):
        if source not in known:
            sys.exit(f"tidy.py: {source} is not in compile_commands.json; is the build folder configured with everything?")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        findings = "".join(pool.map(check, units))
    sys.stderr.write(findings)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
