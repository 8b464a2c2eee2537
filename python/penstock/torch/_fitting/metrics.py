"""What a run tells: reports to callbacks, and the metrics file of `penstock train` as JSON lines. On rank 0 alone."""

from __future__ import annotations

import dataclasses
import json
import math

from ...training import Evaluation, Progress

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TextIO


class Metrics:
    """The reports of a run.

    Args:
        path: File for JSON lines; None: none. A resumed run appends to it.
        resumed: True: the run is resumed.
        first: True on the rank that reports.
        callback: Called with each :class:`penstock.training.Progress`.
        bar: A progress bar of penstock._progress.
    """

    def __init__(self, path: str | None, resumed: bool, first: bool, callback: Callable[[Progress], object] | None,
                 bar: Any) -> None:  # fmt: skip
        self.first = first
        self._callback, self._bar = callback, bar
        self._file: TextIO | None = open(path, "a" if resumed else "w") if path and first else None

    def run(self, spec: dict[str, Any], parameters: int, options: dict[str, Any], note: dict[str, Any]) -> None:
        self._write({"kind": "run", "architecture": spec, "parameters": parameters, "options": options, **note})

    def report(self, progress: Progress) -> None:
        if not self.first:
            return
        self._write({"kind": "train", **_fields(progress)})
        self._bar.show(progress)
        if self._callback is not None:
            self._callback(progress)

    def validated(self, progress: Progress, evaluation: Evaluation) -> None:
        if not self.first:
            return
        scores = {"step": progress.step, "seconds": progress.seconds, **dataclasses.asdict(evaluation)}
        self._write({"kind": "validation", **scores})
        self._bar.validated(progress, evaluation)

    def end(self, progress: Progress, evaluation: Evaluation | None, ends: dict[str, Any]) -> None:
        scores = None if evaluation is None else dataclasses.asdict(evaluation)
        self._write({"kind": "final", **_fields(progress), **ends, "validation": scores})

    def close(self) -> None:
        self._bar.close()
        if self._file is not None:
            self._file.close()

    def _write(self, record):
        if self._file is not None:
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()


def _fields(progress):
    fields = dataclasses.asdict(progress)
    warning = fields.pop("warning")
    del fields["seconds_left"]
    fields["bits_per_step"] = progress.loss / math.log(2)
    return fields | ({"warning": warning} if warning else {})


def evaluation_of(loss: float, weight: float, scored: float, correct: float, of_classes: bool) -> Evaluation:
    """Returns the scores of sums over scored steps; ``of_classes``: of the cross-entropy."""
    mean = loss / weight if weight else 0.0
    if not of_classes:
        return Evaluation(loss=mean, bits_per_step=0.0, accuracy=0.0, scored=int(scored))
    accuracy = correct / scored if scored else 0.0
    return Evaluation(loss=mean, bits_per_step=mean / math.log(2), accuracy=accuracy, scored=int(scored))
