"""Sequence models: build, load, run, score and save them. The files are those of ``penstock train``."""

from __future__ import annotations

import datetime
import os

from . import _core
from ._given import dataset_of, model_of
from ._keywords import explain_keywords
from .errors import InvalidArgument

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    import builtins
    from collections.abc import Sequence
    from typing import Any

    from numpy.typing import ArrayLike, NDArray

    from ._types import Buffer, Mode
    from .datasets import Dataset

__all__ = ["Model", "Session"]


def _number(value: Any) -> float:
    """Returns a number as a float, and a date as seconds since 1970 (UTC if it has no time zone)."""
    if hasattr(value, "astype"):  # a NumPy scalar, perhaps a date
        return float(_numbers(value))
    if not isinstance(value, datetime.date):  # dates of pandas are datetime.date, too
        return float(value)
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime.combine(value, datetime.time())
    return (value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)).timestamp()


def _numbers(rows: Any) -> NDArray:
    """Returns rows as float64; dates become seconds since 1970."""
    import numpy as np

    array = np.asarray(rows)
    if array.dtype.kind == "M":
        return array.astype("datetime64[ns]").astype(np.float64) / 1e9
    if array.dtype.kind == "O":  # numbers and dates side by side
        return np.array([_number(value) for value in array.flat], np.float64).reshape(array.shape)
    return array.astype(np.float64, copy=False)


def _levels(quantiles: Any) -> list[float]:
    """Returns quantile levels as floats. The model checks their range."""
    try:
        levels = [] if isinstance(quantiles, (str, bytes)) else [float(level) for level in quantiles]
    except (TypeError, ValueError):
        levels = []
    if not levels:
        raise InvalidArgument(f"quantiles must be levels such as [0.1, 0.5, 0.9], not {quantiles!r}")
    return levels


