"""Series and labelled sets that ship in packages on PyPI (statsmodels, pmdarima, sktime, aeon, scikit-learn), as arrays.

Nothing is downloaded but the packages. pmdarima's data are read from its files, because its compiled parts need an older
numpy.
"""

import ast
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


def column_of(package, path, column, delimiter=","):
    """A column of a CSV file that a package ships: by its name, or by its number where there is no header."""
    with open(package_folder(package) / path, newline="", encoding="utf-8") as file:
        return np.array([float(row[column]) for row in csv.DictReader(file, delimiter=delimiter)])


def statsmodels_result(name, column):
    return column_of("statsmodels", f"tsa/tests/results/{name}.csv", column)


def us_change(column):
    return column_of("aeon", "datasets/data/Uschange/Uschange.csv", column)


def m1_names(fewest_rows):
    """Names of its yearly series of at least so many rows, without the one that is there twice."""
    with open(package_folder("aeon") / "datasets/data/m1_yearly_dataset/m1_yearly_dataset.tsf", encoding="utf-8") as file:
        rows = {line.split(":", 1)[0]: line.count(",") + 1 for line in file if line.startswith("T")}
    return [name for name, count in rows.items() if count >= fewest_rows and name != "T78"]


def m1_yearly(name):
    """One of the yearly series of the first Makridakis competition."""
    with open(package_folder("aeon") / "datasets/data/m1_yearly_dataset/m1_yearly_dataset.tsf", encoding="utf-8") as file:
        line = next(line for line in file if line.startswith(f"{name}:"))
    return np.array([float(value) for value in line.rsplit(":", 1)[1].split(",")])


def jmulti(file, column):
    """A column of a data file of Lütkepohl (2005): a comment, a first date in angle brackets, names, numbers."""
    path = package_folder("statsmodels") / "tsa/vector_ar/tests/results" / file
    names, *rows = path.read_text(encoding="utf-8").split(">", 1)[1].strip().splitlines()
    place = names.split().index(column)
    return np.array([float(row.split()[place]) for row in rows if row.strip()])


def from_stata(path, column):
    import pandas as pd

    return pd.read_stata(package_folder("statsmodels") / path)[column].to_numpy(dtype=float)


def us_month(column, first=0):
    """A column of the American figures that statsmodels tests nowcasting with, from its first value (or a later one, before
    which there are gaps) to its last."""
    path = package_folder("statsmodels") / "tsa/statespace/tests/results/frbny_nowcast/Nowcasting/data/US/2016-07-29.csv"
    with open(path, newline="", encoding="utf-8") as file:
        return np.array([float(row[column]) for row in csv.DictReader(file) if row[column]][first:])


def list_of(path, name, function=None):
    """A list of numbers to which a source file of statsmodels gives a name, in a function or outside of all."""
    scope = ast.parse((package_folder("statsmodels") / path).read_text(encoding="utf-8"))
    if function:
        scope = next(node for node in scope.body if getattr(node, "name", "") == function)
    node = next(node for node in scope.body if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name)
    return np.array(ast.literal_eval(node.value), dtype=float).ravel()


def monthly_co2():
    return np.loadtxt(package_folder("statsmodels") / "tsa/stl/tests/results/stl_co2.csv")


def local(column):
    with open(HERE / "data" / f"{column}.csv", newline="", encoding="utf-8") as file:
        return np.array([float(row[column]) for row in csv.DictReader(file)])


