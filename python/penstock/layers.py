"""Stacks of recurrent layers on NumPy arrays.

Letters of shapes: ``T`` time steps, ``B`` batch rows, ``I`` input size, ``H`` hidden size, ``G`` gates and ``S`` states
of a cell, ``D = H / heads``. Arrays are float32, or float64 for layers made with ``dtype="float64"``. Arrays of other
libraries are read and written in place, without a copy. In CPU memory they need the buffer protocol,
``__array_interface__`` or DLPack; on a GPU, DLPack or ``__cuda_array_interface__``.
"""

from __future__ import annotations

import os

from . import _core
from ._execution import execution, is_time_first
from ._keywords import check_unknown, explain_keywords
from ._pickling import refuse_pickle
from .errors import InvalidArgument

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager
    from typing import Any, NoReturn

    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from ._types import Buffer, Layout, Mode, State

__all__ = ["Recurrent", "Tape"]

_NETWORKS: dict[str, type[_core.NetworkF32 | _core.NetworkF64]] = {
    "float32": _core.NetworkF32,
    "float64": _core.NetworkF64,
}
_SPEC = ("cell", "input_size", "hidden_size", "heads", "layers", "direction", "bias", "dropout", "gradient_clip")
_TAPES = {"float32": _core.TapeF32, "float64": _core.TapeF64}
_SCANS = {cell["name"] for cell in _core.cells() if cell["scan"]}


def _dtype_name(dtype):
    name = getattr(dtype, "__name__", None) or getattr(dtype, "name", None) or str(dtype)
    if name not in _NETWORKS:
        raise ValueError(f"dtype must be 'float32' or 'float64', not {dtype!r}")
    return name


class Tape:
    """Saved values of a forward pass for the backward pass.

    :meth:`Recurrent.tape` makes a tape, ``forward(tape=...)`` fills it, and :meth:`Recurrent.backward` reads it. A tape
    keeps the arrays ``x`` and ``y`` of that call alive. ``x``, the weights and, for minGRU, minLSTM and other scan
    cells, ``y`` must not change before the backward pass, which refuses changes that it notices. It cannot notice
    changes of arrays on a GPU. A tape of a forward pass on a GPU serves one backward pass. A tape can be filled again;
    it then allocates memory only for a batch larger than any before.

    Args:
        dtype: ``"float32"`` or ``"float64"``, the dtype of the layers.
    """

    #: The gradient of ``reset_to``, in its shape with an axis for several states, once :meth:`Recurrent.backward` has
    #: run. None: ``forward`` had no ``reset_to``.
    reset_to_gradient: NDArray | None

    __slots__ = ("_tape", "dtype", "reset_to_gradient")

    def __init__(self, dtype: DTypeLike = "float32") -> None:
        self.dtype = _dtype_name(dtype)
        self._tape: Any = _TAPES[self.dtype]()
        self.reset_to_gradient = None

    def __repr__(self) -> str:
        return f"Tape(dtype='{self.dtype}')"

    __reduce_ex__ = refuse_pickle("run the forward pass where the backward pass runs")


class _StateDict(dict):
    """Weights with the name of their cell in ``_metadata``, where PyTorch keeps the versions of modules."""

    def __init__(self, cell, weights):
        super().__init__(weights)
        self._metadata = {"": {"cell": cell}}


