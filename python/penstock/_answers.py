"""What Model.predict and Model.evaluate take, and what they make of the outputs of a network."""

from __future__ import annotations

import datetime
import os

from . import _core
from .errors import InvalidArgument

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from .models import Model

    Source = str | _core.Table  # a path, or a table in memory


def number(value: Any) -> float:
    """Returns a number as a float, and a date as seconds since 1970 (UTC if it has no time zone)."""
    if hasattr(value, "astype"):  # a NumPy scalar, perhaps a date
        return float(numbers(value))
    if not isinstance(value, datetime.date):  # dates of pandas are datetime.date, too
        return float(value)
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime.combine(value, datetime.time())
    return (value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)).timestamp()


def numbers(rows: Any) -> NDArray:
    """Returns rows as float64; dates become seconds since 1970."""
    import numpy as np

    array = np.asarray(rows)
    if array.dtype.kind == "M":
        return array.astype("datetime64[ns]").astype(np.float64) / 1e9
    if array.dtype.kind == "O":  # numbers and dates side by side
        return np.array([number(value) for value in array.flat], np.float64).reshape(array.shape)
    return array.astype(np.float64, copy=False)


def levels(quantiles: Any) -> list[float]:
    """Returns quantile levels as floats. The model checks their range."""
    try:
        found = [] if isinstance(quantiles, (str, bytes)) else [float(level) for level in quantiles]
    except (TypeError, ValueError):
        found = []
    if not found:
        raise InvalidArgument(f"quantiles must be levels such as [0.1, 0.5, 0.9], not {quantiles!r}")
    return found


def bytes_of(text: Any) -> Any:
    """Returns the bytes of a text: bytes, a str in UTF-8, or the content of a file."""
    if isinstance(text, os.PathLike):
        return _core.read_source(os.fspath(text))
    return text.encode() if isinstance(text, str) else text


def probabilities(logits: Any) -> NDArray:
    import numpy as np

    weights = np.exp(logits - logits.max(axis=-1, keepdims=True, initial=-np.inf), dtype=np.float64)
    return weights / weights.sum(axis=-1, keepdims=True)


def source_of(model: Model, inputs: Any) -> Source | None:
    """Returns a path, or a copy of a table in memory; None for other inputs."""
    if type(inputs).__module__ == "numpy":
        return None
    from .datasets import tables_of

    reads_texts = model._data["text_column"] != ""
    if not reads_texts and (model.task == "language" or model._data["vocabulary"] > 0):
        return None
    if isinstance(inputs, os.PathLike) or (isinstance(inputs, str) and not reads_texts):
        return os.fspath(inputs)
    tables = tables_of(inputs)
    if len(tables) > 1:
        raise InvalidArgument("inputs must be one table, not several")
    return tables[0] if tables else None


def tokens_of(model: Model, inputs: Any) -> NDArray:
    """Returns int32 tokens of a text, or of whole numbers."""
    import numpy as np

    vocabulary = model._data["vocabulary"]
    if model.task == "language" and vocabulary == 256:
        return np.frombuffer(bytes_of(inputs), np.uint8).astype(np.int32)
    tokens = np.asarray(inputs)
    if tokens.dtype.kind not in "iu":
        raise TypeError(f"inputs must be tokens, whole numbers, not {tokens.dtype}")
    if tokens.size and not 0 <= tokens.min() <= tokens.max() < vocabulary:
        raise InvalidArgument(f"inputs must be tokens below {vocabulary}, not {tokens.min()} to {tokens.max()}")
    return tokens.astype(np.int32)


def rows_of(inputs: Any) -> NDArray:
    """Returns rows of numbers and dates as float64."""
    try:
        return numbers(inputs)
    except (TypeError, ValueError) as error:
        kind = type(inputs).__name__
        raise TypeError(f"inputs must be rows of numbers, a path or a table in memory, not {kind}") from error


