"""Labelled sets from packages on PyPI (aeon, scikit-learn), split as published, and the usual classifiers: 1-NN with
dynamic time warping, logistic regression on the values, MiniRocket (aeon). Prints one JSON object of accuracies per set
as soon as the set is done, or writes the sets as CSV files in folders of their names.

    python3 bench/quality/labels.py GunPoint ArrowHead
    python3 bench/quality/labels.py GunPoint ArrowHead --write folder
"""

import argparse
import json
import pathlib
import time
import warnings

import numpy as np

SETS = ["ArrowHead", "BasicMotions", "GunPoint", "ItalyPowerDemand", "JapaneseVowels", "OSULeaf",
        "PickupGestureWiimoteZ", "UnitTest", "digits"]


def digits():
    from sklearn.datasets import load_digits

    data = load_digits()
    x = data.images.transpose(0, 2, 1).astype(float)  # [digits, columns of a row, rows]
    order = np.random.default_rng(0).permutation(len(x))
    test = len(x) // 5
    return x[order[test:]], data.target[order[test:]], x[order[:test]], data.target[order[:test]]


def load(name):
    """Sequences [channels, steps], and labels, of the training part and of the test part."""
    if name == "digits":
        return digits()
    from aeon.datasets import load_classification

    parts = []
    for split in ("train", "test"):
        x, y = load_classification(name, split=split)
        parts += [x, y]
    return parts


def write(name, folder):
    folder.mkdir(parents=True, exist_ok=True)
    parts = load(name)
    for file, x, y in (("train", parts[0], parts[1]), ("test", parts[2], parts[3])):
        channels = x[0].shape[0]
        with open(folder / f"{file}.csv", "w", encoding="ascii") as out:
            out.write("sequence,label," + ",".join(f"x{i}" for i in range(channels)) + "\n")
            for i, (sequence, label) in enumerate(zip(x, y)):
                for step in np.asarray(sequence).T:
                    if np.isfinite(step).all():
                        out.write(f"{i},{label}," + ",".join(f"{value:.7g}" for value in step) + "\n")


def padded(sequences):
    longest = max(s.shape[1] for s in sequences)
    return np.stack([np.pad(np.nan_to_num(s), ((0, 0), (0, longest - s.shape[1]))) for s in sequences])


def accuracies(name):
    from aeon.classification.convolution_based import MiniRocketClassifier
    from aeon.classification.distance_based import KNeighborsTimeSeriesClassifier
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y, test_x, test_y = load(name)
    both = padded([*x, *test_x])
    flat = both.reshape(len(both), -1)
    few = min(np.unique(y, return_counts=True)[1])
    logistic = make_pipeline(StandardScaler(), LogisticRegressionCV(Cs=8, cv=int(max(2, min(5, few))), max_iter=2000))
    yield "logistic regression", (logistic.fit(flat[:len(x)], y).predict(flat[len(x):]) == test_y).mean()
    rocket = MiniRocketClassifier(random_state=0, n_jobs=1)
    shortest = 9  # that it takes
    wide = np.pad(both, ((0, 0), (0, 0), (0, max(0, shortest - both.shape[2]))))
    yield "MiniRocket", (rocket.fit(wide[:len(x)], y).predict(wide[len(x):]) == test_y).mean()
    nearest = KNeighborsTimeSeriesClassifier(distance="dtw", n_neighbors=1, n_jobs=1)
    yield "1-NN with DTW", (nearest.fit(x, y).predict(test_x) == test_y).mean()


def compare(name):
    began = time.process_time()
    x, y = load(name)[:2]
    result = {"name": name, "sequences": len(x), "classes": len(np.unique(y)), "steps": max(np.shape(s)[1] for s in x)}
    result.update({method: float(accuracy) for method, accuracy in accuracies(name)})
    return {**result, "cpu_seconds": round(time.process_time() - began, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--write", type=pathlib.Path)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    for name in arguments.names:
        if arguments.write:
            write(name, arguments.write / name)
        else:
            print(json.dumps(compare(name)), flush=True)


if __name__ == "__main__":
    main()
