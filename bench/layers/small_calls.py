"""Times small training calls on a GPU, where the host may take longer than the kernels: penstock.torch and torch.nn,
called as they are, as CUDA graphs, and by torch.compile. Prints the table of docs/results/python_gpu.md.

    python bench/layers/small_calls.py [--shape 128x64x128x256] [--cell GRU] [--seconds 0.5]

Many calls are queued and waited for at once. `host` is the time until they are queued. `one thread` is the wall-clock
time with torch.autograd.set_multithreading_enabled(False). Kernels and launches are those that torch.profiler finds
afterwards, since it makes all later calls slower. Results must first be equal.
"""

import argparse
import statistics
import time

import torch

import penstock.torch


def microseconds(call, seconds):
    """Returns the medians of the wall-clock time and of the host's time of one call, with 50 calls queued."""
    calls, walls, hosts = 50, [], []
    for _ in range(10):
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(walls) < 5:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        hosts.append(1e6 * (time.perf_counter() - start) / calls)
        torch.cuda.synchronize()
        walls.append(1e6 * (time.perf_counter() - start) / calls)
    return statistics.median(walls), statistics.median(hosts)


def kernels(call):
    """Returns the microseconds of the kernels of a call, and their number."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(10):
            call()
        torch.cuda.synchronize()
    found = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return sum(event.device_time for event in found) / 10, len(found) / 10


class Outputs(torch.nn.Module):
    """The outputs of a layer alone: graphs hold one tensor."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


def training(forward, layer, x, dy):
    def call():
        for leaf in (x, *layer.parameters()):
            leaf.grad = None
        y = forward(x)
        y.backward(dy)
        return y.detach()

    return call


def measured(layer, call, x, dy, seconds):
    """Returns wall and host, the wall time with one thread, as graphs and as compiled."""
    wall, host = microseconds(call, seconds)
    with torch.autograd.set_multithreading_enabled(False):
        times = [wall, host, microseconds(call, seconds)[0]]
    if type(layer).__module__.startswith("penstock"):
        for forward in (
            torch.cuda.make_graphed_callables(Outputs(layer), (x,)),
            torch.compile(Outputs(layer), mode="reduce-overhead"),
        ):
            times.append(microseconds(training(forward, layer, x, dy), seconds)[0])
    return [f"{time:.0f}" for time in times]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="128x64x128x256", help="rows x steps x inputs x hidden size")
    parser.add_argument("--cell", choices=("GRU", "LSTM"), default="GRU")
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    rows, steps, inputs, hidden = map(int, options.shape.split("x"))
    columns = ("dtype", "layer", "wall", "host alone", "one thread", "`make_graphed_callables`", "`reduce-overhead`")
    rows_of_table = []
    for dtype in (torch.float32, torch.bfloat16):
        form = {"device": "cuda", "dtype": dtype}
        results = []
        for home in (penstock.torch, torch.nn):
            torch.manual_seed(0)
            layer = getattr(home, options.cell)(inputs, hidden, batch_first=True, **form)
            x, dy = torch.randn(rows, steps, inputs, **form).requires_grad_(), torch.randn(rows, steps, hidden, **form)
            call = training(Outputs(layer), layer, x, dy)
            results.append(call().float())
            times = measured(layer, call, x, dy, options.seconds)
            rows_of_table.append((call, [str(dtype)[6:], home.__name__, *times]))
        difference = (results[0] - results[1]).abs().max().item()
        if not difference < 0.02:
            raise SystemExit(f"the results differ by {difference}")
    print(f"{options.cell} {options.shape}, torch {torch.__version__}, {torch.cuda.get_device_name()}: microseconds of")
    print(f"a forward and a backward pass\n\n| {' | '.join(columns)} | kernels, launches |\n{'|---' * len(columns)}|---|")
    for call, cells in rows_of_table:
        busy, launches = kernels(call)
        cells += [""] * (len(columns) - len(cells))
        print(f"| {' | '.join(cells)} | {busy:.0f}, {launches:.0f} |", flush=True)


if __name__ == "__main__":
    main()