# Series that the parts of Penstock's linear forecast were compared on while it was written ...
TUNED_ON = {
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
    "population": (4, 8, lambda: from_statsmodels("macrodata", "pop")),
    "government": (4, 8, lambda: from_statsmodels("macrodata", "realgovt")),
    "savings": (4, 8, lambda: us_change("Savings")),
    "joblessness": (4, 8, lambda: us_change("Unemployment")),
    "rgnp": (1, 5, lambda: statsmodels_result("rgnp", "REAL_GNP")),
    "deflator": (1, 5, lambda: statsmodels_result("gnpdef", "GNP_DEFLATOR")),
    "elecequip": (12, 12, lambda: column_of("statsmodels", "datasets/elec_equip/elec_equip.csv", "STS.M.I7.W.TOVT.NS0016.4.000")),
    **{f"m1-{name}": (1, 4, lambda name=name: m1_yearly(f"T{name}")) for name in (13, 61, 161)},
}
# ... series that had no part in that, but that intervals and the weight of the layers were looked at by ...
LOOKED_AT = {
    "prescriptions": (12, 12, lambda: column_of("aeon", "datasets/data/PBS_dataset/PBS_dataset.csv", "Scripts")),
    "consumption": (4, 8, lambda: us_change("Consumption")),
    "production": (4, 8, lambda: us_change("Production")),
    "inflation": (4, 8, lambda: from_statsmodels("interest_inflation", "Dp")),
    "interest": (4, 8, lambda: from_statsmodels("interest_inflation", "R")),
    "realcons": (4, 8, lambda: from_statsmodels("macrodata", "realcons")),
    "realinv": (4, 8, lambda: from_statsmodels("macrodata", "realinv")),
    "cpi": (4, 8, lambda: from_statsmodels("macrodata", "cpi")),
    "m1": (4, 8, lambda: from_statsmodels("macrodata", "m1")),
    "tbilrate": (4, 8, lambda: from_statsmodels("macrodata", "tbilrate")),
    "bonds": (1, 12, lambda: statsmodels_result("BAA", "SCHWERTBAA")),
    "joblessrate": (12, 12, lambda: statsmodels_result("UN", "SCHWERTUN")),
    "sp500": (1, 12, lambda: statsmodels_result("SP500", "SCHWERTSP500")),
    "rgnpq": (4, 8, lambda: statsmodels_result("rgnpq", "REAL_GNP_QTR")),
    "stocks": (1, 5, lambda: statsmodels_result("stkprc", "STOCK_PRICES")),
    "electricity": (24, 24, lambda: column_of("statsmodels", "tsa/stl/tests/results/mstl_elec_vic.csv", "y")),
    "copper": (1, 3, lambda: from_statsmodels("copper", "WORLDCONSUMPTION")),
}
# ... series that nothing was chosen by, but whose results were known while intervals and seasons were changed ...
MARKOV = "tsa/regime_switching/tests/test_markov_regression.py"
SMOOTHING = "tsa/tests/test_exponential_smoothing.py"
MANUFACTURING = "tsa/statespace/tests/results/manufac.dta"
SEEN = {
    "hours": (12, 12, lambda: from_stata(MANUFACTURING, "hours")),
    "capacity": (12, 12, lambda: from_stata(MANUFACTURING, "caputil")),
    "investment": (4, 8, lambda: jmulti("e1.dat", "invest")),
    "inventories": (4, 8, lambda: jmulti("e2.dat", "y2")),
    "bills": (4, 8, lambda: jmulti("e3.dat", "rd")),
    "incomes": (4, 8, lambda: jmulti("e4.dat", "inc")),
    "wholesale": (4, 8, lambda: list_of("tsa/statespace/tests/results/results_sarimax.py", "wpi1_data")),
    "fedfunds": (4, 8, lambda: list_of(MARKOV, "fedfunds")),
    "returns": (1, 5, lambda: list_of(MARKOV, "areturns")),
    "mumps": (12, 12, lambda: list_of(MARKOV, "mumpspc")),
    "tourists": (4, 8, lambda: list_of(SMOOTHING, "data", "austourists")),
    "oil": (1, 5, lambda: list_of(SMOOTHING, "data", "oildata")),
    "income": (4, 8, lambda: us_change("Income")),
    "disposable": (4, 8, lambda: from_statsmodels("macrodata", "realdpi")),
    "co2-months": (12, 12, monthly_co2),
    "housing": (12, 12, lambda: column_of("statsmodels", "tsa/holtwinters/tests/results/housing-data.csv", "HOUSTNSA")),
    "sunspot-years": (11, 5, lambda: from_statsmodels("sunspots", "SUNACTIVITY")),
    "solar": (48, 24, lambda: sktime_column("solar", "solar_gen")),
}
# ... series that the linear forecast of smooth, rising series was compared on: nothing had been chosen by the first
# thirteen before, and of the yearly ones of the first Makridakis competition every second one takes part ...
YEARLY = {f"m1-{name[1:]}": (1, 4, lambda name=name: m1_yearly(name)) for name in m1_names(27)}
DEVELOPED_ON = {
    "money-market": (12, 12, lambda: jmulti("e5.dat", "i_short")),
    "payrolls": (12, 12, lambda: us_month("PAYEMS")),
    "openings": (12, 12, lambda: us_month("JTSJOL")),
    "durables": (12, 12, lambda: us_month("DGORDER")),
    "homes": (12, 12, lambda: us_month("HSN1F")),
    "retail": (12, 12, lambda: us_month("RSAFS")),
    "starts": (12, 12, lambda: us_month("HOUST")),
    "exports": (12, 12, lambda: us_month("BOPTEXP")),
    "permits": (12, 12, lambda: us_month("PERMIT")),
    "stores": (12, 12, lambda: us_month("BUSINV")),
    "factories": (12, 12, lambda: us_month("GACDISA066MSFRBNY")),
    "producers": (12, 12, lambda: us_month("PPIFIS")),
    "product": (4, 8, lambda: us_month("GDPC1")),
    **{name: YEARLY[name] for name in list(YEARLY)[::2] if name not in TUNED_ON},
}
# ... and series that nothing was ever chosen by.
FRESH = {
    "consumer-prices": (12, 12, lambda: us_month("CPIAUCSL")),
    "core-prices": (12, 12, lambda: us_month("CPILFESL")),
    "spending-prices": (12, 12, lambda: us_month("PCEPI")),
    "core-spending-prices": (12, 12, lambda: us_month("PCEPILFE")),
    "import-prices": (12, 12, lambda: us_month("IR", 15)),
    "export-prices": (12, 12, lambda: us_month("IQ", 15)),
    "unemployed": (12, 12, lambda: us_month("UNRATE")),
    "industry": (12, 12, lambda: us_month("INDPRO")),
    "utilisation": (12, 12, lambda: us_month("TCU")),
    "real-income": (12, 12, lambda: us_month("DSPIC96")),
    "spending": (12, 12, lambda: us_month("PCEC96")),
    "imports": (12, 12, lambda: us_month("BOPTIMP")),
    "wholesalers": (12, 12, lambda: us_month("WHLSLRIMSA")),
    "construction": (12, 12, lambda: us_month("TTLCONS")),
    "outlook": (12, 12, lambda: us_month("GACDFSA066MSFRBPHI")),
    "labour-cost": (4, 8, lambda: us_month("ULCNFB")),
    "gross-income": (4, 8, lambda: us_month("A261RX1Q020SBEA")),
    **{name: YEARLY[name] for name in list(YEARLY)[1::2] if name not in TUNED_ON},
}
SERIES = {**TUNED_ON, **LOOKED_AT, **SEEN, **DEVELOPED_ON, **FRESH}


def series(name):
    season, horizon, load = SERIES[name]
    values = load()
    values = values[:np.flatnonzero(np.isfinite(values))[-1] + 1]  # ausbeer ends in a row without a value
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
