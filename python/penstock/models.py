"""Sequence models: build, load, run, score and save them. The files are those of ``penstock train``."""

from __future__ import annotations

import os

from . import _core
from ._answers import evaluate, predict
from ._execution import execution
from ._hub import Pretrained, parsed_history
from ._library_objects import dataset_of
from ._keywords import explain_keywords
from ._session import PoolAnswers, Session, SessionBatch, SessionPool

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    import builtins
    from collections.abc import Sequence
    from typing import Any

    from numpy.typing import ArrayLike, NDArray

    from ._types import Mode
    from .datasets import Dataset

__all__ = ["Model", "PoolAnswers", "Session", "SessionBatch", "SessionPool"]

#: Arguments of :class:`Model` that are fields of :attr:`Model.spec`.
_SPEC = ("cell", "width", "blocks", "hidden_size", "heads", "convolution", "feed_forward", "dropout", "end_norms",
         "from_last")  # fmt: skip


class Model(Pretrained):
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
        said = dict(locals())
        dataset = dataset_of(data)
        self._arguments = {name: said[name] for name in _SPEC if said[name] is not None}  # a search keeps these fixed
        self._arguments.setdefault("from_last", data._from_last)
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
        return self._model.choose_device(rows, steps, training, execution("auto", "cpu", threads, exact, precision))

    def allow_negative(self) -> None:
        """Lets forecasts and quantiles be negative that are otherwise at least 0, also in files written later."""
        self._model.allow_negative()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a safetensors file that also contains the architecture and the description of the data.

        The file is written under a temporary name, then renamed: an existing file is replaced whole or not at all.

        Raises:
            IoFailure: The file cannot be written.
        """
        self._model.save(os.fspath(path), self._history or {})

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

    def __getstate__(self) -> dict[str, Any]:
        """Returns the bytes of the model file, and what it does not hold, for pickle and copy."""
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            self.save(path)
            with open(path, "rb") as file:
                return {**vars(self), "_model": file.read(), "_data": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        import tempfile

        vars(self).update(state)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            with open(path, "wb") as file:
                file.write(state["_model"])
            self._model, _ = _core.Model.load(path)
        self._data = self._model.data()

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

        ``options`` are those of training, ``scores`` those on the hold-out set and of baselines. Empty for an untrained
        model.
        """
        return parsed_history(self._history or {})

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
        return self._model.memory(rows, steps, execution("auto", self._on(device), 0, False, precision))

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
        group: str = "",
    ) -> tuple[NDArray, NDArray]:
        """Runs the network and returns ``(outputs, state)``.

        Args:
            inputs: int32 tokens ``[T]`` or ``[B, T]``, or normalised float32 features ``[T, I]`` or ``[B, T, I]``.
            state: The state that the previous call returned, to continue its sequence. None: the start of a sequence.
            mode: ``"auto"``, ``"sequential"`` or ``"scan"``, as for :meth:`Recurrent.forward`.
            device: As for :class:`Model`. None: the model's default device.
            threads: Number of threads. 0: all that the machine offers.
            exact: True: the outputs have the bits of a :class:`Session`. This is slower.
            precision: ``"full"``, ``"bf16-weights"``, ``"bf16"``, and on a GPU ``"f16"`` and ``"tf32"``.
            group: For a model of many series: the series of the inputs, which may have a forecast of its own
                (``data["own_forecasts"]``). Empty: the forecast that the others share.

        Returns:
            Logits ``[..., T, O]`` or normalised forecasts ``[..., T, horizon * targets]``, and the state ``[values]``.

        Raises:
            InvalidArgument: An argument has the wrong shape or an impossible value.
            TypeError: An array has the wrong dtype.
            Unsupported: The device does not exist, or cannot run with these options.
        """
        how = execution(mode, self._on(device), threads, exact, precision)
        return self._model.forward(inputs, state, group, how)

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
        ``language``    bytes or str; token ids ``[T]``, ``[B, T]``         probabilities of each next byte ``[T, 256]``,
                                                                            or token ``[T, vocabulary]``
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
        how = execution(mode, self._on(device), threads, exact, precision)
        return predict(self, inputs, quantiles, group, sequence_column, how)

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
        return evaluate(self, inputs, skip, quantiles, (sequence_column, label_column), threads)

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
        how = execution("auto", self._on(device), 0, False, precision)
        return self._model.generate(prompt, bytes, temperature, top_k, top_p, seed, how)

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


explain_keywords(globals())
