"""Datasets for training: texts, series, labelled sequences and texts, sounds, built-in tasks."""

from __future__ import annotations

import os

from . import _core
from ._keywords import defaults, explain_keywords
from ._pickling import refuse_pickle
from .errors import BadInput, InvalidArgument

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Protocol

    from .models import Model

    Path = str | os.PathLike[str]

    class Table(Protocol):
        """A table with the Arrow stream protocol: those of pandas, Polars, PyArrow and DuckDB."""

        def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


__all__ = ["Dataset", "open_labelled", "open_labelled_texts", "open_series", "open_sound", "open_task", "open_text"]


class Dataset:
    """Data for training and validation. :func:`open_text` and the other ``open_`` functions return it."""

    def __init__(self, dataset, source: str, from_last: bool = False) -> None:
        self._dataset = dataset
        self._source = source
        self._from_last = from_last  # True: a series scaled for forecasts that start from the last value

    @property
    def description(self) -> dict[str, Any]:
        """A dictionary with the task, columns with mean and scale, classes, vocabulary and horizon."""
        return self._dataset.description()

    @property
    def training_steps(self) -> int:
        """Number of scored training steps in one pass. 0 for a task, which has no end."""
        return self._dataset.training_steps()

    @property
    def held_out_steps(self) -> int:
        """Number of steps in the hold-out set; for labelled data, of sequences. 0 for a task, which has no end."""
        return self._dataset.held_out_steps()

    @property
    def reading(self) -> list[str]:
        """What had to be guessed to read the files, one line each: the first lines of ``penstock train``."""
        return self._dataset.reading()

    def __copy__(self) -> Dataset:
        return self  # nothing changes a dataset

    def __deepcopy__(self, memo: dict[int, Any]) -> Dataset:
        return self

    __reduce_ex__ = refuse_pickle("give the other process the path or the table, and open it there")

    def _amount(self) -> str:
        if not self.training_steps:
            return "generated without end"
        return f"{self.training_steps:,} {scored_unit(self.description)} to train on, {self.held_out_steps:,} held out"

    def __repr__(self) -> str:
        return f"<penstock.Dataset {self._source}: {describe_data(self.description)}; {self._amount()}>"


def column_names(columns, most=4):
    """Returns the names of columns, each once; above ``most`` names, only their number.

    Several inputs may have one name: those of a date, or of a column known in advance.
    """
    names = list(dict.fromkeys(column["name"] for column in columns))
    return ", ".join(names) if len(names) <= most else f"{len(names)} columns"


def scored_unit(description):
    """Returns the name of the unit that is scored, such as "bytes"."""
    if description["task"] == "classify":
        return "texts" if description["text_column"] else "sequences"
    if description["task"] == "language":
        return "bytes" if description["vocabulary"] == 256 else "tokens"
    return "samples" if description["sample_rate"] else "rows"


def describe_data(description):
    """Returns a short description of inputs and targets."""
    if description["task"] == "language" and description["vocabulary"] == 256:
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
    """Returns one name or several as a list."""
    return [names] if isinstance(names, str) else list(names)


def _paths(path):
    """Returns one path or several as a list of str. Raises TypeError for anything else."""
    if isinstance(path, (str, os.PathLike)):
        return [os.fspath(path)]
    listed = [path] if isinstance(path, dict) or not hasattr(path, "__iter__") else list(path)
    wrong = next((each for each in listed if not isinstance(each, (str, os.PathLike))), None)
    if wrong is None and path is not None:
        return [os.fspath(each) for each in listed]
    kind = type(path).__name__ + (f" of {type(wrong).__name__}" if isinstance(path, (list, tuple)) else "")
    raise TypeError(f"path must be a file, a list of files or a table in memory such as pandas.DataFrame, not {kind}")


def _is_table(data):
    """Returns True for a table in memory."""
    return hasattr(data, "__arrow_c_stream__")


