"""Training of models, and their scores on the hold-out set."""

from __future__ import annotations

import dataclasses
import os

from . import _core
from ._library_objects import dataset_of, model_of
from ._keywords import explain_keywords, warn_caller
from ._progress import bar_for
from .datasets import describe_data, scored_unit

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TextIO

    from .datasets import Dataset
    from .models import Model

__all__ = ["Evaluation", "Progress", "TrainResult", "evaluate", "train"]


@dataclasses.dataclass(frozen=True)
class Progress:
    """The state of a run after an optimiser step or a skipped one."""

    step: int = 0  #: Batches so far.
    seconds: float = 0.0  #: Wall time so far.
    fraction: float = 0.0  #: Completed fraction of the run, 0 to 1.
    seconds_left: float = 0.0  #: Estimated time to the end of the run.
    epoch: float = 0.0  #: Passes over the data so far.
    loss: float = 0.0  #: Mean over the steps since the last report, in nats or squared units.
    accuracy: float = 0.0  #: Accuracy of the same steps; cross-entropy only.
    learning_rate: float = 0.0  #: Learning rate of the last step.
    gradient_norm: float = 0.0  #: Norm of the gradient of the last step, before clipping.
    clipped_norm: float = 0.0  #: The same norm after clipping.
    steps_per_second: float = 0.0  #: Optimiser steps per second since the last report.
    positions_per_second: float = 0.0  #: Positions (time steps times rows) per second since the last report.
    saturated: float = 0.0  #: Fraction of recurrent outputs with an absolute value above 0.99.
    first_gradient_ratio: float = 0.0  #: Gradient norm of the first block over that of the last: near 0 it vanishes.
    skipped: int = 0  #: Steps skipped so far because they were not finite.
    rollbacks: int = 0  #: Returns to an earlier state so far, because the run was unstable.
    #: One line if a step was skipped, if the run returned to an earlier state, or if gradients vanish or explode or
    #: outputs are saturated; otherwise empty.
    warning: str = ""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The scores of a model on the hold-out set."""

    loss: float  #: Mean loss of a scored step, in nats or squared units.
    bits_per_step: float  #: loss / ln 2 for cross-entropy; for a text, bits per byte.
    accuracy: float  #: Fraction of right answers; cross-entropy only.
    scored: int  #: Number of scored steps.


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """The result of a training run."""

    #: The last report. With several seeds, steps, seconds, epochs and rollbacks are sums over the models.
    last: Progress
    validation: Evaluation | None  #: Scores of the finished model on the hold-out set; None without one.
    stopped_early: bool  #: True if early stopping ended the run.
    model_step: int  #: The step after which the model's final weights were taken.
    interrupted: bool  #: True after Ctrl-C or the notebook's stop button. The model keeps what it has learnt.
    #: The trouble and its likeliest remedy, if the run was still unstable after ``rollbacks`` returns to a good state.
    #: The model has its last good weights, or the best ones. Otherwise empty.
    gave_up: str = ""
    checkpoint_error: str = ""  #: Why the last checkpoint could not be written; empty if it was.
    metrics_error: str = ""  #: Why writing ``metrics`` or ``events`` was given up; empty if they are complete.
    share: float = 1.0  #: Weight of the layers in the answer, 0 to 1, beside a linear forecast or filters.
    filter_share: float = 0.0  #: Weight of the filters of labelled sequences in the answer.


def train(
    model: Model,
    data: Dataset,
    *,
    steps: int | None = None,
    seconds: float | None = None,
    epochs: float | None = None,
    seeds: int = 1,
    filters: bool = True,
    batch: int | None = None,
    length: int | None = None,
    learning_rate: float | None = None,
    weight_decay: float = 0.01,
    warmup: float = 0.05,
    clip: float = 1.0,
    average: float = 0.0,
    rollbacks: int = 10,
    carry_state: bool = True,
    loss: str = "auto",
    optimizer: str = "adamw",
    schedule: str = "cosine",
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
    """Trains a model in place and returns a :class:`TrainResult`.

    Options that are None take the defaults of ``penstock train`` for this kind of data: limits, batch size, how often
    to validate, when to stop and which weights to keep. The run ends at the first limit that it reaches. Ctrl-C ends it
    after the current step; the result is then marked as interrupted.

    After the layers are trained, the function finishes the model as ``penstock train`` does:

    * A series with a linear forecast: the weight of the layers' correction is reduced to what the validation rows
      support, and the spread of the forecasts is estimated. With too few validation rows the layers would get weight
      0: they are then not trained at all, unless an option about their training is given.
    * Labelled sequences: the model gets filters.

    Ctrl-C skips the rest of this phase.

    Args:
        model: A :class:`Model` made for this data.
        data: A :class:`Dataset`.
        steps: Optimiser steps; 0: no such limit. There has to be one.
        seconds: Seconds; 0: no such limit.
        epochs: Passes over the data; 0: no such limit.
        seeds: Number of models to train, each for the given limits: one from the model's own weights, the others from
            the next seeds, or from the same weights for a model of :meth:`Model.continue_from`. The model becomes
            their mean.
        filters: For labelled sequences: adds convolution filters beside the layers at the end
            (:meth:`Model.add_filters`). With too few validation sequences to judge layers, no layers are trained and
            the filters answer alone.
        batch: Batch size: sequences per optimiser step.
        length: Bytes or rows per sequence of a batch: how far back gradients reach.
        learning_rate: Highest learning rate of the schedule. None: 0.003, or 0.001 for a model of
            :meth:`Model.continue_from`.
        weight_decay: Weight decay of matrices.
        warmup: Fraction of the run in which the learning rate rises. Afterwards it falls by ``schedule``.
        clip: Largest norm of the gradient; 0: no clipping.
        average: Weight of the past in a moving average of the weights, which becomes the model; 0: none. Validations
            score the average. A usual value is 0.999. In step n it is at most (1 + n) / (10 + n), so that a short run
            soon forgets the weights that it began with.
        rollbacks: Times that an unstable run may return to its last good state before it ends; 0: never. The run
            passes over the batches since. If the trouble lasts or comes again, the learning rate is lowered for a
            while. See :attr:`TrainResult.gave_up` for the end.
        carry_state: True: a window that continues another one starts from its last state. False: every window starts
            from zeros.
        loss: The loss; the last four are for sound: ``"auto"``, ``"cross_entropy"``, ``"mse"``, ``"mae"``, ``"esr"``,
            ``"esr_dc"``, ``"stft"`` or ``"esr_stft"``. Those of sound judge a whole window and need a CPU.
        optimizer: The optimiser: ``"adamw"``, ``"sgd"``, ``"lion"``, ``"rmsprop"`` or ``"muon"``. Lion's best rate is a
            third to a tenth of AdamW's. Muon is for the matrices of the blocks, with AdamW for the rest, and needs a CPU,
            or ``penstock.torch.fit``.
        schedule: The schedule of the learning rate. ``"cosine"``: warm-up, then half a cosine. ``"onecycle"``: PyTorch's
            OneCycleLR, which rises over ``warmup``. ``"plateau"``: warm-up, then halved at the fourth validation by steps
            in a row without a lower loss.
        validate_every: Seconds between validations; 0: none by time.
        validate_steps: Steps between validations; 0: none by steps.
        patience: Early stopping: end after N validations by steps in a row without improvement; 0: never.
        keep_best: True: the model keeps the weights of the best validation. False: those of the last step.
        log_every: Seconds between reports. 0: a report after every step. With ``metrics`` or ``tensorboard`` there is
            also one at every hundredth of the run.
        checkpoint: File for checkpoints, from which the run can be resumed. With ``resume=True`` and the same options
            it continues bit for bit.
        checkpoint_every: Seconds between checkpoints.
        resume: True: continues from ``checkpoint``.
        metrics: File for all measurements as JSON lines, for 'penstock report'.
        tensorboard: Folder for all measurements as TensorBoard events.
        seed: Seed of the random choices of a run: dropout, and the order of the data.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:N"`` or ``"auto"``. None: the model's default device.
        precision: As for :meth:`Model.forward`. None: ``"bf16"`` for a text on a GPU, otherwise ``"full"``.
        threads: Number of threads. 0: all that the machine offers.
        exact: True: the same bits for any batch and any split of a sequence. This is slower.
        callback: Called with a :class:`Progress` at each report. An exception from it ends the training and is raised
            again.
        progress: True: a progress bar on the terminal or in the notebook. False: none. Otherwise a stream to write to.

    Raises:
        InvalidArgument: An option is impossible, or options contradict each other.
        Incompatible: The model was made for other data, or the checkpoint belongs to another run.
        IoFailure: There is no checkpoint to resume.
        NumericalError: Too many steps in a row were not finite.
    """
    said = dict(locals())
    _core.utc_time()  # noted in the model's history: a bad SOURCE_DATE_EPOCH is refused before training
    model_of(model), dataset_of(data)  # raise TypeError for other types
    request = {name: value for name, value in said.items() if name not in _NO_SETTINGS and value is not None}
    request |= {name: os.fspath(request[name]) for name in _PATHS & request.keys()}
    weights, chrono = model._initial
    request |= {
        "device": model._on(device),
        "continues": model._continues,
        "initial_weights": weights,
        "chrono": chrono,
    }
    bar = bar_for(progress, model.task, scored_unit(data.description)[:-1])

    def report(fields):
        state = Progress(**fields)
        bar.show(state)
        if callback is not None:
            callback(state)

    def validated(fields, evaluation):
        bar.validated(Progress(**fields), Evaluation(**evaluation))

    try:
        result: dict[str, Any] = _core.fit(model._model, data._dataset, request, report, validated)
    finally:
        bar.close()
    last, validation = Progress(**result.pop("last")), result.pop("validation")
    notes = {name: result.pop(name) for name in ("weight", "options", "columns")}
    model._data = model._model.data()
    model._history = _history(model, data, last.step, validation, notes)
    if result["gave_up"]:
        warn_caller(result["gave_up"])
    if result.pop("filters_alone"):
        warn_caller(
            "too few sequences are held out to say what layers add: the filters stand alone (filters=False trains "
            "layers)"
        )
    return TrainResult(last, None if validation is None else Evaluation(**validation), **result)


#: Arguments of :func:`train` that the library does not take as they are.
_NO_SETTINGS = {"model", "data", "callback", "progress"}
_PATHS = {"checkpoint", "metrics", "tensorboard"}


def _score_text(task, validation, unit):
    if validation is None:
        return ""
    value = f"loss {validation['loss']:.4g}"
    if task == "language":
        value = f"{validation['bits_per_step']:.4g} bits/{unit[:-1]}"
    if task == "classify":
        value = f"{100 * validation['accuracy']:.4g} % right"
    return f"{value} on {validation['scored']:,} held-out {unit}"


def _scores(task, validation, columns):
    """Returns the scores on the hold-out set as JSON; an empty text if there are none."""
    if columns:
        return _json({"columns": columns})
    if validation is None or task == "forecast":
        return ""
    if task == "language":
        return _json({"bytes": validation["scored"], "bits_per_byte": validation["bits_per_step"]})
    return _json({"scored": validation["scored"], "accuracy": validation["accuracy"]})


def _json(value):
    """Returns a value as JSON, which has null in place of numbers that are not finite."""
    import json
    import math

    def finite(each):
        if isinstance(each, dict):
            return {name: finite(one) for name, one in each.items()}
        return None if isinstance(each, float) and not math.isfinite(each) else each

    return json.dumps(finite(value))


def _history(model, data, steps, validation, notes):
    """Returns the history of a model that was just trained, as ``penstock train`` writes it to its files."""
    description = data.description
    return {
        "trained": _core.utc_time(),
        "data": f"{data._source}: {describe_data(description)}; {data._amount()}",
        "score": _score_text(description["task"], validation, scored_unit(description)),
        "version": _core.system_info()["version"],
        "steps": steps,
        "origin": model._origin,
        "weight": notes["weight"],
        "options": notes["options"],
        "scores": _scores(description["task"], validation, notes["columns"]),
    }


def evaluate(
    model: Model,
    data: Dataset,
    *,
    batch: int = 32,
    length: int = 256,
    loss: str = "auto",
    device: str | None = None,
    precision: str = "full",
    threads: int = 0,
) -> Evaluation:
    """Scores a model on the hold-out set of a dataset and returns an :class:`Evaluation`.

    Args:
        model: A :class:`Model` made for this data.
        data: A :class:`Dataset`.
        batch: Rows ``B`` of a batch.
        length: Time steps ``T`` of one window.
        loss: As for :func:`train`.
        device: As for :class:`Model`. None: the model's default device.
        precision: As for :meth:`Model.forward`.
        threads: Number of threads. 0: all that the machine offers.

    Raises:
        InvalidArgument: An option is impossible.
        Incompatible: The model was made for other data.
    """
    model_of(model), dataset_of(data)  # raise TypeError for other types
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
