"""Objects that pickle and copy cannot take: their TypeError says what to do instead."""

from __future__ import annotations

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn


def refuse_pickle(remedy: str) -> Callable[[Any, Any], NoReturn]:
    """Returns a ``__reduce_ex__`` that raises TypeError with the remedy."""

    def reduce(self: Any, protocol: Any) -> NoReturn:
        raise TypeError(f"cannot pickle or copy a {type(self).__name__}: {remedy}")

    return reduce
