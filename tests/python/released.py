"""Makes a folder of released files: one of each kind that users keep, and the answers that its version gives from them.

    python tests/python/released.py                # makes tests/released/MAJOR.MINOR of the built version
    python tests/python/released.py FOLDER CASE    # prints the answers of a case, as FOLDER/answers/CASE.jsonl has them

test_released.py compares the answers of all folders with those of today's version. Answers are JSON lines. All are
computed by one thread with the baseline instruction set, sequences in exact mode: the order of every sum is then fixed,
and no multiply-add is fused on x86-64, so all such processors give the same bits.
"""

import datetime
import gzip
import json
import math
import os
import pathlib
import shutil
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).parents[1] / "cli"))

from program import CELL, PATIENCE, FullPipe, run, start

RELEASED = pathlib.Path(__file__).parents[1] / "released"
ENVIRONMENT = {"PENSTOCK_ISA": "baseline", "OMP_NUM_THREADS": "1"}

LAST = 5  # answers to keep of a file: the state carries all rows before into these
STREAMED = 100  # rows of series.csv that the saved state has seen
WORD = b"the word"  # continues the stream of the text

EXACT = ["--exact", "--threads", 1]
TRAINING = [*EXACT, "--quiet", "--batch", 8, "--blocks", 1, "--dropout", 0]
SERIES = ["--columns", "sales,visits,price", "--target-columns", "sales,visits", "--horizon", 2]
# Options of the interrupted run, which a user gives again to resume it.
RUN = ["--steps", 300, "--length", 32, "--width", 4, "--cell", "elman", "--columns", "sales", "--calendar", "none"]


# Answers. Once a folder has answers of a case, the case stays: it may follow a renamed option, but must ask the same.


def lines(folder, *command, **options):
    return run(*command, "--json", cwd=folder, **options).out.splitlines()


def predicted(folder, model, data, *more):
    return lines(folder, "predict", model, data, *EXACT, *more)[-LAST:]


def array_line(name, array):
    """The numbers of an array as JSON, with as many digits as tell each float from its neighbours."""
    return json.dumps({name: array.ravel().tolist()})


def numbers(*shape):
    """Inputs that floats hold exactly, -1 to 1."""
    import numpy as np

    return (np.arange(math.prod(shape)) * 5 % 17 / 8 - 1).reshape(shape).astype(np.float32)


def text(folder):
    prompt = ["--prompt", "In the ", "--bytes", 40, "--temperature", 0, "--seed", 1]
    return [*lines(folder, "generate", "text.safetensors", *prompt), *predicted(folder, "text.safetensors", "text.txt")]


def text_stream(folder):
    return lines(folder, "stream", "text.safetensors", "--state", "text.state", stdin=WORD)


def series_stream(folder):
    rows = (folder / "series.csv").read_text().splitlines(keepends=True)
    rest = "".join([rows[0], *rows[1 + STREAMED :][:LAST]])
    options = ["--state", "series.state", "--quantiles", "0.1,0.9"]
    return lines(folder, "stream", "series.safetensors", *options, stdin=rest)


def session(folder):
    import numpy as np

    import penstock

    continued = penstock.Session(penstock.Model.load(folder / "lstm.safetensors"))
    continued.state = np.load(folder / "session.npy")
    return [array_line("outputs", continued.push(step)) for step in numbers(LAST, 1)]


def layers(folder):
    """Layers in a file of PyTorch's names, and a stack in Penstock's own format."""
    import penstock

    found = {}
    for file in ("layers.safetensors", "stack.safetensors"):
        for name, weights in penstock.interchange.load(folder / file).items():
            found[f"{file}:{name}"] = weights.to_numpy().forward(numbers(2, 6, 3), exact=True, threads=1)
    return [array_line(name, part) for name, answer in found.items() for part in answer]


def cell(folder):
    import penstock

    network = penstock.Recurrent(penstock.load_cell(folder / "cell.json"), 3, 4)
    network.load_state_dict({name: numbers(*array.shape) for name, array in network.state_dict().items()})
    return [array_line("y", network.forward(numbers(2, 6, 3), exact=True, threads=1)[0])]


def weights_of(path):
    import penstock

    return [array_line(name, array) for name, array in sorted(penstock.interchange.read_tensors(path).items())]


