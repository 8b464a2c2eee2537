"""Training steps that skip batches with NaN or infinity, and return to a good state if training is unstable."""

import copy
import math

import torch
from torch.nn import functional

from penstock import NumericalError, _core
from penstock._pickling import refuse_pickle

from ._initial import cell_of, recurrent_layers

_WATCHED = 10  # saturation and vanishing are measured in every tenth step
_VANISHING = 1e-4  # of the gradient's norm in the last matrix
_COUNTERS = ("steps", "skipped", "rollbacks", "_calls", "_skipped_in_a_row")
BOUNDED = {"elman", "gru", "gru-before", "lstm", "slstm"}  # cells whose outputs lie between -1 and 1


def _default_loss(output, target):
    """Returns the cross-entropy of logits [..., C] for integer classes [...], and the mean square error for floats."""
    if target.is_floating_point():
        return functional.mse_loss(output.float(), target.float())
    return functional.cross_entropy(output.flatten(0, -2).float(), target.flatten())


def _guessing_loss(output, target):
    """Returns the default loss of a model that guesses: log C, or the variance of the target."""
    if target.is_floating_point():
        return target.float().var(correction=0).item()
    return math.log(output.shape[-1])


def _not_finite(named):
    """Returns the names of tensors with NaN or infinity. Synchronises with the device once."""
    named = [
        (name, getattr(t, "to_local", lambda t=t: t)()) for name, t in named if t is not None and t.is_floating_point()
    ]
    if not named:
        return []
    finite = torch.stack([torch.isfinite(t).all() for _, t in named]).tolist()
    return [name for (name, _), fine in zip(named, finite) if not fine]


def _network_remedy(cells):
    """Returns what to try about the network of an unstable run."""
    if any(cell.startswith("elman") for cell in cells):
        return "a cell with gates, such as penstock.torch.GRU"
    dense = any(not _core.find_cell(cell)["scan"] for cell in cells)
    return "other initial weights: penstock.torch.initialise(model, 'orthogonal')" if dense else ""


def _share_saturated(outputs):
    """Returns the fraction of recurrent outputs above 0.99 in magnitude."""
    outputs = [getattr(output, "data", output) for output in outputs]
    if not outputs:
        return 0.0
    return torch.stack([(output.abs() > 0.99).float().mean() for output in outputs]).mean().item()


def _group_of(model):
    """Returns the process group that shares a model, or None: that of DistributedDataParallel, or all with fully_shard."""
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        return model.process_group
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    from torch.distributed.fsdp import FSDPModule

    return torch.distributed.group.WORLD if isinstance(model, FSDPModule) else None


def _check_kinds(model, loss, optimizer, learning_rate):
    """Raises TypeError for numbers in the places of a loss and an optimiser, ValueError for a rate that has no effect."""
    for name, value, kind, fits in (
        ("model", model, "a torch.nn.Module", isinstance(model, torch.nn.Module)),
        ("loss", loss, "a function loss(output, y)", loss is None or callable(loss)),
        ("optimizer", optimizer, "an optimiser", optimizer is None or hasattr(optimizer, "param_groups")),
    ):
        if not fits:
            raise TypeError(
                f"{name} must be {kind}, not {value!r}; the numbers go by name: StableTrainer(model, "
                "learning_rate=1e-3, clip=1.0)"
            )
    if optimizer is not None and learning_rate is not None:
        raise ValueError(f"learning_rate={learning_rate} is that of the default optimiser: give it to optimizer")


