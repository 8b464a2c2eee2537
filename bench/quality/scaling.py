"""Trains minGRU, minLSTM, LSTM, sLSTM and a Transformer at several sizes on one text: bits a byte over computation.

    python bench/quality/source_code.py corpus
    python bench/quality/scaling.py run corpus --record curve.jsonl --device cuda
    python bench/quality/scaling.py show --record curve.jsonl --picture curve.svg

Blocks are the same for all but for what mixes the steps: a norm, the mixer and a residual; a norm, a gated feed-forward
part of twice the width and a residual. Recurrent layers have the causal convolution of 4 steps before them that
`penstock train` gives a text; attention has rotary positions instead. All read windows of --length bytes from a zero
state.

Tuned: the learning rate, for each model and size, by runs of an eighth of the bytes. Factors of two are tried until the
best rate has a worse one on both sides, beginning with the best of the next smaller size. Not tuned: AdamW's other
settings, the batch, the shape of the models and the initial weights. The rate is constant after a start of 2 % of the
steps. What is scored is an average of the weights over the last sixteenth of the steps so far, so every point of a run
stands for a run that ends there.

Time is that of training steps of one run alone on the device, without scores and without the first steps, which choose
kernels. With --graph the GPU replays a step as one CUDA graph, so the time of small models is not that of Python.

The record has a line for each run. A run that stands in it is not repeated, so `run` continues where it was stopped, if
need be after --seconds.
"""

import argparse
import contextlib
import copy
import functools
import itertools
import json
import math
import pathlib
import sys
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import penstock
import penstock.torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from screens import COLOURS, svg_of  # noqa: E402

#: Parameters of all blocks together and the width, by the name of a size.
SIZES = {"tiny": (1e5, 64), "1m": (1e6, 128), "3m": (3e6, 256), "10m": (1e7, 384), "30m": (3e7, 512)}
#: Parameters of a block of width w, in w^2: of the mixer and the feed-forward part. Heads of a layer.
MODELS = {"mingru": (8, 1), "minlstm": (9, 1), "lstm": (14, 1), "slstm": (11, 4), "transformer": (10, None)}
RATE = 4e-3  # of AdamW at width 128, tried first; it falls with the root of the width
MOST_RATES = 6  # that are tried
HEAD = 64  # units of a head of attention


def turned(x, angles):
    """Returns x [..., T, HEAD] with each pair of a unit of the first half and one of the second half turned."""
    first, second = x.chunk(2, -1)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


