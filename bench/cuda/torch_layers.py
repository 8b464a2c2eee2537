"""Times of the same layers in PyTorch on a GPU, beside cuda_layer_times: one line of Markdown a case.

    bench/cuda/torch_layers.py [--wait FILE]

minGRU in logarithms, as its paper has it, eager and compiled; its product alone; cuDNN's GRU. --wait: compiles at once
and times when FILE is there, so that compiling can overlap what others do.
"""

import argparse
import os
import statistics
import time

import torch
from torch.nn.functional import softplus

CASES = [("bfloat16", 8, 4096, 1024), ("bfloat16", 8, 1024, 1024), ("bfloat16", 64, 512, 256), ("float32", 64, 1000, 100)]


def min_gru(x, weight, bias):
    gate, candidate = torch.addmm(bias, x.flatten(0, 1), weight.t()).unflatten(0, x.shape[:2]).chunk(2, dim=-1)
    log_keep = -softplus(gate)
    log_candidate = torch.where(candidate >= 0, (torch.relu(candidate) + 0.5).log(), -softplus(-candidate))
    log_values = -softplus(-gate) + log_candidate
    kept = log_keep.cumsum(dim=1)
    return (kept + (log_values - kept).logcumsumexp(dim=1)).exp()


class Clock:
    def __init__(self):
        self.flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")

    def median(self, work):
        times = []
        for i in range(23):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self.flush.fill_(i)
            start.record()
            work()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        return statistics.median(times[3:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wait", metavar="FILE")
    arguments = parser.parse_args()
    compiled = torch.compile(min_gru, dynamic=False)
    jobs = []
    for dtype, batch, steps, width in CASES:
        kind = getattr(torch, dtype)
        x = torch.randn(batch, steps, width, device="cuda", dtype=kind, requires_grad=True)
        weight = torch.randn(2 * width, width, device="cuda", dtype=kind).mul_(width**-0.5).requires_grad_()
        bias = torch.zeros(2 * width, device="cuda", dtype=kind, requires_grad=True)
        gru = torch.nn.GRU(width, width, batch_first=True, device="cuda", dtype=kind)
        works = {"eager": lambda x=x, w=weight, b=bias: min_gru(x, w, b),
                 "compiled": lambda x=x, w=weight, b=bias: compiled(x, w, b),
                 "product": lambda x=x, w=weight, b=bias: torch.addmm(b, x.flatten(0, 1), w.t()),
                 "cudnn gru": lambda x=x, gru=gru: gru(x)[0]}
        gradient = torch.randn(batch, steps, width, device="cuda", dtype=kind)
        compiled(x, weight, bias).backward(gradient)
        jobs.append((f"{dtype} {batch},{steps},{width}", works, gradient))
    while arguments.wait and not os.path.exists(arguments.wait):
        time.sleep(0.2)
    clock = Clock()
    print(f"torch {torch.__version__}\n\n| case | what | forward ms | forward + backward ms |\n|---|---|---|---|")
    for name, works, gradient in jobs:
        for what, work in works.items():
            def both(work=work):
                out = work()
                out.backward(gradient if out.shape == gradient.shape else torch.ones_like(out))

            with torch.no_grad():
                forward = clock.median(work)
            print(f"| {name} | {what} | {forward:.4f} | {clock.median(both):.4f} |", flush=True)


if __name__ == "__main__":
    main()
