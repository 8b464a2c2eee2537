"""The training of models, and their score on what was held out."""

from __future__ import annotations

import dataclasses
import os
import re
import time

from . import _core
from ._given import dataset_of, model_of
from ._keywords import explain_keywords, warn_caller
from ._progress import bar_for
from .datasets import describe_data, scored_unit
from .errors import InvalidArgument

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without the import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TextIO

    from ._search import SearchResult
    from .datasets import Dataset
    from .models import Model

__all__ = ["Evaluation", "Progress", "TrainResult", "evaluate", "train"]


@dataclasses.dataclass(frozen=True)
class Progress:
    """What is known after an optimiser step, or a skipped one."""

    step: int = 0  #: Batches so far.
    seconds: float = 0.0  #: Wall time so far.
    fraction: float = 0.0  #: Of the run, 0 to 1.
    seconds_left: float = 0.0
    epoch: float = 0.0  #: Passes over the data.
    loss: float = 0.0  #: Mean over the steps since the last report, in nats or squared units.
    accuracy: float = 0.0  #: Of the same steps; cross-entropy only.
    learning_rate: float = 0.0
    gradient_norm: float = 0.0  #: Of the last step, before clipping.
    clipped_norm: float = 0.0  #: After it.
    steps_per_second: float = 0.0  #: Of the optimiser, since the last report.
    positions_per_second: float = 0.0  #: Time steps times rows, since the last report.
    saturated: float = 0.0  #: Fraction of recurrent outputs beyond 0.99.
    first_gradient_ratio: float = 0.0  #: Norm of the first block's gradient over the last one's: near 0 it vanishes.
    skipped: int = 0  #: Steps that were not finite, so far.
    warning: str = ""  #: One line where a step was skipped or gradients vanish; otherwise empty.


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """How well a model does on what was held out."""

    loss: float
    bits_per_step: float  #: loss / ln 2, for cross-entropy: bits a byte of a text.
    accuracy: float
    scored: int  #: Number of scored steps.


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """How a training ended."""

    last: Progress
    validation: Evaluation | None
    stopped_early: bool  #: Because nothing better followed.
    model_step: int  #: The weights that the model ends with are those after this step.
    interrupted: bool  #: By Ctrl-C, or the notebook's stop button: the model has what was learnt until then.
    checkpoint_error: str = ""  #: Why the last checkpoint could not be written; empty if it could.
    share: float = 1.0  #: How much of what the layers say counts, 0 to 1, beside a linear forecast or filters.
    filter_share: float = 0.0  #: How much of what the filters of labelled sequences say counts.
    search: SearchResult | None = None  #: What a search before the training has found.


