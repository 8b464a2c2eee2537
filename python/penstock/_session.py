"""Models on streams, step by step: one row or many."""

from __future__ import annotations

from collections import namedtuple

from . import _core
from ._execution import execution
from ._library_objects import model_of
from ._pickling import refuse_pickle
from .errors import InvalidArgument

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from numpy.typing import ArrayLike, NDArray

    from ._types import Buffer
    from .models import Model
    from .networks import Network


class Session:
    """Runs a model step by step on a stream.

    A step allocates nothing and takes no lock in the library. In Python it allocates only the array of the answer, and
    nothing with ``out``.

    Args:
        model: A :class:`Model`. The session keeps its current weights; later training affects only new sessions.
        device: As for :class:`Model`. None: the model's default device.
        precision: As for :meth:`Model.forward`.
        exact: True: the answers have the bits of ``Model.forward(..., exact=True)``. On a CPU they always have.
        group: As for :meth:`Model.forward`.
    """

    def __init__(
        self,
        model: Model,
        *,
        device: str | None = None,
        precision: str = "full",
        exact: bool = False,
        group: str = "",
    ) -> None:
        self.model = model
        given = model_of(model)
        self._session = _core.Session(given, group, execution("auto", model._on(device), 1, exact, precision))

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

    def __deepcopy__(self, memo: dict[int, Any]) -> Session:
        return self.clone()

    __copy__ = clone
    __reduce_ex__ = refuse_pickle(
        "pickle session.model and session.state; other = penstock.Session(model) and other.state = state continue there"
    )

    def reset(self) -> None:
        """Returns to the start of a sequence."""
        self._session.reset()

    reset_state = reset  #: Another name of :meth:`reset`.

    def __repr__(self) -> str:
        return f"<penstock.Session of {self.model!r}>"


class SessionBatch:
    """Runs a model step by step on many streams: one step of all rows per call.

    On a CPU each row has the answers of a :class:`Session` to the bit. On a GPU they differ by rounding. Calls release
    the interpreter's lock; a call while another one uses the batch raises InvalidArgument.

    Args:
        model: A :class:`Model`. The batch keeps its current weights; later training affects only new batches.
        rows: Number of streams, B.
        device: As for :class:`Model`. None: the model's default device.
        precision: As for :meth:`Model.forward`.
        exact: As for :class:`Session`.
        threads: Number of threads on a CPU. 0: all that the machine offers.

    Raises:
        InvalidArgument: ``rows`` is below 1.
        OutOfMemory: The states of the rows do not fit into the memory of the device.
    """

    def __init__(
        self,
        model: Model,
        rows: int,
        *,
        device: str | None = None,
        precision: str = "full",
        exact: bool = False,
        threads: int = 0,
    ) -> None:
        self.model = model
        self._batch = _core.SessionBatch(
            model_of(model), rows, execution("auto", model._on(device), threads, exact, precision)
        )

    @property
    def rows(self) -> int:
        """The number of streams."""
        return self._batch.rows

    def push(self, steps: ArrayLike, *, out: Buffer | None = None) -> NDArray:
        """Runs one step of every row and returns the outputs ``[B, O]``.

        Outputs are not checked: a row that is not finite stays so until :meth:`reset`.

        Args:
            steps: Tokens, int32 ``[B]``, or normalised float32 features ``[B, I]``.
            out: Array for the outputs, float32 ``[B, O]``. None: a new array.

        Raises:
            InvalidArgument: The steps have the wrong shape or values; all states are as before the call.
        """
        outputs: Any = self._batch.push(steps, out)
        return outputs

    def generate(self, steps: int, *, temperature: float = 0.8, top_k: int = 0, top_p: float = 0.95) -> NDArray:
        """Samples tokens of a language model and returns them, int32 ``[B, steps]``.

        Each row samples a token from its last logits and reads it, ``steps`` times. On a GPU up to 64 steps follow each
        other without waiting for the host. Ctrl-C ends the call; the rows keep the steps taken.

        Args:
            steps: Number of tokens for each row.
            temperature, top_k, top_p: As for :meth:`Model.generate`.

        Raises:
            InvalidArgument: The model is not a language model, or an argument is impossible.
            NumericalError: The logits of a row are not finite. Reset all rows.
        """
        tokens: Any = self._batch.generate(steps, temperature, top_k, top_p)
        return tokens

    def seed(self, row: int, seed: int) -> None:
        """Sets the seed of the tokens that a row samples from now on. Without it, the seed of a row is its number."""
        self._batch.seed(row, seed)

    def reset(self, row: int | None = None) -> None:
        """Returns one row to the start of a sequence. None: all rows. Random numbers continue."""
        self._batch.reset(row)

    reset_state = reset  #: Another name of :meth:`reset`.

    __reduce_ex__ = refuse_pickle("make another one of its model")

    def __repr__(self) -> str:
        return f"<penstock.SessionBatch of {self.rows} rows of {self.model!r}>"


