"""Errors of forecasts of a series, and naive forecasts."""

import csv

import numpy as np


def read_column(path, column):
    with open(path, newline="", encoding="utf-8") as file:
        return np.array([float(row[column]) for row in csv.DictReader(file)])


def errors(forecasts, series, first):
    """Mean absolute error and root of the mean square of forecasts [rows, horizon], of which row p, column k says
    series[p + 1 + k]. Counts every value behind row `first` that is known."""
    rows, ahead = np.arange(first, len(series) - 1)[:, None], np.arange(1, forecasts.shape[1] + 1)[None, :]
    known = rows + ahead < len(series)
    difference = (forecasts[rows[:, 0]] - series[np.minimum(rows + ahead, len(series) - 1)])[known]
    return {"mae": float(np.abs(difference).mean()), "rmse": float(np.sqrt((difference**2).mean()))}


def naive(series, horizon, season):
    """Forecasts [rows, horizon] by name. Rows of the first season, for which nothing older is known, repeat row 0."""
    rows, ahead = np.arange(len(series))[:, None], np.arange(1, horizon + 1)[None, :]
    seasons = -(-ahead // season)  # so many back is the last value of that season which is known
    before = series[np.maximum(rows + ahead - season * seasons, 0)]
    then = series[np.maximum(rows - season * seasons, 0)]
    last = np.broadcast_to(series[:, None], before.shape)
    return {"the last value": last, "a season ago": before, "the last value, plus the change a season ago": last + before - then}
