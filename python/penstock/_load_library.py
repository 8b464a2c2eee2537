"""Loads the library of the package and limits the spinning of idle threads to 40 us.

libgomp reads GOMP_SPINCOUNT once, when it is loaded. By default its threads spin for some milliseconds before they
sleep. On a machine with other work, steps of small models then wait for threads that do not run. Longer spinning gains
nothing. Settings of the user in the environment are kept. If libgomp is loaded already, this has no effect.
"""

import os

from . import _spin

_given = os.environ.keys() & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}
_ours = {} if _given else {"GOMP_SPINCOUNT": str(_spin.turns())}
os.environ.update(_ours)
try:
    from . import _core
finally:
    for _name in _ours:
        del os.environ[_name]  # child processes must not inherit it
