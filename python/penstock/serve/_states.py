"""States of streams between steps. A replica that gets a stream of another one continues from here."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol


class Record(NamedTuple):
    """A stream after a step."""

    claim: int  #: Number of the latest claim. Only its holder may save the stream.
    next: int  #: Number of the next step.
    state: bytes  #: State after step ``next - 1``, float32. Empty: the start of a sequence.
    answers: Mapping[int, bytes]  #: Outputs ``[T, O]``, float32, of steps that the client has not acknowledged.


class States(Protocol):
    """Where streams are kept: a :class:`StateStore`, here or in another process."""

    async def claim(self, stream: str, create: bool) -> Record | None: ...
    async def save(self, records: Mapping[str, Record]) -> list[str]: ...
    async def close(self, stream: str) -> bool: ...


class StateStore:
    """Keeps the records of streams in memory.

    A stream has one owner, the last one to claim it. An earlier owner cannot save it any more. So two replicas may both
    compute a step of a stream, but only one of them can answer it.

    A store that starts again is empty. It accepts the records of streams that were claimed before it started, so owners
    that are alive fill it again.

    Args:
        capacity: Number of streams that it keeps.
        keep_s: Seconds after which it forgets a stream that takes no step.
        clock: Returns seconds.
    """

    def __init__(self, capacity: int, keep_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._capacity, self._keep_s, self._clock = capacity, keep_s, clock
        self._records: OrderedDict[str, tuple[float, Record]] = OrderedDict()  # the latest one last
        self._began = self._claims = time.time_ns()  # claims of a later store are greater

    async def claim(self, stream: str, create: bool) -> Record | None:
        """Makes the caller the owner of a stream, and returns its record with the new claim.

        Args:
            stream: The name of the stream.
            create: True: begins the stream if it is not kept.

        Returns:
            None if the stream is not kept: with ``create``, because the store is full.
        """
        self._forget_idle()
        self._claims += 1
        _, record = self._records.get(stream, (0.0, None))
        if record is None and (not create or len(self._records) >= self._capacity):
            return None
        record = record._replace(claim=self._claims) if record else Record(self._claims, 0, b"", {})
        self._keep(stream, record)
        return record

    async def save(self, records: Mapping[str, Record]) -> list[str]:
        """Keeps records, and returns the streams that were not kept because they were claimed again or closed."""
        refused = []
        for stream, record in records.items():
            _, kept = self._records.get(stream, (0.0, None))
            if kept.claim == record.claim if kept else record.claim < self._began:
                self._keep(stream, record)
            else:
                refused.append(stream)
        return refused

    async def close(self, stream: str) -> bool:
        """Forgets a stream. Returns False if it was not kept."""
        return self._records.pop(stream, None) is not None

    def _keep(self, stream: str, record: Record) -> None:
        self._records[stream] = self._clock(), record
        self._records.move_to_end(stream)

    def _forget_idle(self) -> None:
        while self._records and next(iter(self._records.values()))[0] < self._clock() - self._keep_s:
            self._records.popitem(last=False)
