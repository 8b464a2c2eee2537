"""Ready-written variants of LSTM, GRU and Elman networks: other activations, peepholes, coupled gates, limits.

>>> import numpy as np, penstock
>>> cell = penstock.variants.lstm(candidate="elu", peepholes=True, cell_clip=3.0)
>>> cell, cell.learnt
('lstm-candidate-elu-peepholes-cell_clip-3', {'i': 0.0, 'f': 0.0, 'o': 0.0})
>>> y, (h, c) = penstock.Recurrent(cell, 3, 5).forward(np.zeros((4, 7, 3), np.float32))

Each function returns a cell for every argument that takes the name of a cell. Without options that is the name of the
built-in cell. Weights keep the gate order of the built-in cell.

An activation is one of these:

- a name of :data:`ACTIVATIONS`: ``"leaky_relu"``;
- a name with parameters: ``("leaky_relu", 0.2)``;
- a function of a symbol, in the operations of :mod:`penstock.equations`. It needs a name of its own.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Union

from ._keywords import explain_keywords
from .equations import CustomCell, cell, clamp, exp, gelu, minimum, relu, sigmoid, softplus, sqrt, tanh, where
from .errors import InvalidArgument

__all__ = ["ACTIVATIONS", "elman", "gru", "lstm"]

Activation = Union[str, Sequence[Any], Callable[[Any], Any]]


def _elu(x: Any, alpha: float = 1.0) -> Any:
    return where(x > 0, x, alpha * (exp(minimum(x, 0)) - 1))


def _hard_sigmoid(x: Any, slope: float = 1 / 6, offset: float = 0.5) -> Any:
    return clamp(slope * x + offset, 0, 1)


#: Activations by name: functions of a symbol, whose further arguments are their parameters.
ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "affine": lambda x, alpha=1.0, beta=0.0: alpha * x + beta,
    "celu": lambda x, alpha=1.0: where(x > 0, x, alpha * (exp(minimum(x, 0) / alpha) - 1)),
    "elu": _elu,
    "exponential": exp,
    "gelu": gelu,
    "gelu_tanh": lambda x: 0.5 * x * (1 + tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "hard_shrink": lambda x, threshold=0.5: where(abs(x) > threshold, x, 0),
    "hard_sigmoid": _hard_sigmoid,
    "hard_silu": lambda x: x * _hard_sigmoid(x),
    "hard_tanh": lambda x, low=-1.0, high=1.0: clamp(x, low, high),
    "leaky_relu": lambda x, slope=0.01: where(x < 0, slope * x, x),
    "linear": lambda x: x + 0,
    "log_sigmoid": lambda x: -softplus(-x),
    "mish": lambda x: x * tanh(softplus(x)),
    "relu": relu,
    "relu6": lambda x: clamp(x, 0, 6),
    "scaled_tanh": lambda x, alpha=1.0, beta=1.0: alpha * tanh(beta * x),
    "selu": lambda x: 1.0507009873554805 * _elu(x, 1.6732632423543772),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "soft_shrink": lambda x, threshold=0.5: where(x > threshold, x - threshold, where(x < -threshold, x + threshold, 0)),
    "softplus": softplus,
    "softsign": lambda x: x / (1 + abs(x)),
    "sparse_plus": lambda x: where(x >= 1, x, where(x <= -1, 0, 0.25 * (x + 1) ** 2)),
    "sparse_sigmoid": lambda x: clamp(0.5 * (x + 1), 0, 1),
    "squareplus": lambda x, b=4.0: 0.5 * (x + sqrt(x * x + b)),
    "tanh": tanh,
    "tanh_shrink": lambda x: x - tanh(x),
    "thresholded_relu": lambda x, threshold=1.0: where(x > threshold, x, 0),
}


def _number(option: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidArgument(f"{option} must be a finite number, not {value!r}")
    return number


def _digits(value: float) -> str:
    return repr(float(value)).removesuffix(".0").replace("-", "m").replace(".", "_").replace("+", "")


class _Variant:
    """Options that differ from those of the built-in cell, and the name that they give."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.words: list[str] = []

    def activation(self, option: str, given: Activation, usual: str) -> Callable[[Any], Any]:
        """Returns the function of a symbol that a caller chose."""
        parameters: list[float] = []
        if callable(given):
            function, words = given, [str(getattr(given, "__name__", "function"))]
        else:
            name, *rest = [given] if isinstance(given, str) else list(given) or [None]
            if name not in ACTIVATIONS:
                raise InvalidArgument(f"{option} must be one of {', '.join(ACTIVATIONS)} or a function, not {name!r}")
            function = ACTIVATIONS[name]
            most = len(inspect.signature(function).parameters) - 1
            if len(rest) > most:
                raise InvalidArgument(f"{option}: {name} has {most} parameters, not {len(rest)}")
            parameters = [_number(f"{option}: each parameter of {name}", each) for each in rest]
            words = [name, *map(_digits, parameters)]
        if words != [usual]:
            self.words += [option, *words]
        return lambda x: function(x, *parameters)

    def limit(self, option: str, value: float | None) -> Callable[[Any], Any]:
        """Returns a function that limits a symbol to +-value."""
        if value is None:
            return lambda x: x
        number = _number(option, value)
        if number <= 0:
            raise InvalidArgument(f"{option} must be positive, or None for no limit, not {value!r}")
        self.words += [option, _digits(number)]
        return lambda x: clamp(x, -number, number)

    def zoneout(self, option: str, value: float) -> Callable[[Any, Any], Any]:
        """Returns the expectation of zoneout, as a function of a state before and after a step."""
        share = _number(option, value)
        if not 0 <= share <= 1:
            raise InvalidArgument(f"{option} must be 0 to 1, not {value!r}")
        if not share:
            return lambda before, after: after
        self.words += [option, _digits(share)]
        return lambda before, after: share * before + (1 - share) * after

    def flag(self, option: str, value: bool) -> None:
        if value:
            self.words.append(option)

    def name(self) -> str:
        """Returns a name for which the options are the same whenever it is."""
        whole = re.sub(r"[^a-z0-9_-]", "_", "-".join([self.base, *self.words]).lower())
        return whole if len(whole) <= 64 else f"{whole[:50]}-{hashlib.sha256(whole.encode()).hexdigest()[:12]}"

    def define(self, given_name: str | None, function: Callable[..., Any], **options: Any) -> CustomCell | str:
        if not self.words and given_name is None:
            return self.base
        description = f"{self.base} with {', '.join(self.words)}"[:200] if self.words else self.base
        return cell(name=given_name or self.name(), description=description, **options)(function)


