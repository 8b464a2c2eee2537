"""The linear recurrence by itself: what lies inside minGRU, minLSTM, and diagonal state space models."""

from __future__ import annotations

from . import _core

__all__ = ["log_scan", "log_scan_backward", "scan", "scan_backward"]

_SCANS = {
    "d": (_core.scan_f64, _core.scan_backward_f64),
    "f": (_core.scan_f32, _core.scan_backward_f32),
}


def _functions(a):
    """The functions for arrays of this type. Others than float64 are float32's to refuse by name."""
    name = str(getattr(a, "dtype", "float32"))
    return _SCANS["d" if name.endswith("float64") else "f"]


def scan(
    a,
    b,
    h0=None,
    *,
    mode="auto",
    device="auto",
    reverse=False,
    lengths=None,
    cu_seqlens=None,
    reset_mask=None,
    layout="batch_first",
    out=None,
    threads=0,
    exact=False,
):
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
    call = _functions(a)[0]
    return call(
        False, a, b, None, h0, out, reverse, lengths, cu_seqlens, reset_mask, layout, mode, device, threads, exact
    )


def log_scan(
    log_a,
    log_b,
    h0=None,
    *,
    sign=None,
    mode="auto",
    device="auto",
    reverse=False,
    lengths=None,
    cu_seqlens=None,
    reset_mask=None,
    layout="batch_first",
    out=None,
    threads=0,
    exact=False,
):
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
    call = _functions(log_a)[0]
    return call(
        True, log_a, log_b, sign, h0, out, reverse, lengths, cu_seqlens, reset_mask, layout, mode, device, threads, exact
    )


def scan_backward(
    a,
    b,
    h,
    dh,
    h0=None,
    dlast=None,
    *,
    mode="auto",
    device="auto",
    reverse=False,
    lengths=None,
    cu_seqlens=None,
    reset_mask=None,
    layout="batch_first",
    threads=0,
    exact=False,
):
    """The backward pass of :func:`scan`; returns ``(da, db, dh0)``.

    Args:
        h: What :func:`scan` returned for ``a``, ``b``, ``h0``.
        dh: The gradient of ``h``, in its shape.
        dlast: The gradient of the last state, ``[B, C]``; zeros if it is None.

    The other arguments are those of the call of :func:`scan`.
    """
    call = _functions(a)[1]
    da, db, _, dh0 = call(
        False, a, b, None, h0, h, dh, dlast, reverse, lengths, cu_seqlens, reset_mask, layout, mode, device, threads, exact
    )
    return da, db, dh0


def log_scan_backward(
    log_a,
    log_b,
    h,
    dh,
    h0=None,
    dlast=None,
    *,
    sign=None,
    mode="auto",
    device="auto",
    reverse=False,
    lengths=None,
    cu_seqlens=None,
    reset_mask=None,
    layout="batch_first",
    threads=0,
    exact=False,
):
    """The backward pass of :func:`log_scan`; returns ``(dlog_a, dlog_b, dsign, dh0)``, ``dsign`` None without a sign."""
    call = _functions(log_a)[1]
    return call(
        True, log_a, log_b, sign, h0, h, dh, dlast, reverse, lengths, cu_seqlens, reset_mask, layout, mode, device, threads, exact
    )