def label_texts(model: Model, inputs: Any, execution: _core.Execution) -> NDArray:
    """Returns class probabilities of one text, of several texts, or of the texts in a table."""
    source = source_of(model, inputs)
    if source is not None:
        return probabilities(_core.label_text_table(model._model, source, execution))
    one = isinstance(inputs, (str, bytes))
    texts = [bytes_of(text) for text in ([inputs] if one else inputs)]
    for text in texts:
        if not isinstance(text, bytes):
            raise TypeError(f"inputs must be a text, texts, a file or a table, not {type(text).__name__}")
    answers = probabilities(_core.label_texts(model._model, texts, execution))
    return answers[0] if one else answers


def answer_source(
    model: Model, source: Source, wanted: list[float] | None, sequence_column: str, execution: _core.Execution
) -> Any:
    """Returns the answers for a file or a table, with these quantiles of forecasts."""
    if model.task == "classify":
        return probabilities(_core.label_table(model._model, source, sequence_column, execution))
    found = _core.forecast_table(model._model, source, wanted or [], execution)
    answers = {name: values if wanted is None else (values, quantiles) for name, values, quantiles in found}
    return answers if model._data["group_column"] else answers[""]


def score_text(model: Model, inputs: Any, threads: int) -> dict[str, Any]:
    """Returns the bits that each byte of a text but the first takes on average."""
    import numpy as np

    text = np.frombuffer(bytes_of(inputs), np.uint8).astype(np.int32)
    if len(text) < 2:
        raise InvalidArgument("inputs must have at least two bytes: the first one is not scored")
    piece, bits, state = 1 << 16, 0.0, None
    for begin in range(0, len(text) - 1, piece):
        following = text[begin + 1 : begin + piece + 1]
        outputs, state = model.forward(text[begin : begin + len(following)], state, threads=threads)
        bits -= float(np.log2(probabilities(outputs)[np.arange(len(following)), following]).sum())
    return {"bytes": len(text) - 1, "bits_per_byte": bits / (len(text) - 1)}


def predict(
    model: Model, inputs: Any, quantiles: Any, group: str, sequence_column: str, execution: _core.Execution
) -> Any:
    """Returns what :meth:`Model.predict` does."""
    wanted = None if quantiles is None else levels(quantiles)
    if wanted is not None and model.task != "forecast":
        raise InvalidArgument(f"quantiles are for models that forecast a series, and this is a {model.task} model")
    if model._data["text_column"]:
        return label_texts(model, inputs, execution)
    source = source_of(model, inputs)
    if source is not None:
        return answer_source(model, source, wanted, sequence_column, execution)
    reads_rows = model.task != "language" and model._data["vocabulary"] == 0
    rows = rows_of(inputs) if reads_rows else None
    steps = tokens_of(model, inputs) if rows is None else model._model.normalised(rows, group)
    outputs, _ = model._model.forward(steps, None, group, execution)
    if model.task == "forecast":
        answer: Any = model._model.in_units(outputs, group)
        return answer if wanted is None else (answer, model._model.quantiles(steps, outputs, rows, wanted, group))
    if model.task == "classify":
        if outputs.shape[-2] == 0:
            raise InvalidArgument("inputs must have at least one step to be classified")
        outputs = outputs[..., -1, :]
    return probabilities(outputs)


def evaluate(
    model: Model, inputs: Any, skip: int | None, quantiles: Any, columns: tuple[str, str], threads: int
) -> dict[str, Any]:
    """Returns what :meth:`Model.evaluate` does; `columns` separate and label sequences."""
    if model.task == "language":
        if model._data["vocabulary"] != 256:
            raise InvalidArgument("evaluate scores texts, and this model reads token ids: use forward or Session")
        return score_text(model, inputs, threads)
    source = source_of(model, inputs)
    if source is None:
        raise InvalidArgument(f"inputs must be a file or a table in memory, not {type(inputs).__name__}")
    sequence_column, label_column = columns
    if model._data["text_column"]:
        return _core.score_text_table(model._model, source, label_column, threads)
    if model.task == "classify":
        return _core.score_label_table(model._model, source, sequence_column, label_column or "label", threads)
    lead = model.spec["lags"] if skip is None else skip
    if lead < 0:
        raise InvalidArgument(f"skip must not be negative, not {lead}")
    return _core.score_series_table(model._model, source, lead, levels(quantiles), threads)
