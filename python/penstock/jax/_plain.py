"""Layers and scans in JAX's own operations, step by step: what forward mode and second derivatives are made of."""

import functools

import jax
import jax.numpy as jnp
from jax.scipy.special import erf

from .. import reference
from .._cell_forms import CELLS, custom_step, split_bias


class _OfArrays:
    """The functions of cells, for JAX's arrays."""

    exp, log, tanh, sin, cos, sqrt, abs, erf = jnp.exp, jnp.log, jnp.tanh, jnp.sin, jnp.cos, jnp.sqrt, jnp.abs, erf
    sigmoid, log_sigmoid, softplus, relu = jax.nn.sigmoid, jax.nn.log_sigmoid, jax.nn.softplus, jax.nn.relu
    maximum, where, clip, isnan, broadcast_to = jnp.maximum, jnp.where, jnp.clip, jnp.isnan, jnp.broadcast_to

    @staticmethod
    def cast(x, like):
        return x.astype(like.dtype)

    @staticmethod
    def constant(value, like):
        return jnp.asarray(value, like.dtype)


def _product(weight, bias, count):
    """Returns a function from h [B, H] to R h + b as `count` gates [B, H]."""

    def product(h):
        matrix = weight if weight.ndim == 3 else weight[None]
        heads, gates_d, d = matrix.shape
        parts = jnp.einsum("bkd,kgd->bkg", h.reshape(-1, heads, d), matrix)
        whole = parts.reshape(-1, heads, count, d).swapaxes(1, 2).reshape(len(h), -1)
        return jnp.split(whole if bias is None else whole + bias, count, -1)

    return product


def _varying(array):
    """Returns the axes of a mesh that an array in jax.shard_map() varies over."""
    kind = jax.typeof(array)
    return kind.manual_axis_type.varying if hasattr(kind, "manual_axis_type") else kind.vma  # before JAX 0.10


def varying_alike(arrays):
    """Marks arrays in jax.shard_map() as varying over all axes of a mesh that one of them varies over."""
    axes = frozenset().union(*map(_varying, arrays))
    missing = [tuple(axes - _varying(array)) for array in arrays]
    mark = functools.partial(jax.lax.pcast, to="varying") if hasattr(jax.lax, "pcast") else jax.lax.pvary
    return [mark(array, over) if over else array for array, over in zip(arrays, missing)]


def _over_steps(step, state, xs, valid, reset, reverse, kept, restarts=None):
    """Runs step(x_t, state) -> state over the first axis of xs. Returns the first `kept` states of every step, with
    zeros beyond a row's length, and the last states. `restarts`: the states [T, B, H] after resets, zeros if None."""

    def one(state, given):
        x, now, begins, to = given
        begins = (now & begins)[:, None]
        entering = tuple(jnp.where(begins, t, s) for t, s in zip(to or (0,) * len(state), state))
        after = step(x, entering)
        state = tuple(jnp.where(now[:, None], new, old) for new, old in zip(after, state))
        return state, tuple(jnp.where(now[:, None], new, 0) for new in after[:kept])

    _, *state = varying_alike([jax.tree.leaves(xs)[0], *state])
    last, every = jax.lax.scan(one, tuple(state), (xs, valid, reset, restarts), reverse=reverse)
    return every, last


def _masks(form, rows, steps, masks):
    """Returns the steps that rows have, and those that begin with zeros, each bool [T, B]."""
    masks = list(masks)
    valid, reset = jnp.ones((steps, rows), bool), jnp.zeros((steps, rows), bool)
    if form.lengths:
        valid = jnp.arange(steps)[:, None] < masks.pop(0)[:, 0]
    if form.reset:
        reset = masks.pop(0).T
    return valid, reset


def layers(form, x, *others):
    """Computes the outputs of LayersForm."""
    dtype = jnp.dtype("float64" if x.dtype == "float64" else "float32")
    weights = [w.astype(dtype) for w in others[: len(form.weights)]]
    others = others[len(weights) :]
    gates, count, scans = CELLS[form.cell]
    padded = (x if form.time_major else x.swapaxes(0, 1)).astype(dtype)
    steps, rows, _ = padded.shape
    hidden = weights[0].shape[0] // gates
    state = others[0] if form.state else jnp.zeros((count, form.slots, rows, hidden), dtype)
    restarts = None
    if form.restarts:
        to = state[:, :, :, 1:].transpose(0, 1, 3, 2, 4)
        restarts, state = jnp.broadcast_to(to, (count, form.slots, steps, rows, hidden)), state[:, :, :, 0]
    valid, reset = _masks(form, rows, steps, others[form.state :])
    padded = jnp.where(valid[..., None], padded, 0)  # a NaN there would reach gradients of weights
    directions = form.slots // form.layers
    lasts, others = [], []
    for layer in range(form.layers):
        kept = count if form.every_state and layer == form.layers - 1 else 1
        outputs, others = [], []
        for slot in range(layer * directions, (layer + 1) * directions):
            own = weights[slot * form.each : (slot + 1) * form.each]
            ih, hh = own[0], None if scans else own[1]
            bias_ih, bias_hh = (*own[1 if scans else 2 :], None, None)[:2]
            bias_ih, learnt = split_bias(form.cell, bias_ih, gates)
            wx = padded @ ih.T + (0 if bias_ih is None else bias_ih)
            function = (
                reference.CELLS[form.cell][0]
                if form.cell in reference.CELLS
                else custom_step(form.cell, learnt, form.heads)
            )
            product = None if scans else _product(hh, bias_hh, gates)

            def step(wx, state):
                return function(_OfArrays, jnp.split(wx, gates, -1), product, *state)

            reverse = slot - layer * directions == 1
            to = tuple(restarts[:, slot]) if form.restarts else None
            (y, *every), last = _over_steps(step, tuple(state[:, slot]), wx, valid, reset, reverse, kept, to)
            outputs.append(y)
            others += every
            lasts.append(jnp.stack(last))
        padded = jnp.concatenate(outputs, -1)
    sequences = [padded.astype(x.dtype), *([jnp.concatenate(others, -1)] if form.every_state else [])]
    y, *every = sequences if form.time_major else [s.swapaxes(0, 1) for s in sequences]
    return [y, jnp.stack(lasts, 1), *every]


def scan(form, a, b, *others):
    """Computes the outputs of ScanForm."""
    given, dtype = a.dtype, jnp.dtype("float64" if a.dtype == "float64" else "float32")
    a, b = (term.swapaxes(0, 1).astype(dtype) for term in (a, b))
    steps, rows, _ = a.shape
    valid, reset = _masks(form, rows, steps, others[form.state :])
    a, b = (jnp.where(valid[..., None], term, 0) for term in (a, b))
    terms = (jnp.exp(a), jnp.exp(b)) if form.logarithmic else (a, b)
    h0 = others[0] if form.state else jnp.zeros_like(a[0])
    (h,), (last,) = _over_steps(lambda t, state: (t[0] * state[0] + t[1],), (h0,), terms, valid, reset, form.reverse, 1)
    return [h.swapaxes(0, 1).astype(given), last]
