"""Where a layer is parallel: the time of a training step over the length of a sequence, for four kinds of layers."""

import statistics
import time

LENGTHS = tuple(2**k for k in range(6, 17))  # 64 to 65,536
WIDTH = 256
LONGEST_RUN = 20.0  # seconds: a kind of layer whose next length would take longer is left out from there on

WHERE = """| layer | batch | time | layers | units |
|---|---|---|---|---|
| recurrent (LSTM) | yes | the input product alone; states follow each other | a step behind each other | yes, with an exchange at every step |
| minimal recurrent (minGRU) | yes | yes: one product, then a scan of depth log T | in chunks of time | yes |
| causal convolution | yes | yes | in chunks of time | yes |
| attention | yes | yes, with work that grows as T² | no: each reads all positions before | yes |"""


def layers(device):
    """{name: module of [1, T, WIDTH]}"""
    import penstock.torch
    import torch
    from transformer import Attention

    class Convolution(torch.nn.Module):
        """Four taps of every channel, then a product over channels."""

        def __init__(self):
            super().__init__()
            self.taps = torch.nn.Conv1d(WIDTH, WIDTH, 4, padding=3, groups=WIDTH)
            self.mix = torch.nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            return self.mix(self.taps(x.transpose(1, 2))[..., :x.shape[1]].transpose(1, 2))

    class First(torch.nn.Module):
        """A recurrent layer's output without its state."""

        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(x)[0]

    torch.manual_seed(0)
    made = {"LSTM": First(penstock.torch.LSTM(WIDTH, WIDTH, batch_first=True)),
            "minGRU": First(penstock.torch.MinGRU(WIDTH, WIDTH, batch_first=True)),
            "convolution": Convolution(), "attention": Attention(WIDTH, 4),
            "torch.nn.LSTM": First(torch.nn.LSTM(WIDTH, WIDTH, batch_first=True))}
    return {name: module.to(device) for name, module in made.items()}


def measure(module, length, device, repeats=5):
    """Median and spread of the milliseconds of a pass forwards and backwards."""
    import torch

    x = torch.randn(1, length, WIDTH, device=device, requires_grad=True)

    def step():
        began = time.perf_counter()
        module(x).sum().backward()
        if device != "cpu":
            torch.cuda.synchronize()
        return 1000 * (time.perf_counter() - began)

    first = step()
    times = [step() for _ in range(repeats if first < 1000 * LONGEST_RUN / repeats else 1)]
    return {"ms": statistics.median(times), "least": min(times), "most": max(times)}


def run(record, device):
    results = {}
    for name, module in layers(device).items():
        seconds = growth = 0.0
        for length in LENGTHS:
            if seconds * growth > LONGEST_RUN:
                break
            key = {"layer": name, "length": length, "width": WIDTH, "device": device}
            found = record.result(key, lambda: measure(module, length, device))  # noqa: B023: called at once
            growth = max(2.0, found["ms"] / 1000 / seconds if seconds else 2.0)
            seconds = found["ms"] / 1000
            results[name, length] = found
    return results


def markdown(results, device):
    names = list(dict.fromkeys(name for name, _ in results))
    lines = ["## Where each is parallel", "", WHERE, "",
             f"Milliseconds of a pass forwards and backwards, one sequence, {WIDTH} units, float32, {device}; the range of five "
             "passes behind each:", "",
             "| T | " + " | ".join(names) + " |", "|---:|" + "---:|" * len(names)]
    for length in LENGTHS:
        cells = []
        for name in names:
            found = results.get((name, length))
            cells.append(f"{found['ms']:.2f} ({found['least']:.2f} - {found['most']:.2f})" if found else "over 20 s")
        lines.append(f"| {length:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(results, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for name in dict.fromkeys(name for name, _ in results):
        lengths = [length for length in LENGTHS if (name, length) in results]
        axes.plot(lengths, [results[name, length]["ms"] for length in lengths], marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="steps of the sequence", ylabel="ms forwards and backwards")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path)
