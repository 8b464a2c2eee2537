#!/usr/bin/env python3
"""Compares the times of penstock.torch's layers with torch.nn's, in one process, on the CPU or a GPU.

    python bench/layers/torch_layers.py [--device cuda] [--threads N]
                                 [--overhead | --packed | --steps | --projections | --new-lengths | --library PROGRAM]
                                 [--seconds S] [--layers LSTM GRU] [--types float32 bfloat16 autocast]

On the CPU: forward passes in inference mode, and training passes (forward, backward with a given gradient of the output)
of LSTM and GRU over single sequences and batches, in float32, of modules in bfloat16, and of modules in float32 under
bfloat16 autocast. On a GPU: training steps in bfloat16 autocast, padded and packed, and inference; and a minGRU layer in
bfloat16, compared with one of PyTorch's operations under torch.compile.

--library: on a GPU, layers with half-precision weights, compared with the library's own times of the same calls, which
    PROGRAM (build/release/bench/cuda_recurrent_times) prints.
--overhead: calls so small that the call itself takes most of the CPU time, and the time of `import penstock`.
--packed: on the CPU, packed rows, compared with a batch of equally many positions without padding.
--projections: LSTMs with proj_size, on the CPU or a GPU, in the given types.
--new-lengths: on a GPU, packed training steps with lengths that no step had before, and the same steps again.
--steps: on the CPU, one time step of one row per call, of layers and cells.

Both sides take turns. The program prints the least and the median time of each, and the difference of the results.
"""

import argparse
import statistics
import subprocess
import sys
import time

import torch
from torch.nn.utils.rnn import pack_padded_sequence

import penstock.torch

# Rows, steps, inputs, hidden size.
CPU_SHAPES = [(1, 200, 64, 64), (1, 200, 256, 256), (1, 200, 512, 512), (16, 200, 256, 256), (64, 100, 128, 256),
              (64, 200, 256, 512), (1, 1000, 128, 128)]  # fmt: skip
# Rows, steps, inputs, hidden size, projection.
PROJECTED_SHAPES = [(1, 1, 256, 256, 64), (1, 100, 256, 256, 64), (8, 50, 64, 64, 32), (16, 128, 256, 256, 64),
                    (32, 100, 512, 1024, 256)]  # fmt: skip
GPU_CASES = [("GRU", 16, 1024, 256, 256, 1), ("LSTM", 64, 512, 512, 512, 2), ("LSTM", 64, 512, 1024, 1024, 2)]


# Rows, steps of the longest, inputs, hidden size.
PACKED_SHAPES = [(16, 100, 64, 64), (16, 100, 128, 256), (64, 100, 64, 128)]

STEP_SIZES = [(1, 8), (1, 64), (64, 64), (64, 128), (64, 256), (64, 512)]  # inputs, hidden size

# Cell, type, rows, steps, inputs, hidden size, layers: a case of cuda_recurrent_times.
LIBRARY_CASES = [("LSTM", "f16", 64, 200, 256, 512, 1), ("LSTM", "bf16", 64, 512, 1024, 1024, 1),
                 ("LSTM", "bf16", 64, 512, 1024, 1024, 2), ("LSTM", "bf16", 16, 1024, 512, 512, 1),
                 ("LSTM", "bf16", 16, 1024, 512, 512, 4), ("LSTM", "bf16", 1, 1024, 512, 512, 1),
                 ("GRU", "bf16", 16, 1024, 256, 256, 1), ("LSTM", "bf16", 16, 64, 128, 128, 1)]  # fmt: skip

MINGRU_SHAPE = (8, 4096, 1024)  # rows, steps, inputs and hidden size


class LogSpaceMinGRU(torch.nn.Module):
    """minGRU as it is written in PyTorch (Feng et al. 2024, appendix B): the scan by sums of logarithms.

    They are float32 at least. In bfloat16, sums over thousands of steps keep no correct digit.
    """

    def __init__(self, size):
        super().__init__()
        self.to_gates = torch.nn.Linear(size, 2 * size, bias=False)

    def forward(self, x):
        softplus = torch.nn.functional.softplus
        gates = self.to_gates(x)
        k, value = (gates if gates.dtype == torch.float64 else gates.float()).chunk(2, -1)
        log_candidate = torch.where(value >= 0, (value.relu() + 0.5).log(), -softplus(-value))
        decay = torch.cumsum(-softplus(k), 1)
        return (decay + torch.logcumsumexp(log_candidate - softplus(-k) - decay, 1)).exp().to(x.dtype)


