"""Datasets, and the training of models on them."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
import time
import warnings

from . import _core
from .errors import InvalidArgument

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without the import
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Protocol, TextIO

    from ._search import SearchResult
    from .models import Model

    Path = str | os.PathLike[str]

    class Table(Protocol):
        """What shares its columns with others, as tables of pandas, Polars, PyArrow and DuckDB do."""

        def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


__all__ = [
    "Dataset",
    "Evaluation",
    "Progress",
    "TrainResult",
    "evaluate",
    "open_labelled",
    "open_series",
    "open_sound",
    "open_task",
    "open_text",
    "train",
]


class Dataset:
    """Data to train on; made by :func:`open_text` and the functions beside it."""

    def __init__(self, dataset, source: str, from_last: bool = False) -> None:
        self._dataset = dataset
        self._source = source
        self._from_last = from_last  # a series: scaled for forecasts that start from the last value

    @property
    def description(self) -> dict[str, Any]:
        """Task, columns with mean and scale, classes, vocabulary, horizon, as a dictionary."""
        return self._dataset.description()

    @property
    def training_steps(self) -> int:
        """How many scored training steps one pass has; 0 where there is no end."""
        return self._dataset.training_steps()

    @property
    def held_out_steps(self) -> int:
        """How many steps are held out, sequences of labelled ones; 0 where there is no end."""
        return self._dataset.held_out_steps()

    @property
    def reading(self) -> list[str]:
        """How the files were read, as far as that had to be found out: what ``penstock train`` says in its first lines."""
        return self._dataset.reading()

    def __repr__(self) -> str:
        unit = scored_unit(self.description)
        amount = f"{self.training_steps:,} {unit} to train on, {self.held_out_steps:,} held out"
        if not self.training_steps:
            amount = "generated without end"
        return f"<penstock.Dataset {self._source}: {describe_data(self.description)}; {amount}>"


def column_names(columns, most=4):
    """Names of columns, each once: a date or what is known in advance may be several inputs."""
    names = list(dict.fromkeys(column["name"] for column in columns))
    return ", ".join(names) if len(names) <= most else f"{len(names)} columns"


def scored_unit(description):
    """What is counted as a step."""
    if description["task"] == "classify":
        return "sequences"
    if description["task"] == "language":
        return "bytes"
    return "samples" if description["sample_rate"] else "rows"


def describe_data(description):
    """What is read and what is said of it, in a few words."""
    if description["task"] == "language":
        return "text"
    read = column_names(description["inputs"]) or f"tokens below {description['vocabulary']}"
    if description["task"] == "classify":
        return f"{read} in {len(description['classes'])} classes"
    if description["sample_rate"]:
        return f"sound at {description['sample_rate']} Hz"
    horizon, groups = description["horizon"], len(description["groups"])
    ahead = f"{'' if horizon == 1 else '1 to '}{horizon} row{'' if horizon == 1 else 's'} ahead"
    many = f", {groups} series" if groups else ""
    return f"{column_names(description['targets'])} {ahead} from {read}{many}"


def _paths(path):
    """One path, or several of them, as a list of str."""
    return [os.fspath(path)] if isinstance(path, (str, os.PathLike)) else [os.fspath(each) for each in path]


def _is_table(data):
    """Whether this is a table in memory."""
    return hasattr(data, "__arrow_c_stream__")


def table_texts(data):
    """The names and texts of one table in memory or of several; none for paths."""
    several = isinstance(data, (list, tuple)) and data and all(map(_is_table, data))
    if not several and not _is_table(data):
        if hasattr(data, "__dataframe__"):
            kind = f"{type(data).__module__.partition('.')[0]}.{type(data).__name__}"
            raise InvalidArgument(f"this {kind} has no __arrow_c_stream__: a newer version has, pandas with PyArrow")
        return []
    tables = {f"table {i + 1}": each for i, each in enumerate(data)} if several else {"the table": data}
    return [(name, _core.table_text(each.__arrow_c_stream__(), name)) for name, each in tables.items()]


def _sources(data):
    """Paths, and tables in memory: one of them is empty."""
    tables = table_texts(data)
    return ([], tables) if tables else (_paths(data), tables)


def _name_of(paths, tables=()):
    """What to call paths or tables: the first of them, and how many more."""
    names = paths or [name for name, _ in tables]
    return (names[0] if names else "") + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _refuse_given(reason, **given):
    """Raises InvalidArgument for the first argument that is there although another one decides it."""
    for name, value in given.items():
        if value:
            raise InvalidArgument(f"{name} contradicts {reason}, which decides it")


def open_text(path: Path | Sequence[Path], *, validation_fraction: float = 0.05, bytes: bool = False) -> Dataset:
    """Files, or folders of them, as one sequence of bytes, whose last part is held out.

    ``bytes``: read also what is no text, such as programs and pictures.
    """
    paths = _paths(path)
    return Dataset(_core.open_text(paths, validation_fraction, bytes), _name_of(paths))


def open_sound(input: Path, target: Path, *, validation_fraction: float = 0.2, origin: Model | None = None) -> Dataset:
    """What went into an effect or an amplifier, and what came out: two files of one sample rate and length.

    ``origin`` is a model that is to be trained further (:meth:`Model.continue_from`).
    """
    model = None if origin is None else origin._model
    source, came_out = os.fspath(input), os.fspath(target)
    return Dataset(_core.open_sound(source, came_out, validation_fraction, model), f"{source} to {came_out}")


def open_series(
    path: Path | Table | Sequence[Path] | Sequence[Table],
    *,
    inputs: Sequence[str] = (),
    targets: Sequence[str] = (),
    horizon: int = 1,
    validation_fraction: float = 0.2,
    delimiter: str = "",
    decimal: str = "",
    header: bool | None = None,
    missing: str | None = None,
    from_last: bool | None = None,
    autoregression: bool | None = None,
    transform: str | None = None,
    season: int = 0,
    calendar: str | Sequence[str] | None = None,
    date_column: str = "",
    irregular: str | None = None,
    group: str = "",
    group_by_file: bool = False,
    known: Sequence[str] = (),
    origin: Model | None = None,
) -> Dataset:
    """A table, one step a row: a CSV file, or one in memory.

    What is not said is as ``penstock train`` has it.

    Args:
        path: A file, a folder of them, or several, which hold the same columns: series that do not follow each other. Or
            such tables in memory, of pandas, Polars, PyArrow, DuckDB or whatever else has ``__arrow_c_stream__``.
        inputs: Names of columns; none: every numeric one.
        targets: Names of the columns to forecast; none: the inputs.
        horizon: How many rows ahead.
        validation_fraction: The last rows are held out; normalisation sees the first part only.
        delimiter: Between the fields of a row; found from the file if empty.
        decimal: ``"."`` or ``","``: starts the fraction of a number; found from the file if empty.
        header: Whether the first row holds the names of the columns; found from it if None.
        missing: What becomes of empty values: ``"refuse"`` (an error), ``"carry"`` (the last one), ``"interpolate"`` or
            ``"mask"`` (the last one, and not scored). None: what ``origin`` did, otherwise ``"refuse"``.
        from_last: For a model with ``from_last=True``: scaled for forecasts that start from the last value. True if not given.
        autoregression: Fit a linear forecast too, beside which a model learns the rest; needs ``from_last``, and is what that is
            if not given.
        transform: ``"none"``, ``"logarithm"`` (all values must be positive), or ``"automatic"``, the default with
            ``autoregression``: what forecasts best in the training part.
        season: Rows after which the targets repeat themselves; 1: never, 0: find out.
        calendar: Also read where a row's date stands in these cycles: some of ``"day"``, ``"week"`` and ``"year"``, or
            ``"auto"``, the default: those that the training part holds twice and follows; ``"none"``: none.
        date_column: Holds the dates; the first column that does if empty.
        irregular: What becomes of rows whose dates are not evenly apart: ``"ignore"`` (they follow each other all the
            same), ``"elapsed"`` (the time since the row before is an input), ``"fill"`` (rows that are missing from a
            regular calendar are put in without values), ``"refuse"``, or ``"automatic"``, the default where the calendar
            is read: what suits the dates.
        group: Names the series of a row, where the file holds many: each is split by time and scaled by itself.
        group_by_file: The same, of files that hold a series each, which are named as they are.
        known: Columns whose values are known in advance: those of the rows that are forecast are inputs, too.
        origin: A model that is to be trained further (:meth:`Model.continue_from`): columns, scaling, horizon, ``from_last``,
            ``autoregression``, ``transform``, ``calendar``, ``group``, ``group_by_file`` and ``known`` are those of its data, and must not be given.
    """
    if origin is not None:
        _refuse_given("origin", inputs=list(inputs), targets=list(targets), horizon=horizon != 1, from_last=from_last is not None,
                      autoregression=autoregression is not None, transform=transform is not None, calendar=calendar is not None,
                      date_column=date_column, irregular=irregular is not None, group=group, group_by_file=group_by_file, known=list(known))  # fmt: skip
        from_last, autoregression = origin.spec["from_last"], origin.spec["lags"] > 0
    paths, tables = _sources(path)
    dataset = _core.open_series(
        paths,
        tables,
        list(inputs),
        list(targets),
        horizon,
        validation_fraction,
        delimiter,
        decimal,
        header,
        missing,
        from_last,
        autoregression,
        transform,
        season,
        [calendar] if isinstance(calendar, str) else list(calendar or ()),
        date_column,
        irregular,
        group,
        group_by_file,
        list(known),
        None if origin is None else origin._model,
    )
    if from_last is None:
        from_last = dataset.forecasts_an_input()
    return Dataset(dataset, _name_of(paths, tables), from_last)


def open_labelled(
    path: Path | Table | Sequence[Path] | Sequence[Table],
    *,
    sequence_column: str = "sequence",
    label_column: str = "label",
    inputs: Sequence[str] = (),
    validation_fraction: float = 0.2,
    delimiter: str = "",
    decimal: str = "",
    header: bool | None = None,
    missing: str | None = None,
    seed: int = 0,
    origin: Model | None = None,
) -> Dataset:
    """A table in which each run of one value of ``sequence_column`` is one labelled sequence, or a ``.ts`` file.

    Tables are written, or stand in memory, as for :func:`open_series`. ``origin`` is a model that is to be trained further (:meth:`Model.continue_from`): columns, scaling and labels are those
    of its data, and ``inputs`` must not be given.
    """
    if origin is not None:
        _refuse_given("origin", inputs=list(inputs))
    paths, tables = _sources(path)
    dataset = _core.open_labelled(
        paths,
        tables,
        sequence_column,
        label_column,
        list(inputs),
        validation_fraction,
        delimiter,
        decimal,
        header,
        missing,
        seed,
        None if origin is None else origin._model,
    )
    return Dataset(dataset, _name_of(paths, tables))


def open_task(
    name: str, *, length: int = 40, validation_length: int = 256, modulus: int = 5, copy_tokens: int = 10, seed: int = 0
) -> Dataset:
    """A built-in task, generated without end: ``"parity"``, ``"modular"`` or ``"copying"``."""
    return Dataset(_core.open_task(name, length, validation_length, modulus, copy_tokens, seed), f"task:{name}")


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
    steps_per_second: float = 0.0  #: Time steps times rows a second.
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
    precision: str = "full",
    threads: int = 0,
    exact: bool = False,
    callback: Callable[[Progress], object] | None = None,
    progress: bool | TextIO = True,
) -> TrainResult:
    """Trains a model in place, and returns a :class:`TrainResult`.

    What is None is what suits the data, as ``penstock train`` has it: limits, sizes of batches, how often to validate,
    when to stop and which weights to keep. The first of the limits that is reached ends the run. Ctrl-C ends it after
    the current step: the result then says that it was interrupted. Once the layers are trained, the model is finished
    as ``penstock train`` does: what they add to a linear forecast is reduced to what pays on the held-out part, the spread of
    forecasts is found, and a model of labelled sequences gets filters. Layers of a series whose held-out rows are too few to
    say what they add would be reduced to nothing: unless it is said how to train them, they are not trained.

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
        callback: Called with a :class:`Progress` at each report; what it raises ends the training and is raised again.
        progress: True: a bar on the terminal or in the notebook. False: nothing. Otherwise a stream to write to.

    Raises:
        InvalidArgument: An option is impossible.
        Incompatible: The model was made for other data, or the checkpoint belongs to something else.
        NumericalError: Too many steps in a row were not finite.
    """
    how = {name: value for name, value in locals().items() if name in _OF_LAYERS}
    options = _core.suggest(data._dataset)
    if steps is not None or seconds is not None or epochs is not None:
        options.update(max_steps=steps or 0, max_seconds=float(seconds or 0), max_epochs=float(epochs or 0))
    given = {
        "batch": batch,
        "length": length,
        "validate_every": None if validate_every is None else float(validate_every),
        "validate_steps": validate_steps,
        "patience": patience,
        "keep_best": keep_best,
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
        "precision": precision,
        "threads": threads,
        "exact": exact,
    }
    if seeds < 1:
        raise InvalidArgument(f"seeds must be at least 1, not {seeds}")
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
    unsaid = train.__kwdefaults__ or {}
    said = any(value != unsaid[name] for name, value in how.items())
    untrained = not said and not model._continues and _core.linear_stands_alone(data._dataset)
    result: dict[str, Any]
    if untrained:
        result = {"validation": None, "stopped_early": False, "model_step": 0, "interrupted": False}
    else:
        bar = _bar(progress, model.task)
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
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
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
    warnings.warn(
        "too few sequences are held out to say what layers add: the filters stand alone (filters=False trains layers)",
        stacklevel=3,
    )
    filters, weight = _core.filters_alone(data._dataset, options["seed"], options["threads"])
    _core.replace(model._model, filters)
    scored = _core.evaluate(model._model, data._dataset, options | {"validation_batches": 0})
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


def _duration(seconds):
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class _NoBar:
    def show(self, progress: Progress):
        pass

    def validated(self, progress: Progress, evaluation):
        pass

    def close(self):
        pass


class _TextBar:
    """One line that is written again and again."""

    width = 24

    def __init__(self, stream, task) -> None:
        self._stream = stream
        self._task = task
        self._validation = None
        self._longest = 0

    def line(self, progress: Progress):
        """The text of the bar."""
        done = int(self.width * min(max(progress.fraction, 0.0), 1.0))
        fields = [f"{100 * progress.fraction:3.0f} % [{'#' * done}{'.' * (self.width - done)}]", self._loss(progress)]
        if self._validation is not None:
            fields.append("val " + self._score(self._validation))
        fields += [f"step {progress.step}", f"{_duration(progress.seconds)} < {_duration(progress.seconds_left)}"]
        return "  ".join(fields)

    def _loss(self, progress):
        if self._task == "language":
            return f"{progress.loss / math.log(2):.3f} bits/byte"
        if self._task == "classify":
            return f"loss {progress.loss:.4g}  acc {100 * progress.accuracy:.1f} %"
        return f"loss {progress.loss:.4g}"

    def _score(self, evaluation):
        if self._task == "language":
            return f"{evaluation.bits_per_step:.3f}"
        return f"{100 * evaluation.accuracy:.1f} %" if self._task == "classify" else f"{evaluation.loss:.4g}"

    def show(self, progress: Progress):
        text = self.line(progress)
        self._stream.write("\r" + text.ljust(self._longest))
        self._stream.flush()
        self._longest = max(self._longest, len(text))
        if progress.warning:
            self._stream.write(f"\nwarning: {progress.warning}\n")

    def validated(self, progress: Progress, evaluation):
        self._validation = evaluation
        self.show(progress)

    def close(self):
        if self._longest:
            self._stream.write("\n")
            self._stream.flush()


class _NotebookBar(_TextBar):
    """One output of a notebook's cell that is replaced again and again."""

    def __init__(self, display, task) -> None:
        super().__init__(None, task)
        self._display = display
        self._handle = None
        self._warnings: list[str] = []

    def show(self, progress: Progress):
        if progress.warning:
            self._warnings.append(f"warning: {progress.warning}")
        text = "\n".join([*self._warnings[-3:], self.line(progress)])
        bundle = {"text/plain": text}
        if self._handle is None:
            self._handle = self._display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)

    def close(self):
        pass


def _bar(progress, task):
    if progress is False or progress is None:
        return _NoBar()
    if progress is not True:
        return _TextBar(progress, task)
    if "ipykernel" in sys.modules:
        from IPython.display import display

        return _NotebookBar(display, task)
    return _TextBar(sys.stderr, task) if sys.stderr is not None and sys.stderr.isatty() else _NoBar()
