"""The table of characters: language models over bytes at equal parameters, equal steps and equal time."""

import asyncio
import re
import sys
import sysconfig
import tempfile
import zlib
from pathlib import Path
from typing import NamedTuple

from networks import Outcome, best_of_rates, by_network, peers, recurrent, size_of, spread, training_memory
from runs import Failed, Missing

ROOT = Path(__file__).resolve().parents[2]
STEPS, ROWS, LENGTH, PARAMETERS = 2000, 32, 512, 1_000_000
CONTEXTS = (1024, 16_384, 65_536)
GENERATED = 256  # bytes whose generation is timed
SPEED_STEPS = (20, 60)  # of two runs whose difference is the time of a step; peers begin to count at 20
CORPORA, BUDGETS = ("kjv", "python"), ("steps", "time")
TITLES = {"kjv": "King James Bible", "python": "The standard library of Python"}
NETS = recurrent(("gru", "lstm", "slstm", "mingru", "minlstm"), (3,)) + peers((3,), ("LSTM", "Transformer"))
YARDSTICK = "lstm"  # the cell whose steps are the time that all have


def python_sources(path, most=8_000_000):
    """Writes the modules of this Python's standard library in order of their names, `most` bytes in all."""
    root = Path(sysconfig.get_path("stdlib"))
    left_out = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
    sources = sorted((source.relative_to(root).as_posix(), source) for source in root.rglob("*.py"))
    text = b"\n".join(source.read_bytes() for name, source in sources if not left_out.intersection(name.split("/")))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text[:most])


def corpus_file(name, folder):
    """The file of a corpus, which is written if it is no data set of this repository, and its checksum."""
    path = ROOT / "data" / "kjv.txt" if name == "kjv" else folder / "python.txt"
    if name == "python":
        python_sources(path)
    return path, zlib.crc32(path.read_bytes())


