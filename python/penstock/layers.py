"""Stacks of recurrent layers on NumPy arrays, and what cells by themselves share with them.

Letters of shapes: ``T`` steps of a sequence, ``B`` rows (batch), ``I`` input size, ``H`` hidden size, ``G`` gates and
``S`` states of a cell, ``D = H / heads``. Arrays are float32, or float64 for a cell made with ``dtype="float64"``;
arrays of other libraries (anything with the buffer protocol, ``__array_interface__`` or DLPack in the memory of the
CPU) are read, and written to, where they lie.
"""

from __future__ import annotations

import os

from . import _core
from ._execution import execution, is_time_first
from ._keywords import explain_keywords
from .errors import InvalidArgument

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without the import
if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from typing import Any

    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from ._types import Buffer, Layout, Mode, State

__all__ = ["Recurrent", "Tape"]

_NETWORKS: dict[str, type[_core.NetworkF32 | _core.NetworkF64]] = {
    "float32": _core.NetworkF32,
    "float64": _core.NetworkF64,
}
_TAPES = {"float32": _core.TapeF32, "float64": _core.TapeF64}
_SCANS = {cell["name"] for cell in _core.cells() if cell["scan"]}


def _dtype_name(dtype):
    name = getattr(dtype, "__name__", None) or getattr(dtype, "name", None) or str(dtype)
    if name not in _NETWORKS:
        raise ValueError(f"dtype must be 'float32' or 'float64', not {dtype!r}")
    return name


class Tape:
    """What a backward pass needs of its forward pass: made by :meth:`Recurrent.tape`, filled by ``forward(tape=...)``.

    It keeps the arrays x and y of that call alive. They and the weights must not be changed before the backward pass.
    Used again and again it allocates memory only where a batch is larger than any before.
    """

    __slots__ = ("_tape", "dtype")

    def __init__(self, dtype: DTypeLike = "float32") -> None:
        self.dtype = _dtype_name(dtype)
        self._tape: Any = _TAPES[self.dtype]()

    def __repr__(self) -> str:
        return f"Tape(dtype='{self.dtype}')"


class _StateDict(dict):
    """Weights that say their cell where PyTorch's state_dicts keep the versions of modules."""

    def __init__(self, cell, weights):
        super().__init__(weights)
        self._metadata = {"": {"cell": cell}}


class _Edit:
    """Writable weights for as long as the context lasts."""

    def __init__(self, network: Any) -> None:
        self._network = network

    def __enter__(self) -> dict[str, NDArray]:
        self._network.weights_changed()  # tapes that are filled already serve no backward pass from here on
        self._weights: dict[str, NDArray] = self._network.parameters(False, True)
        return dict(self._weights)

    def __exit__(self, *_: object) -> None:
        for array in self._weights.values():
            array.flags.writeable = False  # a later change would be missed
        self._network.weights_changed()


