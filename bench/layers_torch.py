"""One recurrent layer against PyTorch: same shapes, same machine, same run.

    python3 bench/layers_torch.py build/release/bench/layer_times [CELL ...] > docs/results/layers.md

Our program checks every timed case against double precision and refuses to print a time otherwise; the error stands in the
table. Dense cells meet torch.nn, scan cells meet eager PyTorch code for the same maths: the input product, the gates, and the
recurrence as the log-space scan that the published implementation uses.
"""

import json
import subprocess
import sys
import time

import torch

SHAPES = [(1, 200, 64, 64), (1, 200, 256, 256), (1, 200, 512, 512), (16, 200, 256, 256), (64, 100, 128, 256),
          (64, 200, 256, 512), (1, 1000, 128, 128)]
SCAN_SHAPES = [(8, 1024, 256, 256), (1, 4096, 512, 512), (1, 65536, 64, 64), (64, 512, 128, 128)]
SECONDS = 0.3


def median_ms(work):
    for _ in range(2):
        work()
    times = []
    while len(times) < 5 or (sum(times) < SECONDS * 1e3 and len(times) < 1000):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e3)
    return sorted(times)[len(times) // 2]


class EagerScan(torch.nn.Module):
    """minGRU or minLSTM with positive candidate and zero initial state, by cumulative sums in log space."""

    def __init__(self, cell, inputs, hidden):
        super().__init__()
        self.gates = 2 if cell.startswith("mingru") else 3
        self.projection = torch.nn.Linear(inputs, self.gates * hidden)

    def forward(self, x):
        parts = self.projection(x).chunk(self.gates, dim=-1)
        softplus = torch.nn.functional.softplus
        if self.gates == 2:
            log_a, log_z = -softplus(parts[0]), -softplus(-parts[0])
        else:
            difference = softplus(-parts[1]) - softplus(-parts[0])
            log_a, log_z = -softplus(-difference), -softplus(difference)
        candidate = parts[-1]
        log_candidate = torch.where(candidate >= 0, (torch.relu(candidate) + 0.5).log(), -softplus(-candidate))
        total = log_a.cumsum(dim=1)
        return (total + torch.logcumsumexp(log_z + log_candidate - total, dim=1)).exp()


def peer(cell, shape):
    rows, steps, inputs, hidden = shape
    x = torch.randn(rows, steps, inputs, requires_grad=True)
    gradient = torch.randn(rows, steps, hidden)
    if cell in ("lstm", "gru", "elman"):
        kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "elman": torch.nn.RNN}[cell]
        module = kind(inputs, hidden, batch_first=True)
        call = lambda: module(x)[0]
    else:
        module = EagerScan(cell, inputs, hidden)
        call = lambda: module(x)

    def forward():
        with torch.inference_mode():
            call()

    def training():
        module.zero_grad()
        x.grad = None
        call().backward(gradient)

    return median_ms(forward), median_ms(training)


def ours(program, cell, shape, threads):
    command = [program, cell, *map(str, shape), str(threads), str(SECONDS)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def table(program, title, cells, shapes):
    print(f"\n## {title}\n")
    print("| cell | B,T,I,H | threads | forward ms (min, max) | torch | ratio | fwd+bwd ms (min, max) | torch | ratio | "
          "error fwd, dx |\n|---|---|---|---|---|---|---|---|---|---|")
    for cell in cells:
        for shape in shapes:
            for threads in (1, 2):
                torch.set_num_threads(threads)
                result = ours(program, cell, shape, threads)
                forward, training = peer(cell, shape)
                f, t = result["forward"], result["training"]
                print(f"| {cell} | {','.join(map(str, shape))} | {threads} | {f[1]:.3g} ({f[0]:.3g}, {f[2]:.3g}) | "
                      f"{forward:.3g} | **{forward / f[1]:.2f}x** | {t[1]:.3g} ({t[0]:.3g}, {t[2]:.3g}) | {training:.3g} | "
                      f"**{training / t[1]:.2f}x** | {result['forward_error']:.1e}, {result['gradient_error']:.1e} |",
                      flush=True)


def main():
    program = sys.argv[1]
    with open("/proc/cpuinfo") as file:
        cpu = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    print("# One layer on a CPU, against PyTorch\n")
    print(f"    python3 bench/layers_torch.py build/release/bench/layer_times > docs/results/layers.md\n\n"
          f"{cpu}, {torch.__version__=}, float32, batch first. Medians, spread beside ours; ratio above 1: we are faster. "
          "Every row is one run of both, and no time is printed unless row 0 of the timed outputs and input gradients agrees "
          "with double precision (gradients: all values but one in a thousand, because positive candidates have a kink).")
    wanted = sys.argv[2:] or ["lstm", "gru", "elman", "mingru-log", "minlstm-log"]
    table(program, "Dense cells against torch.nn", [c for c in wanted if not c.startswith("min")], SHAPES)
    table(program, "Scan cells against eager PyTorch", [c for c in wanted if c.startswith("min")], SCAN_SHAPES)


if __name__ == "__main__":
    main()
