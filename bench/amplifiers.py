"""Compares LSTMs of the sizes of amplifier models with other libraries:

    python bench/amplifiers.py --program build/release/bench/amplifier_times LIBRARY...

bench/kernels/amplifier_times.cc says what a LIBRARY exports. Its name says what it holds:

    "RTNeural, BUILD.so"       a build of RTNeural; of several, the quickest counts
    NeuralAudio.so             NeuralAudio with its own functions
    "NeuralAudio, exact.so"    NeuralAudio with exact functions

docs/results/streaming.md has the versions of both and their builds. Prints tables in Markdown.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import subprocess

TIMES = re.compile(r"  (.+?) +(\d+) together: least ([\d.]+), quartiles [\d.]+ ([\d.]+) [\d.]+ ns, differs by (\S+)")
WORST = re.compile(r"    single steps: mean (\d+), median (\d+), p99.99 (\d+), worst (\d+)")


def read(text: str) -> dict[str, dict]:
    """Returns the times of each size: {(library, samples in a call): (least, median, difference, worst)}."""
    sizes: dict[str, dict] = {}
    for line in text.splitlines():
        if times := TIMES.match(line):
            last = times[1], int(times[2])
            size[last] = [float(times[3]), float(times[4]), float(times[5]), None]
        elif worst := WORST.match(line):
            size[last][3] = [int(each) for each in worst.groups()]
        else:
            size = sizes.setdefault(line, {})
    return sizes


def quickest(times: dict, together: int) -> str:
    """Returns the quickest build of RTNeural."""
    return min((name for name, samples in times if name.startswith("RTNeural") and samples == together), key=lambda name: times[name, together][0])


def table(sizes: dict[str, dict], together: int) -> None:
    print(f"\n{'A sample' if together == 1 else f'{together} samples'} a call, ns a sample: least (median)\n")
    print("| layers x units | Penstock | RTNeural, best build | factor | NeuralAudio | factor | its error | exact functions | factor |")
    print("|---|---|---|---|---|---|---|---|---|")
    for size, times in sizes.items():
        best = quickest(times, together)
        times = {name: values for (name, samples), values in times.items() if samples == together}
        own, fast, exact = times["penstock.h"], times["NeuralAudio"], times["NeuralAudio, exact"]
        rows = [f"{least:.1f} ({median:.1f})" for least, median, *_ in (own, times[best], fast)]
        factors = [each[0] / own[0] for each in (times[best], fast, exact)]
        print(f"| {size} | {rows[0]} | {rows[1]}{best.removeprefix('RTNeural')} | {factors[0]:.2f} | {rows[2]} | {factors[1]:.2f} | {fast[2]:.1e} | {exact[0]:.0f} | {factors[2]:.1f} |")


def table_of_worst(sizes: dict[str, dict]) -> None:
    print("\nSingle steps: median and mean in ns, 99.99 % and worst in us\n")
    print("| layers x units | Penstock | RTNeural, best build | NeuralAudio |\n|---|---|---|---|")
    for size, times in sizes.items():
        names = ["penstock.h", quickest(times, 1), "NeuralAudio"]
        worst = [times[name, 1][3] for name in names if (name, 1) in times]
        print(f"| {size} | {' | '.join(f'{median}, {mean}, {p / 1e3:.1f}, {w / 1e3:.0f}' for mean, median, p, w in worst)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="amplifier_times, which a build with tests has in bench/")
    parser.add_argument("libraries", nargs="+", metavar="LIBRARY", help="shared library of a peer")
    parser.add_argument("--steps", type=int, default=0, help="single steps that are timed one by one, of RTNeural in its quickest build [0]")
    parser.add_argument("--sizes", nargs="*", default=[], metavar="LAYERSxUNITS", help="sizes such as 1x24 [all of the page]")
    parser.add_argument("--before", default="taskset -c 1", help='what the program is started with, such as "taskset -c 1 chrt -f 10" [taskset -c 1]')
    arguments = parser.parse_args()

    def run(steps: int, sizes: list[str], libraries: list[str]) -> dict[str, dict]:
        command = [*arguments.before.split(), arguments.program, str(steps), *sizes, *libraries]
        return read(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    sizes = run(0, arguments.sizes, arguments.libraries)
    for together in (1, 64):
        table(sizes, together)
    if arguments.steps > 0:
        worst = {}
        for size, times in sizes.items():
            names = (quickest(times, 1), "NeuralAudio")
            libraries = [each for each in arguments.libraries if pathlib.Path(each).stem in names]
            worst |= run(arguments.steps, [size.replace(" ", "")], libraries)
        table_of_worst(worst)


if __name__ == "__main__":
    main()
