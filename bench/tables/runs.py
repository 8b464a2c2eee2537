"""Runs of a table, several side by side, within a time and with every failure told."""

import asyncio
import concurrent.futures
import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from typing import NamedTuple


class Missing(NamedTuple):
    """Why there is no result: the run failed, or was left out because time was over."""

    reason: str
    failed: bool


class Failed(Exception):
    pass


class LeftOut(Exception):
    pass


def text_file():
    """A file for what a program prints, which may be any bytes."""
    return tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")


def end(process):
    """Kills a program. Popen.kill() would take its status away from the thread that waits for it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)


class Runs:
    """Starts at most `jobs` programs at a time, and none that would not end within `seconds` (None: any time).

    One thread alone, that of the event loop, reads and writes the record.
    """

    def __init__(self, record, jobs=1, seconds=None):
        self.record, self.jobs = record, jobs
        self.slots = asyncio.Semaphore(jobs)
        self.end = None if seconds is None else time.monotonic() + seconds
        self.stopped = False
        self.live = set()
        self.longest = {}  # seconds, by what runs have in common
        self.threads = concurrent.futures.ThreadPoolExecutor(jobs)  # each waits for a program

    def stop(self):
        """Ends all programs and starts no other."""
        self.stopped = True
        for process in self.live:
            end(process)

    def _remaining(self):
        return float("inf") if self.end is None else self.end - time.monotonic()

    def _check_time(self, alike):
        """Raises LeftOut unless a run that takes as long as those alike ends in time."""
        expected = self.longest.get(alike, 0.0)
        if self.stopped:
            raise LeftOut("interrupted")
        if self._remaining() <= expected:
            raise LeftOut(f"no time: such a run takes {expected:.0f} s" if expected else "no time")

    async def result(self, key, alike, run):
        """The result of a key: the one that is kept, or that of `await run()`; Missing if there is none.

        Waits for one of the slots. Runs alike, such as those of a network and a task, are expected to take equal time.
        """
        if (kept := self.record.get(key)) is not None:
            self._note(alike, kept)
            return kept
        async with self.slots:
            began = time.monotonic()
            try:
                self._check_time(alike)
                result = await run()
            except LeftOut as reason:
                before = self.record.failure(key)
                return Missing(before or str(reason), failed=before is not None)
            except KeyError as error:
                return self._failed(key, f"the program's answer has no {error}")
            except (Failed, OSError, ValueError) as error:
                return self._failed(key, str(error))
            result = {**result, "wall": round(time.monotonic() - began, 2), "jobs": self.jobs}
        self.record.keep(key, result=result)
        self._note(alike, result)
        return result

    def _failed(self, key, reason):
        self.record.keep(key, failed=reason)
        return Missing(reason, failed=True)

    def _note(self, alike, result):
        self.longest[alike] = max(self.longest.get(alike, 0.0), result["wall"])

    async def json(self, command):
        """What a program prints as JSON, with its peak of memory as "rss_mb"."""
        printed, _, usage = await self.output(command)
        return {**json.loads(printed), "rss_mb": usage.ru_maxrss // 1024}

    async def output(self, command):
        """What a program prints, its errors, and what it used. Failed: the last line of its errors."""
        command = [str(part) for part in command]
        with text_file() as output, text_file() as errors:
            # A session of its own: an interrupt at the terminal reaches this program alone, which ends the others.
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                                       start_new_session=True)
            status, usage = await self._end_of(process)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode < 0 and (self.stopped or self._remaining() <= 0):
                raise LeftOut("interrupted" if self.stopped else "cut off when the time was over")
            output.seek(0)
            errors.seek(0)
            printed, said = output.read(), errors.read()
            if process.returncode != 0:
                lines = said.strip().splitlines() or ["no message"]
                raise Failed(f"{os.path.basename(command[0])} ended with status {process.returncode}: {lines[-1]}")
            return printed, said, usage

    async def _end_of(self, process):
        """The status and the usage of a program, which is killed when the time is over."""
        loop = asyncio.get_running_loop()
        cut_off = None if self.end is None else loop.call_later(max(0.0, self._remaining()), end, process)
        self.live.add(process)
        try:
            _, status, usage = await loop.run_in_executor(self.threads, os.wait4, process.pid, 0)
            return status, usage
        finally:
            self.live.discard(process)
            if cut_off:
                cut_off.cancel()
