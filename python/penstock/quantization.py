"""Models whose matrices are int8: files of a quarter of the size, and quicker steps on CPUs."""

from __future__ import annotations

from . import _core
from ._keywords import explain_keywords
from ._library_objects import model_of
from .models import Model

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from typing import Any

__all__ = ["quantize"]


def quantize(
    model: Model,
    data: Any,
    *,
    max_loss: float | None = None,
    each_layer: bool = False,
    skip: int | None = None,
    sequence_column: str = "sequence",
    label_column: str = "",
    threads: int = 0,
) -> tuple[Model, dict[str, Any]]:
    """Returns a model whose matrices are int8, with one scale for each output, and a report of what that loses.

    Args:
        model: A trained model, which stays as it is.
        data: Data with known answers, as for :meth:`Model.evaluate`, on which the model is scored before and after: held
            out from training.
        max_loss: The most that may be lost: 0.005 for half a percent. Layers that lose most by themselves stay in
            float. None: any loss.
        each_layer: True: also scores each layer as int8 by itself.
        skip: As for :meth:`Model.evaluate`.
        sequence_column: As for :meth:`Model.evaluate`.
        label_column: As for :meth:`Model.evaluate`.
        threads: As for :meth:`Model.evaluate`.

    Returns:
        The model, and a dictionary: ``error_before`` and ``error_after`` (bits per byte; for a series the root mean
        square error in units of the scale, as a mean over the columns; for labels the share of wrong ones), ``loss`` (how
        much larger the error is, as a share; for labels how many more are wrong), and ``layers``, a list of dictionaries
        with ``name``, ``int8`` and ``loss``, which is None where it was not measured.

    Raises:
        NumericalError: ``max_loss`` cannot be kept.
        Unsupported: No layer can be int8, as in a model of custom cells.
    """
    options = {"skip": skip, "sequence_column": sequence_column, "label_column": label_column, "threads": threads}
    model_of(model)  # or TypeError
    before = _error(model, data, options)

    after = before

    def error_of(layers: list[str]) -> float:
        nonlocal after  # in the end the error of the model that is returned
        after = _error(_with_int8(model, layers), data, options)
        return after

    names, loss, layers = _core.quantize(model._model, before, error_of, max_loss, each_layer)
    keys = ("name", "loss", "int8")
    report = {
        "error_before": before,
        "error_after": after,
        "loss": loss,
        "layers": [dict(zip(keys, layer)) for layer in layers],
    }
    return _with_int8(model, names), report


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