def lstm(
    *,
    gates: Activation = "sigmoid",
    candidate: Activation = "tanh",
    output: Activation = "tanh",
    peepholes: bool = False,
    coupled: bool = False,
    clip: float | None = None,
    cell_clip: float | None = None,
    zoneout: float = 0.0,
    cell_zoneout: float = 0.0,
    name: str | None = None,
) -> CustomCell | str:
    r"""Returns a variant of the LSTM. States: h, c. Gate order: i, f, g, o.

    Args:
        gates: Activation of the input, forget and output gate.
        candidate: Activation of the candidate g.
        output: Activation of the cell state c, before the output gate.
        peepholes: The input and forget gate see the cell state before the step, the output gate the one after it, each
            times a learnt vector ``i``, ``f`` or ``o`` (Gers and Schmidhuber 2000).
        coupled: The forget gate is 1 - i (Greff et al. 2017). The cell has three gates then: i, g, o.
        clip: Limits what the activations of the gates and of the candidate read to ``[-clip, clip]``, as ONNX does.
        cell_clip: Limits the cell state after each step to ``[-cell_clip, cell_clip]``, as cuDNN and TensorFlow do.
        zoneout: The expectation of a layer trained with zoneout of h: h_t = zoneout h_{t-1} + (1 - zoneout) h~_t.
        cell_zoneout: The same for the cell state. The output comes from the cell state before it (Krueger et al. 2017).
        name: Name of the cell. None: made of the options.

    Returns:
        The cell, or "lstm" if no option differs from the built-in cell.

    Raises:
        InvalidArgument: An option is impossible. The message names it.
    """
    made = _Variant("lstm")
    of_gate = made.activation("gates", gates, "sigmoid")
    of_candidate = made.activation("candidate", candidate, "tanh")
    of_state = made.activation("output", output, "tanh")
    made.flag("peepholes", peepholes)
    made.flag("coupled", coupled)
    limited, held = made.limit("clip", clip), made.limit("cell_clip", cell_clip)
    of_h, of_c = made.zoneout("zoneout", zoneout), made.zoneout("cell_zoneout", cell_zoneout)
    g, o = (1, 2) if coupled else (2, 3)

    def equations(wx: Any, rh: Any, s: Any, p: Any) -> Any:
        def logit(gate: int, seen: Any, at: Any) -> Any:
            sum_ = wx[gate] + rh[gate]
            return limited(sum_ + seen * at if peepholes else sum_)

        i = of_gate(logit(0, p.i if peepholes else None, s.c))
        f = 1 - i if coupled else of_gate(logit(1, p.f if peepholes else None, s.c))
        c = held(f * s.c + i * of_candidate(limited(wx[g] + rh[g])))
        h = of_gate(logit(o, p.o if peepholes else None, c)) * of_state(c)
        return of_h(s.h, h), of_c(s.c, c)

    learnt = [each for each in "ifo" if not (coupled and each == "f")] if peepholes else []
    biases = {"overwrite_gate": 0} if coupled else {"keep_gate": 1}
    return made.define(name, equations, states=("h", "c"), gates=3 if coupled else 4, learnt=learnt, **biases)


