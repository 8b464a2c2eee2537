"""Tables of accuracy on built-in tasks: which network learns what, at equal parameters, steps and tuning."""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

LEARNING_RATES = (0.001, 0.003, 0.01)


class Net(NamedTuple):
    """A network of a table: ours by a cell, or a peer of torch_tasks.py by its kind."""

    name: str
    cell: str = ""
    kind: str = ""
    blocks: int = 1
    heads: int = 1


class Table(NamedTuple):
    title: str
    tasks: tuple
    nets: tuple
    steps: int
    length: int
    scored: tuple  # lengths
    parameters: int
    remembered: int = 10


def recurrent(cells, blocks):
    return tuple(Net(f"{cell}, {n} block{'s' * (n > 1)}", cell=cell, blocks=n) for cell in cells for n in blocks)


def peers(blocks, kinds=("Transformer",)):
    return tuple(Net(f"{kind}, {n} block{'s' * (n > 1)} (PyTorch)", kind=kind, blocks=n) for kind in kinds for n in blocks)


TABLES = {
    "tracking": Table(
        "State tracking", ("parity", "modular", "s3", "a5", "s5"),
        recurrent(("elman", "gru", "lstm", "slstm"), (1, 2)) +
        tuple(Net(f"{cell}, 4 heads, 1 block", cell=cell, heads=4) for cell in ("lstm", "slstm")) +
        recurrent(("mingru", "minlstm"), (1, 2)) + peers((1,), ("LSTM",)) + peers((1, 2)),
        steps=2000, length=40, scored=(40, 256, 1024), parameters=24_000),
    "recall": Table(
        "Associative recall", ("recall",),
        recurrent(("gru", "lstm", "slstm", "mingru", "minlstm"), (1, 2)) + peers((1,), ("LSTM",)) + peers((1, 2)),
        steps=4000, length=64, scored=(64, 128), parameters=100_000),
    "copying": Table(
        "Selective copying", ("copying",), recurrent(("gru", "lstm", "slstm", "mingru", "minlstm"), (3,)) + peers((3,)),
        steps=20_000, length=4096, scored=(4096,), parameters=150_000, remembered=16),
}


class Runner:
    """Trains networks of a table, one at a time; results go to the record."""

    def __init__(self, table, record, program, device="cpu", steps=None):
        self.table, self.record, self.program, self.device = table, record, str(program), device
        self.steps = steps or table.steps

    def _json(self, command):
        result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if result.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))} ended with status {result.returncode}: {result.stderr[-500:]}")
        return json.loads(result.stdout)

    def _penstock(self, net, task, width, seed, rate, steps, output):
        table = self.table
        return self._json([
            self.program, "train", f"task:{task}", "--cell", net.cell, "--width", width, "--blocks", net.blocks, "--heads",
            net.heads, "--steps", steps, "--batch", 64, "--learning-rate", rate, "--seed", seed, "--task-length",
            table.length, "--validation-length", table.length, "--copy-tokens", table.remembered, "--threads", 1,
            "--device", self.device, "--output", output, "--force", "--json", "--quiet"])

    def _width(self, net, task):
        """The widest network of at most so many parameters, in steps of 8."""
        def parameters(width):
            with tempfile.TemporaryDirectory() as folder:
                return self._penstock(net, task, width, 0, 0.003, 1, f"{folder}/m.safetensors")["model"]["parameters"]

        def widest():
            low, high = 1, 128  # of 8
            while low < high:
                middle = (low + high + 1) // 2
                low, high = (middle, high) if parameters(8 * middle) <= self.table.parameters else (low, middle - 1)
            return 8 * low

        key = {"width": net._asdict(), "task": task, "parameters": self.table.parameters}
        return self.record.result(key, widest)

    def _ours(self, net, task, seed, rate):
        table = self.table
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/m.safetensors"
            trained = self._penstock(net, task, self._width(net, task), seed, rate, self.steps, path)
            accuracy = {}
            for length in table.scored:
                scored = self._json([self.program, "predict", path, f"task:{task}", "--length", length, "--copy-tokens",
                                     table.remembered, "--json"])
                accuracy[str(length)] = scored["accuracy"]
        return {"parameters": trained["model"]["parameters"], "seconds": trained["seconds"], "accuracy": accuracy}

    def _peer(self, net, task, seed, rate):
        table = self.table
        return self._json([
            sys.executable, Path(__file__).with_name("torch_tasks.py"), task, "--kind", net.kind, "--parameters",
            table.parameters, "--blocks", net.blocks, "--steps", self.steps, "--length", table.length, "--score",
            *table.scored, "--remembered", table.remembered, "--learning-rate", rate, "--seed", seed, "--device",
            self.device])

    def run(self, net, task, seed, rate):
        key = {"net": net._asdict(), "task": task, "seed": seed, "rate": rate, "steps": self.steps,
               "length": self.table.length, "scored": self.table.scored, "parameters": self.table.parameters,
               "remembered": self.table.remembered, "device": self.device}
        return self.record.result(key, lambda: (self._ours if net.cell else self._peer)(net, task, seed, rate))

    def best_rate(self, net, task):
        """The learning rate that is best at the trained length, by the first seed."""
        trained = str(self.table.scored[0])
        return max(LEARNING_RATES, key=lambda rate: self.run(net, task, 0, rate)["accuracy"][trained])

    def runs(self, net, task, seeds):
        rate = self.best_rate(net, task)
        return rate, [self.run(net, task, seed, rate) for seed in range(seeds)]


def spread(values):
    """Mean and range in per cent."""
    mean = statistics.mean(values)
    if max(values) - min(values) < 0.0005:
        return f"{mean:.1%}".replace("%", "")
    return f"{100 * mean:.1f} ({100 * min(values):.1f} - {100 * max(values):.1f})"


def markdown(table, results, seeds):
    """results: {(net, task): (rate, runs)}."""
    lines = [f"## {table.title}", ""]
    for task in table.tasks:
        head = " | ".join(f"{length} steps" for length in table.scored)
        lines += [f"`task:{task}`, accuracy in per cent:", "",
                  f"| network | parameters | rate | {head} | seconds |", "|---|---:|---:|" + "---:|" * (len(table.scored) + 1)]
        for net in table.nets:
            if (net, task) not in results:
                continue
            rate, runs = results[net, task]
            scores = " | ".join(spread([run["accuracy"][str(length)] for run in runs]) for length in table.scored)
            seconds = statistics.median(run["seconds"] for run in runs)
            lines.append(f"| {net.name} | {runs[0]['parameters']:,} | {rate:g} | {scores} | {seconds:.1f} |")
        lines.append("")
    rates = ", ".join(f"{rate:g}" for rate in LEARNING_RATES)
    lines += [f"Seeds: {seeds}; the mean, and the least and the largest where they differ. Learning rate: the best of {rates}."]
    return "\n".join(lines)
