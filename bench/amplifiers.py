"""Compares LSTMs of the sizes of amplifier models with RTNeural and NeuralAudio:

    python bench/amplifiers.py --program build/release/bench/amplifier_times --peers FOLDER

FOLDER has checkouts of RTNeural, xsimd, NeuralAudio and math_approx under these names. They are compiled by g++ for
this machine, RTNeural in four ways, of which the best counts. Prints tables in Markdown.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import tempfile

SOURCE = pathlib.Path(__file__).parent / "peers" / "amplifier_peers.cc"
FLAGS = ["-O3", "-DNDEBUG", "-fPIC", "-shared", "-fvisibility=hidden", "-w"]
EIGEN = ["-DRTNEURAL_USE_EIGEN=1", "-IRTNeural/modules/Eigen", "-DEIGEN_STACK_ALLOCATION_LIMIT=0", "-DRTNEURAL_DEFAULT_ALIGNMENT=32"]
XSIMD = ["-DRTNEURAL_USE_XSIMD=1", "-Ixsimd/include"]
RTNEURAL = ["-std=c++17", "-DPEER_RTNEURAL", "-IRTNeural"]
NEURAL_AUDIO = ["-std=c++20", "-DPEER_NEURAL_AUDIO", "-INeuralAudio", "-Imath_approx/include", *EIGEN[1:3], "-IRTNeural/modules/json"]
#: Shared libraries and the options that make them.
PEERS = {
    "Eigen, AVX2": [*RTNEURAL, *EIGEN, "-mavx2", "-mfma"],
    "Eigen, native": [*RTNEURAL, *EIGEN, "-march=native"],
    "xsimd, AVX2": [*RTNEURAL, *XSIMD, "-DRTNEURAL_DEFAULT_ALIGNMENT=32", "-mavx2", "-mfma"],
    "xsimd, native": [*RTNEURAL, *XSIMD, "-DRTNEURAL_DEFAULT_ALIGNMENT=64", "-march=native"],
    "NeuralAudio": [*NEURAL_AUDIO, "-march=native"],
    "NeuralAudio, exact": [*NEURAL_AUDIO, "-march=native", "-DLSTM_MATH=StdMath"],
}
TIMES = re.compile(r"  (.+?) +(\d+) together: least ([\d.]+), quartiles [\d.]+ ([\d.]+) [\d.]+ ns, differs by (\S+)")
WORST = re.compile(r"    single steps: median (\d+), p99.99 (\d+), worst (\d+)")


def compile_peer(name: str, folder: pathlib.Path, into: pathlib.Path) -> str:
    library = into / f"{name}.so"
    subprocess.run(["g++", *FLAGS, *PEERS[name], SOURCE.resolve(), "-o", library], cwd=folder, check=True)
    return str(library)


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
        builds = {name: values for name, values in times.items() if name in PEERS and "NeuralAudio" not in name}
        best = min(builds, key=lambda name: builds[name][0])
        own, fast, exact = times["penstock.h"], times["NeuralAudio"], times["NeuralAudio, exact"]
        rows = [f"{least:.1f} ({median:.1f})" for least, median, *_ in (own, builds[best], fast)]
        factors = [each[0] / own[0] for each in (builds[best], fast, exact)]
        print(f"| {size} | {rows[0]} | {rows[1]}, {best} | {factors[0]:.2f} | {rows[2]} | {factors[1]:.2f} | {fast[2]:.1e} | {exact[0]:.0f} | {factors[2]:.1f} |")


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
    parser.add_argument("--peers", type=pathlib.Path, required=True, help="folder with RTNeural, xsimd, NeuralAudio and math_approx")
    parser.add_argument("--libraries", type=pathlib.Path, help="folder that keeps the compiled peers from run to run")
    parser.add_argument("--steps", type=int, default=0, help="single steps of each library that are timed one by one [0]")
    parser.add_argument("--before", default="taskset -c 1", help='what the program is started with, such as "taskset -c 1 chrt -f 10" [taskset -c 1]')
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        into = arguments.libraries or pathlib.Path(temporary)
        into.mkdir(exist_ok=True)
        missing = [name for name in PEERS if not (into / f"{name}.so").exists()]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda name: compile_peer(name, arguments.peers, into.resolve()), missing))
        command = [*arguments.before.split(), arguments.program, str(arguments.steps), *(str(into / f"{name}.so") for name in PEERS)]
        sizes = read(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    for together in (1, 64):
        table(sizes, together)
    if arguments.steps > 0:
        table_of_worst(sizes)


if __name__ == "__main__":
    main()