def train(
    model: Model,
    data: Dataset,
    *,
    steps: int | None = None,
    seconds: float | None = None,
    epochs: float | None = None,
    search: float | None = None,
    seeds: int = 1,
    filters: bool = True,
    batch: int | None = None,
    length: int | None = None,
    learning_rate: float | None = None,
    weight_decay: float = 0.01,
    warmup: float = 0.05,
    clip: float = 1.0,
    carry_state: bool = True,
    loss: str = "automatic",
    optimizer: str = "adamw",
    validate_every: float | None = None,
    validate_steps: int | None = None,
    patience: int | None = None,
    keep_best: bool | None = None,
    log_every: float = 0.5,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 30.0,
    resume: bool = False,
    metrics: str | os.PathLike[str] | None = None,
    tensorboard: str | os.PathLike[str] | None = None,
    seed: int = 0,
    device: str | None = None,
    precision: str | None = None,
    threads: int = 0,
    exact: bool = False,
    callback: Callable[[Progress], object] | None = None,
    progress: bool | TextIO = True,
) -> TrainResult:
    """Trains a model in place, and returns a :class:`TrainResult`.

    What is None is what suits the data, as ``penstock train`` has it: limits, sizes of batches, how often to validate,
    when to stop and which weights to keep. The first of the limits that is reached ends the run. Ctrl-C ends it after
    the current step: the result then says that it was interrupted, and with a checkpoint ``resume=True`` goes on.

    Once the layers are trained, the model is finished as ``penstock train`` does: what they add to a linear forecast is
    reduced to what pays on the held-out part, the spread of forecasts is found, and a model of labelled sequences gets
    filters. Ctrl-C skips the rest of that as well. Layers of a series whose held-out rows are too few to say what they
    add would be reduced to nothing: unless it is said how to train them, they are not trained.

    Args:
        model: A :class:`Model`, made for this data.
        data: A :class:`Dataset`.
        steps: Limit in batches.
        seconds: Limit in wall time.
        epochs: Limit in passes over the data.
        search: So many minutes of a :func:`penstock.search` first, for what the model and ``learning_rate`` leave open: the
            model becomes a fresh one of the best cell, width and dropout.
        seeds: Train so many models, from the model's own weights and from those of later seeds, each as long as is said.
            The model becomes their mean.
        filters: Labelled sequences: put convolution filters beside the layers in the end (:meth:`Model.add_filters`).
            Where too few sequences are held out to say what layers add, none are trained and the filters stand alone.
        batch: Rows ``B`` of a batch.
        length: Steps ``T`` of one window of truncated back-propagation.
        learning_rate: Its highest value; it rises during ``warmup`` of the run, then falls along a cosine. None: 0.003, and
            0.001 for a model of :meth:`Model.continue_from`.
        weight_decay: Of matrices.
        clip: Greatest norm of the gradient; 0: any.
        carry_state: Windows that continue each other pass their state on.
        loss: ``"automatic"``, ``"cross_entropy"``, ``"mse"`` or ``"mae"``.
        optimizer: ``"adamw"`` or ``"sgd"``.
        validate_every: Seconds between validations; 0: at the end only.
        validate_steps: Steps between validations, in addition to those; 0: none.
        patience: So many validations by steps without a lower loss end the run; 0: none do.
        keep_best: The model ends as the best validation found it.
        log_every: Seconds between reports; 0: after every step. With ``metrics`` or ``tensorboard`` also every hundredth of
            the run.
        checkpoint: A file from which ``resume=True`` goes on, bit for bit, with the same options.
        metrics: A file for all measurements, as JSON lines.
        tensorboard: A folder for the same as events that TensorBoard reads.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:N"`` or ``"auto"``; None: the model's own.
        precision: As of :meth:`Model.forward`; None: what suits the data, which is ``"bf16"`` for a text on a GPU and ``"full"``
            otherwise.
        callback: Called with a :class:`Progress` at each report; what it raises ends the training and is raised again.
        progress: True: a bar on the terminal or in the notebook. False: nothing. Otherwise a stream to write to.

    Raises:
        InvalidArgument: An option is impossible.
        Incompatible: The model was made for other data, or the checkpoint belongs to something else.
        NumericalError: Too many steps in a row were not finite.
    """
    how = {name: value for name, value in locals().items() if name in _OF_LAYERS}
    _now()  # which the model will note: a wrong one is said before training
    model_of(model), dataset_of(data)  # which refuse others
    resumed = os.fspath(checkpoint) if resume and checkpoint is not None and os.path.exists(checkpoint) else ""
    options = _core.suggest(data._dataset, model._on(device), resumed)
    if steps is not None or seconds is not None or epochs is not None:
        options.update(max_steps=steps or 0, max_seconds=float(seconds or 0), max_epochs=float(epochs or 0))
    given = {
        "batch": batch,
        "length": length,
        "validate_every": None if validate_every is None else float(validate_every),
        "validate_steps": validate_steps,
        "patience": patience,
        "keep_best": keep_best,
        "precision": precision,
    }
    options.update({name: value for name, value in given.items() if value is not None})
    if not options["validate_steps"]:
        options["patience"] = 0 if patience is None else patience
    options |= {
        "weight_decay": float(weight_decay),
        "warmup": float(warmup),
        "clip": float(clip),
        "carry_state": carry_state,
        "loss": loss,
        "optimizer": optimizer,
        "log_every": float(log_every),
        "checkpoint_path": os.fspath(checkpoint) if checkpoint is not None else "",
        "checkpoint_every": float(checkpoint_every),
        "metrics_path": os.fspath(metrics) if metrics is not None else "",
        "tensorboard_path": os.fspath(tensorboard) if tensorboard is not None else "",
        "seed": seed,
        "device": model._on(device),
        "threads": threads,
        "exact": exact,
    }
    if seeds < 1:
        raise InvalidArgument(f"seeds must be at least 1, not {seeds}")
    _core.check_members(model._model, seeds)
    if model._continues and (search is not None or seeds > 1):
        raise InvalidArgument(
            f"{'search' if seeds == 1 else 'seeds'} contradicts a model that goes on from another one"
        )
    if filters and _core.filters_stand_alone(data._dataset):
        if search is not None:
            raise InvalidArgument("search looks for layers, and too few sequences are held out to say what they add")
        return _train_filters(model, data, options)
    found = None
    if search is not None:
        found = _search_first(model, data, search, learning_rate, options, resume, progress is not False)
        if found.interrupted:
            return TrainResult(Progress(), None, False, 0, True, search=found)
        learning_rate = found.learning_rate
    if learning_rate is None:
        learning_rate = _core.fine_tuning_rate if model._continues else 3e-3
    options["learning_rate"] = float(learning_rate)
    unsaid = getattr(train, "__wrapped__", train).__kwdefaults__ or {}
    said = any(value != unsaid[name] for name, value in how.items())
    untrained = not said and not model._continues and _core.linear_stands_alone(data._dataset)
    result: dict[str, Any]
    if untrained:
        result = {"validation": None, "stopped_early": False, "model_step": 0, "interrupted": False}
    else:
        bar = bar_for(progress, model.task)
        try:
            result = _train_members(model, data, options, seeds, bar, callback, resume)
        finally:
            bar.close()
    if not result["interrupted"]:
        validate = seeds > 1 or untrained
        finished = _core.finish(model._model, data._dataset, options, options["keep_best"], filters, validate, not untrained)
        result["validation"] = finished.pop("validation") or result["validation"]
        result |= finished
    weight = result.pop("weight", "")
    model._data = model._model.data()
    model._history = _history(model, data, result, found, weight)
    names = ("stopped_early", "model_step", "interrupted", "checkpoint_error", "share", "filter_share")
    end = {name: result.pop(name) for name in names if name in result}
    validation = result.pop("validation")
    return TrainResult(
        Progress(**result), None if validation is None else Evaluation(**validation), **end, search=found
    )


