"""A whole run of penstock.torch.fit: options, ranks, training, and the trained model."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile

import torch

from ... import _core
from ..._keywords import warn_caller
from ..._progress import NoBar, bar_for
from ...datasets import scored_unit
from ...errors import Unsupported
from ...training import Evaluation, TrainResult, _history
from .._library import full_precision
from .._model import SequenceModel, write_model
from .batches import Batches, check_kind
from .checkpoints import Checkpoints
from .group import Group
from .metrics import Metrics
from .options import resolve
from .placement import Placement
from .signals import Stop
from .trainer import Trainer
from .watch import Watch

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from typing import Any

    from ...models import Model


def run(said: dict[str, Any]) -> TrainResult:
    """Runs penstock.torch.fit with its arguments."""
    model, data = said.pop("model"), said.pop("data")
    check_kind(data)
    _core.utc_time()  # noted in the model's history: a bad SOURCE_DATE_EPOCH is refused before training
    group = Group(kind_of_device(model._on(said["device"])))
    if said["threads"] > 0:
        torch.set_num_threads(said["threads"])
    with Stop() as stop, Watch(group, said["rank_timeout"]):
        return _fit(model, data, said, group, stop)


def kind_of_device(device: str) -> str:
    """Returns "cuda" or "cpu" for a name of a device; the name "auto" is a GPU if there is one."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return "cuda" if device.startswith("cuda") else "cpu"


def _fit(model, data, said, group, stop):
    options = group.together(lambda: resolve(model, data, said, group.device.type))
    module = group.together(lambda: module_of(model))
    group.agree(_facts(model, data, module, options, group))
    for name in ("checkpoint", "metrics"):
        path = getattr(options, name)
        setattr(options, name, None if path is None else os.fspath(path))
    trainer = _trainer(model, data, options, module, group, stop)
    try:
        if options.resume:
            trainer.resume()
            group.agree({"step": (trainer.step, "remove the checkpoints that only some hosts see")})
        trainer.metrics.run(trainer.placement.module.spec, model.parameter_count, trainer.identity(), {})
        with full_precision(options.precision == "full"):
            trainer.run()
            return _finished(model, data, trainer)
    finally:
        trainer.metrics.close()
        trainer.batches.close()
        if trainer.checkpoints is not None:
            trainer.checkpoints.close()


def _trainer(model, data, options, module, group, stop):
    first = group.rank == 0
    files = None
    if options.checkpoint is not None:
        files = group.together(lambda: Checkpoints(options.checkpoint, options.checkpoints, group))
        files.check_shared()
    batches = group.together(lambda: Batches(model, data, options.batch, options.length, group))
    bar = bar_for(options.progress, model.task, scored_unit(data.description)[:-1]) if first else NoBar()
    metrics = group.together(lambda: Metrics(options.metrics, options.resume, first, options.callback, bar))
    placement = Placement(module, group, options.sharding, options.compile)
    return Trainer(placement, batches, options, metrics, files, stop, _network_remedy(module.spec))


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


def _facts(model, data, module, options, group):
    """Returns what all ranks have to have in common, and what to do if they do not."""
    weights = hashlib.sha256()
    for tensor in module.state_dict().values():
        weights.update(tensor.numpy().tobytes())
    hidden = ("callback", "progress", "checkpoint", "metrics", "device", "threads", "request")
    chosen = {name: value for name, value in vars(options).items() if name not in hidden}
    position = json.loads(data._dataset.position())
    same = "give every rank the same"
    return {
        "a device of kind": (group.device.type, "give every rank a GPU, or take the device 'cpu'"),
        "Penstock's version": (_core.system_info()["version"], "install one version everywhere"),
        "PyTorch's version": (torch.__version__, "install one version everywhere"),
        "data": (f"{data.training_steps + data.held_out_steps} steps, {position['fingerprint']:x}", f"{same} files"),
        "a place in the data": (position["numbers"], f"{same} dataset, opened anew"),
        "options": (json.dumps(chosen, sort_keys=True, default=str), f"{same} options"),
        "a model": (weights.hexdigest()[:16], f"{same} model, by one seed or from one file"),
    }


def _finished(model, data, trainer):
    """Puts the trained weights into the model of rank 0, and returns the result."""
    model_step = trainer.finish()
    stopped_early = trainer.stopping.cooling and not trainer.interrupted
    ends = {"interrupted": trainer.interrupted, "stopped_early": stopped_early, "model_step": model_step}
    weights = trainer.placement.full_state()
    group = trainer.group
    finished = group.together(lambda: _give_back(model, data, trainer, weights) if group.rank == 0 else None)
    finished = dict(group.from_first(finished))
    validation = finished.pop("validation")
    trainer.validation = None if validation is None else Evaluation(**validation)
    trainer.metrics.end(trainer.last, trainer.validation, ends)
    if group.rank == 0 and trainer.gave_up:
        warn_caller(trainer.gave_up)
    return TrainResult(trainer.last, trainer.validation, stopped_early, model_step, trainer.interrupted,
                       gave_up=trainer.gave_up, checkpoint_error=trainer.checkpoint_error, **finished)  # fmt: skip


def _give_back(model, data, trainer, weights):
    """Puts the weights into the model, and fits the parts that are not trained. Returns the scores and the shares."""
    module = trainer.placement.module
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        write_model(path, module.spec, module.data, weights)
        model._model, _ = _core.Model.load(path)
    scored = trainer.validation is not None and trainer.validation.scored > 0 and not trainer.interrupted
    validation = vars(trainer.validation) if scored else None
    finished = {"validation": validation, "weight": "", "share": 1.0, "filter_share": 0.0}
    if model.task != "language" and not trainer.interrupted:
        request = trainer.options.request | {"batch": trainer.options.batch, "length": trainer.options.length}
        finished = _core.finish_fit(model._model, data._dataset, request, validation)
    model._data = model._model.data()
    notes = {"weight": finished.pop("weight"), "options": json.dumps(trainer.identity()), "columns": {}}
    model._history = _history(model, data, trainer.step, finished["validation"], notes)
    return finished
