"""The linear recurrence by itself."""

import torch

from . import _ops
from ._checks import lengths_as_tensor
from ._library import TYPES
from ._sequence_parallel import parallel_scan


def _scan(a, b, h0, logarithmic, lengths, reset, reverse, process_group, groups):
    lengths = lengths_as_tensor(lengths, getattr(a, "device", None))
    for name, tensor in (("a", a), ("b", b), ("h0", h0), ("lengths", lengths), ("reset_mask", reset)):
        if tensor is not None and not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} must be a tensor, not {type(tensor).__name__}")
    if a.dim() != 3:
        raise ValueError(f"a must be [B, T, C], got {list(a.shape)}")
    if b.shape != a.shape:
        raise ValueError(f"b must be of the shape of a, {list(a.shape)}, got {list(b.shape)}")
    if h0 is not None and h0.shape != (a.shape[0], a.shape[2]):
        raise ValueError(f"h0 must be [B, C] = {[a.shape[0], a.shape[2]]}, got {list(h0.shape)}")
    dtype = torch.promote_types(a.dtype, b.dtype)
    if dtype not in TYPES:
        raise TypeError(
            f"a and b must be tensors of float32, float64, bfloat16 or float16, not {a.dtype} and {b.dtype}: convert "
            "them with .float()"
        )
    terms = (a.to(dtype), b.to(dtype), h0, lengths, reset, logarithmic, reverse)
    return _ops.scan(*terms) if process_group is None else parallel_scan(*terms, process_group, groups)


def scan(a, b, h0=None, *, lengths=None, reset_mask=None, reverse=False, process_group=None, groups=None):
    """h_t = a_t h_{t-1} + b_t, in parallel over T.

    With a process group the sequence is as long as all its processes hold together: each calls this with its own chunk,
    in the order of ranks, with the same B, C and `groups`, and each runs the backward pass. Chunks may differ in length.

    Args:
        a: [B, T, C], any strides.
        b: [B, T, C].
        h0: [B, C], or None: zeros. Of several processes the one reads it whose chunk is walked first.
        lengths: int64 [B], a list of B whole numbers, or None. Steps beyond a row's length are not read, and their h are
            zeros. Of several processes each counts the steps of its own chunk.
        reset_mask: bool [B, T], or None: where it is true the state is zero before that step.
        reverse: Walks from the last step (of a row's length) to the first.
        process_group: torch.distributed's group of the processes that have the chunks of this sequence.
        groups: None: the processes scan their chunks at once and correct what the states before them change, which is
            little where decays are less than one. A number: rows and channels are divided into so many groups, which
            are scanned one after the other, so that processes compute at the same time whatever the decays are.

    Returns:
        All h [B, T, C], and the last one walked to, [B, C]: of the chunk, where a process has only that.

    >>> h, last = scan(torch.full((1, 3, 1), 0.5), torch.ones(1, 3, 1))
    >>> h.flatten().tolist()
    [1.0, 1.5, 1.75]
    >>> h, last = scan(torch.full((1, 3, 1), 0.5), torch.ones(1, 3, 1), lengths=torch.tensor([2]))
    >>> h.flatten().tolist(), last.item()
    ([1.0, 1.5, 0.0], 1.5)
    """
    return _scan(a, b, h0, False, lengths, reset_mask, reverse, process_group, groups)


def log_scan(log_a, log_b, h0=None, *, lengths=None, reset_mask=None, reverse=False, process_group=None, groups=None):
    """As scan(), with the logarithms of a and b, which are positive then; h and h0 are plain numbers of either sign."""
    return _scan(log_a, log_b, h0, True, lengths, reset_mask, reverse, process_group, groups)
