"""A thread in each rank that shows that it lives, and names the ranks that no longer do."""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
import threading
import time

from torch import distributed
from torch.distributed import distributed_c10d

from .group import Group, RankFailure, is_of_a_peer, rank_name, wait_until

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from types import TracebackType

_FOLDER = "penstock/alive/"
_runs = 0  # of this process: each has keys of its own


class Watch:
    """A context in which a rank that ends, hangs or fails is named by all others within about ``seconds``.

    Every rank counts in the store of the process group, and reads the counts of the others. One that stands still for
    ``seconds`` is gone. A rank whose collective operation then waits for ever ends itself.
    """

    def __init__(self, group: Group, seconds: float) -> None:
        global _runs
        _runs += 1
        self._group, self._seconds = group, seconds
        self._folder = f"{_FOLDER}{_runs}/"
        self._ended = threading.Event()
        self._end: str | None = None  # why this rank has ended; empty: without a failure that others do not know
        self._thread: threading.Thread | None = None
        self._seen = {rank: ("", time.monotonic()) for rank in range(group.size) if rank != group.rank}
        self._names: dict[int, str] = {}
        self._lock = threading.Lock()  # of what was seen

    def __enter__(self) -> Watch:
        if self._group.size > 1:
            self._store = distributed.PrefixStore(self._folder, distributed_c10d._get_default_store().clone())
            self._store.set_timeout(datetime.timedelta(seconds=self._seconds))
            self._tell(0)
            self._group.gather(None)  # all have told once
            self._thread = threading.Thread(target=self._run, name="penstock-watch", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._thread is None:
            return
        named = None
        if isinstance(error, RankFailure):
            self._tell_end("")  # known to all
        elif error is not None and is_of_a_peer(error):
            named = wait_until(self._gone, self._seconds + 5.0)
        elif error is not None:
            self._tell_end(f"{type(error).__name__}: {error}")
            if self._group.rank == 0:  # whose process may hold the store: until the others have read it
                wait_until(self._others_ended, self._seconds + 5.0)
        else:
            self._tell_end("")
        self._ended.set()
        self._thread.join(5.0)
        if named:
            raise RankFailure(f"{self._group}: {named}") from error

    def _tell(self, count):
        fields = {"count": count, "host": platform.node(), "process": os.getpid(), "end": self._end}
        self._store.set(str(self._group.rank), json.dumps(fields))

    def _tell_end(self, text):
        self._end = text  # which the thread tells from now on, too
        try:
            self._tell(-1)
        except distributed.DistError:
            pass  # the rank with the store is gone, which the others see by themselves

    def _others_ended(self):
        self._look()
        with self._lock:
            return all(text and json.loads(text)["end"] is not None for text, _ in self._seen.values())

    def _look(self):
        """Reads what the others told."""
        ranks = list(self._seen)
        try:
            texts = self._store.multi_get([str(rank) for rank in ranks])
        except RuntimeError:
            return  # the store does not answer: nobody's count moves
        now = time.monotonic()
        with self._lock:
            for rank, text in zip(ranks, texts):
                if text != self._seen[rank][0]:
                    self._seen[rank] = (text, now)

    def _gone(self):
        """Returns a sentence about a rank that failed or stands still, or ""."""
        self._look()
        with self._lock:
            seen = dict(self._seen)
        for rank, (text, when) in seen.items():
            fields = json.loads(text) if text else {}
            name = rank_name(rank, self._group.size, fields.get("host", ""), fields.get("process", 0))
            end = fields.get("end")
            if end:
                return f"{name} has failed: {end}"
            if end is None and time.monotonic() - when > self._seconds:
                return (
                    f"{name} has not answered for {self._seconds:g} s: it or its host has ended or hangs; start all "
                    "ranks again with resume, from the last checkpoint"
                )
        return ""

    def _run(self):
        count = 0
        while not self._ended.wait(min(1.0, self._seconds / 5)):
            count += 1
            try:
                self._tell(count)
            except RuntimeError:
                pass  # as in _look
            gone = self._gone()
            if gone:
                self._tell_end("")  # which rank 0 waits for
            if gone and not self._ended.wait(5.0):  # the collective operation may still raise, and say it better
                print(f"{self._group}: {gone}", file=sys.stderr, flush=True)
                os._exit(1)
