"""Reads the state_dict in a PyTorch checkpoint, at any depth, without running code of the file."""

from __future__ import annotations

import math
import re
import zipfile

from .._safetensors import other_kind
from ..errors import BadInput, IoFailure, Unsupported
from ._limits import Limits, reading
from .torch_nn import noted_cells

_DEEPEST = 8  # largest depth of nested dictionaries; a dictionary in a file may contain itself
_MEND = "save one by torch.save(model.state_dict(), path)"


class _Unread:
    """Stands for an object of a class that is not PyTorch's own. None of its code runs; its state is dropped."""

    seen = ""

    def __new__(cls, *args, **kwargs):
        return object.__new__(cls)

    def __init__(self, *args, **kwargs):
        pass

    def __setstate__(self, state):
        pass


def read(path):
    """Returns ({name: array}, {layer: cell}) of the state_dict in a ``.pt``, ``.pth``, ``.bin`` or ``.ckpt`` file.

    If a checkpoint has several state_dicts, such as "model" and "ema", their places become prefixes ("model.encoder.").
    """
    try:
        import torch
    except ImportError as error:
        raise Unsupported(f"{path}: files of PyTorch need the package torch: pip install torch") from error
    limits = Limits(path)
    with reading(path, "file of PyTorch"):
        return _arrays_and_cells(torch, path, limits)


def _arrays_and_cells(torch, path, limits):
    _check_zip(path, limits)
    content = _content(torch, path)
    found = _outermost(torch, _state_dicts(torch, content, (), [], set()))
    if not found:
        raise BadInput(f"{path}: no state_dict that can be read without running it: it holds {_seen(content)}; {_MEND}")
    arrays, cells = {}, {}
    for place, state in found:
        start = "".join(f"{part}." for part in place) if len(found) > 1 else ""
        for name, value in state.items():
            if isinstance(value, torch.Tensor):
                arrays[start + name] = _array(torch, value, f"{path}: tensor '{start + name}'", limits)
        for name, cell in noted_cells(state).items():
            cells[(start + name).removesuffix(".")] = cell
    return arrays, cells


def _content(torch, path):
    """Returns the object of torch.save. Objects of classes that are not PyTorch's become :class:`_Unread`."""
    try:
        with open(path, "rb") as file:  # torch.load would interpret the ending of a file name
            return torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise IoFailure(f"{path}: cannot read: {error.strerror or error}") from error
    except Exception as error:  # the loader raises many kinds of exceptions
        refused = error
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
        stand_ins = [(type("_Unread", (_Unread,), {"seen": name}), name) for name in names]
        with torch.serialization.safe_globals(stand_ins), open(path, "rb") as file:
            return torch.load(file, map_location="cpu", weights_only=True)
    except Exception:
        why = _kind_of_zip(path) or _unreadable(path, str(refused))
        raise BadInput(f"{path}: no state_dict that can be read without running it: {why}") from refused


def _unreadable(path, said):
    """Returns a text that says why PyTorch's loader of weights refuses a file."""
    named = re.search(r"GLOBAL ([\w.]+)", said)
    if named:
        return f"it holds an object of the class {named[1]}; {_MEND}"
    with open(path, "rb") as file:
        kind = other_kind(file.read(64))
    return kind or "torch.save did not write it, or it is damaged"


def names_in_zip(path):
    """Returns the names in a zip archive; an empty list for other files."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except Exception:  # not an archive, or a damaged one
        return []


def _check_zip(path, limits):
    """Refuses an archive if its unpacked records are far larger than the archive."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        for record in archive.infolist():
            limits.step()
            limits.take(record.file_size, f"'{record.filename}'")


def _kind_of_zip(path):
    """Returns a description of a zip archive that PyTorch's loader refuses; None for other files."""
    names = names_in_zip(path)
    if not names:
        return None
    if any(name.endswith("/constants.pkl") for name in names):
        return "it is a program of TorchScript: open it by torch.jit.load, and " + _MEND
    if any(name.endswith(".npy") for name in names):
        return "it is an archive of NumPy: read it by numpy.load, and give its arrays to from_torch"
    if any(name.endswith("data.pkl") for name in names):
        return None
    return f"it is a zip archive of {some(names)}, and torch.save writes data.pkl"


def some(names, shown=5):
    """Returns the first names of a list, and how many there are besides."""
    return ", ".join(names[:shown]) + (f", and {len(names) - shown} more" if len(names) > shown else "")


def _state_dicts(torch, value, place, found, visited):
    """Returns [(place, mapping)] of mappings with a float tensor under a name, except states of optimisers."""
    if id(value) in visited or len(place) > _DEEPEST:
        return found
    visited.add(id(value))
    if isinstance(value, (list, tuple)):
        members = {str(i): each for i, each in enumerate(value)}
    elif isinstance(value, dict) and "param_groups" not in value and all(isinstance(name, str) for name in value):
        members = value
        tensors = [each for each in value.values() if isinstance(each, torch.Tensor)]
        if any(each.is_floating_point() and each.ndim > 0 for each in tensors):
            found.append((place, value))
    else:
        return found
    for name, each in members.items():
        if isinstance(each, (dict, list, tuple)):
            _state_dicts(torch, each, (*place, name), found, visited)
    return found


def _outermost(torch, found):
    """Removes mappings with other content than tensors if they contain a mapping of tensors only."""
    whole = [place for place, state in found if all(isinstance(value, torch.Tensor) for value in state.values())]
    return [(p, state) for p, state in found if not any(len(w) > len(p) and w[: len(p)] == p for w in whole)]


def _array(torch, tensor, source, limits):
    """Returns the tensor as an array. Float types that NumPy does not have become float32, which represents them."""
    known = (torch.float16, torch.float32, torch.float64)
    limits.take(math.prod(tensor.shape) * tensor.element_size(), "a tensor")  # sparse and expanded tensors become dense
    try:
        tensor = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
        return (tensor.float() if tensor.is_floating_point() and tensor.dtype not in known else tensor).numpy()
    except (TypeError, RuntimeError, NotImplementedError) as error:
        raise BadInput(f"{source} is of type {tensor.dtype}, which NumPy does not have") from error


def _seen(content):
    """Returns a description of the content of a file without a state_dict."""
    if isinstance(content, _Unread):
        return f"an object of the class {content.seen}"
    if isinstance(content, dict):
        names = [f"{name} ({_class(value)})" for name, value in content.items()]
        return some(names) if names else "an empty dictionary"
    return f"a {_class(content)}"


def _class(value):
    return value.seen if isinstance(value, _Unread) else type(value).__name__