class Characters:
    def __init__(self, runs, program, device, steps, rates, versions, folder):
        self.runs, self.program, self.device = runs, program, device
        self.steps, self.rates, self.versions = steps or STEPS, rates, versions
        self.precision = "bf16" if device != "cpu" else "f32"
        self.texts = {corpus: corpus_file(corpus, folder) for corpus in CORPORA}

    def _train(self, net, width, text, *options):
        return [self.program, "train", text, "--bytes", "--cell", net.cell, "--width", width, "--blocks", net.blocks,
                "--conv", 4, "--ffn", 2, "--dropout", 0, "--batch", ROWS, "--length", LENGTH, "--validate-every", 0,
                "--validate-steps", 0, "--keep-last", "--threads", 1, "--device", self.device, "--precision",
                self.precision, "--force", "--json", "--quiet", *options]

    def _peer(self, net, text, steps, *options):
        return [sys.executable, Path(__file__).with_name("torch_characters.py"), text, "--kind", net.kind,
                "--parameters", PARAMETERS, "--blocks", net.blocks, "--steps", steps, "--batch", ROWS, "--length",
                LENGTH, "--device", self.device, "--precision", self.precision, *options]

    async def _size(self, net):
        def make(width, path):
            text = Path(path).with_name("text")
            text.write_bytes(bytes(range(256)) * 64)
            return self._train(net, width, text, "--steps", 1, "--batch", 1, "--length", 16, "--output", path)

        def planned(path):
            return None if self.device == "cpu" else [
                self.program, "info", path, "--shape", f"{ROWS}x{LENGTH}", "--json", "--device", self.device,
                "--precision", self.precision]

        key = {"width": net._asdict(), "characters": PARAMETERS, "device": self.device, "version": self.versions[net]}
        return await self.runs.result(key, (net.name, "width"), lambda: size_of(self.runs, make, PARAMETERS, planned))

    async def _step_seconds(self, net, size):
        """Of a training step while nothing else runs. Of ours: the difference of two runs."""
        text, _ = self.texts["kjv"]

        async def seconds(steps):
            with tempfile.TemporaryDirectory() as folder:
                trained = await self.runs.json(self._train(
                    net, size["width"], text, "--steps", steps, "--validation-fraction", 0.001, "--output",
                    f"{folder}/m"))
                return trained["seconds"]

        async def measured():
            if not net.cell:
                found = await self.runs.json(self._peer(net, text, SPEED_STEPS[1], "--unscored"))
                return {"step_seconds": found["step_seconds"]}
            first, second = [await seconds(steps) for steps in SPEED_STEPS]
            if second <= first:
                raise Failed(f"{SPEED_STEPS[1]} steps took no longer than {SPEED_STEPS[0]}: {second:.3f} s")
            return {"step_seconds": (second - first) / (SPEED_STEPS[1] - SPEED_STEPS[0])}

        key = {"speed": net._asdict(), "rows": ROWS, "length": LENGTH, "parameters": PARAMETERS, "device": self.device,
               "version": self.versions[net]}
        return await self.runs.result(key, (net.name, "speed"), measured)

    async def _ours(self, net, size, text, steps, seed, rate):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/m.safetensors"
            trained = await self.runs.json(self._train(
                net, size["width"], text, "--steps", steps, "--learning-rate", rate, "--seed", seed, "--output", path))
        return {"parameters": trained["model"]["parameters"], "seconds": trained["seconds"],
                "bits": trained["validation"]["bits_per_byte"],
                "memory_mb": training_memory(self.device, trained, size)}

    async def _theirs(self, net, text, steps, seed, rate):
        found = await self.runs.json(self._peer(net, text, steps, "--learning-rate", rate, "--seed", seed))
        return {**found, "memory_mb": training_memory(self.device, found, found)}

    async def run(self, net, size, corpus, steps, seed, rate):
        text, checksum = self.texts[corpus]
        key = {"net": net._asdict(), "corpus": corpus, "text": checksum, "seed": seed, "rate": rate, "steps": steps,
               "rows": ROWS, "length": LENGTH, "parameters": PARAMETERS, "device": self.device,
               "version": self.versions[net]}

        async def train():
            return await (self._ours(net, size, text, steps, seed, rate) if net.cell
                          else self._theirs(net, text, steps, seed, rate))

        return await self.runs.result(key, (net.name, steps), train)

    async def _generation(self, net, size):
        """{context: {"ms" a byte, "bytes" of the state or the cache}} of a network that was hardly trained."""
        text, _ = self.texts["kjv"]

        async def measured():
            if not net.cell:
                found = await self.runs.json(self._peer(net, text, 1, "--unscored", "--contexts", *CONTEXTS))
                return found["generation"]
            with tempfile.TemporaryDirectory() as folder:
                model, prompt = f"{folder}/m", Path(folder) / "prompt"
                await self.runs.json(self._train(net, size["width"], text, "--steps", 1, "--validation-fraction", 0.001,
                                                 "--output", model))
                shape = await self.runs.json([self.program, "info", model, "--shape", "1x1", "--json"])
                found = {}
                for context in CONTEXTS:
                    prompt.write_bytes(text.read_bytes()[:context])
                    _, said, _ = await self.runs.output([
                        self.program, "generate", model, "--prompt-file", prompt, "--bytes", GENERATED, "--device",
                        self.device, "--seed", 0, "--stats"])
                    speed = re.search(r"([\d.]+) bytes a second", said)
                    if not speed:
                        raise Failed(f"generate --stats said {said.strip()!r}")
                    found[str(context)] = {"ms": 1000 / float(speed[1]), "bytes": shape["memory"]["state"]}
                return found

        key = {"generation": net._asdict(), "contexts": CONTEXTS, "parameters": PARAMETERS, "device": self.device,
               "version": self.versions[net]}
        return await self.runs.result(key, (net.name, "generation"), measured)

    async def _corpus(self, net, size, corpus, seeds, steps_in_time):
        """Outcomes at equal steps and at equal time; both take the rate that is best at equal steps."""
        equal_steps = await best_of_rates(
            lambda seed, rate: self.run(net, size, corpus, self.steps, seed, rate), self.rates, seeds,
            lambda run: -run["bits"])
        if not equal_steps.runs:
            return equal_steps, equal_steps
        found = await asyncio.gather(*(self.run(net, size, corpus, steps_in_time, seed, equal_steps.rate)
                                       for seed in range(seeds)))
        return equal_steps, Outcome.of(equal_steps.rate, found)

    async def all(self, nets, corpora, seeds):
        """({(net, corpus, "steps" or "time"): Outcome}, {net: generation or Missing}, {net: steps in equal time})."""
        yardstick = next(net for net in NETS if net.cell == YARDSTICK)
        sizes, speeds, generated, missing, steps = {}, {}, {}, {}, {}
        for net in dict.fromkeys((yardstick, *nets)):  # one by one: nothing else runs while times are taken
            sizes[net] = await self._size(net) if net.cell else {}
            speeds[net] = sizes[net] if isinstance(sizes[net], Missing) else await self._step_seconds(
                net, sizes[net])
            if isinstance(speeds[net], Missing) or isinstance(speeds[yardstick], Missing):
                missing[net] = next(each for each in (speeds[net], speeds[yardstick]) if isinstance(each, Missing))
                continue
            steps[net] = max(1, round(self.steps * speeds[yardstick]["step_seconds"] / speeds[net]["step_seconds"]))
            if net in nets:
                generated[net] = await self._generation(net, sizes[net])
        pairs = [(net, corpus) for corpus in corpora for net in nets if net not in missing]
        found = await asyncio.gather(*(self._corpus(net, sizes[net], corpus, seeds, steps[net])
                                       for net, corpus in pairs))
        lost = {(net, corpus): (Outcome(0, [], [missing[net]]),) * 2
                for net in nets if net in missing for corpus in corpora}
        found = {**dict(zip(pairs, found)), **lost}
        results = {(net, corpus, budget): found[net, corpus][i]
                   for corpus in corpora for i, budget in enumerate(BUDGETS) for net in nets}
        return results, generated, steps


