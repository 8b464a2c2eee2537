"""Penstock's recurrent layers for JAX, on CPUs and NVIDIA GPUs: functions that ``jit``, ``grad``, ``jvp`` and ``vmap`` transform.

>>> import jax
>>> from penstock.jax import initial_weights, lstm
>>> weights = initial_weights(jax.random.key(0), "lstm", 8, 16)
>>> y, (h, c) = lstm(jax.numpy.zeros((4, 100, 8)), weights)
>>> y.shape
(4, 100, 16)

``penstock.jax.nnx`` has modules for Flax NNX, ``penstock.jax.equinox`` for Equinox.
"""

from . import _library  # first: it checks the version of JAX  # noqa: F401
from .._keywords import explain_keywords
from ._layers import elman, episode_starts, gru, initial_weights, lstm, min_gru, min_lstm, recurrent, slstm
from ._scans import log_scan, scan

__all__ = [
    "elman",
    "episode_starts",
    "gru",
    "initial_weights",
    "log_scan",
    "lstm",
    "min_gru",
    "min_lstm",
    "recurrent",
    "scan",
    "slstm",
]

explain_keywords(globals())


def __getattr__(name):
    import importlib

    if name in ("equinox", "nnx"):
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module 'penstock.jax' has no attribute '{name}'")
