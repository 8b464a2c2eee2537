"""penstock.torch.fit on a GPU. Two ranks share it through gloo, since NCCL gives each rank a GPU of its own.

`torchrun --standalone --nproc-per-node=2 test_torch_fit_cuda.py FOLDER` runs ranks().
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)
penstock = pytest.importorskip("penstock", reason="penstock is not installed")
ours = pytest.importorskip("penstock.torch", reason="PyTorch is too old")

from torch.distributed import checkpoint as dcp  # noqa: E402

from penstock.torch._fitting import trainer  # noqa: E402

TEXT = pathlib.Path(__file__).parents[2] / "data" / "kjv.txt"
CELLS = ("mingru", "lstm")
STEPS, FIRST_STOP, SECOND_STOP = 60, 19, 39
PATIENCE = 120  # seconds, after which ranks count as hung


def fit(cell, stop=None, device="cuda", train=ours.fit, **options):
    """Trains a small model. Returns {step: [loss, norm of the gradient]}. SIGTERM comes in step `stop`."""
    curve = {}

    def note(progress):
        if not progress.warning:
            curve[progress.step] = [progress.loss, progress.gradient_norm]
        if progress.step == stop:
            os.kill(os.getpid(), signal.SIGTERM)

    data = penstock.open_text(TEXT, bytes=True, validation_fraction=0.001)
    model = penstock.Model(data, cell=cell, width=256, blocks=2, dropout=0.1, seed=5)
    usual = {"steps": STEPS, "batch": 16, "length": 128, "log_every": 0, "seed": 3, "progress": False, "validate_every": 0}
    usual |= {"precision": "full", "keep_best": False, "callback": note, "device": device,
              "checkpoint_every": 1000}  # fmt: skip
    train(model, data, **(usual | options))
    return curve


def ranks(folder):
    """Trains on this rank: from the first step on, and from the checkpoint of a process that was alone."""
    os.environ["LOCAL_RANK"] = "0"  # the GPU of both
    torch.distributed.init_process_group("cpu:gloo,cuda:gloo")
    for cell in CELLS:
        runs = {"whole": fit(cell), "middle": fit(cell, SECOND_STOP, checkpoint=folder / cell, resume=True)}
        if torch.distributed.get_rank() == 0:
            (folder / f"{cell}.json").write_text(json.dumps(runs))


def apart(got, expected):
    """Returns the largest relative difference of the losses and of the norms."""
    pairs = [(got[step], expected[step]) for step in got]
    return [max(abs(mine[i] - theirs[i]) / theirs[i] for mine, theirs in pairs) for i in (0, 1)]


def test_two_ranks_and_runs_that_change_their_number_learn_as_one_rank(tmp_path):
    """By DistributedDataParallel: with PyTorch 2.11, FSDP2 crashes where gloo exchanges tensors of a GPU."""
    alone = {cell: fit(cell) for cell in CELLS}
    first = {cell: fit(cell, FIRST_STOP, checkpoint=tmp_path / cell) for cell in CELLS}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", __file__, str(tmp_path)]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "2"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert result.returncode == 0, result.stdout + result.stderr
    for cell, expected in alone.items():
        seen = json.loads((tmp_path / f"{cell}.json").read_text())
        whole, middle = ({int(step): values for step, values in seen[name].items()} for name in ("whole", "middle"))
        last = fit(cell, checkpoint=tmp_path / cell, resume=True)
        assert (min(middle), min(last)) == (FIRST_STOP + 2, SECOND_STOP + 2)
        for name, got in (("two ranks", whole), ("one, two, one", first[cell] | middle | last)):
            loss, norm = apart(got, expected)
            print(f"{cell}, {name}: losses differ by {loss:.1e}, norms by {norm:.1e}")
            assert list(got) == list(expected) and loss < 1e-5 and norm < 1e-4


@pytest.mark.parametrize("precision", ["full", "bf16"])
def test_a_checkpoint_written_beside_the_training_has_the_bits_of_its_step(tmp_path, monkeypatch, precision):
    """Later steps change the tensors before the thread that writes begins to copy them to the host."""
    kept, later, save = {}, threading.Event(), dcp.save

    def save_if_due(self):
        if self.step == 5:
            kept.update({name: t.detach().cpu().clone() for name, t in self.tensors().items()})
            self.save(wait=False)
        elif self.step == 15:
            torch.cuda.synchronize()
            later.set()

    def wait_and_save(*given, **named):
        assert later.wait(PATIENCE)
        return save(*given, **named)

    monkeypatch.setattr(trainer.Trainer, "_save_if_due", save_if_due)
    monkeypatch.setattr(dcp, "save", wait_and_save)
    fit("lstm", checkpoint=tmp_path, precision=precision, steps=20, average=0.9)
    got = {name: torch.zeros_like(t) for name, t in kept.items()}
    dcp.load(got, checkpoint_id=tmp_path / "step-000000005", no_dist=True)
    kinds = {name.split(".")[0] for name in kept}
    assert kinds == {"model", "optimizer", "average", "carried"} and all(torch.equal(got[name], t) for name, t in kept.items())


def test_muon_of_penstock_train_is_that_of_a_gpu_in_floats(monkeypatch):
    """PyTorch's Muon multiplies in bfloat16, penstock.train in float32."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda self: self)
    options = {"optimizer": "muon", "steps": 100, "learning_rate": 1e-3, "clip": 0.0, "batch": 4, "length": 32}
    expected = fit("gru", device="cpu", train=penstock.train, **options)
    loss, norm = apart(fit("gru", **options), expected)
    print(f"muon: losses differ by {loss:.1e}, norms by {norm:.1e}")
    # Five steps of Newton and Schulz enlarge the rounding of small singular values by up to 3.4 ** 5.
    assert loss < 485 * 2**-22


if __name__ == "__main__":
    ranks(pathlib.Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # as penstock.torch.train does
