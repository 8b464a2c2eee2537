"""Trains PyTorch's nn.GRU (or nn.LSTM) as a byte-level language model for a given wall time.

The peer of `make demo`: embedding, recurrent network and linear head, with at most --parameters parameters. Training
bytes, held-out bytes, optimiser, schedule, clipping and carried state are those of `penstock train`. With --validations N
the best of N states of the run is scored. Prints one JSON object.
"""

import argparse
import copy
import json
import math
import time

import numpy as np
import torch


class TextModel(torch.nn.Module):
    def __init__(self, cell, hidden, layers, width, dropout=0.0):
        super().__init__()
        self.embedding = torch.nn.Embedding(256, width)
        network = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[cell]
        self.network = network(width, hidden, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
        self.dropout = torch.nn.Dropout(dropout)
        self.head = torch.nn.Linear(hidden, 256)

    def forward(self, tokens, state=None):
        output, state = self.network(self.dropout(self.embedding(tokens)), state)
        return self.head(self.dropout(output)), state


def count(model):
    return sum(p.numel() for p in model.parameters())


def model_of_size(cell, parameters, layers, dropout):
    """The largest model with at most this many parameters; the embedding is half as wide as the network."""
    hidden = 8
    while count(TextModel(cell, hidden + 8, layers, (hidden + 8) // 2)) <= parameters:
        hidden += 8
    return TextModel(cell, hidden, layers, hidden // 2, dropout), hidden


def detach(state):
    return tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()


def bits(logits, targets):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, 256).float(), targets.reshape(-1))


def train(model, data, held_out, arguments):
    """Steps, seconds and the fewest bits that were found along the way; validations do not count as time."""
    rows, length, device = arguments.batch, arguments.length, arguments.device
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() == 1]
    optimiser = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=1.0, betas=(0.9, 0.99))
    starts = torch.tensor([len(data) * row // rows for row in range(rows)], device=device)[:, None]
    ahead = torch.arange(length + 1, device=device)
    position, state, step, paused, validated = 0, None, 0, 0.0, 0
    best, kept = math.inf, None
    began = time.monotonic()
    while True:
        seconds = time.monotonic() - began - paused
        fraction = seconds / arguments.seconds
        if arguments.validations and fraction * arguments.validations >= validated + 1:
            stopped = time.monotonic()
            found = validate(model, held_out, arguments)
            if found < best:
                best, kept = found, copy.deepcopy(model.state_dict())
            validated += 1
            paused += time.monotonic() - stopped
        if fraction >= 1:
            if kept is not None:
                model.load_state_dict(kept)
            return step, seconds
        rate = min(1.0, fraction / 0.05 + 1e-3) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * fraction)))
        for group in optimiser.param_groups:
            group["lr"] = arguments.learning_rate * rate
        window = data[(starts + position + ahead) % len(data)].long()
        position += length
        with autocast(arguments):
            logits, state = model(window[:, :-1], state)
            loss = bits(logits, window[:, 1:])
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        state = detach(state)
        step += 1
        if device != "cpu":
            torch.cuda.synchronize()


def autocast(arguments):
    return torch.autocast(torch.device(arguments.device).type, torch.bfloat16, enabled=arguments.bf16)


@torch.no_grad()
def validate(model, data, arguments):
    model.eval()
    state, total, scored = None, 0.0, 0
    for begin in range(0, len(data) - 1, 4096):
        window = data[begin:begin + 4097].long()[None]
        if window.shape[1] < 2:
            break
        with autocast(arguments):
            logits, state = model(window[:, :-1], state)
            value = bits(logits, window[:, 1:])
        total += value.double() / math.log(2) * (window.shape[1] - 1)
        scored += window.shape[1] - 1
    model.train()
    return float(total) / scored


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
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--validations", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--bf16", action="store_true", help="autocast")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--validation-fraction", type=float, default=0.05)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    data = torch.from_numpy(np.fromfile(arguments.text, dtype=np.uint8)).to(arguments.device)
    split = len(data) - int(len(data) * arguments.validation_fraction)
    model, hidden = model_of_size(arguments.cell, arguments.parameters, arguments.layers, arguments.dropout)
    model.to(arguments.device)
    steps, seconds = train(model, data[:split], data[split:], arguments)
    print(json.dumps({
        "peer": f"torch {torch.__version__} nn.{arguments.cell.upper()}", "hidden": hidden, "layers": arguments.layers,
        "parameters": count(model), "steps": steps, "seconds": round(seconds, 1),
        "bytes_per_second": round(steps * arguments.batch * arguments.length / seconds),
        "validation_bits_per_byte": round(validate(model, data[split:], arguments), 4), "threads": torch.get_num_threads()}))


if __name__ == "__main__":
    main()
