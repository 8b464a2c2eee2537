"""Episodes within sequences: which steps start one, and layers that start them from given states."""

import torch

from .._cell_forms import starts_again_on_gpu
from ._checks import check_flags, check_state_types


def episode_starts(dones, first=None, *, batch_first=False):
    """Returns the ``reset_mask`` of a rollout: True before the first step of each episode.

    ``dones[t]`` says that an episode ended with step t; ``episode_starts[t]`` says that one starts before step t. The
    flags therefore move by one step. A rollout that goes on after another one needs the last dones of that one.

    Args:
        dones: bool ``[T, B]``, ``[B, T]`` with ``batch_first``, or ``[T]``.
        first: bool ``[B]``, or a scalar tensor for dones ``[T]``: True if an episode starts before step 0. These are
            the dones of the last step before this rollout. None: an episode starts in every row.
        batch_first: True: the first axis of ``dones`` is the batch, as in layers with ``batch_first=True``.

    Returns:
        A bool tensor with the shape of ``dones``.

    Raises:
        TypeError: An argument is not a tensor.
        RuntimeError: A tensor has another dtype than bool, another shape, or is on another device.

    >>> import torch
    >>> dones = torch.tensor([False, True, False, False])
    >>> episode_starts(dones, first=torch.tensor(False))
    tensor([False, False,  True, False])
    """
    if not isinstance(dones, torch.Tensor):
        raise TypeError(f"dones must be a tensor, not {type(dones).__name__}")
    if dones.dim() not in (1, 2):
        raise RuntimeError(f"dones must have the shape [T, B] or [T], not {list(dones.shape)}")
    check_flags("dones", dones, dones.shape, "", dones.device)
    axis = dones.dim() - 1 if batch_first else 0
    rows = dones.shape[:axis] + dones.shape[axis + 1 :]
    if first is None:
        first = dones.new_ones(rows)
    check_flags("first", first, rows, "the batch of dones", dones.device)
    return torch.cat([first.bool().unsqueeze(axis), dones.bool()], axis).narrow(axis, 0, dones.shape[axis])


