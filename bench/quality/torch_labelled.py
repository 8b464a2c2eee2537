"""Trains PyTorch's nn.GRU or nn.LSTM on labelled sequences: the peer of `penstock train LABELLED.csv`.

Reads two CSV files with the columns sequence, label and features; all sequences must be of one length. The label is said
behind the last row. Same normalisation, batches, optimiser, schedule and clipping. Prints one JSON object with the
accuracy on the second file.
"""

import argparse
import csv
import json
import math
import time

import numpy as np
import torch

from torch_training import Optimiser, add_options, count, largest


def read(path):
    """Features [sequences, T, I] and labels [sequences]."""
    sequences = {}
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        features = [name for name in reader.fieldnames if name not in ("sequence", "label")]
        for row in reader:
            rows = sequences.setdefault(row["sequence"], (row["label"], []))[1]
            rows.append([float(row[name]) for name in features])
    return np.array([rows for _, rows in sequences.values()]), np.array([label for label, _ in sequences.values()])


class Classifier(torch.nn.Module):
    def __init__(self, cell, inputs, hidden, layers, classes):
        super().__init__()
        self.network = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[cell](inputs, hidden, layers, batch_first=True)
        self.head = torch.nn.Linear(hidden, classes)

    def forward(self, x):
        return self.head(self.network(x)[0][:, -1])


def train(model, x, labels, arguments):
    optimiser = Optimiser(model, arguments.learning_rate)
    steps = math.ceil(arguments.epochs * len(x) / arguments.batch)
    order = torch.cat([torch.randperm(len(x)) for _ in range(math.ceil(arguments.epochs) + 1)])
    for step in range(steps):
        chosen = order[step * arguments.batch:(step + 1) * arguments.batch]
        loss = torch.nn.functional.cross_entropy(model(x[chosen]), labels[chosen])
        optimiser.step(loss, (step + 1) / steps)
    return steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("test")
    add_options(parser, batch=32, epochs=30.0)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    (x, labels), (test_x, test_labels) = read(arguments.train), read(arguments.test)
    mean, scale = x.mean(axis=(0, 1)), x.std(axis=(0, 1))
    scale[scale == 0] = 1
    classes, indices = np.unique(labels, return_inverse=True)
    x, test_x = (torch.tensor((values - mean) / scale, dtype=torch.float32) for values in (x, test_x))
    model, hidden = largest(
        lambda size: Classifier(arguments.cell, x.shape[2], size, arguments.layers, len(classes)), arguments.parameters)
    began = time.process_time()
    steps = train(model, x, torch.tensor(indices), arguments)
    seconds = time.process_time() - began
    with torch.inference_mode():
        said = classes[model(test_x).argmax(dim=1).numpy()]
    print(json.dumps({
        "peer": f"torch {torch.__version__} nn.{arguments.cell.upper()}", "hidden": hidden, "parameters": count(model),
        "steps": steps, "cpu_seconds": round(seconds, 2), "accuracy": float((said == test_labels).mean())}))


if __name__ == "__main__":
    main()
