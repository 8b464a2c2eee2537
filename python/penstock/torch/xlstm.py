"""Penstock's engines for the sLSTM layers of the package ``xlstm``, without a compiler.

>>> import penstock.torch.xlstm
>>> penstock.torch.xlstm.patch()  # doctest: +SKIP

Afterwards the layers of the package, those that exist and those to come, run Penstock's recurrences forward, backward
and step by step. Parameters, checkpoints and results stay as they are.
"""

import importlib
from typing import Any

import torch

from ._recurrence import recurrence

_original: dict[tuple[type, str], Any] = {}  # what patch() replaced, by (class, name)


def _package():
    try:
        return importlib.import_module("xlstm.blocks.slstm.cell")
    except ModuleNotFoundError as error:
        if error.name != "xlstm":  # the package is installed, but one of its own dependencies is missing
            raise
        message = "penstock.torch.xlstm needs the package xlstm: pip install xlstm"
        raise ModuleNotFoundError(message, name="xlstm") from None


def _weights(cell):
    """Returns R [heads, 4 D, D] and the bias [4 H], gate by gate, from the layout of the cell's backend."""
    kernel, bias, config = cell._recurrent_kernel_, cell._bias_, cell.config
    if config.backend == "cuda":
        kernel = kernel.transpose(1, 2)
        bias = bias.view(config.num_heads, 4, config.head_dim).transpose(0, 1).reshape(-1)
    return kernel, bias


def _run(cell, input, state):
    """Returns the outputs [S, B, H] and the states [num_states, B, H] after the last step."""
    cell._check_input(input)
    config = cell.config
    cuts = config.gradient_recurrent_cut or config.gradient_recurrent_clipval is not None
    if config.backend == "cuda" and cuts:
        raise NotImplementedError(
            "gradient_recurrent_cut and gradient_recurrent_clipval are not supported: "
            "penstock.torch.xlstm.unpatch() returns to the package's kernels"
        )
    wx = input.transpose(0, 1) if config.input_shape == "BSGNH" else input
    if config.backend == "cuda" and config.enable_automatic_mixed_precision:
        wx = wx.to(config.torch_dtype_w)  # as the package's kernels do
    kernel, bias = _weights(cell)
    state = None if state is None else tuple(s.to(wx.dtype) for s in state)
    y, last = recurrence(wx, kernel.to(bias.dtype), bias, state, cell=config.function, batch_first=False)
    return y, torch.stack(last)


def _forward(self, input, state=None, lengths=None):
    y, last = _run(self, input, state)
    output = self._permute_output(y)
    if torch.is_autocast_enabled(input.device.type):
        return output, last
    return output.to(input.dtype), last.to(input.dtype)


def _without_compiler(original):
    def init(self, config, skip_backend_init=False):
        original(self, config, skip_backend_init=True)

    return init


def patch():
    """Replaces the recurrences of the sLSTM layers of the package ``xlstm``, of both its backends.

    Layers of the backend ``"cuda"`` then run on CPUs and GPUs, need no CUDA compiler, and round to the types of their
    configuration as before. A call of ``step`` returns the state after the step. ``patch`` may be called twice.

    Raises:
        ModuleNotFoundError: The package ``xlstm`` is not installed.
    """
    package = _package()
    vanilla, cuda = package.sLSTMCell_vanilla, package.sLSTMCell_cuda
    replaced = [(cell, name, _forward) for cell in (vanilla, cuda) for name in ("forward", "step")]
    for cell, name, function in [*replaced, (cuda, "__init__", None)]:
        if (cell, name) in _original:
            continue
        _original[cell, name] = cell.__dict__.get(name)
        setattr(cell, name, function or _without_compiler(_original[cell, name]))


def unpatch():
    """Undoes :func:`patch`. Layers of the backend ``"cuda"`` that were made in between have to be made again."""
    for (cell, name), function in _original.items():
        if function is None:
            delattr(cell, name)
        else:
            setattr(cell, name, function)
    _original.clear()
