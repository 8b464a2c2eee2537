"""Training steps that numbers out of range cannot spoil."""

import torch
from torch.nn import functional


def _default_loss(output, target):
    """Cross-entropy for classes [...] of logits [..., C], the mean square for numbers."""
    if target.is_floating_point():
        return functional.mse_loss(output.float(), target.float())
    return functional.cross_entropy(output.flatten(0, -2).float(), target.flatten())


def _not_finite(named):
    """The names of the tensors that hold NaN or infinity, which costs one wait for the device."""
    named = [(name, t) for name, t in named if t is not None and t.is_floating_point()]
    if not named:
        return []
    finite = torch.stack([torch.isfinite(t).all() for _, t in named]).tolist()
    return [name for (name, _), fine in zip(named, finite) if not fine]


class StableTrainer:
    """Steps of an optimiser, with the norm of the gradients clipped, that leave everything as it is where NaN or
    infinity turns up in the input, the output, the loss or a gradient.

    Args:
        model: Called with x. Of a tuple, such as recurrent layers return, the first is the output.
        loss: loss(output, y); by default the mean square for floating-point y, and cross-entropy for classes.
        optimizer: By default Adam with `learning_rate` over the model's parameters.
        learning_rate: Of the default optimiser, 1e-3.
        clip: The greatest norm of all gradients together, 1.0; None: they are not clipped.
        precision: torch.bfloat16 or torch.float16 for autocast, None for none. With float16 the loss is scaled.

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
        self.steps = 0  #: steps taken
        self.skipped = 0  #: steps not taken

    def train_step(self, x, y):
        """One step on a batch.

        Returns:
            A dictionary: `loss`; `grad_norm` of all gradients together, and `clipped_norm`, what the step was taken
            with (both None if it was skipped before there were gradients); `skipped`; `where`, the names of what was
            not finite: "input", "target", "output", "loss", "gradient of NAME"; `scale` of the loss.
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
            self.scaler.update()  # a scale that was too large becomes smaller
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
