"""penstock.torch.StableTrainer: what a step does, and what it leaves alone."""

import math
import pickle

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
ours = pytest.importorskip("penstock.torch", reason="penstock is not installed")

from torch import nn  # noqa: E402

torch.set_num_threads(1)


class Model(nn.Module):
    """Two layers and a head."""

    def __init__(self, hidden=16):
        super().__init__()
        self.lstm = ours.LSTM(3, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, 2)

    def forward(self, x):
        return self.head(self.lstm(x)[0])


def batch():
    torch.manual_seed(1)
    x = torch.randn(8, 12, 3)
    return x, torch.stack([x.cumsum(1)[..., 0].tanh(), x[..., 1]], -1)


@pytest.fixture
def trainer():
    torch.manual_seed(0)
    return ours.StableTrainer(Model())


def snapshot(trainer):
    return [p.detach().clone() for p in trainer.model.parameters()]


def unchanged(trainer, before):
    return all(torch.equal(p, b) for p, b in zip(trainer.model.parameters(), before))


def test_arguments_in_the_wrong_place():
    model = Model()
    by_name = r"StableTrainer\(model, learning_rate=1e-3, clip=1.0\)"
    with pytest.raises(TypeError, match=r"loss must be a function loss\(output, y\), not 0.001.*" + by_name):
        ours.StableTrainer(model, 1e-3, 1.0)
    with pytest.raises(TypeError, match="optimizer must be an optimiser, not 1.0.*" + by_name):
        ours.StableTrainer(model, None, 1.0)
    with pytest.raises(TypeError, match="model must be a torch.nn.Module, not 'model.pt'"):
        ours.StableTrainer("model.pt")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(ValueError, match="learning_rate=0.01 is that of the default optimiser: give it to optimizer"):
        ours.StableTrainer(model, optimizer=optimizer, learning_rate=0.01)
    with pytest.raises(TypeError, match="cannot pickle or copy a StableTrainer: .*state_dict"):
        pickle.dumps(ours.StableTrainer(model))


def test_learns(trainer):
    x, y = batch()
    losses = [trainer.train_step(x, y)["loss"] for _ in range(150)]
    assert losses[-1] < 0.5 * losses[0]
    assert trainer.steps == 150 and trainer.skipped == 0


def test_is_adam_with_the_norm_clipped_to_one(trainer):
    x, y = batch()
    y = y * 100
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        report = trainer.train_step(x, y)
        assert math.isclose(report["grad_norm"], norm.item(), rel_tol=1e-5) and report["grad_norm"] > 1
        assert report["clipped_norm"] == 1.0
    for mine, theirs in zip(trainer.model.parameters(), model.parameters()):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_inputs_and_targets_out_of_range(trainer, bad):
    x, y = batch()
    trainer.train_step(x, y)
    before = snapshot(trainer)
    for place, tensor in (("input", x), ("target", y)):
        other = tensor.clone()
        other[2, 3, 1] = bad
        report = trainer.train_step(*((other, y) if place == "input" else (x, other)))
        assert report["skipped"] and report["where"] == [place] and report["grad_norm"] is None
        assert unchanged(trainer, before)
    assert trainer.skipped == 2 and not trainer.train_step(x, y)["skipped"]


def test_outputs_out_of_range(trainer):
    x, y = batch()
    with torch.no_grad():
        trainer.model.head.bias[0] = float("inf")
    before = snapshot(trainer)
    report = trainer.train_step(x, y)
    assert report["skipped"] and "output" in report["where"]
    assert unchanged(trainer, before)


def test_gradients_out_of_range_are_named(trainer):
    x, y = batch()
    trainer.model.head.weight.register_hook(lambda g: g * float("nan"))
    before = snapshot(trainer)
    report = trainer.train_step(x, y)
    assert report["skipped"] and report["where"] == ["gradient of head.weight"]
    assert math.isfinite(report["loss"]) and unchanged(trainer, before)


def test_losses_out_of_range():
    trainer = ours.StableTrainer(Model(), lambda output, y: output.sum() * float("inf"))
    assert trainer.train_step(*batch())["where"] == ["loss"]


def test_classes_are_learnt_by_cross_entropy():
    torch.manual_seed(0)
    trainer = ours.StableTrainer(Model(), learning_rate=1e-2)
    x, y = batch()
    classes = (y[..., 1] > 0).long()
    losses = [trainer.train_step(x, classes)["loss"] for _ in range(60)]
    assert losses[0] > 0.6 and losses[-1] < 0.3


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_two_layers_in_mixed_precision(precision):
    torch.manual_seed(0)
    trainer = ours.StableTrainer(Model(32), precision=precision)
    x, y = batch()
    reports = [trainer.train_step(x, y) for _ in range(60)]
    taken = [r for r in reports if not r["skipped"]]
    assert len(taken) > 40 and taken[-1]["loss"] < taken[0]["loss"]
    assert all(r["clipped_norm"] <= 1.0 for r in taken)
    assert (reports[0]["scale"] > 1) == (precision is torch.float16)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="clip must be positive"):
        ours.StableTrainer(Model(), clip=0.0)
    with pytest.raises(ValueError, match="precision must be"):
        ours.StableTrainer(Model(), precision=torch.float32)


def test_a_packed_sequence_is_a_batch():
    torch.manual_seed(0)
    packed = nn.utils.rnn.pack_sequence([torch.randn(n, 3) for n in (5, 2)])
    trainer = ours.StableTrainer(ours.GRU(3, 4), loss=lambda output, y: (output.data - y).square().mean(), learning_rate=0.1)
    losses = [trainer.train_step(packed, torch.zeros(7, 4))["loss"] for _ in range(10)]
    assert losses[-1] < 0.5 * losses[0]
    packed.data[0, 0] = math.nan
    assert trainer.train_step(packed, torch.zeros(7, 4))["where"] == ["input"]
