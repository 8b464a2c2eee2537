"""Trains PyTorch's nn.GRU (or nn.LSTM) as a byte-level language model for a given wall time.

The opponent of `make demo`: embedding, recurrent network, linear head, of about as many parameters as asked for, on the
same training bytes, scored on the same held-out bytes with the state carried through. Same optimiser, schedule, clipping
and carried state as `penstock train`. Prints one JSON object.
"""

import argparse
import json
import math
import time

import numpy as np
import torch


class TextModel(torch.nn.Module):
    def __init__(self, cell, hidden, layers, width):
        super().__init__()
        self.embedding = torch.nn.Embedding(256, width)
        network = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[cell]
        self.network = network(width, hidden, layers, batch_first=True)
        self.head = torch.nn.Linear(hidden, 256)

    def forward(self, tokens, state=None):
        output, state = self.network(self.embedding(tokens), state)
        return self.head(output), state


def count(model):
    return sum(p.numel() for p in model.parameters())


def model_of_size(cell, parameters, layers):
    """The largest model with at most this many parameters; the embedding is half as wide as the network."""
    hidden = 8
    while count(TextModel(cell, hidden + 8, layers, (hidden + 8) // 2)) <= parameters:
        hidden += 8
    return TextModel(cell, hidden, layers, hidden // 2), hidden


def detach(state):
    return tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()


def bits(logits, targets):
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 256), targets.reshape(-1))
    return loss, loss.item() / math.log(2)


def train(model, data, arguments):
    rows, length = arguments.batch, arguments.length
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() == 1]
    optimiser = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=1.0, betas=(0.9, 0.99))
    starts = [len(data) * row // rows for row in range(rows)]
    position, state, step = 0, None, 0
    began = time.monotonic()
    while True:
        fraction = (time.monotonic() - began) / arguments.seconds
        if fraction >= 1:
            return step, time.monotonic() - began
        rate = min(1.0, fraction / 0.05 + 1e-3) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * fraction)))
        for group in optimiser.param_groups:
            group["lr"] = arguments.learning_rate * rate
        index = np.array([[(start + position + t) % len(data) for t in range(length + 1)] for start in starts])
        window = torch.from_numpy(data[index].astype(np.int64))
        position += length
        logits, state = model(window[:, :-1], state)
        loss, _ = bits(logits, window[:, 1:])
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        state = detach(state)
        step += 1


@torch.inference_mode()
def validate(model, data):
    state, total, scored = None, 0.0, 0
    for begin in range(0, len(data) - 1, 4096):
        window = torch.from_numpy(data[begin:begin + 4097].astype(np.int64))[None]
        if window.shape[1] < 2:
            break
        logits, state = model(window[:, :-1], state)
        _, value = bits(logits, window[:, 1:])
        total += value * (window.shape[1] - 1)
        scored += window.shape[1] - 1
    return total / scored


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--cell", choices=["gru", "lstm"], default="gru")
    parser.add_argument("--parameters", type=int, default=500_000)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=75)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--validation-fraction", type=float, default=0.05)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    data = np.fromfile(arguments.text, dtype=np.uint8)
    split = len(data) - int(len(data) * arguments.validation_fraction)
    model, hidden = model_of_size(arguments.cell, arguments.parameters, arguments.layers)
    steps, seconds = train(model, data[:split], arguments)
    print(json.dumps({
        "peer": f"torch {torch.__version__} nn.{arguments.cell.upper()}", "hidden": hidden, "layers": arguments.layers,
        "parameters": count(model), "steps": steps, "seconds": round(seconds, 1),
        "bytes_per_second": round(steps * arguments.batch * arguments.length / seconds),
        "validation_bits_per_byte": round(validate(model, data[split:]), 4), "threads": torch.get_num_threads()}))


if __name__ == "__main__":
    main()
