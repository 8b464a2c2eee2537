"""Limits on the memory and time of reading a file, and on the errors that it may raise."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from ..errors import BadInput, Error, IoFailure

_ALWAYS = 16 << 20  # bytes in memory that any file may take
_RATIO = 100  # further bytes in memory per byte of a file; weights compress to a half, zeros to a thousandth
_MOST_STEPS = 10_000_000  # largest number of visited nodes and links; the largest networks have thousands


class Limits:
    """Counts the memory and steps of reading one file. Raises BadInput if they are out of proportion to the file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        try:
            size = os.stat(path).st_size
        except OSError as error:
            raise IoFailure(f"{self.path}: cannot read: {error.strerror}") from error
        self._size = size
        self._bytes = self._steps = 0

    def take(self, count: int, what: str) -> None:
        """Counts bytes of memory before they are allocated."""
        self._bytes += count
        most = _ALWAYS + _RATIO * self._size
        if self._bytes > most:
            raise BadInput(
                f"{self.path}: {what} needs {self._bytes} bytes, and at most {most} are read from files of {self._size}"
            )

    def step(self, count: int = 1) -> None:
        """Counts visited nodes and links, which limits the time."""
        self._steps += count
        if self._steps > _MOST_STEPS:
            raise BadInput(f"{self.path}: its structure takes more than {_MOST_STEPS} steps to follow")


@contextlib.contextmanager
def reading(path: str | os.PathLike[str], kind: str) -> Iterator[None]:
    """Converts exceptions of parsers to BadInput: the file is not a valid `kind`."""
    try:
        yield
    except Error:
        raise
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise IoFailure(f"{os.fspath(path)}: cannot read: {error.strerror or error}") from error
    except MemoryError as error:
        raise BadInput(f"{os.fspath(path)}: there is too little memory for what it says that it holds") from error
    except Exception as error:  # parsers of other packages raise their own exceptions
        why = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise BadInput(f"{os.fspath(path)}: no sound {kind}: {why}") from error