def tables_of(data):
    """Returns copies of one table in memory or of several as ``_core.Table``; an empty list for paths.

    Raises InvalidArgument for a data frame that does not support the Arrow stream protocol.
    """
    several = isinstance(data, (list, tuple)) and data and all(map(_is_table, data))
    if not several and not _is_table(data):
        if hasattr(data, "__dataframe__"):
            kind = f"{type(data).__module__.partition('.')[0]}.{type(data).__name__}"
            raise InvalidArgument(f"this {kind} has no __arrow_c_stream__: a newer version has, pandas with PyArrow")
        return []
    tables = {f"table {i + 1}": each for i, each in enumerate(data)} if several else {"the table": data}
    return [_core.Table(each.__arrow_c_stream__(), name) for name, each in tables.items()]


def _sources(data):
    """Returns (paths, tables in memory); one of them is empty."""
    tables = tables_of(data)
    numbers: dict[int, int] = {}
    for number, table in enumerate(data if len(tables) > 1 else [], 1):
        first = numbers.setdefault(id(table), number)
        if first != number:
            raise BadInput(f"table {number}: the same as table {first}, so all it holds would count twice; give it once")
    return ([], tables) if tables else (_paths(data), tables)


def _opened(function, given, decided=()) -> Dataset:
    """Opens data for a public function that was called with ``given``. The origin, a model, determines ``decided``.

    If a file is a text or a model instead of a table, the error names the function that reads it.
    """
    (paths, tables), origin = _sources(given.pop("path")), given.pop("origin")
    for name in given.keys() & {"inputs", "targets", "known", "categories", "calendar"}:
        given[name] = _names(given[name] or ())
    if origin is not None:
        usual = defaults(function)
        for name in decided:
            if given[name] not in (usual[name], []):
                raise InvalidArgument(f"{name} contradicts origin, which decides it")
        if "from_last" in given:
            given.update(from_last=origin.spec["from_last"], autoregression=origin.spec["lags"] > 0)
    try:
        opener = getattr(_core, function.__name__)
        dataset = opener(paths, tables, None if origin is None else origin._model, given)
    except BadInput as error:
        if error.value == "a safetensors file":
            error.args = (f"{error}; penstock.Model.load reads a model",)
        elif paths and error.allowed != "a table in text" and _core.guess_kind(paths) == "text":
            error.args = (f"{error}; it looks like a text: penstock.open_text({paths[0]!r}) reads one",)
        raise
    from_last = given.get("from_last", False)
    if from_last is None:
        from_last = dataset.forecasts_an_input()
    return Dataset(dataset, _name_of(paths, tables), from_last)


def _name_of(paths, tables=()):
    """Returns the first path or table and the number of others, such as "a.csv and 2 more"."""
    names = paths or [table.name for table in tables]
    return (names[0] if names else "") + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def open_text(
    path: Path | Sequence[Path],
    *,
    validation_fraction: float | None = None,
    bytes: bool = False,
    tokens: str | None = None,
    vocabulary: int = 0,
) -> Dataset:
    """Opens texts, or arrays of token ids, as one sequence of bytes or tokens. The last part is the hold-out set.

    Files are read where they are, so they may be larger than the memory. What gzip or zstd has compressed, and pipes,
    are unpacked first: above 64 MB to a temporary file in ``TMPDIR`` or /var/tmp.

    Args:
        path: A file, a folder, or a pattern such as ``"shards/*.bin"``; or several of them.
        validation_fraction: Fraction of the bytes or tokens to hold out. None: 0.05, but at most 8 MB.
        bytes: True: also reads files that are not texts, such as programs and pictures.
        tokens: ``"uint8"``, ``"uint16"`` or ``"uint32"``: the files are token ids without a header, such as the .bin files
            of nanoGPT. Files of NumPy (.npy) need no type.
        vocabulary: Token ids are below this number. 0: 256 for bytes, otherwise found by reading all files.

    Raises:
        IoFailure: A file cannot be read.
        BadInput: A file is not a text, and ``bytes`` is False; files are of different kinds; or an id is not in the
            vocabulary.
    """
    paths = _paths(path)
    opened = _core.open_text(paths, validation_fraction, bytes, tokens, vocabulary)
    return Dataset(opened, _name_of(paths))