class _Network:
    """What cells and stacks have in common."""

    _stacked = False

    def __init__(
        self,
        cell: str,
        input_size: int,
        hidden_size: int,
        *,
        layers: int,
        direction: str,
        heads: int,
        bias: bool | str,
        dropout: float,
        dtype: DTypeLike,
        seed: int,
    ) -> None:
        self.dtype = _dtype_name(dtype)
        for name, size in (("input_size", input_size), ("hidden_size", hidden_size), ("heads", heads), ("layers", layers)):
            if not hasattr(size, "__index__"):
                raise TypeError(f"{name} must be a whole number, not {size!r}")
        if isinstance(bias, bool):
            bias = "both" if bias else "none"
        self._network = _NETWORKS[self.dtype](
            cell=cell,
            input_size=input_size,
            hidden_size=hidden_size,
            heads=heads,
            layers=layers,
            direction=direction,
            bias=bias,
            dropout=dropout,
            seed=seed,
            stacked=self._stacked,
        )
        self.cell = cell
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.heads = heads
        self.layers = layers
        self.direction = direction
        self.bias = bias
        self.dropout = dropout

    def forward(
        self,
        x: ArrayLike,
        h0: State | None = None,
        *,
        mode: Mode = "auto",
        device: str = "cpu",
        lengths: ArrayLike | None = None,
        cu_seqlens: ArrayLike | None = None,
        reset_mask: ArrayLike | None = None,
        layout: Layout = "batch_first",
        tape: Tape | None = None,
        out: Buffer | None = None,
        threads: int = 0,
        exact: bool = False,
        precision: str = "full",
    ) -> tuple[NDArray, NDArray]:
        """Runs whole sequences and returns ``(y, state)``.

        Args:
            x: ``[B, T, I]``, one row ``[T, I]``, or, with ``cu_seqlens``, all rows one after the other ``[total, I]``.
            h0: The state before the first step, of the shape of :meth:`zero_state`; zeros if it is None. For cells of
                several states also a tuple of them, ``(h, c)``.
            mode: How the recurrence runs over T: ``"sequential"``, ``"scan"`` (parallel over chunks of T; minGRU and
                minLSTM only), or ``"auto"``: what the planner expects to be the fastest.
            device: ``"cpu"``, or ``"cuda"`` or ``"cuda:N"``, to which x is copied and from which y is: without a tape,
                in float32. ``"auto"``: the one of the two that takes less time, copies counted, as
                :meth:`choose_device` estimates; with a tape it is the CPU.
            lengths: int64 ``[B]``: how many steps each row has. Later ones are never read and are zero in ``y``.
            cu_seqlens: int64 ``[B + 1]``: row b has the steps ``cu_seqlens[b]`` to ``cu_seqlens[b + 1] - 1``.
            reset_mask: bool, ``x``'s shape without channels. True: the state is set to zero before this step.
            layout: ``"batch_first"``, or ``"time_first"`` for ``[T, B, I]`` in and ``[T, B, H]`` out.
            tape: From :meth:`tape`, if :meth:`backward` shall follow; dropout then applies.
            out: Where to write ``y``; a new array if it is None.
            threads: 0: as many as the machine offers.
            exact: The same bits for any split of a sequence and any batch around a row; slower.
            precision: ``"full"``, ``"bf16-weights"`` (rounded to bfloat16) or ``"bf16"`` (what they are multiplied
                with as well). float32 only.

        Returns:
            ``y``, with ``H`` channels (``2 H`` if bidirectional), and the state after the last step of each row.

        Raises:
            InvalidArgument: An argument has the wrong shape or an impossible value.
            TypeError: An array has another dtype.
        """
        given = lengths is not None or cu_seqlens is not None or reset_mask is not None
        return self._network.forward(
            x,
            h0,
            out,
            None if tape is None else tape._tape,
            (lengths, cu_seqlens, reset_mask) if given else None,
            is_time_first(layout),
            self._execution(mode, device, threads, exact, precision),
            device == "auto",
        )

    def choose_device(
        self,
        rows: int = 1,
        steps: int = 256,
        *,
        mode: Mode = "auto",
        threads: int = 0,
        exact: bool = False,
        precision: str = "full",
    ) -> tuple[str, str]:
        """The device that ``device="auto"`` means for sequences of that shape, and why, in a line.

        The arguments are those of :meth:`forward`, for ``rows`` rows of ``steps`` steps.
        """
        return self._network.choose_device(rows, steps, self._execution(mode, "cpu", threads, exact, precision))

    def backward(
        self, dy: ArrayLike | None, dstate: State | None = None, *, tape: Tape, input_gradient: bool = True
    ) -> tuple[NDArray | None, NDArray]:
        """The backward pass of the ``forward`` call that filled ``tape``. Returns ``(dx, dh0)``.

        Adds to :attr:`gradients`; :meth:`zero_gradients` clears them.

        Args:
            dy: The gradient of ``y``, in its shape; None: zeros.
            dstate: The gradient of the state that ``forward`` returned; None: zeros.
            tape: The tape that ``forward`` filled.
            input_gradient: False: ``dx`` is not wanted, and is None.

        Raises:
            InvalidArgument: The tape is of another network or empty, an array has the wrong shape, or weights have
                changed since the ``forward`` call: the gradients would belong neither to the old ones nor to the new.
        """
        return self._network.backward(dy, dstate, tape._tape, input_gradient)

    def save_onnx(self, path: str | os.PathLike[str]) -> None:
        """Writes the layers as ONNX (opset 17), which onnxruntime and others run without Penstock.

        The file reads ``x`` ``[B, T, I]`` and ``state`` ``[S, layers * directions, B, H]`` (with S for cells of one
        state, too), zeros at the start of a sequence; it makes ``y`` ``[B, T, H * directions]`` and ``next_state``.
        LSTM, GRU and Elman networks of one head are ONNX's own operators; the other cells are written from their
        equations. For weights of PyTorch, Keras and others see :mod:`penstock.interchange`.

        Raises:
            InvalidArgument: The layers are of float64.
            IoFailure: The file cannot be written.
        """
        self._network.save_onnx(os.fspath(path))

    def explain(
        self,
        rows: int = 1,
        steps: int = 256,
        *,
        training: bool = False,
        mode: Mode = "auto",
        device: str = "cpu",
        threads: int = 0,
        exact: bool = False,
        precision: str = "full",
    ) -> str:
        """How sequences of that shape run here, and why: a line for each layer.

        Args:
            rows: ``B``.
            steps: ``T``.
            training: Whether a tape is kept.

        The other arguments are those of :meth:`forward`.
        """
        asked = self._execution(mode, device, threads, exact, precision)
        return self._network.explain(rows, steps, training, asked)

    def _execution(self, mode, device, threads, exact, precision):
        if mode == "scan" and self.cell not in _SCANS:
            raise InvalidArgument(
                f"mode must be 'auto' or 'sequential' for the cell {self.cell}, whose gates depend on the state before, "
                "not 'scan'"
            )
        return execution(mode, device, threads, exact, precision)

    def tape(self) -> Tape:
        """A new :class:`Tape` for this network."""
        return Tape(self.dtype)

    def zero_state(self, rows: int | None = None) -> NDArray:
        """A state of zeros for ``rows`` rows, or for one row without an axis of its own if it is None."""
        import numpy

        return numpy.zeros(self._network.state_shape(rows), self.dtype)

    @property
    def parameters(self) -> dict[str, NDArray]:
        """All weights by name, as arrays that cannot be written to: views, not copies.

        They are changed by :meth:`load_state_dict`, or inside ``with network.edit() as parameters:``.
        """
        return self._network.parameters(False, False)

    @property
    def gradients(self) -> dict[str, NDArray]:
        """The gradients of all weights by name, as views: what :meth:`backward` adds to."""
        return self._network.parameters(True, True)

    def zero_gradients(self) -> None:
        """Sets all gradients to zero."""
        self._network.zero_gradients()

    def edit(self) -> AbstractContextManager[dict[str, NDArray]]:
        """A context in which the weights can be written to: its value is what :attr:`parameters` is, but writable.

        Nothing may compute with the network meanwhile.

        >>> import penstock
        >>> cell = penstock.MinGRUCell(1, 1)
        >>> with cell.edit() as weights:
        ...     weights["bias_ih_l0"][:] = 0
        >>> cell.parameters["bias_ih_l0"].tolist()
        [0.0, 0.0]
        """
        return _Edit(self._network)

    def state_dict(self) -> dict[str, NDArray]:
        """Copies of all weights by name, as ``torch.nn.LSTM.state_dict()`` names and shapes them."""
        return _StateDict(self.cell, {name: value.copy() for name, value in self.parameters.items()})

    def load_state_dict(self, weights: Mapping[str, ArrayLike]) -> None:
        """Takes all weights from a mapping of names to arrays (or to tensors of the CPU).

        Raises:
            InvalidArgument: A name is missing or unknown, a shape is another, or a ``state_dict()``, here or of
                penstock.torch, was made by another cell; no weight has changed then.
        """
        said = getattr(weights, "_metadata", {}).get("", {}).get("cell", self.cell)
        if said != self.cell:
            raise InvalidArgument(
                f"weights are those of a cell '{said}', and this is '{self.cell}'; make it with cell='{said}', or take "
                f"them anyway by dict(weights)"
            )
        own = self.parameters
        missing, unknown = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
        if missing or unknown:
            raise InvalidArgument(
                f"weights must have the names {', '.join(own)}; missing: {', '.join(missing) or 'none'}, "
                f"unknown: {', '.join(unknown) or 'none'}"
            )
        self._network.set_parameters(weights)

    def __repr__(self) -> str:
        more = "".join(
            f", {name}={getattr(self, name)!r}"
            for name, usual in (("layers", 1), ("direction", "forward"), ("heads", 1), ("dtype", "float32"))
            if getattr(self, name) != usual
        )
        name = f"'{self.cell}', " if self._stacked else ""
        return f"{type(self).__name__}({name}{self.input_size}, {self.hidden_size}{more})"


