"""Feeds damaged files to every reader of the Python package, and counts what comes of it.

    python tests/faults/readers.py                 # every bit and every length of small files, and 20,000 mutations each
    python tests/faults/readers.py --cases 200     # a sample
    python tests/faults/readers.py --only keras

A reader may accept a file or refuse it by a documented exception (DOCUMENTED; of tables also InvalidArgument, where a
column that the caller names is gone). A crash, a case of more than ten
seconds, more memory than the limit, and any other exception are faults; so is a flipped bit that is accepted in a format
with a checksum. Readers run in a child process with a limit on its memory.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import mmap
import os
import pathlib
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable

import numpy as np
import penstock
from penstock import interchange

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cli"))

from program import BIN

LIMIT_SECONDS = 10  # of one case
DOCUMENTED = (penstock.BadInput, penstock.Incompatible, penstock.Unsupported, penstock.IoFailure)
LIMIT_BYTES = 1 << 30  # of addresses beyond what the process has when it starts
OUTCOMES = ("accepted", "refused", "exceptions", "crashes", "hangs")


@dataclasses.dataclass
class Format:
    """One reader, with a small sound file for it."""

    name: str
    file: str
    read: Callable[[pathlib.Path], object]
    checksum: bool = False  # whether no damage at all may be accepted
    refusals: tuple[type[BaseException], ...] = DOCUMENTED


def weights(cell="lstm"):
    rng = np.random.default_rng(1)
    gates = {"lstm": 4, "gru": 3}[cell]
    shapes = {"weight_ih_l0": (gates * 2, 2), "weight_hh_l0": (gates * 2, 2), "bias_ih_l0": (gates * 2,), "bias_hh_l0": (gates * 2,)}
    return interchange.RecurrentWeights(cell, {n: rng.normal(size=s).astype(np.float32) for n, s in shapes.items()})


def read_series(path):
    return penstock.open_series(path, inputs=["level"])


class StateReader:
    """Goes on with a stream by the program, which refuses a state with status 1 or 2."""

    def __init__(self, model: bytes):
        self.model = model

    def __call__(self, path):
        model = path.with_name("model.safetensors")
        if not model.exists():
            model.write_bytes(self.model)
        command = [BIN, "stream", model, "--state", path]
        result = subprocess.run(command, input=b"more", capture_output=True, timeout=LIMIT_SECONDS, check=False)
        if result.returncode in (1, 2):
            raise penstock.BadInput(result.stderr.decode(errors="replace"))
        if result.returncode != 0:
            raise RuntimeError(f"the program ended with {result.returncode}")


def formats(folder: pathlib.Path) -> list[Format]:
    """Writes the sound files. Formats whose package is missing are left out."""
    (folder / "text.txt").write_bytes(b"small files are enough for this " * 20)
    rows = "".join(f"{day},{day % 7}.5,{'ab'[day % 2]}\n" for day in range(60))
    (folder / "series.csv").write_text("day,level,kind\n" + rows)
    (folder / "labelled.csv").write_text(
        "sequence,label,value\n" + "".join(f"{s},{'ab'[s % 2]},{s}.{t}\n" for s in range(8) for t in range(4))
    )
    (folder / "series.jsonl").write_text("".join(json.dumps({"day": d, "level": d % 7}) + "\n" for d in range(60)))
    data = penstock.open_text(folder / "text.txt")
    model = penstock.Model(data, cell="gru", width=2, blocks=1, seed=1)
    model.save(folder / "model.safetensors")
    quiet = {"threads": 1, "progress": False}
    penstock.train(model, data, steps=2, batch=2, length=8, checkpoint=folder / "checkpoint.safetensors", **quiet)
    interchange.save(folder / "layer.safetensors", weights())
    interchange.save(folder / "stack.safetensors", weights(), format="penstock")
    found = [
        Format("model", "model.safetensors", penstock.Model.load, True),
        Format("checkpoint", "checkpoint.safetensors", penstock.Model.load, True),
        Format("safetensors, layer", "layer.safetensors", interchange.load, True),
        Format("safetensors, stack", "stack.safetensors", interchange.load, True),
        Format("table, series", "series.csv", read_series, refusals=(*DOCUMENTED, penstock.InvalidArgument)),
        Format("table, labelled", "labelled.csv", penstock.open_labelled, refusals=(*DOCUMENTED, penstock.InvalidArgument)),
        Format("JSON lines", "series.jsonl", read_series, refusals=(*DOCUMENTED, penstock.InvalidArgument)),
    ]
    if BIN.exists():
        subprocess.run(
            [BIN, "stream", folder / "model.safetensors", "--state", folder / "state.json"],
            input=b"some bytes",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        found.append(Format("stream state", "state.json", StateReader((folder / "model.safetensors").read_bytes()), True))
    with contextlib.suppress(ImportError):
        import torch
        from penstock.torch import SequenceModel

        torch.set_num_threads(1)
        state = {f"rnn.{name}": torch.from_numpy(array) for name, array in weights().tensors.items()}
        torch.save(state, folder / "zip.pt")
        torch.save(state, folder / "pickle.pt", _use_new_zipfile_serialization=False)
        found.append(Format("model, PyTorch", "model.safetensors", SequenceModel.load, True))
        found += [Format(f"PyTorch, {kind}", f"{kind}.pt", interchange.load) for kind in ("zip", "pickle")]
    with contextlib.suppress(ImportError):
        import h5py  # noqa: F401

        interchange.save(folder / "layer.keras", weights(), format="keras")
        interchange.save(folder / "layer.weights.h5", weights("gru"), format="keras")
        found += [Format(f"Keras, {name}", name, interchange.load) for name in ("layer.keras", "layer.weights.h5")]
    with contextlib.suppress(ImportError):
        import onnx

        tensors, attributes = interchange.to_onnx(weights("gru"))
        stored = [onnx.numpy_helper.from_array(array, name) for name, array in tensors.items()]
        node = onnx.helper.make_node(attributes.pop("op_type"), ["x", "W", "R", "B"], ["y"], **attributes)
        given = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["t", "b", 2])]
        made = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
        graph = onnx.helper.make_graph([node], "g", given, made, stored)
        (folder / "layer.onnx").write_bytes(onnx.helper.make_model(graph).SerializeToString())
        found.append(Format("ONNX", "layer.onnx", interchange.load))
    return found


def flipped(sound: bytes, case: int) -> bytes:
    content = bytearray(sound)
    content[case // 8] ^= 1 << case % 8
    return bytes(content)


def mutated(sound: bytes, case: int) -> bytes:
    """A few changes that depend on `case` alone."""
    rng, content = random.Random(case), bytearray(sound)
    for _ in range(rng.randint(1, 6)):
        place = rng.randrange(len(content) + 1)
        length = rng.choice([1, 2, 4, 8, rng.randint(1, 64)])
        part = bytes(content[place : place + length])
        kind = rng.randrange(5)
        if kind == 0:
            content[place : place + length] = rng.randbytes(length)
        elif kind == 1:
            number = rng.choice([0, 1, 0x7F, 0xFF, 0x7FFF, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1])
            content[place : place + 8] = struct.pack(rng.choice("<>") + "Q", number)
        elif kind == 2:
            del content[place : place + length]
        elif kind == 3:
            content[place:place] = part * rng.choice([1, 2, 50])
        else:
            other = rng.randrange(len(content) + 1)
            content[other : other + len(part)] = part
    return bytes(content)


def damages(sound: bytes, sample: int | None, mutations: int):
    """(name, function of the case, cases): every bit, every length, and mutations; or a sample of each."""
    for name, change, count in [
        ("bits", flipped, 8 * len(sound)),
        ("lengths", lambda content, case: content[:case], len(sound)),
        ("mutations", mutated, mutations),
    ]:
        cases = range(count)
        yield name, change, cases if sample is None or sample >= count else sorted(random.Random(7).sample(cases, sample))


class Counts(dict):
    """Outcomes, and what each fault was."""

    def __init__(self):
        super().__init__(dict.fromkeys(OUTCOMES, 0))
        self.faults: list[str] = []


def _address_space() -> int:
    return int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE


def _child(form, sound, change, cases, begin, shared, folder, faults):
    """Reads the cases from `begin` on, and never returns. `shared` holds the case that is read and the counts."""
    devnull = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(devnull, descriptor)
    warnings.simplefilter("ignore")
    limit = _address_space() + LIMIT_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    path = folder / form.file
    for number in range(begin, len(cases)):
        struct.pack_into("<q", shared, 0, number)
        content = change(sound, cases[number])
        path.write_bytes(content)
        try:
            form.read(path)
            place = 0
            if form.checksum and content != sound:
                os.write(faults, f"case {cases[number]} is accepted\n".encode())
        except form.refusals:
            place = 1
        except BaseException as error:  # what no reader may raise
            place = 2
            os.write(faults, f"case {cases[number]}: {type(error).__name__}: {error}\n".encode("utf8", "replace"))
        count = struct.unpack_from("<q", shared, 8 + 8 * place)[0]
        struct.pack_into("<q", shared, 8 + 8 * place, count + 1)
    os._exit(0)


def _watch(child: int, shared) -> tuple[int | None, int]:
    """(how the child ended, the case it was at); None where it took too long, and was ended."""
    case, since = -1, time.monotonic()
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        now = struct.unpack_from("<q", shared, 0)[0]
        if ended:
            return status, now
        if now != case:
            case, since = now, time.monotonic()
        elif time.monotonic() - since > LIMIT_SECONDS:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None, now
        time.sleep(0.01)


def campaign(form: Format, sound: bytes, change, cases, folder: pathlib.Path) -> Counts:
    """Reads each case once. After a crash or a hang a new child goes on behind it."""
    counts, begin = Counts(), 0
    while begin < len(cases):
        with mmap.mmap(-1, mmap.PAGESIZE) as shared, tempfile.TemporaryFile() as faults:
            child = os.fork()
            if child == 0:
                try:
                    _child(form, sound, change, cases, begin, shared, folder, faults.fileno())
                finally:
                    os._exit(99)
            status, number = _watch(child, shared)
            for place, outcome in enumerate(OUTCOMES[:3]):
                counts[outcome] += struct.unpack_from("<q", shared, 8 + 8 * place)[0]
            faults.seek(0)
            counts.faults += faults.read().decode(errors="replace").splitlines()
        if status == 0:
            break
        outcome = "hangs" if status is None else "crashes"
        counts[outcome] += 1
        counts.faults.append(f"case {cases[number]}: {outcome}, status {status}")
        begin = number + 1
    return counts


def run(sample: int | None, mutations: int, only: str = "", out=sys.stdout) -> list[str]:
    """Prints the table, and returns the faults."""
    faults = []
    print("| reader | bytes | damage | cases | " + " | ".join(OUTCOMES) + " |", file=out)
    print("|---" * (4 + len(OUTCOMES)) + "|", file=out, flush=True)
    with tempfile.TemporaryDirectory() as name:
        for form in formats(pathlib.Path(name)):
            if only not in form.name:
                continue
            sound = (pathlib.Path(name) / form.file).read_bytes()
            for damage, change, cases in damages(sound, sample, mutations):
                with tempfile.TemporaryDirectory() as folder:
                    counts = campaign(form, sound, change, cases, pathlib.Path(folder))
                numbers = " | ".join(f"{counts[outcome]:,}" for outcome in OUTCOMES)
                print(f"| {form.name} | {len(sound):,} | {damage} | {len(cases):,} | {numbers} |", file=out, flush=True)
                faults += [f"{form.name}, {damage}, {fault}" for fault in counts.faults]
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, help="a sample of this size of each kind of damage [all]")
    parser.add_argument("--mutations", type=int, default=20_000, help="mutations of each file [20000]")
    parser.add_argument("--only", default="", help="readers whose names contain this")
    arguments = parser.parse_args()
    faults = run(arguments.cases, arguments.mutations, arguments.only)
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"\n{len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