class Attention(nn.Module):
    """Causal attention with rotary positions. x [B, T, width]."""

    def __init__(self, width):
        super().__init__()
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, t, width = x.shape
        q, k, v = self.inputs(x).view(b, t, 3, width // HEAD, HEAD).permute(2, 0, 3, 1, 4)
        angles = torch.arange(t, device=x.device)[:, None] * 1e4 ** -torch.linspace(0, 1, HEAD // 2, device=x.device)
        q, k = turned(q, angles), turned(k, angles)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(y.transpose(1, 2).reshape(b, t, width))


class Block(nn.Module):
    """The block of penstock.torch.SequenceModel with attention in place of the recurrent layer."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.attention = nn.RMSNorm(width), Attention(width)
        self.feed_forward_norm = nn.RMSNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        gate, value = self.up(self.feed_forward_norm(x)).chunk(2, -1)
        return x + self.down(functional.silu(gate) * value)


class Transformer(nn.Module):
    def __init__(self, width, blocks):
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, 256)
        for block in self.blocks:  # as GPT-2: what is added to the residual is smaller, the more blocks there are
            for layer in (block.attention.output, block.down):
                nn.init.normal_(layer.weight, std=0.02 / math.sqrt(2 * blocks))
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, x):
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)), None


@functools.cache
def first_model(name, size):
    """Returns a model whose blocks have about the number of parameters of SIZES, with its initial weights."""
    torch.manual_seed(0)
    parameters, width = SIZES[size]
    per_block, heads = MODELS[name]
    blocks = max(1, round(parameters / (per_block * width**2)))
    if name == "transformer":
        return Transformer(width, blocks)
    data = penstock.open_text(__file__)
    form = {"width": width, "blocks": blocks, "heads": heads, "feed_forward": 2.0, "dropout": 0.0}
    first = penstock.Model(data, cell=name, **form)
    with tempfile.TemporaryDirectory() as folder:  # with the initial weights of `penstock train`
        first.save(f"{folder}/model.safetensors")
        return penstock.torch.SequenceModel.load(f"{folder}/model.safetensors").train()


def operations(model, name, length):
    """Returns the operations of a training step for one byte. Each weight but the embedding takes 2 forward and 4
    backward. Attention also multiplies each byte with those before it: half of a window on average."""
    weights = sum(p.numel() for p in model.parameters()) - model.embedding.weight.numel()
    pairs = 2 * model.embedding.embedding_dim * length / 2 * len(model.blocks) if name == "transformer" else 0
    return 6 * (weights + pairs)


class Run:
    """Training of one model.

    Args:
        text: uint8 [N] on the device.
        given: The options of the command.
        rate: AdamW's learning rate.
        total: Bytes to train on.
    """

    def __init__(self, model, text, given, rate, total):
        self.model, self._text, self._given, self._rate = model.to(text.device), text, given, rate
        self._steps = max(1, round(total / (given.batch * given.length)))
        if given.compile:
            for block in model.blocks:
                block.compile()
        matrices = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() <= 1]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        self._lr = torch.tensor(rate, device=text.device) if given.graph else rate
        self._optimizer = torch.optim.AdamW(groups, self._lr, (0.9, 0.95), fused=text.is_cuda, capturable=given.graph)
        self._parameters = matrices + others
        self._average = [p.detach().clone() for p in self._parameters]
        self._random = torch.Generator().manual_seed(1)
        self._graph, self._graph_window = None, None
        self.step, self.seconds = 0, 0.0

    def go_to(self, step):
        """Trains up to a step. The time does not include what is done between the calls."""
        self._wait()
        began = time.monotonic()
        while self.step < step:
            self._train()
        self._wait()
        self.seconds += time.monotonic() - began

    def _wait(self):
        if self._text.is_cuda:
            torch.cuda.synchronize()

    def _window(self):
        rows, length = self._given.batch, self._given.length
        starts = torch.randint(len(self._text) - length, (rows, 1), generator=self._random)
        index = starts.to(self._text.device, non_blocking=True) + torch.arange(length + 1, device=self._text.device)
        return self._text[index].long()

    def record(self):
        """Records a step as a CUDA graph, which the steps that follow replay. A few steps have been taken before."""
        self._graph, self._graph_window = torch.cuda.CUDAGraph(), self._window()
        self._wait()
        with torch.cuda.graph(self._graph):
            self._update(self._graph_window)

    def _update(self, window):
        loss = bits(self.model, window, self._given) * math.log(2)
        loss.backward()
        nn.utils.clip_grad_norm_(self._parameters, 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()

    def _set_rate(self, rate):
        if self._given.graph:
            self._lr.fill_(rate)
        else:
            for group in self._optimizer.param_groups:
                group["lr"] = rate

    def _train(self):
        self._set_rate(self._rate * min(1.0, (self.step + 1) / (0.02 * self._steps)))
        if self._graph is None:
            self._update(self._window())
        else:
            self._graph_window.copy_(self._window())
            self._graph.replay()
        self.step += 1
        # The weight of a step's weights grows with its 16th power, so the average is over the last sixteenth.
        with torch.no_grad():
            torch._foreach_lerp_(self._average, self._parameters, min(1.0, 17 / (self.step + 16)))

    @torch.no_grad()
    def score(self, held_out):
        """Returns the bits a byte of the averaged weights on windows of the held-out text [N]."""
        kept = [p.clone() for p in self._parameters]
        torch._foreach_copy_(self._parameters, self._average)
        rows, length = self._given.batch, self._given.length
        windows = held_out[: (len(held_out) - 1) // length * length].view(-1, length)
        following = held_out[length : windows.numel() + 1 : length]
        windows = torch.cat([windows, following[:, None]], 1).long()
        sums = [bits(self.model, part, self._given) * len(part) for part in windows.split(rows)]
        torch._foreach_copy_(self._parameters, kept)
        return float(sum(sums)) / len(windows)

    @property
    def bytes(self):
        return self.step * self._given.batch * self._given.length


def bits(model, window, given):
    """Returns the mean bits a byte of a window [B, T + 1]."""
    with torch.autocast(window.device.type, torch.bfloat16, enabled=not given.f32):
        logits, _ = model(window[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1).float(), window[:, 1:].flatten()) / math.log(2)


def measure(name, size, rate, total, points, texts, given):
    """Returns the line of the record for one run, with scores at so many points, each 1.41 times as far."""
    model = copy.deepcopy(first_model(name, size))
    run = Run(model, texts["train"], given, rate, total)
    line = {"model": name, "size": size, "rate": rate, "bytes": total, "batch": given.batch, "length": given.length,
            "parameters": sum(p.numel() for p in model.parameters()), "blocks": len(model.blocks),
            "operations": operations(model, name, given.length), "device": device_name(texts["train"]),
            "torch": torch.__version__, "compiled": given.compile, "graph": given.graph, "points": []}  # fmt: skip
    with torch.cuda.stream(torch.cuda.Stream()) if given.graph else contextlib.nullcontext():
        run.go_to(3)  # kernels are compiled and chosen
    if given.graph:
        run.record()
    run.seconds = 0.0
    for point in reversed(range(points)):
        run.go_to(max(4, round(run._steps / 2 ** (point / 2))))
        score = run.score(texts["held_out"])
        line["points"].append({"bytes": run.bytes, "seconds": round(run.seconds, 3), "bits": round(score, 4)})
        if not math.isfinite(score):
            break
    return line


def device_name(text):
    return torch.cuda.get_device_name() if text.is_cuda else "cpu"


def read_record(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def last_bits(line):
    return line["points"][-1]["bits"] if math.isfinite(line["points"][-1]["bits"]) else math.inf


def run_all(given):
    torch.set_float32_matmul_precision("high")
    texts = {part: torch.from_numpy(np.fromfile(given.corpus / f"{part}.bin", np.uint8)).to(given.device)
             for part in ("train", "held_out")}  # fmt: skip
    began = time.monotonic()

    def find_or_measure(name, size, rate, total, points):
        what = {"model": name, "size": size, "rate": rate, "bytes": total, "batch": given.batch,
                "length": given.length, "graph": given.graph, "device": device_name(texts["train"])}  # fmt: skip
        for line in read_record(given.record):
            if all(line[key] == value for key, value in what.items()):
                return line
        if given.seconds and time.monotonic() - began > given.seconds:
            raise SystemExit(f"{given.seconds:.0f} s are over: run the command again to continue")
        line = measure(name, size, rate, total, points, texts, given)
        with given.record.open("a") as record:
            record.write(json.dumps(line) + "\n")
        print(f"{size:5} {name:12} rate {rate:.1e}  {total / 1e6:.0f} MB  {line['points'][-1]}", flush=True)
        return line

    for size, name in itertools.product(given.sizes, given.models):
        begin = begin_power(name, size, whole_runs(read_record(given.record)))
        rate = best_rate(size, lambda rate: last_bits(find_or_measure(name, size, rate, given.bytes // 8, 1)), begin)
        find_or_measure(name, size, rate, given.bytes, given.points)


def first_rate(size):
    return RATE * math.sqrt(128 / SIZES[size][1])


def begin_power(name, size, runs):
    """Returns by which power of two the best rate of the next smaller size differs from its first_rate(), or 0."""
    sizes = list(SIZES)
    smaller = [runs[of, name]["rate"] / first_rate(of) for of in sizes[: sizes.index(size)] if (of, name) in runs]
    return round(math.log2(smaller[-1])) if smaller else 0


def best_rate(size, score, begin=0):
    """Returns the rate with the lowest score, with a worse one a factor of two away on both sides."""
    first = first_rate(size)
    scores = {begin: score(first * 2.0**begin)}  # by powers of two
    while len(scores) < MOST_RATES:
        best = min(scores, key=scores.get)
        missing = [power for power in (best - 1, best + 1) if power not in scores]
        if not missing:
            break
        scores[missing[0]] = score(first * 2.0 ** missing[0])
    return first * 2.0 ** min(scores, key=scores.get)


def whole_runs(record):
    """Returns the runs over the most bytes of a size, by size and model."""
    most = {}
    for line in record:
        most[line["size"]] = max(line["bytes"], most.get(line["size"], 0))
    return {(line["size"], line["model"]): line for line in record if line["bytes"] == most[line["size"]]}


def bits_at(line, key, value):
    """Returns the bits after so many seconds or bytes of training, between the points in logarithms."""
    places = [math.log(p[key]) for p in line["points"]]
    return float(np.interp(math.log(value), places, [p["bits"] for p in line["points"]]))


def show(given):
    runs = whole_runs(read_record(given.record))
    if not runs:
        raise SystemExit(f"{given.record} has no runs")
    shared = min(line["points"][-1]["bytes"] for line in runs.values())
    columns = ["size", "model", "parameters", "rate", "MB", "bits", f"bits, {shared / 1e6:.0f} MB", "seconds",
               "bits, equal time", "MB a second"]  # fmt: skip
    print(f"| {' | '.join(columns)} |\n|---|---|{'---:|' * 8}")
    for size in SIZES:
        lines = [line for (of, _), line in runs.items() if of == size]
        if not lines:
            continue
        least = min(line["points"][-1]["seconds"] for line in lines)
        for line in lines:
            last = line["points"][-1]
            speed = last["bytes"] / last["seconds"]
            cells = (size, line["model"], f"{line['parameters']:,}", f"{line['rate']:.1e}",
                     f"{last['bytes'] / 1e6:.0f}", f"{last['bits']:.3f}", f"{bits_at(line, 'bytes', shared):.3f}",
                     f"{last['seconds']:.1f}", f"{bits_at(line, 'seconds', least):.3f}", f"{speed / 1e6:.2f}")  # fmt: skip
            print(f"| {' | '.join(cells)} |")
    if given.picture:
        given.picture.write_text(svg_of("scaling_curve", lambda: draw(runs)))


def draw(runs):
    """Draws bits a byte over operations and over seconds, a line for each run, a colour for each model."""
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9.6, 4.2), sharey=True)
    colours = dict(zip(MODELS, ("blue", "green", "orange", "purple", "grey"), strict=True))
    for (size, name), line in runs.items():
        points, colour = line["points"], COLOURS[colours[name]][0]
        scores = [p["bits"] for p in points]
        label = name if size == min((s for s, n in runs if n == name), key=list(SIZES).index) else None
        left.plot([p["bytes"] * line["operations"] for p in points], scores, color=colour, label=label, linewidth=1)
        right.plot([p["seconds"] for p in points], scores, color=colour, linewidth=1)
    left.set(xscale="log", xlabel="operations of training", ylabel="bits a byte, held out")
    right.set(xscale="log", xlabel="seconds of training")
    left.legend(frameon=False)
    figure.tight_layout()
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="train what the record lacks")
    run.add_argument("corpus", type=pathlib.Path, help="folder with train.bin and held_out.bin")
    run.add_argument("--sizes", nargs="+", choices=SIZES, default=["1m", "3m", "10m", "30m"])
    run.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    run.add_argument("--bytes", type=int, default=1 << 26, help="to train on")
    run.add_argument("--batch", type=int, default=64, help="windows of a step")
    run.add_argument("--length", type=int, default=512, help="bytes of a window")
    run.add_argument("--points", type=int, default=12, help="scores of a run")
    run.add_argument("--seconds", type=float, default=0, help="begin no run after so long; 0: go on to the end")
    run.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    run.add_argument("--compile", action="store_true", help="torch.compile for each block")
    run.add_argument("--graph", action="store_true", help="a step as one CUDA graph")
    run.add_argument("--f32", action="store_true", help="no autocast to bfloat16")
    table = commands.add_parser("show", help="print the table of a record, and draw it")
    table.add_argument("--picture", type=pathlib.Path)
    for command in (run, table):
        command.add_argument("--record", type=pathlib.Path, required=True, help="a line of JSON for each run")
    given = parser.parse_args()
    run_all(given) if given.command == "run" else show(given)


if __name__ == "__main__":
    main()