class StableTrainer:
    """Runs optimiser steps with gradient clipping, skips steps that are not finite, and recovers from instability.

    If the input, target, output, loss or a gradient has NaN or infinity, weights and optimiser stay unchanged.

    If the loss leaps far above that of the untrained model, without clipping a gradient explodes, or three steps in a
    row are skipped, model and optimiser return to their last good state, as with ``penstock train --rollbacks``. The
    trainer keeps copies of up to two states, every 100 steps, on the devices of the model. The state of a recurrent
    layer that you carry from batch to batch should then start from zeros. If it happens again soon, the learning rate
    is lowered for a while.

    With a model of ``torch.nn.parallel.DistributedDataParallel`` or ``fully_shard`` all processes decide alike, by the
    mean of their losses: a batch with NaN on one of them is skipped by all.

    Args:
        model: A module, called with x. If it returns a tuple, as recurrent layers do, the first element is the output.
        loss: A function ``loss(output, y)``. None: the mean square error for floating-point y, cross-entropy for
            classes.
        optimizer: An optimiser. None: Adam with ``learning_rate`` over the parameters of the model.
        learning_rate: Learning rate of the default optimiser. None: 0.001.
        clip: Largest norm of all gradients together. None: no clipping.
        precision: torch.bfloat16 or torch.float16 for autocast, None for no autocast. With float16 the loss is scaled.
        rollbacks: Number of returns to a good state. One more raises NumericalError with the likeliest remedy; the
            model then has its last good weights. 0: never return.

    Raises:
        TypeError: ``model``, ``loss`` or ``optimizer`` is of another kind.
        ValueError: ``clip``, ``precision`` or ``rollbacks`` is impossible, or ``learning_rate`` was given with an
            optimiser.

    >>> import penstock.torch
    >>> layers = penstock.torch.GRU(3, 5)
    >>> trainer = StableTrainer(layers)
    >>> report = trainer.train_step(torch.zeros(7, 2, 3), torch.zeros(7, 2, 5))
    >>> report["skipped"], report["where"]
    (False, [])
    """

    def __init__(self, model, loss=None, optimizer=None, *, learning_rate=None, clip=1.0, precision=None,
                 rollbacks=10):  # fmt: skip
        _check_kinds(model, loss, optimizer, learning_rate)
        if clip is not None and not clip > 0:
            raise ValueError(f"clip must be positive, or None, got {clip}")
        if precision not in (None, torch.bfloat16, torch.float16):
            raise ValueError(f"precision must be torch.bfloat16, torch.float16 or None, got {precision}")
        if not isinstance(rollbacks, int) or rollbacks < 0:
            raise ValueError(f"rollbacks must be a whole number of at least 0, got {rollbacks}")
        self.model = model
        self.loss = loss or _default_loss
        rate = 1e-3 if learning_rate is None else learning_rate
        self.optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=rate)
        self.clip = clip
        self.precision = precision
        device = next(model.parameters()).device.type
        self.scaler = torch.amp.GradScaler(device, enabled=precision is torch.float16)
        self.steps = 0  #: number of steps taken
        self.skipped = 0  #: number of steps skipped
        self.rollbacks = 0  #: number of returns to a good state
        cells = [cell_of(layer) for layer in recurrent_layers(model)]
        self._group = _group_of(model)
        self._guard = _core.Guard(
            rollbacks=rollbacks,
            learning_rate=max(group["lr"] for group in self.optimizer.param_groups),
            clip=clip or 0.0,
            bounded=bool(cells),
            network_remedy=_network_remedy(cells),
        )
        self._calls = self._skipped_in_a_row = 0
        self._good = self._pending = None
        self._outputs = []
        self._saturated = 0.0
        self._warned_vanishing = False

    def train_step(self, x, y):
        """Runs one step on a batch.

        Args:
            x: The input of the model.
            y: The target of the loss.

        Returns:
            A dictionary with these keys:

            * ``loss``: the loss, the mean over the processes that share the model, or None if the step was skipped
              before it was computed.
            * ``grad_norm``: the norm of all gradients together, before clipping, or None if there were none.
            * ``clipped_norm``: the norm after clipping, or None if the step was skipped.
            * ``skipped``: True if the step was skipped.
            * ``where``: names of everything that was not finite: "input", "target", "output", "loss", "gradient of
              NAME", or "input of rank 1" in several processes.
            * ``scale``: the scale of the loss.
            * ``rolled_back``: True if the model returned to its last good state.
            * ``warning``: one line if the step was skipped, if the model returned to a good state, or if gradients
              vanish or explode or recurrent outputs are saturated; otherwise empty.

        Raises:
            NumericalError: The run was still unstable after ``rollbacks`` returns. The message names the likeliest
                remedy.
        """
        if self._guard.state_due(self._calls) and self._good is None:
            self._keep()
        self._calls += 1
        report = self._step(x, y)
        report |= {"rolled_back": False, "warning": ""}
        if report["skipped"]:
            trouble = self._note_skip(report)
            report["warning"] = f"step {self._calls} skipped: {', '.join(report['where'])} not finite"
        else:
            self._skipped_in_a_row = 0
            trouble = self._guard.note(self._calls, report["loss"], report["grad_norm"])
            report["warning"] = self._warning(report)
        if trouble is not None:
            report |= {"rolled_back": True, "warning": self._roll_back(trouble)}
            return report
        if self._guard.confirm(self._calls):
            self._good, self._pending = self._pending, None
        self._guard.raise_rate(self._calls)
        if self._guard.state_due(self._calls):
            self._keep()
        return report

    def state_dict(self):
        """Returns all that a later trainer needs to continue as this one would, for ``torch.save``.

        It holds the optimiser, the scale of the loss, the counters, what was seen of the latest steps, and the copies
        of earlier states. The model and schedulers are not part of it.
        """
        return {
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "guard": self._guard.state(),
            "counters": {name: getattr(self, name) for name in _COUNTERS},
            "warned_vanishing": self._warned_vanishing,
            "good": self._good,
            "pending": self._pending,
        }

    def load_state_dict(self, state):
        """Continues from what :meth:`state_dict` returned. Load the state of the model, too.

        Raises:
            ValueError: ``state`` is not of a StableTrainer. Nothing has changed then.
        """
        missing = sorted(self.state_dict().keys() - state.keys())
        if missing:
            raise ValueError(f"state must be of a StableTrainer's state_dict(), and has no {', '.join(missing)}")
        self._guard.restore(state["guard"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        for name in _COUNTERS:
            setattr(self, name, state["counters"][name])
        self._warned_vanishing = state["warned_vanishing"]
        self._good, self._pending = state["good"], state["pending"]

    __reduce_ex__ = refuse_pickle("pickle the model and trainer.state_dict(), and load both into a new trainer")

    def _step(self, x, y):
        self.optimizer.zero_grad(set_to_none=True)
        where = _not_finite([("input", getattr(x, "data", x)), ("target", y)])
        if where and self._group is None:
            return self._skip(None, where)
        with torch.autocast(x.data.device.type, self.precision, enabled=self.precision is not None):
            output = self._forward(x)
            output = output[0] if isinstance(output, tuple) else output
            loss = self.loss(output, y)
        where += _not_finite([("output", getattr(output, "data", output)), ("loss", loss)])
        guess = _guessing_loss(output, y) if self.steps == 0 and self.loss is _default_loss else 0.0
        where, shared, guess = self._agree(where, loss, guess)
        if where:
            return self._skip(shared, where)
        if self.steps == 0 and self.loss is _default_loss:
            self._guard.expect(guess)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        parameters = [p for group in self.optimizer.param_groups for p in group["params"] if p.grad is not None]
        total = norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])
        if hasattr(norm, "full_tensor"):
            norm = norm.full_tensor()
        if not torch.isfinite(norm):
            names = {p: name for name, p in self.model.named_parameters()}
            named = [(f"gradient of {names.get(p, 'a parameter')}", p.grad) for p in parameters]
            report = self._skip(shared, _not_finite(named) or ["norm of the gradients"], norm.item())
            self.scaler.update()  # reduces a scale that was too large
            return report
        if self.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, self.clip, total)
        self._look_for_vanishing(shared.item(), norm.item())
        self._update()
        self.steps += 1
        return self._report(shared, norm.item(), [])

    def _agree(self, where, loss, guess):
        """Returns the names of what was not finite, and the means of the loss and of the guess, of all processes."""
        if self._group is None:
            return where, loss, guess
        found = torch.stack(
            [loss.detach().double(), loss.new_tensor(guess).double(), loss.new_tensor(bool(where)).double()]
        )
        torch.distributed.all_reduce(found, group=self._group)
        size = torch.distributed.get_world_size(self._group)
        if found[2] == 0:
            return [], found[0] / size, found[1].item() / size
        everyone = [None] * size
        torch.distributed.all_gather_object(everyone, where, self._group)
        named = [f"{name} of rank {rank}" for rank, names in enumerate(everyone) for name in names]
        return named, found[0] / size, guess

    def _skip(self, loss, where, norm=None):
        self.optimizer.zero_grad(set_to_none=True)
        self.skipped += 1
        return self._report(loss, norm, where)

    def _report(self, loss, norm, where):
        return {
            "loss": None if loss is None else loss.item(),
            "grad_norm": norm,
            "clipped_norm": None if where else norm if self.clip is None else min(norm, self.clip),
            "skipped": bool(where),
            "where": where,
            "scale": self.scaler.get_scale(),
        }

    def _forward(self, x):
        """Runs the model, and remembers the outputs of bounded recurrent layers in some steps."""
        self._outputs = []
        if self._calls % _WATCHED != 0:
            return self.model(x)
        layers = [layer for layer in recurrent_layers(self.model) if cell_of(layer) in BOUNDED]
        hooks = [layer.register_forward_hook(lambda *given: self._outputs.append(given[2][0])) for layer in layers]
        try:
            return self.model(x)
        finally:
            for hook in hooks:
                hook.remove()

    def _look_for_vanishing(self, loss, norm):
        self._ratio = 1.0
        if norm == 0.0 or loss == 0.0:  # without a loss, none is expected
            self._ratio = float(loss == 0.0)
            return
        if self._calls % _WATCHED != 0:
            return
        matrices = [p.grad for p in self.model.parameters() if p.grad is not None and p.dim() >= 2]
        if len(matrices) > 1:
            first, last = (matrices[place].float().norm().item() for place in (0, -1))
            self._ratio = first / last if last > 0 else float(first > 0)

    def _update(self):
        """Runs the optimiser with a learning rate that may be lowered; schedulers see the usual one."""
        rates = [group["lr"] for group in self.optimizer.param_groups]
        if self._guard.rate_factor != 1.0:
            self._set_rates([rate * self._guard.rate_factor for rate in rates])
        self.scaler.step(self.optimizer)
        self._set_rates(rates)
        self.scaler.update()

    def _set_rates(self, rates):
        for group, rate in zip(self.optimizer.param_groups, rates):
            group["lr"] = rate

    def _warning(self, report):
        if self._calls % _WATCHED == 0:
            with torch.no_grad():
                self._saturated = _share_saturated(self._outputs)
            self._outputs = []
        if self._ratio < _VANISHING and not self._warned_vanishing:
            self._warned_vanishing = True
            norm = f"{self._ratio:.1e} of that in the last" if self._ratio > 0 else "0"
            return (
                f"step {self._calls}: the gradient vanishes: in the first matrix its norm is {norm}; "
                f"try {self._guard.remedy(True)}"
            )
        return self._guard.warning(self._calls, report["grad_norm"], self._saturated)

    def _note_skip(self, report):
        """Counts a skipped step. A scale of the loss that was too large is no trouble."""
        gradients = all(where.startswith("gradient") for where in report["where"])
        if self.scaler.is_enabled() and gradients and report["scale"] > 1:
            return None
        self._skipped_in_a_row += 1
        return self._guard.note_skip(self._calls, self._skipped_in_a_row)

    def _keep(self):
        parts = (self.model, self.optimizer, self.scaler)
        state = [copy.deepcopy(part.state_dict()) for part in parts]
        if self._guard.keep(self._calls):
            self._good = state
        else:
            self._pending = state

    def _roll_back(self, trouble):
        """Returns to the good state. Learning rates stay those of now, which a scheduler may have set."""
        rates = [group["lr"] for group in self.optimizer.param_groups]
        for part, state in zip((self.model, self.optimizer, self.scaler), self._good):
            part.load_state_dict(copy.deepcopy(state))
        self._set_rates(rates)
        self._guard.rolled_back(trouble, self._calls)
        if self._guard.exhausted:
            raise NumericalError(self._guard.describe_end(trouble))
        self._pending = None
        self.rollbacks = self._guard.rollbacks
        return self._guard.describe(trouble)