class Clock:
    """Times calls in turn until each has had so many seconds; milliseconds."""

    def __init__(self, device, seconds):
        self.device, self.seconds = device, seconds
        self.now = time.perf_counter
        self.before = lambda: None  # on a GPU: what runs, untimed, before each call

    def once(self, call):
        if self.device == "cpu":
            start = self.now()
            call()
            return 1e3 * (self.now() - start)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.before()
        start.record()
        call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end)

    def compare(self, calls):
        for call in calls:
            for _ in range(2):
                call()
        times = [[] for _ in calls]
        while min(sum(t) for t in times) < 1e3 * self.seconds or min(map(len, times)) < 5:
            for call, own in zip(calls, times):
                own.append(self.once(call))
        return [(min(t), statistics.median(t)) for t in times]


def pair(name, inputs, hidden, layers, device, dtype=torch.float32, batch_first=False, **others):
    options = {"batch_first": batch_first, "device": device, "dtype": dtype, **others}
    theirs = getattr(torch.nn, name)(inputs, hidden, layers, **options)
    ours = getattr(penstock.torch, name)(inputs, hidden, layers, **options)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def distance(got, expected):
    """Of the largest value."""
    return ((got.float() - expected.float()).abs().max() / expected.float().abs().max()).item()


def training(module, x, gradient, autocast=None):
    def step():
        module.zero_grad()
        x.grad = None
        if autocast is None:
            y, _ = module(x)
        else:
            with torch.autocast(autocast, torch.bfloat16):
                y, _ = module(x)
        y.backward(gradient)

    return step


def line(what, pairs, error):
    (theirs, theirs_median), (ours, ours_median) = pairs
    print(
        f"{what:44} torch.nn {theirs:9.3f} / {theirs_median:9.3f}   ours {ours:9.3f} / {ours_median:9.3f} ms"
        f"   {theirs_median / ours_median:5.2f} x   apart {error:.1e}",
        flush=True,
    )


def compare_layer(clock, device, name, kind, rows, steps, inputs, hidden, **options):
    """Forward passes in inference mode and training passes. `kind` is a dtype or "autocast"."""
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
    autocast = device if kind == "autocast" else None
    theirs, ours = pair(name, inputs, hidden, 1, device, dtype, **options)
    x = torch.randn(steps, rows, inputs, dtype=dtype, device=device)
    what = f"{name} {kind} ({', '.join(map(str, (rows, steps, inputs, hidden, *options.values())))})"
    with torch.inference_mode(), torch.autocast(device, torch.bfloat16, enabled=autocast is not None):
        y = ours(x)[0]
        error = distance(y, theirs(x)[0])
        line(what + " forward", clock.compare([lambda: theirs(x), lambda: ours(x)]), error)
    x, gradient = x.requires_grad_(), torch.randn_like(y)
    steps_of = [training(module, x, gradient, autocast) for module in (theirs, ours)]
    grads = []
    for step in steps_of:
        step()
        grads.append(x.grad.clone())
    line(what + " training", clock.compare(steps_of), distance(grads[1], grads[0]))


def on_the_cpu(clock, names, types):
    for name in names:
        for kind in types:
            for shape in CPU_SHAPES:
                compare_layer(clock, "cpu", name, kind, *shape)


def with_projections(clock, device, types):
    for kind in types:
        for *shape, width in PROJECTED_SHAPES:
            compare_layer(clock, device, "LSTM", kind, *shape, proj_size=width)


