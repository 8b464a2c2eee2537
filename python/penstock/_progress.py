"""Progress bars of a training run, on one line of a terminal or in a notebook."""

from __future__ import annotations

import math
import sys

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from .training import Progress


def _duration(seconds):
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class NoBar:
    def show(self, progress: Progress):
        pass

    def validated(self, progress: Progress, evaluation):
        pass

    def close(self):
        pass


class TextBar:
    """One line of a terminal, rewritten at every report."""

    width = 24

    def __init__(self, stream, task, unit) -> None:
        self._stream = stream
        self._task, self._unit = task, unit
        self._validation = None
        self._longest = 0

    def line(self, progress: Progress):
        """Returns the text of the bar."""
        done = int(self.width * min(max(progress.fraction, 0.0), 1.0))
        fields = [f"{100 * progress.fraction:3.0f} % [{'#' * done}{'.' * (self.width - done)}]", self._loss(progress)]
        if self._validation is not None:
            fields.append("val " + self._score(self._validation))
        fields += [f"step {progress.step}", f"{_duration(progress.seconds)} < {_duration(progress.seconds_left)}"]
        return "  ".join(fields)

    def _loss(self, progress):
        if self._task == "language":
            return f"{progress.loss / math.log(2):.3f} bits/{self._unit}"
        if self._task == "classify":
            return f"loss {progress.loss:.4g}  acc {100 * progress.accuracy:.1f} %"
        return f"loss {progress.loss:.4g}"

    def _score(self, evaluation):
        if self._task == "language":
            return f"{evaluation.bits_per_step:.3f}"
        return f"{100 * evaluation.accuracy:.1f} %" if self._task == "classify" else f"{evaluation.loss:.4g}"

    def show(self, progress: Progress):
        text = self.line(progress)
        self._stream.write("\r" + text.ljust(self._longest))
        self._stream.flush()
        self._longest = max(self._longest, len(text))
        if progress.warning:
            self._stream.write(f"\nwarning: {progress.warning}\n")

    def validated(self, progress: Progress, evaluation):
        self._validation = evaluation
        self.show(progress)

    def close(self):
        if self._longest:
            self._stream.write("\n")
            self._stream.flush()


class NotebookBar(TextBar):
    """One output of a notebook cell, replaced at every report."""

    def __init__(self, display, task, unit) -> None:
        super().__init__(None, task, unit)
        self._display = display
        self._handle = None
        self._warnings: list[str] = []

    def show(self, progress: Progress):
        if progress.warning:
            self._warnings.append(f"warning: {progress.warning}")
        text = "\n".join([*self._warnings[-3:], self.line(progress)])
        bundle = {"text/plain": text}
        if self._handle is None:
            self._handle = self._display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)

    def close(self):
        pass


def bar_for(progress, task, unit):
    """Returns the progress bar for the argument ``progress`` of :func:`penstock.train`; ``unit`` is what is scored."""
    if progress is False or progress is None:
        return NoBar()
    if progress is not True:
        return TextBar(progress, task, unit)
    if "ipykernel" in sys.modules:
        from IPython.display import display

        return NotebookBar(display, task, unit)
    return TextBar(sys.stderr, task, unit) if sys.stderr is not None and sys.stderr.isatty() else NoBar()
