#!/usr/bin/env python3
"""Times a training step of a byte model of minGRU blocks on a GPU: compares Penstock with PyTorch in one run.

    python bench/quality/gpu_training.py PENSTOCK TEXT [--steps N] [--precision bf16]

The model has six blocks of width 512, each: RMS norm, causal convolution of 4, minGRU with the positive
candidate, residual; RMS norm, gated feed-forward of twice the width, residual. Batches of 64 x 512 bytes, AdamW, the norm of
the gradients clipped to 1. PyTorch runs it in autocast with fused AdamW, eagerly and under torch.compile. Penstock's time
comes from its reports during training, with data and guards. PyTorch's is measured by CUDA events around a step on one
batch in GPU memory. Prints a table, and the losses of the first steps, which show that both learn equally fast.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

WIDTH, BLOCKS, TAPS, INNER, BATCH, LENGTH, BYTES = 512, 6, 4, 2, 64, 512, 256
RATE = 1e-3


def ours(program, text, steps, precision):
    """Milliseconds a step: median, least, most of the reports; and losses by step."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder) / "metrics.jsonl"
        command = [program, "train", text, "--output", Path(folder) / "model", "--device", "cuda"]
        command += ["--precision", precision, "--cell", "mingru-log", "--width", WIDTH, "--blocks", BLOCKS]
        command += ["--conv", TAPS, "--ffn", INNER, "--batch", BATCH, "--length", LENGTH, "--steps", steps]
        command += ["--force", "--learning-rate", RATE, "--validate-every", 0, "--metrics", metrics, "--quiet"]
        subprocess.run([str(word) for word in command], check=True)
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    reports = [line for line in lines if line["kind"] == "train"]
    times = [1e3 / line["steps_per_second"] for line in reports[2:-1]]  # not the start, not the rest
    return (statistics.median(times), min(times), max(times)), {line["step"]: line["loss"] for line in reports}


def torch_model():
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.ones(WIDTH))

        def forward(self, x):
            return F.rms_norm(x, (WIDTH,), self.gain, 1e-6)

    class MinGRU(nn.Module):
        """h_t = (1 - z_t) h_{t-1} + z_t g(candidate), as a scan over logarithms (Feng et al. 2024)."""

        def __init__(self):
            super().__init__()
            self.gates = nn.Linear(WIDTH, 2 * WIDTH)

        def forward(self, x):
            # In this order, since PyTorch's code generator fails on others that mean the same.
            z, candidate = self.gates(x).chunk(2, -1)
            z, candidate = z.float(), candidate.float()
            keep, take = -F.softplus(z), -F.softplus(-z)
            value = take + torch.where(candidate >= 0, (F.relu(candidate) + 0.5).log(), -F.softplus(-candidate))
            kept = keep.cumsum(1)
            return (kept + torch.logcumsumexp(value - kept, 1)).exp().to(x.dtype)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.recurrent_norm, self.feed_forward_norm = Norm(), Norm()
            self.convolution = nn.Conv1d(WIDTH, WIDTH, TAPS, groups=WIDTH)
            self.recurrent = MinGRU()
            self.up, self.down = nn.Linear(WIDTH, 2 * INNER * WIDTH), nn.Linear(INNER * WIDTH, WIDTH)

        def forward(self, x):
            past = F.pad(self.recurrent_norm(x).transpose(1, 2), (TAPS - 1, 0))
            x = x + self.recurrent(self.convolution(past).transpose(1, 2))
            gate, value = self.up(self.feed_forward_norm(x)).chunk(2, -1)
            return x + self.down(F.silu(gate) * value)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(BYTES, WIDTH)
            self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
            self.norm, self.head = Norm(), nn.Linear(WIDTH, BYTES)

        def forward(self, x):
            x = self.embedding(x)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    return Model()


def theirs(text, steps, precision, compiled):
    """The same of PyTorch."""
    import torch
    from torch.nn import functional as F

    torch.manual_seed(0)
    model = torch_model().cuda()
    run = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.99), weight_decay=0.01, fused=True)
    data = torch.frombuffer(bytearray(Path(text).read_bytes()), dtype=torch.uint8)
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[precision]

    def batch():
        starts = torch.randint(0, len(data) - LENGTH - 1, (BATCH,))
        rows = torch.stack([data[start : start + LENGTH + 1] for start in starts]).long().cuda()
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def step(x, y):
        with torch.autocast("cuda", dtype=dtype, enabled=precision != "f32"):
            loss = F.cross_entropy(run(x).reshape(-1, BYTES).float(), y.reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    losses = {index + 1: float(step(*batch())) for index in range(20)}
    x, y = batch()
    times = []
    for _ in range(steps):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        step(x, y)
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return (statistics.median(times), min(times), max(times)), losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("text")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--precision", choices=["bf16", "f16", "f32"], default="bf16")
    arguments = parser.parse_args()
    rows = [("Penstock", *ours(arguments.program, arguments.text, arguments.steps, arguments.precision))]
    for name, compiled in [("PyTorch, eager", False), ("PyTorch, compiled", True)]:
        rows.append((name, *theirs(arguments.text, 30, arguments.precision, compiled)))
    print(f"A training step, {arguments.precision}, {BATCH} x {LENGTH} bytes")
    print("| | ms a step, median (least to most) | bytes/s | times Penstock's |")
    print("|---|---|---|---|")
    for name, (median, least, most), _ in rows:
        rate = 1e3 * BATCH * LENGTH / median
        print(f"| {name} | {median:.2f} ({least:.2f} to {most:.2f}) | {rate:,.0f} | {median / rows[0][1][0]:.2f} |")
    for name, _, losses in rows:
        shown = ", ".join(f"{step}: {loss:.3f}" for step, loss in list(losses.items())[:6])
        print(f"loss of {name} at steps {shown}")


if __name__ == "__main__":
    main()
