"""Layers on a GPU beside loops of PyTorch and cuDNN: times with errors, for bench/seeds.py."""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import penstock
import penstock.torch
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))
from torch_peer import sample_on_gpu  # noqa: E402

STEPS, BATCH = 1024, 16
HIDDEN = (16, 24, 32, 64, 100, 128, 256, 512, 768, 1000, 1024, 1536, 2048, 2560, 3072, 4096)


def milliseconds(call):
    """Median and middle half of the times of calls."""
    times = [1000 * seconds for seconds in sample_on_gpu(0.3, call, most=25)]
    lower, middle, upper = statistics.quantiles(times, n=4)
    return middle, lower, upper


def time_text(times):
    middle, lower, upper = times
    wide = upper - lower > 0.03 * middle
    return f"{middle:.3g}" + (f" ({lower:.3g}-{upper:.3g})" if wide else "")


def error(result, exact):
    return float((result.double() - exact).abs().max() / exact.abs().max())


def table(head, rows):
    return "\n".join(["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1),
                      *("| " + " | ".join(row) + " |" for row in rows)])


class StepLoop(torch.nn.Module):
    """The LSTM as a loop over steps in PyTorch's operations, with one product for all inputs."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        p = self.layer
        wx = torch.nn.functional.linear(x, p.weight_ih_l0, p.bias_ih_l0 + p.bias_hh_l0)
        h = c = torch.zeros(x.shape[0], p.hidden_size, dtype=x.dtype, device=x.device)
        steps = []
        for t in range(x.shape[1]):
            i, f, g, o = torch.addmm(wx[:, t], h, p.weight_hh_l0.t()).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            steps.append(h)
        return torch.stack(steps, 1)


class CellLoop(torch.nn.Module):
    """The LSTM as a loop over torch.nn.LSTMCell."""

    def __init__(self, layer):
        super().__init__()
        self.cell = torch.nn.LSTMCell(layer.input_size, layer.hidden_size, device="cuda",
                                      dtype=layer.weight_ih_l0.dtype)
        self.cell.load_state_dict({name.removesuffix("_l0"): value for name, value in layer.state_dict().items()})

    def forward(self, x):
        state, steps = None, []
        for x_t in x.unbind(1):
            state = self.cell(x_t, state)
            steps.append(state[0])
        return torch.stack(steps, 1)


class Outputs(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


def contenders(inputs, hidden, dtype):
    """{name: module} of one LSTM with the same weights."""
    torch.manual_seed(0)
    ours = penstock.torch.LSTM(inputs, hidden, batch_first=True).to("cuda", dtype)
    peer = torch.nn.LSTM(inputs, hidden, batch_first=True).to("cuda", dtype)
    peer.load_state_dict(ours.state_dict())
    return {"Penstock": Outputs(ours), "cuDNN": Outputs(peer), "loop of operations": StepLoop(peer),
            "loop over LSTMCell": CellLoop(peer)}


def exact_outputs(module, x):
    layer = module.layer
    double = torch.nn.LSTM(layer.input_size, layer.hidden_size, batch_first=True).to("cuda", torch.double)
    double.load_state_dict({name: value.double() for name, value in layer.state_dict().items()})
    with torch.no_grad():
        return double(x.double())[0]


def measured(module, x, exact, training=True):
    """Forward, forward and backward, error."""
    with torch.no_grad():
        off = error(module(x), exact)
        forward = milliseconds(lambda: module(x))
    if not training:
        return forward, None, off
    dy = torch.randn_like(exact).to(x.dtype)

    def step():
        for parameter in module.parameters():
            parameter.grad = None
        module(x).backward(dy)
    return forward, milliseconds(step), off


def loops(_, quick):
    """An LSTM layer and loops of PyTorch

    FlashRNN's paper speaks of 50 times vanilla PyTorch. Milliseconds forward / forward and backward."""
    rows = []
    steps = 64 if quick else STEPS
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for hidden in (128, 768):
            x = torch.randn(BATCH, steps, hidden, device="cuda").to(dtype)
            found = contenders(hidden, hidden, dtype)
            exact = exact_outputs(found["Penstock"], x)
            first = None
            for name, module in found.items():
                forward, both, off = measured(module, x, exact)
                first = first or (forward[0], both[0])
                rows.append([f"{BATCH}, {steps}, {hidden}, {str(dtype).removeprefix('torch.')}", name,
                             time_text(forward), time_text(both),
                             f"{forward[0] / first[0]:.1f} / {both[0] / first[1]:.1f}", f"{off:.1e}"])
    return table(["B, T, I = H", "what", "forward ms", "both ms", "times Penstock's", "error of y"], rows)


