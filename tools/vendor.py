#!/usr/bin/env python3
"""Copies the C runtime into one folder that any C++20 compiler builds without CMake.

    tools/vendor.py FOLDER [COMPILER]

The folder receives the sources and all headers they include, those of Highway too: the compiler is asked which. Then

    c++ -std=c++20 -O2 -fno-exceptions -fno-rtti -ffp-contract=off -I. -c *.cc
    ar rcs libpenstock_runtime.a *.o

builds the library; README.txt in the folder has the line of a program.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "src/core"
# Compiled once for each instruction set, by including themselves: sources of their own.
KERNELS = ["runtime/step_kernels.cc", "runtime/int8_kernels.cc", "network/gate_kernels.cc", "network/pointwise_kernels.cc", "network/product_kernels.cc"]
SHARED = ["base/json_reader.cc", "base/files/safetensors_header.cc", "custom/expression_graph.cc", "custom/program.cc"]
OF_MODELS = ["runtime/c_open_models.cc", "runtime/read_description.cc"]
OF_INT8 = ["runtime/c_open_int8.cc"]
OF_NETWORKS = ["runtime/c_open_networks.cc", "base/memory_plan.cc"]
# Parts of networks that the import needs, or the full library.
NOT_OURS = ["network/builder_images.cc", "network/byte_kernels.cc", "network/byte_operators.cc", "network/convolution_in_place.cc", "network/fold.cc", "network/library_cell.cc",
            "network/rounded_operators.cc", "network/row_ranges.cc", "network/spectrum_kernels.cc"]
# As cmake/PenstockRuntime.cmake has them.
DEFINES = ["#define penstock penstock_runtime", "#define PENSTOCK_RUNTIME 1", "#define HWY_DISABLE_PCLMUL_AES 1"]
README = """Penstock {version}: the C runtime. penstock.h is its header, docs/runtime.md of Penstock its manual.

    c++ -std=c++20 -O2 -fno-exceptions -fno-rtti -ffp-contract=off -I. -c *.cc
    ar rcs libpenstock_runtime.a *.o
    cc -I. program.c libpenstock_runtime.a -lstdc++ -lm

For a single instruction set add, for example, -march=x86-64-v3 -DHWY_COMPILE_ONLY_STATIC. LICENSE is that of Penstock;
the headers in hwy/ are of Highway (https://github.com/google/highway), under the Apache licence 2.0.
"""


def version():
    return re.search(r"VERSION (\d+\.\d+\.\d+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))[1]


def headers_of(sources, compiler, made):
    """Returns {name that is included: file} for every header of the project and of Highway that the sources include."""
    command = [compiler, "-std=c++20", "-M", f"-I{CORE}", f"-I{ROOT / 'include'}", f"-I{made}", *map(str, sources)]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    headers = {}
    for name in listed.replace("\\\n", " ").split():
        file = Path(name)
        if name.endswith(":") or not file.is_file():
            continue
        file = file.resolve()
        for base in (CORE, ROOT / "include", made.resolve()):
            if file.is_relative_to(base):
                headers[str(file.relative_to(base))] = file
        if "/hwy/" in name:
            folder = Path(name.split("/hwy/")[0]) / "hwy"
            # A header of Highway includes another one for each instruction set: all of its ops go along.
            for header in [file, *folder.glob("ops/*.h")]:
                headers[f"hwy/{header.relative_to(folder)}"] = header
    return headers


def groups():
    """Returns {source of the folder: sources that it includes}, as cmake/PenstockRuntime.cmake has them: a program
    links what it opens."""
    found = [str(path.relative_to(CORE)) for name in ("runtime", "network") for path in sorted((CORE / name).glob("*.cc"))]
    found = [source for source in found if source not in KERNELS + NOT_OURS]
    models = [source for source in found if source.startswith("runtime/recurrent_") or source in OF_MODELS]
    networks = [source for source in found if source.startswith(("network/", "runtime/network_"))] + OF_NETWORKS
    rest = [source for source in found if source not in models + networks + OF_INT8]
    kernels = {f"penstock_{Path(source).stem}": [source] for source in KERNELS}
    return {"penstock_runtime": rest + SHARED, "penstock_models": models, "penstock_int8": OF_INT8,
            "penstock_networks": networks, **kernels}


def vendor(folder, compiler):
    parts = groups()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        made = Path(name)
        (made / "penstock").mkdir()
        text = (ROOT / "cmake/version.h.in").read_text(encoding="utf-8")
        text = text.replace("@PROJECT_VERSION@", version()).replace("@PENSTOCK_HAS_TRAINING@", "0")
        (made / "penstock/version.h").write_text(text, encoding="utf-8")
        sources = {source: CORE / source for each in parts.values() for source in each}
        for target, file in {**headers_of(sources.values(), compiler, made), **sources}.items():
            (folder / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / target)
    for target, included in parts.items():
        lines = [*DEFINES, "", *(f'#include "{source}"' for source in included)]
        (folder / f"{target}.cc").write_text("\n".join(lines) + "\n", encoding="utf-8")
    shutil.copyfile(ROOT / "LICENSE", folder / "LICENSE")
    (folder / "README.txt").write_text(README.format(version=version()), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description="Copies the C runtime into a folder that builds without CMake.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("compiler", nargs="?", default="c++")
    arguments = parser.parse_args()
    vendor(arguments.folder, arguments.compiler)
    return 0


if __name__ == "__main__":
    sys.exit(main())
