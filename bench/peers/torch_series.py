"""Trains PyTorch's nn.GRU or nn.LSTM, and naive forecasts, on one column of a CSV file: the peers of `penstock train FILE.csv`.

Same held-out part, normalisation, targets (the rows 1 to horizon behind each row), batches that walk through the file
with their state, optimiser, schedule and clipping. The error is that of every forecast in the held-out part, made with
the state of all rows before it, in the unit of the column. Prints one JSON object.
"""

import argparse
import csv
import json
import math
import time

import numpy as np
import torch


def read_column(path, column):
    with open(path, newline="") as file:
        return np.array([float(row[column]) for row in csv.DictReader(file)])


def errors(forecasts, series, first):
    """MAE and RMSE of forecasts [rows, horizon]: row p, column k forecasts series[p + 1 + k]. From row `first` on."""
    horizon = forecasts.shape[1]
    parts = []
    for row in range(first, len(series) - 1):
        known = series[row + 1:row + 1 + horizon]
        parts.append(forecasts[row, :len(known)] - known)
    difference = np.concatenate(parts)
    return {"mae": float(np.abs(difference).mean()), "rmse": float(np.sqrt((difference**2).mean()))}


def persistence(series, horizon, season=0):
    """The last known value, or the last known one a whole number of seasons before the asked one."""
    rows = np.arange(len(series))[:, None]
    ahead = np.arange(1, horizon + 1)[None, :]
    source = rows if season == 0 else rows + ahead - season * np.ceil(ahead / season).astype(int)
    return series[np.broadcast_to(np.maximum(source, 0), (len(series), horizon))]


class Forecaster(torch.nn.Module):
    def __init__(self, cell, hidden, layers, horizon, change):
        super().__init__()
        self.change = change
        self.network = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[cell](1, hidden, layers, batch_first=True)
        self.head = torch.nn.Linear(hidden, horizon)

    def forward(self, x, state=None):
        output, state = self.network(x, state)
        return self.head(output) + (x if self.change else 0), state


def count(model):
    return sum(p.numel() for p in model.parameters())


def model_of_size(arguments):
    """The largest model with at most as many parameters as asked for."""
    def model(hidden):
        return Forecaster(arguments.cell, hidden, arguments.layers, arguments.horizon, arguments.change)

    hidden = 1
    while count(model(hidden + 1)) <= arguments.parameters:
        hidden += 1
    return model(hidden), hidden


def changed(state, function):
    return tuple(map(function, state)) if isinstance(state, tuple) else function(state)


def without_row(state, row):
    """The state [layers, B, H] with one row restarted."""
    keep = torch.ones(1, (state[0] if isinstance(state, tuple) else state).shape[1], 1)
    keep[0, row] = 0
    return changed(state, lambda s: s * keep)


def run_window(model, x, state, restarts):
    """Outputs over x [B, T, 1]; restarts: pairs (step, row) at which a row comes to the start of the file again."""
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


def train(model, series, arguments):
    """series [rows], normalised: the training part alone."""
    places, horizon = len(series) - 1, arguments.horizon
    rows, length = arguments.batch, arguments.length
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() == 1]
    optimiser = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=1.0, betas=(0.9, 0.99))
    padded = np.concatenate([series, np.full(horizon, np.nan)])
    starts = np.array([places * row // rows for row in range(rows)])[:, None]
    steps = math.ceil(arguments.epochs * places / (rows * length))
    state = None
    for step in range(steps):
        fraction = step / steps
        rise = min(1.0, fraction / 0.05)
        fall = 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * max(0.0, (fraction - 0.05) / 0.95)))
        for group in optimiser.param_groups:
            group["lr"] = arguments.learning_rate * (rise if rise < 1 else fall)
        index = (starts + step * length + np.arange(length)) % places
        restarts = [(int(t), int(row)) for row, t in zip(*np.nonzero(index == 0))]
        x = torch.tensor(series[index][..., None], dtype=torch.float32)
        targets = torch.tensor(padded[index[..., None] + 1 + np.arange(horizon)], dtype=torch.float32)
        outputs, state = run_window(model, x, state, restarts)
        known = ~torch.isnan(targets)
        loss = ((outputs - targets)[known]**2).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        state = changed(state, lambda s: s.detach())
    return steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv")
    parser.add_argument("column")
    parser.add_argument("--cell", choices=["gru", "lstm"], default="gru")
    parser.add_argument("--horizon", type=int, default=1)
    parser.add_argument("--change", action="store_true", help="the head says the change from the row that was read")
    parser.add_argument("--season", type=int, default=12, help="rows, of the seasonal naive forecast")
    parser.add_argument("--parameters", type=int, default=17_000)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--epochs", type=float, default=200)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--validation-fraction", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    series = read_column(arguments.csv, arguments.column)
    training = len(series) - int(len(series) * arguments.validation_fraction)
    mean, scale = series[:training].mean(), series[:training].std()
    normal = (series - mean) / scale
    model, hidden = model_of_size(arguments)
    began = time.monotonic()
    steps = train(model, normal[:training], arguments)
    seconds = time.monotonic() - began
    with torch.inference_mode():
        outputs, _ = model(torch.tensor(normal[None, :, None], dtype=torch.float32))
    print(json.dumps({
        "peer": f"torch {torch.__version__} nn.{arguments.cell.upper()}", "hidden": hidden, "parameters": count(model),
        "steps": steps, "seconds": round(seconds, 1),
        **errors(outputs[0].double().numpy() * scale + mean, series, training - 1),
        "persistence": errors(persistence(series, arguments.horizon), series, training - 1),
        "seasonal": errors(persistence(series, arguments.horizon, arguments.season), series, training - 1)}))


if __name__ == "__main__":
    main()
