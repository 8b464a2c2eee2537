"""Linear recurrences h_t = a_t h_{t-1} + b_t."""

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
    """Computes h_t = a_t h_{t-1} + b_t in parallel over T and returns ``(h, last)``.

    With a process group, several processes share a sequence. Each calls this function with its own chunk, in the order
    of ranks, with the same B, C and ``groups``; each runs the backward pass. Chunks may differ in length.

    Args:
        a: ``[B, T, C]`` with any strides; float32, float64, bfloat16 or float16.
        b: ``[B, T, C]``.
        h0: The initial state ``[B, C]``. None: zeros. Among several processes, the one with the first chunk reads it.
        lengths: int64 ``[B]`` or a list of B integers: number of steps of each row (of the process's own chunk). Later
            steps are not read, and their h are zeros. None: all rows have T steps.
        reset_mask: bool ``[B, T]``. True resets the state to zero before this step. None: no resets.
        reverse: True: runs from the last step of each row to its first.
        process_group: The group of torch.distributed whose processes share the sequence. None: one process.
        groups: None: all processes scan their chunks at once, then correct them for the states that arrive; with decays
            below one this changes little. A number: rows and channels are split into this many groups, which are
            scanned one after the other. Processes then compute at the same time for any decays.

    Returns:
        All h ``[B, T, C]``, and the state after the last step ``[B, C]``; both of the process's own chunk.

    Raises:
        ValueError: A shape does not fit.
        TypeError: An argument is not a tensor or has an unsupported dtype.
        NotImplementedError: An argument has a forward-mode tangent (``torch.func.jvp``), with ``process_group``.

    >>> h, last = scan(torch.full((1, 3, 1), 0.5), torch.ones(1, 3, 1))
    >>> h.flatten().tolist()
    [1.0, 1.5, 1.75]
    >>> h, last = scan(torch.full((1, 3, 1), 0.5), torch.ones(1, 3, 1), lengths=torch.tensor([2]))
    >>> h.flatten().tolist(), last.item()
    ([1.0, 1.5, 0.0], 1.5)
    """
    return _scan(a, b, h0, False, lengths, reset_mask, reverse, process_group, groups)


def log_scan(log_a, log_b, h0=None, *, lengths=None, reset_mask=None, reverse=False, process_group=None, groups=None):
    """Computes :func:`scan` from the logarithms of ``a`` and ``b``, both positive. ``h`` and ``h0`` are plain numbers.

    The other arguments and the results are those of :func:`scan`.
    """
    return _scan(log_a, log_b, h0, True, lengths, reset_mask, reverse, process_group, groups)
