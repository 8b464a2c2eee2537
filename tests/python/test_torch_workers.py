"""penstock.torch in children of fork(): processes of multiprocessing and workers of a DataLoader.

A child has none of its parent's threads, so the parent computes with several of them first. A time-out ends what hangs.
"""

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("penstock.torch", reason="penstock is not installed")

PARENT = """
import multiprocessing
import torch
from torch.utils.data import DataLoader, Dataset
from penstock.torch import LSTM, MinGRU, scan

torch.manual_seed(0)
torch.set_num_threads(4)
layers = [LSTM(64, 256, batch_first=True), MinGRU(64, 256, batch_first=True)]
x = torch.randn(16, 100, 64)


def outputs():
    a = torch.full((4, 20_000, 64), 0.5)
    with torch.no_grad():
        return [*(layer(x)[0] for layer in layers), scan(a, a)[0][:, -1]]


def gradients():
    for layer in layers:
        layer.zero_grad()
        layer(x)[0].square().mean().backward()
    return [p.grad.clone() for layer in layers for p in layer.parameters()]


class Answers(Dataset):
    # Work of a worker: embeddings by a frozen layer, and gradients.
    def __len__(self):
        return 4

    def __getitem__(self, i):
        torch.set_num_threads(THREADS)
        return (outputs() + gradients())[i::4]


expected = outputs() + gradients()
for epoch in range(2):
    loader = DataLoader(Answers(), batch_size=None, num_workers=2, timeout=60, multiprocessing_context="fork")
    for i, answers in enumerate(loader):
        for got, want in zip(answers, expected[i::4]):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    for got, want in zip(outputs() + gradients(), expected):  # the parent goes on
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
"""


@pytest.mark.parametrize("threads", [1, 3])
def test_workers_of_a_data_loader_compute_what_their_parent_does(threads):
    script = PARENT.replace("THREADS", str(threads))
    environment = {**os.environ, "OMP_NUM_THREADS": "4"}
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=150, env=environment
    )
    assert result.returncode == 0, result.stderr