def network(folder):
    import penstock

    session = penstock.NetworkSession(penstock.Network.load(folder / "network.safetensors"))
    return [array_line("y", session.run(row)["y"]) for row in numbers(LAST, 1, 16)]


def checkpoint(folder):
    resume = ["--checkpoint", "run.checkpoint", "--resume", "-o", "resumed"]
    run("train", "series.csv", *TRAINING, *RUN, *resume, cwd=folder)
    return weights_of(folder / "resumed")


ANSWERS = {
    "text": text,
    "text_stream": text_stream,
    "series": lambda folder: predicted(folder, "series.safetensors", "series.csv", "--quantiles", "0.1,0.9"),
    "series_stream": series_stream,
    "groups": lambda folder: predicted(folder, "groups.safetensors", "groups.csv", "--quantiles", "0.1,0.9"),
    "labelled": lambda folder: predicted(folder, "labelled.safetensors", "labelled.csv"),
    "texts": lambda folder: predicted(folder, "texts.safetensors", "texts.csv"),
    "ensemble": lambda folder: predicted(folder, "ensemble.safetensors", "series.csv", "--quantiles", "0.1,0.9"),
    "own_cell": lambda folder: predicted(folder, "own_cell.safetensors", "series.csv"),
    "lstm": lambda folder: predicted(folder, "lstm.safetensors", "series.csv"),
    "session": session,
    "layers": layers,
    "cell": cell,
    "network": network,
    "checkpoint": checkpoint,
}


# The folder of a new version.


def chaos(count):
    """A logistic map: the layers learn what a linear forecast cannot."""
    x = 0.3
    for _ in range(count):
        x = 3.7 * x * (1 - x)
        yield x


def series_csv():
    rows = ["day,sales,visits,price"]
    for i, x in enumerate(chaos(160)):
        day = datetime.date(2024, 1, 1) + datetime.timedelta(days=i)
        sales, visits = 20 + math.sin(2 * math.pi * i / 7) + 9 * x, 100 + 12 * abs(x - 0.5)
        rows.append(f"{day},{sales:.2f},{visits:.1f},{2 + i % 10 / 10:.1f}")
    return "\n".join(rows) + "\n"


def groups_csv():
    """Two shops of different size, with an offer that is known for two rows more."""
    rows = ["shop,month,sold,offer"]
    for shop, size in (("Lyon", 1), ("Oslo", 30)):
        for i, x in enumerate(chaos(80)):
            offer = i * 7 % 5 // 4
            sold = f"{size * (2 + 6 * x + 3 * offer):.2f}" if i < 78 else ""
            rows.append(f"{shop},{1990 + i // 12}-{1 + i % 12:02},{sold},{offer}")
    return "\n".join(rows) + "\n"


def labelled_csv(count):
    """Rising and falling sequences, some of them the other way round."""
    rows = ["sequence,label,x"]
    for i in range(count):
        for t in range(4 + i % 3):
            slope = 0.3 if (i % 2 == 1) == (i % 7 > 0) else -0.3
            rows.append(f"s{i},{'up' if i % 2 else 'down'},{slope * t + math.sin(i * i):.1f}")
    return "\n".join(rows) + "\n"


