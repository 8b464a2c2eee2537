#!/usr/bin/env python3
"""Writes data/sunspots.csv, data/co2.csv and data/digits_sequences.csv from data sets that PyPI packages carry, and
data/sensors.csv, which is made up.

    python3 -m venv build/data && build/data/bin/pip install statsmodels scikit-learn
    build/data/bin/python tools/make_csv.py data
"""

import csv
import math
import random
import sys
from pathlib import Path

from sklearn.datasets import load_digits
from statsmodels.datasets import co2, sunspots


def write(path, header, rows):
    with open(path, "w", newline="", encoding="ascii") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def sunspot_rows():
    """One row a month: the package's source file has one line a year with twelve numbers."""
    source = Path(sunspots.__file__).parent / "src" / "sunspots_monthly.dat"
    for line in source.read_text(encoding="ascii").splitlines():
        cells = line.split()
        if len(cells) == 13 and cells[0].isdigit():
            yield from ((f"{cells[0]}-{month:02}", count) for month, count in enumerate(cells[1:], start=1))


def co2_rows():
    """One row a week; the weeks without a measurement are filled by straight lines between their neighbours."""
    series = co2.load_pandas().data.co2.interpolate()
    return [(day.date().isoformat(), f"{value:.2f}") for day, value in series.items()]


def digit_rows():
    """Eight rows of eight pixels (0..16) for each image, from top to bottom."""
    digits = load_digits()
    return [
        (number, label, *(int(pixel) for pixel in line))
        for number, (image, label) in enumerate(zip(digits.images, digits.target))
        for line in image
    ]


def sensor_rows():
    """Made-up hourly water levels (m) and flows (m³/s) of a river with a tide; the flow follows the level."""
    noise, level = random.Random(0), 2.0
    for hour in range(300):
        tide = 0.4 * math.sin(2 * math.pi * hour / 12.42)
        before, level = level, 0.9 * level + 0.2 + noise.gauss(0, 0.03)
        flow = 30 + 12 * (before - 2) + 6 * tide + noise.gauss(0, 0.4)
        yield hour, f"{level + tide:.3f}", f"{flow:.2f}"


def main():
    folder = Path(sys.argv[1])
    write(folder / "sunspots.csv", ["month", "sunspots"], sunspot_rows())
    write(folder / "co2.csv", ["week", "co2"], co2_rows())
    write(folder / "sensors.csv", ["time", "level", "flow"], sensor_rows())
    write(folder / "digits_sequences.csv", ["sequence", "label", *(f"p{i}" for i in range(8))], digit_rows())


if __name__ == "__main__":
    main()
