"""penstock.torch.Session: a network on a stream gives what it gives for the whole sequence."""

import copy
import io
import pickle

import pytest

import penstock

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
ours = pytest.importorskip("penstock.torch", reason="penstock is not installed")

from torch import nn  # noqa: E402


class Stepwise(nn.Module):
    """Cells called step by step."""

    def __init__(self):
        super().__init__()
        self.first, self.second = ours.LSTMCell(3, 4), nn.GRUCell(4, 2)

    def forward(self, x):
        states, h, outputs = None, None, []
        for step in x.unbind(1):
            states = self.first(step, states)
            h = self.second(states[0], h)
            outputs.append(h)
        return torch.stack(outputs, 1)


class Network(nn.Module):
    """Layers of several kinds; one runs twice."""

    def __init__(self):
        super().__init__()
        self.encoder = ours.LSTM(3, 4, num_layers=2, batch_first=True, dropout=0.5)
        self.mixer = ours.MinGRU(4, 4, batch_first=True)
        self.theirs = nn.GRU(4, 4, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        y = self.mixer(self.encoder(x)[0], None)[0]
        return self.head(self.theirs(self.mixer(y)[0])[0])


def sequence_model(tmp_path):
    (tmp_path / "text.txt").write_bytes(b"hello world " * 200)
    data = penstock.open_text(tmp_path / "text.txt")
    penstock.Model(data, width=16, blocks=2).save(tmp_path / "model")
    return ours.SequenceModel.load(tmp_path / "model")


@pytest.mark.parametrize("name", ["network", "cells", "layer", "several states", "zoneout", "trained model"])
def test_chunks_are_the_whole_sequence(name, tmp_path):
    torch.manual_seed(0)
    model = {
        "network": Network,
        "cells": Stepwise,
        "layer": lambda: ours.GRU(3, 4, batch_first=True),
        "several states": lambda: ours.SLSTM(3, 4, batch_first=True, num_heads=2),
        "zoneout": lambda: ours.regularise(ours.LSTM(3, 4, batch_first=True), zoneout=0.5),
        "trained model": lambda: sequence_model(tmp_path),
    }[name]()
    x = torch.randint(0, 256, (2, 9)) if name == "trained model" else torch.randn(2, 9, 3)
    session = ours.Session(model)
    assert not model.training
    whole = model(x)
    whole = whole[0] if isinstance(whole, tuple) else whole
    parts = x.split([4, 1, 4], 1)
    for _ in range(2):
        torch.testing.assert_close(torch.cat([session.process_chunk(part) for part in parts], 1), whole)
        session.reset_state()
    saved = io.BytesIO()
    session.process_chunk(parts[0])
    torch.save(session.state, saved)
    other = ours.Session(copy.deepcopy(model))
    other.state = torch.load(io.BytesIO(saved.getvalue()))
    torch.testing.assert_close(other.run(torch.cat(parts[1:], 1)), whole[:, 4:])
    assert not model._forward_hooks and not model._forward_pre_hooks


def test_sequences_without_rows():
    layer, x = ours.GRU(3, 4), torch.randn(6, 3)
    session = ours.Session(layer)
    torch.testing.assert_close(torch.cat([session.run(x[:2]), session.run(x[2:])]), layer(x)[0])


class Started(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = ours.GRU(3, 4)

    def forward(self, x):
        return self.layer(x, torch.zeros(1, x.shape[1], 4))[0]


def test_what_cannot_run_in_chunks_is_refused():
    for model, problem in (
        (nn.Sequential(ours.GRU(3, 4, bidirectional=True)), "0 cannot run in chunks: it reads the steps after a chunk"),
        (nn.Linear(3, 4), "model must have a recurrent layer, got Linear"),
    ):
        with pytest.raises(ValueError, match=problem):
            ours.Session(model)
    with pytest.raises(TypeError, match="model must be a torch.nn.Module, not str"):
        ours.Session("model.pt")
    with pytest.raises(ValueError, match="the model gives layer its first state, and a Session has to"):
        ours.Session(Started()).process_chunk(torch.zeros(5, 2, 3))
    session = ours.Session(ours.GRU(3, 4))
    session.process_chunk(torch.ones(5, 2, 3))
    before = session.state
    for other in (torch.zeros(5, 3, 3), torch.zeros(5, 3)):
        with pytest.raises(ValueError, match="of other rows: call reset_state"):
            session.process_chunk(other)
        assert session.state is before
    with pytest.raises(TypeError, match="cannot pickle or copy a Session"):
        pickle.dumps(session)
