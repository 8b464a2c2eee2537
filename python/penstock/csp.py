"""A constraint solver over whole numbers: variables, named constraints, a cost, and explanations.

>>> from penstock import csp
>>> m = csp.Model()
>>> warps = m.var("warps", [1, 2, 4, 8])
>>> tile = m.var("tile", csp.divisors(768))
>>> m.require("shared memory fits", tile * 768 * 2 <= 232448)
>>> m.require("tiles cover the units", tile * warps >= 64)
>>> m.minimise(csp.ceil_div(768, tile) * 3 + warps)
>>> m.solve()
Solution(warps = 1, tile = 128, cost 19)

Arithmetic is exact. A constraint in which a number could leave 62 bits, or a divisor could be zero, is an error that
names it. The package's documentation describes the solver, and the text format that :func:`parse` reads.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from . import _core
from ._csp import (
    LARGEST,
    Constraint,
    Domain,
    Expression,
    Number,
    Values,
    all_different,
    ceil_div,
    constraint_of,
    divisors,
    domain_of,
    expression_of,
    implies,
    maximum,
    minimum,
    multiples,
    one_of,
    powers_of_two,
    select,
    truncated_div,
    values,
    whole_number,
)
from ._keywords import explain_keywords
from ._pickling import refuse_pickle
from .errors import Interrupted, InvalidArgument

__all__ = [
    "Alternative",
    "Constraint",
    "Domain",
    "Explanation",
    "Expression",
    "LimitReached",
    "Model",
    "Solution",
    "all_different",
    "ceil_div",
    "divisors",
    "implies",
    "maximum",
    "minimum",
    "multiples",
    "one_of",
    "parse",
    "powers_of_two",
    "select",
    "truncated_div",
    "values",
]

class LimitReached(Interrupted):
    """A search exceeded one of the limits of its model; the message says which one."""


class Solution(Mapping[str, int]):
    """A value for every variable: a mapping from names. ``solution[expression]`` is the value of any expression."""

    def __init__(self, core: _core.CspSolution, model: Model) -> None:
        self._core = core
        self._model = model
        self._values = dict(zip(model._variables, core.values()))

    __reduce_ex__ = refuse_pickle("dict(solution) has its values")

    @property
    def cost(self) -> float:
        """The value that was minimised or maximised; 0 without a cost."""
        return self._core.cost()

    def __getitem__(self, key: str | Expression) -> int:
        if isinstance(key, Expression):
            return self._core.value_of(key._core)
        if key not in self._values:
            raise KeyError(f"no variable '{key}', only {', '.join(self._values)}")
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        cost = f", cost {self.cost:.17g}" if self._model._core.has_cost() else ""
        return f"Solution({self._core.text()}{cost})"


@dataclass(frozen=True)
class Alternative:
    """A value that the best solution does not have, and why.

    Attributes:
        variable: Name of the variable.
        value: Its other value.
        excluded_by: Names of constraints that together exclude the value; empty if there are solutions with it.
        cost: Cost of the best solution with this value.
    """

    variable: str
    value: int
    excluded_by: list[str]
    cost: float


@dataclass(frozen=True)
class Explanation:
    """What :meth:`Model.explain` found. As a string, it is a text for a person.

    Attributes:
        best: The best solution; None if there is none.
        conflict: Without a solution: names of a minimal set of constraints that cannot hold together.
        alternatives: The other values of the variables.
        left_out: Number of values of long domains that were not examined.
    """

    best: Solution | None
    conflict: list[str]
    alternatives: list[Alternative]
    left_out: int
    text: str

    def __str__(self) -> str:
        return self.text


class Model:
    """A problem: variables, constraints and a cost.

    A search holds the interpreter's lock: other threads wait for it. Ctrl-C ends it.
    """

    def __init__(self) -> None:
        self._core = _core.CspModel()
        self._variables: dict[str, Expression] = {}
        self._functions: list[Callable] = []  # the core borrows them
        self._is_searched = False

    def _changeable(self) -> _core.CspModel:
        if self._is_searched:
            raise InvalidArgument("the model is being searched: change it before or after, not in a function that it calls")
        return self._core

    @contextlib.contextmanager
    def _search(self) -> Iterator[_core.CspModel]:
        core = self._changeable()
        self._is_searched = True
        try:
            yield core
        except Interrupted as error:
            raise LimitReached(str(error)) from None
        finally:
            self._is_searched = False

    def _solution(self, core: _core.CspSolution | None) -> Solution | None:
        return None if core is None else Solution(core, self)

    def var(self, name: str, domain: Values) -> Expression:
        """Adds a variable.

        Args:
            name: Its name, which no other variable has.
            domain: Its values: a list or a ``range``, or what :func:`values`, :func:`divisors`, :func:`powers_of_two`
                and :func:`multiples` return.
        """
        of = domain_of(domain)
        self._variables[name] = Expression(self._changeable().var(name, of._core), self)
        return self._variables[name]

    def call(
        self, name: str, arguments: Sequence[Number], function: Callable[..., int], low: int, high: int
    ) -> Expression:
        """Returns an expression for the result of a function, such as the bytes of a memory layout.

        Args:
            name: Its name in texts.
            arguments: Up to 8 expressions.
            function: Takes their values and returns a whole number; always the same for the same values.
            low: The least number that it returns.
            high: The largest.
        """
        given = [expression_of(argument, "an argument")._core for argument in arguments]
        core = self._changeable().call(name, given, function, whole_number(low, "low"), whole_number(high, "high"))
        self._functions.append(function)
        return Expression(core, self)

    def require(self, name: str | Constraint, constraint: Constraint | None = None) -> None:
        """Adds a constraint, as ``require("fits", a <= b)`` or ``require(a <= b)``, which is named by its text."""
        core = self._changeable()
        if isinstance(name, Constraint) and constraint is None:
            core.require(None, name._core)
        elif isinstance(name, str):
            core.require(name, constraint_of(constraint, "constraint")._core)
        else:
            raise TypeError(f"a constraint must be a Constraint, such as a <= b, not {name!r}")

    def minimise(self, cost: Number | Callable[[Solution], float]) -> None:
        """Sets the cost: an expression, or a function of whole solutions, which the solver cannot bound before.

        The last call of ``minimise`` or ``maximise`` counts.
        """
        core = self._changeable()
        if callable(cost):
            self._functions.append(lambda solution: cost(Solution(solution, self)))
            core.minimise_function(self._functions[-1])
        else:
            core.minimise(expression_of(cost, "cost")._core)

    def maximise(self, value: Number) -> None:
        """Sets the expression that solutions maximise."""
        self._changeable().maximise(expression_of(value, "value")._core)

    def limit(self, *, seconds: float = math.inf, bytes: int = LARGEST, solutions: int = LARGEST) -> None:
        """Sets limits of all searches from now on. A search that exceeds one raises :class:`LimitReached`.

        Args:
            seconds: Time, counted from this call.
            bytes: Approximate memory of a search and its solutions.
            solutions: Number of solutions that :meth:`all` may find.
        """
        self._changeable().limit(float(seconds), whole_number(bytes, "bytes"), whole_number(solutions, "solutions"))

    def solve(self) -> Solution | None:
        """Returns the best solution, or any if there is no cost; None if there is none."""
        with self._search() as core:
            return self._solution(core.solve())

    def first(self) -> Solution | None:
        """Returns any solution, whatever its cost; None if there is none."""
        with self._search() as core:
            return self._solution(core.first())

    def all(self, most: int | None = None) -> list[Solution]:
        """Returns the ``most`` best solutions, or any if there is no cost, ordered by cost. None: all solutions."""
        number = LARGEST if most is None else whole_number(most, "most")
        if number < 0:
            raise InvalidArgument(f"most must be 0 or more, not {most}")
        with self._search() as core:
            return [Solution(solution, self) for solution in core.all(number)]

    def conflict(self) -> list[str]:
        """Returns names of a minimal set of constraints that cannot hold together; empty if there is a solution."""
        with self._search() as core:
            return core.conflict()

    def explain(self, most: int = 32) -> Explanation:
        """Solves the problem, and says of each variable's ``most`` nearest other values what excludes or costs them."""
        with self._search() as core:
            found = core.explain(whole_number(most, "most"))
        best, conflict = self._solution(found["best"]), found["conflict"]
        alternatives = [Alternative(*other) for other in found["alternatives"]]
        return Explanation(best, conflict, alternatives, found["left_out"], found["text"])

    __reduce_ex__ = refuse_pickle("build it in the process that solves it")

    @property
    def variables(self) -> dict[str, Expression]:
        """The variables by name, in the order in which they were added."""
        return dict(self._variables)

    def constraint_text(self, name: str) -> str:
        """Returns the texts of the constraints of that name, one after the other."""
        return self._core.constraint_text(name)

    def __repr__(self) -> str:
        return f"Model({', '.join(self._variables)})"


def parse(text: str) -> Model:
    """Reads a problem in the text format of ``penstock csp``.

    Raises:
        BadInput: The text has a mistake; the message begins with its line and column.

    >>> parse("x in 1..9; x * x > 50; minimise x").solve()
    Solution(x = 8, cost 8)
    """
    model = Model()
    model._core = _core.CspModel.parse(text)
    for name in model._core.variables():
        variable = model._core.variable(name)
        assert variable is not None
        model._variables[name] = Expression(variable, model)
    return model


explain_keywords(globals())
