"""Streams of one replica: numbered steps, in batches on a pool of sessions, with states kept elsewhere."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

import penstock

from ._states import Record, States

if TYPE_CHECKING:
    from numpy.typing import NDArray as _NDArray

    NDArray = _NDArray[Any]

Result = TypeVar("Result")

LONGEST_NAME = 128  # characters of the name of a stream
LONGEST_CHUNK = 256  # rows of a step; other streams wait for them
STUCK_S = 30.0  # a batch that takes longer makes a replica unhealthy


class Refused(Exception):
    """A stream got no answer. The text says why.

    Attributes:
        status: A status code of HTTP. 503: nothing was lost; send the same step again. Others: the request is wrong.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclasses.dataclass
class _Live:
    """A stream with a session in the pool."""

    claim: int
    next: int
    answers: dict[int, NDArray]  # [T, O] by number
    session: int = 0  # 0: not yet open


class _Job(NamedTuple):
    """A step that waits for its batch."""

    stream: str
    live: _Live
    rows: NDArray  # [T] or [T, I]
    answer: asyncio.Future[NDArray]
    since: float


class Streams:
    """Steps the streams of one replica.

    A stream is known by a name. Its steps have the numbers 0, 1, 2 and so on. A step is answered after its state was
    saved, so another replica can continue the stream. A step that was answered before gets the same answer again and is
    not computed twice. Answers have the bits of :class:`penstock.Session`.

    The pool is a cache: if it is full, the stream that has been idle for longest gives up its session. Use all methods
    from one event loop.

    Args:
        model: A :class:`penstock.Model`.
        states: Where the states are saved.
        prefix: Begins the names of streams there. Streams of another model are not to be continued.
        capacity: Number of sessions in the pool.
        window: Number of answers that a client may leave unacknowledged.
        threads: As for :class:`penstock.SessionPool`.
        watch: Gets, after each batch, its number of steps and failures, and the seconds since its oldest step arrived.
    """

    def __init__(
        self,
        model: penstock.Model,
        states: States,
        *,
        prefix: str = "",
        capacity: int = 1000,
        window: int = 16,
        threads: int = 1,
        watch: Callable[[int, int, float], None] = lambda steps, failures, seconds: None,
    ) -> None:
        self._pool = penstock.SessionPool(model, capacity, threads=threads)
        self._vocabulary, self._inputs = model.data["vocabulary"], model.data["input_size"]
        self._outputs = model.data["output_size"]
        self._states, self._prefix, self._window, self._watch = states, prefix, window, watch
        self._live: OrderedDict[str, _Live] = OrderedDict()  # the one that stepped last is last
        self._tasks: dict[str, asyncio.Task[NDArray]] = {}  # steps under way, by stream
        self._jobs: list[_Job] = []
        self._batch: list[_Job] = []  # on the pool's thread
        self._saving: set[asyncio.Task[None]] = set()
        self._running: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "penstock-pool")  # a pool takes one call at a time

    @property
    def live(self) -> int:
        """The number of streams that have a session in the pool."""
        return len(self._live)

    def check(self) -> None:
        """Raises RuntimeError if the replica is not healthy: a batch takes too long, or the loop of batches ended."""
        if self._running and self._running.done():
            raise RuntimeError("the loop of batches ended")
        waiting = [*self._batch, *self._jobs]
        if waiting and time.monotonic() - waiting[0].since > STUCK_S:
            raise RuntimeError(f"a step has waited for more than {STUCK_S:g} s")

    async def step(self, stream: str, number: int, values: Any, received: int = -1) -> NDArray:
        """Takes a step of a stream and returns its outputs ``[O]``, or ``[T, O]`` for a chunk of T rows.

        The step completes even if the caller is cancelled.

        Args:
            stream: Name of the stream. Step 0 begins it.
            number: Number of the step.
            values: A token, or normalised features ``[I]``; or a chunk: tokens ``[T]``, features ``[T, I]``.
            received: Number of the last answer that the client has received. -1: none.

        Raises:
            Refused: The step is wrong, or cannot be taken now. The state is as before.
        """
        if stream in self._tasks:
            raise Refused(409, f"stream '{stream}' has a step under way: wait for its answer")
        task = self._tasks[stream] = asyncio.ensure_future(self._step(stream, number, values, received))
        task.add_done_callback(lambda done: (self._tasks.pop(stream), done.cancelled() or done.exception()))
        return await asyncio.shield(task)

    async def close(self, stream: str) -> None:
        """Ends a stream.

        Raises:
            Refused: It is not open, or a step is under way.
        """
        if stream in self._tasks:
            raise Refused(409, f"stream '{stream}' has a step under way: wait for its answer, then close")
        self._forget(stream)
        if not await self._states.close(self._prefix + stream):
            raise Refused(404, f"stream '{stream}' is not open: it was closed before, or never began")

    async def _step(self, stream: str, number: int, values: Any, received: int) -> NDArray:
        if not (1 <= len(stream) <= LONGEST_NAME and stream.isprintable()):
            raise Refused(422, f"the name of a stream must have 1 to {LONGEST_NAME} printable characters")
        if not -1 <= received < number:
            raise Refused(422, f"received must be in -1 to {number - 1}, the number of an earlier step, not {received}")
        if number - received > self._window:
            text = f"{number - received - 1} answers are not acknowledged"
            raise Refused(429, f"{text}: read them, and set 'received' to the last one")
        rows, one = self._rows(values)
        live = await self._enter(stream, number)
        for old in [each for each in live.answers if each <= received]:
            del live.answers[old]
        if number in live.answers:
            return live.answers[number][0] if one else live.answers[number]
        if number != live.next:
            raise Refused(409, f"step {number} of stream '{stream}' is out of order: step {live.next} is next")
        answer: asyncio.Future[NDArray] = asyncio.get_running_loop().create_future()
        self._jobs.append(_Job(stream, live, rows, answer, time.monotonic()))
        self._wake.set()
        self._running = self._running or asyncio.ensure_future(self._run())
        outputs = await answer
        return outputs[0] if one else outputs

    def _rows(self, given: Any) -> tuple[NDArray, bool]:
        """Returns int32 tokens ``[T]`` or float32 features ``[T, I]``, and whether one row was given, not a chunk."""
        try:
            array = np.asarray(given)
        except ValueError:  # lists of different lengths
            array = np.asarray(None)
        row: tuple[int, ...] = () if self._vocabulary else (self._inputs,)
        one = array.shape == row
        rows = array[np.newaxis] if one else array
        right = rows.shape[1:] == row and rows.ndim == 1 + len(row) and 1 <= len(rows) <= LONGEST_CHUNK
        if not right or array.dtype.kind not in ("iu" if self._vocabulary else "iuf"):
            what = f"a list of {self._inputs} numbers, the normalised features"
            what = f"a token, a whole number below {self._vocabulary}" if self._vocabulary else what
            raise Refused(422, f"a step must be {what}, or a list of 1 to {LONGEST_CHUNK} of them")
        if self._vocabulary and not 0 <= rows.min() <= rows.max() < self._vocabulary:
            raise Refused(422, f"tokens must be below {self._vocabulary}, not {rows.min()} to {rows.max()}")
        with np.errstate(over="ignore"):  # the pool refuses infinity
            return rows.astype(np.int32 if self._vocabulary else np.float32), one

    async def _enter(self, stream: str, number: int) -> _Live:
        """Returns a stream that can take or repeat a step of this number, from the pool or from its saved state."""
        live = self._live.get(stream)
        if live and (number == live.next or number in live.answers):
            self._live.move_to_end(stream)
            return live
        self._forget(stream)  # it may have moved on elsewhere
        record = await self._states.claim(self._prefix + stream, create=number == 0)
        if record is None and number == 0:
            raise Refused(503, f"stream '{stream}' cannot begin: all places of the store are taken; try again later")
        if record is None:
            why = "it was closed or forgotten, or another model served it; begin again with step 0"
            raise Refused(410, f"stream '{stream}' is not known: {why}")
        live = _Live(record.claim, record.next, {})
        live.answers = {n: np.frombuffer(o, np.float32).reshape(-1, self._outputs) for n, o in record.answers.items()}
        self._make_room()
        self._live[stream] = live
        try:
            live.session = await self._on_thread(self._open, record.state)
        except penstock.Error as error:
            self._forget(stream)
            raise Refused(409, f"stream '{stream}' cannot continue: {error}") from error
        return live

    def _make_room(self) -> None:
        if len(self._live) >= self._pool.capacity:
            idle = next((stream for stream in self._live if stream not in self._tasks), None)
            if idle is None:
                raise Refused(503, f"all {self._pool.capacity} sessions of this replica are busy: try again later")
            self._forget(idle)

    def _forget(self, stream: str) -> None:
        """Gives up the session of a stream. Its saved state stays."""
        live = self._live.pop(stream, None)
        if live and live.session:
            self._thread.submit(self._pool.close, live.session)  # before any open() that follows

    def _open(self, state: bytes) -> int:
        session = self._pool.open()
        if state:
            try:
                self._pool.restore(session, np.frombuffer(state, np.float32))
            except penstock.Error:
                self._pool.close(session)
                raise
        return session

    async def _on_thread(self, function: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    async def _run(self) -> None:
        """Runs batches: all steps that arrived during a batch are the next one."""
        while True:
            self._batch, self._jobs = self._jobs, []
            if not self._batch:
                await self._wake.wait()
                self._wake.clear()
                continue
            try:
                taken = await self._on_thread(self._take, self._batch)
            except Exception as error:
                for job in self._batch:
                    self._fail(job, Refused(503, f"the batch failed ({error}): send step {job.live.next} again"))
                continue
            task = asyncio.ensure_future(self._save(self._batch, *taken))
            self._saving.add(task)
            task.add_done_callback(self._saving.discard)

    def _take(self, jobs: list[_Job]) -> tuple[list[NDArray], dict[int, str], list[bytes]]:
        """Returns outputs ``[T, O]`` of each job, failures by position, and new states. Runs on the pool's thread."""
        outputs = [np.empty((len(job.rows), self._outputs), np.float32) for job in jobs]
        failures: dict[int, str] = {}
        for t in range(max(len(job.rows) for job in jobs)):
            taking = [i for i, job in enumerate(jobs) if t < len(job.rows) and i not in failures]
            if not taking:
                break
            rows = np.stack([jobs[i].rows[t] for i in taking])
            answers, failed = self._pool.push([jobs[i].live.session for i in taking], rows)
            for position, i in enumerate(taking):
                outputs[i][t] = answers[position]
                if position in failed:
                    failures[i] = f"row {t}: {failed[position]}" if len(jobs[i].rows) > 1 else str(failed[position])
        states = [b"" if i in failures else self._pool.state(job.live.session).tobytes() for i, job in enumerate(jobs)]
        return outputs, failures, states

    async def _save(
        self, jobs: list[_Job], outputs: list[NDArray], failures: dict[int, str], states: list[bytes]
    ) -> None:
        """Saves the states of a batch, then answers it."""
        saved = [i for i in range(len(jobs)) if i not in failures]
        for i in saved:
            jobs[i].live.answers[jobs[i].live.next] = outputs[i]
        records = {self._prefix + jobs[i].stream: self._record(jobs[i].live, states[i]) for i in saved}
        try:
            refused = set(await self._states.save(records)) if records else set()
            reason = "it moved to another replica, or was closed"
        except Exception as error:
            refused, reason = set(records), f"its state was not saved ({error})"
        for i, job in enumerate(jobs):
            if i in failures:
                self._fail(job, Refused(422, f"step {job.live.next} of stream '{job.stream}': {failures[i]}"))
            elif self._prefix + job.stream in refused:
                self._fail(job, Refused(503, f"stream '{job.stream}': {reason}; send step {job.live.next} again"))
            else:
                job.live.next += 1
                job.answer.set_result(outputs[i])
        self._watch(len(jobs), len(failures) + len(refused), time.monotonic() - jobs[0].since)

    def _fail(self, job: _Job, error: Refused) -> None:
        """Fails a step. The stream continues from its saved state, which is that before the step."""
        self._forget(job.stream)
        job.answer.set_exception(error)

    @staticmethod
    def _record(live: _Live, state: bytes) -> Record:
        return Record(live.claim, live.next + 1, state, {n: outputs.tobytes() for n, outputs in live.answers.items()})
