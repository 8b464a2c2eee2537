"""Models whose matrices are int8: files of a quarter of the size, and quicker steps on CPUs."""

from __future__ import annotations

from . import _core
from ._keywords import explain_keywords
from ._library_objects import model_of
from .errors import InvalidArgument
from .models import Model
from .networks import Network, NetworkSession

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from typing import Any, TypeVar

    Quantizable = TypeVar("Quantizable", Model, Network)

__all__ = ["quantize"]


def quantize(
    model: Quantizable,
    data: Any,
    *,
    max_loss: float | None = None,
    each_layer: bool = False,
    round_inputs: bool = False,
    skip: int | None = None,
    sequence_column: str = "sequence",
    label_column: str = "",
    threads: int = 0,
) -> tuple[Quantizable, dict[str, Any]]:
    """Returns a model whose matrices are int8, with one scale for each output, and a report of what that loses.

    Args:
        model: A trained model or an imported :class:`Network`, which stays as it is.
        data: Data with known answers, as for :meth:`Model.evaluate`, on which the model is scored before and after: held
            out from training. For a network, the inputs of each step of a stream, as :meth:`NetworkSession.run`
            takes them: a list, or the rows of an array.
        max_loss: The most that may be lost: 0.005 for half a percent. Layers that lose most by themselves stay in
            float. None: any loss.
        each_layer: True: also scores each layer as int8 by itself.
        round_inputs: Of a network. True: convolutions and products that are large enough also round their inputs, and
            multiply bytes. That is faster on CPUs with instructions for it. The C runtime refuses such networks.
        skip: As for :meth:`Model.evaluate`.
        sequence_column: As for :meth:`Model.evaluate`.
        label_column: As for :meth:`Model.evaluate`.
        threads: As for :meth:`Model.evaluate`.

    Returns:
        The model, and a dictionary: ``error_before`` and ``error_after`` (bits per byte; for a series the root mean
        square error in units of the scale, as a mean over the columns; for labels the share of wrong ones), ``loss`` (how
        much larger the error is, as a share; for labels how many more are wrong), and ``layers``, a list of dictionaries
        with ``name``, ``int8`` and ``loss``, which is None where it was not measured. For a network: ``layers`` and
        ``loss``, the mean difference of its outputs as a share of their mean size.

    Raises:
        NumericalError: ``max_loss`` cannot be kept, or the outputs of a network for ``data`` are not finite.
        Unsupported: No layer can be int8, as in a model of custom cells.
        InvalidArgument: ``data`` of a network has no steps, or options that only models take were given.
    """
    options = {"skip": skip, "sequence_column": sequence_column, "label_column": label_column, "threads": threads}
    if isinstance(model, Network):
        if (skip, sequence_column, label_column, threads) != (None, "sequence", "", 0):
            raise InvalidArgument("skip, sequence_column, label_column and threads apply to models of penstock.train only")
        return _quantize_network(model, data, max_loss, each_layer, round_inputs)
    if round_inputs:
        raise InvalidArgument("round_inputs applies to networks only: models of penstock.train always round their inputs")
    model_of(model)  # or TypeError
    before = _error(model, data, options)

    after = before

    def error_of(layers: list[str]) -> float:
        nonlocal after  # in the end the error of the model that is returned
        after = _error(_with_int8(model, layers), data, options)
        return after

    names, loss, layers = _core.quantize(model._model, before, error_of, max_loss, each_layer)
    report = {
        "error_before": before,
        "error_after": after,
        "loss": loss,
        "layers": _report(layers),
    }
    return _with_int8(model, names), report


def _report(layers: list[tuple[str, float | None, bool]]) -> list[dict[str, Any]]:
    return [dict(zip(("name", "loss", "int8"), layer)) for layer in layers]


def _quantize_network(
    network: Network, data: Any, max_loss: float | None, each_layer: bool, round_inputs: bool
) -> tuple[Network, dict[str, Any]]:
    import numpy as np

    steps = list(data)
    if not steps:
        raise InvalidArgument("data must have the inputs of at least one step")

    def outputs(of: Network) -> Any:
        session = NetworkSession(of)
        runs = [session.run(step) for step in steps]
        return np.concatenate([array.ravel() for run in runs for array in run.values()]).astype(np.float64)

    want = outputs(network)
    size = float(np.abs(want).mean())

    def loss_of(made: _core.Network) -> float:
        return float(np.abs(outputs(Network._of(made)) - want).mean()) / (size or 1.0)

    made, loss, layers = _core.quantize_network(network._network, loss_of, max_loss, each_layer, round_inputs)
    return Network._of(made), {"loss": loss, "layers": _report(layers)}


def _with_int8(model: Model, layers: list[str]) -> Model:
    """Returns a model like another one, with these layers of int8."""
    made = Model.__new__(Model)
    vars(made).update(vars(model))
    made._model = model._model.with_int8(layers)
    return made


def _error(model: Model, data: Any, options: dict[str, Any]) -> float:
    """Returns the error that a loss is measured by."""
    score = model.evaluate(data, **options)
    if model.task == "language":
        return score["bits_per_byte"]
    if model.task == "classify":
        return 1.0 - score["accuracy"]
    scales = {column["name"]: column["scale"] for column in model.data["targets"]}
    errors = [score["columns"][name]["rmse"] / scale for name, scale in scales.items() if name in score["columns"]]
    return sum(errors) / len(errors)


explain_keywords(globals())
