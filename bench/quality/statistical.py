"""Forecasts public series with the usual methods, each tuned by its own automatic procedure on the training part: the
last value, a season ago, drift, ETS, AutoARIMA, Theta (statsforecast), ridge regression and LightGBM on lags, and the
plain mean of ETS, AutoARIMA and ridge (what a combination reaches that does not know which of them will be best).
Parameters come from the training part; every forecast knows all rows before its origin. Prints one JSON object of root
mean square errors per series, with all forecasts, as soon as the series is done. Methods that take longer than --limit
seconds are left out.

    python3 bench/quality/statistical.py airpassengers lynx
"""

import argparse
import json
import multiprocessing
import sys
import time
import warnings

import numpy as np
from public_data import origins, rmse, series

LONGEST_SEASON = 24  # with seasonal terms of ETS and ARIMA; MSTL first removes longer seasons
ALPHAS = 10.0 ** np.arange(-3, 5)
AVERAGED = ("ETS", "AutoARIMA", "ridge on lags")


def naive(one, rows):
    values, ahead = one.values, np.arange(1, one.horizon + 1)
    season = max(one.season, 1)
    yield "last value", values[rows][:, None] + 0 * ahead
    if season > 1:
        index = rows[:, None] + ahead - season * (-(-ahead // season))
        yield "seasonal naive", values[np.maximum(index, 0)]
    slopes = (values[rows] - values[0]) / rows
    yield "drift", values[rows][:, None] + slopes[:, None] * ahead


def automatic(one, rows):
    from statsforecast.models import MSTL, AutoARIMA, AutoETS, AutoTheta

    season = max(one.season, 1)
    short = season <= LONGEST_SEASON
    training = one.values[:one.training]
    seasonal = short or len(training) < 2 * season
    m = season if short else 1

    def build(model):
        return model if seasonal else MSTL(season_length=season, trend_forecaster=model)

    models = {"ETS": build(AutoETS(season_length=m, model="ZZZ" if seasonal else "ZZN")),
              "AutoARIMA": build(AutoARIMA(season_length=m))}
    if seasonal:
        models["Theta"] = AutoTheta(season_length=m)
    for name, model in models.items():
        try:
            began = time.process_time()
            model.fit(training)
            yield name, np.array([model.forward(one.values[:row + 1], one.horizon)["mean"] for row in rows])
            print(f"{one.name}: {name}: {time.process_time() - began:.1f} s", file=sys.stderr)
        except Exception as error:  # a peer that cannot do a series is left out of it, and said to be
            print(f"{one.name}: {name}: {error}", file=sys.stderr)


def windows(one, lags, rows):
    """Lags [rows, lags] up to each row, newest first."""
    return one.values[rows[:, None] - np.arange(lags)]


def on_lags(one, rows):
    """Direct forecasts, one regression a step ahead; lags and penalty by the last fifth of the training part."""
    from lightgbm import LGBMRegressor
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    train, season = one.training, max(one.season, 1)
    choices = sorted({n for n in (4, 12, season + 1, 2 * season + 1) if n + one.horizon < 0.6 * train})
    inner = train - train // 5

    def fit(make, lags, end, ahead):
        x = np.arange(lags - 1, end - ahead)
        return make().fit(windows(one, lags, x), one.values[x + ahead])

    def score(make, lags):
        total = 0.0
        steps = sorted({1, (one.horizon + 1) // 2, one.horizon})
        for ahead in steps:
            x = np.arange(max(inner - ahead, lags - 1), train - ahead)
            total += ((fit(make, lags, inner, ahead).predict(windows(one, lags, x)) - one.values[x + ahead])**2).mean()
        return total

    def forecasts(make, lags):
        return np.stack([fit(make, lags, train, ahead).predict(windows(one, lags, rows))
                         for ahead in range(1, one.horizon + 1)], axis=1)

    ridges = [(lags, lambda alpha=alpha: make_pipeline(StandardScaler(), Ridge(alpha)))
              for lags in choices for alpha in ALPHAS]
    lags, make = min(ridges, key=lambda choice: score(choice[1], choice[0]))
    yield "ridge on lags", forecasts(make, lags)
    make = lambda: LGBMRegressor(verbose=-1, n_jobs=1, min_child_samples=5)  # noqa: E731
    lags = min(choices, key=lambda n: score(make, n))
    yield "LightGBM on lags", forecasts(make, lags)


def compare(name, results):
    """Sends (name of a peer, its error) for each of them, and at the end what all of them said."""
    one = series(name)
    rows = origins(one)
    said = {}
    for method in (naive, on_lags, automatic):
        began = time.process_time()
        for peer, forecasts in method(one, rows):
            said[peer] = forecasts
            results.send((peer, rmse(forecasts, one, rows)))
        results.send((f"{method.__name__} seconds", round(time.process_time() - began, 1)))
    if all(peer in said for peer in AVERAGED):
        results.send(("mean of three", rmse(np.mean([said[peer] for peer in AVERAGED], axis=0), one, rows)))
    results.send(("forecasts", {peer: forecasts.tolist() for peer, forecasts in said.items()}))


def limited(name, limit):
    """What peers sent until they were done, or until nothing came for `limit` seconds."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=compare, args=(name, sender))
    process.start()
    sender.close()
    results = {}
    try:
        while receiver.poll(limit):
            results.update([receiver.recv()])
        process.kill()
        results["stopped after"] = limit
    except EOFError:  # all were sent
        pass
    process.join()
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--limit", type=float, default=600.0)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    multiprocessing.set_start_method("fork")
    import lightgbm  # noqa: F401, what takes seconds to import is shared by all that follow
    import sklearn.linear_model  # noqa: F401
    import statsforecast.models  # noqa: F401
    for name in arguments.names:
        one = series(name)
        result = {"name": name, "rows": len(one.values), "season": one.season, "horizon": one.horizon}
        print(json.dumps({**result, **limited(name, arguments.limit)}), flush=True)


if __name__ == "__main__":
    main()
