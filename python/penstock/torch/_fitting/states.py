"""The state that windows carry on, by rows: checkpoints keep each row by itself, for any number of ranks."""

from __future__ import annotations

import torch

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_ROW_AXIS = {"convolution": 0, "recurrent": 2}  # [B, taps - 1, C] and [states, 1, B, H]


def _tensors(state: dict[int, dict[str, torch.Tensor]]) -> Iterator[tuple[int, str, torch.Tensor]]:
    for block in sorted(state):
        for name in sorted(state[block]):
            yield block, name, state[block][name]


def detached(state: dict[int, dict[str, torch.Tensor]]) -> dict[int, dict[str, torch.Tensor]]:
    """Returns the state without its history: gradients do not flow back."""
    return {block: {name: t.detach() for name, t in parts.items()} for block, parts in state.items()}


def as_rows(state: dict[int, dict[str, torch.Tensor]]) -> list[torch.Tensor]:
    """Returns one float32 vector for each row of a state."""
    parts = [t.movedim(_ROW_AXIS[name], 0).flatten(1).float() for _, name, t in _tensors(state)]
    return list(torch.cat(parts, 1).unbind(0))


def from_rows(rows: list[torch.Tensor], like: dict[int, dict[str, torch.Tensor]]) -> dict[int, dict[str, Any]]:
    """Returns the state of such vectors. ``like`` is a state of one row, which gives the shapes."""
    matrix, at = torch.stack(rows), 0
    state: dict[int, dict[str, Any]] = {block: {} for block in like}
    for block, name, tensor in _tensors(like):
        shape = tensor.movedim(_ROW_AXIS[name], 0).shape[1:]
        size = shape.numel()
        part = matrix[:, at : at + size].reshape(len(rows), *shape)
        state[block][name] = part.movedim(0, _ROW_AXIS[name]).contiguous()
        at += size
    return state