def open_sound(
    input: Path,
    target: Path,
    *,
    validation_fraction: float = 0.2,
    latency: int | None = None,
    origin: Model | None = None,
) -> Dataset:
    """Opens a sound before and after an effect or an amplifier: two files of equal sample rate.

    The target is shifted by its latency, and both are cut to what they then share: ``reading`` says by how much.

    Args:
        input: The sound that went in.
        target: The sound that came out.
        validation_fraction: Fraction of the samples to hold out, at the end.
        latency: Samples by which the target follows the input; below 0: it is ahead. None: found by cross-correlation,
            within half a second. The model stores it.
        origin: A model to be trained further (:meth:`Model.continue_from`).

    Raises:
        IoFailure: A file cannot be read.
        BadInput: A file is not a sound, the files do not fit each other, or the latency is unclear.
    """
    model = None if origin is None else origin._model
    source, came_out = os.fspath(input), os.fspath(target)
    return Dataset(_core.open_sound(source, came_out, validation_fraction, latency, model), f"{source} to {came_out}")


#: Arguments of :func:`open_series` that the model to be trained further determines.
_DECIDED = ("inputs", "targets", "horizon", "from_last", "autoregression", "transform", "calendar", "date_column",
            "irregular", "group", "group_by_file", "known", "categories")  # fmt: skip


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
    allow_negative: bool = False,
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
    """Opens a table with one time step per row: CSV files or tables in memory.

    Arguments that are not given have the defaults of ``penstock train``.

    Args:
        path: A file, a folder, or several of them with the same columns. Several files are separate series, which do
            not follow each other. Or tables in memory with ``__arrow_c_stream__``, as those of pandas, Polars, PyArrow
            and DuckDB.
        inputs: Names of the input columns. Empty: all numeric columns except those that count or name rows, such as an
            index.
        targets: Names of the columns to forecast. Empty: the inputs.
        horizon: Number of rows to forecast.
        validation_fraction: Fraction of the rows to hold out, at the end. Normalisation uses only the rows before.
        delimiter: Separator of the fields of a row. Empty: detected.
        decimal: Decimal separator, ``"."`` or ``","``. Empty: detected.
        header: Whether the first row has the names of the columns. None: detected.
        missing: What to do with empty values: ``"refuse"`` (an error), ``"carry"`` (repeat the last value),
            ``"interpolate"`` (linearly, which uses the next value), or ``"mask"`` (repeat the last value and do not
            score it). None: as ``origin`` did, otherwise ``"refuse"``.
        from_last: True: the data are scaled for forecasts that start from the last value, by a model with
            ``from_last=True``. None: True if a target is also an input.
        autoregression: True: a linear forecast is fitted, too, and the model learns its residual. It needs
            ``from_last``. None: the value of ``from_last``.
        transform: ``"none"``, ``"log"`` (all values must be positive), or ``"auto"``, the default with
            ``autoregression``: the better one in the training part.
        season: Number of rows after which the targets repeat. 1: no season. 0: detected.
        allow_negative: True: forecasts may be negative. Otherwise forecasts and quantiles of a column that is never
            negative and often near 0, such as rain, are at least 0.
        calendar: Cycles of the date to read as inputs: any of ``"day"``, ``"week"`` and ``"year"``. ``"auto"``, the
            default: the cycles that the training part contains twice and follows. ``"none"``: none.
        date_column: Column of the dates. Empty: the first column of dates.
        irregular: What to do with rows at irregular intervals: ``"ignore"`` (treat them as consecutive), ``"elapsed"``
            (the time since the previous row is an input), ``"fill"`` (insert the missing rows of a regular calendar
            without values), ``"refuse"`` (an error), or ``"auto"``, the default where dates are read: chosen by
            the dates.
        undated: What to do with rows without a valid date, such as 2023-02-30 or a line "Total": ``"refuse"`` (an error
            that says where) or ``"drop"`` (leave them out). None: as ``origin`` did, otherwise ``"refuse"``.
        group: Column that names the series of a row, for a file with many series. Each series is split by time and
            scaled by itself.
        group_by_file: True: each file is one series, named as its file.
        known: Columns with values known in advance. Their values in the forecast rows are inputs, too.
        categories: Columns that are read as categories: each different text becomes an input, 1 in the rows that have
            it. ``"auto"``, the default: columns of text with few different values. ``"none"``: none.
        origin: A model to be trained further (:meth:`Model.continue_from`). It determines columns, scaling, horizon,
            ``from_last``, ``autoregression``, ``transform``, ``calendar``, ``group``, ``group_by_file``, ``known`` and
            ``categories``, which must not be given then.

    Raises:
        InvalidArgument: An option is impossible, contradicts ``origin``, or names a column that does not exist.
        IoFailure: A file cannot be read.
        BadInput: A file is not a table, or has a value that cannot be read.
    """
    return _opened(open_series, dict(locals()), _DECIDED)


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
    """Opens labelled sequences: a ``.ts`` file, or a table whose consecutive rows form sequences.

    Consecutive rows with the same value in ``sequence_column`` are one sequence. A value that comes back later is an
    error.

    Args:
        path: Files or tables in memory, as for :func:`open_series`.
        sequence_column: Column that separates the sequences.
        label_column: Column of the labels.
        inputs: Names of the input columns. Empty: all numeric ones.
        categories: Columns read as categories, as for :func:`open_series`.
        validation_fraction: Fraction of the sequences to hold out, drawn by ``seed``.
        delimiter: Separator of the fields of a row. Empty: detected.
        decimal: Decimal separator, ``"."`` or ``","``. Empty: detected.
        header: Whether the first row has the names of the columns. None: detected.
        missing: What to do with empty values, as for :func:`open_series`.
        seed: Seed of the split.
        origin: A model to be trained further (:meth:`Model.continue_from`). It determines columns, scaling and labels;
            ``inputs`` and ``categories`` must not be given then.

    Raises:
        InvalidArgument: An option is impossible, contradicts ``origin``, or names a column that does not exist.
        IoFailure: A file cannot be read.
        BadInput: A file is not a table, or has a value that cannot be read.
    """
    return _opened(open_labelled, dict(locals()), ("inputs", "categories"))


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
    """Opens a table with a text and its label in each row: sentiment, topics, languages.

    Args:
        path: Files or tables in memory, as for :func:`open_series`.
        text_column: Column of the texts. Empty: the column with the longest texts, most of which must differ.
        label_column: Column of the labels. Empty: the column called label, class, category, sentiment or the like.
        longest: Number of bytes to read of a text, 1 to 2^20. Longer texts are cut.
        validation_fraction: Fraction of the texts of every label to hold out, drawn by ``seed``.
        delimiter: Separator of the fields of a row. Empty: detected.
        decimal: Decimal separator, ``"."`` or ``","``. Empty: detected.
        header: Whether the first row has the names of the columns. None: detected.
        missing: What to do with rows without a text or a label: ``"refuse"`` (an error) or ``"mask"`` (leave them out).
            None: as ``origin`` did, otherwise ``"refuse"``.
        seed: Seed of the split.
        origin: A model to be trained further (:meth:`Model.continue_from`). It determines the text column, ``longest``
            and the labels; ``text_column`` must not be given then.

    Raises:
        InvalidArgument: An option is impossible, contradicts ``origin``, or names a column that does not exist.
        IoFailure: A file cannot be read.
        BadInput: A file is not a table, or no columns of texts and labels were found.
    """
    return _opened(open_labelled_texts, dict(locals()), ("text_column",))


def open_task(
    name: str,
    *,
    length: int = 40,
    validation_length: int = 256,
    modulus: int | None = None,
    copy_tokens: int | None = None,
    seed: int = 0,
) -> Dataset:
    """Opens a built-in task, whose sequences are generated without end.

    Args:
        name: ``"parity"``, ``"modular"``, ``"s3"``, ``"a5"``, ``"s5"``, ``"copying"`` or ``"recall"``.
        length: Time steps of the training sequences.
        validation_length: Time steps of the validation sequences.
        modulus: Modulus of the arithmetic in ``"modular"`` [5].
        copy_tokens: Number of tokens to remember in ``"copying"``, of pairs in ``"recall"`` [10].
        seed: Seed of the sequences.

    Raises:
        InvalidArgument: There is no such task, or an option is impossible or does not apply to the task.

    >>> import penstock
    >>> penstock.open_task("parity")
    <penstock.Dataset task:parity: tokens below 2 in 2 classes; generated without end>
    """
    return Dataset(_core.open_task(name, length, validation_length, modulus, copy_tokens, seed), f"task:{name}")


explain_keywords(globals())
