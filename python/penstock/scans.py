"""The linear recurrence by itself: what lies inside minGRU, minLSTM, and diagonal state space models."""

from __future__ import annotations

from . import _core
from ._execution import execution, is_time_first

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without the import
if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from ._types import Buffer, Layout, Mode, State

__all__ = ["log_scan", "log_scan_backward", "scan", "scan_backward"]


def _which(lengths, cu_seqlens, reset_mask):
    if lengths is None and cu_seqlens is None and reset_mask is None:
        return None
    return lengths, cu_seqlens, reset_mask


def scan(
    a: ArrayLike,
    b: ArrayLike,
    h0: State | None = None,
    *,
    mode: Mode = "auto",
    device: str = "auto",
    reverse: bool = False,
    lengths: ArrayLike | None = None,
    cu_seqlens: ArrayLike | None = None,
    reset_mask: ArrayLike | None = None,
    layout: Layout = "batch_first",
    out: Buffer | None = None,
    threads: int = 0,
    exact: bool = False,
) -> tuple[NDArray, NDArray]:
    """The recurrence ``h_t = a_t h_{t-1} + b_t`` over T; returns ``(h, last)``.

    Args:
        a: ``[B, T, C]``, one row ``[T, C]``, or, with ``cu_seqlens``, all rows one after the other ``[total, C]``.
            float32 or float64, of either sign.
        b: As ``a``.
        h0: The state before the first step, ``[B, C]`` (one row: ``[C]``); zeros if it is None.
        mode: ``"sequential"``, ``"scan"`` (parallel over chunks of T), or ``"auto"``: what is expected to be faster.
        device: ``"cpu"``; ``"auto"`` is where the arrays are.
        reverse: Every row is walked from its last step.
        lengths: int64 ``[B]``: how many steps each row has. Later ones are never read and are zero in ``h``.
        cu_seqlens: int64 ``[B + 1]``: row b has the steps ``cu_seqlens[b]`` to ``cu_seqlens[b + 1] - 1``.
        reset_mask: bool ``[B, T]``. True: the state is set to zero before this step.
        layout: ``"batch_first"``, or ``"time_first"`` for ``[T, B, C]``.
        out: Where to write ``h``; a new array if it is None.
        threads: 0: as many as the machine offers.
        exact: The same bits for any split of a sequence; slower.

    Returns:
        ``h`` in the shape of ``a``, and the state after the last step of each row.

    >>> import numpy as np, penstock
    >>> h, last = penstock.scan(np.full((4, 1), 0.5), np.ones((4, 1)))
    >>> h[:, 0].tolist(), last.tolist()
    ([1.0, 1.5, 1.75, 1.875], [1.875])
    """
    return _core.scan(
        (a, b, None),
        h0,
        out,
        False,
        reverse,
        _which(lengths, cu_seqlens, reset_mask),
        is_time_first(layout),
        execution(mode, device, threads, exact, "full"),
    )


def log_scan(
    log_a: ArrayLike,
    log_b: ArrayLike,
    h0: State | None = None,
    *,
    sign: ArrayLike | None = None,
    mode: Mode = "auto",
    device: str = "auto",
    reverse: bool = False,
    lengths: ArrayLike | None = None,
    cu_seqlens: ArrayLike | None = None,
    reset_mask: ArrayLike | None = None,
    layout: Layout = "batch_first",
    out: Buffer | None = None,
    threads: int = 0,
    exact: bool = False,
) -> tuple[NDArray, NDArray]:
    """:func:`scan` of terms given by their logarithms: ``h_t = exp(log_a_t) h_{t-1} + sign_t exp(log_b_t)``.

    The state itself is an ordinary number of either sign, before and after: no logarithm of it is ever taken.

    Args:
        sign: The sign of each b (any factor, in fact), in the shape of ``log_b``; 1 if it is None.

    The other arguments are those of :func:`scan`. Exponents beyond ±87 (float64: ±707) count as that.

    >>> import numpy as np, penstock
    >>> h, last = penstock.log_scan(np.log(np.full((4, 1), 0.5)), np.zeros((4, 1)))
    >>> bool(np.allclose(h[:, 0], [1, 1.5, 1.75, 1.875]))
    True
    """
    return _core.scan(
        (log_a, log_b, sign),
        h0,
        out,
        True,
        reverse,
        _which(lengths, cu_seqlens, reset_mask),
        is_time_first(layout),
        execution(mode, device, threads, exact, "full"),
    )


def scan_backward(
    a: ArrayLike,
    b: ArrayLike,
    h: ArrayLike,
    dh: ArrayLike,
    h0: State | None = None,
    dlast: ArrayLike | None = None,
    *,
    mode: Mode = "auto",
    device: str = "auto",
    reverse: bool = False,
    lengths: ArrayLike | None = None,
    cu_seqlens: ArrayLike | None = None,
    reset_mask: ArrayLike | None = None,
    layout: Layout = "batch_first",
    threads: int = 0,
    exact: bool = False,
) -> tuple[NDArray, NDArray, NDArray]:
    """The backward pass of :func:`scan`; returns ``(da, db, dh0)``.

    Args:
        h: What :func:`scan` returned for ``a``, ``b``, ``h0``.
        dh: The gradient of ``h``, in its shape.
        dlast: The gradient of the last state, ``[B, C]``; zeros if it is None.

    The other arguments are those of the call of :func:`scan`.
    """
    da, db, _, dh0 = _core.scan_backward(
        (a, b, None),
        h0,
        (h, dh, dlast),
        False,
        reverse,
        _which(lengths, cu_seqlens, reset_mask),
        is_time_first(layout),
        execution(mode, device, threads, exact, "full"),
    )
    return da, db, dh0


def log_scan_backward(
    log_a: ArrayLike,
    log_b: ArrayLike,
    h: ArrayLike,
    dh: ArrayLike,
    h0: State | None = None,
    dlast: ArrayLike | None = None,
    *,
    sign: ArrayLike | None = None,
    mode: Mode = "auto",
    device: str = "auto",
    reverse: bool = False,
    lengths: ArrayLike | None = None,
    cu_seqlens: ArrayLike | None = None,
    reset_mask: ArrayLike | None = None,
    layout: Layout = "batch_first",
    threads: int = 0,
    exact: bool = False,
) -> tuple[NDArray, NDArray, NDArray | None, NDArray]:
    """The backward pass of :func:`log_scan`; returns ``(dlog_a, dlog_b, dsign, dh0)``, ``dsign`` None without a sign."""
    return _core.scan_backward(
        (log_a, log_b, sign),
        h0,
        (h, dh, dlast),
        True,
        reverse,
        _which(lengths, cu_seqlens, reset_mask),
        is_time_first(layout),
        execution(mode, device, threads, exact, "full"),
    )
