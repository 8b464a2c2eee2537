"""Reads the files of RTNeural's folder `models` and compares their outputs:

    python bench/rtneural_models.py FOLDER --program build/release/penstock

FOLDER is a checkout of github.com/jatinchowdhury18/RTNeural. Prints a table in Markdown. The columns are largest
differences: from the layers in float64 (tests/python/test_audio.py), from the outputs of Keras in FOLDER/test_data, and
of the file that `penstock export` writes again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import penstock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "python"))
from test_audio import expected


def outputs(network, x):
    return np.float64(penstock.NetworkSession(network).run(x[None])["output"][0])


def from_keras(model, y, stored):
    """The largest difference in the steps that depend on no padding. RTNeural's convolutions are causal: Keras leaves the
    first steps out ("valid"), or reads later ones ("same")."""
    stored = stored.reshape(-1, y.shape[1])
    padded = [(each["kernel_size_time"] - 1) * each["dilation"] for each in model["layers"] if each["type"] == "conv2d" and each["padding"] == "same"]
    left = sum(each // 2 for each in padded)
    shift = len(y) - len(stored) + sum(padded) - left
    return np.abs(y[shift + left :] - stored[left : len(y) - shift]).max()


def written_again(program, network, x, y):
    """The largest difference of the exported file, or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        network.save(f"{folder}/network.safetensors")
        done = subprocess.run([program, "export", f"{folder}/network.safetensors", "-o", f"{folder}/again.json"], capture_output=True, text=True)
        if done.returncode != 0:
            return "refused: " + done.stderr.partition("this network: ")[2].strip()
        return f"{np.abs(outputs(penstock.import_audio(f'{folder}/again.json'), x) - y).max():.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--program", default="penstock")
    options = parser.parse_args()
    models = options.folder / "models"
    files = sorted(models.rglob("*.json"))
    if not files:
        sys.exit(f"{models}: no file *.json; FOLDER is a checkout of RTNeural")
    print("| file | largest output | from float64 | from Keras | written again |\n|---|---|---|---|---|")
    for path in files:
        name = path.relative_to(models)
        try:
            network = penstock.import_audio(path)
        except penstock.errors.Error as error:
            print(f"| {name} | refused: {str(error).removeprefix(f'{path}: ')} | | | |")
            continue
        model = json.loads(path.read_text())
        stored = [options.folder / "test_data" / f"{path.stem}_{end}_python.csv" for end in "xy"]
        channels = network.inputs[0].shape[2]
        x = np.loadtxt(stored[0]) if stored[0].exists() else np.random.default_rng(1).normal(0, 1, 300 * channels)
        x = np.float32(x.reshape(-1, channels))
        y, exact = outputs(network, x), expected(model, x)
        keras = f"{from_keras(model, y, np.loadtxt(stored[1])):.1e}" if stored[1].exists() else ""
        print(f"| {name} | {np.abs(exact).max():.2g} | {np.abs(y - exact).max():.1e} | {keras} | {written_again(options.program, network, x, y)} |")


if __name__ == "__main__":
    main()
