"""What writers.py attacks: each writer of the program and of the Python package, and what reads its files.

    python tests/faults/written.py NAME 1     # what a Python writer does in a process of its own
"""

import dataclasses
import functools
import json
import os
import pathlib
import re
import sys
import tempfile
import wave
import xml.etree.ElementTree
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cli"))

from program import BIN, SERIES, TINY, run

REFUSED = 3  # status of a Python writer that raised a documented exception


@dataclasses.dataclass
class Writer:
    """Something that writes `target`, and perhaps more files, into the folder "out". "{v}" in the command is 1 while it
    writes the old files, and 2 while it writes the new ones."""

    name: str
    target: str
    command: list
    stdin: str = os.devnull
    accepts: Callable[[bytes], object] | None = None  # returns or raises; None: each run writes the same bytes
    side: bool = False  # the run goes on without it
    grows: bool = False  # by records; accepts() returns where the last whole one ends
    appends: bool = False  # behind the old ones
    before: dict = dataclasses.field(default_factory=dict)  # {file: what is copied there before each run}
    function: Callable | None = None  # of a Python writer, of the path and v
    whole: Callable[[dict], object] | None = None  # of the files, what they are together


def by_program(content):
    """Reads a model or a checkpoint as the program does."""
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        file.write(content)
        file.flush()
        run("info", file.name)


def lines(content):
    """Reads records of JSON, and returns where the last whole line ends."""
    end = content.rfind(b"\n") + 1
    for line in content[:end].splitlines():
        json.loads(line)
    return end


def keras(content):
    """Reads a file of Keras, whose archive says when it was written."""
    import io
    import zipfile

    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None and "model.weights.h5" in archive.namelist()


def events(content):
    """Reads the lengths of TensorBoard's records, and returns where the last whole one ends."""
    end, place, longest = 0, 0, 4096
    while place + 16 <= len(content):
        size = int.from_bytes(content[place : place + 8], "little")
        assert size <= longest
        place += 16 + size
        end = place if place <= len(content) else end
    return end


def shards(found):
    """What an index leads to."""
    index = json.loads(found["w.safetensors.index.json"])
    return {name: found[file] for name, file in index["weight_map"].items()}


def like(sample):
    """A reader of texts that differ from the sample in nothing but numbers and the spaces around them."""

    def masked(content):
        return re.sub(rb"[ \d.:e%+-]+", b"0", content)

    def read(content):
        assert masked(content) == masked(sample)

    return read


def xml_page(content):
    xml.etree.ElementTree.fromstring(content)


