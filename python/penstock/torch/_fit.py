"""penstock.torch.fit: penstock.train in PyTorch, on one device or many."""

from __future__ import annotations

import inspect

from .._keywords import no_argument
from .._library_objects import dataset_of, model_of
from ..training import train

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from typing import Any

    from ..datasets import Dataset
    from ..models import Model
    from ..training import TrainResult


def fit(
    model: Model,
    data: Dataset,
    *,
    sharding: str = "ddp",
    accumulate: int = 1,
    compile: bool | str = False,
    checkpoints: int = 2,
    rank_timeout: float = 30.0,
    **options: Any,
) -> TrainResult:
    """Trains a model of a text, a series or labels with PyTorch, on one device or, under torchrun and the like, on many.

    It trains as :func:`penstock.train` does: the same batches, dropout masks, loss, schedule, early stopping and guard
    against instability. The loss curve is the same for any number of ranks, up to rounding. Call it on every rank with
    the same arguments; the model gets the weights on rank 0, and there the callback is called.

    ``options`` are those of :func:`penstock.train`, with these differences:

    * ``batch`` is the global batch, which the ranks share.
    * ``checkpoint`` is a folder that all ranks see. It holds ``checkpoints`` checkpoints, each one resumed by any number
      of ranks.
    * ``precision`` is ``"full"`` (recurrent layers in float32, whatever PyTorch's flags of TF32 permit) or ``"bf16"``
      (autocast).
    * ``seeds``, ``exact`` and ``tensorboard`` are refused.

    Args:
        model: A :class:`penstock.Model` made for this data.
        data: A dataset of :func:`penstock.open_text`, :func:`penstock.open_series`, :func:`penstock.open_labelled` or
            :func:`penstock.open_labelled_texts`.
        sharding: ``"ddp"``: each rank has the whole model. ``"fsdp"``: each has a part of every weight (FSDP2).
        accumulate: Micro-batches of a step on each rank, one after the other: less memory, the same result.
        compile: True, or the name of a backend: torch.compile for the blocks.
        checkpoints: How many checkpoints stay in the folder.
        rank_timeout: Seconds without a sign of life after which a rank counts as gone. The others name it and end.

    Returns:
        A :class:`penstock.training.TrainResult`, on every rank. SIGTERM or Ctrl-C on any rank saves a checkpoint and
        ends all, with ``interrupted``.

    Raises:
        InvalidArgument: An option is impossible, or the batch has too few sequences for the ranks.
        Unsupported: The data are a built-in task, or an option is of :func:`penstock.train` alone.
        Incompatible: The checkpoint is of another run, or the model of other data.
        BadInput: The checkpoint lacks files.
        IoFailure: There is no checkpoint to resume.
        NumericalError: Ten steps in a row were not finite.
        RankFailure: A rank failed, ended, hangs or differs. The message names it.

    >>> import penstock.torch
    >>> data = penstock.open_text("book.txt")  # doctest: +SKIP
    >>> penstock.torch.fit(penstock.Model(data), data, steps=1000)  # doctest: +SKIP
    """
    own = {name: value for name, value in locals().items() if name != "options"}
    model_of(model), dataset_of(data)  # raise TypeError for other types
    signature = inspect.signature(train)
    for name in options.keys() - signature.parameters.keys():
        raise TypeError(no_argument(train, "fit", name))
    said = signature.bind(model, data, **options)
    said.apply_defaults()
    from ._fitting.run import run  # which imports much of torch.distributed

    return run({**said.arguments, **own})


def _full_signature() -> inspect.Signature:
    """Returns the signature of fit() with the options of penstock.train in it, for help() and the command line."""
    mine, theirs = inspect.signature(fit), inspect.signature(train).parameters
    own = [each for name, each in mine.parameters.items() if name not in theirs and name != "options"]
    return mine.replace(parameters=[*theirs.values(), *own])


fit.__signature__ = _full_signature()  # type: ignore[attr-defined]
