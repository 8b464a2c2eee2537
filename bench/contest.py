#!/usr/bin/env python3
"""Times Penstock against other packages of this year on this machine, and prints a page of tables in Markdown.

    python bench/contest.py --threads 1 > cpu.md
    python bench/contest.py --device cuda > gpu.md
    python bench/contest.py --only layers scans --clock processor   # where other programs run

Needs PyTorch and the package penstock. Each other package that is not installed is named and left out. A result is
compared with float64 before it is timed, and a wrong one gets no time. A part that cannot run says why, and the others
go on.
"""

import argparse
import importlib.util
import os
import sys
import time
import traceback
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent / folder) for folder in ("contest", "layers")]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--seconds", type=float, default=0.5, help="of timed calls of each contender and pass")
    parser.add_argument("--only", nargs="+", metavar="PART", help="parts of the page, in this order")
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall")
    parser.add_argument("--check", action="store_true", help="compare results, time nothing; fills caches of kernels")
    parser.add_argument("--quick", action="store_true", help="short sequences and few repeats: a test of the script")
    given = parser.parse_args()
    missing = [name for name in ("torch", "penstock") if not importlib.util.find_spec(name)]
    if missing:
        parser.error(f"the packages {' and '.join(missing)} are missing: pip install torch, and Penstock's wheel")
    return parser, given


def main():
    parser, given = arguments()
    if given.device == "cpu" and hasattr(os, "sched_setaffinity"):  # JAX has no other way to take fewer threads
        os.environ.setdefault("OMP_NUM_THREADS", str(given.threads))
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.threads])
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # PyTorch needs a share of the GPU's memory
    import measuring
    import torch
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch finds no GPU: leave out --device cuda")
    if given.device == "cuda" and given.clock == "processor":
        parser.error("--clock processor is for --device cpu: a GPU's time is no time of the processor")
    import dense
    import scans
    parts = {**dense.PARTS, **scans.PARTS, **dense.LAST_PARTS}
    if unknown := set(given.only or ()) - set(parts):
        parser.error(f"--only has {', '.join(sorted(unknown))}; the parts are {', '.join(parts)}")
    torch.set_num_threads(given.threads)
    clock = time.process_time if given.clock == "processor" else time.perf_counter
    seconds = 0.02 if given.quick else given.seconds
    sys.stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what compilers of other packages print is no part of the page
    settings = measuring.Settings(given.device, given.threads, seconds, given.quick, clock, given.check)
    print(measuring.machine(settings), end="\n\n")
    failed = False
    for name in given.only or parts:
        part = parts[name]
        title, *lines = part.__doc__.strip().splitlines()
        print(f"## {title}\n")
        print("\n".join(line.strip() for line in lines).strip(), end="\n\n")
        try:
            print(part(settings), end="\n\n", flush=True)
        except Exception as error:  # the others go on, and the exit status tells
            failed = True
            traceback.print_exc()
            print(f"This part failed: {measuring.reason(error)}\n", flush=True)
    print(measuring.left_out())
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
