"""The loop of a run: steps, validations, checkpoints, and returns to a good state. All ranks run it side by side."""

from __future__ import annotations

import math
import time

import torch
from torch.nn import functional

from ... import _core
from ...errors import Incompatible, InvalidArgument, NumericalError, Unsupported
from ...training import Evaluation, Progress
from .._counter_dropout import seed_of_step
from .._stable_trainer import BOUNDED
from . import states
from .average import Average
from .batches import Batches, share
from .metrics import Metrics, evaluation_of
from .optimizers import Optimizers

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    import types
    from typing import Any

    from .checkpoints import Checkpoints
    from .placement import Placement
    from .signals import Stop

_LARGEST_SQUARE = 3.4028234663852886e38  # of a norm: beyond it, second moments would be infinite
_RETRY_SECONDS = 10.0  # after a checkpoint that could not be written


class Trainer:
    """One run on this rank.

    Args:
        placement: The model.
        batches: The data.
        options: What ``options.resolve`` returned.
        metrics: Where reports go.
        checkpoints: Where checkpoints go; None: nowhere.
        stop: Whether a signal has come.
        remedy: What the guard advises about the network.
    """

    def __init__(self, placement: Placement, batches: Batches, options: types.SimpleNamespace, metrics: Metrics,
                 checkpoints: Checkpoints | None, stop: Stop, remedy: str) -> None:  # fmt: skip
        self.group, self.placement, self.batches, self.options = placement.group, placement, batches, options
        self.metrics, self.checkpoints, self.stop = metrics, checkpoints, stop
        self.optimizers = Optimizers(placement.parameters, options)
        self.average = Average(self.optimizers.parameters, options.average) if options.average else None
        self._set_stopping({}, {})
        self.guard = _core.Guard(
            rollbacks=options.rollbacks, learning_rate=options.learning_rate, clip=options.clip,
            bounded=placement.module.spec["cell"] in BOUNDED, network_remedy=remedy,
        )  # fmt: skip
        self._of_classes = options.loss == "cross_entropy"
        if not self._of_classes and options.loss not in _TERMS:
            raise Unsupported(f"penstock.torch.fit has no loss {options.loss}: penstock.train has it, or choose mse or mae")
        # Values of a series are scaled to about 1.
        self.guard.expect(math.log(placement.module.head.out_features) if self._of_classes else 1.0)
        self.step = self.updates = self.scored = self.skipped = self.skipped_in_a_row = 0
        self.seconds = self._seconds_before = 0.0
        self.carried: list[Any] = [None] * options.accumulate
        self.best: list[torch.Tensor] | None = None
        self.good: Any = None
        self.pending: Any = None
        self.last = Progress()
        self.validation: Evaluation | None = None
        self.gave_up = self.checkpoint_error = ""
        self.interrupted = False
        self._rows = self._own_rows()
        self._clear_report()

    def _set_stopping(self, stopping, plateau):
        settings = {name: getattr(self.options, name) for name in ("patience", "validate_steps", "warmup")}
        self.stopping, self.plateau = _core.Stopping(settings, stopping), _core.Plateau(plateau)

    def _own_rows(self):
        """Returns the rows of this rank's micro-batches."""
        options, size = self.options, self.group.size
        if options.batch < size * options.accumulate:
            raise InvalidArgument(
                f"batch is {options.batch} sequences, too few for {size} ranks with accumulate={options.accumulate}: "
                f"give at least {size * options.accumulate}, or start fewer ranks"
            )
        rows = share(options.batch, size, self.group.rank)
        parts = [share(len(rows), options.accumulate, i) for i in range(options.accumulate)]
        return [rows[part.start : part.stop] for part in parts]

    # -- Limits and rates

    def fraction(self, ahead: int = 0) -> float:
        """Returns the completed fraction of the run, or that with the next step included."""
        options = self.options
        result = max(self.stopping.fraction(self.step), self.seconds / options.seconds if options.seconds else 0.0)
        if options.steps:
            result = max(result, (self.step + ahead) / options.steps)
        if options.epochs:
            result = max(result, self.scored / self.batches.training / options.epochs)
        return min(result, 1.0)

    def rate(self) -> float:
        """Returns the learning rate of the next step."""
        highest = self.options.learning_rate * self.guard.rate_factor * self.plateau.factor
        settings = {name: getattr(self.options, name) for name in _OF_RATE} | {"learning_rate": highest}
        if self.stopping.cooling and self.options.schedule == "plateau":  # whose rate does not fall to an end by itself
            settings["schedule"] = "cosine"
        return _core.learning_rate_at(settings, self.fraction(ahead=1))

    # -- A step

    def run_step(self) -> None:
        """Runs one step on the next global batch."""
        rate, batch = self.rate(), self.batches.next()
        sums, carried = self._gradients(batch)
        norm = self.placement.norm(self.optimizers.gradients())
        loss, scored, correct, norm = self._exchange(sums, norm)
        finite = math.isfinite(loss) and norm * norm <= _LARGEST_SQUARE
        self.step += 1
        self.scored += int(scored)
        if finite:
            if scored:
                self._update(rate, norm)
            self.carried = carried
            self.skipped_in_a_row = 0
        else:
            self.skipped += 1
            self.skipped_in_a_row += 1
        self.optimizers.zero_grad()
        self._note(batch, (loss, scored, correct), norm, rate, finite)

    def _gradients(self, batch):
        """Runs forward and backward passes of this rank's rows. Returns [loss, scored, correct] and the new states."""
        seed, parts = seed_of_step(self.options.seed, self.step), len(self._rows)
        sums, carried = torch.zeros(3, dtype=torch.float64, device=self.group.device), []
        for i, rows in enumerate(self._rows):
            part = batch.part(rows)
            masks = torch.tensor([seed, part.first], device=self.group.device)
            before = self.carried[i] if self.options.carry_state and batch.continues else None
            with self.placement.accumulating(more=i + 1 < parts):
                with self._autocast():
                    output, state = self.placement.run(part.inputs, before, reset=part.reset, masks=masks)
                loss, found = _loss_of(output, part, self.options.loss)
                (loss * (self.group.size / max(batch.weight, 1e-30))).backward()
            sums += found
            carried.append(states.detached(state))
        return sums, carried

    def _autocast(self):
        return torch.autocast(self.group.device.type, torch.bfloat16, enabled=self.options.precision == "bf16")

    def _exchange(self, sums, norm):
        """Returns the global sum of the loss, scored steps, right answers and norm: the same numbers on every rank.

        Rank 0 gives the time and the norm; a signal on any rank stops all.
        """
        first = 1.0 if self.group.rank == 0 else 0.0
        own = [first * self._now(), 1.0 if self.stop.asked else 0.0]
        parts = [sums, norm.detach().double().reshape(1) if first else norm.new_zeros(1, dtype=torch.float64)]
        control = torch.cat([*parts, sums.new_tensor(own)])
        loss, scored, correct, norm, self.seconds, stops = self.group.sum(control).tolist()
        self.interrupted = stops > 0
        return loss, scored, correct, norm

    def _now(self):
        return self._seconds_before + time.monotonic() - self._started

    def _update(self, rate, norm):
        if self.options.clip and norm > self.options.clip:
            self.optimizers.scale_gradients(self.options.clip / norm)
        self.optimizers.step(rate)
        self.updates += 1
        if self.average is not None:
            self.average.update(self.updates)

    # -- Reports and trouble

    def _clear_report(self):
        self._loss_sum = self._weight = self._correct = self._counted = 0.0
        self._steps = self._positions = 0
        self._reported = self.seconds

    def _note(self, batch, sums, norm, rate, finite):
        """Takes the numbers of a step, and acts on trouble."""
        (total, scored, correct), warning, trouble = sums, "", None
        loss = total / batch.weight if batch.weight else 0.0
        self._steps, self._positions = self._steps + 1, self._positions + batch.positions
        if finite and scored:
            self._loss_sum, self._weight = self._loss_sum + total, self._weight + batch.weight
            self._correct, self._counted = self._correct + correct, self._counted + scored
            trouble = self.guard.note(self.step, loss, norm)
            warning = self.guard.warning(self.step, norm, 0.0)
        elif not finite:
            trouble = self.guard.note_skip(self.step, self.skipped_in_a_row)
            what = "gradient" if math.isfinite(loss) else "loss"
            warning = f"step {self.step} skipped: the {what} was not finite ({self.skipped_in_a_row} in a row)"
        due = self.step == 1 or self.seconds - self._reported >= self.options.log_every or self._ends()
        if due or warning:
            self._report(norm if finite else 0.0, rate, warning)
        if self.skipped_in_a_row >= self.options.give_up_after:
            raise NumericalError(
                f"gave up at step {self.step}: {self.skipped_in_a_row} steps in a row were not finite; lower learning_rate "
                "or check the data"
            )
        self._act(trouble)

    def _ends(self):
        return self.interrupted or self.fraction() >= 1.0

    def _report(self, norm, rate, warning):
        interval, fraction = self.seconds - self._reported, self.fraction()
        self.last = Progress(
            step=self.step, seconds=self.seconds, fraction=fraction,
            seconds_left=self.seconds * (1 - fraction) / fraction if fraction else 0.0,
            epoch=self.scored / self.batches.training,
            loss=self._loss_sum / self._weight if self._weight else self.last.loss,
            accuracy=self._correct / self._counted if self._counted else self.last.accuracy,
            learning_rate=rate, gradient_norm=norm,
            clipped_norm=min(norm, self.options.clip) if self.options.clip else norm,
            steps_per_second=self._steps / interval if interval else 0.0,
            positions_per_second=self._positions / interval if interval else 0.0,
            first_gradient_ratio=1.0, skipped=self.skipped, rollbacks=self.guard.rollbacks, warning=warning,
        )  # fmt: skip
        self.metrics.report(self.last)
        self._clear_report()

    def _act(self, trouble):
        if trouble is not None:
            return self._roll_back(trouble)
        if self.guard.confirm(self.step):
            self.good, self.pending = self.pending, None
        self.guard.raise_rate(self.step)
        if self.guard.state_due(self.step):
            self._keep()

    def _keep(self):
        average = None if self.average is None else [v.clone() for v in self.average.values]
        state = (self.placement.values(), self.optimizers.snapshot(), average, self.updates)
        if self.guard.keep(self.step) or self.good is None:
            self.good = state
        else:
            self.pending = state

    def _roll_back(self, trouble):
        values, snapshot, average, self.updates = self.good
        self.placement.set_values(values)
        self.optimizers.restore(snapshot)
        if self.average is not None:
            self.average.values = [v.clone() for v in average]
        self.carried = [None] * len(self._rows)  # the states behind the passed batches belong to other weights
        self.guard.rolled_back(trouble, self.step)
        self.pending = None
        if self.guard.exhausted:
            self.gave_up = self.guard.describe_end(trouble)
        else:
            self._report(0.0, self.last.learning_rate, self.guard.describe(trouble))

    # -- Validation

    @torch.no_grad()
    def evaluate(self, most: int) -> Evaluation:
        """Scores the hold-out set in at most so many batches; 0: in all of them. Collective."""
        number, state = 0, None
        sums = torch.zeros(4, dtype=torch.float64, device=self.group.device)
        self._swap_average()
        while not most or number < most:
            batch = self.batches.validation(number)
            if batch is None:
                break
            part = batch.part(share(batch.rows, self.group.size, self.group.rank))
            with self._autocast():
                output, state = self.placement.answer(
                    part.inputs, state if batch.continues else None, reset=part.reset
                )
            sums[:3] += _loss_of(output, part, self.options.loss)[1]
            sums[3] += batch.weight if self.group.rank == 0 else 0.0
            number += 1
        self._swap_average()
        loss, scored, correct, weight = self.group.sum(sums).tolist()
        return evaluation_of(loss, weight, scored, correct, self._of_classes)

    def _swap_average(self):
        if self.average is not None:
            self.average.swap()

    def _validate(self, most):
        self.validation = self.evaluate(most)
        self.metrics.validated(self.last, self.validation)

    def _judge(self, evaluation, by_steps):
        options = self.options
        if evaluation.scored == 0:
            return
        if by_steps and options.schedule == "plateau" and not self.stopping.cooling:
            self.plateau.note(evaluation.loss)
        if not options.keep_best and not options.patience:
            return
        if self.stopping.note(evaluation.loss, self.step, by_steps):
            self.best = self._answering_values()
        if by_steps and self.stopping.exhausted:
            begin = self.fraction()
            self.placement.set_values(self.best)
            if self.average is not None:
                self.average.start()
            self.stopping.begin_cooldown(self.step, begin)
            self.good = self.pending = None
            self._keep_anew()

    def _keep_anew(self):
        """Makes the weights of now the state to return to, since they were replaced."""
        if self.options.rollbacks:
            self.guard.restore(self.guard.state() | {"good": _NO_POINT, "pending": _NO_POINT})
            self._keep()

    def _answering_values(self):
        """Returns copies of the weights that answer: the average, if there is one."""
        self._swap_average()
        values = self.placement.values()
        self._swap_average()
        return values

    def _validate_if_due(self):
        options = self.options
        by_steps = options.validate_steps > 0 and self.step % options.validate_steps == 0
        by_time = options.validate_every > 0 and self.seconds - self._validated >= options.validate_every
        if by_steps or by_time:
            self._validate(options.validation_batches)
            self._validated = self.seconds
            self._judge(self.validation, by_steps)

    # -- The run

    def run(self) -> None:
        """Trains until a limit, a signal or the end of early stopping."""
        self._started = time.monotonic()
        self._validated = self._saved = self._reported = self.seconds
        if self.options.rollbacks and self.good is None:
            self._keep_anew()
        if self.step == 0 and self.options.knows_something:
            self._judge(self.evaluate(self.options.validation_batches), False)
        while not self._ends() and not self.gave_up:
            self.run_step()
            if self._ends() or self.gave_up:
                break
            self._validate_if_due()
            self._save_if_due()
        self.save(wait=True)

    def finish(self) -> int:
        """Puts the weights that are kept into the model, and scores it. Returns the step that they are of."""
        model_step = self.step
        if self.interrupted:
            self._answer_with_average()
            return model_step
        if self.options.keep_best and self.stopping.state()["known"]:
            self._judge(self.evaluate(self.options.validation_batches), False)
            model_step = self.stopping.state()["best_step"]
            self.average = None
            self.placement.set_values(self.best)
        self._answer_with_average()
        if self.batches.held_out:
            self._validate(0)
        return model_step

    def _answer_with_average(self):
        self._swap_average()
        self.average = None

    # -- Checkpoints

    def _save_if_due(self):
        if self.checkpoints is not None and self.seconds - self._saved >= self.options.checkpoint_every:
            self.save(wait=False)

    def save(self, wait: bool) -> None:
        """Writes a checkpoint. A failure is told, and training goes on. Collective."""
        if self.checkpoints is None:
            return
        self._saved = self.seconds
        error = self.checkpoints.save(self.step, self.tensors(), self.notes(), wait)
        self.checkpoint_error = error
        if error:
            self._saved -= max(0.0, self.options.checkpoint_every - _RETRY_SECONDS)
            self._report(0.0, self.last.learning_rate, error)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Returns the tensors of a checkpoint: this rank's parts, and the states of its rows."""
        named = self.placement.parameters
        found = {f"model.{name}": p for name, p in named.items()}
        found |= self.optimizers.named_state(named)
        for kind, values in (("best", self.best), ("average", None if self.average is None else self.average.values)):
            if values is not None:
                found |= {f"{kind}.{name}": value for name, value in zip(named, values)}
        for rows, state in zip(self._rows, self.carried):
            if state is not None:
                found |= {f"carried.{row}": vector for row, vector in zip(rows, states.as_rows(state))}
        return found

    def notes(self) -> dict[str, Any]:
        """Returns what a checkpoint has besides tensors."""
        counters = {name: getattr(self, name) for name in _COUNTERS}
        return {
            "identity": self.identity(), "ranks": self.group.size, "counters": counters, "position": self.batches.position(),
            "guard": self.guard.state(), "stopping": self.stopping.state(), "plateau": self.plateau.state(),
        }  # fmt: skip

    def identity(self) -> dict[str, Any]:
        """Returns what a resumed run has to have in common with the first one."""
        options = {name: getattr(self.options, name) for name in _IDENTITY}
        if self.options.patience or self.options.schedule == "plateau":
            options["validate_steps"] = self.options.validate_steps
        return {**options, "model": self.placement.module.spec, "steps of data": self.batches.training + self.batches.held_out}

    def resume(self) -> None:
        """Continues from the latest checkpoint. Collective."""
        assert self.checkpoints is not None
        path, notes = self.checkpoints.notes(self.identity())
        self._load(path, self.checkpoints.names(path))
        for name, value in notes["counters"].items():
            setattr(self, name, value)
        self._set_stopping(notes["stopping"], notes["plateau"])
        self.guard.restore(notes["guard"])
        self.group.together(lambda: self._restore_position(path, notes["position"]))
        self._seconds_before = self.seconds

    def _restore_position(self, path, position):
        try:
            self.batches.restore(position)
        except Incompatible as error:
            raise Incompatible(f"checkpoint {path}: {error}; give the data of that run, or another folder") from error

    def _load(self, path, known):
        """Reads the tensors of a checkpoint, which has those with ``known`` names."""
        self.optimizers.initialise()
        if any(name.startswith("best.") for name in known):
            self.best = self.placement.values()
        like = self._state_of_one_row()
        wanted = {name: t for name, t in self.tensors().items() if name in known or not name.startswith("optimizer.")}
        if "carried.0" in known:
            (row,) = states.as_rows(like)
            wanted |= {f"carried.{number}": torch.zeros_like(row) for part in self._rows for number in part}
        self.checkpoints.load(path, wanted)
        if "carried.0" in known:
            self.carried = [states.from_rows([wanted[f"carried.{row}"] for row in part], like) for part in self._rows]

    def _state_of_one_row(self):
        data = self.placement.module.data
        shape, dtype = ((1, 1), torch.int64) if data["vocabulary"] else ((1, 1, len(data["inputs"])), torch.float32)
        _, state = self.placement.answer(torch.zeros(shape, dtype=dtype, device=self.group.device))
        return state


