"""Names of the cells minGRU and minLSTM in files, which depend on their candidate."""

from __future__ import annotations

from .errors import InvalidArgument

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from ._types import Candidate


def minimal_cell(name: str, candidate: Candidate) -> str:
    """Returns a minimal cell's name in files, such as ``mingru``; with a positive candidate, ``mingru-log``.

    Raises:
        InvalidArgument: ``candidate`` is neither ``"linear"`` nor ``"positive"``.
    """
    if candidate not in ("linear", "positive"):
        raise InvalidArgument(f"candidate must be 'linear' or 'positive', not {candidate!r}")
    return name if candidate == "linear" else f"{name}-log"
