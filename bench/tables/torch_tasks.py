"""Trains a Transformer or a recurrent layer of torch.nn on a built-in task of Penstock. Prints one JSON object.

Data, optimiser, schedule and clipping are those of `penstock train task:NAME`; the network is the largest of its kind
with at most --parameters parameters.
"""

import itertools
import json
import sys
import time
from pathlib import Path

import numpy
import torch
from digits import PIXELS
from transformer import begun, computing, device_memory, network_of_size, parameters_of, parser_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "quality"))
from torch_training import Optimiser  # noqa: E402

NOT_SCORED = -1


class Words:
    """Products of permutations: the tasks parity, s3, a5 and s5. Parity is the group of two permutations."""

    def __init__(self, points, even_only, generator):
        names = [p for p in itertools.permutations(range(points))
                 if not even_only or sum(a > b for a, b in itertools.combinations(p, 2)) % 2 == 0]
        number = {p: i for i, p in enumerate(names)}
        self.products = torch.tensor([[number[tuple(q[i] for i in p)] for q in names] for p in names])
        self.vocabulary = self.classes = len(names)
        self.generator = generator

    def batch(self, rows, length):
        tokens = torch.randint(self.vocabulary, (rows, length), generator=self.generator)
        labels, state = torch.empty_like(tokens), torch.zeros(rows, dtype=torch.long)
        for t in range(length):
            labels[:, t] = state = self.products[state, tokens[:, t]]
        return tokens, labels


class Modular:
    def __init__(self, generator, modulus=5):
        self.modulus, self.vocabulary, self.classes, self.generator = modulus, 3 * modulus, modulus, generator

    def batch(self, rows, length):
        tokens = torch.randint(self.vocabulary, (rows, length), generator=self.generator)
        labels, value = torch.empty_like(tokens), torch.zeros(rows, dtype=torch.long)
        for t in range(length):
            operation, digit = tokens[:, t] // self.modulus, tokens[:, t] % self.modulus
            results = torch.stack((value + digit, value - digit, value * digit))
            labels[:, t] = value = results.gather(0, operation[None])[0] % self.modulus
        return tokens, labels


class Copying:
    data_tokens, vocabulary, classes = 14, 16, 14

    def __init__(self, generator, remembered):
        self.generator, self.remembered = generator, remembered

    def batch(self, rows, length):
        n = self.remembered
        tokens, labels = torch.zeros(rows, length, dtype=torch.long), torch.full((rows, length), NOT_SCORED)
        places = torch.rand(rows, length - n, generator=self.generator).argsort(1)[:, :n].sort(1).values
        symbols = torch.randint(self.data_tokens, (rows, n), generator=self.generator)
        tokens.scatter_(1, places, symbols + 1)
        tokens[:, -n:], labels[:, -n:] = self.data_tokens + 1, symbols
        return tokens, labels


class Recall:
    symbols, vocabulary, classes = 64, 129, 64

    def __init__(self, generator, pairs):
        self.generator, self.pairs = generator, pairs

    def batch(self, rows, length):
        n = self.pairs
        tokens, labels = torch.zeros(rows, length, dtype=torch.long), torch.full((rows, length), NOT_SCORED)
        keys = torch.rand(rows, self.symbols, generator=self.generator).argsort(1)[:, :n]
        values = torch.randint(self.symbols, (rows, n), generator=self.generator)
        tokens[:, 0:2 * n:2], tokens[:, 1:2 * n:2] = 1 + keys, 1 + self.symbols + values
        places = 2 * n + torch.rand(rows, length - 2 * n, generator=self.generator).argsort(1)[:, :n]
        tokens.scatter_(1, places, 1 + keys)
        labels.scatter_(1, places, values)
        return tokens, labels


class Digits:
    """Images pixel by pixel, as digits.py writes them. Their label is asked behind the last pixel."""

    vocabulary, classes = 0, 10

    def __init__(self, generator, path, like=None):
        table = numpy.loadtxt(path, delimiter=",", skiprows=1, usecols=(1, 2), dtype=numpy.float32)
        pixels = torch.from_numpy(table[:, 1]).unflatten(0, (-1, PIXELS))
        self.labels = torch.from_numpy(table[::PIXELS, 0]).long()
        self.mean, self.deviation = (like.mean, like.deviation) if like else (pixels.mean(), pixels.std())
        self.pixels, self.generator = (pixels - self.mean) / self.deviation, generator

    def chosen(self, images):
        labels = torch.full((len(images), PIXELS), NOT_SCORED)
        labels[:, -1] = self.labels[images]
        return self.pixels[images], labels

    def batch(self, rows, length):
        return self.chosen(torch.randint(len(self.labels), (rows,), generator=self.generator))

    def all(self):
        return self.chosen(torch.arange(len(self.labels)))


def tasks_of(arguments):
    """The task to learn and the one that is scored."""
    if arguments.task != "digits":
        return [task_of(arguments.task, arguments.remembered, seed) for seed in (arguments.seed, ~arguments.seed)]
    training, test = arguments.digits
    learnt = Digits(torch.Generator().manual_seed(arguments.seed), training)
    return learnt, Digits(None, test, like=learnt)


def task_of(name, remembered, seed):
    generator = torch.Generator().manual_seed(seed)
    made = {"parity": lambda: Words(2, False, generator), "modular": lambda: Modular(generator),
            "s3": lambda: Words(3, False, generator), "a5": lambda: Words(5, True, generator),
            "s5": lambda: Words(5, False, generator), "copying": lambda: Copying(generator, remembered),
            "recall": lambda: Recall(generator, remembered)}
    return made[name]()


@torch.no_grad()
def accuracy(model, task, length, device, precision, sequences=1024):
    rows = max(1, min(sequences, (1 << 16) // length))
    batches = [task.all()] if hasattr(task, "all") else (task.batch(rows, length) for _ in range(0, sequences, rows))
    right = scored = 0
    for tokens, labels in batches:
        tokens, labels = tokens.to(device), labels.to(device)
        asked = labels != NOT_SCORED
        with computing(precision):
            answers = model(tokens).argmax(-1)
        right += int((answers == labels)[asked].sum())
        scored += int(asked.sum())
    return right / scored


def main():
    parser = parser_of(__doc__, blocks=1, batch=64, length=40)
    parser.add_argument("task")
    parser.add_argument("--score", type=int, nargs="+", default=[40, 256])
    parser.add_argument("--remembered", type=int, default=10)
    parser.add_argument("--digits", nargs=2, help="files of the training and the test images")
    arguments = begun(parser)
    task, held_out = tasks_of(arguments)
    model, width = network_of_size(
        arguments.kind, task.vocabulary, task.classes, arguments.blocks, arguments.parameters)
    model.to(arguments.device)
    optimiser = Optimiser(model, arguments.learning_rate)
    began = time.monotonic()
    for step in range(arguments.steps):
        tokens, labels = (part.to(arguments.device) for part in task.batch(arguments.batch, arguments.length))
        with computing(arguments.precision):
            logits = model(tokens).float().flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, labels.flatten(), ignore_index=NOT_SCORED)
        optimiser.step(loss, (step + 1) / arguments.steps)
    seconds, memory = time.monotonic() - began, device_memory()
    model.eval()
    print(json.dumps({"peer": f"torch {torch.__version__}", "width": width, "parameters": parameters_of(model),
                      "steps": arguments.steps, "seconds": round(seconds, 2),
                      "memory_mb": memory,
                      "accuracy": {str(n): accuracy(model, held_out, n, arguments.device, arguments.precision)
                                   for n in arguments.score}}))


if __name__ == "__main__":
    main()
