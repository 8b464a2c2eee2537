"""The exceptions that Penstock raises: all of them an :class:`Error`, and each also what Python calls such a failure."""


class Error(Exception):
    """Why an operation was refused or failed, in one line."""


class InvalidArgument(Error, ValueError):
    """The caller asked for something impossible; the message names the argument, what it was and what is allowed."""


class BadInput(Error, ValueError):
    """A file or a stream holds something that cannot be read; the message says where."""


class Incompatible(Error, ValueError):
    """A file is sound, but belongs to another architecture or version."""


class IoFailure(Error, OSError):
    """The operating system refused to read or write."""


class NumericalError(Error, ArithmeticError):
    """NaN or infinity where it cannot be skipped any longer."""


class Unsupported(Error, NotImplementedError):
    """Valid, but not available in this build or on this machine; the message says what is missing."""


class Interrupted(Error, RuntimeError):
    """The user asked to stop; whatever had to be saved is saved."""


class OutOfMemory(Error, MemoryError):
    """The device has too little free memory; the message says how much was asked for."""


class DeviceFailure(Error, RuntimeError):
    """The device or its driver reported a fault; results since the last synchronisation are lost."""
