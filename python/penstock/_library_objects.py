"""Type checks of models and datasets. Messages help the many users who pass a path at first."""

from __future__ import annotations

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from typing import Any

    from . import _core


def dataset_of(data: Any) -> _core.Dataset:
    """Returns the library's dataset. Raises TypeError for anything but a :class:`penstock.Dataset`."""
    found: _core.Dataset | None = getattr(data, "_dataset", None)
    if found is not None:
        return found
    if hasattr(data, "_model"):
        raise TypeError("data must be a penstock.Dataset, not a Model: the model is the argument before it")
    reader = "open_text" if isinstance(data, str) and data.endswith(".txt") else "open_series"
    shown, kind = repr(data) if isinstance(data, str) else "...", type(data).__name__
    raise TypeError(f"data must be a penstock.Dataset, which penstock.{reader}({shown}) returns, not {kind}")


def model_of(model: Any) -> _core.Model:
    """Returns the library's model. Raises TypeError for anything but a :class:`penstock.Model`."""
    found: _core.Model | None = getattr(model, "_model", None)
    if found is not None:
        return found
    if hasattr(model, "_dataset"):
        raise TypeError("model must be a penstock.Model, not a Dataset: penstock.Model(data) makes one")
    if isinstance(model, str):
        raise TypeError(f"model must be a penstock.Model, which penstock.Model.load({model!r}) returns, not str")
    raise TypeError(f"model must be a penstock.Model, not {type(model).__name__}")
