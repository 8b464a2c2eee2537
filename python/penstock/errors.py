"""The exceptions of Penstock. All are an :class:`Error`; each is also the matching built-in exception of Python."""

from __future__ import annotations


class Error(Exception):
    """Base of all exceptions of Penstock. The message is one line, with control characters of names in files escaped.

    The attributes say what the error is about.
    """

    argument: str | None = None  #: Name of the impossible argument; None if the error is about something else.
    value: str | None = None  #: The argument's value as the message shows it.
    allowed: str | None = None  #: The allowed values, such as "greater than 0".
    remedy: str | None = None  #: What to do, if the library knows.

    def __str__(self) -> str:
        text = super().__str__()
        if text.isprintable():
            return text
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class InvalidArgument(Error, ValueError):
    """An argument is impossible. The message names the argument, its value and the allowed values."""


class BadInput(Error, ValueError):
    """A file or a stream has content that cannot be read. The message says where."""


class Incompatible(Error, ValueError):
    """A file or a dataset is valid, but belongs to another architecture, model or version."""


class IoFailure(Error, OSError):
    """The operating system refused to read or write."""


class NumericalError(Error, ArithmeticError):
    """Too many steps in a row produced NaN or infinity."""


class Unsupported(Error, NotImplementedError):
    """The request is valid, but not available in this build or on this machine. The message says what is missing."""


class Interrupted(Error, RuntimeError):
    """The user stopped the operation. Everything that had to be saved is saved."""


class OutOfMemory(Error, MemoryError):
    """The device has too little free memory. The message says how much was requested."""


class DeviceFailure(Error, RuntimeError):
    """The device or its driver reported a fault. Results since the last synchronisation are lost."""
