"""The average of weights that penstock.torch.fit keeps (options.average)."""

from __future__ import annotations

import torch

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from collections.abc import Sequence


class Average:
    """The exponential moving average of weights: average = past * average + (1 - past) * weights.

    In step n, ``past`` is at most (1 + n) / (10 + n), as in TensorFlow's ExponentialMovingAverage with num_updates, so that
    a short run soon forgets the weights that it began with.

    Args:
        parameters: The weights, whose values it starts from.
        decay: Largest weight of the past, 0 to below 1.
    """

    def __init__(self, parameters: Sequence[torch.Tensor], decay: float) -> None:
        self.decay = decay
        self._parameters = list(parameters)
        self.start()

    def start(self) -> None:
        """Starts from the weights as they are."""
        self.values = [p.detach().clone() for p in self._parameters]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Takes the weights after the update with number ``step``, from 1."""
        past = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.values, [p.detach() for p in self._parameters], 1 - past)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchanges the weights with their average; again, and all is as before."""
        for parameter, value in zip(self._parameters, self.values):
            held = parameter.detach().clone()
            parameter.copy_(value)
            value.copy_(held)
