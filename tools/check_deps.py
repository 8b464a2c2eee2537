#!/usr/bin/env python3
"""Checks that includes follow the order of layers and rooms, and that no file has grown too long, tests included.

    tools/check_deps.py [ROOT]

Prints one line for each violation and exits with status 1 if there are any. docs/architecture.md says what each layer
is for; the tables below are the rules.
"""

import argparse
import re
import sys
from pathlib import Path

MAX_LINES = 520
SUFFIXES = {".h", ".cc", ".inl", ".cuh"}
# Folders whose files have no rules for includes, but a length.
LENGTH_ALONE = ["tests", "tools", "examples"]
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')

# House, a folder of src/ -> its layers, the folders in it, each with the layers directly below it; what is below those is
# allowed too. Includes name a file from its house on.
HOUSES = {
    "core": {
        "base": [],
        "csp": ["base"],
        "cells": ["base"],
        "custom": ["cells"],
        "plan": ["custom", "csp"],
        "backend": ["plan"],
        "network": ["backend"],
        "runtime": ["network"],
        "ops": ["backend"],
        "graph": ["ops"],
        "nn": ["graph"],
        "io": ["nn", "network"],
        "stream": ["nn"],
    },
    "fit": {
        "forecast/linear": ["base"],
        "data": ["io", "forecast/linear"],
        "forecast": ["data"],
        "classify": ["data"],
        "train": ["forecast", "classify"],
    },
}
BELOW = {layer: below for layers in HOUSES.values() for layer, below in layers.items()}

# Public headers about data and what follows from them, by prefix: only data and the layers above it see them. What a
# model needs to know of its data is for nn and the layers above it, too.
OF_DATA = ("penstock/data", "penstock/train", "penstock/forecast", "penstock/classify", "penstock/penstock.h")
OF_MODELS = ("penstock/data_description.h", "penstock/description/")

# Layer -> its rooms (its folders), each with the rooms directly below it; "" stands for files outside all rooms.
ROOMS = {
    "ops": {
        "": [],
        "memory": [""],
        "pointwise": ["memory"],
        "product": ["pointwise"],
        "scan": ["memory"],
        "recurrence": ["product", "scan"],
        "training": ["product"],
        "cuda": ["recurrence", "training"],
    },
    "data": {
        "": [],
        "table": [""],
        "rows": ["table"],
        "text": [""],
        "series": ["table"],
        "labelled": ["table"],
        "sound": [""],
        "tasks": [""],
    },
}
# Headers that every room of their layer may include: an op for all devices prepares its CUDA version through them.
DOORS = {"ops/cuda/ops.h", "ops/cuda/common.h"}

# Third-party headers by prefix -> the places that may see them.
THIRD_PARTY = {
    "fmt/": {*BELOW, "bench", "apps"},
    "omp.h": {"base", "ops", "bench"},  # ops: oneDNN takes its number of threads from OpenMP
    "hwy/": {"backend", "network", "runtime"},
    "penstock.h": {"runtime", "bench/kernels"},
    "penstock_pool.h": {"stream"},
    "oneapi/": {"backend", "ops", "bench"},
    "dnnl": {"backend", "ops", "bench"},
    "xxhash.h": {"backend", "io"},
    "zlib.h": {"data", "apps"},
    "nlohmann/": {"base", "custom", "plan", "io", "data", "train", "bench", "apps"},
    "CLI/": {"apps"},
    "nanobind/": {"python"},
}

# POSIX headers, for what standard C++ cannot do: atomic files, terminals, signals, the sizes of caches.
SYSTEM = {"base", "backend", "io", "data", "bench", "apps", "python"}

# Folders beside src/ -> those whose headers they may see besides the public ones (and bench base's).
BESIDE = {"oracle": ["oracle"], "bench": ["bench", "oracle"], "apps": ["bench"], "python": []}
# Folders whose files include each other by paths relative to the folder.
OWN = ["apps/cli", "python/src"]
# What measures kernels that no public header shows sees the layers up to one as well.
UP_TO = {"bench/kernels": "ops", "bench/contenders": "backend"}

# Text that other compilers read as well (every instruction set, CUDA's) -> the places it may include.
FREESTANDING = {"cell": ["cell"], "shared": [], "kernel": ["cell", "shared", "kernel"]}
# Random numbers that the host and kernels draw alike, and the rules of a training step.
SHARED = [Path("src/core/base/counter_random.h"), Path("src/core/base/training")]
# The headers for C.
C_HEADERS, OF_C = {Path("include/penstock.h"), Path("include/penstock_pool.h")}, {"stddef.h", "stdint.h", "penstock.h"}
# What the program and the Python package run before they load the library.
BEFORE_LIBRARY = "base/spin_turns.h"


def reach(below, start):
    """A layer or room itself and all below it."""
    found, queue = set(), [start]
    while queue:
        current = queue.pop()
        if current not in found:
            found.add(current)
            queue += below[current]
    return found


def house_of(root, header):
    """The house that has this header, or None."""
    return next((house for house in HOUSES if (root / "src" / house / header).is_file()), None)


def layer_of(parts):
    """The layer of a path below its house."""
    nested = "/".join(parts[:2])
    return nested if nested in BELOW else parts[0]


def room_of(parts, layer):
    """The room of a path below its house in its layer; empty in none."""
    inside = parts[len(layer.split("/")):]
    return inside[0] if len(inside) > 1 else ""


