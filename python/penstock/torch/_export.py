"""Files of a network for programs without its Python code."""

import io
import os
import pathlib
import tempfile
import warnings

import torch

from .. import _core
from ..errors import InvalidArgument, Unsupported


def export_files(model, inputs, folder, name="model"):
    """Writes a network as a trace, as an optimised trace and as ONNX, and returns {form: path}.

    The trace (``NAME.pt``) and the optimised one (``NAME_optimised.pt``, frozen, with fused operations) are for LibTorch
    and ``torch.jit.load``; a process that runs them loads :data:`library_path` first. ``NAME.onnx`` needs no Penstock.
    All hold for other batch sizes and lengths: the first two axes of an input with three axes or more vary, and of
    other inputs all but the last, or the only one. Existing files of the same kind are replaced.

    Args:
        model: A module, set to evaluation mode. Its outputs are tensors, or tuples of them.
        inputs: An example of its input, or a tuple of its inputs.
        folder: Where the files go; it is made if it does not exist.
        name: First part of the names of the files.

    Raises:
        TypeError: ``model`` is not a module.
        InvalidArgument: A file of another kind has one of the names.
        IoFailure: A file cannot be written. Each file is written whole or not at all.
        Unsupported: The weights do not fit in one file of ONNX.

    >>> import tempfile, torch, penstock.torch
    >>> folder = tempfile.mkdtemp()
    >>> sorted(export_files(penstock.torch.GRU(3, 5), torch.zeros(7, 2, 3), folder))
    ['onnx', 'optimised', 'traced']
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {form: folder / f"{name}{end}" for form, end in _ENDINGS.items()}
    targets = {}
    for form, path in paths.items():
        _core.check_output(os.fspath(path), _kind(form))
        other = targets.setdefault(_file_behind(path), path)
        if other is not path:
            raise InvalidArgument(f"{other} and {path} must be different files, but a link makes them one")
    model.eval()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecation, and sizes that become constants: those of the layers
        traced = torch.jit.trace(model, inputs, check_trace=False)
        frozen = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
        contents = {"traced": _script(traced), "optimised": _script(frozen), "onnx": _onnx(model, inputs)}
    for form, path in paths.items():
        _core.write_file(os.fspath(path), [contents[form]], _kind(form))
    return paths


def _file_behind(path):
    """Returns what equals for names of one file: links are followed, and hard links compared."""
    try:
        status = os.stat(path)
        return status.st_dev, status.st_ino
    except FileNotFoundError:
        return os.path.realpath(path)


def _kind(form):
    return _core.FileKind.onnx if form == "onnx" else _core.FileKind.script


_ENDINGS = {"traced": ".pt", "optimised": "_optimised.pt", "onnx": ".onnx"}


def _script(program):
    buffer = io.BytesIO()
    torch.jit.save(program, buffer)
    return buffer.getvalue()


def _onnx(model, inputs):
    names = [f"input_{i}" for i in range(len(inputs))]
    axes = {n: {i: f"{n}_{i}" for i in range(min(2, max(1, x.dim() - 1)))} for n, x in zip(names, inputs)}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.onnx"
        torch.onnx.export(model, inputs, path, dynamo=False, input_names=names, dynamic_axes=axes)
        if len(os.listdir(folder)) > 1:
            raise Unsupported(f"{type(model).__name__} is too large for one file of ONNX, which has less than 2 GiB")
        return path.read_bytes()
