"""Trains and scores `penstock` with its defaults on the series and labelled sets of a folder (quality.py writes it), for
several seeds. A series without trained layers (fewer than 200 held-out rows) runs once, because every seed gives the same
result. Each result is kept as a file, so an interrupted run continues where it stopped. Needs only numpy, so it can run
on another machine than the peers.

    python3 bench/quality/quality_runs.py build/release/penstock build/quality/data build/quality/ours --jobs 16
"""

import argparse
import concurrent.futures
import csv
import io
import json
import os
import pathlib
import subprocess
import tempfile
import time

import numpy as np

QUANTILES = "0.1,0.9"
FEWEST_HELD_OUT = 200  # rows; with fewer, the layers of a series are not trained


class Program:
    """The program, with a file for its model; counts the CPU time of its runs."""

    def __init__(self, path, model):
        self.path, self.model, self.cpu_seconds = path, model, 0.0

    def run(self, *arguments):
        with tempfile.TemporaryFile() as out:
            words = [str(word) for word in (self.path, *arguments, "--threads", 1)]
            process = subprocess.Popen(words, stdout=out, stderr=subprocess.PIPE, text=True)
            message = process.stderr.read()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode != 0:
                raise RuntimeError(f"{' '.join(words)}: {message.strip()}")
            self.cpu_seconds += used.ru_utime + used.ru_stime
            out.seek(0)
            return out.read().decode()

    def train(self, data, seed, *options):
        return json.loads(self.run("train", data, "--seed", seed, "--json", "--quiet", "--force", "--output", self.model, *options))


def series(program, folder, seed, options):
    """Errors over the origins that the folder names, and how many values lay in 80 % intervals."""
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    trained = program.train(folder / "train.csv", seed, "--horizon", about["horizon"], *options)
    cpu_seconds = program.cpu_seconds
    text = program.run("predict", program.model, folder / "all.csv", "--quantiles", QUANTILES)
    rows = np.array(list(csv.reader(io.StringIO(text)))[1:], dtype=float)[about["origins"]]
    forecasts, low, high = rows[:, 0::3], rows[:, 1::3], rows[:, 2::3]
    values = np.array([float(row[0]) for row in csv.reader((folder / "all.csv").open()) if row[0] != "value"])
    ahead = np.array(about["origins"])[:, None] + 1 + np.arange(about["horizon"])
    known = ahead < len(values)
    truth = values[np.minimum(ahead, len(values) - 1)]
    return {"rmse": float(np.sqrt(((forecasts - truth)[known]**2).mean())),
            "coverage": float(((low <= truth) & (truth <= high))[known].mean()),
            "season": trained["model"]["season"], "share": trained["share_of_layers"], "cpu_seconds": cpu_seconds}


def labelled(program, folder, seed, options):
    trained = program.train(folder / "train.csv", seed, *options)
    cpu_seconds = program.cpu_seconds
    score = json.loads(program.run("evaluate", program.model, folder / "test.csv", "--json"))
    return {"accuracy": score["files"][0]["accuracy"], "steps": trained["steps"], "cpu_seconds": cpu_seconds}


def depends_on_seed(folder):
    if not (folder / "about.json").exists():
        return True
    with open(folder / "train.csv", encoding="ascii") as file:
        rows = sum(1 for _ in file) - 1
    return rows // 5 >= FEWEST_HELD_OUT


def one(job):
    path, folder, seed, kept, options = job
    with tempfile.TemporaryDirectory() as scratch:
        program = Program(path, pathlib.Path(scratch) / "model.safetensors")
        result = (series if (folder / "about.json").exists() else labelled)(program, folder, seed, options)
    kept.write_text(json.dumps(result), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--names", help="A,B: these alone")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no job is begun after so long")
    arguments, options = parser.parse_known_args()
    arguments.results.mkdir(parents=True, exist_ok=True)
    folders = sorted(arguments.data.iterdir(), key=lambda folder: -sum(f.stat().st_size for f in folder.iterdir()))
    if arguments.names:
        folders = [folder for folder in folders if folder.name in arguments.names.split(",")]
    jobs = [(arguments.program.absolute(), folder, seed, arguments.results / f"{folder.name}_{seed}.json", options)
            for seed in range(arguments.seeds) for folder in folders if seed == 0 or depends_on_seed(folder)]
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        def in_time(job):
            if time.monotonic() - began < arguments.seconds and not job[3].exists():
                one(job)
        done = [pool.submit(in_time, job) for job in jobs]
        for job, future in zip(jobs, done):
            if future.exception():
                print(f"{job[1].name}, seed {job[2]}: {future.exception()}", flush=True)


if __name__ == "__main__":
    main()
