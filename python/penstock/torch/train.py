"""``python -m penstock.torch.train DATA ...``: ``penstock train`` on many devices, under torchrun and the like.

Its options and files are those of ``penstock train``; ``--help`` lists them, and docs/distributed.md explains the others.
"""

from __future__ import annotations

import argparse
import dataclasses
import glob
import inspect
import json
import os
import re
import sys

import penstock
from penstock import _core
from penstock.datasets import scored_unit

from ._fit import fit
from ._fitting.checkpoints import complete, remove
from ._fitting.group import Group, RankFailure
from ._fitting.run import kind_of_device
from ._fitting.watch import Watch

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

#: Options whose name in the program is not that of the argument.
_NAMES = {"convolution": "conv", "feed_forward": "ffn", "keep_best": "keep-last", "carry_state": "no-carry",
          "end_norms": "norms", "inputs": "columns", "targets": "target-columns", "from_last": "no-changes",
          "autoregression": "no-linear", "filters": "no-filters"}  # fmt: skip
#: Options that are lists.
_LISTS = ("inputs", "targets", "known", "categories", "calendar")
#: Arguments that are no options of the command line.
_NONE = {"model", "data", "path", "callback", "progress", "log_every", "origin"}
#: The functions that open each kind of data.
_OPENERS: dict[str, Callable[..., Any]] = {"text": penstock.open_text, "series": penstock.open_series, "labelled": penstock.open_labelled,
            "labelled texts": penstock.open_labelled_texts}  # fmt: skip


def _help_of(function: Callable[..., object]) -> dict[str, str]:
    """Returns the texts about arguments in a docstring."""
    text = inspect.getdoc(function) or ""
    found = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text, re.M)
    return {name: re.sub(r"\s+|``|:\w+:", " ", about).replace("%", "%%").strip() for name, about in found}


def _kind_of(annotation: str) -> type:
    for kind in (int, float):
        if re.match(rf"{kind.__name__}\b", annotation):
            return kind
    return str


def _add(group: Any, function: Callable[..., object], texts: dict[str, str]) -> None:
    """Adds the keyword arguments of a function as options. Those not given are left out of the result."""
    for name, parameter in inspect.signature(function).parameters.items():
        if name in _NONE or f"--{_option(name)}" in group._option_string_actions:  # of any group
            continue
        option, usual, annotation = f"--{_option(name)}", parameter.default, str(parameter.annotation)
        about = texts.get(name, "")
        settings: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": about}
        if name in ("keep_best", "from_last", "autoregression") or usual is True:
            settings |= {"action": "store_const", "const": False}
        elif usual is False and "str" not in annotation:
            settings |= {"action": "store_true"}
        elif name == "header":
            settings |= {"choices": ("yes", "no")}
        elif name in _LISTS:
            settings |= {"type": lambda text: text.split(","), "metavar": "A,B"}
        elif name == "end_norms":
            settings |= {"choices": ("all", "between")}
        elif name == "compile":
            settings |= {"nargs": "?", "const": True, "metavar": "BACKEND"}
        else:
            settings |= {"type": _kind_of(annotation), "metavar": name.upper()}
        group.add_argument(option, **settings)


def _option(name):
    return _NAMES.get(name, name).replace("_", "-")


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m penstock.torch.train", description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+", metavar="DATA", help="Texts, token ids or tables, as for penstock train")
    settings = {
        name: about.replace("%", "%%") + (f": {', '.join(choices)}" if choices else "")
        for name, _, about, choices in _core.train_settings()
    }
    _add(parser.add_argument_group("Training"), fit, _help_of(penstock.train) | settings | _help_of(fit))
    _add(parser.add_argument_group("Model"), penstock.Model, _help_of(penstock.Model))
    about_data = parser.add_argument_group("Data")
    about_data.add_argument("--as", dest="kind", choices=("text", "series", "labelled", "texts"), help="Kind of data")
    for opener in _OPENERS.values():
        _add(about_data, opener, _help_of(opener))
    files = parser.add_argument_group("Files and reports")
    files.add_argument("--init", metavar="FILE", help="Start from the weights of this model")
    files.add_argument("-o", "--output", metavar="FILE", default="model.safetensors", help="File of the trained model")
    files.add_argument("--force", action="store_true", help="Overwrite an existing model or checkpoint")
    files.add_argument("--json", action="store_true", help="Print the result as one JSON object")
    files.add_argument("-q", "--quiet", action="store_true", help="Print only warnings and errors")
    files.add_argument("--config", metavar="FILE", help="Read options from this file, as penstock train does")
    return parser


