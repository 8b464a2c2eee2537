"""Execution options of calls, cached by their arguments: creating them takes longer than a short call."""

from . import _core
from .errors import InvalidArgument

_KNOWN: dict[tuple, _core.Execution] = {}


def execution(mode, device, threads, exact, precision):
    """Returns the library's object for these arguments."""
    key = (mode, device, threads, exact, precision)
    known = _KNOWN.get(key)
    if known is None:
        if len(_KNOWN) > 1000:
            _KNOWN.clear()
        known = _KNOWN[key] = _core.Execution(*key)
    return known


def is_time_first(layout):
    """Returns True if ``layout`` means [T, B, C]. Raises InvalidArgument for an unknown layout."""
    if layout == "batch_first":
        return False
    if layout == "time_first":
        return True
    raise InvalidArgument(f"layout must be 'batch_first' or 'time_first', not {layout!r}")
