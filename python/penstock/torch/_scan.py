"""The linear recurrence by itself."""

import torch

from . import _ops


def _scan(a, b, h0, logarithmic, reverse):
    if a.dim() != 3:
        raise ValueError(f"a must be [B, T, C], got {list(a.shape)}")
    if b.shape != a.shape:
        raise ValueError(f"b must be of the shape of a, {list(a.shape)}, got {list(b.shape)}")
    if h0 is not None and h0.shape != (a.shape[0], a.shape[2]):
        raise ValueError(f"h0 must be [B, C] = {[a.shape[0], a.shape[2]]}, got {list(h0.shape)}")
    dtype = torch.promote_types(a.dtype, b.dtype)
    return _ops.scan(a.to(dtype), b.to(dtype), h0, logarithmic, reverse)


def scan(a, b, h0=None, *, reverse=False):
    """h_t = a_t h_{t-1} + b_t, in parallel over T.

    Args:
        a: [B, T, C].
        b: [B, T, C].
        h0: [B, C], or None: zeros.
        reverse: Walks from the last step to the first.

    Returns:
        All h [B, T, C] and the last one walked to, [B, C].

    >>> h, last = scan(torch.full((1, 3, 1), 0.5), torch.ones(1, 3, 1))
    >>> h.flatten().tolist()
    [1.0, 1.5, 1.75]
    """
    return _scan(a, b, h0, False, reverse)


def log_scan(log_a, log_b, h0=None, *, reverse=False):
    """As scan(), with the logarithms of a and b, which are positive then; h and h0 are plain numbers of either sign."""
    return _scan(log_a, log_b, h0, True, reverse)
