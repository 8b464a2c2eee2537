"""SIGTERM and Ctrl-C end a run after the step, when everything is saved."""

from __future__ import annotations

import signal
import threading

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any


class Stop:
    """A context that notes SIGTERM and SIGINT. A second signal of a kind has its usual effect.

    Attributes:
        signal: The signal that came; 0: none.
    """

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[int, Any] = {}

    @property
    def asked(self) -> bool:
        return self.signal != 0

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *raised: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        signal.signal(number, self._before[number] or signal.SIG_DFL)
