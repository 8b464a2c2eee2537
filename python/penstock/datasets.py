"""Datasets: texts, series, labelled sequences, sounds and built-in tasks, for models to be trained on."""

from __future__ import annotations

import os
import re

from . import _core
from ._keywords import explain_keywords
from .errors import BadInput, InvalidArgument

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without the import
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Protocol

    from .models import Model

    Path = str | os.PathLike[str]

    class Table(Protocol):
        """What shares its columns with others, as tables of pandas, Polars, PyArrow and DuckDB do."""

        def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


__all__ = ["Dataset", "open_labelled", "open_labelled_texts", "open_series", "open_sound", "open_task", "open_text"]


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
        return "texts" if description["text_column"] else "sequences"
    if description["task"] == "language":
        return "bytes"
    return "samples" if description["sample_rate"] else "rows"


def describe_data(description):
    """What is read and what is said of it, in a few words."""
    if description["task"] == "language":
        return "text"
    if description["text_column"]:
        return f"texts of {description['text_column']} in {len(description['classes'])} classes"
    read = column_names(description["inputs"]) or f"tokens below {description['vocabulary']}"
    if description["task"] == "classify":
        return f"{read} in {len(description['classes'])} classes"
    if description["sample_rate"]:
        return f"sound at {description['sample_rate']} Hz"
    horizon, groups = description["horizon"], len(description["groups"])
    ahead = f"{'' if horizon == 1 else '1 to '}{horizon} row{'' if horizon == 1 else 's'} ahead"
    many = f", {groups} series" if groups else ""
    return f"{column_names(description['targets'])} {ahead} from {read}{many}"


def _names(names):
    """One name, or several, as a list."""
    return [names] if isinstance(names, str) else list(names)


def _paths(path):
    """One path, or several of them, as a list of str."""
    if isinstance(path, (str, os.PathLike)):
        return [os.fspath(path)]
    listed = [path] if isinstance(path, dict) or not hasattr(path, "__iter__") else list(path)
    wrong = next((each for each in listed if not isinstance(each, (str, os.PathLike))), None)
    if wrong is None and path is not None:
        return [os.fspath(each) for each in listed]
    kind = type(path).__name__ + (f" of {type(wrong).__name__}" if isinstance(path, (list, tuple)) else "")
    raise TypeError(f"path must be a file, a list of files or a table in memory such as pandas.DataFrame, not {kind}")


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
    numbers: dict[int, int] = {}
    for number, table in enumerate(data if len(tables) > 1 else [], 1):
        first = numbers.setdefault(id(table), number)
        if first != number:
            raise BadInput(f"table {number}: the same as table {first}, so all it holds would count twice; give it once")
    return ([], tables) if tables else (_paths(data), tables)


