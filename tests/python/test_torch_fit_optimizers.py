"""The optimisers, schedules and averages of penstock.torch.fit against PyTorch's own and papers."""

import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
penstock = pytest.importorskip("penstock", reason="penstock is not installed")
ours = pytest.importorskip("penstock.torch", reason="PyTorch is too old")

from penstock.torch._fitting import average, optimizers  # noqa: E402


class Paper:
    """Lion as algorithm 2 of its paper writes it, for one array."""

    def __init__(self, value):
        self.value, self.average = value, torch.zeros_like(value)

    def step(self, gradient, rate, decay, first=0.9, second=0.99):
        update = torch.sign(first * self.average + (1 - first) * gradient)
        self.value = self.value - rate * (update + decay * self.value)
        self.average = second * self.average + (1 - second) * gradient


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"))]


@pytest.fixture(params=DEVICES)
def default_device(request):
    """Weights are on the CPU, then on a GPU."""
    with torch.device(request.param):
        yield


def problem():
    """Weights of a small model, by the names that decide about decay, and the gradient of a loss of them."""
    torch.manual_seed(2)
    shapes = {"embedding.weight": (7, 6), "blocks.0.recurrent.weight_ih": (8, 6), "blocks.0.recurrent.bias_ih": (8,)}
    weights = {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}
    targets = {name: torch.randn_like(w) for name, w in weights.items()}
    return weights, lambda name, w, i: (w - targets[name]).tanh() + 0.1 * math.sin(i) * w.cos()


def trained(kind, decay, rate=0.01):
    """100 steps of an optimiser of fit()."""
    weights, gradient = problem()
    named = {name: torch.nn.Parameter(w) for name, w in weights.items()}
    settings = {"optimizer": kind, "weight_decay": decay, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8, "momentum": 0.9}
    both = optimizers.Optimizers(named, type("Options", (), settings))
    for i in range(100):
        for name, p in named.items():
            p.grad = gradient(name, p.detach(), i)
        both.step(rate)
    return named


def by_reference(make, decoupled=0.0, rate=0.01):
    """100 steps of other optimisers, one for each weight: make(name, parameter)."""
    weights, gradient = problem()
    named = {name: torch.nn.Parameter(w) for name, w in weights.items()}
    all_ = {name: make(name, p) for name, p in named.items()}
    for i in range(100):
        for name, p in named.items():
            p.grad = gradient(name, p.detach(), i)
            if p.dim() > 1:
                p.data *= 1 - rate * decoupled
            all_[name].step()
    return named


def assert_equal(got, expected):
    for name, value in expected.items():
        torch.testing.assert_close(got[name], value, rtol=1e-6, atol=1e-6)


def decay_of(parameter, decay):
    return decay if parameter.dim() > 1 else 0.0


@pytest.mark.usefixtures("default_device")
def test_adamw_is_torchs():
    make = lambda name, p: torch.optim.AdamW([p], 0.01, (0.9, 0.99), weight_decay=decay_of(p, 0.1))  # noqa: E731
    assert_equal(trained("adamw", 0.1), by_reference(make))


@pytest.mark.usefixtures("default_device")
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_sgd_and_rmsprop_are_torchs_but_for_decay(decay):
    """Decay goes beside the momentum, as in AdamW and in penstock.train."""
    sgd = by_reference(lambda name, p: torch.optim.SGD([p], 0.01, momentum=0.9), decay)
    assert_equal(trained("sgd", decay), sgd)
    rmsprop = by_reference(lambda name, p: torch.optim.RMSprop([p], 0.01, alpha=0.99), decay)
    assert_equal(trained("rmsprop", decay), rmsprop)


@pytest.mark.usefixtures("default_device")
def test_lion_is_that_of_the_paper():
    weights, gradient = problem()
    papers = {name: Paper(w) for name, w in weights.items()}
    for i in range(100):
        for name, paper in papers.items():
            paper.step(gradient(name, paper.value, i), 0.01, decay_of(paper.value, 0.1))
    got = trained("lion", 0.1)
    assert_equal(got, {name: torch.nn.Parameter(paper.value) for name, paper in papers.items()})


@pytest.mark.usefixtures("default_device")
def test_muon_is_torchs_for_matrices_of_blocks():
    def make(name, p):
        if name == "blocks.0.recurrent.weight_ih":
            return torch.optim.Muon([p], 0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
        return torch.optim.AdamW([p], 0.01, (0.9, 0.99), weight_decay=decay_of(p, 0.1))

    assert_equal(trained("muon", 0.1), by_reference(make))


def test_lions_arguments():
    with pytest.raises(ValueError, match="betas must be at least 0 and below 1, not .1.0, 0.9."):
        ours.Lion([torch.zeros(2)], betas=(1.0, 0.9))
    with pytest.raises(ValueError, match="lr must be at least 0, not -1"):
        ours.Lion([torch.zeros(2)], lr=-1)


@pytest.mark.usefixtures("default_device")
def test_average_is_that_of_swa_utils_after_a_warm_up():
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 4)

    def blend(averages, weights, number):
        torch._foreach_lerp_(averages, weights, 1 - min(0.9, (1 + int(number)) / (10 + int(number))))

    theirs = torch.optim.swa_utils.AveragedModel(layer, multi_avg_fn=blend)
    theirs.update_parameters(layer)  # the first call copies
    mine = average.Average(list(layer.parameters()), 0.9)
    for step in range(1, 201):
        with torch.no_grad():
            for p in layer.parameters():
                p += 0.1 * torch.randn_like(p)
        theirs.update_parameters(layer)
        mine.update(step)
    before = [p.clone() for p in layer.parameters()]
    mine.swap()
    for got, expected in zip(layer.parameters(), theirs.module.parameters()):
        torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)
    mine.swap()
    assert all(torch.equal(a, b) for a, b in zip(before, layer.parameters()))


@pytest.mark.parametrize("steps, warmup", [(100, 0.3), (100, 0.05), (7, 0.5)])
def test_one_cycle_is_torchs(steps, warmup):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 1.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=steps, pct_start=warmup, cycle_momentum=False)
    for i in range(steps):
        expected = schedule.get_last_lr()[0]
        settings = {"schedule": "onecycle", "learning_rate": 0.5, "warmup": warmup, "steps": steps}
        assert math.isclose(penstock._core.learning_rate_at(settings, (i + 1) / steps), expected, rel_tol=1e-6), i
        optimizer.step()
        if i + 1 < steps:
            schedule.step()


def test_plateau_is_torchs_and_is_restored():
    torch.manual_seed(3)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 1.0)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=3)
    plateau = penstock._core.Plateau({})
    for i in range(100):
        loss = 1 / (1 + 0.1 * i) + 0.3 * torch.rand(()).item()
        schedule.step(loss)
        plateau.note(loss)
        assert plateau.factor == optimizer.param_groups[0]["lr"], i
        plateau = penstock._core.Plateau(plateau.state())
    assert plateau.factor < 0.1
