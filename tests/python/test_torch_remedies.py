"""penstock.torch: StableTrainer on unstable runs, and initial weights."""

import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
ours = pytest.importorskip("penstock.torch", reason="penstock is not installed")

from torch import nn  # noqa: E402

import penstock  # noqa: E402

torch.set_num_threads(1)


class Model(nn.Module):
    """A recurrent layer and a head."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.head = nn.Linear(layer.hidden_size, 1)

    def forward(self, x):
        return self.head(self.layer(x)[0])


def batches(count, bad=(), factor=1e4):
    """Sums of inputs; the batches of these numbers are far from the others."""
    torch.manual_seed(1)
    for number in range(count):
        x = torch.randn(8, 12, 2)
        scale = factor if number in bad else 1.0
        yield x * scale, x.sum(-1, keepdim=True) * scale


def trainer(rollbacks=10, **options):
    torch.manual_seed(0)
    model = Model(ours.GRU(2, 16, batch_first=True))
    options = {"optimizer": torch.optim.SGD(model.parameters(), 0.05), "clip": None, **options}
    return ours.StableTrainer(model, rollbacks=rollbacks, **options)


def parameters(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()]).clone()


def test_a_stable_run_has_the_same_bits_with_and_without_rollbacks():
    ends = []
    for rollbacks in (0, 10):
        stable = trainer(rollbacks)
        for x, y in batches(230):
            report = stable.train_step(x, y)
            assert not report["rolled_back"] and report["warning"] == ""
        ends.append(parameters(stable.model))
    assert torch.equal(*ends)


@pytest.mark.parametrize("cut", [104, 152, 156])
def test_a_run_that_is_saved_goes_on_as_it_would_have(cut, tmp_path):
    bad = (150, 155, 158)
    whole, first = trainer(), trainer()
    reports = [whole.train_step(x, y) for x, y in batches(230, bad)]
    for x, y in list(batches(230, bad))[:cut]:
        first.train_step(x, y)
    torch.save({"model": first.model.state_dict(), "trainer": first.state_dict()}, tmp_path / "run.pt")
    saved = torch.load(tmp_path / "run.pt")  # weights only: nothing but tensors and numbers
    second = trainer()
    second.model.load_state_dict(saved["model"])
    second.load_state_dict(saved["trainer"])
    assert [second.train_step(x, y) for x, y in list(batches(230, bad))[cut:]] == reports[cut:]
    assert torch.equal(parameters(second.model), parameters(whole.model))
    assert (second.steps, second.rollbacks) == (whole.steps, whole.rollbacks) and whole.rollbacks >= 2


def test_the_state_of_something_else_is_refused():
    stable = trainer()
    with pytest.raises(ValueError, match="state must be of a StableTrainer's state_dict.., and has no counters, good"):
        stable.load_state_dict(torch.optim.Adam(stable.model.parameters()).state_dict())
    state = stable.state_dict()
    for change, message in (
        ({"rate_factor": 0.0}, "rate_factor must be in"),
        ({"rollbacks": "3"}, "rollbacks in the state of a guard has the wrong type"),
        ({"memory": {}}, "the state of a guard lacks losses"),
    ):
        with pytest.raises(ValueError, match=message):
            stable.load_state_dict({**state, "guard": {**state["guard"], **change}})


def test_a_poisoned_batch_is_passed_over():
    stable = trainer()
    for number, (x, y) in enumerate(batches(200, bad=[130])):
        report = stable.train_step(x, y)
        if number == 99:
            good = parameters(stable.model)
        assert report["rolled_back"] == (number == 130)
        if report["rolled_back"]:
            assert torch.equal(parameters(stable.model), good)
            assert "step 131: the loss of a batch is" in report["warning"]
            assert "returns to its state after step 100" in report["warning"]
    assert stable.rollbacks == 1 and report["loss"] < 2.0


def test_two_in_a_row_lower_the_rate_and_it_comes_back():
    stable = trainer(clip=1.0)
    used = []
    step = stable.optimizer.step
    stable.optimizer.step = lambda *a, **k: (used.append(stable.optimizer.param_groups[0]["lr"]), step(*a, **k))[1]
    for x, y in batches(800, bad=[130, 150]):
        stable.train_step(x, y)
    assert used[100] == used[140] == 0.05
    assert used[160] == 0.0125 and used[380] == 0.025 and used[-1] == 0.05
    assert stable.optimizer.param_groups[0]["lr"] == 0.05


def test_a_rate_of_ten_ends_with_a_sentence_and_good_weights():
    torch.manual_seed(0)
    model = Model(ours.GRU(2, 16, batch_first=True))
    start = parameters(model)
    stable = ours.StableTrainer(model, optimizer=torch.optim.SGD(model.parameters(), 10.0), clip=None, rollbacks=2)
    with pytest.raises(penstock.NumericalError, match="after 2 rollbacks.*try clipping: clip=1$"):
        for x, y in batches(500):
            stable.train_step(x, y)
    assert torch.equal(parameters(model), start)


def test_many_skips_in_a_row_return_to_a_good_state():
    stable = trainer()
    for number, (x, y) in enumerate(batches(130)):
        if number == 110:
            with torch.no_grad():
                stable.model.head.weight.fill_(math.nan)
        report = stable.train_step(x, y)
    assert stable.skipped == 3 and stable.rollbacks == 1 and math.isfinite(report["loss"])


def test_a_chain_of_sigmoids_vanishes():
    torch.manual_seed(0)
    layers = [part for _ in range(15) for part in (nn.Linear(8, 8), nn.Sigmoid())]
    stable = ours.StableTrainer(nn.Sequential(*layers, nn.Linear(8, 1)))
    warnings = [stable.train_step(torch.randn(4, 8), torch.randn(4, 1))["warning"] for _ in range(30)]
    assert [bool(warning) for warning in warnings].count(True) == 1
    assert "the gradient vanishes: in the first matrix its norm is" in warnings[9]


@pytest.mark.parametrize("layer", [ours.LSTM(2, 8, batch_first=True), nn.LSTM(2, 8, batch_first=True)])
def test_a_gradient_of_zero_vanishes(layer):
    with torch.no_grad():
        layer.bias_ih_l0[24:] = -60.0  # the output gate stays closed
    stable = ours.StableTrainer(Model(layer), learning_rate=1e-9)
    x, y = torch.randn(4, 20, 2), torch.randn(4, 20, 1)
    warnings = [stable.train_step(x, y)["warning"] for _ in range(20)]
    assert "the gradient vanishes: in the first matrix its norm is 0; try" in warnings[9]
    assert not any(warnings[10:])


def test_no_gradient_at_all_vanishes_at_once_unless_nothing_is_lost():
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1), nn.ReLU())
    with torch.no_grad():
        model[2].bias.fill_(-100.0)
    x = torch.randn(4, 2)
    perfect = ours.StableTrainer(model).train_step(x, torch.zeros(4, 1))
    assert perfect["loss"] == perfect["grad_norm"] == 0.0 and perfect["warning"] == ""
    dead = ours.StableTrainer(model).train_step(x, torch.ones(4, 1))
    assert dead["grad_norm"] == 0.0 and dead["warning"].startswith("step 1: the gradient vanishes: in the first matrix")


def test_a_skipped_step_says_why():
    stable = trainer()
    (x, y), *_ = batches(1)
    report = stable.train_step(x * math.nan, y)
    assert report["skipped"] and report["warning"] == "step 1 skipped: input not finite"
    assert stable.train_step(x, y)["warning"] == ""


@pytest.mark.parametrize("layer", [ours.RNN(2, 64, batch_first=True), nn.RNN(2, 64, batch_first=True)])
def test_a_larger_recurrent_matrix_explodes(layer):
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-0.125, 0.125)
        layer.weight_hh_l0 *= 3
        layer.bias_ih_l0.zero_(), layer.bias_hh_l0.zero_()
    stable = ours.StableTrainer(Model(layer), learning_rate=1e-9)
    x, y = torch.randn(4, 400, 2), torch.randn(4, 400, 1)
    warnings = [stable.train_step(x, y)["warning"] for _ in range(25)]
    assert "the gradient explodes: its norm is" in warnings[19]
    assert "try a cell with gates, such as penstock.torch.GRU" in warnings[19]


def test_saturated_outputs_are_said_once():
    torch.manual_seed(0)
    layer = ours.RNN(2, 8, batch_first=True)
    with torch.no_grad():
        layer.bias_ih_l0.fill_(50.0)
    stable = ours.StableTrainer(Model(layer))
    warnings = [report["warning"] for report in (stable.train_step(x, y) for x, y in batches(60))]
    assert sum("100 % of the recurrent outputs are saturated" in warning for warning in warnings) == 1
    assert not layer._forward_hooks


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="rollbacks must be a whole number of at least 0, got -1"):
        trainer(-1)


@pytest.mark.parametrize("layer", [ours.LSTM(3, 6, num_layers=2, bidirectional=True), nn.GRU(3, 6), ours.GRU(3, 6, num_heads=2)])
def test_orthogonal_matrices(layer):
    before = {name: value.detach().clone() for name, value in layer.named_parameters()}
    torch.manual_seed(4)
    assert ours.initialise(layer, "orthogonal") is layer
    for name, value in layer.named_parameters():
        if not name.startswith("weight_hh"):
            assert torch.equal(value, before[name])
            continue
        size = value.shape[-1]
        for block in value.detach().double().reshape(-1, size, size):
            torch.testing.assert_close(block @ block.T, torch.eye(size, dtype=torch.float64), atol=1e-6, rtol=0)
    first = layer.weight_hh_l0.detach().clone()
    ours.initialise(layer, "orthogonal")
    assert not torch.equal(layer.weight_hh_l0, first)
    torch.manual_seed(4)
    ours.initialise(layer, "orthogonal")
    assert torch.equal(layer.weight_hh_l0, first)


def test_chrono_and_identity():
    layer = ours.LSTM(2, 500)
    ours.initialise(layer, chrono=60)
    inputs, forget = layer.bias_ih_l0[:500].detach(), layer.bias_ih_l0[500:1000].detach()
    assert torch.equal(inputs, -forget) and not layer.bias_hh_l0[:1000].any()
    times = forget.exp()
    assert 1 <= times.min() < 2 and 57 < times.max() <= 59.001 and 27 < times.mean() < 33
    relu = ours.initialise(ours.RNN(2, 4, nonlinearity="relu"), "identity")
    assert torch.equal(relu.weight_hh_l0, torch.eye(4)) and not relu.bias_ih_l0.any()


def test_initial_weights_that_a_model_cannot_have_are_refused():
    with pytest.raises(ValueError, match="model must have a recurrent layer, got Linear"):
        ours.initialise(nn.Linear(2, 2), "uniform")
    with pytest.raises(ValueError, match="proj_size must be 0"):
        ours.initialise(nn.LSTM(3, 5, proj_size=2), "uniform")
    with pytest.raises(ValueError, match="parametrised weights: initialise it before"):
        ours.initialise(nn.utils.parametrizations.weight_norm(nn.LSTM(3, 5), "weight_hh_l0"), "uniform")
    layer = ours.LSTM(2, 3)
    before = layer.weight_hh_l0.detach().clone()
    with pytest.raises(penstock.InvalidArgument, match="identity needs a cell with a recurrent matrix and one gate"):
        ours.initialise(layer, "identity")
    assert torch.equal(layer.weight_hh_l0, before)