def _opened(opener, paths, *arguments):
    """What the library opens; where that is no table but a text, the error says what reads it."""
    try:
        return opener(paths, *arguments)
    except BadInput as error:
        text = re.sub(r"the option '(\w+)=([^']*)'", r"\1='\2'", str(error))
        if "this is a safetensors file" in text:
            text += "; penstock.Model.load reads a model"
        elif paths and _core.guess_kind(paths) == "text":
            text += f"; it looks like a text: penstock.open_text({paths[0]!r}) reads one"
        raise BadInput(text) from None


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
    inputs: str | Sequence[str] = (),
    targets: str | Sequence[str] = (),
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
    undated: str | None = None,
    group: str = "",
    group_by_file: bool = False,
    known: str | Sequence[str] = (),
    categories: str | Sequence[str] = (),
    origin: Model | None = None,
) -> Dataset:
    """A table, one step a row: a CSV file, or one in memory.

    What is not said is as ``penstock train`` has it.

    Args:
        path: A file, a folder of them, or several, which hold the same columns: series that do not follow each other. Or
            such tables in memory, of pandas, Polars, PyArrow, DuckDB or whatever else has ``__arrow_c_stream__``.
        inputs: Names of columns; none: every numeric one, without those that count or name rows, such as an index.
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
        undated: What becomes of rows whose date cannot be read, such as 2023-02-30 or a line "Total": ``"refuse"`` (an error
            that says where) or ``"drop"`` (they are left out). None: what ``origin`` did, otherwise ``"refuse"``.
        group: Names the series of a row, where the file holds many: each is split by time and scaled by itself.
        group_by_file: The same, of files that hold a series each, which are named as they are.
        known: Columns whose values are known in advance: those of the rows that are forecast are inputs, too.
        categories: Columns of which every text is an input, 1 where a row has it, whatever is in them; ``"auto"``, the default:
            those of text with few different values; ``"none"``: none.
        origin: A model that is to be trained further (:meth:`Model.continue_from`): columns, scaling, horizon, ``from_last``,
            ``autoregression``, ``transform``, ``calendar``, ``group``, ``group_by_file``, ``known`` and ``categories`` are those of its data, and must not be given.
    """
    if origin is not None:
        _refuse_given("origin", inputs=_names(inputs), targets=_names(targets), horizon=horizon != 1, from_last=from_last is not None,
                      autoregression=autoregression is not None, transform=transform is not None, calendar=calendar is not None,
                      date_column=date_column, irregular=irregular is not None, group=group, group_by_file=group_by_file, known=_names(known),
                      categories=_names(categories))  # fmt: skip
        from_last, autoregression = origin.spec["from_last"], origin.spec["lags"] > 0
    paths, tables = _sources(path)
    dataset = _opened(
        _core.open_series,
        paths,
        tables,
        _names(inputs),
        _names(targets),
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
        _names(calendar or ()),
        date_column,
        irregular,
        undated,
        group,
        group_by_file,
        _names(known),
        _names(categories),
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
    inputs: str | Sequence[str] = (),
    categories: str | Sequence[str] = (),
    validation_fraction: float = 0.2,
    delimiter: str = "",
    decimal: str = "",
    header: bool | None = None,
    missing: str | None = None,
    seed: int = 0,
    origin: Model | None = None,
) -> Dataset:
    """A table in which each run of one value of ``sequence_column`` is one labelled sequence, or a ``.ts`` file.

    The rows of a sequence must follow each other: a value that comes back is an error.
    Tables are written, or stand in memory, as for :func:`open_series`, and ``categories`` are chosen as there. ``origin`` is a model that is to be trained further (:meth:`Model.continue_from`): columns, scaling and labels are those
    of its data, and ``inputs`` and ``categories`` must not be given.
    """
    if origin is not None:
        _refuse_given("origin", inputs=_names(inputs), categories=_names(categories))
    paths, tables = _sources(path)
    dataset = _opened(
        _core.open_labelled,
        paths,
        tables,
        sequence_column,
        label_column,
        _names(inputs),
        _names(categories),
        validation_fraction,
        delimiter,
        decimal,
        header,
        missing,
        seed,
        None if origin is None else origin._model,
    )
    return Dataset(dataset, _name_of(paths, tables))


def open_labelled_texts(
    path: Path | Table | Sequence[Path] | Sequence[Table],
    *,
    text_column: str = "",
    label_column: str = "",
    longest: int = 1000,
    validation_fraction: float = 0.2,
    delimiter: str = "",
    decimal: str = "",
    header: bool | None = None,
    missing: str | None = None,
    seed: int = 0,
    origin: Model | None = None,
) -> Dataset:
    """A table with a text and its label in each row: sentiment, topics, languages.

    Tables are written, or stand in memory, as for :func:`open_series`.

    Args:
        path: A file, a folder of them, several, or tables in memory.
        text_column: Holds the texts; the column of the longest ones, most of which differ, if empty.
        label_column: Holds the labels; the one called label, class, category, sentiment or the like if empty.
        longest: Bytes of a text that are read, 1 to 2^20; longer ones are cut.
        validation_fraction: Of the texts of every label, held out by the seed.
        missing: What becomes of rows without a text or a label: ``"refuse"`` (an error), or ``"mask"``, which leaves
            them out. None: what ``origin`` did, otherwise ``"refuse"``.
        origin: A model that is to be trained further (:meth:`Model.continue_from`): its column, length and labels are
            taken, and ``text_column`` must not be given.
    """
    if origin is not None:
        _refuse_given("origin", text_column=text_column)
    paths, tables = _sources(path)
    dataset = _opened(
        _core.open_labelled_texts,
        paths,
        tables,
        text_column,
        label_column,
        longest,
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


explain_keywords(globals())
