"""penstock.torch.fit: penstock.train in PyTorch, on one device or many."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile

import torch

from .. import _core
from .._keywords import warn_caller
from .._library_objects import dataset_of, model_of
from .._progress import NoBar, bar_for
from ..errors import Unsupported
from ..training import TrainResult, _history
from ._fitting.checkpoints import Checkpoints
from ._fitting.group import Group
from ._fitting.metrics import Metrics
from ._fitting.options import resolve
from ._fitting.placement import Placement
from ._fitting.signals import Stop
from ._fitting.text import TextWindows, check_kind
from ._fitting.trainer import Trainer
from ._fitting.watch import Watch
from ._model import SequenceModel, write_model

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TextIO

    from ..datasets import Dataset
    from ..models import Model
    from ..training import Progress


def fit(
    model: Model,
    data: Dataset,
    *,
    steps: int | None = None,
    seconds: float | None = None,
    epochs: float | None = None,
    seeds: int = 1,
    filters: bool = True,
    batch: int | None = None,
    length: int | None = None,
    learning_rate: float | None = None,
    weight_decay: float = 0.01,
    warmup: float = 0.05,
    clip: float = 1.0,
    rollbacks: int = 10,
    carry_state: bool = True,
    loss: str = "auto",
    optimizer: str = "adamw",
    validate_every: float | None = None,
    validate_steps: int | None = None,
    patience: int | None = None,
    keep_best: bool | None = None,
    log_every: float = 0.5,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 30.0,
    resume: bool = False,
    metrics: str | os.PathLike[str] | None = None,
    tensorboard: str | os.PathLike[str] | None = None,
    seed: int = 0,
    device: str | None = None,
    precision: str | None = None,
    threads: int = 0,
    exact: bool = False,
    callback: Callable[[Progress], object] | None = None,
    progress: bool | TextIO = True,
    sharding: str = "ddp",
    accumulate: int = 1,
    compile: bool | str = False,
    schedule: str = "cosine",
    average: float = 0.0,
    checkpoints: int = 2,
    rank_timeout: float = 30.0,
) -> TrainResult:
    """Trains a model of a text with PyTorch, on one device or, under torchrun and the like, on many.

    It trains as :func:`penstock.train` does: the same batches, dropout masks, loss, schedule, early stopping and guard
    against instability. The loss curve is the same for any number of ranks, up to rounding. Call it on every rank with
    the same arguments; the model gets the weights on rank 0, and there the callback is called.

    The arguments up to ``progress`` are those of :func:`penstock.train`, with these differences:

    * ``batch`` is the global batch, which the ranks share.
    * ``optimizer`` is ``"adamw"``, ``"sgd"``, ``"lion"``, ``"rmsprop"`` or ``"muon"``: Muon for the matrices of the
      blocks, with AdamW for the rest.
    * ``checkpoint`` is a folder that all ranks see. It holds ``checkpoints`` checkpoints, each one resumed by any number
      of ranks.
    * ``precision`` is ``"full"`` or ``"bf16"`` (autocast).
    * ``seeds``, ``exact`` and ``tensorboard`` are refused.

    Args:
        model: A :class:`penstock.Model` made for this data.
        data: A dataset of :func:`penstock.open_text`.
        sharding: ``"ddp"``: each rank has the whole model. ``"fsdp"``: each has a part of every weight (FSDP2).
        accumulate: Micro-batches of a step on each rank, one after the other: less memory, the same result.
        compile: True, or the name of a backend: torch.compile for the blocks.
        schedule: ``"cosine"``, ``"onecycle"`` (OneCycleLR, which rises over ``warmup``) or ``"plateau"`` (halved after 3
            validations by steps without a lower loss).
        average: Weight of the past in an exponential moving average of the weights, such as 0.999, which is validated
            and becomes the model. 0: none.
        checkpoints: How many checkpoints stay in the folder.
        rank_timeout: Seconds without a sign of life after which a rank counts as gone. The others name it and end.

    Returns:
        A :class:`penstock.training.TrainResult`, on every rank. SIGTERM or Ctrl-C on any rank saves a checkpoint and
        ends all, with ``interrupted``.

    Raises:
        InvalidArgument: An option is impossible, or the batch has too few sequences for the ranks.
        Unsupported: The data are not a text, or an option is of :func:`penstock.train` alone.
        Incompatible: The checkpoint is of another run, or the model of other data.
        BadInput: The checkpoint lacks files.
        IoFailure: There is no checkpoint to resume.
        NumericalError: Ten steps in a row were not finite.
        RankFailure: A rank failed, ended, hangs or differs. The message names it.

    >>> import penstock.torch
    >>> data = penstock.open_text("book.txt")  # doctest: +SKIP
    >>> penstock.torch.fit(penstock.Model(data), data, steps=1000)  # doctest: +SKIP
    """
    said = dict(locals())
    model_of(model), dataset_of(data)  # raise TypeError for other types
    check_kind(data)
    _core.utc_time()  # noted in the model's history: a bad SOURCE_DATE_EPOCH is refused before training
    where = _kind_of_device(model._on(device))
    group = Group(where)
    if threads > 0:
        torch.set_num_threads(threads)
    with Stop() as stop, Watch(group, rank_timeout):
        return _fit(model, data, said, group, stop)


def _kind_of_device(device):
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return "cuda" if device.startswith("cuda") else "cpu"


def _fit(model, data, said, group, stop):
    options = group.together(lambda: resolve(model, data, said, group.device.type))
    module = group.together(lambda: module_of(model))
    group.agree(_facts(model, data, module, options))
    for name in ("checkpoint", "metrics"):
        path = getattr(options, name)
        setattr(options, name, None if path is None else os.fspath(path))
    trainer = _trainer(model, data, options, module, group, stop)
    try:
        if options.resume:
            trainer.resume()
            group.agree({"step": (trainer.step, "remove the checkpoints that only some hosts see")})
        trainer.metrics.run(trainer.placement.module.spec, model.parameter_count, trainer.identity(), {})
        trainer.run()
        return _finished(model, data, trainer)
    finally:
        trainer.metrics.close()


def _trainer(model, data, options, module, group, stop):
    first = group.rank == 0
    files = None
    if options.checkpoint is not None:
        files = group.together(lambda: Checkpoints(options.checkpoint, options.checkpoints, group))
    windows = group.together(lambda: TextWindows(data, options.batch, options.length, group.device))
    bar = bar_for(options.progress, model.task) if first else NoBar()
    metrics = group.together(lambda: Metrics(options.metrics, options.resume, first, options.callback, bar))
    placement = Placement(module, group, options.sharding, options.compile)
    return Trainer(placement, windows, options, metrics, files, stop, _network_remedy(module.spec))


def _network_remedy(spec):
    """Returns what to try about the network of an unstable run, as src/fit/train/trainer_guard.cc does."""
    if not spec["end_norms"]:
        return "norms around all layers: end_norms=True"
    cell = _core.find_cell(spec["cell"])
    if cell["gates"] == 1:
        return "a cell with gates: cell='gru'"
    return "" if cell["scan"] else "other initial weights: initial_weights='orthogonal'"


def module_of(model: Model) -> SequenceModel:
    """Returns a model of Penstock as a module with the same weights, to be trained.

    Raises:
        Unsupported: It is an ensemble.
    """
    if model.spec["members"] > 1:
        raise Unsupported("penstock.torch.fit trains single models, not ensembles: train their members one by one")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        model.save(path)
        return SequenceModel.load(path)


def _facts(model, data, module, options):
    """Returns what all ranks have to have in common, and what to do if they do not."""
    weights = hashlib.sha256()
    for tensor in module.state_dict().values():
        weights.update(tensor.numpy().tobytes())
    hidden = ("callback", "progress", "model", "data", "checkpoint", "metrics", "device", "threads")
    chosen = {name: value for name, value in vars(options).items() if name not in hidden}
    position = json.loads(data._dataset.position())
    same = "give every rank the same"
    return {
        "Penstock's version": (_core.system_info()["version"], "install one version everywhere"),
        "PyTorch's version": (torch.__version__, "install one version everywhere"),
        "data": (f"{data.training_steps + data.held_out_steps} bytes, {position['fingerprint']:x}", f"{same} files"),
        "options": (json.dumps(chosen, sort_keys=True, default=str), f"{same} options"),
        "a model": (weights.hexdigest()[:16], f"{same} model, by one seed or from one file"),
    }


def _finished(model, data, trainer):
    """Puts the trained weights into the model of rank 0, and returns the result."""
    model_step = trainer.finish()
    stopped_early = trainer.stopping.cooling and not trainer.interrupted
    ends = {"interrupted": trainer.interrupted, "stopped_early": stopped_early, "model_step": model_step}
    trainer.metrics.end(trainer.last, trainer.validation, ends)
    weights = trainer.placement.full_state()
    if trainer.group.rank == 0:
        _give_back(model, data, trainer, weights)
        if trainer.gave_up:
            warn_caller(trainer.gave_up)
    validation = trainer.validation if trainer.windows.held_out and not trainer.interrupted else None
    return TrainResult(trainer.last, validation, stopped_early, model_step, trainer.interrupted,
                       gave_up=trainer.gave_up, checkpoint_error=trainer.checkpoint_error)  # fmt: skip


def _give_back(model, data, trainer, weights):
    module = trainer.placement.module
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        write_model(path, module.spec, module.data, weights)
        model._model, _ = _core.Model.load(path)
    model._data = model._model.data()
    scores = None if trainer.validation is None else vars(trainer.validation)
    model._history = _history(model, data, trainer.step, scores, "")
