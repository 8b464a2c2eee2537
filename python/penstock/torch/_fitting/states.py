"""The state that windows carry on, by rows: checkpoints keep each row by itself, for any number of ranks."""

from __future__ import annotations

import torch

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def _row_axis(name):
    return 2 if name == "recurrent" else 0  # [states, 1, B, H], others [B, ...]


def _changed(state: dict[Any, Any], change: Callable[[Any, torch.Tensor], torch.Tensor]) -> dict[Any, Any]:
    """Returns a state with change(name, tensor) for each tensor, in the order of their names."""
    return {
        name: _changed(state[name], change) if isinstance(state[name], dict) else change(name, state[name])
        for name in sorted(state, key=str)
    }


def detached(state: dict[Any, Any]) -> dict[Any, Any]:
    """Returns the state without its history: gradients do not flow back."""
    return _changed(state, lambda _, tensor: tensor.detach())


def as_rows(state: dict[Any, Any]) -> list[torch.Tensor]:
    """Returns one float32 vector for each row of a state."""
    parts = []
    _changed(state, lambda name, t: parts.append(t.movedim(_row_axis(name), 0).flatten(1).float()))
    return list(torch.cat(parts, 1).unbind(0))


def from_rows(rows: list[torch.Tensor], like: dict[Any, Any]) -> dict[Any, Any]:
    """Returns the state of such vectors. ``like`` is a state of one row, which gives the shapes."""
    matrix, at = torch.stack(rows), 0

    def part(name, tensor):
        nonlocal at
        shape = tensor.movedim(_row_axis(name), 0).shape[1:]
        values = matrix[:, at : at + shape.numel()].reshape(len(rows), *shape)
        at += shape.numel()
        return values.movedim(0, _row_axis(name)).contiguous()

    return _changed(like, part)