def markdown(results, generated, steps, equal_steps, device, precision):
    lines = ["## Characters", ""]
    for corpus, budget in dict.fromkeys((corpus, budget) for _, corpus, budget in results):
        title = f"{equal_steps:,} steps"
        if budget == "time":
            title = f"the time that {YARDSTICK} takes for {title}"
        outcomes = {net: outcome for (net, *its), outcome in results.items() if its == [corpus, budget]}
        lines += [f"{TITLES[corpus]}, {title}:", ""]
        lines += by_network("bits a byte", outcomes, lambda runs: [spread([run["bits"] for run in runs], 3)]) + [""]
        if budget == "time":
            in_time = ", ".join(f"{net.name} {steps[net]:,}" for net in outcomes if net in steps)
            lines += [f"Steps in that time: {in_time or 'unknown'}.", ""]
    head = " | ".join(f"behind {n:,} bytes" for n in CONTEXTS)
    lines += [f"At most {PARAMETERS:,} parameters, {ROWS} x {LENGTH} bytes a step, {precision}; the last 5 % are "
              "held out.",
              "", f"Generation of one text on {device} in f32, milliseconds a byte, and bytes of state or cache:", "",
              f"| network | {head} |", "|---|" + "---:|" * len(CONTEXTS)]
    for net, found in generated.items():
        if isinstance(found, Missing):
            lines.append(f"| {net.name} | {found.reason} |" + " - |" * (len(CONTEXTS) - 1))
            continue
        cells = [f"{found[str(n)]['ms']:.3f} ms, {found[str(n)]['bytes']:,} B" for n in CONTEXTS]
        lines.append(f"| {net.name} | {' | '.join(cells)} |")
    return "\n".join(lines)
