"""Cells of your own: the equations of one step, traced into data that every engine of Penstock runs.

>>> import numpy as np, penstock
>>> from penstock.equations import sigmoid, tanh
>>> @penstock.cell(states=("h", "c"), gates=4)
... def gates_that_see_c(wx, rh, s, p):
...     i, f = sigmoid(wx[0] + rh[0] + p.i * s.c), sigmoid(wx[1] + rh[1] + p.f * s.c)
...     c = f * s.c + i * tanh(wx[2] + rh[2])
...     return sigmoid(wx[3] + rh[3] + p.o * c) * tanh(c), c
>>> y, (h, c) = penstock.Recurrent(gates_that_see_c, 3, 5).forward(np.zeros((4, 7, 3), np.float32))
>>> y.shape
(4, 7, 5)

The functions here take symbols and numbers. Python's operators ``+ - * / < <= > >=``, ``abs()`` and NumPy's functions
of the same names work on symbols too.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, overload

from . import _core
from ._keywords import explain_keywords
from ._symbols import Symbol, Value, apply
from ._trace import traced
from .errors import InvalidArgument

__all__ = [
    "CustomCell", "Symbol", "cell", "clamp", "cos", "equal", "erf", "exp", "gelu", "load_cell", "log", "maximum", "mean",
    "minimum", "multiply_add", "relu", "sigmoid", "sin", "softplus", "sqrt", "tanh", "where",
]  # fmt: skip

def multiply_add(a: Value, b: Value, c: Value) -> Symbol:
    """Returns a b + c with one rounding."""
    return apply("multiply_add", a, b, c)


def exp(x: Value) -> Symbol:
    """Returns e^x. It saturates at e^-87.33 and e^87.3 (float64: e^-707 and e^707; on a GPU: e^-86 and e^86)."""
    return apply("exp", x)


def log(x: Value) -> Symbol:
    """Returns the natural logarithm."""
    return apply("log", x)


def tanh(x: Value) -> Symbol:
    """Returns the hyperbolic tangent."""
    return apply("tanh", x)


def sigmoid(x: Value) -> Symbol:
    """Returns 1 / (1 + e^-x)."""
    return apply("sigmoid", x)


def softplus(x: Value) -> Symbol:
    """Returns log(1 + e^x)."""
    return apply("softplus", x)


def relu(x: Value) -> Symbol:
    """Returns max(x, 0). The slope at 0 is 0."""
    return apply("relu", x)


def erf(x: Value) -> Symbol:
    """Returns the error function."""
    return apply("erf", x)


def gelu(x: Value) -> Symbol:
    """Returns x Phi(x), where Phi is the distribution function of the normal distribution."""
    return 0.5 * apply("add", x, 0.0) * (1.0 + erf(apply("multiply", x, math.sqrt(0.5))))


def sin(x: Value) -> Symbol:
    """Returns the sine."""
    return apply("sin", x)


def cos(x: Value) -> Symbol:
    """Returns the cosine."""
    return apply("cos", x)


def sqrt(x: Value) -> Symbol:
    """Returns the square root."""
    return apply("sqrt", x)


def minimum(a: Value, b: Value) -> Symbol:
    """Returns the smaller value. In a tie the gradient goes to ``a``."""
    return apply("min", a, b)


def maximum(a: Value, b: Value) -> Symbol:
    """Returns the larger value. In a tie the gradient goes to ``a``."""
    return apply("max", a, b)


def clamp(x: Value, low: Value, high: Value) -> Symbol:
    """Returns x, limited to ``[low, high]``."""
    return apply("clamp", x, low, high)


def equal(a: Value, b: Value) -> Symbol:
    """Returns 1 where the values are equal, else 0."""
    return apply("equal", a, b)


def where(condition: Value, a: Value, b: Value) -> Symbol:
    """Returns a where the condition is not 0, else b."""
    return apply("where", condition, a, b)


def mean(x: Value) -> Symbol:
    """Returns the mean over all units of a head. Cells with it are dense."""
    return apply("mean", x)


class CustomCell(str):
    """A cell that :func:`cell` defined: its name, for every argument that takes the name of a cell.

    Attributes:
        json: The text of the cell, as models and :meth:`save` store it.
        gates: Number of gates.
        states: Names of the states; the first is the output.
        learnt: Names of the learnt vectors and their initial values.
        scan: True if the cell is ``h' = a h + b`` without a recurrent matrix.
    """

    json: str
    gates: int
    states: tuple[str, ...]
    learnt: dict[str, float]
    scan: bool

    def __new__(cls, text: str) -> CustomCell:
        given = json.loads(text)
        self = super().__new__(cls, given["name"])
        self.json = text
        self.gates = int(given["gates"])
        self.states = tuple(given["states"])
        self.learnt = {each["name"]: float(each.get("initial", 0.0)) for each in given.get("learnt", [])}
        self.scan = given["kind"] == "scan"
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _defined, (self.json,)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the cell as a JSON file, for ``penstock train --cell FILE`` and :func:`load_cell`."""
        _core.write_file(os.fspath(path), [f"{self.json}\n".encode()], _core.FileKind.cell)


