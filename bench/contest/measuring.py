"""Contenders of bench/contest.py: their results are compared with float64, then their calls are timed in turns."""

import dataclasses
import importlib
import importlib.metadata
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

#: The largest error that a result may have, relative to the largest value of the exact one.
TOLERANCES = {"f32": 3e-4, "TF32": 4e-3, "f16": 4e-3, "bf16": 2e-2}
DTYPES = {"f32": torch.float32, "TF32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
OURS = "Penstock"

_missing = {}  # package: why it is left out


@dataclasses.dataclass
class Settings:
    device: str
    threads: int
    seconds: float
    quick: bool
    clock: Callable = time.perf_counter
    check: bool = False  # results alone

    def steps(self, count):
        return min(count, 32) if self.quick else count


@dataclasses.dataclass
class Contender:
    """A layer: `forward` returns y, `training` the gradient of x. `read` makes a tensor in float64 of either.

    `read` is None for a layer of another cell: its result has to be finite and of the right shape, and has no error.
    """

    name: str
    forward: Callable
    training: Callable | None = None
    kind: str = "f32"  # a key of TOLERANCES
    read: Callable | None = torch.Tensor.double


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def named(package, title=None):
    return f"{title or package} {version(package)}".strip()


def optional(module, package):
    """The module, or None: its package is then named at the end of the page."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        _missing[package] = "not installed" if error.name == module.partition(".")[0] else f"it needs {error.name}"
    except Exception as error:  # what a package throws that does not fit this machine
        _missing[package] = reason(error)
    return None


def reason(error):
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}{'...' if len(text) > 160 else ''}"


def left_out():
    if not _missing:
        return "All packages were there."
    return "Left out: " + "; ".join(f"{package} ({why})" for package, why in sorted(_missing.items())) + "."


def machine(settings):
    chip = next((line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                 if line.startswith("model name")), "an unknown processor")
    load = Path("/proc/loadavg").read_text().split()[0]
    where = f"One thread of {chip}" if settings.threads == 1 else f"{settings.threads} threads of {chip}"
    if settings.device == "cuda":
        cudnn = torch.backends.cudnn.version()
        where = (f"One {torch.cuda.get_device_name()}, CUDA {torch.version.cuda},"
                 f" cuDNN {cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}")
    clock = "" if settings.clock is time.perf_counter else "; processor time, in which other programs do not count"
    return f"{where}; {named('penstock-rnn', OURS)}, {named('torch', 'PyTorch')}; load {load} at the start{clock}."


def wait(result):
    """Until the device has computed a result."""
    if hasattr(result, "block_until_ready"):
        result.block_until_ready()
    elif torch.cuda.is_available():
        torch.cuda.synchronize()


def error(result, exact):
    result = result.to(exact.device)
    if result.shape != exact.shape:
        return float("inf")
    return float((result - exact).abs().max() / exact.abs().max())


def once(call, repeats, clock):
    """Milliseconds of a call: so many are given to the device at once and waited for together."""
    start = clock()
    for _ in range(repeats):
        result = call()
    wait(result)
    return 1e3 * (clock() - start) / repeats


def in_turns(calls, settings):
    """Sorted milliseconds of each call, in turns of another order every time."""
    repeats, seconds = {}, settings.seconds
    for name, call in calls.items():
        once(call, 1, settings.clock)
        repeats[name] = max(1, min(50, int(5 / max(once(call, 1, settings.clock), 1e-3))))
    times, names = {name: [] for name in calls}, list(calls)
    spent = {name: 0.0 for name in calls}
    while min(spent.values()) < seconds or min(map(len, times.values())) < 5:
        for name in names:
            if len(times[name]) >= 5 and spent[name] >= 3 * seconds:
                continue  # a slow one need not wait for the quick ones
            ms = once(calls[name], repeats[name], settings.clock)
            times[name].append(ms)
            spent[name] += 1e-3 * ms * repeats[name]
        names = names[1:] + names[:1]
    return {name: sorted(of) for name, of in times.items()}


def shown(times):
    """The median and the middle half."""
    low, middle, high = (f"{ms:,.0f}" if ms >= 1000 else f"{ms:.3g}" for ms in statistics.quantiles(times, n=4))
    return f"{middle} ({low} to {high})"


def verdict(contender, exact, training):
    """The error of a result, and why it gets no time, if so."""
    call = contender.training if training else contender.forward
    try:
        result = call()
        if contender.read is None:
            usable = result.shape == exact.shape and bool(torch.isfinite(result).all())
            return None, "" if usable else "wrong: another shape, or not finite"
        off = error(contender.read(result), exact)
    except Exception as failure:  # whatever a peer throws
        return None, reason(failure)
    limit = TOLERANCES[contender.kind] * (4 if training else 1)
    return off, "" if off <= limit else f"wrong: off by {off:.1e}"


def rounded(error):
    return "–" if error is None else f"{error:.0e}"


def compare(what, contenders, exact_y, exact_dx, settings):
    """Rows of a table: Penstock beside each peer, forward and training.

    Contenders with the same name are forms of one (types, algorithms): the quickest right one counts.
    """
    rows = []
    for training in (False, True):
        exact = exact_dx if training else exact_y
        if exact is None:
            continue
        label = f"{what}, {'training' if training else 'forward'}"
        judged = [(contender, *verdict(contender, exact, training)) for contender in contenders
                  if not (training and contender.training is None)]
        right = [(contender, off) for contender, off, why in judged if not why]
        calls = {index: (contender.training if training else contender.forward)
                 for index, (contender, _) in enumerate(right)}
        if settings.check:
            rows += [f"| {label} | | {contender.name}, {contender.kind} | | | {why or rounded(off)} |"
                     for contender, off, why in judged]
            continue
        times = in_turns(calls, settings) if calls else {}
        best = {}  # name: times, kind, error
        for index, (contender, off) in enumerate(right):
            entry = (statistics.median(times[index]), times[index], contender.kind, off)
            best[contender.name] = min(entry, best.get(contender.name, entry), key=lambda e: e[0])
        rows += lines(label, best, {contender.name: why for contender, _, why in judged if why})
    return rows


def lines(label, best, refused):
    rows = []
    if OURS not in best:
        return [f"| {label} | no time: {refused.get(OURS, 'it did not run')} | | | | |"]
    ours, times, kind, off = best[OURS]
    for name, (peer, peers, peer_kind, peer_off) in best.items():
        if name == OURS:
            continue
        cells = [label, f"{shown(times)}, {kind}", name, f"{shown(peers)}, {peer_kind}", f"{peer / ours:.2f}",
                 f"{rounded(off)}, {rounded(peer_off)}"]
        strong = "**" if peer < ours else ""
        rows.append("| " + " | ".join(f"{strong}{cell}{strong}" for cell in cells) + " |")
    for name, why in refused.items():
        if name not in best:
            rows.append(f"| {label} | {shown(times)}, {kind} | {name} | no time: {why.replace('|', '/')} | | |")
    return rows


def table(rows, what="layer: B, T, I, H"):
    head = [what, "Penstock, ms", "peer", "peer, ms", "peer / Penstock", "errors"]
    return "\n".join(["| " + " | ".join(head) + " |", "|---|---|---|---|---:|---|", *rows])


def trained(module, x, dy, take=lambda result: result[0]):
    """A forward and a backward pass; returns the gradient of x."""
    given = x.detach().requires_grad_()

    def step():
        given.grad = None
        for parameter in module.parameters():
            parameter.grad = None
        take(module(given)).backward(dy)
        return given.grad

    return step


def inferred(module, x, take=lambda result: result[0]):
    def call():
        with torch.no_grad():
            return take(module(x))

    return call
