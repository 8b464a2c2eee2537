"""Loads the library of ops, which registers them with the PyTorch that is imported."""

import ctypes
import os
import pathlib

import torch


def _version(text):
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


if _version(torch.__version__) < (2, 10):
    raise ImportError(
        f"penstock.torch needs PyTorch 2.10 or later, not {torch.__version__}: pip install 'torch>=2.10'"
    )


def _path():
    named = os.environ.get("PENSTOCK_TORCH_LIBRARY")
    return pathlib.Path(named) if named else pathlib.Path(__file__).parent.parent / "libpenstock_torch.so"


#: Where the library of ops lies; C++ programs that run an exported model load it with dlopen().
library_path = _path()


def _load():
    if not library_path.exists():
        raise ImportError(f"penstock was installed without its library of ops for PyTorch: {library_path} is missing")
    library = ctypes.CDLL(str(library_path))
    library.penstock_torch_failure.restype = ctypes.c_char_p
    failure = library.penstock_torch_failure()
    if failure is not None:
        raise ImportError(failure.decode())
    return library


_loaded = _load()