def with_equations(cell: str) -> str:
    """Returns the name of a cell. That of a cell of your own has its equations: where it is unpickled, they are known."""
    if isinstance(cell, CustomCell) or cell in {each["name"] for each in _core.cells()}:
        return cell
    return CustomCell(_core.cell_json(cell))


def _defined(text: str, source: str = "cell") -> CustomCell:
    _core.define_cell(text, source)
    return CustomCell(_core.cell_json(json.loads(text)["name"]))


def load_cell(path: str | os.PathLike[str]) -> CustomCell:
    """Reads a cell that :meth:`CustomCell.save` wrote, and makes it known to this process.

    Raises:
        BadInput: The file holds no sound cell; the message names the node and the field.
    """
    with open(path, encoding="utf-8") as file:
        return _defined(file.read(), os.fspath(path))


@overload
def cell(
    function: Callable[..., Any],
    /,
    *,
    states: Iterable[str] = ...,
    gates: int = ...,
    scan: bool = ...,
    name: str | None = ...,
    description: str | None = ...,
    learnt: Iterable[str] | Mapping[str, float] | None = ...,
    keep_gate: int | None = ...,
    overwrite_gate: int | None = ...,
    spread_memory: bool = ...,
) -> CustomCell: ...
@overload
def cell(
    *,
    states: Iterable[str] = ...,
    gates: int = ...,
    scan: bool = ...,
    name: str | None = ...,
    description: str | None = ...,
    learnt: Iterable[str] | Mapping[str, float] | None = ...,
    keep_gate: int | None = ...,
    overwrite_gate: int | None = ...,
    spread_memory: bool = ...,
) -> Callable[[Callable[..., Any]], CustomCell]: ...


def cell(
    function: Callable[..., Any] | None = None,
    /,
    *,
    states: Iterable[str] = ("h",),
    gates: int = 1,
    scan: bool = False,
    name: str | None = None,
    description: str | None = None,
    learnt: Iterable[str] | Mapping[str, float] | None = None,
    keep_gate: int | None = None,
    overwrite_gate: int | None = None,
    spread_memory: bool = False,
) -> CustomCell | Callable[[Callable[..., Any]], CustomCell]:
    """Defines a cell by a function of symbols, which is called once: ``cell(function, gates=2)``, or as a decorator.

    The function's parameters are any of these:

    - ``wx``: the gates of ``W x + bias_ih``.
    - ``rh``: the gates of ``R h + bias_hh``. Dense cells only.
    - ``s``: the states that enter the step, by name or number. Dense cells only.
    - ``p``: learnt vectors, one value per unit, by name.

    A dense cell returns the next states, the output first. A scan cell returns ``a`` and ``b`` of ``h' = a h + b``.
    Penstock derives the backward pass.

    Args:
        states: Names of the states, at most 4. The first one is the output.
        gates: Number of gates: 1 to 5 for a dense cell, 1 to 3 for a scan cell.
        scan: True: a scan cell.
        name: Name of the cell: characters a-z, 0-9, - and _. None: the function's name.
        description: One line. None: the first line of the function's docstring.
        learnt: Initial values of learnt vectors by name; the others that the function uses start at 0. Or a list of all
            names: any other is refused, as is a name that the function does not use. None: those that it uses.
        keep_gate: A gate whose bias starts at 1 in models, so that the memory is long.
        overwrite_gate: A gate whose bias starts at -1 in models, so that the memory is long.
        spread_memory: True: these biases differ from unit to unit, so that time constants do.

    Returns:
        The cell: a string, its name, with more attributes.

    Raises:
        InvalidArgument: The function branches on a symbol, uses an unknown operation or returns the wrong number of
            values (the message names the line), or the name belongs to another cell.

    >>> import penstock
    >>> from penstock.equations import sigmoid
    >>> @penstock.cell(gates=2, scan=True)
    ... def leaky(wx):
    ...     return sigmoid(wx[0]), wx[1]
    >>> leaky, leaky.gates, leaky.scan
    ('leaky', 2, True)
    """
    names = tuple(states)

    def define(equations: Callable[..., Any]) -> CustomCell:
        if not callable(equations):
            raise TypeError(f"function must be a function of symbols, as in cell(function, gates=2), not {equations!r}")
        called = name
        if called is None:
            called = re.sub(r"[^a-z0-9_-]", "-", equations.__name__.lower()).strip("-_")
        trace, vectors, outputs = traced(equations, called, names, gates, scan, learnt)
        text = {
            "format": "penstock-cell",
            "version": 1,
            "name": called,
            "description": description if description is not None else (inspect.getdoc(equations) or "").split("\n")[0],
            "kind": "scan" if scan else "dense",
            "gates": gates,
            "states": names,
            "learnt": [{"name": each, "initial": value} for each, value in vectors.initial.items()],
            "keep_gate": -1 if keep_gate is None else keep_gate,
            "overwrite_gate": -1 if overwrite_gate is None else overwrite_gate,
            "spread_memory": spread_memory,
            "nodes": trace.nodes,
            "outputs": [output._node for output in outputs],
        }
        try:
            return _defined(json.dumps(text), f"cell {called!r}")
        except ValueError as error:
            raise InvalidArgument(str(error)) from None

    return define if function is None else define(function)


explain_keywords(globals())