def gru(
    *,
    gates: Activation = "sigmoid",
    candidate: Activation = "tanh",
    reset_after: bool = True,
    clip: float | None = None,
    zoneout: float = 0.0,
    name: str | None = None,
) -> CustomCell | str:
    """Returns a variant of the GRU. Gate order: r, z, n.

    Args:
        gates: Activation of the reset and update gate.
        candidate: Activation of the candidate n.
        reset_after: True: the reset gate applies after the recurrent product. False takes no other option: it needs two
            products in each step, which only the built-in cell has.
        clip: Limits what activations read to ``[-clip, clip]``, as ONNX does.
        zoneout: The expectation of a layer trained with zoneout: h_t = zoneout h_{t-1} + (1 - zoneout) h~_t.
        name: Name of the cell. None: made of the options.

    Returns:
        The cell, or "gru" or "gru-before" if no option differs from a built-in cell.

    Raises:
        InvalidArgument: An option is impossible. The message names it.
    """
    made = _Variant("gru" if reset_after else "gru-before")
    of_gate = made.activation("gates", gates, "sigmoid")
    of_candidate = made.activation("candidate", candidate, "tanh")
    limited, of_h = made.limit("clip", clip), made.zoneout("zoneout", zoneout)
    if not reset_after and (made.words or name is not None):
        raise InvalidArgument(
            f"reset_after must be True for a GRU with {', '.join(made.words) or 'a name'}, not False: a reset before the "
            "product needs two products in each step, and cells of your own have one"
        )

    def equations(wx: Any, rh: Any, s: Any) -> Any:
        r, z = (of_gate(limited(wx[gate] + rh[gate])) for gate in (0, 1))
        n = of_candidate(limited(wx[2] + r * rh[2]))
        h = (1 - z) * n + z * s.h
        return of_h(s.h, h)

    return made.define(name, equations, gates=3, keep_gate=1)


def elman(
    *, activation: Activation = "tanh", clip: float | None = None, zoneout: float = 0.0, name: str | None = None
) -> CustomCell | str:
    """Returns a variant of the Elman network: h_t = activation(W x_t + R h_{t-1}).

    With ``heads=hidden_size`` the recurrent matrix is diagonal: this is IndRNN (Li et al. 2018).

    Args:
        activation: Activation of the state.
        clip: Limits what the activation reads to ``[-clip, clip]``, as ONNX does.
        zoneout: The expectation of a layer trained with zoneout: h_t = zoneout h_{t-1} + (1 - zoneout) h~_t.
        name: Name of the cell. None: made of the options.

    Returns:
        The cell, or "elman" or "elman-relu" if no option differs from a built-in cell.

    Raises:
        InvalidArgument: An option is impossible. The message names it.
    """
    made = _Variant("elman-relu" if activation == "relu" else "elman")
    chosen = made.activation("activation", activation, "relu" if activation == "relu" else "tanh")
    limited, of_h = made.limit("clip", clip), made.zoneout("zoneout", zoneout)

    def equations(wx: Any, rh: Any, s: Any) -> Any:
        h = chosen(limited(wx[0] + rh[0]))
        return of_h(s.h, h)

    return made.define(name, equations)


explain_keywords(globals())