def _from_config(path: str) -> list[str]:
    """Returns the options of a file with lines such as 'width = 64' as arguments.

    Raises:
        BadInput: A line is no option.
        IoFailure: The file cannot be read.
    """
    arguments = []
    try:
        with open(path) as file:
            lines = [line.partition("#")[0].strip() for line in file]
    except OSError as error:
        raise penstock.IoFailure(f"--config: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line or line == "[train]":
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals:
            raise penstock.BadInput(f"{path}, line {number}: {line!r} is no option: write 'width = 64'")
        if value == "true":
            arguments.append(f"--{name}")
        elif value != "false":
            arguments.append(f"--{name}={value.strip(chr(34))}")
    return arguments


def _parse(arguments):
    given = parser().parse_args(arguments)
    if given.config:
        given = parser().parse_args([*_from_config(given.config), *arguments])
    return given


def _picked(given, function):
    names = inspect.signature(function).parameters
    return {name: value for name, value in vars(given).items() if name in names and name not in _NONE}


def _open(given):
    for path in given.data:
        if path.startswith("task:") or not (os.path.exists(path) or glob.glob(path) or path == "-"):
            what = "a built-in task, which 'penstock train' trains on" if path.startswith("task:") else "no such file"
            raise penstock.IoFailure(f"{path}: {what}")
    kind = {None: _core.guess_kind(given.data), "texts": "labelled texts"}.get(given.kind, given.kind)
    if given.kind is None and (getattr(given, "bytes", False) or hasattr(given, "tokens")):
        kind = "text"
    opener = _OPENERS[kind]
    every = set().union(*(inspect.signature(each).parameters for each in _OPENERS.values()))
    own = inspect.signature(opener).parameters
    foreign = next((name for name in vars(given) if name in every - {"seed"} and name not in own), None)
    if foreign is not None:
        raise penstock.InvalidArgument(f"--{_option(foreign)} does not apply: {given.data[0]} is read as {kind}")
    options = _picked(given, opener)
    if "header" in options:
        options["header"] = options["header"] == "yes"
    if given.init and "origin" in own:
        options["origin"] = penstock.Model.load(given.init)
    return opener(given.data, **options)


def _make_model(given, data):
    device = "cuda" if getattr(given, "device", "cpu") == "auto" else getattr(given, "device", "cpu")
    if given.init:
        return penstock.Model.continue_from(
            penstock.Model.load(given.init), data, dropout=getattr(given, "dropout", None)
        )
    spec = _picked(given, penstock.Model) | {"device": device}
    if "end_norms" in spec:
        spec["end_norms"] = spec["end_norms"] == "all"
    cell = spec.get("cell", "")
    if cell.endswith(".json"):
        spec["cell"] = penstock.load_cell(cell)
    return penstock.Model(data, **spec)


def _check_files(given, checkpoint):
    """Raises unless the files of the run may be written."""
    if given.force:
        return
    if os.path.exists(given.output):
        raise penstock.InvalidArgument(f"{given.output} exists: --force overwrites it, -o names another file")
    if not getattr(given, "resume", False) and complete(checkpoint):
        raise penstock.InvalidArgument(
            f"{checkpoint} has checkpoints of a run: --resume continues it, --force starts anew, --checkpoint names "
            "another folder"
        )


class _Lines:
    """Progress as lines of a log, every few seconds."""

    def __init__(self, quiet: bool, data: penstock.Dataset) -> None:
        self._quiet, self._next = quiet, 0.0
        self._task, self._unit = data.description["task"], scored_unit(data.description)[:-1]

    def __call__(self, progress: penstock.Progress) -> None:
        if progress.warning:
            print(f"warning: {progress.warning}", file=sys.stderr, flush=True)
        if self._quiet or progress.seconds < self._next or sys.stderr.isatty():
            return
        self._next = progress.seconds + 5.0
        bits = f"{progress.loss / 0.6931471805599453:.3f} bits/{self._unit}"
        print(
            f"{100 * progress.fraction:.0f} %  {bits if self._task == 'language' else f'loss {progress.loss:.4g}'}  "
            f"{progress.positions_per_second / 1e3:.1f} k steps/s  step {progress.step}",
            file=sys.stderr, flush=True,
        )  # fmt: skip


def _first() -> bool:
    return int(os.environ.get("RANK", "0")) == 0


def _show(given, data, model, result):
    if given.json:
        print(json.dumps({"model": given.output, "steps": result.last.step, **dataclasses.asdict(result)}))
        return
    if given.quiet:
        return
    print(f"done   {result.last.step:,} steps in {result.last.seconds:.0f} s, {result.last.epoch:.2f} epochs")
    if model.history.get("score"):
        print(f"valid  {model.history['score']}")
    print(f"saved  {given.output}")


def run(given: argparse.Namespace) -> int:
    """Trains and saves. Returns the exit status."""
    checkpoint = getattr(given, "checkpoint", None) or f"{given.output}.checkpoint"
    own = not hasattr(given, "checkpoint")
    group = Group(kind_of_device(getattr(given, "device", "cpu")))
    with Watch(group, max(1.0, getattr(given, "rank_timeout", 30.0))):  # also while a rank reads its files
        data, model = group.together(lambda: _begin(given, checkpoint))
        options = _picked(given, fit) | {"checkpoint": checkpoint, "progress": not given.quiet}
        result = fit(model, data, callback=_Lines(given.quiet, data), **options)
        group.together(lambda: _end(given, data, model, result, checkpoint, own))
    if result.checkpoint_error and (result.interrupted or not own):
        print(f"error: {result.checkpoint_error}", file=sys.stderr)
        return 1
    return 1 if result.gave_up else 128 + 15 if result.interrupted else 0


def _begin(given, checkpoint):
    """Returns the data and the model of this rank."""
    if _first():
        _check_files(given, checkpoint)
    data = _open(given)
    model = _make_model(given, data)
    if _first() and not given.quiet and not given.json:
        print(f"data   {data!r}\nmodel  {model.parameter_count:,} parameters: {json.dumps(model.spec)}", flush=True)
    return data, model


def _end(given, data, model, result, checkpoint, own):
    """Saves the model on rank 0, and removes the run's own checkpoints, which are needed no more."""
    if _first():
        try:
            model.save(given.output)
        except penstock.IoFailure as failure:
            raise penstock.IoFailure(f"{failure}; make room, then --resume goes on from {checkpoint}") from failure
        if own and not result.interrupted:
            remove(checkpoint)
        _show(given, data, model, result)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns the exit status: 0, 1 after an error, 143 after SIGTERM or Ctrl-C."""
    given = _parse(sys.argv[1:] if arguments is None else list(arguments))
    try:
        return run(given)
    except (penstock.Error, OSError) as error:
        rank, size = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
        where = f"rank {rank} of {size}: " if size != "1" and not isinstance(error, RankFailure) else ""
        print(f"error: {where}{error}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # DistributedDataParallel keeps its group for ever, and a thread of gloo's that still lets go of a tensor while Python
    # ends aborts the process.
    os._exit(status)