class _Network:
    """Base of cells and stacks."""

    _stacked = False

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
        gradient_clip: float = 0.0,
    ) -> None:
        self.dtype = _dtype_name(dtype)
        if isinstance(bias, bool):
            bias = "both" if bias else "none"
        self.cell = cell
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.heads = heads
        self.layers = layers
        self.direction = direction
        self.bias = bias
        self.dropout = dropout
        self.gradient_clip = gradient_clip
        self._seed = seed
        self._network = self._made()

    def _made(self):
        spec = {name: getattr(self, name) for name in _SPEC}
        return _NETWORKS[self.dtype](**spec, seed=self._seed, stacked=self._stacked)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the options and the weights, for pickle and copy. Gradients and the count of dropout masks start anew."""
        from .equations import with_equations

        return {**vars(self), "cell": with_equations(self.cell), "_network": self.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._network = self._made()
        self._network.set_parameters(state["_network"])

    if not TYPE_CHECKING:  # type checkers must still report unknown attributes

        def __getattr__(self, name):
            from ._keywords import elsewhere_hint

            message = f"'{type(self).__name__}' object has no attribute '{name}'{elsewhere_hint(name)}"
            raise AttributeError(message, name=name, obj=self)

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
        reset_to: State | None = None,
        layout: Layout = "batch_first",
        tape: Tape | None = None,
        out: Buffer | None = None,
        threads: int = 0,
        exact: bool = False,
        precision: str = "full",
        **unknown: NoReturn,
    ) -> tuple[NDArray, NDArray]:
        """Runs whole sequences and returns ``(y, state)``.

        Args:
            x: ``[B, T, I]``, one row ``[T, I]``, or with ``cu_seqlens`` the concatenated rows ``[total, I]``. If x is
                on a GPU, the pass runs there, ``h0`` and ``out`` must be on the same GPU, and channels must be
                contiguous. There x may be bfloat16 or float16 too: products then take factors of this dtype, ``y`` has
                it, and states are float32.
            h0: The initial state, with the shape of :meth:`zero_state`. Cells with several states also take a tuple of
                them, ``(h, c)``. None: zeros.
            mode: How the recurrence runs over T: ``"sequential"``, ``"scan"`` (parallel over chunks of T, for minGRU
                and minLSTM only), or ``"auto"`` (the fastest by the planner's estimate).
            device: ``"cpu"``, ``"cuda"``, ``"cuda:N"`` or ``"auto"``, for arrays in CPU memory. On a GPU, ``x`` and
                ``y`` are copied; this needs float32. ``"auto"``: the device with the lower estimated time, copies
                included (:meth:`choose_device`); with a tape or ``reset_to`` the CPU.
            lengths: int64 ``[B]``: number of steps of each row. Later steps are never read and are zero in ``y``.
            cu_seqlens: int64 ``[B + 1]``: row ``b`` has the steps ``cu_seqlens[b]`` to ``cu_seqlens[b + 1] - 1``.
            reset_mask: bool, with the shape of ``x`` without channels. True resets the state before this step.
            reset_to: The state with which ``reset_mask`` starts again. One for all rows has the shape of ``h0`` without
                the axis B, one for each row that of ``h0``; one for each step, read at the resets only, has an axis T
                behind B. :attr:`Tape.reset_to_gradient` is its gradient. None: zeros. ``cu_seqlens`` is not supported.
            layout: ``"batch_first"``, or ``"time_first"`` for ``[T, B, I]`` in and ``[T, B, H]`` out.
            tape: A tape of :meth:`tape` for a following :meth:`backward`. With a tape, dropout applies.
            out: Array for ``y``. None: a new array.
            threads: Number of threads. 0: all that the machine offers.
            exact: True: a row has the same bits for any split of its sequence and in any batch. This is slower.
            precision: ``"full"``, ``"bf16-weights"`` (weights rounded to bfloat16) or ``"bf16"`` (both factors of the
                products rounded); on a GPU ``"tf32"`` (factors rounded to 10 bits of mantissa). float32 only.

        Returns:
            ``y`` with ``H`` channels (``2 H`` if bidirectional), and the state after the last step of each row. If x is
            on a GPU, both are :class:`penstock.cuda.Array`, and the call returns when they are complete.

        Raises:
            InvalidArgument: An argument has the wrong shape or an impossible value.
            TypeError: An array has the wrong dtype.
            Unsupported: The device does not exist, or cannot run with these options.
        """
        if unknown:
            check_unknown(_Network.forward, unknown)
        given = lengths is not None or cu_seqlens is not None or reset_mask is not None
        return self._network.forward(
            x,
            h0,
            out,
            None if tape is None else tape._tape,
            (lengths, cu_seqlens, reset_mask) if given else None,
            is_time_first(layout),
            self._execution(mode, device, threads, exact, precision),
            reset_to=reset_to,
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
        """Returns the device that ``device="auto"`` selects for sequences of this shape, and the reason in one line.

        Args:
            rows: Batch rows ``B``.
            steps: Time steps ``T``.

        The other arguments are those of :meth:`forward`.
        """
        return self._network.choose_device(rows, steps, self._execution(mode, "cpu", threads, exact, precision))

    def backward(
        self, dy: ArrayLike | None, dstate: State | None = None, *, tape: Tape, input_gradient: bool = True
    ) -> tuple[NDArray | None, NDArray]:
        """Runs the backward pass of the ``forward`` call that filled ``tape`` and returns ``(dx, dh0)``.

        It runs where ``forward`` ran, and adds the gradients of the weights to :attr:`gradients` in CPU memory;
        :meth:`zero_gradients` clears them. If ``x`` of ``forward`` was on a GPU, ``dy`` and ``dstate`` must be there
        too, and ``dx`` and ``dh0`` stay there.

        Args:
            dy: The gradient of ``y``, in its shape. None: zeros.
            dstate: The gradient of the state that ``forward`` returned. None: zeros.
            tape: The tape that ``forward`` filled.
            input_gradient: False: ``dx`` is not computed, and is None.

        Raises:
            InvalidArgument: The tape is empty or belongs to another network, an array has the wrong shape, or the
                weights, ``x`` or, for scan cells, ``y`` have changed since the ``forward`` call.
        """
        dx, dh0, tape.reset_to_gradient = self._network.backward(dy, dstate, tape._tape, input_gradient)
        return dx, dh0

    def save_onnx(self, path: str | os.PathLike[str]) -> None:
        """Writes the layers as ONNX (opset 17), which onnxruntime and others run without Penstock.

        Inputs of the graph are ``x`` ``[B, T, I]`` and ``state`` ``[S, layers * directions, B, H]``, which is zero at
        the start of a sequence. The state has the axis S even for cells with one state. Outputs are ``y``
        ``[B, T, H * directions]`` and ``next_state``. LSTM, GRU and Elman networks with one head become ONNX's own
        operators; other cells are written from their equations. For weights of PyTorch, Keras and others see
        :mod:`penstock.interchange`.

        Raises:
            InvalidArgument: The layers have the dtype float64.
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
        """Returns the plan for sequences of this shape on this machine with its reasons, one line per layer.

        Args:
            rows: Batch rows ``B``.
            steps: Time steps ``T``.
            training: True: with a tape.

        The other arguments are those of :meth:`forward`.
        """
        asked = self._execution(mode, device, threads, exact, precision)
        return self._network.explain(rows, steps, training, asked)

    def _execution(self, mode, device, threads, exact, precision):
        if mode == "scan" and self.cell not in _SCANS and not _core.find_cell(self.cell)["scan"]:
            raise InvalidArgument(
                f"mode must be 'auto' or 'sequential' for the cell {self.cell}, whose gates depend on the state before, "
                "not 'scan'"
            )
        return execution(mode, device, threads, exact, precision)

    def tape(self) -> Tape:
        """Returns a new :class:`Tape` for this network."""
        return Tape(self.dtype)

    def zero_state(self, rows: int | None = None) -> NDArray:
        """Returns a state of zeros for ``rows`` rows. None: for one row, without the axis B."""
        import numpy

        return numpy.zeros(self._network.state_shape(rows), self.dtype)

    @property
    def parameters(self) -> dict[str, NDArray]:
        """All weights by name, as read-only views.

        To change weights, use :meth:`load_state_dict` or ``with network.edit() as parameters:``.
        """
        return self._network.parameters(False, False)

    @property
    def gradients(self) -> dict[str, NDArray]:
        """The gradients of all weights by name, as views. :meth:`backward` adds to them."""
        return self._network.parameters(True, True)

    def zero_gradients(self) -> None:
        """Sets all gradients to zero."""
        self._network.zero_gradients()

    def edit(self) -> AbstractContextManager[dict[str, NDArray]]:
        """Returns a context manager with writable weights: the dictionary :attr:`parameters`, but writable.

        No call may compute with the network inside the context. Tapes that are filled already become invalid.

        >>> import penstock
        >>> cell = penstock.MinGRUCell(1, 1)
        >>> with cell.edit() as weights:
        ...     weights["bias_ih_l0"][:] = 0
        >>> cell.parameters["bias_ih_l0"].tolist()
        [0.0, 0.0]
        """
        import contextlib

        @contextlib.contextmanager
        def writable() -> Iterator[dict[str, NDArray]]:
            self._network.weights_changed()  # makes filled tapes invalid
            weights: dict[str, NDArray] = self._network.parameters(False, True)
            try:
                yield dict(weights)
            finally:
                for array in weights.values():
                    array.flags.writeable = False  # nobody would notice a later change
                self._network.weights_changed()

        return writable()

    def initialise(self, weights: str = "standard", *, chrono: float = 0.0, seed: int = 0) -> None:
        """Draws new initial weights.

        Args:
            weights: ``"standard"`` keeps the weights. ``"uniform"``: all weights and biases in +-1/sqrt(H), as in
                ``torch.nn``. ``"orthogonal"``: recurrent matrices of each head and gate (Saxe et al. 2013).
                ``"identity"``: recurrent matrices of cells with one gate, with biases of 0 (Le et al. 2015).
            chrono: Longest time constant of a unit in steps, above 2: draws the biases of gates so that units
                remember over 1 to ``chrono`` steps (Tallec and Ollivier 2018). 0: biases stay.
            seed: Seed of the random numbers.

        Raises:
            InvalidArgument: The cell cannot start so. No weight has changed then.
        """
        self._network.initialise(weights, float(chrono), seed)

    def state_dict(self) -> dict[str, NDArray]:
        """Returns copies of all weights with the names and shapes of ``torch.nn.LSTM.state_dict()``."""
        return _StateDict(self.cell, {name: value.copy() for name, value in self.parameters.items()})

    def load_state_dict(self, weights: Mapping[str, ArrayLike]) -> None:
        """Copies all weights from a mapping of names to arrays or CPU tensors.

        Raises:
            InvalidArgument: A name is missing or unknown, a shape is wrong, or the weights are the ``state_dict()`` of
                another cell, here or in penstock.torch. No weight has changed then.
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
    """A stack of recurrent layers, like ``torch.nn.LSTM`` and ``torch.nn.GRU``.

    Weights have PyTorch's names, shapes and gate order: ``weight_ih_l0`` ``[G H, I]``, ``weight_hh_l0`` ``[G H, H]``,
    ``bias_ih_l0`` and ``bias_hh_l0`` ``[G H]``, and so on for each layer. The suffix ``_reverse`` marks the reverse
    direction. With several heads, ``weight_hh_l0`` is ``[heads, G D, D]``; minGRU and minLSTM have none. Initial
    weights are uniform in ±1/√H.

    States are ``[layers * directions, B, H]``, or ``[S, layers * directions, B, H]`` for cells with ``S > 1`` states.

    Args:
        cell: A name of :func:`penstock.cells`: ``"lstm"``, ``"gru"``, ``"mingru"``, ...; or a cell of your own, which
            :func:`penstock.cell` made. Its learnt vectors stand behind the gates of ``bias_ih_l0``.
        input_size: Input size ``I``.
        hidden_size: Hidden size ``H``.
        layers: Number of stacked layers.
        direction: ``"forward"``, ``"reverse"`` or ``"bidirectional"``.
        heads: Number of diagonal blocks of the recurrent matrix; must divide ``H``.
        bias: True or ``"both"``, ``"single"`` (``bias_ih`` only), False or ``"none"``.
        dropout: Probability of zeroing an output between layers. It applies only with a tape.
        dtype: ``"float32"`` or ``"float64"``.
        seed: Seed of the initial weights.
        gradient_clip: :meth:`backward` clamps each element of the gradient that a step passes to the h before it to this
            magnitude. 0: no limit. For cells with a recurrent matrix.

    Raises:
        InvalidArgument: An argument has an impossible value.

    >>> import numpy as np, penstock
    >>> network = penstock.Recurrent("lstm", 3, 5, layers=2)
    >>> y, (h, c) = network.forward(np.zeros((4, 7, 3), np.float32))
    >>> y.shape, h.shape
    ((4, 7, 5), (2, 4, 5))
    """

    _stacked = True

    def step(self, x: ArrayLike, h: State | None = None, *, out: Buffer | None = None) -> tuple[NDArray, NDArray]:
        """Runs one step of every row and returns ``(y, state)``. It needs the direction ``"forward"``.

        Args:
            x: The input, ``[B, I]`` or ``[I]``. If x is on a GPU, the step runs there, and ``h`` and ``out`` must be on
                the same GPU.
            h: The state before the step. None: zeros.
            out: Array for the new state, which may be ``h`` itself. None: a new array.

        Raises:
            InvalidArgument: An argument has the wrong shape, or the direction is not ``"forward"``.
            TypeError: An array has the wrong dtype.
        """
        after: Any = self._network.step(x, h, out)
        return after


explain_keywords(globals())