def texts_csv(count):
    rows = ["text,label"]
    for i in range(count):
        fruit = ["apple", "plum", "pear", "fig"][i // 2 % 4]
        rows.append(f'"{fruit}, ripe: {i}",buy' if i % 2 else f'"{fruit}, rotten: {i}",leave')
    return "\n".join(rows) + "\n"


def make_models(folder):
    def train(data, name, width, *options):
        run("train", data, *TRAINING, "--width", width, *options, "-o", f"{name}.safetensors", cwd=folder)

    (folder / "text.txt").write_text("In the beginning was the word, and the word was with the maker of words.\n" * 6)
    (folder / "series.csv").write_text(series_csv())
    (folder / "groups.csv").write_text(groups_csv())
    (folder / "labelled.csv").write_text(labelled_csv(160))
    (folder / "texts.csv").write_text(texts_csv(160))
    (folder / "cell.json").write_text(json.dumps(CELL) + "\n")
    learn = ["--length", 32, "--learning-rate", 0.02, "--patience", 0]
    one = ["--columns", "sales", "--calendar", "none", "--no-linear"]
    train("text.txt", "text", 4, *learn, "--steps", 200)
    train("series.csv", "series", 8, *learn, *SERIES, "--steps", 1500)
    shops = ["--group", "shop", "--known", "offer", "--horizon", 2, "--transform", "log"]
    train("groups.csv", "groups", 8, *learn, *shops, "--steps", 1500)
    train("labelled.csv", "labelled", 8, "--steps", 200)
    train("texts.csv", "texts", 4, "--steps", 100)
    train("series.csv", "ensemble", 8, *learn, *SERIES, "--cell", "minlstm", "--seeds", 2, "--steps", 1500)
    train("series.csv", "own_cell", 8, *learn, *one, "--cell", "cell.json", "--steps", 200)
    train("series.csv", "lstm", 8, *learn, *one, "--cell", "lstm", "--heads", 2, "--steps", 200)
    (folder / "labelled.csv").write_text(labelled_csv(8))  # what the folder asks about is less
    (folder / "texts.csv").write_text(texts_csv(8))


def make_states(folder):
    import numpy as np

    import penstock

    rows = (folder / "series.csv").read_text().splitlines(keepends=True)
    options = ["--state", "series.state", "--quantiles", "0.1,0.9"]
    lines(folder, "stream", "series.safetensors", *options, stdin="".join(rows[: 1 + STREAMED]))
    lines(folder, "stream", "text.safetensors", "--state", "text.state", stdin=b"In the beginning was ")
    begun = penstock.Session(penstock.Model.load(folder / "lstm.safetensors"))
    begun.run(numbers(20, 1))
    np.save(folder / "session.npy", begun.state)


def make_layers(folder):
    import penstock
    from penstock.interchange import RecurrentWeights, save

    own = penstock.Recurrent(penstock.load_cell(folder / "cell.json"), 3, 4, seed=2)
    gru = penstock.Recurrent("gru", 3, 4, heads=2, seed=3)
    both = {"own": RecurrentWeights.from_numpy(own), "gru": RecurrentWeights.from_numpy(gru)}
    save(folder / "layers.safetensors", both)
    stack = penstock.Recurrent("slstm", 3, 4, layers=2, direction="bidirectional", seed=4)
    save(folder / "stack.safetensors", RecurrentWeights.from_numpy(stack), format="penstock")


def make_network(folder):
    """A listener as published ones are: a convolution over the last samples, layers of three cells, a share."""
    import numpy as np
    import onnx
    from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

    import penstock

    values, nodes = {}, []

    def constant(name, value):
        values[name] = onnx.numpy_helper.from_array(np.asarray(value), name)
        return name

    def weights(name, *shape):
        return constant(name, np.sin(np.arange(math.prod(shape)) * len(name) + len(values)).astype(np.float32).reshape(shape) / 2)

    def add(op, reads, *writes, **attributes):
        nodes.append(make_node(op, reads, writes, name=f"the {op} of {writes[0]}", **attributes))
        return writes[0]

    def axes(*numbers):
        return constant(f"axes{len(values)}", np.array(numbers, np.int64))

    add("Concat", ["context", "x"], "samples", axis=1)
    add("Slice", ["samples", axes(-8), axes(24), axes(1)], "next_context")
    add("Unsqueeze", ["samples", axes(1)], "channel")
    add("Conv", ["channel", weights("kernel", 6, 1, 8), weights("offset", 6)], "frames", strides=[4])
    add("Transpose", [add("Relu", ["frames"], "heard")], "steps", perm=[2, 0, 1])
    add("LSTM", ["steps", weights("w1", 1, 32, 6), weights("r1", 1, 32, 8), weights("b1", 1, 64), "", "h", "c"], "y1", "next_h",
        "next_c", hidden_size=8)
    add("Squeeze", ["y1", axes(1)], "s1")
    add("GRU", ["s1", weights("w2", 1, 18, 8), weights("r2", 1, 18, 6), "", "", "g"], "y2", "next_g", hidden_size=6)
    add("Squeeze", ["y2", axes(1)], "s2")
    add("LSTM", ["s2", weights("w3", 1, 16, 6), weights("r3", 1, 16, 4), "", "", "ph", "pc", weights("p3", 1, 12)], "y3",
        "next_ph", "next_pc", hidden_size=4)
    add("ReduceMean", ["y3", axes(0, 1)], "mean", keepdims=0)
    add("Sigmoid", [add("Gemm", ["mean", weights("w", 4, 2), weights("b", 2)], "sums")], "y")
    shapes = {"x": [1, 16], "context": [1, 8], "h": [1, 1, 8], "c": [1, 1, 8], "g": [1, 1, 6], "ph": [1, 1, 4], "pc": [1, 1, 4]}
    inputs = [make_tensor_value_info(name, 1, shape) for name, shape in shapes.items()]
    outputs = [make_tensor_value_info(f"next_{name}", 1, shape) for name, shape in list(shapes.items())[1:]]
    outputs.insert(0, make_tensor_value_info("y", 1, [1, 2]))
    graph = make_graph(nodes, "listener", inputs, outputs, list(values.values()))
    model = make_model(graph, opset_imports=[make_opsetid("", 18)], ir_version=8)
    penstock.import_onnx(model.SerializeToString()).save(folder / "network.safetensors")


def make_checkpoint(folder):
    """Kills a run, and leaves its checkpoint. Returns the weights at the end of the uninterrupted run."""
    command = ["train", "series.csv", *TRAINING, *RUN]
    with tempfile.TemporaryDirectory() as scratch:
        whole = pathlib.Path(scratch) / "whole"
        run(*command, "-o", whole, cwd=folder)
        weights = weights_of(whole)
        full = FullPipe(room=2048)  # the run waits in it with its metrics
        options = ["--checkpoint", "run.checkpoint", "--checkpoint-every", 0, "--metrics", full.path]
        process = start(*command, *options, "-o", pathlib.Path(scratch) / "killed", cwd=folder)
        end = time.monotonic() + PATIENCE
        while not (folder / "run.checkpoint").exists():
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.01)
        time.sleep(1)
        assert process.poll() is None, "the run ended before it was killed"
        process.kill()
        process.wait()
        full.close()
    (folder / "run.checkpoint.lock").unlink()
    return weights