def packed_on_the_cpu(clock):
    for name in ("LSTM", "GRU"):
        for rows, steps, inputs, hidden in PACKED_SHAPES:
            _, ours = pair(name, inputs, hidden, 1, "cpu")
            lengths = torch.randint(steps // 4, steps + 1, (rows,))
            lengths[0] = steps
            lengths[1] += (-int(lengths.sum())) % rows  # a padded batch has as many positions
            x = torch.randn(int(lengths.max()), rows, inputs)
            packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
            padded = torch.randn(packed.data.shape[0] // rows, rows, inputs)
            for what, prepare in (("forward", inference), ("training", gradients)):
                calls = [prepare(ours, padded), prepare(ours, packed)]
                (least, median), (least_packed, median_packed) = clock.compare(calls)
                print(
                    f"{name} ({rows}, {steps}, {inputs}, {hidden}) {what:8} padded {least:9.3f} / {median:9.3f}"
                    f"   packed {least_packed:9.3f} / {median_packed:9.3f} ms   {least_packed / least:5.2f} /"
                    f" {median_packed / median:5.2f} of it",
                    flush=True,
                )


def steps_on_the_cpu(clock):
    calls = 20  # timed at once

    def many(module, x, state):
        def loop():
            for _ in range(calls):
                module(x, state)

        return loop

    for name in ("LSTM", "GRU"):
        for kind in ("", "Cell"):
            for inputs, hidden in STEP_SIZES:
                theirs, ours = (getattr(m, name + kind)(inputs, hidden) for m in (torch.nn, penstock.torch))
                ours.load_state_dict(theirs.state_dict())
                axes = (1,) if kind else (1, 1)
                x, h = torch.randn(*axes, inputs), torch.randn(*axes, hidden)
                state = (h, h) if name == "LSTM" else h
                with torch.inference_mode():
                    after = [m(x, state)[0] for m in (theirs, ours)]
                    times = clock.compare([many(m, x, state) for m in (theirs, ours)])
                micros = [1e3 * t / calls for pair_of in times for t in pair_of]
                print(
                    f"{name + kind} ({inputs}, {hidden}) one step: torch.nn {micros[0]:.1f} / {micros[1]:.1f}, ours"
                    f" {micros[2]:.1f} / {micros[3]:.1f} us a call   apart {distance(after[1], after[0]):.1e}",
                    flush=True,
                )


def inference(module, x):
    def call():
        with torch.inference_mode():
            module(x)

    return call


def gradients(module, x):
    """A forward and a backward pass of a padded or a packed sequence."""
    leaf = (x if isinstance(x, torch.Tensor) else x.data).clone().requires_grad_()
    given = leaf if isinstance(x, torch.Tensor) else x._replace(data=leaf)
    dy = torch.randn(*leaf.shape[:-1], module.hidden_size)

    def step():
        module.zero_grad()
        leaf.grad = None
        y, _ = module(given)
        (y if isinstance(y, torch.Tensor) else y.data).backward(dy)

    return step


def on_a_gpu(clock):
    for name, rows, steps, inputs, hidden, layers in GPU_CASES:
        theirs, ours = pair(name, inputs, hidden, layers, "cuda")
        what = f"{name} x {layers} ({rows}, {steps}, {inputs}, {hidden}) bf16 autocast"
        x = torch.randn(steps, rows, inputs, device="cuda", requires_grad=True)
        try:
            with torch.autocast("cuda", torch.bfloat16):
                ours(x)
        except RuntimeError as error:
            print(f"{what}: {error}")
            continue
        gradient = torch.randn(steps, rows, hidden, device="cuda", dtype=torch.bfloat16)
        with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
            error = distance(ours(x)[0], theirs(x)[0])
            line(what + " forward", clock.compare([lambda: theirs(x), lambda: ours(x)]), error)
        steps_of = [training(module, x, gradient, "cuda") for module in (theirs, ours)]
        grads = []
        for step in steps_of:
            step()
            grads.append([x.grad.clone(), *(p.grad.clone() for p in theirs.parameters())][0])
        line(what + " training", clock.compare(steps_of), distance(grads[1], grads[0]))

        lengths = torch.randint(steps // 4, steps + 1, (rows,))
        lengths[0] = steps
        print(f"  packed: {lengths.sum().item()} of {rows * steps} positions")
        packed = pack_padded_sequence(x.detach(), lengths, enforce_sorted=False)
        gradient = torch.randn(packed.data.shape[0], hidden, device="cuda", dtype=torch.bfloat16)

        def packed_step(module):
            def step():
                module.zero_grad()
                with torch.autocast("cuda", torch.bfloat16):
                    y, _ = module(packed)
                y.data.backward(gradient)

            return step

        with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
            error = distance(ours(packed)[0].data, theirs(packed)[0].data)
        line(what + " packed training", clock.compare([packed_step(theirs), packed_step(ours)]), error)


def case_of_the_library(name, *sizes):
    return ",".join(map(str, (name.lower(), *sizes)))


def library_times(program):
    """Milliseconds of a forward, and of a forward and a backward pass, of each case, by the library itself."""
    names = [case_of_the_library(*case) for case in LIBRARY_CASES]
    table = subprocess.run([program, *names], check=True, capture_output=True, text=True).stdout
    rows = [[cell.split()[0] for cell in row.strip("| ").split("|")] for row in table.splitlines() if row.startswith("| ")]
    return {row[0]: (float(row[1]), float(row[2])) for row in rows if row[0] in names}


def host_microseconds(call):
    """Of a call whose work a GPU is given and that nothing waits for; the least of a few turns."""
    calls, turns = 100, []
    for _ in range(4):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        turns.append(1e6 * (time.perf_counter() - start) / calls)
    return min(turns)


def beside_the_library(clock, program):
    """Layers of halves, batch first. What overwrites the second-level cache before each call takes a millisecond, so that
    the host is ahead, as in a loop that waits for nothing; what the host takes is told of the smallest case."""
    overwritten = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    clock.before = lambda: [overwritten.zero_() for _ in range(16)]
    own = library_times(program)
    print("medians of calls, ms; forward and training, penstock.torch / the library, and how many times as long")
    for name, kind, rows, steps, inputs, hidden, layers in LIBRARY_CASES:
        options = {"device": "cuda", "dtype": torch.float16 if kind == "f16" else torch.bfloat16}
        theirs, ours = pair(name, inputs, hidden, layers, batch_first=True, **options)
        x = torch.randn(rows, steps, inputs, requires_grad=True, **options)
        dy = torch.randn(rows, steps, hidden, **options)
        with torch.inference_mode():
            error = distance(ours(x)[0], theirs(x)[0])
        case = case_of_the_library(name, kind, rows, steps, inputs, hidden, layers)
        medians = [clock.compare([call])[0][1] for call in (inference(ours, x), training(ours, x, dy))]
        parts = [f"{ms:8.3f} / {alone:8.3f} {ms / alone:5.3f}" for ms, alone in zip(medians, own[case])]
        print(f"{case:32} {'   '.join(parts)}   {error:.1e} of torch.nn's", flush=True)
    for what, calls in (
        ("forward", [inference(module, x) for module in (theirs, ours)]),
        ("training", [training(module, x, dy) for module in (theirs, ours)]),
    ):
        print(f"  host, {what}: torch.nn {host_microseconds(calls[0]):.0f}, ours {host_microseconds(calls[1]):.0f} us")


def new_lengths_on_a_gpu(batches=24):
    def packed(rows, steps, inputs):
        lengths = torch.randint(steps // 4, steps + 1, (rows,))
        x = torch.randn(int(lengths.max()), rows, inputs, device="cuda")
        return pack_padded_sequence(x, lengths, enforce_sorted=False)

    for name, rows, steps, inputs, hidden, layers in GPU_CASES:
        for module in pair(name, inputs, hidden, layers, "cuda"):

            def step(batch):
                dy = torch.ones(batch.data.shape[0], hidden, device="cuda", dtype=torch.bfloat16)
                torch.cuda.synchronize()
                start = time.perf_counter()
                module.zero_grad()
                with torch.autocast("cuda", torch.bfloat16):
                    y, _ = module(batch)
                y.data.backward(dy)
                torch.cuda.synchronize()
                return 1e3 * (time.perf_counter() - start)

            for _ in range(3):
                step(packed(rows, steps, inputs))
            new = [packed(rows, steps, inputs) for _ in range(batches)]
            medians = [statistics.median(map(step, new)) for _ in range(2)]
            owner = type(module).__module__.split(".")[0]
            print(
                f"{name} x {layers} ({rows}, {steps}, {inputs}, {hidden}) {owner}: new {medians[0]:.2f},"
                f" again {medians[1]:.2f} ms",
                flush=True,
            )


def mingru_on_a_gpu(clock):
    rows, steps, size = MINGRU_SHAPE
    options = {"device": "cuda", "dtype": torch.bfloat16}
    theirs = LogSpaceMinGRU(size).to(**options)
    ours = penstock.torch.MinGRU(size, size, bias=False, batch_first=True, candidate="positive", **options)
    with torch.no_grad():
        ours.weight_ih_l0.copy_(theirs.to_gates.weight)
    x = torch.randn(rows, steps, size, requires_grad=True, **options)
    gradient = torch.randn(rows, steps, size, **options)
    exact = LogSpaceMinGRU(size).to("cuda", torch.float64)
    exact.load_state_dict(theirs.state_dict())
    with torch.inference_mode():
        reference = exact(x[:1].double())
        apart = [distance(y[:1], reference) for y in (theirs(x), ours(x)[0])]
    print(f"MinGRU {MINGRU_SHAPE} bf16: off float64 by {apart[0]:.1e} in PyTorch's operations, ours {apart[1]:.1e}")
    if apart[0] > 10 * apart[1]:
        print("PyTorch's operations get no time: their result is wrong")
        return
    compiled = torch.compile(theirs)

    def steps_of(module, take):
        def forward():
            with torch.inference_mode():
                module(x)

        def both():
            module.zero_grad()
            x.grad = None
            take(module(x)).backward(gradient)

        return forward, both

    for what, *calls in zip(
        ("forward", "training"), steps_of(compiled, lambda y: y), steps_of(ours, lambda result: result[0])
    ):
        line(f"MinGRU {MINGRU_SHAPE} bf16 {what}, compiled", clock.compare(calls), apart[1])


def import_time():
    """Milliseconds in a fresh interpreter, the least of some, as Python itself counts them."""
    command = [sys.executable, "-X", "importtime", "-c", "import penstock"]
    times = []
    for _ in range(5):
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        _, cumulative, name = report.splitlines()[-1].split("|")
        assert name.strip() == "penstock", name
        times.append(int(cumulative) / 1e3)
    return min(times)


def overhead(clock, device):
    print(f"import penstock: {import_time():.1f} ms")
    clock.now = time.thread_time  # calls that wait for nothing: what else the machine does meanwhile does not count
    for name in ("LSTM", "GRU"):
        theirs, ours = pair(name, 1, 8, 1, device)
        x = torch.randn(1, 1, 1, device=device)

        def many(module, grad):
            def calls():
                with torch.set_grad_enabled(grad):
                    for _ in range(100):
                        module(x)

            return calls

        for grad in (False, True):
            times = clock.compare([many(theirs, grad), many(ours, grad)])
            micros = [[10 * t for t in pair_of] for pair_of in times]
            print(
                f"{name} (1, 1, 1, 8) {'with' if grad else 'without'} gradients: torch.nn {micros[0][0]:.1f} /"
                f" {micros[0][1]:.1f}, ours {micros[1][0]:.1f} / {micros[1][1]:.1f} us a call"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--overhead", action="store_true")
    parser.add_argument("--packed", action="store_true")
    parser.add_argument("--steps", action="store_true")
    parser.add_argument("--projections", action="store_true")
    parser.add_argument("--new-lengths", action="store_true")
    parser.add_argument("--library", metavar="PROGRAM")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--layers", nargs="+", choices=("LSTM", "GRU"), default=("LSTM", "GRU"))
    parser.add_argument("--types", nargs="+", choices=("float32", "bfloat16", "autocast"), default=("float32", "bfloat16"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    clock = Clock(options.device, options.seconds)
    print(f"PyTorch {torch.__version__}, {options.device}, {options.threads} threads; least / median of each")
    if options.overhead:
        overhead(clock, options.device)
    elif options.packed:
        packed_on_the_cpu(clock)
    elif options.steps:
        steps_on_the_cpu(clock)
    elif options.projections:
        with_projections(clock, options.device, options.types)
    elif options.device == "cpu":
        on_the_cpu(clock, options.layers, options.types)
    elif options.new_lengths:
        new_lengths_on_a_gpu()
    elif options.library:
        beside_the_library(clock, options.library)
    else:
        on_a_gpu(clock)
        mingru_on_a_gpu(clock)


if __name__ == "__main__":
    main()