#: What the library's schedules read, besides the highest rate.
_OF_RATE = ("schedule", "warmup", "final_rate", "steps")
_NO_POINT = {"step": -1, "memory": {"losses": [], "norms": [], "first_loss": 0.0, "first_norm": 0.0, "accepted": 0}}
_COUNTERS = ("step", "updates", "scored", "skipped", "skipped_in_a_row", "seconds")
#: Options that a resumed run has to share.
_IDENTITY = ("batch", "length", "learning_rate", "weight_decay", "warmup", "final_rate", "clip", "carry_state", "loss",
             "optimizer", "seed", "schedule", "average", "patience")  # fmt: skip


#: The losses of regression, as functions of the difference of an output and its target.
_TERMS = {"mse": torch.square, "mae": torch.abs}


def _loss_of(output, batch, kind):
    """Returns the sum of the loss, and [sum, scored steps, right answers] without gradients."""
    output = output.float()
    if kind == "cross_entropy":
        logits, wanted = output.flatten(0, 1), batch.labels.flatten()
        loss = functional.cross_entropy(logits, wanted, ignore_index=-1, reduction="sum")
        scored, right = wanted >= 0, (logits.detach().argmax(-1) == wanted).sum()
    else:
        # Outputs that are not scored may be infinite: they must not reach the sum.
        difference = torch.where(batch.weights > 0, output - batch.targets, 0.0)
        loss = (batch.weights * _TERMS[kind](difference)).sum()
        scored, right = (batch.weights > 0).any(-1), loss.new_zeros(())
    return loss, torch.stack([loss.detach().double(), scored.sum().double(), right.double()])
