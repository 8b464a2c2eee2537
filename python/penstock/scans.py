"""Linear recurrences ``h_t = a_t h_{t-1} + b_t``, the core of minGRU, minLSTM and diagonal state space models."""

from __future__ import annotations

from . import _core
from ._execution import execution, is_time_first

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from ._types import Buffer, Layout, Mode, State

__all__ = ["log_scan", "log_scan_backward", "scan", "scan_backward"]


def _rest(logarithmic, reverse, lengths, cu_seqlens, reset_mask, layout, *how):
    """Returns the last arguments of all scans of the library; ``how`` are the mode, device, threads and exact."""
    given = lengths is not None or cu_seqlens is not None or reset_mask is not None
    which = (lengths, cu_seqlens, reset_mask) if given else None
    return logarithmic, reverse, which, is_time_first(layout), execution(*how, "full")


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
    """Computes ``h_t = a_t h_{t-1} + b_t`` over T and returns ``(h, last)``.

    Args:
        a: ``[B, T, C]``, one row ``[T, C]``, or with ``cu_seqlens`` the concatenated rows ``[total, C]``. float32 or
            float64, of either sign. If a is on a GPU, the scan runs there; the other arrays must be on the same GPU, and
            channels must be contiguous. There a may be float32, bfloat16 or float16, and states are float32.
        b: Same shape and dtype as ``a``.
        h0: The initial state, ``[B, C]``, or ``[C]`` for one row. None: zeros.
        mode: ``"sequential"``, ``"scan"`` (parallel over chunks of T), or ``"auto"`` (the faster by estimate).
        device: The device of the arrays, or ``"auto"`` for whichever that is.
        reverse: True: runs every row from its last step to its first.
        lengths: int64 ``[B]``: number of steps of each row. Later steps are never read and are zero in ``h``.
        cu_seqlens: int64 ``[B + 1]``: row ``b`` has the steps ``cu_seqlens[b]`` to ``cu_seqlens[b + 1] - 1``.
        reset_mask: bool ``[B, T]``. True resets the state to zero before this step.
        layout: ``"batch_first"``, or ``"time_first"`` for ``[T, B, C]``.
        out: Array for ``h``. None: a new array.
        threads: Number of threads. 0: all that the machine offers.
        exact: True: the same bits for any split of a sequence. This is slower.

    Returns:
        ``h`` in the shape and dtype of ``a``, and the state after the last step of each row. If a is on a GPU, both are
        :class:`penstock.cuda.Array`, and the call returns when they are complete.

    Raises:
        InvalidArgument: An argument has the wrong shape or an impossible value.
        TypeError: An array has the wrong dtype.

    >>> import numpy as np, penstock
    >>> h, last = penstock.scan(np.full((4, 1), 0.5), np.ones((4, 1)))
    >>> h[:, 0].tolist(), last.tolist()
    ([1.0, 1.5, 1.75, 1.875], [1.875])
    """
    rest = _rest(False, reverse, lengths, cu_seqlens, reset_mask, layout, mode, device, threads, exact)
    return _core.scan((a, b, None), h0, out, *rest)


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
    """Computes :func:`scan` from logarithms: ``h_t = exp(log_a_t) h_{t-1} + sign_t exp(log_b_t)``.

    States are ordinary numbers of either sign; only ``a`` and ``b`` are given as logarithms.

    Args:
        log_a: Logarithms of ``a``, clamped to ±87 (float64: ±707).
        log_b: Logarithms of the absolute values of ``b``, clamped in the same way.
        sign: Signs of ``b``, or any other factors, in the shape of ``log_b``. None: 1.

    The other arguments are those of :func:`scan`.

    >>> import numpy as np, penstock
    >>> h, last = penstock.log_scan(np.log(np.full((4, 1), 0.5)), np.zeros((4, 1)))
    >>> bool(np.allclose(h[:, 0], [1, 1.5, 1.75, 1.875]))
    True
    """
    rest = _rest(True, reverse, lengths, cu_seqlens, reset_mask, layout, mode, device, threads, exact)
    return _core.scan((log_a, log_b, sign), h0, out, *rest)


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
    """Runs the backward pass of :func:`scan` and returns ``(da, db, dh0)``.

    Args:
        h: The ``h`` that :func:`scan` returned for ``a``, ``b`` and ``h0``.
        dh: The gradient of ``h``, in its shape.
        dlast: The gradient of the last state, ``[B, C]``. None: zeros.

    The other arguments are those of the forward call.
    """
    rest = _rest(False, reverse, lengths, cu_seqlens, reset_mask, layout, mode, device, threads, exact)
    da, db, _, dh0 = _core.scan_backward((a, b, None), h0, (h, dh, dlast), *rest)
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
    """Runs the backward pass of :func:`log_scan` and returns ``(dlog_a, dlog_b, dsign, dh0)``.

    ``dsign`` is None if ``sign`` is. The arguments are those of :func:`scan_backward` and of the forward call.
    """
    rest = _rest(True, reverse, lengths, cu_seqlens, reset_mask, layout, mode, device, threads, exact)
    return _core.scan_backward((log_a, log_b, sign), h0, (h, dh, dlast), *rest)
