"""The search for a model that suits some data."""

from __future__ import annotations

import dataclasses
import os
import sys

from . import _core
from ._given import dataset_of
from ._keywords import explain_keywords

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without the import
if TYPE_CHECKING:
    from typing import Any

    from .datasets import Dataset

__all__ = ["SearchResult", "search"]


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """What a search has found: ``Model(data, **result.model)``, ``train(..., learning_rate=result.learning_rate)``."""

    model: dict[str, Any]  #: Arguments of :class:`Model`: those given, how many blocks, and the best cell, width and dropout.
    learning_rate: float
    loss: float  #: On the part of the training part that was held out in the search, mean of the seeds.
    trials: list[dict[str, Any]]  #: The choices that were trained, with their losses; the first is what it began with.
    seconds: float
    interrupted: bool  #: By Ctrl-C.


def search(
    data: Dataset,
    minutes: float,
    *,
    model: dict[str, Any] | None = None,
    learning_rate: float | None = None,
    steps: int | None = None,
    record: str | os.PathLike[str] | None = None,
    resume: bool = False,
    seed: int = 0,
    device: str = "cpu",
    precision: str | None = None,
    threads: int = 0,
    progress: bool = True,
) -> SearchResult:
    """Trains many models on the beginning of the training part and scores them on the rest of it.

    Random choices of cell, width, dropout and learning rate come first, then neighbours of the best; in the last third of the
    time the best three are trained again with other seeds. What the dataset holds out is not looked at.

    Args:
        data: As for :func:`penstock.train`; not a task that is generated without end.
        minutes: How long.
        model: Arguments of :class:`Model`. Cell, width and dropout that stand here are not searched for.
        learning_rate: Not searched for if given.
        steps: Limit of each training; None: what suits the data.
        record: A file that keeps the trials as they come; ``resume=True`` goes on from it.
        progress: Write a line for each training to standard error.

    Raises:
        Unsupported: The data have no end.
        InvalidArgument: Not one training ended in time.
    """
    given = dict(model or {})
    options = _core.suggest(dataset_of(data), device)
    if steps is not None:
        options.update(max_steps=steps, max_seconds=0.0, max_epochs=0.0)
    options |= {
        "learning_rate": 3e-3 if learning_rate is None else float(learning_rate),
        "seed": seed,
        "device": device,
        "threads": threads,
    }
    if precision is not None:
        options["precision"] = precision
    fixed: list[str] = [name for name in ("cell", "width", "dropout") if name in given]
    if learning_rate is not None:
        fixed.append("learning_rate")

    def report(trial, number, best):
        mean = sum(trial["losses"]) / len(trial["losses"])
        print(
            f"{number + 1:3}  {trial['cell']:8} width {trial['width']:<4} dropout {trial['dropout']:<5g} "
            f"rate {trial['learning_rate']:<8.3g} loss {mean:.5g}{'  the best so far' if best else ''}",
            file=sys.stderr,
        )

    first = _core.suggest_spec(data._dataset, given.get("cell", ""), device) | {"from_last": data._from_last} | given
    found = _core.search(
        data._dataset,
        first,
        options,
        60.0 * minutes,
        os.fspath(record) if record is not None else "",
        resume,
        fixed,
        report if progress else None,
    )
    best = found["best"]
    rate = best.pop("learning_rate")
    return SearchResult(
        model=given | best | {"blocks": first["blocks"]},  # with which every cell was tried
        learning_rate=rate,
        loss=found["loss"],
        trials=found["trials"],
        seconds=found["seconds"],
        interrupted=found["interrupted"],
    )


explain_keywords(globals())