def sizes(_, quick):
    """Hidden sizes from 16 to 4,096

    FlashRNN's paper speaks of 40 times larger hidden sizes than other fused kernels take. LSTM, 16 rows of 256 steps,
    bf16, milliseconds forward / forward and backward."""
    rows = []
    for hidden in (16, 256) if quick else HIDDEN:
        x = torch.randn(BATCH, 256, 64, device="cuda").to(torch.bfloat16)
        found = contenders(64, hidden, torch.bfloat16)
        exact = exact_outputs(found["Penstock"], x)
        row = [str(hidden)]
        for name in ("Penstock", "cuDNN", "loop of operations"):
            forward, both, off = measured(found[name], x, exact)
            row += [f"{time_text(forward)} / {time_text(both)}", f"{off:.1e}"]
        rows.append(row)
    return table(["units", "Penstock", "error", "cuDNN", "error", "loop of operations", "error"], rows)


def resets(_, quick):
    """Rows of different lengths, and resets inside rows

    LSTM, bf16, 64 rows, I = H = 512. Lengths are uniform from 1 to T; about one step in 64 starts anew. Milliseconds
    forward / forward and backward."""
    steps = 64 if quick else 512
    torch.manual_seed(0)
    layer = penstock.torch.LSTM(512, 512, batch_first=True).to("cuda", torch.bfloat16)
    x = torch.randn(64, steps, 512, device="cuda").to(torch.bfloat16)
    lengths = torch.randint(1, steps + 1, (64,), device="cuda")
    reset = torch.rand(64, steps, device="cuda") < 1 / 64
    dy = torch.randn_like(x)
    rows = []
    cases = {"all rows of T steps": {}, "lengths=": {"lengths": lengths}, "reset_mask=": {"reset_mask": reset}}
    for name, options in cases.items():
        def step(options=options):
            layer(x, **options)[0].backward(dy)
        with torch.no_grad():
            forward = milliseconds(lambda options=options: layer(x, **options))
        rows.append([name, time_text(forward), time_text(milliseconds(step))])
    return table([f"64, {steps}, 512", "forward ms", "both ms"], rows)


def batches(_, quick):
    """A row's bits in batches of other sizes

    The same 256 rows in calls of several sizes: how many outputs of a layer have other bits than in one call of all
    rows, fast and in exact mode, and the time of a call of so many rows. f32, T = 256, I = H = 512, x on the GPU."""
    torch.manual_seed(0)
    x = torch.randn(256, 32 if quick else 256, 512, device="cuda")
    rows = []
    for cell in ("lstm", "gru", "mingru"):
        layer = penstock.Recurrent(cell, 512, 512)
        found = {size: [str(size)] for size in (1, 16, 64, 256)}
        for exact in (False, True):
            def outputs(given, exact=exact, layer=layer):
                return torch.from_dlpack(layer.forward(given, exact=exact)[0])
            whole = outputs(x)
            for size, row in found.items():
                part = torch.cat([outputs(x[i:i + size]) for i in range(0, len(x), size)])
                row += [f"{100 * float((part != whole).double().mean()):.2f} %",
                        time_text(milliseconds(lambda size=size: outputs(x[:size])))]
        rows += [[f"{cell}, {row[0]}", *row[1:]] for row in found.values()]
    return table(["cell, rows of a call", "fast: other bits", "ms", "exact: other bits", "ms"], rows)


def bench(name, *options):
    def part(program, quick):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.md"
            command = [program, "bench", name, "--device", "cuda", "--seconds", "0.02", *options]
            command += ["--markdown", str(page)]
            result = subprocess.run([*command, *(["--quick"] if quick else [])], capture_output=True, text=True)
            if not page.exists():
                raise RuntimeError(f"{' '.join(command)} ended with status {result.returncode}: {result.stderr[-400:]}")
            text = page.read_text()
        return text[text.index("\n## ") + 1:].replace("\n## ", "\n### ").removeprefix("## ").partition("\n")[2].strip()
    return part


def titled(title, part):
    part.__doc__ = title
    return part


PARTS = {
    "loops": loops, "sizes": sizes,
    "fused": titled("A layer and a loop over LSTMCell, 64 rows of 200 steps, I = 256, H = 512",
                    bench("fused", "--peers", "torch-loop,torch")),
    "cuda_rnn": titled("The NumPy project's shapes, with transfers", bench("cuda_rnn")),
    "cs179": titled("The lengths of the CS179 study", bench("cs179")),
    "batch": titled("The speed-up of a sequence in a batch", bench("batch")),
    "throughput": titled("Sequences a second", bench("throughput")),
    "resets": resets, "batches": batches,
}
