"""When validations lower the learning rate, and when they end a run."""

from __future__ import annotations

import dataclasses
import math

import torch

_PLATEAU_FACTOR, _PLATEAU_PATIENCE = 0.5, 3


class Plateau:
    """The factor of torch.optim.lr_scheduler.ReduceLROnPlateau: halved at the fourth validation without a gain."""

    def __init__(self) -> None:
        holder = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        self._optimizer = holder
        self._scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
            holder, factor=_PLATEAU_FACTOR, patience=_PLATEAU_PATIENCE
        )

    @property
    def factor(self) -> float:
        return self._optimizer.param_groups[0]["lr"]

    def note(self, loss: float) -> None:
        self._scheduler.step(loss)

    def state(self) -> dict[str, float]:
        scheduler = self._scheduler
        return {"factor": self.factor, "best": float(scheduler.best), "bad": scheduler.num_bad_epochs}

    def restore(self, state: dict[str, float]) -> None:
        self._optimizer.param_groups[0]["lr"] = state["factor"]
        self._scheduler.best, self._scheduler.num_bad_epochs = state["best"], int(state["bad"])


@dataclasses.dataclass
class Stopping:
    """Early stopping, as src/fit/train/stopping.cc has it: the best loss, and the cooldown from the best weights."""

    patience: int
    validate_steps: int
    warmup: float
    best_loss: float = math.inf
    best_step: int = 0
    without_gain: int = 0
    cooldown_begin: int = -1  #: Step; -1: it has not begun.
    cooldown_from: float = 0.0  #: Fraction of the run at which it began.

    def note(self, loss: float, step: int, by_steps: bool) -> bool:
        """Takes the loss of a validation. Returns whether it is the lowest so far."""
        if math.isfinite(loss) and loss < self.best_loss:
            self.best_loss, self.best_step, self.without_gain = loss, step, 0
            return True
        self.without_gain += by_steps
        return False

    @property
    def known(self) -> bool:
        return math.isfinite(self.best_loss)

    @property
    def cooling(self) -> bool:
        return self.cooldown_begin >= 0

    @property
    def exhausted(self) -> bool:
        return self.patience > 0 and not self.cooling and self.known and self.without_gain >= self.patience

    def begin_cooldown(self, step: int, fraction: float) -> None:
        self.cooldown_begin, self.cooldown_from = step, min(max(fraction, 0.5, self.warmup), 1.0)

    def fraction(self, step: int) -> float:
        """Returns the completed fraction of the run by the cooldown; 0 before it."""
        if not self.cooling:
            return 0.0
        steps = max(1, int(0.2 * self.cooldown_begin), self.validate_steps)
        return min(1.0, self.cooldown_from + (1 - self.cooldown_from) * (step - self.cooldown_begin) / steps)