def _rows_of(starts):
    """Returns the episode of each step [B, T] and the row offsets [N + 1] of the N episodes among the flat steps.

    `starts` is bool [B, T], True at the first step of each episode, step 0 included. On a GPU, some rows without steps
    follow: calls with about as many episodes then share a program. Where the host must not wait for the number of
    episodes, in a CUDA graph and in torch.compile, N is B * T.
    """
    episode = starts.flatten().cumsum(0) - 1
    most = episode.numel()
    if torch.compiler.is_compiling() or (starts.is_cuda and torch.cuda.is_current_stream_capturing()):
        count = most
    else:
        count = int(episode[-1]) + 1  # the host waits for a GPU here
        unit = max(8, 1 << max(0, count.bit_length() - 3)) if starts.is_cuda else 1
        count = min(most, -(-count // unit) * unit)
    offsets = torch.searchsorted(episode, torch.arange(count + 1, device=starts.device))
    return episode.view_as(starts), offsets


def _of_episodes(states, rows, steps):
    """Returns the states [L, N, H] of N episodes that start in these rows at these steps."""
    if states.dim() == 2:
        return states.unsqueeze(1).expand(-1, len(rows), -1)
    return states[:, rows] if states.dim() == 3 else states[:, rows, steps]


def restarts_of(restarts, layers, sizes, x):
    """Checks the states of resets of a call over x [B, T, I], and returns them as a tuple whose tensors have the same
    axes: [L, H], [L, B, H] or [L, B, T, H]. `sizes` has H of each state."""
    rows, steps, _ = x.shape
    for size, state in zip(sizes, restarts):
        forms = (layers, size), (layers, rows, size), (layers, rows, steps, size)
        if state.shape not in forms:
            wanted, shape = " or ".join(str(list(form)) for form in forms), list(state.shape)
            raise RuntimeError(f"reset_to must be [L, H], [L, B, H] or [L, B, T, H] = {wanted}, not {shape}")
        if state.device != x.device:
            raise RuntimeError(f"reset_to must be on {x.device}, not on {state.device}: move it with .to('{x.device}')")
    check_state_types(restarts, x, "reset_to")
    dims = [state.dim() for state in restarts]
    if min(dims) < (most := max(dims)):
        axes = (rows, steps)[: most - 2]
        restarts = tuple(
            s.reshape(layers, *s.shape[1:-1], *[1] * (most - s.dim()), -1).expand(-1, *axes, -1) for s in restarts
        )
    return restarts


def kernels_start_again(cell, head, device):
    """Returns whether the kernels of a device start rows again at given states; `head` is the number of units."""
    return device.type != "cuda" or starts_again_on_gpu(cell, head, torch.cuda.get_device_capability(device)[0])


def divided(states, count):
    """Returns the `count` states before a call, () for zeros, and those of its resets."""
    return states[:count] if states and states[0] is not None else (), states[count:]


def part_of(gradient, i, state, reset):
    """Returns the gradient of state i of a call, those of resets behind the others, as part of [S, L, B + n, H]. One
    operation is quicker than a view of a view."""
    count, layers, rows, hidden = gradient.shape
    place = i % count * layers * rows + (0 if i < count else len(reset))
    inner = (hidden * reset.shape[-1], hidden, 1)[4 - state.dim() :] if reset is not None else (hidden, 1)
    return gradient.contiguous().as_strided(state.shape, (rows * hidden, *inner), place * hidden).to(state.dtype)


def _by_rows(restart):
    """Returns states of resets, [L, H], [L, B, H] or [L, B, T, H], as [L, n, H]."""
    return restart.unsqueeze(1) if restart.dim() == 2 else restart.flatten(1, -2)


def before_step(states, restarts, reset):
    """Returns the states [L, B, H] before a single step: those of `restarts` in the rows that `reset` marks."""
    starts = reset.reshape(-1, 1).bool()
    return tuple(torch.where(starts, _by_rows(to), of) for to, of in zip(restarts, states or [0.0] * len(restarts)))


def with_restarts(x, states, reset, count):
    """Returns `count` states [L, B + n, H]: behind those before a call (None: zeros) those of its resets, [L, H],
    [L, B, H] or [L, B, T, H]. States without those of resets are returned as they are. `reset` is [B, T]."""
    if len(states) <= count:
        return states

    def joined(before, restart):
        if before is None:
            before = x.new_zeros(len(restart), len(reset), restart.shape[-1])
        return torch.cat([before, _by_rows(restart)], 1)

    return tuple(map(joined, states[:count], states[count:]))


def run_episodes(stack, input, hx, reset_mask, restarts, every_state):
    """Does what a stack does with `reset_mask` over an input with rows, and restarts from the states `restarts`: runs
    each episode as a row."""
    swap = (lambda t: t) if stack.batch_first else (lambda t: t.transpose(0, 1))
    x, mask = swap(input), swap(reset_mask).bool()
    starts = torch.cat([torch.ones_like(mask[:, :1]), mask[:, 1:]], 1)
    episode, offsets = _rows_of(starts)
    first = offsets[:-1].clamp(max=mask.numel() - 1)  # rows without steps may begin anywhere
    rows, steps = first // mask.shape[1], first % mask.shape[1]
    begins = mask.flatten()[first].unsqueeze(-1)
    before = [state[:, rows] for state in hx] if hx else [x.new_zeros(())] * len(restarts)
    after = [_of_episodes(state, rows, steps) for state in restarts]
    states = tuple(torch.where(begins, a, b) for a, b in zip(after, before))
    results = stack._run(x.flatten(0, 1), states, (offsets, torch.tensor([mask.shape[1]]), None), every_state)
    y, last, *every = stack._leaving(results, every_state)

    def restored(sequence):
        return swap(sequence.unflatten(0, mask.shape))

    last = tuple(state[:, episode[:, -1]] for state in ((last,) if isinstance(last, torch.Tensor) else last))
    return restored(y), last if len(last) > 1 else last[0], *(tuple(map(restored, others)) for others in every)
