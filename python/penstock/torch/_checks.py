"""Checks of arguments that torch.nn's base class does not do."""

import numbers

import torch

from .._keywords import no_argument, warn_caller

#: Hint for layers that torch.nn does not have.
AS_ONNX = (
    "For ONNX, torch.onnx.export() takes the layer as it is, and save_onnx() of penstock.Recurrent its state_dict"
)


def no_onnx_export(what, remedy):
    """Returns the RuntimeError for what torch.onnx.export() cannot write."""
    return RuntimeError(f"torch.onnx cannot write {what}: {remedy}")


def is_exported():
    """Returns True in torch.export and torch.jit.trace, and not in torch.compile."""
    # PyTorch 2.11 compiles torch.compiler.is_exporting() as True in every graph; the flag behind it is right.
    return torch.compiler._is_exporting_flag or torch.jit.is_tracing()


def refuse_onnx_export():
    """Raises RuntimeError early if an op of Penstock is to be written. torch.onnx would fail in words of its own."""
    if torch.onnx.is_in_onnx_export():
        raise no_onnx_export("layers and scans that several processes share", "export them without process_group=")


class Foreign:
    """Mixin of layers and cells: says what PyTorch's tools that know torch.nn's own classes alone do with them."""

    def __prepare_scriptable__(self):
        """Raises RuntimeError; torch.jit.script() calls it."""
        raise RuntimeError(
            f"torch.jit.script cannot compile penstock.torch.{type(self).__name__}: use torch.jit.trace(model, example), "
            "which holds for all batch sizes and lengths, or torch.export; or script "
            "penstock.torch.convert_back(copy.deepcopy(model)), whose layers are torch.nn's own"
        )

    @property
    def qconfig(self):
        """What torch.ao.quantization asks of the layer. Setting it warns that the layer stays as it is."""
        try:
            return self.__dict__["_qconfig"]
        except KeyError:
            raise AttributeError("qconfig") from None

    @qconfig.setter
    def qconfig(self, value):
        self.__dict__["_qconfig"] = value
        name = type(self).__name__
        if hasattr(torch.nn, name):
            warn_caller(
                f"torch.ao.quantization leaves penstock.torch.{name} as it is: quantise "
                f"penstock.torch.convert_back(copy.deepcopy(model)) to have a quantised torch.nn.{name}"
            )
        elif value is not None:
            warn_caller(f"torch.ao.quantization has no {name}: the layer stays as it is, in floats")

    @qconfig.deleter
    def qconfig(self):
        del self.__dict__["_qconfig"]


def refuse_projection(others, layer):
    """Raises for unknown keyword arguments: ValueError for proj_size, TypeError for others."""
    if "proj_size" in others:
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
    if others:
        raise TypeError(no_argument(layer.__init__, layer.__name__, next(iter(others))))


def _check_form(name, tensor, dtypes, shape, meaning):
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a tensor, not {type(tensor).__name__}")
    if tensor.dtype not in dtypes:
        raise RuntimeError(
            f"{name} must be a tensor of dtype {dtypes[0]}, not {tensor.dtype}: convert it with .to({dtypes[0]})"
        )
    if tensor.shape != shape:
        raise RuntimeError(f"{name} must be {meaning} = {list(shape)}, not {list(tensor.shape)}")


def lengths_as_tensor(lengths, device):
    """Returns lengths as a tensor. They may be a list of integers or a NumPy array, as for pack_padded_sequence()."""
    if lengths is None or isinstance(lengths, torch.Tensor):
        return lengths
    try:
        given = torch.as_tensor(lengths)
        is_whole = not (given.is_floating_point() or given.is_complex() or given.dtype == torch.bool)
    except (RuntimeError, TypeError, ValueError):
        is_whole = False
    if not is_whole:
        raise TypeError(f"lengths must be an int64 tensor or a list of whole numbers, not {lengths!r}")
    return given.to(device, torch.int64)


def check_lengths(lengths, rows):
    """Checks dtype and shape. The kernels check the values, also in compiled graphs."""
    _check_form("lengths", lengths, (torch.int64,), (rows,), "[B]")


def check_values_of_lengths(lengths, steps):
    """Checks the values as the kernels do, for layers that run without a kernel."""
    if lengths.device.type == "cpu" and not ((lengths >= 0) & (lengths <= steps)).all():
        raise RuntimeError(f"lengths must be 0 to T = {steps}, not {lengths.tolist()}")


def check_flags(name, flags, shape, meaning, device):
    """Checks a tensor of bool, or of uint8 as older programs have it. `device` is the one it must be on."""
    _check_form(name, flags, (torch.bool, torch.uint8), shape, meaning)
    if flags.device != device:
        raise RuntimeError(f"{name} must be on {device}, not on {flags.device}: move it with .to('{device}')")


def check_reset_mask(mask, shape, device):
    check_flags("reset_mask", mask, shape, "of the input's shape without channels", device)


def check_state_types(states, x, name="hx"):
    """Raises RuntimeError unless states have the dtype of the input, or float32 for 16-bit inputs.

    Under autocast any mix is allowed.
    """
    for state in states:
        if state.dtype == x.dtype or (state.dtype == torch.float32 and x.dtype in (torch.bfloat16, torch.float16)):
            continue
        if not torch.is_autocast_enabled(x.device.type):
            raise RuntimeError(f"{name} must be of the input's dtype {x.dtype}, not {state.dtype}")


def check_sizes(input_size, hidden_size, num_layers, bias, batch_first, dropout):
    for name, value, kind in [
        ("input_size", input_size, int),
        ("hidden_size", hidden_size, int),
        ("num_layers", num_layers, int),
        ("bias", bias, bool),
        ("batch_first", batch_first, bool),
    ]:
        if not isinstance(value, kind):
            raise TypeError(f"{name} should be of type {kind.__name__}, got: {type(value).__name__}")
        if kind is int and value <= 0:
            raise ValueError(f"{name} must be greater than zero")
    if not isinstance(dropout, numbers.Number) or isinstance(dropout, bool) or not 0 <= dropout <= 1:
        raise ValueError(
            "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
        )
    if dropout > 0 and num_layers == 1:
        warn_caller(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers "
            f"greater than 1, but got dropout={dropout} and num_layers={num_layers}"
        )