#: Arguments of :func:`train` that say how layers are trained.
_OF_LAYERS = ("steps", "seconds", "epochs", "search", "seeds", "batch", "length", "learning_rate", "weight_decay", "warmup", "clip",
              "optimizer", "loss", "validate_every", "validate_steps", "patience", "keep_best", "resume", "tensorboard")  # fmt: skip


def _score_text(task, validation, unit):
    if validation is None:
        return ""
    value = f"loss {validation['loss']:.4g}"
    if task == "language":
        value = f"{validation['bits_per_step']:.4g} bits/byte"
    if task == "classify":
        value = f"{100 * validation['accuracy']:.4g} % right"
    return f"{value} on {validation['scored']:,} held-out {unit}"


def _now():
    """The time in UTC, or that of SOURCE_DATE_EPOCH where files are to be reproducible."""
    seconds, latest = time.time(), 253402300799  # the last second of the year 9999
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    if fixed is not None:
        if re.fullmatch("[0-9]{1,12}", fixed) is None or int(fixed) > latest:
            raise InvalidArgument(
                f"SOURCE_DATE_EPOCH must be 0 to {latest}, in seconds since 1970, not {fixed!r}: unset it for the "
                "time of now"
            )
        seconds = int(fixed)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _history(model, data, result, found=None, weight=""):
    """Where a model comes from that was just trained: what ``penstock train`` notes in its files."""
    description, validation = data.description, result["validation"]
    return {
        "trained": _now(),
        "data": f"{data._source}: {describe_data(description)}",
        "score": _score_text(description["task"], validation, scored_unit(description)),
        "version": _core.system_info()["version"],
        "steps": result.get("step", 0),
        "origin": model._origin,
        "search": "" if found is None else f"{len(found.trials)} trials in {found.seconds:.0f} s",
        "weight": weight,
    }


