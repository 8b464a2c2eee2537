"""Sequence models: what ``penstock train`` writes, in Python."""

from __future__ import annotations

import datetime
import os

from . import _core
from ._given import dataset_of, model_of
from ._keywords import explain_keywords
from .errors import InvalidArgument

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without the import
if TYPE_CHECKING:
    import builtins
    from collections.abc import Sequence
    from typing import Any

    from numpy.typing import ArrayLike, NDArray

    from ._types import Buffer, Mode
    from .datasets import Dataset

__all__ = ["Model", "Session"]


def _number(value: Any) -> float:
    """A number, or a date as seconds since the start of 1970, in UTC if it does not say otherwise."""
    if hasattr(value, "astype"):  # a scalar of NumPy, maybe a date
        return float(_numbers(value))
    if not isinstance(value, datetime.date):  # as those of pandas are, too
        return float(value)
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime.combine(value, datetime.time())
    return (value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)).timestamp()


def _numbers(rows: Any) -> NDArray:
    """Rows as float64; dates as seconds since the start of 1970."""
    import numpy as np

    array = np.asarray(rows)
    if array.dtype.kind == "M":
        return array.astype("datetime64[ns]").astype(np.float64) / 1e9
    if array.dtype.kind == "O":  # numbers and dates side by side
        return np.array([_number(value) for value in array.flat], np.float64).reshape(array.shape)
    return array.astype(np.float64, copy=False)


def _levels(quantiles: Any) -> list[float]:
    """Levels of quantiles, whose range the model checks."""
    try:
        levels = [] if isinstance(quantiles, (str, bytes)) else [float(level) for level in quantiles]
    except (TypeError, ValueError):
        levels = []
    if not levels:
        raise InvalidArgument(f"quantiles must be levels such as [0.1, 0.5, 0.9], not {quantiles!r}")
    return levels


def _bytes_of(text: Any) -> Any:
    """Bytes, a str, or what a file holds."""
    if isinstance(text, os.PathLike):
        return _core.read_source(os.fspath(text))
    return text.encode() if isinstance(text, str) else text


def _probabilities(logits: Any) -> NDArray:
    import numpy as np

    weights = np.exp(logits - logits.max(axis=-1, keepdims=True, initial=-np.inf), dtype=np.float64)
    return weights / weights.sum(axis=-1, keepdims=True)


