"""What there is of NVIDIA GPUs on this machine."""

from __future__ import annotations

import functools

from . import _core
from ._keywords import explain_keywords

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without the import
if TYPE_CHECKING:
    from typing import Any

__all__ = ["device_count", "device_name", "info", "is_available", "why_not"]


@functools.lru_cache(maxsize=1)
def _found():
    return _core.cuda_info()


def info() -> dict[str, Any]:
    """Driver, compiler of kernels (NVRTC), products (cuBLASLt), folder of compiled kernels, and GPUs, as a dictionary.

    CUDA's libraries are opened by the first call that asks, never by ``import penstock``.
    """
    return dict(_found())


def is_available() -> bool:
    """Whether computations can run on a GPU.

    >>> import penstock
    >>> penstock.cuda.is_available() == (penstock.cuda.why_not() == "")
    True
    """
    return not _found()["missing"]


def why_not() -> str:
    """What is missing for a GPU to be used, and what to do about it; empty if nothing is."""
    return _found()["missing"]


def device_count() -> int:
    """How many GPUs there are: ``"cuda:0"`` and so on."""
    return len(_found()["gpus"])


def device_name(index: int = 0) -> str:
    """The name of a GPU, as its driver gives it.

    Raises:
        IndexError: There is no GPU of that number.
    """
    gpus = _found()["gpus"]
    if not 0 <= index < len(gpus):
        raise IndexError(f"index must be below the number of GPUs, {len(gpus)}, not {index}")
    return gpus[index]["name"]


explain_keywords(globals())
