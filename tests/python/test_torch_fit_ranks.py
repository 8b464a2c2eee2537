"""penstock.torch.fit in several processes on one machine, which talk through gloo."""

import json
import math
import multiprocessing
import multiprocessing.forkserver
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
penstock = pytest.importorskip("penstock", reason="penstock is not installed")
pytest.importorskip("penstock.torch", reason="PyTorch is too old")
if not torch.distributed.is_available():
    pytest.skip("this PyTorch has no torch.distributed", allow_module_level=True)

import fit_worker  # noqa: E402
from penstock.torch._fitting.batches import Batches, share  # noqa: E402
from test_torch_fit import series, text_of  # noqa: E402

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "distributed"
#: Ranks are forks of a process that has imported all that takes seconds to import.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["torch.distributed.fsdp", "torch.distributed.checkpoint", "penstock.torch._fitting.run"])
PATIENCE = 300  # seconds, after which a run counts as hung


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Ranks:
    """Processes of a case, started with the environment that a launcher gives."""

    def __init__(self, case, text, folder, size=2, port=None, only=None):
        self._case, self._folder = case, folder
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port or free_port()), "WORLD_SIZE": str(size)}
        place |= {"GLOO_SOCKET_IFNAME": "lo"}
        self._ranks = range(size) if only is None else [only]
        self.processes = [
            FORKS.Process(target=fit_worker.main, args=(case, text, folder, place | {"RANK": str(rank)}))
            for rank in self._ranks
        ]
        for each in self.processes:
            each.start()

    def end(self):
        """Waits for all. Returns what each rank wrote, by the names of the runs."""
        for each in self.processes:
            each.join(PATIENCE)
        errors = [self.errors(rank) for rank in self._ranks]
        assert [each.exitcode for each in self.processes] == [0] * len(errors), errors
        return [self.seen(rank) for rank in self._ranks]

    def errors(self, rank):
        return (self._folder / f"{self._case}.{rank}.err").read_text()

    def seen(self, rank):
        path = self._folder / f"{self._case}.{rank}.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return {record.pop("name"): record for record in map(json.loads, lines)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        multiprocessing.forkserver.ensure_running()
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def text(folder):
    path = folder / "text.txt"
    path.write_text(text_of(300))
    return path


def alone(text, stop=None, **options):
    """A run of this process with the settings of fit_worker.py. SIGTERM comes in step `stop`."""
    curve, norms = [], []

    def note(progress):
        curve.append(progress.loss)
        norms.append(progress.gradient_norm)
        if progress.step == stop:
            os.kill(os.getpid(), signal.SIGTERM)

    if text.suffix == ".csv":
        data = penstock.open_series(text, targets=["a"], horizon=2)
    else:
        data = penstock.open_text(text, validation_fraction=0.2)
    model = penstock.Model(data, width=16, blocks=2, dropout=0.2, seed=5)
    usual = {"steps": 10, "batch": 5, "length": 12, "log_every": 0, "seed": 3, "progress": False, "validate_every": 0}
    usual |= {"average": 0.9, "validate_steps": 4, "callback": note}
    result = penstock.torch.fit(model, data, **(usual | options))
    return {"curve": curve, "norms": norms, "validation": result.validation and result.validation.loss,
            "answer": fit_worker.answer_of(model)}  # fmt: skip


@pytest.fixture(scope="module")
def one(text, folder):
    """The run of one process; and one that SIGTERM ended leaves a checkpoint."""
    whole = alone(text)
    alone(text, stop=5, checkpoint=folder / "one", checkpoint_every=1000)
    return whole


def same(got, expected, first=0):
    assert "error" not in got, got["error"]
    assert got["curve"] == pytest.approx(expected["curve"][first:], rel=1e-5)
    assert got["norms"] == pytest.approx(expected["norms"][first:], rel=1e-4)  # AdamW hides a factor of all gradients
    assert got["validation"] == pytest.approx(expected["validation"], rel=1e-5)
    assert got["answer"] == pytest.approx(expected["answer"], rel=1e-3, abs=1e-3)


def test_two_ranks_learn_as_one_does(one, text, folder):
    """DDP and FSDP2 with an uneven batch, accumulation, and checkpoints of one process in two and of two in one."""
    table = alone(series(folder))
    first, second = Ranks("equal", text, folder).end()
    for name in ("series by ddp", "series by fsdp"):
        same(first[name], table)
        assert second[name]["validation"] == first[name]["validation"]
    for name, begun in (("ddp", 0), ("fsdp", 0), ("from one", 6), ("go on", 6)):
        same(first[name], one, begun)
        assert second[name]["curve"] == []  # reports are rank 0's
        assert second[name]["validation"] == first[name]["validation"]
    for rank in (first, second):  # SIGTERM came to one of them
        assert rank["stopped"]["interrupted"] and rank["stopped"]["step"] == 6
    assert sorted(path.name for path in (folder / "two").iterdir())[-1] == "step-000000010"
    for wrap in ("DistributedDataParallel", "fully_shard"):  # StableTrainer, whose decisions are the same on both
        assert first[wrap] == second[wrap] and math.isfinite(sum(first[wrap]["losses"]))
        assert "input of rank 1" in first[wrap]["where"] and "loss of rank 1" in first[wrap]["where"]
        assert [step for step, back in enumerate(first[wrap]["back"]) if back] == [25]
    last = folder / "two" / "step-000000010"
    last.rename(folder / "later")
    same(alone(text, checkpoint=folder / "two", resume=True), one, 9)


