"""Search for the model that fits a dataset best."""

from __future__ import annotations

import dataclasses
import os
import sys

from . import _core
from ._given import dataset_of
from ._keywords import explain_keywords

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from typing import Any

    from .datasets import Dataset

__all__ = ["SearchResult", "search"]


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """The result of a search: ``Model(data, **result.model)``, ``train(..., learning_rate=result.learning_rate)``."""

    model: dict[str, Any]  #: Arguments of :class:`Model`: those given, ``blocks``, the best cell, width, dropout.
    learning_rate: float  #: The best learning rate.
    loss: float  #: Loss on the rows that the search held out of the training set, mean over the seeds.
    trials: list[dict[str, Any]]  #: All trained choices with their losses. The first is the choice without a search.
    seconds: float  #: Wall time of the search.
    interrupted: bool  #: True after Ctrl-C.


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
    """Searches for the best cell, width, dropout and learning rate, and returns a :class:`SearchResult`.

    Models are trained on the first part of the training set and scored on its rest. The hold-out set of the dataset is
    not used. The search begins with random choices and continues with neighbours of the best one. In the last third of
    the time, the three best choices are trained again with other seeds.

    Args:
        data: A dataset, as for :func:`penstock.train`, but not a built-in task, which has no end.
        minutes: Time of the search, in minutes.
        model: Arguments of :class:`Model`. A cell, width or dropout that is given here stays fixed.
        learning_rate: A fixed learning rate. None: searched for.
        steps: Limit of each training run in batches. None: the default for this kind of data.
        record: A file to which each trial is appended.
        resume: True: continues the search of ``record``.
        seed: Seed of the choices and of the initial weights.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:N"`` or ``"auto"``.
        precision: As for :func:`penstock.train`.
        threads: Number of threads. 0: all that the machine offers.
        progress: True: writes one line per training run to standard error.

    Raises:
        Unsupported: The data have no end.
        InvalidArgument: No training run ended in time.
    """
    given = dict(model or {})
    first = _core.suggest_spec(dataset_of(data), given.get("cell", ""), device) | {"from_last": data._from_last} | given
    request = {
        "max_steps": steps,
        "learning_rate": learning_rate,
        "search": 60.0 * minutes,
        "fixed": [name for name in SEARCHED if name in given],
        "filters": False,
        "seed": seed,
        "device": device,
        "precision": precision,
        "threads": threads,
    }
    path = "" if record is None else os.fspath(record)
    found = _core.search(data._dataset, first, request, path, resume, print_trial if progress else None)
    return search_result(found, given, first["blocks"])


#: Arguments of :class:`Model` that a search chooses unless they are given.
SEARCHED = ("cell", "width", "dropout")


def search_result(found, given, blocks):
    """Returns the library's dictionary of a search as a :class:`SearchResult`; None for None."""
    if found is None:
        return None
    best = found.pop("best")
    rate = best.pop("learning_rate")
    return SearchResult(model=given | best | {"blocks": blocks}, learning_rate=rate, **found)


def print_trial(trial, number, best):
    """Prints the line of a training run."""
    mean = sum(trial["losses"]) / len(trial["losses"])
    print(
        f"{number + 1:3}  {trial['cell']:8} width {trial['width']:<4} dropout {trial['dropout']:<5g} "
        f"rate {trial['learning_rate']:<8.3g} loss {mean:.5g}{'  the best so far' if best else ''}",
        file=sys.stderr,
    )


explain_keywords(globals())