def make(folder):
    folder.mkdir(parents=True)
    make_models(folder)
    make_states(folder)
    make_layers(folder)
    make_network(folder)
    weights = make_checkpoint(folder)
    isa = os.environ.pop("PENSTOCK_ISA")  # plans are measured with the best one
    run("tune", "--cell", "gru", "--shape", "1x20x8x8", "--threads", 1, "--quiet", "-o", "plans.json", cwd=folder)
    os.environ["PENSTOCK_ISA"] = isa
    # 1,024 filters are the fewest, and most of their weights are zeros.
    labelled = folder / "labelled.safetensors"
    (folder / "labelled.safetensors.gz").write_bytes(gzip.compress(labelled.read_bytes(), mtime=0))
    labelled.unlink()
    (folder / "answers").mkdir()
    for case in ANSWERS:
        (folder / "answers" / f"{case}.jsonl").write_text("\n".join(answers(folder, case)) + "\n")
    resumed = (folder / "answers" / "checkpoint.jsonl").read_text().splitlines()
    assert resumed == weights, "the run that was killed and resumed has other weights than the uninterrupted run"


def answers(folder, case):
    """The answers of a case from a copy of the folder: streams and training write into theirs."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = pathlib.Path(scratch) / "files"
        shutil.copytree(folder, copy)
        for packed in copy.glob("*.gz"):
            packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        return ANSWERS[case](copy)


def main(arguments):
    os.environ.update(ENVIRONMENT)
    if arguments:
        folder, case = arguments
        print("\n".join(answers(pathlib.Path(folder), case)))
        return
    import penstock

    program = run("--version").out.split()[1]
    if program != penstock.__version__:
        sys.exit(f"the program is version {program}, and the package {penstock.__version__}: build and install both")
    folder = RELEASED / penstock.__version__.rpartition(".")[0]
    if folder.exists():
        sys.exit(f"{folder} exists, and a folder of released files never changes; a new version makes its own")
    with tempfile.TemporaryDirectory() as scratch:
        made = pathlib.Path(scratch) / "made"
        make(made)
        shutil.copytree(made, folder)
    print(f"made {folder}: commit it with the release")


if __name__ == "__main__":
    main(sys.argv[1:])
