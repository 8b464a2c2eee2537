"""Loads the library of the package, with threads that spin for less than a tenth of a millisecond before they sleep.

libgomp reads how long they spin when it is loaded, and never again. What it does by itself, some milliseconds, makes steps of small
models wait for threads that do not run wherever a machine has other work; beyond this they gain nothing. What the
environment says counts, and so does a libgomp that is there already.
"""

import os

_NAME = "GOMP_SPINCOUNT"


def _load():
    if _NAME in os.environ or "OMP_WAIT_POLICY" in os.environ:
        from . import _core
        return _core
    os.environ[_NAME] = "50000"
    try:
        from . import _core
        return _core
    finally:
        del os.environ[_NAME]  # not for programs that this one starts


_load()
