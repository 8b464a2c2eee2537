"""The claims that Penstock's ideas come with, measured on this machine's GPU: prints a page of tables.

    python3 bench/seeds.py build/release/penstock > seeds.md
    python3 bench/seeds.py build/release/penstock --only loops sizes

Needs PyTorch with CUDA and the package penstock. Errors stand beside times. They are relative to the largest value of
the same layer in double precision by torch.nn. A part that cannot run says why, and the other parts go on.
"""

import argparse
import importlib.util
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "tables"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="penstock, as it was built")
    parser.add_argument("--only", nargs="+", metavar="PART", help="parts of the page, in its order")
    parser.add_argument("--quick", action="store_true", help="short sequences and few repeats: a test of the script")
    arguments = parser.parse_args()
    missing = [name for name in ("torch", "penstock") if not importlib.util.find_spec(name)]
    if missing:
        parser.error(f"the packages {' and '.join(missing)} are missing: pip install torch, and Penstock's wheel")
    import torch
    if not torch.cuda.is_available():
        parser.error("PyTorch finds no GPU, and all parts of this page are measured on one")
    import gpu_layers
    import gpu_traces
    parts = {**gpu_layers.PARTS, **gpu_traces.PARTS}
    if unknown := set(arguments.only or ()) - set(parts):
        parser.error(f"--only has {', '.join(sorted(unknown))}; the parts are {', '.join(parts)}")
    failed = False
    print(f"One {torch.cuda.get_device_name()}, PyTorch {torch.__version__}.\n")
    for name, part in parts.items():
        if arguments.only and name not in arguments.only:
            continue
        title, *lines = (part.__doc__ or name).strip().splitlines()
        print(f"## {title.rstrip('.')}\n")
        print("\n".join(line.strip() for line in lines).strip(), end="\n\n" if lines else "")
        try:
            print(part(arguments.program, arguments.quick), end="\n\n", flush=True)
        except Exception as error:  # the others go on, and the exit status tells
            failed = True
            traceback.print_exc()
            print(f"This part failed: {type(error).__name__}: {error}\n", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
