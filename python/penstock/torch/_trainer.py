"""Training steps that skip batches with NaN or infinity."""

import torch
from torch.nn import functional


def _default_loss(output, target):
    """Returns the cross-entropy of logits [..., C] for integer classes [...], and the mean square error for floats."""
    if target.is_floating_point():
        return functional.mse_loss(output.float(), target.float())
    return functional.cross_entropy(output.flatten(0, -2).float(), target.flatten())


def _not_finite(named):
    """Returns the names of tensors with NaN or infinity. Synchronises with the device once."""
    named = [(name, t) for name, t in named if t is not None and t.is_floating_point()]
    if not named:
        return []
    finite = torch.stack([torch.isfinite(t).all() for _, t in named]).tolist()
    return [name for (name, _), fine in zip(named, finite) if not fine]


class StableTrainer:
    """Runs optimiser steps with gradient clipping, and skips a step if a number is not finite.

    If the input, target, output, loss or a gradient has NaN or infinity, weights and optimiser stay unchanged.

    Args:
        model: A module, called with x. If it returns a tuple, as recurrent layers do, the first element is the output.
        loss: A function ``loss(output, y)``. None: the mean square error for floating-point y, cross-entropy for
            classes.
        optimizer: An optimiser. None: Adam with ``learning_rate`` over the parameters of the model.
        learning_rate: Learning rate of the default optimiser.
        clip: Largest norm of all gradients together. None: no clipping.
        precision: torch.bfloat16 or torch.float16 for autocast, None for no autocast. With float16 the loss is scaled.

    Raises:
        ValueError: ``clip`` or ``precision`` is impossible.

    >>> import penstock.torch
    >>> layers = penstock.torch.GRU(3, 5)
    >>> trainer = StableTrainer(layers)
    >>> report = trainer.train_step(torch.zeros(7, 2, 3), torch.zeros(7, 2, 5))
    >>> report["skipped"], report["where"]
    (False, [])
    """

    def __init__(self, model, loss=None, optimizer=None, *, learning_rate=1e-3, clip=1.0, precision=None):
        if clip is not None and not clip > 0:
            raise ValueError(f"clip must be positive, or None, got {clip}")
        if precision not in (None, torch.bfloat16, torch.float16):
            raise ValueError(f"precision must be torch.bfloat16, torch.float16 or None, got {precision}")
        self.model = model
        self.loss = loss or _default_loss
        self.optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=learning_rate)
        self.clip = clip
        self.precision = precision
        device = next(model.parameters()).device.type
        self.scaler = torch.amp.GradScaler(device, enabled=precision is torch.float16)
        self.steps = 0  #: number of steps taken
        self.skipped = 0  #: number of steps skipped

    def train_step(self, x, y):
        """Runs one step on a batch.

        Args:
            x: The input of the model.
            y: The target of the loss.

        Returns:
            A dictionary with these keys:

            * ``loss``: the loss, or None if the step was skipped before it was computed.
            * ``grad_norm``: the norm of all gradients together, before clipping, or None if there were none.
            * ``clipped_norm``: the norm after clipping, or None if the step was skipped.
            * ``skipped``: True if the step was skipped.
            * ``where``: names of everything that was not finite: "input", "target", "output", "loss", "gradient of
              NAME".
            * ``scale``: the scale of the loss.
        """
        self.optimizer.zero_grad(set_to_none=True)
        where = _not_finite([("input", getattr(x, "data", x)), ("target", y)])
        if where:
            return self._skip(None, where)
        with torch.autocast(x.data.device.type, self.precision, enabled=self.precision is not None):
            output = self.model(x)
            output = output[0] if isinstance(output, tuple) else output
            loss = self.loss(output, y)
        where = _not_finite([("output", getattr(output, "data", output)), ("loss", loss)])
        if where:
            return self._skip(loss, where)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        parameters = [p for group in self.optimizer.param_groups for p in group["params"] if p.grad is not None]
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])
        if not torch.isfinite(norm):
            names = {p: name for name, p in self.model.named_parameters()}
            named = [(f"gradient of {names.get(p, 'a parameter')}", p.grad) for p in parameters]
            report = self._skip(loss, _not_finite(named) or ["norm of the gradients"], norm.item())
            self.scaler.update()  # reduces a scale that was too large
            return report
        if self.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, self.clip, norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.steps += 1
        norm = norm.item()
        return {
            "loss": loss.item(),
            "grad_norm": norm,
            "clipped_norm": norm if self.clip is None else min(norm, self.clip),
            "skipped": False,
            "where": [],
            "scale": self.scaler.get_scale(),
        }

    def _skip(self, loss, where, norm=None):
        self.optimizer.zero_grad(set_to_none=True)
        self.skipped += 1
        return {
            "loss": None if loss is None else loss.item(),
            "grad_norm": norm,
            "clipped_norm": None,
            "skipped": True,
            "where": where,
            "scale": self.scaler.get_scale(),
        }
