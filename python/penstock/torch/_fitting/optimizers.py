"""Optimisers of penstock.torch.fit: PyTorch's own where it has them."""

from __future__ import annotations

import torch

from ...errors import InvalidArgument

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any


class Lion(torch.optim.Optimizer):
    """Lion of Chen et al. 2023 (arXiv 2302.06675, algorithm 2): the sign of an average of gradients.

    Args:
        params: Parameters, or groups of them.
        lr: Learning rate; the paper advises a third to a tenth of AdamW's.
        betas: Weights of the past in the update, and in the average that is kept.
        weight_decay: Decoupled weight decay, times the learning rate.

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        if not lr >= 0.0:
            raise ValueError(f"lr must be at least 0, not {lr}")
        if not all(0.0 <= beta < 1.0 for beta in betas):
            raise ValueError(f"betas must be at least 0 and below 1, not {betas}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight_decay must be at least 0, not {weight_decay}")
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Runs one step. Returns what ``closure`` returned, if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def _update(self, parameter, group):
        state = self.state[parameter]
        if not state:
            state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        average, (first, second) = state["exp_avg"], group["betas"]
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.add_(average.lerp(parameter.grad, 1 - first).sign_(), alpha=-group["lr"])
        average.lerp_(parameter.grad, 1 - second)


def decays(name: str, parameter: torch.Tensor) -> bool:
    """Returns whether weight decay applies: to matrices, but not to the taps of convolutions."""
    return parameter.dim() >= 2 and not name.endswith("convolution.weight")


def is_hidden_matrix(name: str, parameter: torch.Tensor) -> bool:
    """Returns whether Muon updates a parameter: a matrix between layers, not the first or the last one."""
    return parameter.dim() == 2 and decays(name, parameter) and ".blocks." in f".{name}"


class Optimizers:
    """The optimiser of a run, or two of them with ``"muon"``, and the decoupled weight decay of those without one.

    Args:
        parameters: The weights on this rank, by name.
        options: ``optimizer``, ``weight_decay``, and what the optimiser reads of ``beta1``, ``beta2``, ``epsilon`` and
            ``momentum``.
    """

    def __init__(self, parameters: dict[str, torch.Tensor], options: Any) -> None:
        named = list(parameters.items())
        self.parameters = [p for _, p in named]
        self._coupled = options.optimizer in ("sgd", "rmsprop")  # PyTorch's decay would go through the momentum
        self.all: list[torch.optim.Optimizer] = []
        if options.optimizer == "muon":
            hidden = [(name, p) for name, p in named if is_hidden_matrix(name, p)]
            if not hidden:
                raise InvalidArgument("optimizer='muon' needs a model with matrices between its layers: take 'adamw'")
            self.all.append(torch.optim.Muon([p for _, p in hidden], 1e-3, options.weight_decay,
                                             adjust_lr_fn="match_rms_adamw"))  # fmt: skip
            chosen = {name for name, _ in hidden}
            named = [(name, p) for name, p in named if name not in chosen]
        self.all.append(_optimizer(_groups(named, options.weight_decay), options))

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Updates the weights by their gradients with this learning rate."""
        for optimizer in self.all:
            for group in optimizer.param_groups:
                group["lr"] = rate
                if self._coupled and group["decay"]:
                    torch._foreach_mul_(group["params"], 1 - rate * group["decay"])
            optimizer.step()

    def zero_grad(self) -> None:
        for optimizer in self.all:
            optimizer.zero_grad(set_to_none=True)

    def gradients(self) -> list[torch.Tensor]:
        return [p.grad for p in self.parameters if p.grad is not None]

    def snapshot(self) -> list[dict[str, Any]]:
        """Returns a copy of the state of each parameter."""
        return [_copied(self._state_of(p)) for p in self.parameters]

    def restore(self, snapshot: list[dict[str, Any]]) -> None:
        for parameter, state in zip(self.parameters, snapshot):
            self._owner(parameter).state[parameter] = _copied(state)

    def _owner(self, parameter):
        return next(each for each in self.all if any(parameter is p for g in each.param_groups for p in g["params"]))

    def _state_of(self, parameter):
        return next((each.state[parameter] for each in self.all if parameter in each.state), {})

    def initialise(self) -> None:
        """Makes the state of every parameter, for a checkpoint to be read into, by a step that changes nothing."""
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        self.step(0.0)
        self.zero_grad()

    def named_state(self, named: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Returns the state of all parameters as {"optimizer.PARAMETER.NAME": tensor}."""
        return {
            f"optimizer.{name}.{key}": value
            for name, p in named.items()
            for key, value in self._state_of(p).items()
            if isinstance(value, torch.Tensor)
        }

    def scale_gradients(self, factor: float) -> None:
        torch._foreach_mul_(self.gradients(), factor)


def _copied(state):
    return {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in state.items()}


def _groups(named, decay):
    """Returns the groups with weight decay and without."""
    parts: dict[bool, list[torch.Tensor]] = {True: [], False: []}
    for name, parameter in named:
        parts[decays(name, parameter)].append(parameter)
    return [
        {"params": parts[decayed], "decay": decay if decayed else 0.0} for decayed in (True, False) if parts[decayed]
    ]


def _optimizer(groups, options):
    kind = options.optimizer
    if kind in ("sgd", "rmsprop"):
        groups = [{**group, "weight_decay": 0.0} for group in groups]
    else:
        groups = [{**group, "weight_decay": group["decay"]} for group in groups]
    if kind == "sgd":
        return torch.optim.SGD(groups, 1e-3, momentum=options.momentum)
    betas = (options.beta1, options.beta2)
    if kind in ("adamw", "muon"):
        fused = groups[0]["params"][0].device.type == "cuda"  # one kernel for a group
        return torch.optim.AdamW(groups, 1e-3, betas, options.epsilon, fused=fused)
    if kind == "lion":
        return Lion(groups, 1e-4, betas)
    return torch.optim.RMSprop(groups, 1e-3, alpha=options.beta2, eps=options.epsilon)
