"""Linear recurrences h_t = a_t h_{t-1} + b_t."""

import jax.numpy as jnp

from ..errors import InvalidArgument
from ._forms import TYPES, ScanForm, state_type
from ._layers import check_mask, lengths_in_words
from ._plain import varying_alike
from ._primitives import run


def _scan(a, b, h0, logarithmic, lengths, reset_mask, reverse):
    a, b = jnp.asarray(a), jnp.asarray(b)
    if a.ndim != 3 or b.shape != a.shape or 0 in a.shape:
        raise InvalidArgument(
            f"a and b must be [B, T, C], both the same and without empty axes, not {list(a.shape)} and {list(b.shape)}"
        )
    given = jnp.result_type(a, b)
    if given.name not in TYPES:
        raise InvalidArgument(f"a and b must be float32, float64, bfloat16 or float16, not {given.name}")
    inputs = [a.astype(given), b.astype(given)]
    rows, steps, channels = a.shape
    if h0 is not None:
        h0 = jnp.asarray(h0)
        if h0.shape != (rows, channels):
            raise InvalidArgument(f"h0 must be [B, C] = [{rows}, {channels}], not {list(h0.shape)}")
        inputs.append(h0.astype(state_type(given)))
    if lengths is not None:
        inputs.append(lengths_in_words(lengths, rows))
    if reset_mask is not None:
        inputs.append(check_mask(reset_mask, (rows, steps)))
    form = ScanForm(logarithmic, reverse, h0 is not None, lengths is not None, reset_mask is not None)
    return tuple(result.astype(given) for result in run(form, varying_alike(inputs)))


def scan(a, b, h0=None, *, lengths=None, reset_mask=None, reverse=False):
    """Computes h_t = a_t h_{t-1} + b_t in parallel over T and returns ``(h, last)``.

    Args:
        a: ``[B, T, C]``; float32, float64, bfloat16 or float16. 16-bit types are computed in float32.
        b: ``[B, T, C]``.
        h0: The initial state ``[B, C]``. None: zeros.
        lengths: ``[B]`` integers: number of steps of each row. Later steps are not read, and their h are zeros.
            Impossible lengths raise an error when the call runs; on a GPU, they make h and last of their rows NaN.
        reset_mask: bool ``[B, T]``. True resets the state to zero before this step.
        reverse: True: runs from the last step of each row to its first.

    Returns:
        All h ``[B, T, C]``, and the state after the last step ``[B, C]``.

    Raises:
        InvalidArgument: A shape or a dtype does not fit.
    """
    return _scan(a, b, h0, False, lengths, reset_mask, reverse)


def log_scan(log_a, log_b, h0=None, *, lengths=None, reset_mask=None, reverse=False):
    """Computes :func:`scan` from the logarithms of ``a`` and ``b``, both positive. ``h`` and ``h0`` are plain numbers.

    The other arguments and the results are those of :func:`scan`.
    """
    return _scan(log_a, log_b, h0, True, lengths, reset_mask, reverse)
