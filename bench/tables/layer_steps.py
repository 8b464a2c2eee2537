"""Times the pass of one layer forwards and backwards over sequences of several lengths. Prints one JSON object.

One sequence, float32. A length that would take longer than --longest seconds is left out, and all lengths behind it.
"""

import argparse
import json
import resource
import statistics
import time

import torch
from transformer import Attention, Recurrent

import penstock.torch

LAYERS = ("LSTM", "GRU", "SLSTM", "MinGRU", "MinLSTM", "convolution", "attention", "torch.nn.LSTM", "torch.nn.GRU")
REPEATS = 5


class Convolution(torch.nn.Module):
    """Four taps of every channel, then a product over channels."""

    def __init__(self, width):
        super().__init__()
        self.taps = torch.nn.Conv1d(width, width, 4, padding=3, groups=width)
        self.mix = torch.nn.Linear(width, width)

    def forward(self, x):
        return self.mix(self.taps(x.transpose(1, 2))[..., :x.shape[1]].transpose(1, 2))


class First(torch.nn.Module):
    """A recurrent layer's output without its state."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


def layer(name, width):
    """A module of [1, T, width]."""
    if name == "convolution":
        return Convolution(width)
    if name == "attention":
        return Attention(width, 4)
    if name.startswith("torch.nn."):
        return Recurrent(name.removeprefix("torch.nn."), width)
    return First(getattr(penstock.torch, name)(width, width, batch_first=True))


class Step:
    """A pass forwards and backwards."""

    def __init__(self, module, length, width, device):
        self.module, self.device = module, device
        self.x = torch.randn(1, length, width, device=device, requires_grad=True)

    def __call__(self):
        """Milliseconds."""
        began = time.perf_counter()
        self.module(self.x).sum().backward()
        if self.device != "cpu":
            torch.cuda.synchronize()
        return 1000 * (time.perf_counter() - began)


def resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(step, device, longest):
    """Median and range of milliseconds, and megabytes: on a CPU, what the process grew by; on a GPU, PyTorch's peak."""
    before = resident()
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    first = step()
    times = [step() for _ in range(REPEATS)] if first < 1000 * longest / REPEATS else [first]
    memory = resident() - before if device == "cpu" else torch.cuda.max_memory_allocated() / 1e6
    return {"ms": statistics.median(times), "least": min(times), "most": max(times), "memory_mb": memory}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layer", choices=LAYERS)
    parser.add_argument("--lengths", type=int, nargs="+", required=True)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--longest", type=float, default=20.0)
    parser.add_argument("--threads", type=int, default=0, help="0: all")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    module = layer(arguments.layer, arguments.width).to(arguments.device)
    Step(module, 16, arguments.width, arguments.device)()  # what is loaded and compiled once
    found, seconds, growth = {}, 0.0, 0.0
    for length in arguments.lengths:
        if seconds * growth > arguments.longest:
            break
        step = Step(module, length, arguments.width, arguments.device)
        found[str(length)] = measured = measure(step, arguments.device, arguments.longest)
        growth = max(2.0, measured["ms"] / 1000 / seconds if seconds else 2.0)
        seconds = measured["ms"] / 1000
    print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(), "lengths": found}))


if __name__ == "__main__":
    main()
