"""Forecasts the power consumption of a building two days ahead and compares the error with the last value.

python examples/forecast_series.py
"""

import math
import pathlib
import tempfile

import numpy as np

import penstock


def consumption(days, seed=0):
    """Returns daily consumption in kilowatts: a weekly cycle, weather that lasts some days, and noise."""
    random = np.random.default_rng(seed)
    weather, _ = penstock.scan(np.full((days, 1), 0.8), random.normal(0, 1, (days, 1)))
    return 50 + 8 * np.cos(2 * math.pi * np.arange(days) / 7) + weather[:, 0] + random.normal(0, 0.3, days)


def main():
    values = consumption(1500)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "consumption.csv")
        np.savetxt(path, values, header="kilowatts", comments="", fmt="%.3f")
        data = penstock.open_series(path, horizon=2, from_last=True)
    model = penstock.Model(data, cell="mingru", width=32, blocks=1, from_last=True)
    result = penstock.train(model, data, steps=300, batch=16, length=64)
    held_out_loss = penstock.evaluate(model, data).loss
    print(f"trained {result.last.step} steps; held-out loss {held_out_loss:.3f} (1: as good as the last value)")

    # From every day the forecasts of the next two days, in kilowatts: [days, 2, 1].
    forecast = model.predict(values[:, np.newaxis])
    held_out = slice(1200, -2)
    truth = values[2:][1200:]
    ours = np.sqrt(np.mean((forecast[held_out, 1, 0] - truth) ** 2))
    last = np.sqrt(np.mean((values[held_out] - truth) ** 2))
    print(f"two days ahead: {ours:.2f} kW off, the last value {last:.2f}")
    return ours, last


if __name__ == "__main__":
    ours, last = main()
    assert ours < last