def wrong_room(path, header, layer):
    """Why a file may not include this header of its own layer, or None."""
    rooms = ROOMS.get(layer)
    if rooms is None or header in DOORS:
        return None
    room, other = room_of(path.parts[2:], layer), room_of(Path(header).parts, layer)
    return None if other in reach(rooms, room) else f"{layer}/{room} may not see {layer}/{other}"


def wrong_public(place, header):
    """Why a layer may not include this public header, or None."""
    if place not in BELOW or not header.startswith((*OF_DATA, *OF_MODELS)):
        return None
    lowest = "nn" if header.startswith(OF_MODELS) else "data"
    return None if lowest in reach(BELOW, place) else f"{place} is below {lowest} or beside it"


def place_of(path):
    """Which rules hold for a file: those of a layer of src/ or a folder beside it, or of "cell", "kernel" or "public"."""
    parts = path.parts
    if parts[0] == "include":
        return "public"
    if "/".join(parts[:2]) in UP_TO:
        return "/".join(parts[:2])
    if parts[0] in BESIDE:
        return parts[0]
    if parts[2] == "cells" and path.suffix == ".h":
        return "cell"
    if "kernels" in parts:
        return "kernel"
    if path in SHARED or path.parent in SHARED:
        return "shared"
    return layer_of(parts[2:])


def is_standard(header):
    return re.fullmatch(r"[a-z_0-9]+", header) is not None


def third_party(header):
    """The places that may see this header of another project, or None if it is not one of the known ones."""
    return next((places for prefix, places in THIRD_PARTY.items() if header.startswith(prefix)), None)


def violation(root, path, quoted, header):
    """Why this file may not include this header, or None."""
    place = place_of(path)
    folder = place.split("/")[0]
    house = house_of(root, header) if quoted else None
    if place in FREESTANDING:
        if house and place_of(Path("src") / house / header) in FREESTANDING[place]:
            return None
        return f"a {place} header goes through every compiler and may include nothing but {FREESTANDING[place]}"
    if header.startswith("penstock/"):
        return wrong_public(place, header)
    if place == "public":
        standard = not quoted and (is_standard(header) or path in C_HEADERS and header in OF_C)
        return None if standard else "public headers see the standard library and penstock/ only"
    if quoted and header.split("/")[0] in BESIDE and (root / header).is_file():
        beside = header.split("/")[0]
        return None if beside in BESIDE.get(folder, []) else f"{place} may not see {beside}"
    if house:
        if place == "bench" and header.startswith("base/"):
            return None
        layer = layer_of(header.split("/"))
        if place in UP_TO and layer in reach(BELOW, UP_TO[place]):
            return None
        if header == BEFORE_LIBRARY and folder in ("apps", "python"):
            return None
        if folder in BESIDE:
            return f"{place} sees public headers only"
        if layer == place:
            return wrong_room(path, header, layer)
        return None if layer in reach(BELOW, place) else f"{place} may not see {layer}"
    if third_party(header):
        among = {place, folder} & third_party(header)
        return None if among else f"{place} is not among {sorted(third_party(header))}"
    if quoted:
        own = place in ("apps", "python") and any((root / base / header).is_file() for base in (path.parent, *OWN))
        return None if own else "there is no such file"
    if is_standard(header) or {place, folder} & SYSTEM:
        return None
    return f"{place} sees the standard library and the list of third-party headers only"


def check_file(root, path):
    """All complaints about one file, as text lines."""
    lines = (root / path).read_text(encoding="utf-8").splitlines()
    if path.parts[0] == "src":
        layer = layer_of(path.parts[2:])
        if layer not in HOUSES.get(path.parts[1], {}):
            return [f"{path}: {'/'.join(path.parts[:3])} is not a layer that tools/check_deps.py knows"]
        room = room_of(path.parts[2:], layer)
        if room not in ROOMS.get(layer, {room}):
            return [f"{path}: {path.parts[0]}/{path.parts[1]}/{layer}/{room} is not a room that tools/check_deps.py knows"]
    complaints = []
    for number, line in enumerate(lines, start=1):
        match = INCLUDE.match(line)
        if match:
            why = violation(root, path, match[1] == '"', match[2])
            if why:
                complaints.append(f"{path}:{number}: includes {match[2]}: {why}")
    return complaints


def files_of(root, folders, suffixes):
    """The files in these folders whose names end so, as paths below `root`."""
    return [
        file.relative_to(root)
        for folder in folders
        for file in sorted((root / folder).rglob("*"))
        if file.suffix in suffixes
    ]


def check_length(root, path):
    """A complaint about a file that is too long, in a list."""
    count = len((root / path).read_text(encoding="utf-8").splitlines())
    return [f"{path}: {count} lines; split it, {MAX_LINES} are allowed"] if count > MAX_LINES else []


def check_tree(root):
    """All complaints about the tree under `root`."""
    folders = ["include", "src", *BESIDE]
    sources = files_of(root, folders, SUFFIXES)
    if not sources:
        return [f"{root}: no sources"]
    complaints = [complaint for file in sources for complaint in check_file(root, file)]
    for file in files_of(root, [*folders, *LENGTH_ALONE], SUFFIXES | {".py"}):
        complaints += check_length(root, file)
    return complaints


def main():
    parser = argparse.ArgumentParser(description="Checks the order of the layers and the length of files.")
    parser.add_argument("root", nargs="?", default=Path(__file__).resolve().parent.parent, type=Path)
    complaints = check_tree(parser.parse_args().root.resolve())
    print("\n".join(complaints), file=sys.stderr, end="\n" if complaints else "")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
