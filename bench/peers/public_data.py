"""Series and labelled sets that ship in packages on PyPI (statsmodels, pmdarima, sktime, aeon, scikit-learn), as arrays.

Nothing is downloaded but the packages. pmdarima's data are read from its files, because its compiled parts need an older
numpy.
"""

import csv
import gzip
import importlib.util
import io
import pathlib
import tarfile
from dataclasses import dataclass

import numpy as np

HERE = pathlib.Path(__file__).resolve().parents[2]
HELD_OUT = 0.2  # of a series: its end


@dataclass
class Series:
    name: str
    season: int  # rows; 1: none
    horizon: int
    values: np.ndarray

    @property
    def training(self):
        return len(self.values) - int(len(self.values) * HELD_OUT)


def package_folder(name):
    return pathlib.Path(importlib.util.find_spec(name).origin).parent


def pmdarima(name, function):
    """Runs a loader of pmdarima's without importing the package."""
    path = package_folder("pmdarima") / "datasets" / f"{name}.py"
    source = path.read_text(encoding="utf-8")
    lines = [line for line in source.splitlines() if not line.startswith(("from .", "from pmdarima", "import pandas"))]
    scope = {"DTYPE": np.float64, "pd": None, "f_loc": None}
    exec(compile("\n".join(lines), path, "exec"), scope)  # noqa: S102, a file of a package that was asked for
    return np.asarray(scope[function](as_series=False), dtype=float)


def pmdarima_table(file):
    return package_folder("pmdarima") / "datasets" / "data" / file


def from_statsmodels(module, column=None):
    import statsmodels.api as sm

    data = getattr(sm.datasets, module).load_pandas().data
    return data if column is None else data[column].to_numpy(dtype=float)


def monthly_sunspots():
    return np.loadtxt(gzip.open(pmdarima_table("sunspots.txt.gz"), "rt")).ravel()


def microsoft():
    with tarfile.open(pmdarima_table("msft.tar.gz")) as archive:
        text = archive.extractfile(next(m for m in archive.getmembers() if m.isfile())).read().decode()
    return np.array([float(row["Close"]) for row in csv.DictReader(io.StringIO(text))])


def el_nino():
    return from_statsmodels("elnino").set_index("YEAR").to_numpy(dtype=float).ravel()


def sktime_column(folder, column):
    path = package_folder("sktime") / "datasets" / "data" / folder / f"{folder}.csv"
    with open(path, newline="", encoding="utf-8") as file:
        return np.array([float(row[column]) for row in csv.DictReader(file)])


def local(column):
    with open(HERE / "data" / f"{column}.csv", newline="", encoding="utf-8") as file:
        return np.array([float(row[column]) for row in csv.DictReader(file)])


SERIES = {
    "airpassengers": (12, 12, lambda: pmdarima("airpassengers", "load_airpassengers")),
    "ausbeer": (4, 8, lambda: pmdarima("ausbeer", "load_ausbeer")),
    "austres": (4, 8, lambda: pmdarima("austres", "load_austres")),
    "lynx": (10, 5, lambda: pmdarima("lynx", "load_lynx")),
    "wineind": (12, 12, lambda: pmdarima("wineind", "load_wineind")),
    "woolyrnq": (4, 8, lambda: pmdarima("woolyrnq", "load_woolyrnq")),
    "heartrate": (1, 10, lambda: pmdarima("heartrate", "load_heartrate")),
    "taylor": (48, 48, lambda: pmdarima("taylor", "load_taylor")),
    "sunspots": (132, 12, monthly_sunspots),
    "co2": (52, 52, lambda: local("co2")),
    "nile": (1, 5, lambda: from_statsmodels("nile", "volume")),
    "elnino": (12, 12, el_nino),
    "realgdp": (4, 8, lambda: from_statsmodels("macrodata", "realgdp")),
    "unemployment": (4, 8, lambda: from_statsmodels("macrodata", "unemp")),
    "seatbelts": (12, 12, lambda: sktime_column("seatbelts", "KSI")),
    "shampoo": (12, 6, lambda: sktime_column("ShampooSales", "Sales")),
    "microsoft": (1, 5, microsoft),
}


def series(name):
    season, horizon, load = SERIES[name]
    values = np.trim_zeros(np.nan_to_num(load()), "b")  # ausbeer ends in a row without a value
    assert np.isfinite(values).all(), name
    return Series(name, season, horizon, values)


def origins(one, most=60):
    """Rows of the held-out part (and the last one before) from which everything is forecast: at most so many, evenly
    spaced, each with its whole horizon known."""
    first, last = one.training - 1, len(one.values) - 1 - one.horizon
    return np.unique(np.linspace(first, max(first, last), min(most, max(1, last - first + 1))).astype(int))


def rmse(forecasts, one, rows):
    """Of forecasts [origins, horizon]."""
    ahead = rows[:, None] + 1 + np.arange(one.horizon)
    known = ahead < len(one.values)
    errors = (forecasts - one.values[np.minimum(ahead, len(one.values) - 1)])[known]
    return float(np.sqrt((errors**2).mean()))


if __name__ == "__main__":
    for name in SERIES:
        one = series(name)
        print(f"{name:14} {len(one.values):6} rows, season {one.season:3}, horizon {one.horizon:3}, "
              f"{len(origins(one))} origins, {one.values.min():g} to {one.values.max():g}")