def _train_filters(model, data, options):
    """Makes the model one of filters without layers."""
    warn_caller(
        "too few sequences are held out to say what layers add: the filters stand alone (filters=False trains layers)"
    )
    try:
        filters, weight = _core.filters_alone(data._dataset, options["seed"], options["threads"])
        scored = _core.evaluate(filters, data._dataset, options | {"validation_batches": 0})
    except KeyboardInterrupt:
        return TrainResult(Progress(), None, False, 0, True)
    _core.replace(model._model, filters)
    validation = Evaluation(**scored) if scored["scored"] else None
    model._data = model._model.data()
    model._history = _history(model, data, {"validation": scored if validation else None}, weight=weight)
    result = TrainResult(Progress(), validation, False, 0, False)
    return dataclasses.replace(result, share=0.0, filter_share=1.0)


def _search_first(model, data, minutes, learning_rate, options, resume, progress):
    """Makes the model a fresh one of the best cell, width and dropout."""
    from ._search import search

    record = options["checkpoint_path"] + ".search" if options["checkpoint_path"] else None
    found = search(
        data,
        minutes,
        model=model._arguments,
        learning_rate=learning_rate,
        record=record,
        resume=resume and record is not None and os.path.exists(record),
        seed=options["seed"],
        device=options["device"],
        precision=options["precision"],
        threads=options["threads"],
        progress=progress,
    )
    if not found.interrupted:
        _core.replace(model._model, _core.Model.make(model.spec | found.model, data._dataset, options["seed"]))
    return found


def _member_path(path, number):
    """As the program names the files of the later models of an ensemble."""
    return path if number == 0 or not path else f"{path}.{number + 1}"


def _train_members(model, data, options, seeds, bar, callback, resume):
    """Trains the model, and others of later seeds; it becomes the mean of them all."""

    def report(fields):
        state = Progress(**fields)
        bar.show(state)
        if callback is not None:
            callback(state)

    def validated(fields, evaluation):
        bar.validated(Progress(**fields), Evaluation(**evaluation))

    start = data._dataset.position() if seeds > 1 else None
    others = []
    for number in range(seeds):
        member = model._model
        if number > 0:
            data._dataset.restore(start)
            member = _core.Model.make(model.spec, data._dataset, options["seed"] + number)
            others.append(member)
        paths = ("checkpoint_path", "metrics_path", "tensorboard_path")
        own = options | {name: _member_path(options[name], number) for name in paths}
        own["seed"] = options["seed"] + number
        # Of several, those that were never begun have nothing to go on from.
        goes_on = resume and (number == 0 or os.path.exists(own["checkpoint_path"]))
        result = _core.train(member, data._dataset, own, report, validated, goes_on)
        if result["interrupted"]:
            break
    if others:
        _core.combine(model._model, others)
    return result


def evaluate(
    model: Model,
    data: Dataset,
    *,
    batch: int = 32,
    length: int = 256,
    loss: str = "automatic",
    device: str | None = None,
    precision: str = "full",
    threads: int = 0,
) -> Evaluation:
    """Scores a model on what the dataset holds out; returns an :class:`Evaluation`."""
    model_of(model), dataset_of(data)  # which refuse others
    options = {
        "batch": batch,
        "length": length,
        "validation_batches": 0,
        "loss": loss,
        "device": model._on(device),
        "precision": precision,
        "threads": threads,
    }
    return Evaluation(**_core.evaluate(model._model, data._dataset, options))


explain_keywords(globals())
