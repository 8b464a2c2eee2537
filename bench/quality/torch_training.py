"""Code shared by PyTorch's peers of `penstock train`: model size, optimiser and schedule."""

import math

import torch


def count(model):
    return sum(p.numel() for p in model.parameters())


def largest(make, parameters):
    """make(hidden) of the largest hidden size that has at most this many parameters, and that size."""
    hidden = 1
    while count(make(hidden + 1)) <= parameters:
        hidden += 1
    return make(hidden), hidden


class Optimiser:
    """AdamW with weight decay on matrices alone, warm-up, cosine and clipping."""

    def __init__(self, model, learning_rate):
        self.model, self.learning_rate = model, learning_rate
        matrices = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() == 1]
        self.adamw = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}],
            lr=learning_rate, betas=(0.9, 0.99))

    def step(self, loss, fraction):
        """One step down the loss; fraction: of the run that will be over then."""
        cosine = 0.5 * (1 + math.cos(math.pi * (fraction - 0.05) / 0.95))
        for group in self.adamw.param_groups:
            group["lr"] = self.learning_rate * (fraction / 0.05 if fraction < 0.05 else 0.05 + 0.95 * cosine)
        self.adamw.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.adamw.step()


def add_options(parser, **defaults):
    parser.add_argument("--cell", choices=["gru", "lstm"], default="gru")
    parser.add_argument("--parameters", type=int, default=17_000, help="at most so many")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    for name, value in defaults.items():
        parser.add_argument("--" + name, type=type(value), default=value)