class PoolAnswers(namedtuple("PoolAnswers", "sessions tags outputs failures")):
    """Steps that :meth:`SessionPool.run` took: a tuple of four."""

    __slots__ = ()
    sessions: NDArray  #: Their numbers, int64 ``[N]``.
    tags: NDArray  #: int64 ``[N]``, as :meth:`SessionPool.submit` got them.
    outputs: NDArray  #: float32 ``[N, O]``
    failures: dict[int, Exception]  #: By position, as of :meth:`SessionPool.push`.


class SessionPool:
    """Runs a model or a network on thousands of streams, which join, step and leave at any time.

    The pool computes steps of any open sessions in batches. :meth:`push` takes a step of each of some sessions.
    :meth:`submit` puts steps into a bounded queue, from any thread; one thread calls :meth:`run`, which computes what
    waits and returns the answers. Each session has the answers of a :class:`Session` to the bit; those of a
    :class:`NetworkSession` and of a GPU differ by rounding. States on a GPU stay there between steps. Calls release the
    interpreter's lock; a call other than :meth:`submit` while another one uses the pool raises InvalidArgument.

    Args:
        model: A :class:`Model`, whose current weights the pool keeps, or a :class:`Network`.
        capacity: Number of sessions that may be open at a time.
        shapes: Of a network: {input: shape} of one stream, as for :class:`NetworkSession`. The first extent that is -1 in
            each input and state is that of the rows of a batch, and 1 here.
        device: Of a model: as for :class:`Model`. None: the model's default device. Networks run on a CPU.
        precision: Of a model: as for :meth:`Model.forward`.
        threads: Number of threads on a CPU. 0: all that the machine offers.
        queue: Number of steps that may wait. 0: none, the pool takes steps by :meth:`push` alone.
        wait_s: Seconds that the first step waits for others before :meth:`run` computes. 0: not at all.
        batch: Steps that :meth:`run` computes at once, and for which it waits no longer. 0: 64 for each thread; on a GPU
            ``capacity``, at most 16,384.

    Raises:
        InvalidArgument: ``capacity`` is below 1 or above 2^24, another number is impossible, or a shape is wrong.
        Unsupported: ``device`` is a GPU and the model a network. An input, an output or a state of the network has no
            extent for rows, or holds other values than float32; or the answer of a row depends on other rows.
        OutOfMemory: The states do not fit into the memory of the device.
    """

    def __init__(
        self,
        model: Model | Network,
        capacity: int,
        *,
        shapes: Mapping[str, Sequence[int]] | None = None,
        device: str | None = None,
        precision: str = "full",
        threads: int = 0,
        queue: int = 0,
        wait_s: float = 0.0,
        batch: int = 0,
    ) -> None:
        self.model = model
        form = _core.PoolQueue(queue, wait_s, batch)
        on = execution("auto", device or getattr(model, "_device", "cpu"), threads, False, precision)
        network = getattr(model, "_network", None)
        if network is not None:
            extents = {name: list(shape) for name, shape in (shapes or {}).items()}
            self._pool = _core.SessionPool(network, extents, capacity, on, form)
        elif shapes is None:
            self._pool = _core.SessionPool(model_of(model), capacity, on, form)
        else:
            raise InvalidArgument("shapes must be None for a Model: they are those of a Network")

    @property
    def capacity(self) -> int:
        """The number of sessions that may be open at a time."""
        return self._pool.capacity

    @property
    def open_sessions(self) -> int:
        """The number of open sessions."""
        return self._pool.open_sessions

    def open(self) -> int:
        """Opens a session at the start of a sequence and returns its number, which no other session of the pool has.

        Raises:
            OutOfMemory: ``capacity`` sessions are open.
        """
        return self._pool.open()

    def close(self, session: int) -> None:
        """Closes a session.

        Raises:
            InvalidArgument: The session is not open in this pool.
        """
        self._pool.close(session)

    def reset(self, session: int) -> None:
        """Returns a session to the start of a sequence. Raises as :meth:`close`."""
        self._pool.reset(session)

    def state(self, session: int) -> NDArray:
        """Returns a copy of the state of a session, float32, as :attr:`Session.state` has it. Raises as :meth:`close`."""
        state: Any = self._pool.state(session)
        return state

    def restore(self, session: int, state: ArrayLike) -> None:
        """Continues a session from a state of :meth:`state` or :attr:`Session.state`, perhaps of another process.

        Raises:
            InvalidArgument: The session is not open in this pool, or the state has another size or is not finite.
        """
        self._pool.restore(session, state)

    def push(
        self, sessions: ArrayLike, steps: ArrayLike, *, out: Buffer | None = None
    ) -> tuple[NDArray, dict[int, Exception]]:
        """Takes one step of each of N sessions and returns the outputs ``[N, O]`` and the failures.

        A failure is the exception of a session, by its position in the call; its outputs are NaN, and all others took
        their step. It is InvalidArgument for a session that is not open or comes twice and for a wrong token or
        feature; the state is then as before. It is NumericalError if an output is not finite; the session is then reset.

        Args:
            sessions: Numbers of the sessions, int64 ``[N]``.
            steps: Tokens, int32 ``[N]``, or normalised float32 features ``[N, I]``.
            out: Array for the outputs, float32 ``[N, O]``. None: a new array.

        Raises:
            InvalidArgument: An argument has the wrong shape; no session took a step.
        """
        answers: Any = self._pool.push(sessions, steps, out)
        return answers

    def submit(self, sessions: ArrayLike, steps: ArrayLike, *, tags: ArrayLike | None = None) -> int:
        """Puts steps into the queue and returns how many of them found a place: the first so many.

        For the others the queue is full: submit them again after :meth:`run`, slow their streams down, or refuse them.
        Any thread may call it at any time; steps of one session are computed in their order.

        Args:
            sessions: Numbers of the sessions, int64 ``[N]``. One may come several times.
            steps: As for :meth:`push`.
            tags: Whole numbers that return with the answers, int64 ``[N]``. None: zeros.

        Raises:
            InvalidArgument: An argument has the wrong shape, or the pool has no queue.
        """
        return self._pool.submit(sessions, steps, tags)

    @property
    def waiting(self) -> int:
        """The number of steps in the queue. Any thread may read it."""
        return self._pool.waiting

    def run(self, idle_s: float = 0.0) -> PoolAnswers:
        """Computes the steps that wait, at most one of each session, and returns the answers.

        If there are none, it waits up to ``idle_s`` seconds for the first; then up to ``wait_s`` from its arrival, unless
        ``batch`` steps are there before. Without a step it returns no answers.

        Raises:
            InvalidArgument: The pool has no queue.
        """
        return PoolAnswers(*self._pool.run(idle_s))

    __reduce_ex__ = refuse_pickle("make another one of its model, and restore() the states of state() there")

    def __repr__(self) -> str:
        return f"<penstock.SessionPool of {self.open_sessions} of {self.capacity} sessions of {self.model!r}>"