class Model:
    """A sequence model: embedding or linear input, blocks of (norm, recurrent layer, residual), norm, linear head.

    Args:
        data: What it is for: a dataset of :func:`penstock.open_text` and its siblings. The model keeps its description:
            columns with their normalisation, classes, the vocabulary.
        cell: A name of :func:`penstock.cells`; None: what suits the data.
        width: Channels between the blocks; None: what suits the data.
        blocks: How many; None: what suits the data.
        hidden_size: ``H`` of the recurrent layers; 0: ``width``.
        heads: Of the recurrent matrix, for cells that have one.
        convolution: Taps of a causal depthwise convolution before each recurrent layer; 0: none; None: what suits
            the data, which is 4 for a text.
        feed_forward: Inner size of a gated feed-forward after each recurrent layer, as a multiple of width; 0: none;
            None: what suits the data, which is 2 for a text.
        dropout: On the output of every sub-layer, in training only; None: what suits the data.
        end_norms: Norms stand before the first recurrent layer and before the head too, not between layers alone. They take
            the size of numbers away. None: what suits the data, which is False for a series without a
            linear forecast.
        from_last: Forecasts start from the last value, or from a linear forecast if one was fitted: for a series that
            was opened with ``from_last=True``. None: as it was opened.
        seed: Of the first weights.
        device: Where calls run that do not say otherwise: ``"cpu"``, ``"cuda"``, ``"cuda:N"``, or ``"auto"``: for each
            call the one that takes less time, copies counted, as :meth:`choose_device` estimates. Later it is
            :attr:`device`.
    """

    _continues = False  # whether its first weights are those of another model
    _arguments: dict[str, Any] = {}  # that it was made with
    _history: dict[str, Any] | None = None  # where it comes from, once it was trained; empty: a file that does not say it
    _origin = ""  # what its first weights are of, if it continues

    def __init__(
        self,
        data: Dataset,
        *,
        cell: str | None = None,
        width: int | None = None,
        blocks: int | None = None,
        hidden_size: int = 0,
        heads: int = 1,
        convolution: int | None = None,
        feed_forward: float | None = None,
        dropout: float | None = None,
        end_norms: bool | None = None,
        from_last: bool | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        dataset = dataset_of(data)
        given = {
            "cell": cell,
            "width": width,
            "blocks": blocks,
            "convolution": convolution,
            "feed_forward": None if feed_forward is None else float(feed_forward),
            "dropout": None if dropout is None else float(dropout),
            "end_norms": end_norms,
        }
        given = {name: value for name, value in given.items() if value is not None}
        rest = {
            "hidden_size": hidden_size,
            "heads": heads,
            "from_last": data._from_last if from_last is None else from_last,
        }
        self._arguments = given | rest  # what a search leaves as it is
        suggested = _core.suggest_spec(dataset, cell or "", device)
        self._model = _core.Model.make(suggested | self._arguments, dataset, seed)
        self._data = self._model.data()
        self.device = device

    if not TYPE_CHECKING:  # a checker of types shall still find attributes that are not there

        def __getattr__(self, name):
            meant = {
                "fit": "penstock.train(model, data)",
                "train": "penstock.train(model, data)",
                "forecast": "model.predict(rows)",
                "score": "model.evaluate(rows)",
                "summary": "print(model)",
            }.get(name)
            hint = f", did you mean {meant}?" if meant else ""
            raise AttributeError(f"'Model' object has no attribute '{name}'{hint}")

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: str = "cpu") -> Model:
        """Reads a model or a checkpoint, as ``penstock train`` writes them.

        ``device``: where its calls run, as of :class:`Model`.

        Raises:
            IoFailure: The file cannot be read.
            BadInput: It is no model of Penstock.
        """
        model = cls.__new__(cls)
        model._model, model._history = _core.Model.load(os.fspath(path))
        model._data = model._model.data()
        model.device = device
        return model

    @classmethod
    def continue_from(cls, origin: Model, data: Dataset, *, dropout: float | None = None) -> Model:
        """A model with the weights of another, to be trained further on other data.

        Args:
            origin: Stays as it is. Not an ensemble.
            data: Opened with ``origin=origin``, so that a value means the same; a text needs nothing. A linear forecast is
                fitted to it anew.
            dropout: None: as before.

        Raises:
            Incompatible: The data are not those of the model.
        """
        model = cls.__new__(cls)
        rate = origin.spec["dropout"] if dropout is None else float(dropout)
        model._model = _core.Model.continue_from(origin._model, dataset_of(data), rate)
        model._data = model._model.data()
        model._continues = True
        model._origin = " ".join(["a model", *origin._trained()])
        model.device = origin.device
        return model

    def add_filters(self, data: Dataset, *, seed: int = 0, threads: int = 0) -> tuple[float, float]:
        """Puts a bank of convolution filters beside the layers of a trained model of labelled sequences, in place.

        The filters are drawn, and a linear classifier of their means over a sequence is fitted in closed form: what
        ``penstock train`` does at the end. How much the layers and the filters count is chosen by what ``data`` holds out;
        the classifier is then fitted to all of it. The model is not trained further (:meth:`continue_from` begins with its
        layers alone).

        Args:
            data: What the model was trained with, of :func:`penstock.open_labelled`.
            seed: Of the filters.
            threads: 0: as many as the machine offers.

        Returns:
            The shares of the layers and of the filters, each 0 to 1.

        Raises:
            InvalidArgument: The model has filters, or the data are no labelled sequences.
        """
        return _core.add_filters(self._model, dataset_of(data), seed, threads)

    @property
    def device(self) -> str:
        """Where calls run that do not say otherwise: ``"cpu"``, ``"cuda:0"``, or ``"auto"``. It can be assigned."""
        return self._device

    @device.setter
    def device(self, device: str) -> None:
        self._device = device if device == "auto" else _core.device_name(device)

    def choose_device(
        self,
        rows: int = 1,
        steps: int = 1,
        *,
        training: bool = False,
        threads: int = 0,
        exact: bool = False,
        precision: str = "full",
    ) -> tuple[str, str]:
        """The device that ``device="auto"`` means for sequences of that shape, and why, in a line.

        Args:
            rows: ``B``.
            steps: ``T``.
            training: Whether a step of training is meant, instead of a forward pass.

        The other arguments are those of :meth:`forward`.
        """
        return self._model.choose_device(rows, steps, training, threads, exact, precision)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a safetensors file with architecture and data description inside, first under another name."""
        self._model.save(os.fspath(path), self.history)

    def save_onnx(self, path: str | os.PathLike[str], *, normalised: bool = False, group: str = "") -> None:
        """Writes the model as ONNX (opset 17), which onnxruntime and others run without Penstock.

        The file reads ``tokens`` ``[B, T]`` (int64) or ``features`` ``[B, T, I]``, and ``state`` ``[B, S]``, zeros at the
        start of a sequence; it makes ``logits`` ``[B, T, O]`` or ``forecast`` ``[B, T, horizon, targets]``, and
        ``next_state``, from which the next call goes on.

        Args:
            path: Of the file, which is written first under another name.
            normalised: Numbers are as :meth:`forward` has them; False: in the units of the data.
            group: Of a model of many series, the one whose units are meant.

        Raises:
            InvalidArgument: The model has groups, and neither ``group`` nor ``normalised`` is given, or it has no such
                group.
            IoFailure: The file cannot be written.
            Unsupported: It would have 2 GiB or more, which the format cannot hold.
        """
        self._model.save_onnx(os.fspath(path), normalised, group)

    @property
    def spec(self) -> dict[str, Any]:
        """The architecture, as a dictionary of the constructor's arguments."""
        return self._model.spec()

    @property
    def data(self) -> dict[str, Any]:
        """The description of the data: task, columns with mean and scale, classes, vocabulary, horizon."""
        return dict(self._data)

    @property
    def history(self) -> dict[str, Any]:
        """When and on what the model was trained, its score, steps and version, as ``penstock info`` shows; empty before."""
        return dict(self._history or {})

    @property
    def task(self) -> str:
        """``"language"``, ``"forecast"`` or ``"classify"``."""
        return self._data["task"]

    @property
    def parameter_count(self) -> int:
        """How many weights the model has."""
        return self._model.parameter_count()

    def memory(
        self, rows: int, steps: int, *, device: str | None = None, precision: str = "full"
    ) -> dict[str, int]:
        """Bytes that calls with ``rows`` sequences of ``steps`` take on a device: weights, state, forward, training."""
        return self._model.memory(rows, steps, self._on(device), precision)

    def forward(
        self,
        inputs: Any,
        state: ArrayLike | None = None,
        *,
        mode: Mode = "auto",
        device: str | None = None,
        threads: int = 0,
        exact: bool = False,
        precision: str = "full",
    ) -> tuple[NDArray, NDArray]:
        """The network itself: ``(outputs, state)``.

        Args:
            inputs: int32 tokens ``[T]`` or ``[B, T]``; or normalised float32 features ``[T, I]`` or ``[B, T, I]``.
            state: What the call before returned, to go on where it stopped; None: the start.
            mode: ``"auto"``, ``"sequential"`` or ``"scan"``.
            device: As of :class:`Model`; None: the model's own.
            threads: 0: as many as the machine offers.
            exact: The same bits as a :class:`Session`; slower.
            precision: ``"full"``, ``"bf16-weights"``, ``"bf16"``, and on a GPU ``"f16"``.

        Returns:
            Logits ``[..., T, O]``, or normalised forecasts ``[..., T, horizon * targets]``; and the state, ``[values]``.
        """
        return self._model.forward(inputs, state, mode, self._on(device), threads, exact, precision)

    def predict(
        self,
        inputs: Any,
        *,
        quantiles: Sequence[float] | None = None,
        group: str = "",
        sequence_column: str = "sequence",
        mode: Mode = "auto",
        device: str | None = None,
        threads: int = 0,
        exact: bool = False,
        precision: str = "full",
    ) -> Any:
        """Answers in the units of the data that the model was trained on.

        ==============  ==================================================  ==========================================
        task            inputs                                              answer
        ==============  ==================================================  ==========================================
        ``forecast``    rows of the columns that the model reads,           ``[T, horizon, targets]``, ``[B, T, ...]``:
                        ``[T, C]``, ``[B, T, C]``                           at every step the rows to come
        ``classify``    such rows, or tokens ``[T]``, ``[B, T]``            probabilities ``[classes]``, ``[B, classes]``
                                                                            after the last step
        ``classify``,   a text, bytes or str, or a list of them             probabilities ``[classes]``,
        of texts                                                            ``[texts, classes]``
        ``language``    bytes or str                                        probabilities of each next byte ``[T, 256]``
        ==============  ==================================================  ==========================================

        Answers are float64. Dates that a model reads are a column of ``datetime`` or NumPy's dates, or of seconds since 1970. A model of many series (``data["groups"]``) is told by ``group`` which of them the rows are
        of. Where a model reads what is known in advance, rows to come may stand at the end, with NaN in the other
        columns: their own forecasts are NaN. A model that reads categories takes tables alone, in which texts may stand. The other arguments are those of :meth:`forward`.

        With ``quantiles``, such as ``[0.1, 0.9]``, a model of series answers with a pair: its forecasts, and these quantiles
        of each forecast in one more dimension, ``[T, horizon, targets, quantiles]``. Actual values are below the 0.9 quantile
        nine times out of ten. They are those of ``penstock predict --quantiles``.

        ``inputs`` may be a file as well, as ``penstock predict`` reads it, or a table in memory, as
        :func:`penstock.open_series` takes it: a path (of a text for a language model a :class:`pathlib.Path`), or whatever
        has ``__arrow_c_stream__``. Forecasts are then those from every row, ``[rows, horizon, targets]``, of a model of
        many series a dictionary of them by name; series that training did not see are scaled by their own rows.
        Probabilities are those of every sequence, ``[sequences, classes]``, which ``sequence_column`` tells apart, or of
        the text in every row; a path is then a :class:`pathlib.Path`, for a str is a text.
        """
        import numpy as np

        levels = None if quantiles is None else _levels(quantiles)
        if levels is not None and self.task != "forecast":
            raise InvalidArgument(f"quantiles are for models that forecast a series, and this is a {self.task} model")
        if self._data["text_column"]:
            return self._label_texts(inputs, (self._on(device), threads, exact, precision))
        source = self._source(inputs)
        if source is not None:
            return self._predict_source(source, levels, sequence_column, self._on(device), threads, exact, precision)
        execution: Any = {"mode": mode, "device": device, "threads": threads, "exact": exact, "precision": precision}
        tokens: Any
        if self.task == "language":
            tokens = np.frombuffer(_bytes_of(inputs), np.uint8).astype(np.int32)
        elif self._data["vocabulary"] > 0:
            tokens = np.asarray(inputs)
            if tokens.dtype.kind not in "iu":
                raise TypeError(f"inputs must be tokens, whole numbers, not {tokens.dtype}")
            if tokens.size and not 0 <= tokens.min() <= tokens.max() < self._data["vocabulary"]:
                raise InvalidArgument(
                    f"inputs must be tokens below {self._data['vocabulary']}, not {tokens.min()} to {tokens.max()}"
                )
            tokens = tokens.astype(np.int32)
        else:
            try:
                numbers = _numbers(inputs)
            except (TypeError, ValueError) as error:
                kind = type(inputs).__name__
                raise TypeError(f"inputs must be rows of numbers, a path or a table in memory, not {kind}") from error
            tokens = self._model.normalised(numbers, group)
        outputs, _ = self.forward(tokens, **execution)
        if self.task == "forecast":
            answer: Any = self._model.in_units(outputs, group)
            return answer if levels is None else (answer, self._model.quantiles(tokens, outputs, numbers, levels, group))
        if self.task == "classify":
            if outputs.shape[-2] == 0:
                raise InvalidArgument("inputs must have at least one step to be classified")
            outputs = outputs[..., -1, :]
        return _probabilities(outputs)

    def _source(self, inputs: Any) -> tuple[str, bytes | None] | None:
        """A path, or the name and the text of a table in memory; None for anything else."""
        if type(inputs).__module__ == "numpy":
            return None
        from .datasets import table_texts

        reads_texts = self._data["text_column"] != ""
        if not reads_texts and (self.task == "language" or self._data["vocabulary"] > 0):
            return None
        if isinstance(inputs, os.PathLike) or (isinstance(inputs, str) and not reads_texts):
            return os.fspath(inputs), None
        tables = table_texts(inputs)
        if len(tables) > 1:
            raise InvalidArgument("inputs must be one table, not several")
        return tables[0] if tables else None

    def _label_texts(self, inputs, execution) -> Any:
        """Of a text, of several, or of those in a table."""
        source = self._source(inputs)
        if source is not None:
            return _probabilities(_core.label_text_table(self._model, source, *execution))
        one = isinstance(inputs, (str, bytes))
        texts = [_bytes_of(text) for text in ([inputs] if one else inputs)]
        for text in texts:
            if not isinstance(text, bytes):
                raise TypeError(f"inputs must be a text, texts, a file or a table, not {type(text).__name__}")
        answers = _probabilities(_core.label_texts(self._model, texts, *execution))
        return answers[0] if one else answers

    def _predict_source(self, source, levels, sequence_column, device, threads, exact, precision) -> Any:
        if self.task == "classify":
            return _probabilities(
                _core.label_table(self._model, source, sequence_column, device, threads, exact, precision)
            )
        found = _core.forecast_table(self._model, source, levels or [], device, threads, exact, precision)
        answers = {name: values if levels is None else (values, quantiles) for name, values, quantiles in found}
        return answers if self._data["group_column"] else answers[""]

    def evaluate(
        self,
        inputs: Any,
        *,
        skip: int | None = None,
        quantiles: Sequence[float] = (0.1, 0.5, 0.9),
        sequence_column: str = "sequence",
        label_column: str = "",
        threads: int = 0,
    ) -> dict[str, Any]:
        """How well the model does on data whose answers are known, in their own units, beside what costs nothing.

        The dictionary is what ``penstock evaluate --json`` writes of a file: for a series errors of each column, coverage of
        quantiles and the errors of the last value, of a season ago and of drift; for labelled sequences accuracy, macro-F1
        and the confusion matrix ``[truth][answer]``; for a text ``bits_per_byte``.

        Args:
            inputs: A file or a table, as of :meth:`predict`; of a language model bytes, str or a :class:`pathlib.Path`.
            skip: A series: the first rows only lead in; None: as many as its linear forecast reads.
            quantiles: A series: of forecasts, ascending.
            sequence_column: Tells labelled sequences apart.
            label_column: Holds their labels, or those of texts; empty: ``label``, of texts also ``sentiment`` and the like.
            threads: 0: as many as the machine offers.
        """
        if self.task == "language":
            return self._evaluate_text(inputs, threads)
        source = self._source(inputs)
        if source is None:
            raise InvalidArgument(f"inputs must be a file or a table in memory, not {type(inputs).__name__}")
        if self._data["text_column"]:
            return _core.score_text_table(self._model, source, label_column, threads)
        if self.task == "classify":
            return _core.score_label_table(self._model, source, sequence_column, label_column or "label", threads)
        lead = self.spec["lags"] if skip is None else skip
        if lead < 0:
            raise InvalidArgument(f"skip must not be negative, not {lead}")
        return _core.score_series_table(self._model, source, lead, _levels(quantiles), threads)

    def _evaluate_text(self, inputs, threads):
        import numpy as np

        text = np.frombuffer(_bytes_of(inputs), np.uint8).astype(np.int32)
        if len(text) < 2:
            raise InvalidArgument("inputs must have at least two bytes: the first one is not scored")
        piece, bits, state = 1 << 16, 0.0, None
        for begin in range(0, len(text) - 1, piece):
            following = text[begin + 1 : begin + piece + 1]
            outputs, state = self.forward(text[begin : begin + len(following)], state, threads=threads)
            bits -= float(np.log2(_probabilities(outputs)[np.arange(len(following)), following]).sum())
        return {"bytes": len(text) - 1, "bits_per_byte": bits / (len(text) - 1)}

    def generate(
        self,
        prompt: bytes | str = b"",
        bytes: int = 500,
        *,
        temperature: float = 0.8,
        top_k: int = 0,
        top_p: float = 0.95,
        seed: int | None = None,
        device: str | None = None,
        precision: str = "full",
    ) -> builtins.bytes:
        """Lets a language model write, and returns the bytes behind the prompt: those of ``penstock generate``.

        Args:
            prompt: What the text begins with, bytes or str. Empty: as if a line had just ended.
            bytes: How many to write.
            temperature: Below 1 is tamer, above wilder; 0: always the likeliest.
            top_k: Draw from the k likeliest bytes only; 0: from all.
            top_p: Draw from the likeliest bytes of this total probability; (0, 1].
            seed: The same seed writes the same text; None: another one every time.
        """
        if isinstance(prompt, str):
            prompt = prompt.encode()
        if seed is None:
            seed = int.from_bytes(os.urandom(8), "little")
        return self._model.generate(prompt, bytes, temperature, top_k, top_p, seed, self._on(device), precision)

    def _on(self, device: str | None) -> str:
        return self._device if device is None else device

    def _trained(self) -> list[str]:
        history = self.history
        words = [("trained ", history.get("trained")), ("on ", history.get("data", "").partition(": ")[0])]
        return [name + value for name, value in words if value]

    def __repr__(self) -> str:
        from .datasets import describe_data

        spec = self.spec
        parts = [f"{spec['blocks']} x {spec['cell']} of width {spec['width']}"] if spec["blocks"] else []
        if spec["members"] > 1:
            parts[0] = f"the mean of {spec['members']}: {parts[0]}"
        if spec["lags"]:
            parts.append(f"a linear forecast of {spec['lags']} rows")
        if spec["filters"]:
            parts.append(f"{spec['filters'] * spec['dilations']:,} filters")
        parts.append(f"{self.parameter_count:,} parameters")
        trained = ["untrained"] if self._history is None else [" ".join(self._trained())]
        text = "; ".join([", ".join(parts), *filter(None, trained)])
        return f"<penstock.Model {self.task}, {describe_data(self._data)}: {text}>"


class Session:
    """A model that answers step by step, with the bits of :meth:`Model.forward` in exact mode.

    A step of the library allocates nothing and takes no lock; in Python only the array of the answer is new, and with
    ``out`` not even that.

    Args:
        model: A :class:`Model`, as it is now: what it learns later is for new sessions.
        device: As of :class:`Model`; None: the model's own.
        precision: As of :meth:`Model.forward`.
    """

    def __init__(self, model: Model, *, device: str | None = None, precision: str = "full") -> None:
        self.model = model
        self._session = _core.Session(model_of(model), model._on(device), precision)

    def push(self, step: int | ArrayLike, *, out: Buffer | None = None) -> NDArray:
        """The outputs ``[O]`` after one more step: a token (int), or normalised float32 features ``[I]``.

        ``out``: where to write them, float32 ``[O]``; a new array if it is None.
        """
        outputs: Any = self._session.push(step, out)
        return outputs

    def reset(self) -> None:
        """Back to the start of a sequence."""
        self._session.reset()

    def __repr__(self) -> str:
        return f"<penstock.Session of {self.model!r}>"


explain_keywords(globals())
