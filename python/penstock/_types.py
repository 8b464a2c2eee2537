"""Names for the types of arguments, for type checkers alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Union

from numpy.typing import ArrayLike

Mode = Literal["auto", "sequential", "scan"]
Layout = Literal["batch_first", "time_first"]
State = Union[ArrayLike, Sequence[ArrayLike]]
#: Anything that can be written to: an array of NumPy, or of another library that speaks its protocols.
Buffer = Any
