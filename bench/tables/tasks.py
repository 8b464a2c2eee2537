"""Tables of accuracy on built-in tasks: which network learns what, at equal parameters, steps and tuning."""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from networks import Outcome, best_of_rates, by_network, peers, recurrent, size_of, spread, training_memory
from runs import Missing


class Table(NamedTuple):
    title: str
    tasks: tuple
    nets: tuple
    steps: int
    length: int
    scored: tuple  # lengths; the first is the trained one
    parameters: int
    remembered: int = 10
    gpu_precision: str = "f32"


ROWS = 64
DENSE, MINIMAL = ("elman", "gru", "lstm", "slstm"), ("mingru", "minlstm")
TABLES = {
    "tracking": Table(
        "State tracking", ("parity", "modular", "s3", "a5", "s5"),
        recurrent(DENSE, (1, 2)) + recurrent(DENSE, (1,), heads=4) + recurrent(MINIMAL, (1, 2)) +
        peers((1,), ("LSTM",)) + peers((1, 2)),
        steps=2000, length=40, scored=(40, 256, 1024), parameters=24_000),
    "recall": Table(
        "Associative recall", ("recall",),
        recurrent((*DENSE[1:], *MINIMAL), (1, 2)) + peers((1,), ("LSTM",)) + peers((1, 2)),
        steps=4000, length=64, scored=(64, 128), parameters=100_000),
    "copying": Table(
        "Selective copying", ("copying",), recurrent((*DENSE[1:], *MINIMAL), (3,)) + peers((3,)),
        steps=5000, length=4096, scored=(4096,), parameters=150_000, remembered=16, gpu_precision="bf16"),
}


class Tasks:
    """Trains the networks of a table and scores them at each length."""

    peer_options = ()

    def __init__(self, table, runs, program, device, steps, rates, versions):
        self.table, self.runs, self.program, self.device = table, runs, program, device
        self.steps, self.rates, self.versions = steps or table.steps, rates, versions
        self.precision = table.gpu_precision if device != "cpu" else "f32"

    def data(self, task, length):
        """Options of `penstock train` for sequences of a length."""
        return [f"task:{task}", "--task-length", length, "--validation-length", length, "--copy-tokens",
                self.table.remembered]

    async def accuracies(self, trained, path, task):
        """{length: accuracy} of a model on new sequences. trained: what the program said of its training."""
        found = {str(self.table.length): trained["validation"]["accuracy"]}
        for length in self.table.scored[1:]:
            scored = await self.runs.json([
                self.program, "predict", path, f"task:{task}", "--length", length, "--copy-tokens",
                self.table.remembered, "--threads", 1, "--device", self.device, "--json"])
            found[str(length)] = scored["accuracy"]
        return found

    def _train(self, net, task, width, length, *options):
        return [self.program, "train", *self.data(task, length), "--cell", net.cell, "--width", width, "--blocks",
                net.blocks, "--heads", net.heads, "--dropout", 0, "--validate-every", 0, "--validate-steps", 0,
                "--keep-last", "--threads", 1, "--force", "--json", "--quiet", *options]

    async def _size(self, net, task):
        table, shortest = self.table, 3 * self.table.remembered  # parameters are those of any length

        def make(width, path):
            return self._train(net, task, width, shortest, "--steps", 1, "--batch", 1, "--output", path)

        def planned(path):
            return None if self.device == "cpu" else [
                self.program, "info", path, "--shape", f"{ROWS}x{table.length}", "--json", "--device", self.device,
                "--precision", self.precision]

        key = {"width": net._asdict(), "task": task, "parameters": table.parameters, "remembered": table.remembered,
               "length": table.length, "device": self.device, "version": self.versions[net]}
        return await self.runs.result(
            key, (net.name, "width"), lambda: size_of(self.runs, make, table.parameters, planned))

    async def _ours(self, net, task, size, seed, rate):
        table = self.table
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/m.safetensors"
            trained = await self.runs.json(self._train(
                net, task, size["width"], table.length, "--steps", self.steps, "--batch", ROWS, "--learning-rate", rate,
                "--seed", seed, "--device", self.device, "--precision", self.precision, "--output", path))
            accuracy = await self.accuracies(trained, path, task)
        return {"parameters": trained["model"]["parameters"], "seconds": trained["seconds"], "accuracy": accuracy,
                "memory_mb": training_memory(self.device, trained, size)}

    async def _peer(self, net, task, seed, rate):
        table = self.table
        trained = await self.runs.json([
            sys.executable, Path(__file__).with_name("torch_tasks.py"), task, "--kind", net.kind, "--parameters",
            table.parameters, "--blocks", net.blocks, "--steps", self.steps, "--batch", ROWS, "--length", table.length,
            "--score", *table.scored, "--remembered", table.remembered, "--learning-rate", rate, "--seed", seed,
            "--device", self.device, "--precision", self.precision, *self.peer_options])
        return {**trained, "memory_mb": training_memory(self.device, trained, trained)}

    async def run(self, net, task, size, seed, rate):
        table = self.table
        key = {"net": net._asdict(), "task": task, "seed": seed, "rate": rate, "steps": self.steps,
               "length": table.length, "scored": table.scored, "parameters": table.parameters,
               "remembered": table.remembered, "device": self.device, "precision": self.precision,
               "version": self.versions[net]}

        async def train():
            return await (self._ours(net, task, size, seed, rate) if net.cell else self._peer(net, task, seed, rate))

        return await self.runs.result(key, (net.name, task), train)

    async def outcome(self, net, task, seeds):
        """The seeds of a network at the rate that is best at the trained length by the first seed."""
        trained = str(self.table.scored[0])
        size = await self._size(net, task) if net.cell else {}  # a peer chooses its own
        if isinstance(size, Missing):
            return Outcome(0, [], [size])
        found = await best_of_rates(lambda seed, rate: self.run(net, task, size, seed, rate), self.rates, seeds,
                                    lambda run: run["accuracy"][trained])
        scores = ", ".join(f"{run['accuracy'][trained]:.1%}" for run in found.runs)
        print(f"papers.py: {task}: {net.name}: {scores or found.reason()}", file=sys.stderr)
        return found

    async def all(self, nets, of_tasks, seeds):
        """{(net, task): Outcome}"""
        pairs = [(net, task) for task in of_tasks for net in nets]
        found = await asyncio.gather(*(self.outcome(net, task, seeds) for net, task in pairs))
        return dict(zip(pairs, found))


def markdown(table, results, steps, precision):
    """results: {(net, task): Outcome}."""
    lines = [f"## {table.title}", ""]
    head = " | ".join(f"{length:,} steps" for length in table.scored)
    for task in dict.fromkeys(task for _, task in results):
        lines += [f"`{task}`, accuracy in per cent:", ""]
        lines += by_network(
            head, {net: outcome for (net, its), outcome in results.items() if its == task},
            lambda runs: [spread([100 * run["accuracy"][str(length)] for run in runs]) for length in table.scored])
        lines.append("")
    lines.append(f"At most {table.parameters:,} parameters, {steps:,} steps of the optimiser, {ROWS} sequences "
                 f"of {table.length:,} steps each, {precision}.")
    return "\n".join(lines)