def test_ranks_read_their_rows_alone(text):
    """The rows of two ranks are those of one, over ends of the text, and from a position of the other kind of run."""

    def batches(rank, size):
        data = penstock.open_text(text, validation_fraction=0.2)
        model, group = penstock.Model(data, width=8, blocks=1), types.SimpleNamespace(rank=rank, size=size, device=torch.device("cpu"))
        return Batches(model, data, 5, 700, group)

    one, ranks, ends = batches(0, 1), [batches(0, 2), batches(1, 2)], 0
    for step in range(20):
        if step == 9:
            positions, one, ranks = [one.position(), ranks[0].position()], batches(0, 1), [batches(0, 2), batches(1, 2)]
            for each, position in zip((one, *ranks), (positions[1], *positions)):
                each.restore(position)
        whole = one.next()
        for rank, each in enumerate(ranks):
            rows, batch = share(5, 2, rank), each.next()
            assert (batch.rows, batch.weight, batch.positions) == (whole.rows, whole.weight, whole.positions)
            got, expected = batch.part(rows), whole.part(rows)
            assert got.first == expected.first
            torch.testing.assert_close((got.inputs, got.labels), (expected.inputs, expected.labels), rtol=0, atol=0)
            resets = [torch.zeros_like(part.inputs).bool() if part.reset is None else part.reset for part in (got, expected)]
            assert torch.equal(*resets)
            ends += int(resets[0].sum())
    assert ends >= 5


def test_ranks_that_differ_are_named_on_all(one, text, folder):
    processes = Ranks("different", text, folder)
    ranks = processes.end()
    for rank in ranks:
        words = {name: record.get("error", "") for name, record in rank.items()}
        assert "rank 1 of 2 (" in words["seed"] and '"seed": 4' in words["seed"] and "give every rank the same options" in words["seed"]
        assert "has Penstock's version 1.1, rank 0 has 1.0: install one version everywhere" in words["version"]
        assert "has a model " in words["model"] and "give every rank the same model, by one seed" in words["model"]
        assert "has data " in words["data"] and "steps, " in words["data"] and "give every rank the same files" in words["data"]
        assert "batch is 1 sequences, too few for 2 ranks with accumulate=1: give at least 2" in words["few"]
        assert "there is no complete checkpoint in" in words["files"]
        assert "rank 1 of 2 (" in words["step"] and "has step 5, rank 0 has 4: remove the checkpoints that only some" in words["step"]
        assert "step-000000004: this position belongs to other text data: the file or the options" in words["other text"]
        assert "have changed; give the data of that run, or another folder" in words["other text"]
        assert "layers of lstm run step by step" in words["a cell"]
        assert "rank 1 of 2 has a model with width = 5, rank 0 has 4: load the same model" in words["a width"]
        assert "rank 1 of 2 has a chunk of 2 steps, but a convolution of 4 taps reads the last 3 steps" in words["a chunk"]
        assert "rank 1 of 2 has 2 rows, rank 0 has 1: " in words["rows"]
        assert "error" not in rank["chunks"]
        assert "checkpoint checkpoint is not the folder that rank 0 sees: give one" in words["apart"]
        assert rank["missing"]["status"] == 1
        assert "the file had 70000000 bytes when it was opened and now ends" in words["shorter"]
        assert "restore it, then resume" in words["shorter"]
        assert rank["full"]["step"] == 10  # training went on
        assert "rank 1 of 2: " in rank["full"]["checkpoint_error"] and "File too large" in rank["full"]["checkpoint_error"]
    assert ranks[0]["a cell"]["error"].startswith("rank 1 of 2 cannot share its sequences: ")
    assert "rank 1 of 2 has not called share_sequences() within 0.5 s" in ranks[0]["absent"]["error"]
    assert "rank 1 of 2 (" in ranks[0]["apart"]["error"] and "has failed: IoFailure: " in ranks[1]["shorter"]["error"]
    for rank in (0, 1):
        assert "missing.txt: no such file" in processes.errors(rank) and "error: rank 1 of 2" in processes.errors(rank)
    assert [path.name for path in (folder / "full").iterdir()] == ["step-000000004"]  # what was saved is unharmed


