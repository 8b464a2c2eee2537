"""Trains a Transformer or a recurrent layer of torch.nn as a byte-level language model. Prints one JSON object.

Bytes, windows, optimiser, schedule and clipping are those of `penstock train TEXT`. A recurrent network carries its
state from window to window; a Transformer sees a window, and is scored with at least half a window of bytes before each
byte. With --contexts the speed of generation behind so many bytes is measured.
"""

import json
import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
from transformer import begun, computing, device_memory, network_of_size, parameters_of, parser_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "quality"))
from torch_training import Optimiser  # noqa: E402

GENERATED = 256  # bytes whose generation is timed
WARM = 20  # steps before a step is timed
CHUNK = 1024  # bytes of a context that are read at once


def detached(state):
    return tuple(part.detach() for part in state) if isinstance(state, tuple) else state.detach()


def bits(logits, targets):
    """Of every byte."""
    loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none")
    return loss / math.log(2)


def seconds(arguments):
    """Now, when all work on the device is done."""
    if arguments.device != "cpu":
        torch.cuda.synchronize()
    return time.monotonic()


def train(model, data, arguments):
    """Returns seconds of all steps, and of one of those behind the first WARM; 0 if there are none."""
    rows, length = arguments.batch, arguments.length
    optimiser = Optimiser(model, arguments.learning_rate)
    starts = torch.tensor([len(data) * row // rows for row in range(rows)], device=data.device)[:, None]
    ahead = torch.arange(length + 1, device=data.device)
    carries = arguments.kind != "Transformer"
    memory = model.memory() if carries else None
    warm = began = seconds(arguments)
    for step in range(arguments.steps):
        if step == WARM:
            warm = seconds(arguments)
        window = data[(starts + step * length + ahead) % len(data)].long()
        with computing(arguments.precision):
            logits = model(window[:, :-1], memory)
        optimiser.step(bits(logits, window[:, 1:]).mean() * math.log(2), (step + 1) / arguments.steps)
        for state in memory or ():
            state.value = detached(state.value)
    ended = seconds(arguments)
    return ended - began, (ended - warm) / (arguments.steps - WARM) if arguments.steps > WARM else 0.0


@torch.no_grad()
def score(model, data, arguments):
    """Bits a byte. Of a Transformer: windows begin every half window, and their second halves count."""
    carries = arguments.kind != "Transformer"
    length = 4096 if carries else arguments.length
    hop = length if carries else length // 2
    memory = model.memory() if carries else None
    total = scored = 0
    for begin in range(0, len(data) - 1, hop):
        window = data[begin:begin + length + 1].long()[None]
        skipped = 0 if carries or begin == 0 else length - hop
        if window.shape[1] <= skipped + 1:
            break
        with computing(arguments.precision):
            logits = model(window[:, :-1], memory)
        found = bits(logits, window[:, 1:])[skipped:]
        total += float(found.double().sum())
        scored += found.numel()
    return total / scored


@torch.no_grad()
def generation(model, data, context, device):
    """Milliseconds a byte behind `context` bytes, and the bytes of state or cache there."""
    memory = model.memory()
    for begin in range(0, context, CHUNK):  # kernels of whole long sequences take too much memory, or do not exist
        logits = model(data[None, begin:min(begin + CHUNK, context)].long(), memory)[:, -1:]
    kept = sum(part.bytes() for part in memory if part)
    for _ in range(2):  # the first pass warms up
        if device != "cpu":
            torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(GENERATED):
            token = torch.multinomial(logits[:, -1].softmax(-1), 1)
            logits = model(token, memory)
        if device != "cpu":
            torch.cuda.synchronize()
    return {"ms": 1000 * (time.perf_counter() - began) / GENERATED, "bytes": kept}


def main():
    parser = parser_of(__doc__, blocks=3, batch=32, length=512)
    parser.add_argument("text")
    parser.add_argument("--validation-fraction", type=float, default=0.05)
    parser.add_argument("--contexts", type=int, nargs="*", default=[])
    parser.add_argument("--unscored", action="store_true", help="leave the hold-out set out")
    arguments = begun(parser)
    data = torch.from_numpy(np.fromfile(arguments.text, dtype=np.uint8)).to(arguments.device)
    split = len(data) - int(len(data) * arguments.validation_fraction)
    model, width = network_of_size(arguments.kind, 256, 256, arguments.blocks, arguments.parameters)
    model.to(arguments.device)
    all_steps, a_step = train(model, data[:split], arguments)
    result = {"peer": f"torch {torch.__version__}", "width": width, "parameters": parameters_of(model),
              "seconds": all_steps, "step_seconds": a_step, "memory_mb": device_memory()}
    model.eval()
    if not arguments.unscored:
        result["bits"] = score(model, data[split:], arguments)
    result["generation"] = {str(n): generation(model, data, n, arguments.device) for n in arguments.contexts}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
