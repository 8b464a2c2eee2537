"""Tables of times of layers: where each is parallel, and what 65,536 steps take."""

import sys
from pathlib import Path

from runs import Missing

WIDTH = 256
LONGEST_RUN = 20.0  # seconds: a layer's first length that would take longer is left out, and all longer ones
LENGTHS = {"parallel": tuple(2**k for k in range(6, 17)), "long": (65_536,)}  # 64 to 65,536
TITLES = {"parallel": "Where each is parallel", "long": "Long sequences"}
# Table `long` has a single length, so even slow layers are timed at it.
LONGEST = {"parallel": LONGEST_RUN, "long": 1000.0}
LAYERS = {"parallel": ("LSTM", "MinGRU", "convolution", "attention", "torch.nn.LSTM"),
          "long": ("LSTM", "GRU", "SLSTM", "MinGRU", "MinLSTM", "convolution", "attention", "torch.nn.LSTM",
                   "torch.nn.GRU")}

WHERE = """| layer | batch | time | layers | units |
|---|---|---|---|---|
| recurrent (LSTM) | yes | input product only; each state needs the one before | each layer one step behind | yes |
| minimal recurrent (minGRU) | yes | yes: one product, then a scan: about 2 C + T / C operations in sequence, for chunks of C steps | in chunks of time | yes |
| causal convolution | yes | yes | in chunks of time | yes |
| attention | yes | yes, with work that grows as T² | no: each reads all positions before | yes |

Units of a recurrent layer exchange their states at every step.
"""


class Layers:
    """Runs each layer in a process of its own, one after the other."""

    def __init__(self, table, runs, device, version):
        self.table, self.runs, self.device, self.version = table, runs, device, version

    async def _layer(self, name):
        """{length: measures}, or Missing."""
        lengths = LENGTHS[self.table]
        key = {"layer": name, "lengths": lengths, "width": WIDTH, "device": self.device, "version": self.version}

        async def measured():
            return await self.runs.json([
                sys.executable, Path(__file__).with_name("layer_steps.py"), name, "--width", WIDTH, "--longest",
                LONGEST[self.table], "--device", self.device, "--lengths", *lengths])

        found = await self.runs.result(key, (name, self.table), measured)
        return found if isinstance(found, Missing) else {int(n): each for n, each in found["lengths"].items()}

    async def all(self, names):
        """{layer: {length: measures} or Missing}."""
        return {name: await self._layer(name) for name in names}


def shown(measured):
    """Milliseconds with three digits, and their range; or why there are none."""
    if "failed" in measured:
        return f"failed: {measured['failed']}"

    def digits(ms):
        return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"

    return f"{digits(measured['ms'])} ({digits(measured['least'])} - {digits(measured['most'])})"


def _cell(found, length):
    if length in found:
        return shown(found[length])
    failed = any("failed" in each for each in found.values())
    return "-" if failed else f"over {LONGEST_RUN:.0f} s"


def _over_time(results, lengths):
    names = [name for name, found in results.items() if not isinstance(found, Missing)]
    lines = ["| T | " + " | ".join(names) + " |", "|---:|" + "---:|" * len(names)]
    for length in lengths:
        cells = [_cell(results[name], length) for name in names]
        lines.append(f"| {length:,} | " + " | ".join(cells) + " |")
    return lines


def _long(results):
    lines = ["| layer | ms | memory, MB |", "|---|---:|---:|"]
    for name, found in results.items():
        if not isinstance(found, Missing):
            measured = found[LENGTHS["long"][0]]
            memory = f"{measured['memory_mb']:,.0f}" if "memory_mb" in measured else "-"
            lines.append(f"| {name} | {shown(measured)} | {memory} |")
    return lines


def markdown(table, results, device):
    lines = [f"## {TITLES[table]}: {device}", ""]
    if table == "parallel":
        lines += [WHERE]
    sequence = "one sequence" if table == "parallel" else "one sequence of 65,536 steps"
    lines += [f"Milliseconds of a pass forwards and backwards, {sequence}, {WIDTH} units, float32, {device}; the range "
              "of five passes in brackets:", ""]
    lines += _over_time(results, LENGTHS[table]) if table == "parallel" else _long(results)
    lines += [f"\n{name}: {'failed' if found.failed else 'left out'}: {found.reason}."
              for name, found in results.items() if isinstance(found, Missing)]
    return "\n".join(lines)
