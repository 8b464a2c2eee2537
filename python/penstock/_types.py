"""Types of arguments, for type checkers only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Union

from numpy.typing import ArrayLike

Mode = Literal["auto", "sequential", "scan"]
Candidate = Literal["linear", "positive"]
Layout = Literal["batch_first", "time_first"]
State = Union[ArrayLike, Sequence[ArrayLike]]
#: A writable array of NumPy, or of another library with the buffer protocol, ``__array_interface__`` or DLPack.
Buffer = Any
