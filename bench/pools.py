#!/usr/bin/env python3
"""Throughput and latency of pools of sessions, beside one batch of as many rows.

    bench/pools.py [--threads N] [--seconds S] [--sessions N ...]
    bench/pools.py --device cuda [--precision bf16] --sessions 10000 --rate 100

Models have two layers of --width units and 16 inputs. silero-vad comes from the installed package (pip install --no-deps
silero-vad).

Throughput: a step of every session, in alternating turns with the batch. The turn of each with the least CPU time, of all
threads together, counts; on a GPU, by the clock. Latency: the steps of all sessions are due at equal intervals, at --load
of the pool's mean throughput or --rate of each session; from the moment at which a step is due to the return of run().
"""

from __future__ import annotations

import argparse
import importlib.util
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import penstock

INPUTS, SAMPLES = 16, 576


def model(cell: str, width: int) -> penstock.Model:
    names = [f"c{i}" for i in range(INPUTS)]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "noise.csv")
        np.savetxt(path, np.random.default_rng(0).standard_normal((300, INPUTS)), delimiter=",", header=",".join(names), comments="")
        data = penstock.open_series(path, inputs=names, targets=names[:1], horizon=1)
    return penstock.Model(data, cell=cell, width=width, blocks=2)


def silero() -> tuple[penstock.Network, dict[str, list[int]]] | None:
    found = importlib.util.find_spec("silero_vad")
    if found is None or not found.submodule_search_locations:
        return None
    path = pathlib.Path(found.submodule_search_locations[0], "data", "silero_vad.onnx")
    return penstock.import_onnx(path, fixed={"sr": 16000}), {"input": [1, SAMPLES], "state": [2, 1, 128]}


def contenders(options: argparse.Namespace, count: int) -> Iterator[tuple[str, int, penstock.SessionPool, Callable[[Any], Any]]]:
    """Name, values of a step, a pool, and a step of one batch of as many rows."""
    where = {"device": options.device, "precision": options.precision, "threads": options.threads}
    for cell in ("lstm", "gru", "mingru"):
        made = model(cell, options.width)
        batch = penstock.SessionBatch(made, count, **where)
        pool = penstock.SessionPool(made, count, queue=count, **where)
        yield f"{cell}, 2 x {options.width}", made.data["input_size"], pool, batch.push
    if options.device == "cpu" and (found := silero()) is not None:
        network, shapes = found
        widened = {"input": [count, SAMPLES], "state": [2, count, 128]}
        whole = penstock.NetworkSession(network, widened)
        pool = penstock.SessionPool(network, count, shapes=shapes, threads=options.threads, queue=count)
        yield "silero-vad, 16 kHz", SAMPLES, pool, whole.run


def quickest(calls: list[Callable[[], Any]], seconds: float, clock: Callable[[], float]) -> tuple[list[float], float]:
    """Seconds by `clock` of the quickest turn of each call, and the mean seconds on the clock of the first."""
    best, taken = [float("inf")] * len(calls), []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(taken) < 3:
        for i, call in enumerate(calls):
            wall, began = time.perf_counter(), clock()
            call()
            best[i] = min(best[i], clock() - began)
            if i == 0:
                taken.append(time.perf_counter() - wall)
    return best, sum(taken) / len(taken)


def latencies(pool: penstock.SessionPool, sessions: np.ndarray, steps: np.ndarray, rate: float, seconds: float) -> np.ndarray:
    """Seconds from when a step is due to its answer, with `rate` steps a second of all sessions in turn."""
    total, submitted = int(rate * seconds), 0
    taken: list[np.ndarray] = []
    began = time.perf_counter()
    while submitted < total or pool.waiting:
        due = min(total, int((time.perf_counter() - began) * rate), submitted + len(sessions) - pool.waiting)
        turn = np.arange(submitted, due)
        submitted += pool.submit(sessions[turn % len(sessions)], steps[turn % len(sessions)], tags=turn)
        answers = pool.run()
        taken.append(time.perf_counter() - began - answers.tags / rate)
    return np.concatenate(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, help="threads of the pool and of the batch")
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of each measurement")
    parser.add_argument("--sessions", type=int, nargs="+", default=[100, 1000, 10_000], help="numbers of sessions")
    parser.add_argument("--width", type=int, default=256, help="units of a layer of the models")
    parser.add_argument("--device", default="cpu", help="device of the pool and of the batch")
    parser.add_argument("--precision", default="full", help="precision of models: full, bf16 or f16")
    parser.add_argument("--load", type=float, default=0.5, help="share of the throughput at which latency is measured")
    parser.add_argument("--rate", type=float, help="instead: steps a second of each session")
    options = parser.parse_args()
    clock = time.process_time if options.device == "cpu" else time.perf_counter
    print("| streams of | sessions | one batch, us a row | pool, us a row | share | steps a second | p50, ms | p99, ms |")
    print("|---|---|---|---|---|---|---|---|")
    for count in options.sessions:
        for name, width, pool, push in contenders(options, count):
            steps = np.random.default_rng(1).standard_normal((count, width)).astype(np.float32)
            sessions = np.array([pool.open() for _ in range(count)])
            (ours, batch), mean = quickest([lambda: pool.push(sessions, steps), lambda: push(steps)], options.seconds, clock)
            rate = count * options.rate if options.rate else options.load * count / mean
            waited = latencies(pool, sessions, steps, rate, options.seconds)
            p50, p99 = np.quantile(waited, [0.5, 0.99]) * 1e3
            print(
                f"| {name} | {count:,} | {batch / count * 1e6:.2f} | {ours / count * 1e6:.2f} | {batch / ours:.0%} | "
                f"{count / mean:,.0f} | {p50:.2f} | {p99:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
