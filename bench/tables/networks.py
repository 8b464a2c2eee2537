"""Networks of a table, their sizes, the choice of a learning rate and the rows of results."""

import asyncio
import statistics
import tempfile
from typing import NamedTuple

from runs import Failed, Missing

LEARNING_RATES = (0.001, 0.003, 0.01)


class Net(NamedTuple):
    """A network of a table: ours by a cell, or a peer in PyTorch by its kind."""

    name: str
    cell: str = ""
    kind: str = ""
    blocks: int = 1
    heads: int = 1


def _blocks(n):
    return f"{n} block{'s' * (n > 1)}"


def recurrent(cells, blocks, heads=1):
    of_heads = f"{heads} heads, " if heads > 1 else ""
    return tuple(Net(f"{cell}, {of_heads}{_blocks(n)}", cell=cell, blocks=n, heads=heads)
                 for cell in cells for n in blocks)


def peers(blocks, kinds=("Transformer",)):
    return tuple(Net(f"{kind}, {_blocks(n)} (PyTorch)", kind=kind, blocks=n) for kind in kinds for n in blocks)


async def width_of(parameters, most, step=4):
    """The widest network of at most so many parameters, in steps of 4 units, as {"width": n}.

    `await parameters(width)` counts them. They are a polynomial of the second degree in the width.
    """
    counts = [await parameters(step * n) for n in (1, 2, 3)]
    square = (counts[2] - 2 * counts[1] + counts[0]) // 2
    slope = counts[1] - counts[0] - 3 * square

    def of(n):
        return counts[0] + square * (n * n - 1) + slope * (n - 1)

    if counts[0] > most:
        raise Failed(f"a width of {step} has {counts[0]:,} parameters, more than {most:,}")
    n = 1
    while of(n + 1) <= most:
        n += 1
    found = await parameters(step * n)
    if found != of(n):
        raise Failed(f"a width of {step * n} has {found:,} parameters, not {of(n):,}")
    return {"width": step * n}


async def size_of(runs, make, most, planned):
    """{"width": n} of the widest network of Penstock with at most `most` parameters, and what its training takes.

    make(width, path): a command that writes such a model; planned(path): one that prints its memory on a GPU, or None.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.safetensors"

        async def parameters(width):
            return (await runs.json(make(width, path)))["model"]["parameters"]

        found = await width_of(parameters, most)
        if (command := planned(path)) is None:
            return found
        memory = (await runs.json(command))["memory"]
        return {**found, "memory_mb": sum(memory[part] for part in ("weights", "training_peak", "optimizer")) / 1e6}


class Outcome(NamedTuple):
    """The runs of a network at its best learning rate; rate 0: none was found."""

    rate: float
    runs: list
    missing: list

    @classmethod
    def of(cls, rate, results):
        return cls(rate, [each for each in results if isinstance(each, dict)],
                   [each for each in results if isinstance(each, Missing)])

    def reason(self):
        """Why runs are missing, or an empty string."""
        failed = [each.reason for each in self.missing if each.failed]
        if failed:
            return f"failed: {failed[0]}"
        return f"left out: {self.missing[0].reason}" if self.missing else ""


async def best_of_rates(run, rates, seeds, score):
    """Runs the first seed at every rate, then the other seeds at the rate whose score is highest.

    `await run(seed, rate)` gives a result or Missing. A rate that fails is not the best; while one is left out, the
    best is not known.
    """
    first = await asyncio.gather(*(run(0, rate) for rate in rates))
    missing = [result for result in first if isinstance(result, Missing)]
    if len(missing) == len(first) or any(not each.failed for each in missing):
        return Outcome(0, [], missing)
    finished = [i for i, result in enumerate(first) if not isinstance(result, Missing)]
    best = max(finished, key=lambda i: score(first[i]))
    rate = rates[best]
    found = [first[best], *await asyncio.gather(*(run(seed, rate) for seed in range(1, seeds)))]
    return Outcome.of(rate, found)


def training_memory(device, trained, measured):
    """Megabytes of a training run: on a CPU those of the process, on a GPU those of what is allocated.

    trained: the result of runs.json(); measured: what has "memory_mb" of a GPU. Penstock allocates what it planned.
    """
    return trained["rss_mb"] if device == "cpu" else measured["memory_mb"]


def spread(values, digits=1):
    """Mean, and least and largest where they differ."""
    mean, least, most = (f"{value:,.{digits}f}" for value in (statistics.mean(values), min(values), max(values)))
    return mean if least == most else f"{mean} ({least} - {most})"


def by_network(head, outcomes, scores):
    """The lines of a table. head: titles of scores; outcomes: {net: Outcome}; scores(runs): a text for each title."""
    columns = head.count("|") + 1
    lines = [f"| network | parameters | rate | seeds | {head} | seconds | memory, MB |",
             "|---|---:|---:|---:|" + "---:|" * (columns + 2)]
    for net, outcome in outcomes.items():
        if not outcome.runs:
            lines.append(f"| {net.name} | - | - | 0 | {outcome.reason()} |" + " - |" * (columns + 1))
            continue
        seconds = statistics.median(run["seconds"] for run in outcome.runs)
        memory = statistics.median(run["memory_mb"] for run in outcome.runs)
        lines.append(f"| {net.name} | {outcome.runs[0]['parameters']:,} | {outcome.rate:g} | {len(outcome.runs)} | "
                     f"{' | '.join(scores(outcome.runs))} | {seconds:.1f} | {memory:.0f} |")
    for net, outcome in outcomes.items():
        if outcome.runs and outcome.missing:
            missing, of_all = len(outcome.missing), len(outcome.runs) + len(outcome.missing)
            lines += ["", f"{net.name}: {missing} of {of_all} seeds {outcome.reason()}."]
    return lines


def method(results, seeds, rates, device):
    """How the runs of {...: Outcome} were made."""
    runs = [run for outcome in results.values() for run in outcome.runs]
    chosen = ", ".join(f"{rate:g}" for rate in rates)
    if len(rates) > 1:
        chosen = f"the best of {chosen} by the first seed"
    text = (f"Seeds: {seeds}; the mean, and the least and the largest where they differ. Learning rate: "
            f"{chosen}. Seconds: median time of training on {device}")
    jobs = sorted({run["jobs"] for run in runs})
    if jobs and jobs != [1]:
        text += f", where up to {jobs[-1]} runs shared the machine"
    where = "the process" if device == "cpu" else "weights, activations, gradients and moments on the GPU"
    return text + f". Memory: of {where} in training."
