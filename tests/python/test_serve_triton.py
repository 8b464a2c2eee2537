"""Model repositories of penstock.serve: the configuration, and the ONNX file run as Triton's sequence batcher does."""

import json
import subprocess
import sys

import numpy as np
import pytest
from trained_models import folder, forecaster, language  # noqa: F401: fixtures

import penstock

ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")

from test_onnx import tolerance  # noqa: E402

from penstock.serve._triton import write_repository  # noqa: E402


@pytest.fixture(scope="module")
def repository(forecaster, tmp_path_factory):
    folder = tmp_path_factory.mktemp("repository")
    assert write_repository(forecaster, folder, "series", normalised=True, max_batch=4) == folder / "series"
    return folder / "series"


def test_the_configuration_names_the_state(repository, forecaster):
    lines = (repository / "config.pbtxt").read_text().splitlines()[1:]
    size = penstock.Session(forecaster).state.size
    assert "\n".join(lines) == f"""name: "series"
backend: "onnxruntime"
max_batch_size: 4
input {{ name: "features" data_type: TYPE_FP32 dims: [-1, 2] }}
output {{ name: "forecast" data_type: TYPE_FP32 dims: [-1, 2, 2] }}
sequence_batching {{
  max_sequence_idle_microseconds: 3600000000
  oldest {{ max_candidate_sequences: 100000 }}
  state {{
    input_name: "state"
    output_name: "next_state"
    data_type: TYPE_FP32 dims: [{size}]
    initial_state {{ name: "start" data_type: TYPE_FP32 dims: [{size}] zero_data: true }}
  }}
}}"""


def schema():
    """Triton's schema of configurations. tritonclient.grpc would import grpc, which it does not need."""
    import importlib.util

    client = pytest.importorskip("tritonclient", reason="tritonclient, which holds ml-dtypes back, is not installed: tools/test_serving.sh runs this")
    path = f"{client.__path__[0]}/grpc/model_config_pb2.py"
    specification = importlib.util.spec_from_file_location("model_config_pb2", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", ["series", "text"])
def test_the_configuration_keeps_to_the_schema_and_the_file(kind, forecaster, language, tmp_path):
    types = schema()
    from google.protobuf import text_format

    place = write_repository(forecaster if kind == "series" else language, tmp_path, "model")
    config = text_format.Parse((place / "config.pbtxt").read_text(), types.ModelConfig())
    session = ort.InferenceSession(place / "1" / "model.onnx")
    (state,) = config.sequence_batching.state
    (initial,) = state.initial_state
    named = {
        **{each.name: each for each in (*config.input, *config.output)},
        state.input_name: state, state.output_name: state,
    }  # fmt: skip
    tensors = [*session.get_inputs(), *session.get_outputs()]
    assert sorted(named) == sorted(tensor.name for tensor in tensors)
    for tensor in tensors:
        told = named[tensor.name]
        assert list(told.dims) == [-1 if isinstance(extent, str) else extent for extent in tensor.shape[1:]]
        number = {"tensor(float)": types.TYPE_FP32, "tensor(int64)": types.TYPE_INT64, "tensor(double)": types.TYPE_FP64}
        assert told.data_type == number[tensor.type]
        assert isinstance(tensor.shape[0], str)  # the batch
    assert initial.zero_data and (list(initial.dims), initial.data_type) == (list(state.dims), state.data_type)


class Batcher:
    """Triton's batcher in mode `oldest` over a model with implicit state: requests of one sequence run in order, one at a
    time; those of several sequences run as a batch. A start makes the state zeros, an end drops it."""

    def __init__(self, path, state_size, max_batch):
        self.session, self.max_batch = ort.InferenceSession(path), max_batch
        self.zeros = np.zeros(state_size, np.float32)
        self.states, self.requests, self.answers, self.batches = {}, [], {}, []

    def request(self, sequence, values, start=False, end=False):
        self.requests.append((sequence, values, start, end))

    def run(self):
        while self.requests:
            batch = {}
            for request in self.requests:  # the oldest request of each sequence
                if request[0] not in batch and len(batch) < self.max_batch:
                    batch[request[0]] = request
            for sequence, _, start, _ in batch.values():
                assert start != (sequence in self.states)
                if start:
                    self.states[sequence] = self.zeros
            feed = {"features": np.stack([b[1] for b in batch.values()]), "state": np.stack([self.states[s] for s in batch])}
            answers, states = self.session.run(["forecast", "next_state"], feed)
            self.batches.append(len(batch))
            for position, request in enumerate(batch.values()):
                self.requests.remove(request)
                self.answers.setdefault(request[0], []).append(answers[position])
                self.states[request[0]] = states[position]
                if request[3]:
                    del self.states[request[0]]


def test_sequences_in_batches_are_those_of_sessions(repository, forecaster):
    random = np.random.default_rng(4)
    batcher = Batcher(repository / "1" / "model.onnx", penstock.Session(forecaster).state.size, 4)
    lengths = {name: int(length) for name, length in zip("abcdefghij", random.integers(1, 9, 10))}
    rows = {name: random.standard_normal((length, 1, 2)).astype(np.float32) for name, length in lengths.items()}
    turns = [name for name, length in lengths.items() for _ in range(length)]
    random.shuffle(turns)
    taken = dict.fromkeys(rows, 0)
    for number, name in enumerate(turns):
        step = taken[name]
        batcher.request(name, rows[name][step], start=step == 0, end=step == lengths[name] - 1)
        taken[name] += 1
        if number % 7 == 0:
            batcher.run()
    batcher.run()
    assert max(batcher.batches) == 4 and not batcher.states
    for name, steps in rows.items():
        alone = penstock.Session(forecaster)
        expected = np.stack([alone.push(step[0]) for step in steps])
        got = np.stack(batcher.answers[name]).reshape(expected.shape)
        np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance(forecaster, expected, len(steps)))


def test_the_command_writes_a_repository_in_units_of_the_data(forecaster, folder, tmp_path):
    command = [sys.executable, "-m", "penstock.serve", str(folder / "series.safetensors"), "--triton", str(tmp_path / "models"), "--name", "sensors"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{tmp_path}/models/sensors: tritonserver --model-repository={tmp_path}/models\n"
    session = ort.InferenceSession(tmp_path / "models" / "sensors" / "1" / "model.onnx")
    assert json.loads(session.get_modelmeta().custom_metadata_map["inputs"]) == ["level", "flow"]
    refused = subprocess.run([*command[:-1], "a/b"], capture_output=True, text=True)
    assert (refused.returncode, refused.stderr) == (1, "penstock.serve: name must have letters, digits, '_', '-' and '.', not 'a/b'\n")


def test_arguments_are_checked(forecaster, tmp_path):
    with pytest.raises(penstock.InvalidArgument, match="max_batch must be at least 1, not 0"):
        write_repository(forecaster, tmp_path, "m", max_batch=0)
    for arguments, said in [
        ({}, "model must be the file of a model, not ''"),
        ({"model": "m", "capacity": 0}, "capacity must be at least 1, not 0"),
        ({"model": "m", "keep_s": float("nan")}, "keep_s must be at least 1, not nan"),
        ({"model": "m", "min_replicas": 2}, "max_replicas must be at least min_replicas, 2, not 1"),
        ({"model": "m", "replicas": 2}, "unknown argument of the application .*it has model, capacity"),
    ]:
        with pytest.raises(penstock.InvalidArgument, match=said):
            penstock.serve.build(arguments)
