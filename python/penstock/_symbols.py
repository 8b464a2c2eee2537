"""Symbols: the values that the equations of a cell compute with, and the trace of what was done to them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, Union

from .errors import InvalidArgument

Value = Union["Symbol", float, int]
_LARGEST = (2 - 2**-23) * 2.0**127
_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def place() -> str:
    """Returns "file.py, line 12: " for the line outside this package that runs now."""
    frame = sys._getframe(1)
    while frame.f_back is not None and os.path.abspath(frame.f_code.co_filename).startswith(_PACKAGE):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}, line {frame.f_lineno}: "


def finite(number: float, name: str) -> float:
    """Returns a number that stays finite in 32 bits."""
    if not abs(number) <= _LARGEST:
        raise InvalidArgument(place() + f"{name} must be finite in 32 bits (3.4e38 at most), not {number}")
    return number


class Trace:
    """The nodes of one cell, each once."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self._known: dict[str, int] = {}

    def add(self, node: dict[str, Any]) -> Symbol:
        key = json.dumps(node)
        if key not in self._known:
            self._known[key] = len(self.nodes)
            self.nodes.append(node)
        return Symbol(self, self._known[key])

    def symbol(self, value: Any) -> Symbol:
        if isinstance(value, Symbol):
            if value._trace is not self:
                raise InvalidArgument(place() + "a symbol belongs to another cell: use only those given to the function")
            return value
        try:
            number = float(value) if hasattr(value, "__float__") else None
        except (TypeError, ValueError):
            number = None
        except OverflowError:  # of a whole number
            number = float("inf")
        if number is None:
            raise InvalidArgument(
                place() + f"a cell computes with symbols and numbers, not with {type(value).__name__}"
            )
        return self.add({"op": "constant", "value": finite(number, "a constant of a cell")})


def _operator(operation: str, *, swapped: bool = False) -> Callable[[Symbol, Value], Symbol]:
    """Returns the method of an operator; ``swapped``: the symbol is its right operand."""

    def method(self: Symbol, other: Value) -> Symbol:
        return apply(operation, other, self) if swapped else apply(operation, self, other)

    return method


class Symbol:
    """A value of one unit at one step, in the equations of a cell."""

    __slots__ = ("_node", "_trace")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, trace: Trace, node: int) -> None:
        self._trace = trace
        self._node = node

    __add__, __radd__ = _operator("add"), _operator("add", swapped=True)
    __sub__, __rsub__ = _operator("subtract"), _operator("subtract", swapped=True)
    __mul__, __rmul__ = _operator("multiply"), _operator("multiply", swapped=True)
    __truediv__, __rtruediv__ = _operator("divide"), _operator("divide", swapped=True)
    __lt__, __gt__ = _operator("less"), _operator("less", swapped=True)
    __le__, __ge__ = _operator("less_equal"), _operator("less_equal", swapped=True)

    def __pow__(self, exponent: int) -> Symbol:
        if not isinstance(exponent, int) or not 1 <= exponent <= 16:
            raise InvalidArgument(place() + f"the exponent of a symbol must be 1 to 16, not {exponent!r}")
        power = self
        for _ in range(exponent - 1):
            power = power * self
        return power

    def __neg__(self) -> Symbol:
        return apply("subtract", 0.0, self)

    def __pos__(self) -> Symbol:
        return self

    def __abs__(self) -> Symbol:
        return apply("abs", self)

    def __bool__(self) -> bool:
        raise InvalidArgument(
            place() + "a cell cannot branch on a symbol, whose value differs from unit to unit: use where(condition, a, b)"
        )

    def __float__(self) -> float:
        raise InvalidArgument(place() + "a symbol has no number yet: use the functions of penstock.equations")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Symbol:
        name = _UFUNCS.get(ufunc.__name__)
        if method != "__call__" or options or name is None:
            raise InvalidArgument(place() + f"cells have no operation numpy.{ufunc.__name__}; they have {_operations()}")
        operands = inputs[::-1] if ufunc.__name__.startswith("greater") else inputs
        return apply(name, *operands)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise InvalidArgument(place() + f"a symbol has no {name!r}: it is one value, and cells have {_operations()}")


_UFUNCS = {
    "add": "add", "subtract": "subtract", "multiply": "multiply", "divide": "divide", "true_divide": "divide",
    "exp": "exp", "log": "log", "tanh": "tanh", "sin": "sin", "cos": "cos", "sqrt": "sqrt", "absolute": "abs",
    "minimum": "min", "maximum": "max", "less": "less", "less_equal": "less_equal", "greater": "less",
    "greater_equal": "less_equal", "equal": "equal",
}  # fmt: skip


def _operations() -> str:
    from . import equations

    names = [name for name in equations.__all__ if name[0].islower() and "cell" not in name]
    return "+ - * / < <= > >= and " + ", ".join(names)


def apply(operation: str, *operands: Any) -> Symbol:
    trace = next((operand._trace for operand in operands if isinstance(operand, Symbol)), None)
    if trace is None:
        raise InvalidArgument(place() + f"{operation} needs a symbol of a cell, not only numbers")
    if operation == "divide" and not isinstance(operands[1], Symbol) and operands[1] == 0:
        raise InvalidArgument(place() + "a cell cannot divide by 0: the quotient would not be finite")
    return trace.add({"op": operation, "of": [trace.symbol(operand)._node for operand in operands]})
