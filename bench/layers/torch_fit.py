#!/usr/bin/env python3
"""Times steps of penstock.torch.fit with the models of examples/train_language_model.py, on one GPU or on many.

    torchrun --nproc-per-node 2 bench/layers/torch_fit.py TEXT CELL:SIZE:HOW... [--rows B] [--length T] [--steps N]

HOW is ddp or fsdp, with +compile, +profile and +save after it: "mingru:100m:ddp+compile". On one GPU both are the plain model.
Each line has the median and mean time of a step, tokens a second of all GPUs, memory and the share of their peak. +profile adds
the kernels that take the longest, and how much of the time of NCCL's kernels others run at the same time. +save writes a
checkpoint every --save-every seconds, and adds for how long each one stops training.
"""

import argparse
import contextlib
import os
import pathlib
import statistics
import sys
import tempfile
import time

import torch

import penstock
import penstock.torch
from penstock.torch._fitting.trainer import Trainer

sys.path.append(str(pathlib.Path(__file__).parents[2] / "examples"))
import train_language_model  # noqa: E402

WORLD, FIRST = int(os.environ.get("WORLD_SIZE", "1")), os.environ.get("RANK", "0") == "0"
_WARM, _PROFILED = 5, 3  # steps


class Clock(train_language_model.Meter):
    """Notes when each step has ended, and profiles some of them."""

    def __init__(self, model, profiled):
        super().__init__(model)
        self.ends, self.positions = [], 0
        self.profiler = torch.profiler.profile() if profiled else None

    def __call__(self, progress):
        self.ends.append(time.perf_counter())
        self.memory = torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else 0
        if self.profiler is not None and len(self.ends) == _WARM:
            self.profiler.start()
        if self.profiler is not None and len(self.ends) == _WARM + _PROFILED:
            torch.cuda.synchronize()
            self.profiler.stop()

    def seconds(self):
        """Returns the median time of a step after the first ones, and the mean."""
        times = [b - a for a, b in zip(self.ends[_WARM:], self.ends[_WARM + 1 :])]
        return statistics.median(times), statistics.mean(times)

    def share(self, tokens):
        peak = self.peak()
        return f"{100 * self._operations * tokens / peak:5.1f} % of peak" if peak else ""


@contextlib.contextmanager
def timed_saves(trainer=Trainer):
    """Notes the seconds for which each checkpoint stops training, but for the last one, which is waited for."""
    found, save = [], trainer.save

    def timed(self, wait):
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # the update of the weights is not part of it
        begun = time.perf_counter()
        save(self, wait)
        if not wait:
            found.append(time.perf_counter() - begun)

    trainer.save = timed
    try:
        yield found
    finally:
        trainer.save = save


def union(spans):
    """Returns sorted spans (begin, end) that do not overlap."""
    result = []
    for begin, end in sorted(spans):
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((begin, end))
    return result


def both(first, second):
    """Returns for how long spans of both lists run; each list is a union()."""
    return sum(max(0.0, min(end, e) - max(begin, b)) for begin, end in first for b, e in second)


def tell_profile(profiler):
    events = [e for e in profiler.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    spans = {True: [], False: []}
    for event in events:
        spans["nccl" in event.name.lower()].append((event.time_range.start, event.time_range.end))
    exchange, compute = union(spans[True]), union(spans[False])
    busy = sum(end - begin for begin, end in union(spans[True] + spans[False]))
    length = sum(end - begin for begin, end in exchange)
    whole = (max(e.time_range.end for e in events) - min(e.time_range.start for e in events)) / _PROFILED
    print(f"  {whole / 1e3:.2f} ms a step; the GPU works for {busy / _PROFILED / 1e3:.2f} ms of it")
    if length:
        print(f"  NCCL {length / _PROFILED / 1e3:.2f} ms a step, {100 * both(exchange, compute) / length:.0f} % of it beside "
              "other kernels")  # fmt: skip
    times = {}
    for event in events:
        name = event.name[:90]
        times[name] = times.get(name, 0.0) + (event.time_range.end - event.time_range.start) / _PROFILED
    for name, time_ in sorted(times.items(), key=lambda item: -item[1])[:12]:
        print(f"  {time_ / 1e3:8.3f} ms  {name}")


def measure(data, models, case, given):
    """Times a case, and prints a line on rank 0."""
    cell, size, how = case.split(":")
    sharding, *rest = how.split("+")
    if (cell, size) not in models:
        models[cell, size] = train_language_model.make_model(data, cell, size)
    model = models[cell, size]
    if given.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    torch.compiler.reset()
    clock, saving = Clock(model, "profile" in rest), "save" in rest
    with tempfile.TemporaryDirectory() as own, timed_saves() as saves:
        folder = os.path.join(given.folder or own, case) if saving else None
        penstock.torch.fit(
            model, data, device=given.device, sharding=sharding, compile="compile" in rest, batch=given.rows * WORLD,
            length=given.length, steps=given.steps, callback=clock, log_every=0, progress=False, validate_every=0,
            keep_best=False, rollbacks=given.rollbacks, optimizer=given.optimizer, checkpoint=folder,
            checkpoint_every=given.save_every,
        )  # fmt: skip
    if FIRST:
        (seconds, mean), tokens = clock.seconds(), given.rows * WORLD * given.length
        print(f"{case:28} {WORLD} GPUs {model.parameter_count / 1e6:7.1f} M  {1e3 * seconds:8.2f} ms a step (mean {1e3 * mean:.2f})  "
              f"{tokens / seconds / 1e3:8.1f} k tokens/s  {clock.memory / 1e9:6.1f} GB  {clock.share(tokens / seconds)}",
              flush=True)  # fmt: skip
        if saving:
            print(f"  checkpoints stop training for {', '.join(f'{1e3 * each:.1f}' for each in saves)} ms")
        if clock.profiler is not None:
            tell_profile(clock.profiler)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("cases", nargs="+", metavar="CELL:SIZE:HOW")
    parser.add_argument("--rows", type=int, default=32, help="of each GPU")
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--rollbacks", type=int, help="0: without the guard's copies of the weights")
    parser.add_argument("--optimizer", default="adamw")
    parser.add_argument("--save-every", type=float, default=6.0, help="seconds, for +save")
    parser.add_argument("--folder", help="of checkpoints, seen by all ranks; a temporary one by default")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    data, models = penstock.open_text(given.text, bytes=True, validation_fraction=0.01), {}
    for case in given.cases:
        measure(data, models, case, given)


if __name__ == "__main__":
    main()