def prepare(folder):
    """Writes what the writers read: two models "m1" and "m2" with their metrics and checkpoints, and one of sound."""
    (folder / "series.csv").write_text(SERIES)
    for v in (1, 2):
        run(*TRAIN[:-1], v, "--steps", 5, "-o", f"m{v}.safetensors", "--metrics", f"m{v}.jsonl", "--checkpoint",
            f"c{v}.safetensors", cwd=folder)  # fmt: skip
    with wave.open(str(folder / "in.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(b"".join((i * 7919 % 20000 - 10000).to_bytes(2, "little", signed=True) for i in range(4000)))
    for v in (1, 2):
        run("train", "in.wav", "--target", "in.wav", "--cell", "gru", "--width", 4, "--blocks", 1, "--threads", 1,
            "--steps", 2, "--seed", v, "--quiet", "-o", f"sound{v}.safetensors", cwd=folder)  # fmt: skip
        run("export", f"sound{v}.safetensors", cwd=folder)


TRAIN = ["train", "series.csv", "--force", "--quiet", "--columns", "level,flow", "--length", 16, *TINY, "--seed", "{v}"]
SIDE = [*TRAIN, "--steps", 5, "-o", "side.safetensors"]
BENCH = ["bench", "batch", "--quiet", "--peers", "none", "--cells", "gru", "--shapes", "2x5x3x4", "--threads", 1, "--seconds", 0.002]
TUNE = ["tune", "--cell", "gru", "--shape", "{v}x8x4x4", "--threads", 1, "--seconds", 0.001, "--candidates", 2, "--plans-only"]


def program_writers():
    python = ["--python", sys.executable]
    found = [
        Writer("train: model", "m.safetensors", [*TRAIN, "--steps", 5, "-o", "out/m.safetensors", "--checkpoint", "c"]),
        Writer("train: checkpoint", "c", [*SIDE, "--checkpoint", "out/c", "--checkpoint-every", 0], accepts=by_program, side=True),
        Writer("train: checkpoints of seeds", "c.2", [*SIDE, "--seeds", 2, "--checkpoint", "out/c"], accepts=by_program, side=True),
        Writer("train: metrics", "m.jsonl", [*SIDE, "--metrics", "out/m.jsonl"], accepts=lines, side=True, grows=True),
        Writer("train: metrics of seeds", "m.jsonl.2", [*SIDE, "--seeds", 2, "--metrics", "out/m.jsonl"], accepts=lines,
               side=True, grows=True),
        Writer("train --resume: metrics", "m.jsonl",
               [*TRAIN[:-1], 1, "--steps", 9, "-o", "side.safetensors", "--checkpoint", "c", "--resume", "--metrics", "out/m.jsonl"],
               accepts=lines, side=True, grows=True, appends=True, before={"c": "c1.safetensors"}),
        Writer("train: events", "", [*SIDE, "--tensorboard", "out"], accepts=events, side=True, grows=True),
        Writer("predict: rows", "f.csv", ["predict", "m{v}.safetensors", "series.csv", "--force", "-o", "out/f.csv"]),
        Writer("predict: long", "f.csv", ["predict", "m{v}.safetensors", "series.csv", "--force", "--long", "-o", "out/f.csv"]),
        Writer("stream: state", "s.json", ["stream", "m1.safetensors", "--state", "out/s.json"], stdin="series.csv"),
        Writer("stream: sound", "o.wav", ["stream", "sound{v}.safetensors", "in.wav", "out/o.wav"]),
        Writer("export: ONNX", "m.onnx", ["export", "m{v}.safetensors", "--force", "-o", "out/m.onnx"]),
        Writer("quantize: model", "q.safetensors",
               ["quantize", "m{v}.safetensors", "--data", "series.csv", "--force", "-o", "out/q.safetensors"]),
        Writer("import: network", "n.safetensors", ["import", "sound{v}.onnx", "--force", "-o", "out/n.safetensors"]),
        Writer("report: page", "r.html", ["report", "m{v}.jsonl", "-o", "out/r.html"]),
        Writer("report: pictures", "loss-steps.png", ["report", "m{v}.jsonl", "-o", "-", "--png", "out", *python]),
        Writer("bench: JSON", "b.json", [*BENCH, "--json", "out/b.json"], accepts=json.loads),
        Writer("bench: page", "b.md", [*BENCH, "--markdown", "out/b.md"], accepts=like),
        Writer("bench: picture", "b.svg", [*BENCH, "--plot", "out/b.svg", *python], accepts=xml_page, side=True),
        Writer("tune: plans", "plans.json", [*TUNE, "-o", "out/plans.json"], accepts=json.loads),
        Writer("man: pages", "penstock-train.1", ["man", "--folder", "out"]),
    ]  # fmt: skip
    for writer in found:
        writer.command = [BIN, *writer.command]
    return found


@functools.cache
def weights(cell, v):
    import penstock
    from penstock import interchange

    return interchange.RecurrentWeights.from_numpy(penstock.Recurrent(cell, 2, 3, bias="log" not in cell, seed=v))


@functools.cache
def model(v):
    import penstock

    return penstock.Model.load(f"m{v}.safetensors")


@functools.cache
def torch_model(v):
    from penstock.torch import SequenceModel

    return SequenceModel.load(f"m{v}.safetensors")


def save_network(path, v):
    import penstock

    penstock.import_onnx(f"sound{v}.onnx").save(path)


def save_recurrent_onnx(path, v):
    weights("slstm", v).to_numpy("float32").save_onnx(path)


def save_layers(path, v, cell="lstm", **options):
    from penstock import interchange

    interchange.save(path, weights(cell, v), **options)


def save_checkpoint(path, v):
    import penstock

    data = penstock.open_text([pathlib.Path("series.csv")])
    trained = penstock.Model(data, cell="gru", width=4, blocks=1, seed=v)
    penstock.train(trained, data, steps=2, batch=2, length=8, checkpoint=path, threads=1, progress=False)


def python_writers():
    """Those whose packages are there."""
    import importlib.util

    def has(name):
        return importlib.util.find_spec(name) is not None

    if not has("penstock"):
        return []
    found = {
        "Model.save": ("m.safetensors", lambda path, v: model(v).save(path)),
        "Model.save_pretrained": ("model.safetensors", lambda path, v: model(v).save_pretrained(os.path.dirname(path))),
        "Model.save_onnx": ("m.onnx", lambda path, v: model(v).save_onnx(path)),
        "Network.save": ("n.safetensors", save_network),
        "Recurrent.save_onnx": ("r.onnx", save_recurrent_onnx),
        "train(checkpoint=)": ("c.safetensors", save_checkpoint),
        "interchange: shards": ("w.safetensors", functools.partial(save_layers, max_shard_bytes=100)),
        "interchange: onnx": ("w.onnx", functools.partial(save_layers, format="onnx")),
    }
    cells = {"penstock": "minlstm", "torch": "lstm", "haste": "lstm", "lucidrains": "mingru-log", "xlstm": "slstm", "flashrnn": "lstm"}
    for form, cell in cells.items():
        found[f"interchange: {form}"] = ("w.safetensors", functools.partial(save_layers, cell=cell, format=form))
    if has("h5py"):
        for name in ("w.keras", "w.weights.h5"):
            found[f"interchange: {name[2:]}"] = (name, functools.partial(save_layers, format="keras"))
    if has("torch"):
        found["SequenceModel.save"] = ("m.safetensors", lambda path, v: torch_model(v).save(path))
    writers = [
        Writer(name, file, [sys.executable, __file__, name, "{v}"], function=functools.partial(function, f"out/{file}"))
        for name, (file, function) in found.items()
    ]
    for writer in writers:
        if writer.name == "train(checkpoint=)":
            writer.accepts, writer.side = by_program, True
        if writer.name == "interchange: keras":
            writer.accepts = keras
        if writer.name == "interchange: shards":
            writer.target, writer.whole = "w.safetensors.index.json", shards
    return writers


def main(name, v):
    import penstock

    (writer,) = [writer for writer in python_writers() if writer.name == name]
    try:
        writer.function(int(v))
    except penstock.Error as error:
        print(error, file=sys.stderr)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
