"""The batches of a run, which are those of `penstock train`. Each rank takes its rows of them, and of texts reads no others."""

from __future__ import annotations

import dataclasses
import json

import numpy
import torch

from ... import _core
from ...errors import Unsupported

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from typing import Any

    from ...datasets import Dataset
    from ...models import Model
    from .group import Group


@dataclasses.dataclass
class Batch:
    """Some rows of a batch, on a device."""

    inputs: torch.Tensor  #: Tokens int64 [B, T], or features float32 [B, T, I].
    labels: torch.Tensor | None  #: int64 [B, T]; -1: not scored.
    targets: torch.Tensor | None  #: float32 [B, T, O]
    weights: torch.Tensor | None  #: float32 [B, T, O]; 0: not scored.
    reset: torch.Tensor | None  #: bool [B, T]: a sequence begins; None: nowhere.
    first: int  #: Number of the first row in the whole batch.


def share(count: int, parts: int, part: int) -> range:
    """Returns the numbers of one of so many parts, whose sizes differ by at most one."""
    return range(count * part // parts, count * (part + 1) // parts)


class WholeBatch:
    """A batch of all ranks.

    Args:
        arrays: What the library read: all rows, or those of this rank.
        device: Where parts go.
        rows: Rows B of the batch. None: those that were read.
        first: Number of the first row that was read.

    Attributes:
        rows: Its rows B.
        continues: True: its rows continue those of the batch before.
        positions: Steps that its rows have.
        weight: What the sum of its loss is divided by.
    """

    def __init__(self, arrays: dict[str, Any], device: torch.device, rows: int | None = None, first: int = 0) -> None:
        self._arrays, self._device, self._first, self.continues = arrays, device, first, arrays["continues"]
        inputs = arrays["features"] if arrays["tokens"] is None else arrays["tokens"]
        read, steps = inputs.shape[:2]
        self.rows = read if rows is None else rows
        lengths, labels = arrays["lengths"], arrays["labels"]
        self.positions = self.rows * steps if lengths is None else int(lengths.sum())
        self.weight = float(arrays["weights"].sum(dtype="f8") if labels is None else numpy.count_nonzero(labels >= 0))
        if rows is not None:
            self.weight *= rows / read  # all steps of a text are scored
        if lengths is not None and arrays["features"] is not None:  # what pads a row may be anything
            arrays["features"][numpy.arange(steps) >= lengths[:, None]] = 0

    def part(self, rows: range) -> Batch:
        """Returns some of its rows; without any, row 0, which is not scored: a rank always has work."""
        taken = slice(rows.start - self._first, rows.stop - self._first) if rows else slice(0, 1)
        first = rows.start if rows else 0

        def tensor(name, dtype=None, unscored=0):
            array = self._arrays[name]
            if array is None:
                return None
            part = torch.from_numpy(array[taken] if rows else numpy.full_like(array[taken], unscored))
            return part.to(self._device, dtype, non_blocking=True)

        reset = None if self._arrays["reset"] is None else tensor("reset", torch.bool)
        inputs = tensor("features") if self._arrays["tokens"] is None else tensor("tokens", torch.int64)
        return Batch(inputs, tensor("labels", torch.int64, -1), tensor("targets"), tensor("weights"), reset, first)


class Batches:
    """The batches of a dataset, read through the library on every rank. Of texts, each rank reads only its rows.

    Args:
        model: The model that is trained, which decides with how much of their past held-out rows are read.
        data: A dataset.
        rows: Rows B of a batch.
        length: Steps T of a window.
        group: The ranks.
    """

    def __init__(self, model: Model, data: Dataset, rows: int, length: int, group: Group) -> None:
        self.training, self.held_out = data.training_steps, data.held_out_steps
        self.rows, self._length, self._device = rows, length, group.device
        self._model, self._data = model._model, data._dataset
        self._begin = self._data.position()
        place = json.loads(self._begin)
        self._own = share(rows, group.size, group.rank)
        self._fresh, self._numbers = False, numpy.zeros(0, "i8")  # of restore()
        self._shares = group.size > 1 and place["kind"] == "text" and not place["numbers"]
        if self._shares:
            self.restore(self._begin)

    def next(self) -> WholeBatch:
        """Returns the next training batch."""
        if not self._shares:
            return WholeBatch(self._data.next(self.rows, self._length), self._device)
        arrays = self._data.next(len(self._own), self._length)
        if self._fresh and arrays["reset"] is not None:  # no step before the first ones, so nothing to be reset there
            arrays["reset"][:, 0] = 0
            arrays["reset"] = arrays["reset"] if arrays["reset"].any() else None
        self._fresh = False
        self._numbers = (self._numbers + self._length) % self.training
        return WholeBatch(arrays, self._device, self.rows, self._own.start)

    def validation(self, number: int) -> WholeBatch | None:
        """Returns a held-out batch, or None after the last one."""
        arrays = _core.held_out_batch(self._model, self._data, number, self.rows, self._length)
        return None if arrays is None else WholeBatch(arrays, self._device)

    def position(self) -> str:
        """Returns where the next training batch is, the same on all ranks."""
        if not self._shares:
            return self._data.position()
        return json.dumps({**json.loads(self._begin), "numbers": self._numbers.tolist()})

    def restore(self, position: str) -> None:
        """Continues at a position of any number of ranks."""
        if not self._shares:
            return self._data.restore(position)
        place = json.loads(position)
        self._fresh = not place["numbers"]
        starts = place["numbers"] or [self.training * row // self.rows for row in range(self.rows)]
        self._numbers = numpy.array(starts, "i8")  # the next step of each row of all ranks
        self._data.restore(json.dumps({**place, "numbers": starts[self._own.start : self._own.stop]}))

    def close(self) -> None:
        """Leaves the dataset as it was found."""
        self._data.restore(self._begin)


def check_kind(data: Dataset) -> None:
    """Raises Unsupported for data that have no end."""
    if not data.training_steps:
        raise Unsupported("penstock.torch.fit trains on data with an end, not on a built-in task: penstock.train does")
