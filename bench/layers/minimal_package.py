#!/usr/bin/env python3
"""Times the layers of the package minGRU-pytorch and Penstock's with the same weights, on one CPU thread.

    pip install minGRU-pytorch
    python bench/layers/minimal_package.py --seconds 2

Calls alternate. Times are processor time, since other work of the machine then counts less. A layer whose result is off
float64 by more than 1e-3 of the largest value gets no time.
"""

import argparse
import copy
import importlib.metadata
import statistics
import time

import penstock.torch
import torch
from minGRU_pytorch.minGRU import minGRU
from minGRU_pytorch.minLSTM import minLSTM

SHAPES = [(8, 1024, 256), (1, 4096, 512), (64, 512, 128)]  # rows, steps, inputs and hidden size
LARGEST_ERROR = 1e-3


def pair(kind, size):
    """Returns the layer of the package and Penstock's, with the same weights."""
    theirs = kind(size)
    weights = penstock.interchange.from_lucidrains(theirs.state_dict())
    return theirs, weights.to_torch()


def error(y, exact):
    return float((y.double() - exact).abs().max() / exact.abs().max())


def times(calls, seconds):
    """Returns milliseconds of processor time of each call, which take turns."""
    found = [[] for _ in calls]
    for call in calls:
        call()
    end = time.monotonic() + seconds * len(calls)
    while time.monotonic() < end or len(found[0]) < 3:
        for call, each in zip(calls, found):
            start = time.thread_time()
            call()
            each.append(1e3 * (time.thread_time() - start))
    return found


def step(layer, x, training):
    def run():
        with torch.set_grad_enabled(training):
            y = layer(x)
            y = y[0] if isinstance(y, tuple) else y
            if training:
                y.sum().backward()
        return y

    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each layer and pass")
    seconds = parser.parse_args().seconds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"minGRU-pytorch {importlib.metadata.version('minGRU-pytorch')}, PyTorch {torch.__version__}, one thread\n")
    print("| layer, rows x steps x size | pass | package, ms | Penstock, ms | times | error of the package | Penstock's |")
    print("|---|---|---|---|---|---|---|")
    for kind in (minGRU, minLSTM):
        for rows, steps, size in SHAPES:
            theirs, ours = pair(kind, size)
            x = torch.randn(rows, steps, size)
            with torch.no_grad():
                exact = copy.deepcopy(theirs).double()(x.double())
                errors = [error(step(layer, x, False)(), exact) for layer in (theirs, ours)]
            for training in (False, True):
                what = f"| {kind.__name__} {rows} x {steps} x {size} | {'training' if training else 'forward'} |"
                if max(errors) > LARGEST_ERROR:
                    print(f"{what} no time: wrong | | | {errors[0]:.1e} | {errors[1]:.1e} |", flush=True)
                    continue
                found = times([step(layer, x.requires_grad_(training), training) for layer in (theirs, ours)], seconds)
                middle = [statistics.median(each) for each in found]
                shown = [f"{min(each):.3g} / {m:.3g}" for each, m in zip(found, middle)]
                ratio = middle[0] / middle[1]
                print(f"{what} {shown[0]} | {shown[1]} | {ratio:.1f} | {errors[0]:.1e} | {errors[1]:.1e} |", flush=True)
                x.requires_grad_(False)


if __name__ == "__main__":
    main()