class Recurrent(_Network):
    """A stack of recurrent layers, as ``torch.nn.LSTM`` and its siblings are.

    Weights have PyTorch's names, shapes and order of gates: ``weight_ih_l0`` ``[G H, I]``, ``weight_hh_l0``
    ``[G H, H]`` (several heads: ``[heads, G D, D]``; minGRU and minLSTM have none), ``bias_ih_l0``, ``bias_hh_l0``
    ``[G H]``, and so on for each layer, with the suffix ``_reverse`` for the other direction. They start uniform in
    ±1/√H. States are ``[layers * directions, B, H]``; of cells with ``S > 1`` states ``[S, layers * directions, B, H]``.

    Args:
        cell: A name of :func:`penstock.cells`: ``"lstm"``, ``"gru"``, ``"mingru"``, ...
        input_size: ``I``.
        hidden_size: ``H``.
        layers: How many, one on top of the other.
        direction: ``"forward"``, ``"reverse"`` or ``"bidirectional"``.
        heads: Into how many blocks the recurrent matrix falls; divides ``H``.
        bias: True or ``"both"``, ``"single"`` (``bias_ih`` only), False or ``"none"``.
        dropout: Probability of zeroing an output between layers, while a tape is kept.
        dtype: ``"float32"`` or ``"float64"``.
        seed: Of the first weights.

    >>> import numpy as np, penstock
    >>> network = penstock.Recurrent("lstm", 3, 5, layers=2)
    >>> y, (h, c) = network.forward(np.zeros((4, 7, 3), np.float32))
    >>> y.shape, h.shape
    ((4, 7, 5), (2, 4, 5))
    """

    _stacked = True

    def __init__(
        self,
        cell: str,
        input_size: int,
        hidden_size: int,
        *,
        layers: int = 1,
        direction: str = "forward",
        heads: int = 1,
        bias: bool | str = True,
        dropout: float = 0.0,
        dtype: DTypeLike = "float32",
        seed: int = 0,
    ) -> None:
        super().__init__(
            cell,
            input_size,
            hidden_size,
            layers=layers,
            direction=direction,
            heads=heads,
            bias=bias,
            dropout=dropout,
            dtype=dtype,
            seed=seed,
        )

    def step(self, x: ArrayLike, h: State | None = None, *, out: Buffer | None = None) -> tuple[NDArray, NDArray]:
        """One step of every row: returns ``(y, state)`` from x ``[B, I]`` or ``[I]`` and the state before it.

        ``out``: an array for the new state, which may be ``h`` itself; a new one if it is None. Forward direction only.
        """
        after: Any = self._network.step(x, h, out)
        return after


explain_keywords(globals())
