"""Recurrent layers as ONNX: compares the time of onnxruntime for Penstock's file with its time for the file of PyTorch's
exporter, where there is one, and with Penstock itself. One thread. Every file must first give Penstock's own answers; the
order of the three rotates from round to round. Prints the table of docs/results/onnx.md.

    build/venv/bin/python bench/layers/onnx_layers.py [--seconds 1] [--hidden 256]
"""

import argparse
import pathlib
import statistics
import tempfile
import time
import warnings

import numpy as np
import onnxruntime
import torch

import penstock
from penstock.interchange import RecurrentWeights

SHAPES = [(1, 1), (1, 1000), (16, 256)]
PEERS = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "elman": torch.nn.RNN}


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def exported_by_torch(layer, path):
    """The exporter by traces: the other one needs a package more, and writes the same operator."""
    h = torch.zeros(1, 1, layer.hidden_size)
    state = (h, h) if isinstance(layer, torch.nn.LSTM) else h
    names = ["x", "h", "c"][: 3 if isinstance(layer, torch.nn.LSTM) else 2]
    axes = {"x": {0: "batch", 1: "time"}, "h": {1: "batch"}, "c": {1: "batch"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(layer, (torch.zeros(1, 2, layer.input_size), state), path, dynamo=False, input_names=names,
                          output_names=["y", "hn", "cn"][: len(names)], dynamic_axes={name: axes[name] for name in names})
    return session(path)


def contenders(cell, hidden, folder):
    """Functions of x [B, T, I] that return y [B, T, H], by name."""
    peer = None
    if cell in PEERS:
        layer = PEERS[cell](hidden, hidden, batch_first=True)
        network = RecurrentWeights.from_torch(layer).to_numpy()
        peer = exported_by_torch(layer, folder / "torch.onnx")
    else:
        network = penstock.Recurrent(cell, hidden, hidden)
    network.save_onnx(folder / "penstock.onnx")
    written = session(folder / "penstock.onnx")
    shape = written.get_inputs()[1].shape

    def by_file(x):
        state = np.zeros([len(x) if extent == "batch" else extent for extent in shape], np.float32)
        return written.run(None, {"x": x, "state": state})[0]

    def by_peer(x):
        state = np.zeros((1, len(x), hidden), np.float32)
        feed = {place.name: state for place in peer.get_inputs()[1:]}
        return peer.run(None, {"x": x, **feed})[0]

    all = {"penstock": lambda x: network.forward(x, threads=1)[0], "file": by_file}
    return all | ({"torch": by_peer} if peer else {})


def measured(runs, x, seconds):
    """Seconds of each run of each, in turns of another order every time, after one that is not counted."""
    times = {name: [] for name in runs}
    names, end = list(runs), time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[names[0]]) < 6:
        for name in names:
            start = time.perf_counter()
            runs[name](x)
            times[name].append(time.perf_counter() - start)
        names = names[1:] + names[:1]
    return {name: sorted(of[1:]) for name, of in times.items()}


def spread(times):
    low, _, high = statistics.quantiles(times, n=4)
    return f"{statistics.median(times) * 1e3:.3g} ({low * 1e3:.3g} to {high * 1e3:.3g})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds of measurement per line of the table")
    parser.add_argument("--hidden", type=int, default=256, help="I = H of every layer")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    print(f"Penstock {penstock.__version__}, onnxruntime {onnxruntime.__version__}, torch {torch.__version__}; I = H = {arguments.hidden}\n")
    print("| cell | B x T | Penstock, ms | Penstock's file in onnxruntime, ms | PyTorch's file in onnxruntime, ms | PyTorch's / Penstock's file | Penstock's file / Penstock | greatest error |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for cell in [cell["name"] for cell in penstock.cells()]:
            runs = contenders(cell, arguments.hidden, pathlib.Path(name))
            for rows, steps in SHAPES:
                x = random.standard_normal((rows, steps, arguments.hidden)).astype(np.float32)
                expected = runs["penstock"](x)
                error = max(np.abs(run(x) - expected).max() for run in runs.values())
                if not error < 1e-4:
                    raise SystemExit(f"{cell} {rows} x {steps}: the answers differ by {error}")
                times = measured(runs, x, arguments.seconds)
                median = {name: statistics.median(of) for name, of in times.items()}
                peer = spread(times["torch"]) if "torch" in times else "-"
                ratio = f"{median['torch'] / median['file']:.2f}" if "torch" in times else "-"
                print(f"| {cell} | {rows} x {steps} | {spread(times['penstock'])} | {spread(times['file'])} | {peer} | {ratio} | "
                      f"{median['file'] / median['penstock']:.2f} | {error:.1e} |", flush=True)


if __name__ == "__main__":
    main()