def _bytes_of(text: Any) -> Any:
    """Returns the bytes of a text: bytes, a str in UTF-8, or the content of a file."""
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
        data: A dataset of :func:`penstock.open_text`, :func:`penstock.open_series` and the like. The model keeps its
            description: columns with their normalisation, classes, vocabulary.
        cell: A name of :func:`penstock.cells`. None: the default for this kind of data.
        width: Channels between the blocks. None: the default for this kind of data.
        blocks: Number of blocks. None: the default for this kind of data.
        hidden_size: ``H`` of the recurrent layers. 0: ``width``.
        heads: Number of diagonal blocks of the recurrent matrix, for cells that have one.
        convolution: Taps of a causal depthwise convolution before each recurrent layer. 0: none. None: 4 for a text,
            otherwise 0.
        feed_forward: Inner size of a gated feed-forward after each recurrent layer, as a multiple of ``width``.
            0: none. None: 2 for a text, otherwise 0.
        dropout: Probability of zeroing an output of a sub-layer, in training only. None: the default for this kind of
            data.
        end_norms: True: norms before the first recurrent layer and before the head, too. False: norms between layers
            only, which keeps the scale of the inputs. None: False for a series without a linear forecast, otherwise
            True.
        from_last: True: forecasts start from the last value, or from a linear forecast if one was fitted. It needs a
            series opened with ``from_last=True``. None: as the series was opened.
        initial_weights: How the recurrent layers start: ``"standard"``, ``"uniform"`` (all weights and biases in
            +-1/sqrt(H), as in ``torch.nn``), ``"orthogonal"`` (recurrent matrices of each head and gate) or
            ``"identity"`` (recurrent matrices of cells with one gate, such as ``elman-relu``).
        chrono: Longest time constant of a unit in steps, above 2: draws the biases of gates so that units remember
            over 1 to ``chrono`` steps at first. 0: standard biases.
        seed: Seed of the initial weights.
        device: Default device of all calls: ``"cpu"``, ``"cuda"``, ``"cuda:N"`` or ``"auto"``. With ``"auto"`` each
            call runs on the device with the lower estimated time, copies included (:meth:`choose_device`). The
            attribute :attr:`device` changes it later.

    Raises:
        InvalidArgument: An argument has an impossible value.
        TypeError: ``data`` is not a :class:`penstock.Dataset`.
    """

    _initial = ("standard", 0.0)  # how the recurrent layers of a new model start
    _continues = False  # True: the initial weights are those of another model
    _arguments: dict[str, Any] = {}  # arguments of the constructor
    _history: dict[str, Any] | None = None  # None: untrained; empty: loaded from a file without a history
    _origin = ""  # describes the model that the initial weights come from; empty if none

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
        initial_weights: str = "standard",
        chrono: float = 0.0,
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
        self._arguments = given | rest  # a search keeps these fixed
        suggested = _core.suggest_spec(dataset, cell or "", device)
        self._initial = (initial_weights, float(chrono))
        self._model = _core.Model.make(suggested | self._arguments, dataset, seed, *self._initial)
        self._data = self._model.data()
        self.device = device

    if not TYPE_CHECKING:  # type checkers must still report unknown attributes

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
        """Reads a model or a checkpoint, as :meth:`save` and ``penstock train`` write them.

        Args:
            path: The file.
            device: Default device of all calls, as for :class:`Model`.

        Raises:
            IoFailure: The file cannot be read.
            BadInput: The file is not a model of Penstock.
        """
        model = cls.__new__(cls)
        model._model, model._history = _core.Model.load(os.fspath(path))
        model._data = model._model.data()
        model.device = device
        return model

    @classmethod
    def continue_from(cls, origin: Model, data: Dataset, *, dropout: float | None = None) -> Model:
        """Returns a model with the weights of another one, to be trained further on new data.

        Args:
            origin: The model to start from, which stays unchanged. Ensembles are refused.
            data: A dataset opened with ``origin=origin``, which applies the scaling and the labels of that model. A
                text needs no ``origin``. A linear forecast is fitted to the new data.
            dropout: Dropout of the new model. None: that of ``origin``.

        Raises:
            Incompatible: The data do not fit the model.
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
        """Adds convolution filters beside the layers of a trained model of labelled sequences, in place.

        The filters are drawn at random. A linear classifier of their means over a sequence is fitted in closed form, as
        ``penstock train`` does at the end. The hold-out set decides the weights of the layers and of the filters in the
        answer. Then the classifier is fitted again to all sequences. The result cannot be trained further:
        :meth:`continue_from` takes the layers without the filters.

        Args:
            data: The dataset of :func:`penstock.open_labelled` that the model was trained with.
            seed: Seed of the filters.
            threads: Number of threads. 0: all that the machine offers.

        Returns:
            The weights of the layers and of the filters in the answer, each 0 to 1.

        Raises:
            InvalidArgument: The model already has filters, or the data are not labelled sequences.
        """
        return _core.add_filters(self._model, dataset_of(data), seed, threads)

    @property
    def device(self) -> str:
        """Default device of all calls, which can be assigned: ``"cpu"``, ``"cuda:0"`` or ``"auto"``."""
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
        """Returns the device that ``device="auto"`` selects for sequences of this shape, and the reason in one line.

        Args:
            rows: Batch rows ``B``.
            steps: Time steps ``T``.
            training: True: for a training step. False: for a forward pass.

        The other arguments are those of :meth:`forward`.
        """
        return self._model.choose_device(rows, steps, training, threads, exact, precision)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a safetensors file that also contains the architecture and the description of the data.

        The file is written under a temporary name, then renamed: an existing file is replaced whole or not at all.

        Raises:
            IoFailure: The file cannot be written.
        """
        self._model.save(os.fspath(path), self.history)

    def save_onnx(self, path: str | os.PathLike[str], *, normalised: bool = False, group: str = "") -> None:
        """Writes the model as ONNX (opset 17), which onnxruntime and others run without Penstock.

        Inputs of the graph are ``tokens`` ``[B, T]`` (int64) or ``features`` ``[B, T, I]``, and ``state`` ``[B, S]``,
        which is zero at the start of a sequence. Outputs are ``logits`` ``[B, T, O]`` or ``forecast``
        ``[B, T, horizon, targets]``, and ``next_state``, the state for the next call.

        Args:
            path: The file. It is written under a temporary name, then renamed.
            normalised: True: inputs and outputs are normalised, as for :meth:`forward`. False: they have the units of
                the data.
            group: For a model of many series: the series that gives the units.

        Raises:
            InvalidArgument: The model has many series and neither ``group`` nor ``normalised`` is given, or it does not
                know the series.
            IoFailure: The file cannot be written.
            Unsupported: The file would have 2 GiB or more, the limit of the format.
        """
        self._model.save_onnx(os.fspath(path), normalised, group)

    @property
    def spec(self) -> dict[str, Any]:
        """The architecture as a dictionary of the constructor's arguments."""
        return self._model.spec()

    @property
    def data(self) -> dict[str, Any]:
        """The description of the training data: task, columns with mean and scale, classes, vocabulary, horizon."""
        return dict(self._data)

    @property
    def history(self) -> dict[str, Any]:
        """How the model was trained: date, data, score, steps and version, as ``penstock info`` shows them.

        Empty for an untrained model.
        """
        return dict(self._history or {})

    @property
    def task(self) -> str:
        """``"language"``, ``"forecast"`` or ``"classify"``."""
        return self._data["task"]

    @property
    def parameter_count(self) -> int:
        """Number of weights of the model."""
        return self._model.parameter_count()

    def memory(
        self, rows: int, steps: int, *, device: str | None = None, precision: str = "full"
    ) -> dict[str, int]:
        """Returns the bytes that calls with ``rows`` sequences of ``steps`` steps take on a device.

        The keys are ``weights``, ``state``, ``forward``, ``training`` and ``optimizer``.
        """
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
        """Runs the network and returns ``(outputs, state)``.

        Args:
            inputs: int32 tokens ``[T]`` or ``[B, T]``, or normalised float32 features ``[T, I]`` or ``[B, T, I]``.
            state: The state that the previous call returned, to continue its sequence. None: the start of a sequence.
            mode: ``"auto"``, ``"sequential"`` or ``"scan"``, as for :meth:`Recurrent.forward`.
            device: As for :class:`Model`. None: the model's default device.
            threads: Number of threads. 0: all that the machine offers.
            exact: True: the outputs have the bits of a :class:`Session`. This is slower.
            precision: ``"full"``, ``"bf16-weights"``, ``"bf16"``, and on a GPU ``"f16"``.

        Returns:
            Logits ``[..., T, O]`` or normalised forecasts ``[..., T, horizon * targets]``, and the state ``[values]``.

        Raises:
            InvalidArgument: An argument has the wrong shape or an impossible value.
            TypeError: An array has the wrong dtype.
            Unsupported: The device does not exist, or cannot run with these options.
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
        """Answers in the units of the training data: forecasts or probabilities, float64.

        ==============  ==================================================  ==========================================
        task            inputs                                              answer
        ==============  ==================================================  ==========================================
        ``forecast``    rows of the model's input columns,                  ``[T, horizon, targets]``, ``[B, T, ...]``:
                        ``[T, C]``, ``[B, T, C]``                           from every step, the next rows
        ``classify``    such rows, or tokens ``[T]``, ``[B, T]``            probabilities ``[classes]``, ``[B, classes]``
                                                                            after the last step
        ``classify``,   one text as bytes or str, or a list of them         probabilities ``[classes]``,
        of texts                                                            ``[texts, classes]``
        ``language``    bytes or str                                        probabilities of each next byte ``[T, 256]``
        ==============  ==================================================  ==========================================

        ``inputs`` may also be a file, as ``penstock predict`` reads it, or a table in memory with
        ``__arrow_c_stream__``, as :func:`penstock.open_series` takes it:

        * A model of series forecasts from every row: ``[rows, horizon, targets]``. A model of many series returns a
          dictionary of such arrays by the name of the series. A series that training did not see is scaled by its own
          rows.
        * A classifier returns probabilities ``[sequences, classes]``; ``sequence_column`` separates the sequences. For
          labelled texts it returns those of the text in each row.
        * For language models and labelled texts, a path must be a :class:`pathlib.Path`, because a str is a text.

        Args:
            inputs: Arrays, texts, a file or a table, as above. A column of dates holds ``datetime`` objects, NumPy
                dates or seconds since 1970. If the model reads columns known in advance, future rows may follow at the
                end, with NaN in the other columns; their own forecasts are NaN. A model that reads categories takes
                only files and tables.
            quantiles: Levels such as ``[0.1, 0.9]``, for a series only. The answer is then a pair: the forecasts, and
                their quantiles ``[T, horizon, targets, quantiles]``, those of ``penstock predict --quantiles``. An
                actual value lies below its 0.9 quantile nine times out of ten.
            group: For a model of many series (``data["groups"]``): the series that the rows belong to.
            sequence_column: For files and tables of labelled sequences: the column that separates them.

        The other arguments are those of :meth:`forward`.

        Raises:
            InvalidArgument: An argument has the wrong shape or an impossible value.
            TypeError: The inputs are of the wrong kind or dtype.
            IoFailure: The file cannot be read.
            BadInput: The file or the table has a value that cannot be read.
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
        """Returns (path, None), or the name and the text of a table in memory; None for other inputs."""
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
        """Returns class probabilities of one text, of several texts, or of the texts in a table."""
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
        """Scores the model on data with known answers, in the units of the data, and compares it with baselines.

        Args:
            inputs: A file or a table, as for :meth:`predict`. For a language model bytes, str or a
                :class:`pathlib.Path`.
            skip: For a series: number of first rows that are read but not scored. None: as many as the linear forecast
                reads.
            quantiles: For a series: levels of the quantiles to score, ascending.
            sequence_column: The column that separates labelled sequences.
            label_column: The column of labels. Empty: ``label``; for labelled texts also ``sentiment`` and the like.
            threads: Number of threads. 0: all that the machine offers.

        Returns:
            The dictionary that ``penstock evaluate --json`` writes. For a series: errors of each column, coverage of
            the quantiles, and the errors of the baselines (last value, value a season ago, drift). For labelled
            sequences and texts: accuracy, macro-F1 and the confusion matrix ``[truth][answer]``. For a text:
            ``bytes`` and ``bits_per_byte``.

        Raises:
            InvalidArgument: An argument is impossible.
            IoFailure: The file cannot be read.
            BadInput: The file or the table has a value that cannot be read.
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
        """Generates text with a language model and returns the bytes after the prompt, as ``penstock generate`` does.

        Args:
            prompt: Start of the text, bytes or str. Empty: the model starts as after the end of a line.
            bytes: Number of bytes to generate.
            temperature: Divides the logits: below 1 favours likely bytes, above 1 unlikely ones. 0: always the
                likeliest byte.
            top_k: Samples only from the ``k`` likeliest bytes. 0: from all.
            top_p: Samples only from the likeliest bytes with this total probability, in (0, 1].
            seed: Seed of the sampling; the same seed gives the same text. None: a new seed for each call.
            device: As for :class:`Model`. None: the model's default device.
            precision: As for :meth:`forward`.

        Raises:
            InvalidArgument: The model is not a language model, or an argument is impossible.
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
    """Runs a model step by step on a stream. The answers have the bits of ``Model.forward(..., exact=True)``.

    A step allocates nothing and takes no lock in the library. In Python it allocates only the array of the answer, and
    nothing with ``out``.

    Args:
        model: A :class:`Model`. The session keeps its current weights; later training affects only new sessions.
        device: As for :class:`Model`. None: the model's default device.
        precision: As for :meth:`Model.forward`.
    """

    def __init__(self, model: Model, *, device: str | None = None, precision: str = "full") -> None:
        self.model = model
        self._session = _core.Session(model_of(model), model._on(device), precision)

    def push(self, step: int | ArrayLike, *, out: Buffer | None = None) -> NDArray:
        """Runs one step and returns the outputs ``[O]``.

        Args:
            step: A token (int), or normalised float32 features ``[I]``.
            out: Array for the outputs, float32 ``[O]``. None: a new array.

        Raises:
            InvalidArgument: The step has the wrong shape, or the model reads the other kind of step.
        """
        outputs: Any = self._session.push(step, out)
        return outputs

    def run(self, steps: ArrayLike, *, out: Buffer | None = None) -> NDArray:
        """Runs a chunk of steps, as :meth:`push` does one after the other, and returns the outputs ``[T, O]``.

        Args:
            steps: Tokens, int32 ``[T]``, or normalised float32 features ``[T, I]``.
            out: Array for the outputs, float32 ``[T, O]``. None: a new array.

        Raises:
            InvalidArgument: A step is wrong; the message has its number. The state is as before the call.
        """
        outputs: Any = self._session.run(steps, out)
        return outputs

    process_chunk = run  #: Another name of :meth:`run`.

    @property
    def state(self) -> NDArray:
        """A copy of the state after the steps so far, float32. Set it to continue from there.

        It fits all sessions of the same model, so ``numpy.save`` and ``numpy.load`` continue a stream in another
        process.
        """
        state: Any = self._session.state()
        return state

    @state.setter
    def state(self, value: ArrayLike) -> None:
        self._session.restore(value)

    def clone(self) -> Session:
        """Returns a session that continues from the same state, with the weights of this session."""
        other = object.__new__(type(self))
        other.model, other._session = self.model, self._session.clone()
        return other

    def reset(self) -> None:
        """Returns to the start of a sequence."""
        self._session.reset()

    reset_state = reset  #: Another name of :meth:`reset`.

    def __repr__(self) -> str:
        return f"<penstock.Session of {self.model!r}>"


explain_keywords(globals())
