"""What a file may cost whoever reads it, and which errors a file may raise."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from ..errors import BadInput, Error, IoFailure

_ALWAYS = 16 << 20  # bytes that any file may become
_RATIO = 100  # bytes that a byte of a file may become; weights compress to a half, and those of zeros to a thousandth
_MOST_STEPS = 10_000_000  # nodes and links that are looked at; the largest networks have thousands


class Limits:
    """Counts what reading one file takes. Raises BadInput where that is out of proportion to the file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        try:
            size = os.stat(path).st_size
        except OSError as error:
            raise IoFailure(f"{self.path}: cannot read: {error.strerror}") from error
        self._files = {self.path: size}
        self._bytes = self._steps = 0

    def add_file(self, path: str, size: int) -> None:
        """Counts a file that belongs to this one; each file counts once."""
        self._files[path] = size

    def take(self, count: int, what: str) -> None:
        """Counts bytes of memory before they are allocated."""
        self._bytes += count
        stored = sum(self._files.values())
        most = _ALWAYS + _RATIO * stored
        if self._bytes > most:
            raise BadInput(
                f"{self.path}: {what} needs {self._bytes} bytes, and at most {most} are read from files of {stored}"
            )

    def step(self, count: int = 1) -> None:
        """Counts what is looked at, so that no file is walked for long."""
        self._steps += count
        if self._steps > _MOST_STEPS:
            raise BadInput(f"{self.path}: its structure takes more than {_MOST_STEPS} steps to follow")


@contextlib.contextmanager
def reading(path: str | os.PathLike[str], kind: str) -> Iterator[None]:
    """Makes BadInput of whatever a parser raises for a file that is no sound `kind`."""
    try:
        yield
    except Error:
        raise
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise IoFailure(f"{os.fspath(path)}: cannot read: {error.strerror or error}") from error
    except MemoryError as error:
        raise BadInput(f"{os.fspath(path)}: there is too little memory for what it says that it holds") from error
    except Exception as error:  # parsers of other packages have exceptions of their own
        why = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise BadInput(f"{os.fspath(path)}: no sound {kind}: {why}") from error