def test_a_rank_that_ends_is_named_by_the_other(text, folder):
    begun = time.monotonic()
    runs = {case: Ranks(case, text, folder) for case in ("dies", "hangs")}
    hanging = runs["hangs"].processes
    try:
        for case in runs:
            runs[case].processes[0].join(PATIENCE)
    finally:
        os.kill(hanging[1].pid, signal.SIGKILL)
    said = {case: runs[case].errors(0) for case in runs}
    seen = {case: runs[case].seen(0).get(case, {}).get("error", "") + said[case] for case in runs}
    for case in runs:
        process = runs[case].processes[1].pid
        assert "rank 0 of 2 (" in seen[case] and "rank 1 of 2 (" in seen[case] and f"process {process})" in seen[case]
        assert "has not answered for 5 s" in seen[case] and "resume" in seen[case]
    assert hanging[0].exitcode == 1
    assert time.monotonic() - begun < 2 * PATIENCE
    for each in runs.values():
        each.processes[1].join(PATIENCE)


def test_a_port_in_use_and_a_rank_that_is_alone(text, folder):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        first = Ranks("port", text, folder, port=port, only=0)
        second = Ranks("port", text, folder, port=port, only=1)
        alone = [Ranks(case, text, folder, port=free_port(), only=rank) for rank, case in enumerate(("first", "second"))]
        words, other = (ranks.end()[0]["port"]["error"] for ranks in (first, second))
    assert "rank 1 of 2 (" in other and f"port {port} of 127.0.0.1 is in use: " in other
    assert "rank 0 of 2 (" in words and f"port {port} of 127.0.0.1 is in use: " in words and "--master-port" in words
    words, other = (ranks.end()[0]["port"]["error"] for ranks in alone)
    assert "rank 0 of 2 (" in words and "not all of 2 ranks came to 127.0.0.1:" in words and "start all of them" in words
    assert "rank 1 of 2 (" in other and "rank 0 does not answer at 127.0.0.1:" in other and "MASTER_ADDR" in other


def test_torchrun(text, tmp_path):
    """The command of the page."""
    model = tmp_path / "model.safetensors"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    options = ["--steps", "4", "--batch", "4", "--length", "16", "--width", "16", "--blocks", "1", "-o", model]
    command = [*launcher, "-m", "penstock.torch.train", text, *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    result = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert result.returncode == 0 and result.stdout.count("4 steps") == 1, result.stdout + result.stderr
    assert model.exists() and not (tmp_path / "model.safetensors.checkpoint").exists()


SRUN = """#!/usr/bin/env bash
# Starts the tasks of a job of one node on this machine.
for task in 0 1; do
  SLURM_PROCID=$task SLURM_LOCALID=$task SLURM_NTASKS=2 "$@" & tasks+=($!)
done
for task in "${tasks[@]}"; do wait "$task" || status=$?; done
exit "${status:-0}"
"""


PYTHON = """#!/usr/bin/env bash
echo "rank $RANK $LOCAL_RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT: $*"
"""


def test_the_script_for_slurm(tmp_path):
    """With an srun that starts its tasks here, and a Python that says what torchrun would have told it."""
    for name, text in (("srun", SRUN), ("python", PYTHON)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    place = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "DEVICE": "cpu", "OUTPUT": "a model"}
    environment = {**os.environ, **place, "MASTER_ADDR": "here", "SLURM_JOB_ID": "50007"}

    def said():
        command = ["bash", EXAMPLES / "slurm.sh", "a text", "--steps", "3"]
        result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
        assert result.returncode == 0, result.stderr
        return sorted(result.stdout.splitlines())

    options = "-m penstock.torch.train --device cpu --output a model"
    ranks = [f"rank {rank} {rank} of 2 at here:10007: {options}" for rank in range(2)]
    assert said() == [f"{rank} a text --steps 3" for rank in ranks]
    (tmp_path / "a model.checkpoint" / "step-000000002").mkdir(parents=True)
    assert said() == [f"{rank} a text --steps 3" for rank in ranks]  # that checkpoint is not complete
    (tmp_path / "a model.checkpoint" / "step-000000002" / ".metadata").touch()
    assert said() == [f"{rank} --resume a text --steps 3" for rank in ranks]


def test_the_manifest_for_kubernetes():
    """Its form, and the script in it as bash reads it; no operator is here."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    job = yaml.safe_load((EXAMPLES / "pytorchjob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert set(replicas) == {"Master", "Worker"} and replicas["Master"]["replicas"] == 1
    for replica in replicas.values():
        pod = replica["template"]["spec"]
        (container,) = pod["containers"]
        assert container["name"] == "pytorch"  # where the operator sets the environment
        assert str(container["resources"]["limits"]["nvidia.com/gpu"]) == job["spec"]["nprocPerNode"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
        (script,) = container["args"]
        assert container["command"] == ["bash", "-c"] and "-m penstock.torch.train " in script
        assert subprocess.run(["bash", "-n", "-c", script], check=False).returncode == 0
