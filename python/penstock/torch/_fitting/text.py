"""The windows of a text: which bytes a rank reads in a step. They are those of `penstock train`."""

from __future__ import annotations

import dataclasses
import os

import numpy
import torch

from ... import _core
from ...errors import Unsupported

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from ...datasets import Dataset


@dataclasses.dataclass
class Batch:
    """Rows of a batch on a device."""

    tokens: torch.Tensor  #: int64 [B, T]
    labels: torch.Tensor  #: int64 [B, T]; -1: not scored.
    reset: torch.Tensor | None  #: bool [B, T]: a pass begins; None: nowhere.
    first: int  #: Number of the first row in the whole batch.


def share(count: int, parts: int, part: int) -> range:
    """Returns the numbers of one of so many parts, whose sizes differ by at most one."""
    return range(count * part // parts, count * (part + 1) // parts)


class TextWindows:
    """A text in windows of ``length`` bytes, ``rows`` side by side: row b of B begins at byte b/B of the training part.

    Where a row stands follows from the number of the batch alone, so that any rank reads its rows by itself and a
    resumed run goes on at the same place.

    Args:
        data: A dataset of :func:`penstock.open_text`.
        rows: Rows B of the whole batch.
        length: Steps T of a window.
        device: Where batches go.
    """

    def __init__(self, data: Dataset, rows: int, length: int, device: torch.device) -> None:
        self.training, self.held_out = data.training_steps, data.held_out_steps
        self.rows, self.length, self._device = rows, length, device
        self._bytes = _bytes_of(data, self.training + 1 + self.held_out)

    @property
    def scored(self) -> int:
        """Number of scored steps of a whole batch."""
        return self.rows * self.length

    def batch(self, number: int, rows: range) -> Batch:
        """Returns some rows of a training batch."""
        begins = [(self.training * b // self.rows + number * self.length) % self.training for b in rows]
        places = (numpy.array(begins)[:, None] + numpy.arange(self.length)) % self.training
        starts = places == 0  # a pass begins
        if number == 0:
            starts[:, 0] = False  # where there is no past
        reset = torch.from_numpy(starts).to(self._device) if starts.any() else None
        return Batch(self._at(places), self._at(places + 1), reset, rows[0])

    def validation(self, number: int, rank: int, size: int) -> Batch | None:
        """Returns a rank's rows of a validation batch, at least one, or None after the last batch.

        Each held-out byte is scored by one rank. Rows that a rank has for nothing else are not scored.
        """
        rows = max(1, min(self.rows, self.held_out // self.length))
        longest = -(-self.held_out // rows)
        begin = number * self.length
        if begin >= longest:
            return None
        steps = min(self.length, longest - begin)
        own = share(rows, size, rank) or range(1)
        first = numpy.array([self.held_out * b // rows for b in own])
        ends = numpy.array([self.held_out * (b + 1) // rows for b in own])
        places = first[:, None] + begin + numpy.arange(steps)
        inside = (places < ends[:, None]) & bool(share(rows, size, rank))
        places = numpy.where(inside, self.training + places, 0)
        labels = self._at(places + 1).masked_fill(~torch.from_numpy(inside).to(self._device), -1)
        return Batch(self._at(places), labels, None, own[0])

    def _at(self, places):
        return torch.from_numpy(self._bytes[places].astype(numpy.int64)).to(self._device, non_blocking=True)


def _bytes_of(data, size):
    """Returns the bytes of a text as uint8 [size]; those of one plain file stay in the file."""
    files = _files(data._paths)
    if len(files) == 1 and os.path.isfile(files[0]) and os.path.getsize(files[0]) == size:
        return numpy.memmap(files[0], numpy.uint8, "r")
    text = numpy.frombuffer(b"".join(_core.read_source(file) for file in files), numpy.uint8)
    if len(text) != size:
        raise Unsupported(
            f"{data._source}: its {size:,} bytes cannot be read again (now {len(text):,}): give files that stay, in UTF-8; "
            "penstock train reads the others"
        )
    return text


def _files(paths):
    """Returns the files of paths, folders replaced by what is in them, ordered by path, without what is hidden."""
    found = []
    for path in paths:
        inside = []
        for folder, folders, names in os.walk(path):
            folders[:] = [name for name in folders if not name.startswith(".")]
            inside += [os.path.join(folder, name) for name in names if not name.startswith(".")]
        found += sorted(inside) if os.path.isdir(path) else [path]
    return found


def check_kind(data: Dataset) -> None:
    """Raises Unsupported for data that are not a text."""
    description = data.description
    if description["task"] == "language":
        return
    kind = {"forecast": "a series", "classify": "labels"}[description["task"]]
    if description["sample_rate"]:
        kind = "a sound"
    elif not data.training_steps:
        kind = "a built-in task"
    raise Unsupported(f"penstock.torch.fit trains on texts, not on {kind}: penstock.train and 'penstock train' do")
