"""Attacks the program's writers: full disks, kills, planted links and private files. Prints a table in Markdown.

python tests/faults/writers.py [--kills N]

Each trial begins with a whole old file. It counts as lost if the file is then neither the old one nor a whole new one,
if a planted link is written through, or if permissions change.
"""

import argparse
import os
import pathlib
import random
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cli"))

from program import PATIENCE, SERIES, TINY, start


def writers(folder):
    """{name: (file that is written, command, standard input)} of programs that take no more than a second."""
    model = folder / "model.safetensors"
    series = folder / "series.csv"
    return {
        "model": ("out.safetensors", ["train", series, "-o", "out.safetensors", "--force", "--quiet", "--columns",
                                      "level,flow", "--steps", 5, "--length", 16, *TINY], None),
        "forecasts": ("out.csv", ["predict", model, series, "-o", "out.csv"], None),
        "state": ("state.json", ["stream", model, "--state", "state.json"], series),
        "page of the manual": ("penstock-train.1", ["man", "--folder", "."], None),
        "onnx": ("out.onnx", ["export", model, "-o", "out.onnx"], None),
    }  # fmt: skip


def run_once(command, folder, stdin, **limits):
    """Runs the program; kills it after `kill_after` seconds."""
    kill_after = limits.pop("kill_after", None)
    with open(stdin or os.devnull, "rb") as source:
        process = start(*command, cwd=folder, stdin=source, **limits)
    if kill_after is not None:
        time.sleep(kill_after)
        process.kill()
    process.communicate(timeout=PATIENCE)
    return process.returncode


def attack(name, target, command, stdin, folder, kills):
    """{fault: (trials, lost)}"""
    path = folder / target
    path.unlink(missing_ok=True)
    began = time.monotonic()
    assert run_once(command, folder, stdin) == 0, name
    taken = time.monotonic() - began
    old, outcome = path.read_bytes(), {}

    def check(lost):
        lost += not path.exists() or len(path.read_bytes()) < 0.9 * len(old) or path.stat().st_mode & 0o777 != 0o600
        return lost

    path.chmod(0o600)
    lost = 0
    for size in (0, len(old) // 2):
        run_once(command, folder, stdin, file_size=size)
        lost = check(lost)
    outcome["full disk"] = 2, lost
    lost = 0
    for _ in range(kills):
        run_once(command, folder, stdin, kill_after=random.uniform(0, taken))
        lost = check(lost)
    outcome["kill"] = kills, lost
    secret = folder / "secret"
    secret.write_text("precious")
    planted = folder / f"{target}.tmp"
    planted.symlink_to("secret")
    link = folder / "moved"
    path.rename(link)
    path.symlink_to("moved")
    run_once(command, folder, stdin)
    outcome["link"] = 1, check(0) + (secret.read_text() != "precious") + (not path.is_symlink())
    planted.unlink()
    path.unlink()
    link.unlink()
    return outcome


def campaign(kills):
    """{writer: {fault: (trials, lost)}}"""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "series.csv").write_text(SERIES)
        train = ["train", "series.csv", "-o", "model.safetensors", "--quiet", "--columns", "level,flow", "--steps", 5]
        assert run_once([*train, "--length", 16, *TINY], folder, None) == 0
        return {name: attack(name, *how, folder, kills) for name, how in writers(folder).items()}


def table(outcomes):
    lines = ["| writer | fault | trials | lost |", "|---|---|---:|---:|"]
    for name, faults in outcomes.items():
        lines += [f"| {name} | {fault} | {trials} | {lost} |" for fault, (trials, lost) in faults.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=40, help="of each writer, at random moments [40]")
    print(table(campaign(parser.parse_args().kills)))
