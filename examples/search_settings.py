"""Searches the cell, width, dropout and learning rate of a model with Optuna (`pip install optuna`).

python examples/search_settings.py

Every trial trains on the first 80 % of the rows and is scored on the next 10 %. The last 10 % score only the winner.
"""

import math
import pathlib
import tempfile

import numpy as np
import optuna

import penstock

TRIALS, STEPS = 6, 60


def series(count, seed=0):
    """Returns a wave of 12 rows with noise."""
    random = np.random.default_rng(seed)
    return 10 + np.sin(np.arange(count) * 2 * math.pi / 12) + random.normal(0, 0.2, count)


def train(rows, settings):
    """Trains a model and returns it with its loss on the last rows, which are held out."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "level.csv")
        np.savetxt(path, rows, header="level", comments="", fmt="%.4f")
        data = penstock.open_series(path, validation_fraction=0.11)
    architecture = {name: settings[name] for name in ("cell", "width", "dropout")}
    model = penstock.Model(data, blocks=1, **architecture)
    result = penstock.train(model, data, steps=STEPS, learning_rate=settings["learning_rate"], progress=False)
    assert result.validation is not None  # rows are held out
    return model, result.validation.loss


def main():
    rows = series(1000)

    def objective(trial):
        settings = {
            "cell": trial.suggest_categorical("cell", ["mingru", "gru", "lstm"]),
            "width": trial.suggest_categorical("width", [8, 16, 32]),
            "dropout": trial.suggest_float("dropout", 0.0, 0.3),
            "learning_rate": trial.suggest_float("learning_rate", 1e-3, 3e-2, log=True),
        }
        return train(rows[:900], settings)[1]

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, n_trials=TRIALS)
    print(f"best of {TRIALS}: {study.best_params}, loss {study.best_value:.4f}")
    print(f"loss on rows that no trial saw: {train(rows, study.best_params)[1]:.4f}")


if __name__ == "__main__":
    main()
