"""The linear recurrence by itself."""

import torch

from . import _ops
from ._sequence_parallel import parallel_scan


def _scan(a, b, h0, logarithmic, reverse, process_group, groups):
    if a.dim() != 3:
        raise ValueError(f"a must be [B, T, C], got {list(a.shape)}")
    if b.shape != a.shape:
        raise ValueError(f"b must be of the shape of a, {list(a.shape)}, got {list(b.shape)}")
    if h0 is not None and h0.shape != (a.shape[0], a.shape[2]):
        raise ValueError(f"h0 must be [B, C] = {[a.shape[0], a.shape[2]]}, got {list(h0.shape)}")
    dtype = torch.promote_types(a.dtype, b.dtype)
    if process_group is None:
        return _ops.scan(a.to(dtype), b.to(dtype), h0, logarithmic, reverse)
    return parallel_scan(a.to(dtype), b.to(dtype), h0, logarithmic, reverse, process_group, groups)


def scan(a, b, h0=None, *, reverse=False, process_group=None, groups=16):
    """h_t = a_t h_{t-1} + b_t, in parallel over T.

    With a process group the sequence is as long as all its processes hold together: each calls this with its own chunk,
    in the order of ranks, with the same B, C and `groups`, and each runs the backward pass. Chunks may differ in length.

    Args:
        a: [B, T, C], any strides.
        b: [B, T, C].
        h0: [B, C], or None: zeros. Of several processes the one reads it whose chunk is walked first.
        reverse: Walks from the last step to the first.
        process_group: torch.distributed's group of the processes that have the chunks of this sequence.
        groups: Into how many groups rows and channels are divided, so that processes compute at the same time.

    Returns:
        All h [B, T, C], and the last one walked to, [B, C]: of the chunk, where a process has only that.

    >>> h, last = scan(torch.full((1, 3, 1), 0.5), torch.ones(1, 3, 1))
    >>> h.flatten().tolist()
    [1.0, 1.5, 1.75]
    """
    return _scan(a, b, h0, False, reverse, process_group, groups)


def log_scan(log_a, log_b, h0=None, *, reverse=False, process_group=None, groups=16):
    """As scan(), with the logarithms of a and b, which are positive then; h and h0 are plain numbers of either sign."""
    return _scan(log_a, log_b, h0, True, reverse, process_group, groups)
