"""penstock.torch in several processes under torchrun, which talk through gloo."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
ours = pytest.importorskip("penstock.torch", reason="penstock is not installed")
if not torch.distributed.is_available():
    pytest.skip("this PyTorch has no torch.distributed", allow_module_level=True)

from penstock.torch import _sequence_parallel  # noqa: E402

WORKER = pathlib.Path(__file__).with_name("distributed_worker.py")
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "pytorch.md"


def example_of_the_page():
    """The page's example of several processes, for a group that is there already."""
    (code,) = [c for c in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "init_process_group" in c]
    code, count = re.subn(r"distributed\.(init|destroy)_process_group\(.*\)\n", "", code)
    assert count == 2
    return code


def test_processes(tmp_path):
    """Scans and layers over chunks of one sequence, in three processes and in two of them; DistributedDataParallel,
    fully_shard; the page's example. One start for all: each process imports PyTorch for seconds."""
    script = tmp_path / "chunks.py"
    script.write_text(example_of_the_page())
    (tmp_path / "data").symlink_to(PAGE.parents[1] / "data")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3", WORKER, script]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("rows, channels, wanted", [(1, 1, 16), (3, 5, 16), (1, 1000, 16), (4, 64, 16), (100, 7, 16)])
def test_groups_hold_everything_once(rows, channels, wanted):
    count = torch.zeros(rows, channels, dtype=torch.int64)
    groups = _sequence_parallel.groups_of(rows, channels, wanted)
    for r, c in groups:
        assert count[r, c].numel() > 0
        count[r, c] += 1
    assert (count == 1).all() and len(groups) <= wanted + rows


def test_a_process_group_needs_processes():
    a = torch.ones(1, 3, 2)
    with pytest.raises(RuntimeError, match="init_process_group"):
        ours.scan(a, a, process_group=object())
    with pytest.raises(RuntimeError, match="init_process_group"):
        ours.MinGRU(2, 3, process_group=object())(a)


@pytest.mark.parametrize("settings, words", [({"cell": "lstm"}, "layers of lstm run step by step"), ({"from_last": True}, "without filters or changes")])
def test_models_that_cannot_share_sequences(settings, words):
    spec = {"cell": "mingru", "width": 4, "blocks": 1, "hidden_size": 0, "heads": 1, "convolution": 4, "feed_forward": 0,
            "dropout": 0.0, **settings}  # fmt: skip
    data = {"inputs": [], "targets": [], "classes": [], "vocabulary": 5, "horizon": 0}
    model = ours.SequenceModel(spec, data)
    with pytest.raises(ValueError, match=words):
        model.share_sequences(object())
