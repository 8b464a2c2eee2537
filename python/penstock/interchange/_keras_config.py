"""The cells of Keras' layers: their activations, and which cell a configuration describes."""

from __future__ import annotations

import json

from .. import variants
from ..errors import InvalidArgument, Unsupported

CLASSES = {"LSTM", "GRU", "SimpleRNN"}
_HARD_SIGMOID_2 = "hard_sigmoid of Keras 2"  # 0.2 x + 0.5, where Keras 3 has x / 6 + 0.5
_SAME = {
    "hard_swish": "hard_silu",
    "leaky_relu": ("leaky_relu", 0.2),
    "swish": "silu",
    _HARD_SIGMOID_2: ("hard_sigmoid", 0.2, 0.5),
}
_KNOWN = sorted({*variants.ACTIVATIONS, *_SAME} - {"affine", "gelu_tanh", "scaled_tanh", "thresholded_relu"})


def settings(entry):
    """Returns (class, configuration) of a layer in the configuration of a model; ("", {}) for anything else."""
    kind, config = (entry.get("class_name"), entry.get("config")) if isinstance(entry, dict) else (None, None)
    return (kind, config) if isinstance(kind, str) and isinstance(config, dict) else ("", {})


def parsed(text, version):
    """Returns the configuration of a file that this version of Keras wrote, None for an unknown one."""
    if isinstance(version, bytes):
        version = version.decode(errors="replace")
    old = not isinstance(version, str) or version.startswith(("1.", "2."))
    return json.loads(text, object_hook=_as_of_keras_2 if old else None)


def _as_of_keras_2(entry):
    for name in ("activation", "recurrent_activation"):
        if entry.get(name) == "hard_sigmoid":
            entry[name] = _HARD_SIGMOID_2
    return entry


def _activation(given, source):
    """Returns an activation of Keras as one of penstock.variants."""
    if given is None:
        return "linear"
    if not isinstance(given, str) or given not in _KNOWN:
        shown = given if isinstance(given, str) else json.dumps(given)
        raise Unsupported(f"{source} has the activation {shown}, expected one of {', '.join(_KNOWN)}")
    return _SAME.get(given, given)


def _cell_of(kind, config, source):
    """Returns the cell of a layer: SimpleRNN, LSTM or GRU. None if the shape of the bias identifies it.

    Raises Unsupported if there is no equivalent here.
    """
    activation = _activation(config.get("activation", "tanh"), source)
    if kind == "SimpleRNN":
        return variants.elman(activation=activation)
    of_gate = _activation(config.get("recurrent_activation", "sigmoid"), source)
    if kind == "LSTM":
        return variants.lstm(gates=of_gate, candidate=activation, output=activation)
    after = config.get("reset_after")
    if not isinstance(after, bool) and (of_gate, activation) != ("sigmoid", "tanh"):
        raise Unsupported(f"{source} has other activations than sigmoid and tanh, and does not say its reset_after")
    if not isinstance(after, bool):
        return None
    try:
        return variants.gru(gates=of_gate, candidate=activation, reset_after=after)
    except InvalidArgument as error:
        raise Unsupported(
            f"{source} has reset_after=False and other activations, which no cell here has together: {error}; train it "
            "with reset_after=True"
        ) from None


def _is_kerass(entry):
    """Returns True if the class is Keras' own, not another class of that name."""
    module = entry.get("module")
    own = module is None or str(module).split(".")[0] in ("keras", "tf_keras", "tensorflow")
    return own and not entry.get("registered_name")


def plain(entry, name, source):
    """Returns (cell, units, use_bias) of a layer or a cell.

    Raises Unsupported if there is no equivalent here.
    """
    kind, config = settings(entry)
    kind = kind.removesuffix("Cell")
    if kind not in CLASSES or not _is_kerass(entry):
        used = entry.get("registered_name") or kind or "something else" if isinstance(entry, dict) else "something else"
        raise Unsupported(f"{source}: layer '{name}' is made of {used}, expected SimpleRNN, GRU or LSTM of Keras")
    if config.get("go_backwards", False):
        raise Unsupported(f"{source}: layer '{name}' goes backwards, and its outputs stay in that order")
    cell = _cell_of(kind, config, f"{source}: layer '{name}'")
    return cell, config.get("units"), config.get("use_bias", True)
