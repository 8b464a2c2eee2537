"""The NVIDIA GPUs of this machine, and arrays in their memory."""

from __future__ import annotations

import functools

from . import _core
from ._core import Array
from ._keywords import explain_keywords

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Array", "device_count", "device_name", "info", "is_available", "why_not"]


@functools.lru_cache(maxsize=1)
def _found():
    return _core.cuda_info()


def info() -> dict[str, Any]:
    """Returns a dictionary about the driver, NVRTC, cuBLASLt, the folder of compiled kernels, and the GPUs.

    The first call that needs them opens the CUDA libraries; ``import penstock`` does not.
    """
    return dict(_found())


def is_available() -> bool:
    """Returns True if computations can run on a GPU.

    >>> import penstock
    >>> penstock.cuda.is_available() == (penstock.cuda.why_not() == "")
    True
    """
    return not _found()["missing"]


def why_not() -> str:
    """Returns why no GPU can be used, and what to do about it; an empty str if one can."""
    return _found()["missing"]


def device_count() -> int:
    """Returns the number of GPUs: ``"cuda:0"``, ``"cuda:1"``, ..."""
    return len(_found()["gpus"])


def device_name(index: int = 0) -> str:
    """Returns the name of a GPU, as the driver reports it.

    Args:
        index: Number of the GPU, from 0.

    Raises:
        IndexError: There is no GPU with this number.
    """
    gpus = _found()["gpus"]
    if not 0 <= index < len(gpus):
        raise IndexError(f"index must be below the number of GPUs, {len(gpus)}, not {index}")
    return gpus[index]["name"]


explain_keywords(globals())
