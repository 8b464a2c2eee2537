"""Trains PyTorch's nn.GRU or nn.LSTM on one column of a CSV file: the peer of `penstock train FILE.csv`.

Hold-out set, normalisation, targets (the rows 1 to horizon after each row), batches that go through the file with carried
state, optimiser, schedule and clipping are equal. The error is that of every forecast in the hold-out set, made with the
state of all rows before it, in the unit of the column. Prints one JSON object.
"""

import argparse
import json
import math
import time

import numpy as np
import torch

from forecasts import errors, read_column
from torch_training import Optimiser, add_options, count, largest


class Forecaster(torch.nn.Module):
    def __init__(self, inputs, hidden, arguments):
        super().__init__()
        network = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[arguments.cell]
        self.network = network(inputs, hidden, arguments.layers, batch_first=True, dropout=arguments.dropout)
        self.head = torch.nn.Sequential(torch.nn.Dropout(arguments.dropout), torch.nn.Linear(hidden, arguments.horizon))

    def forward(self, x, state=None):
        output, state = self.network(x, state)
        return self.head(output), state


class View:
    """Inputs of a network from a normalised series [rows], and its targets: (value - base) / scale.

    value: it reads and predicts values. change: it predicts the change from the row just read. treated: as `penstock train`
    treats a series: it reads the bounded value and the change from the row before, and predicts the scaled change.
    """

    def __init__(self, kind, series, training, horizon):
        self.features, self.base, self.scale = series[:, None], np.zeros_like(series), 1.0
        if kind != "value":
            self.base = series
        if kind == "treated":
            seen = series[:training]
            squares = [(seen[ahead:] - seen[:-ahead]) ** 2 for ahead in range(1, horizon + 1)]
            self.scale = np.sqrt(np.concatenate(squares).mean())
            change = np.diff(series, prepend=series[0]) / self.scale * np.sqrt((horizon + 1) / 2)
            self.features = np.stack([np.tanh(series), change], axis=1)
        ahead = np.arange(len(series))[:, None] + 1 + np.arange(horizon)
        known = ahead < training
        values = series[np.minimum(ahead, len(series) - 1)]
        # [rows, horizon]; NaN where training may not know it
        self.targets = np.where(known, (values - self.base[:, None]) / self.scale, np.nan)

    def values(self, outputs):
        return outputs * self.scale + self.base[:, None]


def changed(state, function):
    return tuple(map(function, state)) if isinstance(state, tuple) else function(state)


def without_row(state, row):
    """The state [layers, B, H] with one row restarted."""
    keep = torch.ones(1, (state[0] if isinstance(state, tuple) else state).shape[1], 1)
    keep[0, row] = 0
    return changed(state, lambda s: s * keep)


def run_window(model, x, state, restarts):
    """Outputs over x [B, T, I]; restarts: pairs (step, row) at which a row comes to the start of the file again."""
    outputs, begin = [], 0
    for step, row in sorted(restarts):
        if step > begin:
            output, state = model(x[:, begin:step], state)
            outputs.append(output)
        if state is not None:
            state = without_row(state, row)
        begin = step
    output, state = model(x[:, begin:], state)
    return torch.cat([*outputs, output], dim=1), state


def train(model, view, training, arguments):
    places = training - 1
    rows, length = arguments.batch, arguments.length
    optimiser = Optimiser(model, arguments.learning_rate)
    starts = np.array([places * row // rows for row in range(rows)])[:, None]
    steps = math.ceil(arguments.epochs * places / (rows * length))
    state = None
    for step in range(steps):
        index = (starts + step * length + np.arange(length)) % places
        restarts = [(int(t), int(row)) for row, t in zip(*np.nonzero(index == 0))]
        x = torch.tensor(view.features[index], dtype=torch.float32)
        targets = torch.tensor(view.targets[index], dtype=torch.float32)
        outputs, state = run_window(model, x, state, restarts)
        known = ~torch.isnan(targets)
        optimiser.step(((outputs - targets)[known] ** 2).mean(), (step + 1) / steps)
        state = changed(state, lambda s: s.detach())
    return steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv")
    parser.add_argument("column")
    parser.add_argument("--horizon", type=int, default=1)
    parser.add_argument("--view", choices=["value", "change", "treated"], default="value")
    parser.add_argument("--validation-fraction", type=float, default=0.2)
    add_options(parser, batch=16, length=64, epochs=70.0, dropout=0.2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    series = read_column(arguments.csv, arguments.column)
    training = len(series) - int(len(series) * arguments.validation_fraction)
    mean, scale = series[:training].mean(), series[:training].std()
    normal = (series - mean) / scale
    view = View(arguments.view, normal, training, arguments.horizon)
    model, hidden = largest(lambda size: Forecaster(view.features.shape[1], size, arguments), arguments.parameters)
    began = time.process_time()
    steps = train(model, view, training, arguments)
    seconds = time.process_time() - began
    model.eval()
    with torch.inference_mode():
        outputs, _ = model(torch.tensor(view.features[None], dtype=torch.float32))
    print(json.dumps({
        "peer": f"torch {torch.__version__} nn.{arguments.cell.upper()}", "hidden": hidden, "parameters": count(model),
        "steps": steps, "cpu_seconds": round(seconds, 2),
        **errors(view.values(outputs[0].double().numpy()) * scale + mean, series, training - 1)}))


if __name__ == "__main__":
    main()
