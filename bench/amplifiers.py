"""Compares LSTMs of the sizes of amplifier models with other libraries:

    python bench/amplifiers.py --program build/release/bench/amplifier_times LIBRARY...

bench/kernels/amplifier_times.cc says what a LIBRARY exports. Its name says what it holds:

    "RTNeural, BUILD.so"       a build of RTNeural; of several, the quickest counts
    NeuralAudio.so             NeuralAudio with its own functions
    "NeuralAudio, exact.so"    NeuralAudio with exact functions

Prints tables in Markdown.
"""

from __future__ import annotations

import argparse
import re
import subprocess

TIMES = re.compile(r"  (.+?) +(\d+) together: least ([\d.]+), quartiles [\d.]+ ([\d.]+) [\d.]+ ns, differs by (\S+)")
WORST = re.compile(r"    single steps: median (\d+), p99.99 (\d+), worst (\d+)")


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


def table(sizes: dict[str, dict], together: int) -> None:
    print(f"\n{'A sample' if together == 1 else f'{together} samples'} a call, ns a sample: least (median)\n")
    print("| layers x units | Penstock | RTNeural, best build | factor | NeuralAudio | factor | its error | exact functions | factor |")
    print("|---|---|---|---|---|---|---|---|---|")
    for size, times in sizes.items():
        times = {name: values for (name, samples), values in times.items() if samples == together}
        best = min((name for name in times if name.startswith("RTNeural")), key=lambda name: times[name][0])
        own, fast, exact = times["penstock.h"], times["NeuralAudio"], times["NeuralAudio, exact"]
        rows = [f"{least:.1f} ({median:.1f})" for least, median, *_ in (own, times[best], fast)]
        factors = [each[0] / own[0] for each in (times[best], fast, exact)]
        print(f"| {size} | {rows[0]} | {rows[1]}{best.removeprefix('RTNeural')} | {factors[0]:.2f} | {rows[2]} | {factors[1]:.2f} | {fast[2]:.1e} | {exact[0]:.0f} | {factors[2]:.1f} |")


def table_of_worst(sizes: dict[str, dict]) -> None:
    print("\nSingle steps: median in ns, 99.99 % in us, worst in ms\n")
    names = [name for name, samples in next(iter(sizes.values())) if samples == 1]
    print(f"| layers x units | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
    for size, times in sizes.items():
        fields = [f"{m}, {p / 1e3:.1f}, {w / 1e6:.2f}" for m, p, w in (times[name, 1][3] for name in names)]
        print(f"| {size} | {' | '.join(fields)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="amplifier_times, which a build with tests has in bench/")
    parser.add_argument("libraries", nargs="+", metavar="LIBRARY", help="shared library of a peer")
    parser.add_argument("--steps", type=int, default=0, help="single steps of each library that are timed one by one [0]")
    parser.add_argument("--before", default="taskset -c 1", help='what the program is started with, such as "taskset -c 1 chrt -f 10" [taskset -c 1]')
    arguments = parser.parse_args()
    command = [*arguments.before.split(), arguments.program, str(arguments.steps), *arguments.libraries]
    sizes = read(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    for together in (1, 64):
        table(sizes, together)
    if arguments.steps > 0:
        table_of_worst(sizes)


if __name__ == "__main__":
    main()
