"""Expressions, conditions and domains of :mod:`penstock.csp`."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Union

from . import _core
from .errors import InvalidArgument

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from .csp import Model

_Binary = Callable[[Any, Any], Any]

#: Largest magnitude of all numbers.
LARGEST = 2**62 - 1
#: Largest number of values of a list.
MOST_VALUES = 1_000_000


def whole_number(value: object, name: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        hint = "; compare expressions instead" if isinstance(value, (bool, Constraint)) else ""
        raise TypeError(f"{name} must be a whole number, not {value!r}{hint}")
    number = operator.index(value)  # type: ignore[arg-type]
    if abs(number) > LARGEST:
        raise InvalidArgument(f"{name} must be within 2^62 - 1, not {number}")
    return number


def _arithmetic(function: _Binary, *, swapped: bool = False) -> Callable[[Expression, Number], Expression]:
    """Returns the method of an operator; ``swapped``: the expression is its right operand."""

    def method(self: Expression, other: Number) -> Expression:
        return _combined(function, other, self) if swapped else _combined(function, self, other)

    return method


def _comparison(function: _Binary) -> Callable[[Expression, Number], Constraint]:
    """Returns the method of a comparison."""

    def method(self: Expression, other: Number) -> Constraint:
        right = expression_of(other)
        return Constraint(function(self._core, right._core), self._model or right._model)

    return method


class Expression:
    """A whole number made of variables and constants. :meth:`Model.var` returns a variable.

    It has Python's arithmetic: ``a // b`` rounds down, and ``a % b`` has the sign of ``b``. Comparisons return a
    :class:`Constraint`.
    """

    __slots__ = ("_core", "_model")
    __hash__ = None  # type: ignore[assignment]  # == does not compare objects

    def __init__(self, core: _core.CspExpression, model: Model | None) -> None:
        self._core = core
        self._model = model  # keeps what the core refers to; None for a constant

    __add__, __radd__ = _arithmetic(operator.add), _arithmetic(operator.add, swapped=True)
    __sub__, __rsub__ = _arithmetic(operator.sub), _arithmetic(operator.sub, swapped=True)
    __mul__, __rmul__ = _arithmetic(operator.mul), _arithmetic(operator.mul, swapped=True)

    def __neg__(self) -> Expression:
        return 0 - self

    def __floordiv__(self, other: Number) -> Expression:
        quotient, remainder = truncated_div(self, other), _combined(operator.mod, self, other)
        if _are_natural(self, other):
            return quotient
        return select((remainder != 0) & (remainder * other < 0), quotient - 1, quotient)

    def __rfloordiv__(self, other: int) -> Expression:
        return expression_of(other) // self

    def __mod__(self, other: Number) -> Expression:
        remainder = _combined(operator.mod, self, other)
        if _are_natural(self, other):
            return remainder
        return select((remainder != 0) & (remainder * other < 0), remainder + other, remainder)

    def __rmod__(self, other: int) -> Expression:
        return expression_of(other) % self

    def __truediv__(self, other: object) -> Expression:
        raise TypeError("numbers are whole: use a // b, which rounds down, csp.ceil_div(a, b) or csp.truncated_div(a, b)")

    __eq__ = _comparison(operator.eq)  # type: ignore[assignment]
    __ne__ = _comparison(operator.ne)  # type: ignore[assignment]
    __le__, __lt__, __ge__, __gt__ = map(_comparison, (operator.le, operator.lt, operator.ge, operator.gt))

    def __bool__(self) -> bool:
        raise TypeError(f"'{self}' has a value only in a solution: compare it, as in {self} != 0")

    def __str__(self) -> str:
        return self._core.text()

    def __repr__(self) -> str:
        return f"Expression({self})"


#: What arithmetic and comparisons take.
Number = Union[int, Expression]


def expression_of(value: object, name: str = "a number of an expression") -> Expression:
    if isinstance(value, Expression):
        return value
    return Expression(_core.CspExpression(whole_number(value, name)), None)


def _combined(function: _Binary, a: Number, b: Number) -> Expression:
    left, right = expression_of(a), expression_of(b)
    return Expression(function(left._core, right._core), left._model or right._model)


def _are_natural(a: Number, b: Number) -> bool:
    """Returns True if neither can be negative: C++'s division is then Python's."""
    return expression_of(a)._core.low() >= 0 and expression_of(b)._core.low() >= 0


class Constraint:
    """A condition on expressions. Combine conditions by ``&``, ``|`` and ``~``."""

    __slots__ = ("_core", "_model")

    def __init__(self, core: _core.CspConstraint, model: Model | None) -> None:
        self._core = core
        self._model = model

    def __and__(self, other: Constraint) -> Constraint:
        return Constraint(self._core & constraint_of(other)._core, self._model or other._model)

    def __or__(self, other: Constraint) -> Constraint:
        return Constraint(self._core | constraint_of(other)._core, self._model or other._model)

    def __invert__(self) -> Constraint:
        return Constraint(~self._core, self._model)

    def __bool__(self) -> bool:
        raise TypeError(
            f"'{self}' is true or false only in a solution: write (a <= b) & (b <= c) for a <= b <= c, and &, |, ~ and "
            "csp.select() for and, or, not and if"
        )

    def __str__(self) -> str:
        return self._core.text()

    def __repr__(self) -> str:
        return f"Constraint({self})"


def constraint_of(value: object, name: str = "a condition") -> Constraint:
    if not isinstance(value, Constraint):
        raise TypeError(f"{name} must be a Constraint, such as a <= b, not {value!r}")
    return value


class Domain:
    """The values that a variable may have. It iterates over them in ascending order."""

    __slots__ = ("_core",)

    def __init__(self, core: _core.CspDomain) -> None:
        self._core = core

    def __len__(self) -> int:
        return self._core.size()

    def __iter__(self) -> Iterator[int]:
        return (self._core.at(i) for i in range(len(self)))

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and abs(value) <= LARGEST and self._core.contains(value)

    def __str__(self) -> str:
        return self._core.text()

    def __repr__(self) -> str:
        return f"Domain({self})"


#: Forms of a variable's values.
Values = Union[Domain, range, Iterable[int]]


def domain_of(given: Values) -> Domain:
    if isinstance(given, Domain):
        return given
    if isinstance(given, range) and abs(given.step) == 1 and given:
        return values(min(given[0], given[-1]), max(given[0], given[-1]))
    if isinstance(given, range) and given:
        _check_length((given[-1] - given[0]) // given.step + 1)
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"domain must be a Domain, a range or a list of whole numbers, not {given!r}")
    found: list[int] = []
    for value in given:
        found.append(whole_number(value, "a value of a domain"))
        if len(found) > 2 * MOST_VALUES:
            found = list(set(found)) if hasattr(given, "__len__") else found  # a generator may have no end
            _check_length(len(found))
    return Domain(_core.CspDomain(found))


def _check_length(count: int) -> None:
    if count > MOST_VALUES:
        raise InvalidArgument(
            f"a list of values must have at most {MOST_VALUES}, not {count} or more: use csp.values(first, last), which "
            "may have any length, with a constraint such as x % 7 == 0"
        )


def values(first: int, last: int) -> Domain:
    """Returns all whole numbers from ``first`` to ``last``, both included. Its length does not matter."""
    return Domain(_core.CspDomain.range(whole_number(first, "first"), whole_number(last, "last")))


def divisors(n: int) -> Domain:
    """Returns the positive divisors of ``n``, which must be 1 to 2^40."""
    return Domain(_core.CspDomain.divisors(whole_number(n, "n")))


def powers_of_two(first: int, last: int) -> Domain:
    """Returns the powers of two from ``first`` to ``last``, both included."""
    return Domain(_core.CspDomain.powers_of_two(whole_number(first, "first"), whole_number(last, "last")))


def multiples(step: int, first: int, last: int) -> Domain:
    """Returns the multiples of ``step`` from ``first`` to ``last``, both included."""
    return Domain(_core.CspDomain.multiples(whole_number(step, "step"), whole_number(first, "first"), whole_number(last, "last")))


def ceil_div(a: Number, b: Number) -> Expression:
    """Returns ``a / b``, rounded up."""
    return _combined(_core.csp_ceil_div, a, b)


def truncated_div(a: Number, b: Number) -> Expression:
    """Returns ``a / b``, rounded towards zero, as the text format and C++ divide."""
    return _combined(operator.truediv, a, b)


def minimum(first: Number, *others: Number) -> Expression:
    """Returns the smallest of the expressions."""
    return functools.reduce(functools.partial(_combined, _core.csp_min), others, expression_of(first))


def maximum(first: Number, *others: Number) -> Expression:
    """Returns the largest of the expressions."""
    return functools.reduce(functools.partial(_combined, _core.csp_max), others, expression_of(first))


def select(condition: Constraint, yes: Number, no: Number) -> Expression:
    """Returns ``yes`` where the condition holds, otherwise ``no``."""
    when, a, b = constraint_of(condition, "condition"), expression_of(yes, "yes"), expression_of(no, "no")
    return Expression(_core.csp_select(when._core, a._core, b._core), when._model or a._model or b._model)


def implies(condition: Constraint, consequence: Constraint) -> Constraint:
    """Returns ``~condition | consequence``."""
    return ~constraint_of(condition, "condition") | constraint_of(consequence, "consequence")


def one_of(a: Number, domain: Values) -> Constraint:
    """Returns whether ``a`` is in the domain."""
    given = expression_of(a, "a")
    return Constraint(_core.csp_one_of(given._core, domain_of(domain)._core), given._model)


def all_different(*expressions: Number) -> Constraint:
    """Returns whether no two of the expressions have the same value."""
    given = [expression_of(a) for a in expressions]
    model = next((a._model for a in given if a._model is not None), None)
    return Constraint(_core.csp_all_different([a._core for a in given]), model)
