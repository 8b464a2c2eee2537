"""Times sLSTM layers of the package xlstm with its backend "vanilla" and with penstock.torch.xlstm.patch(), in turns.

    python bench/layers/xlstm_layers.py [--device cuda] [--shapes 16x256x256x4] [--seconds 1]

Shapes are rows x steps x embedding x heads. Prints medians and quartiles in milliseconds for layers in float32, for
the recurrence alone, which patch() replaces, and the time of the first call after patch(), in which a GPU's kernels are
compiled. A CPU runs one thread, whose processor time counts. Results and gradients must first be equal.
"""

import argparse
import statistics
import time

import torch
from xlstm import sLSTMLayer, sLSTMLayerConfig

import penstock.torch.xlstm


def layer_of(width, heads, device):
    torch.manual_seed(0)
    kind = {"backend": "vanilla", "dtype": "float32", "recurrent_weight_init": "standard", "bias_init": "standard"}
    layer = sLSTMLayer(sLSTMLayerConfig(embedding_dim=width, num_heads=heads, **kind))
    layer.reset_parameters()
    return layer.to(device)


def passes(layer, x, dy):
    """Returns functions by name that run the layer, or its recurrence alone, and return their results."""
    wx = torch.randn(*x.shape[:2], 4 * x.shape[2], device=x.device)

    @torch.no_grad()
    def forward():
        return [layer(x)]

    @torch.no_grad()
    def recurrence():
        return [layer.slstm_cell(wx)[0]]

    def training():
        for leaf in (x, *layer.parameters()):
            leaf.grad = None
        y = layer(x)
        y.backward(dy)
        return [y.detach(), x.grad, *(p.grad for p in layer.parameters())]

    @torch.no_grad()
    def step():
        return [layer.step(x[:, :1])[0]]

    return {"forward": forward, "its recurrence alone": recurrence, "forward and backward": training, "one step": step}


def timed(run, device, patched):
    """Returns the milliseconds of a run, and its results."""
    now = time.perf_counter if device == "cuda" else time.process_time
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    (penstock.torch.xlstm.patch if patched else penstock.torch.xlstm.unpatch)()
    wait()
    start = now()
    results = run()
    wait()
    return 1e3 * (now() - start), results


def spread(times):
    low, _, high = statistics.quantiles(times, n=4)
    return f"{statistics.median(times):.3g} ({low:.3g} to {high:.3g})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--shapes", nargs="+", default=["16x256x256x4"], help="rows x steps x embedding x heads")
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.cudnn.rnn.fp32_precision = "ieee"  # as xlstm's products are
    print("| rows x steps x embedding x heads | pass | `vanilla`, ms | patched, ms | ratio | differences | first call |")
    print("|---" * 7 + "|")
    for shape in options.shapes:
        rows, steps, width, heads = map(int, shape.split("x"))
        layer = layer_of(width, heads, options.device)
        x = torch.randn(rows, steps, width, device=options.device, requires_grad=True)
        for name, run in passes(layer, x, torch.randn_like(x)).items():
            _, expected = timed(run, options.device, False)  # before ours: PyTorch's first backward pass takes seconds
            start = time.perf_counter()
            _, found = timed(run, options.device, True)
            first = time.perf_counter() - start
            apart = max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)) for a, b in zip(found, expected))
            if not apart < 16 * 2.0**-24 * (steps * rows) ** 0.5 * width**0.5:  # roundings of sums
                raise SystemExit(f"{shape}, {name}: the results differ by {apart}")
            times, end = ([], []), time.perf_counter() + options.seconds
            while time.perf_counter() < end or len(times[0]) < 3:
                for patched in (False, True):
                    times[patched].append(timed(run, options.device, patched)[0])
            ratio = statistics.median(times[0]) / statistics.median(times[1])
            cells = [shape, name, *map(spread, times), f"{ratio:.1f}", f"{apart:.0e}", f"{first:.2f} s"]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
