"""Traces the function of a custom cell: calls it with symbols and records what it computes."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ._symbols import Symbol, Trace, finite, place
from .errors import InvalidArgument


class _Named:
    """Symbols by attribute and by number."""

    def __init__(self, what: str, names: Iterable[str], symbols: list[Symbol]) -> None:
        self._what = what
        self._names = list(names)
        self._symbols = symbols

    def __getattr__(self, name: str) -> Symbol:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._names:
            return self._symbols[self._names.index(name)]
        raise InvalidArgument(place() + f"there is no {self._what} {name!r}; there are {', '.join(self._names) or 'none'}")

    def __getitem__(self, index: int) -> Symbol:
        if not isinstance(index, int) or not -len(self) <= index < len(self):
            raise InvalidArgument(place() + f"{self._what} must be 0 to {len(self) - 1}, not {index!r}")
        return self._symbols[index]

    def __len__(self) -> int:
        return len(self._symbols)


class _Learnt(_Named):
    """Learnt vectors. Unless they are a list of names, others come into being when they are first used."""

    def __init__(self, trace: Trace, given: Iterable[str] | Mapping[str, float] | None) -> None:
        self._trace = trace
        self._open = given is None or isinstance(given, Mapping)
        self.initial = dict(given) if isinstance(given, Mapping) else dict.fromkeys(given or (), 0.0)
        self._given = list(self.initial)
        for name, value in self.initial.items():
            if hasattr(value, "__float__"):
                finite(value, f"the initial value of learnt vector {name!r}")
        super().__init__("learnt vector", list(self.initial), [self._leaf(i) for i in range(len(self.initial))])

    def _leaf(self, index: int) -> Symbol:
        return self._trace.add({"op": "learnt", "index": index})

    def unused(self, outputs: list[Symbol]) -> list[str]:
        """Returns the given vectors that no expression reads: most likely, they are misspelt."""
        read = {operand for node in self._trace.nodes for operand in node.get("of", ())}
        read.update(output._node for output in outputs)
        return [name for name, symbol in zip(self._given, self._symbols) if symbol._node not in read]

    def __getattr__(self, name: str) -> Symbol:
        if self._open and not name.startswith("_") and name not in self._names:
            self._names.append(name)
            self._symbols.append(self._leaf(len(self.initial)))
            self.initial[name] = 0.0
        return super().__getattr__(name)


def _leaves(trace: Trace, operation: str, count: int) -> list[Symbol]:
    return [trace.add({"op": operation, "index": i}) for i in range(count)]


def _arguments(function: Callable[..., Any], source: str, given: dict[str, Any]) -> list[Any]:
    wanted = list(inspect.signature(function).parameters)
    unknown = [name for name in wanted if name not in given]
    if unknown:
        raise InvalidArgument(
            f"{source}: the function may have the parameters {', '.join(given)}, not {', '.join(unknown)}"
        )
    return [given[name] for name in wanted]


def traced(function: Callable[..., Any], name: str, states: tuple[str, ...], gates: int, scan: bool,
           learnt: Iterable[str] | Mapping[str, float] | None) -> tuple[Trace, _Learnt, list[Symbol]]:  # fmt: skip
    """Calls the function of a cell with symbols. Returns the record, the learnt vectors and the results."""
    source = f"cell {name!r}"
    if gates < 1:
        raise InvalidArgument(f"{source}: gates must be at least 1, not {gates}")
    trace = Trace()
    vectors = _Learnt(trace, learnt)
    given: dict[str, Any] = {"wx": _Named("gate of wx", (), _leaves(trace, "input", gates))}
    if not scan:
        given["rh"] = _Named("gate of rh", (), _leaves(trace, "recurrent", gates))
        given["s"] = _Named("state", states, _leaves(trace, "state", len(states)))
    given["p"] = vectors
    result = function(*_arguments(function, source, given))
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    wanted = 2 if scan else len(states)
    what = "a and b of h' = a h + b" if scan else f"the next {', '.join(states)}"
    if len(outputs) != wanted:
        at = f"{os.path.basename(function.__code__.co_filename)}, line {function.__code__.co_firstlineno}"
        raise InvalidArgument(f"{source} ({at}): the function must return {wanted}, {what}, not {len(outputs)}")
    symbols = [trace.symbol(output) for output in outputs]
    unused = vectors.unused(symbols)
    if unused:
        raise InvalidArgument(f"{source}: learnt names {', '.join(map(repr, unused))}, which the function does not use")
    return trace, vectors, symbols
