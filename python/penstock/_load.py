"""Loads the library of the package and limits the spinning of idle threads to less than 0.1 ms.

libgomp reads GOMP_SPINCOUNT once, when it is loaded. By default its threads spin for some milliseconds before they
sleep. On a machine with other work, steps of small models then wait for threads that do not run. Longer spinning gains
nothing. Settings of the user in the environment are kept. If libgomp is loaded already, this has no effect.
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
        del os.environ[_NAME]  # child processes must not inherit it


_load()
