"""Stacks of layers as functions of their weights."""

import math
import operator
import re
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from .._cell_forms import CELLS, describe_cell, initial_values, learnt_vectors, parameter_shapes
from .._minimal import minimal_cell
from ..errors import InvalidArgument
from ._forms import TYPES, LayersForm, state_type
from ._plain import varying_alike
from ._primitives import run

_NAME = re.compile(r"(weight_ih|weight_hh|bias_ih|bias_hh)_l(0|[1-9][0-9]*)(_reverse)?")


def _describe(weights, cell):
    """Returns (layers, bidirectional, heads, names of the weights in the library's order) of a dict of weights."""
    for name in weights:
        if not _NAME.fullmatch(name):
            raise InvalidArgument(f"weights must be named like PyTorch's, such as weight_ih_l0_reverse, not {name!r}")
    if "weight_ih_l0" not in weights:
        raise InvalidArgument("weights lack weight_ih_l0")
    gates, _, scans = CELLS[cell]
    first = weights["weight_ih_l0"].shape
    if len(first) != 2 or first[0] == 0 or first[0] % gates:
        raise InvalidArgument(f"weight_ih_l0 must be [{gates} * H, I], not {list(first)}")
    hidden = first[0] // gates
    layers = 1 + max(int(_NAME.fullmatch(name)[2]) for name in weights)
    ends = ("", "_reverse") if "weight_ih_l0_reverse" in weights else ("",)
    square = weights.get("weight_hh_l0")
    heads = square.shape[0] if not scans and square is not None and square.ndim == 3 else 1
    if heads < 1 or hidden % heads:
        raise InvalidArgument(f"the {heads} heads of weight_hh_l0 must divide the hidden size {hidden}")
    bias = "both" if "bias_hh_l0" in weights else "single" if "bias_ih_l0" in weights else "none"
    shapes = {
        f"{name}_l{layer}{end}": shape
        for layer in range(layers)
        for end in ends
        for name, shape in parameter_shapes(
            cell, hidden * len(ends) if layer else first[1], hidden, heads, bias
        ).items()
    }
    for name in sorted(weights.keys() ^ shapes.keys()):
        raise InvalidArgument(
            f"weights {'lack' if name in shapes else 'must not have'} {name}: they have {', '.join(weights)}"
        )
    for name, shape in shapes.items():
        if weights[name].shape != shape:
            raise InvalidArgument(
                f"{name} must be {list(shape)}, not {list(weights[name].shape)}: weight_ih_l0 has {first[0]} rows, which "
                f"are {gates} * H with H = {hidden} for the cell {cell}"
            )
    return layers, len(ends) == 2, heads, list(shapes)


def lengths_in_words(lengths, rows):
    """Returns lengths as the library reads them: int64 [B] as int32 [B, 2], which takes no 64 bits of JAX."""
    lengths = jnp.asarray(lengths)
    if not jnp.issubdtype(lengths.dtype, jnp.integer) or lengths.shape != (rows,):
        raise InvalidArgument(
            f"lengths must be [B] = [{rows}] integers, not {lengths.dtype.name} {list(lengths.shape)}"
        )
    low = lengths.astype(jnp.int32)
    return jnp.stack([low, low >> 31], -1)


def check_mask(mask, shape):
    mask = jnp.asarray(mask)
    if mask.dtype != bool or mask.shape != tuple(shape):
        remedy = "" if mask.dtype == bool else ": reset_mask != 0 is bool"
        raise InvalidArgument(f"reset_mask must be bool {list(shape)}, not {mask.dtype.name} {list(mask.shape)}{remedy}")
    return mask


def episode_starts(dones, first=None, *, time_major=False):
    """Returns the ``reset_mask`` of a rollout: True before the first step of each episode.

    ``dones`` at step t says that an episode ended with this step, the mask that one starts before it. The flags
    therefore move by one step. A rollout that goes on after another one needs the last dones of that one.

    Args:
        dones: bool ``[B, T]``, ``[T, B]`` with ``time_major``, or ``[T]``.
        first: bool ``[B]``, or a scalar for dones ``[T]``: True if an episode starts before step 0. These are the dones
            of the last step before this rollout. None: an episode starts in every row.
        time_major: True: the first axis of ``dones`` is time, as in layers with ``time_major=True``.

    Returns:
        A bool array with the shape of ``dones``.

    Raises:
        InvalidArgument: An argument has another dtype than bool, or another shape.

    >>> import jax
    >>> print(episode_starts(jax.numpy.array([False, True, False, False]), first=False))
    [False False  True False]
    """
    dones = jnp.asarray(dones)
    if dones.ndim not in (1, 2) or dones.dtype != bool:
        wanted = "[T, B]" if time_major else "[B, T]"
        raise InvalidArgument(f"dones must be bool {wanted} or [T], not {dones.dtype.name} {list(dones.shape)}")
    steps = dones.T if dones.ndim == 2 and not time_major else dones
    first = jnp.ones(steps.shape[1:], bool) if first is None else jnp.asarray(first)
    if first.shape != steps.shape[1:] or first.dtype != bool:
        given = f"{first.dtype.name} {list(first.shape)}"
        raise InvalidArgument(f"first must be bool {list(steps.shape[1:])}, a flag for each row, not {given}")
    starts = jnp.concatenate([first[None], steps])[: len(steps)]
    return starts.T if steps is not dones else starts


def recurrent(x, weights, state=None, *, cell, lengths=None, reset_mask=None, every_state=False, time_major=False,
              reset_to=None):  # fmt: skip
    """Runs a stack of recurrent layers over whole sequences and returns ``(y, last)``.

    Args:
        x: ``[B, T, I]``, ``[T, B, I]`` with ``time_major``, or ``[T, I]`` of a single row; float32, float64, bfloat16
            or float16.
        weights: {name: array} with PyTorch's names and layouts, ``weight_ih_l0`` ``[G * H, I]`` and so on. They say how
            many layers, directions and heads there are, and whether there are biases.
        state: The states before the first step, ``[layers * directions, B, H]``, without B for a single row; for cells
            with several states a tuple of them. None: zeros.
        cell: The name of a cell, or a custom cell (:func:`penstock.cell`).
        lengths: ``[B]`` integers, the number of steps of each row. Later steps are not read, and their outputs are
            zeros. None: all rows have T steps. Impossible lengths raise an error when the call runs; on a GPU, they make
            outputs and last states of their rows NaN.
        reset_mask: bool, with the first axes of ``x``. True resets the states before this step.
        every_state: True: also returns the other states of the last layer after each step.
        time_major: True: the first axis of ``x``, of ``reset_mask`` and of the outputs is T.
        reset_to: The states that ``reset_mask`` starts again with; they get gradients. One for all rows
            ``[layers, H]``, one for each row ``[layers, B, H]``, or one for each step ``[layers, B, T, H]``, read at
            the resets only; without B for a single row. For cells with several states a tuple of them. None: zeros.
            ``lengths`` and two directions are not supported.

    Returns:
        The outputs, in the dtype of ``x`` with ``H * directions`` channels, and the last states in the form of
        ``state``, float32 (float64 if ``x`` is). With ``every_state`` also a tuple of the other states of every step.

    Raises:
        InvalidArgument: A shape, a dtype or a name does not fit.
    """
    cell = describe_cell(cell)[0]
    _, count, _ = CELLS[cell]
    if not isinstance(weights, Mapping):
        raise InvalidArgument(
            f"weights must be a dict of arrays by name, as initial_weights() returns, not {type(weights).__name__}"
        )
    weights = {name: jnp.asarray(value) for name, value in weights.items()}
    layers, bidirectional, heads, names = _describe(weights, cell)
    x = jnp.asarray(x)
    given = x.dtype
    if given.name not in TYPES:
        raise InvalidArgument(f"x must be float32, float64, bfloat16 or float16, not {given.name}")
    if every_state and count == 1:
        raise InvalidArgument(f"every_state is for cells with more states than the output, not for {cell}")
    if x.ndim not in (2, 3) or x.shape[-1] != weights["weight_ih_l0"].shape[1] or 0 in x.shape:
        sizes = f"{'[T, B' if time_major else '[B, T'}, I = {weights['weight_ih_l0'].shape[1]}]"
        raise InvalidArgument(f"x must be {sizes} or [T, I] of a single row, without empty axes, not {list(x.shape)}")
    mask = None if reset_mask is None else check_mask(reset_mask, x.shape[:-1])
    if reset_to is not None:
        _check_restarts(lengths, mask, bidirectional)
    single = x.ndim == 2
    row = int(time_major and not single)
    inputs = [jnp.expand_dims(x, row) if single else x]
    kind, whole = state_type(given), inputs[0].shape
    rows, hidden = whole[row], weights["weight_ih_l0"].shape[0] // CELLS[cell][0]
    narrow = given.itemsize == 2 and all(w.dtype == given for w in weights.values())
    inputs += [weights[name].astype(given if narrow else kind) for name in names]
    if mask is not None:
        mask = mask[None] if single else mask.T if row else mask
    slots = layers * (1 + bidirectional)
    if state is not None:
        state = _stacked(state, count, [(slots, *([] if single else [rows]), hidden)], kind)
        state = state[:, :, None] if single else state
    if reset_to is not None:
        state = _with_restarts(reset_to, state, mask, count, (layers, hidden), kind, single)
    if state is not None:
        inputs.append(state)
    if lengths is not None:
        inputs.append(lengths_in_words([lengths] if single else lengths, rows))
    if mask is not None:
        inputs.append(mask)
    form = LayersForm(
        cell, layers, bidirectional, heads, len(names) // slots, bool(row), every_state, state is not None,
        lengths is not None, reset_mask is not None, reset_to is not None,
    )  # fmt: skip
    y, last, *every = run(form, varying_alike(inputs))
    if single:
        last = last[:, :, 0]
    results = [y, last[0] if count == 1 else tuple(last)]
    if every_state:
        parts = every[0].reshape(*every[0].shape[:2], 1 + bidirectional, count - 1, hidden)
        results.append(tuple(parts[..., s, :].reshape(*whole[:2], -1) for s in range(count - 1)))
    return tuple(jax.tree.map(lambda s: s.squeeze(row), r) if single and r is not results[1] else r for r in results)


def _stacked(state, count, shapes, kind, name="state"):
    """Checks states, which all have one of the shapes, and returns them as one array [S, ...]."""
    states = tuple(state) if isinstance(state, (tuple, list)) else (state,)
    if len(states) != count or (count > 1 and not isinstance(state, (tuple, list))):
        raise InvalidArgument(
            f"{name} must be {f'a tuple of {count} arrays' if count > 1 else 'one array'}, not {len(states)}"
        )
    states = [jnp.asarray(s) for s in states]
    for s in states:
        if s.shape not in shapes or s.shape != states[0].shape or not jnp.issubdtype(s.dtype, jnp.floating):
            wanted = " or ".join(str(list(shape)) for shape in shapes)
            named = "states" if name == "state" else name
            raise InvalidArgument(f"{named} must be floats {wanted}, not {s.dtype.name} {list(s.shape)}")
    return jnp.stack([s.astype(kind) for s in states])


def _check_restarts(lengths, mask, bidirectional):
    if mask is None:
        raise InvalidArgument("reset_to needs reset_mask, which says where the states start again")
    if lengths is not None or bidirectional:
        raise InvalidArgument(
            "reset_to needs one direction and no lengths: run the layer on each part of a sequence, with state"
        )


def _with_restarts(reset_to, state, mask, count, sizes, kind, single):
    """Returns the states [S, layers, B, 1 + n, H]: those before step 0, then those with which rows start again."""
    layers, hidden = sizes
    axes = [mask.shape[1:], ()] if single else [mask.shape, mask.shape[:1], ()]
    to = _stacked(reset_to, count, [(layers, *each, hidden) for each in axes[::-1]], kind, "reset_to")
    if single and to.ndim == 4:
        to = to[:, :, None]
    to = to.reshape(*to.shape[:-1], *[1] * (5 - to.ndim), hidden)
    to = jnp.broadcast_to(to, (count, layers, len(mask), to.shape[3], hidden))
    first = jnp.zeros_like(to[:, :, :, :1]) if state is None else state[:, :, :, None]
    return jnp.concatenate([first, to], 3)


def _named(cell, title):
    def layer(x, weights, state=None, *, lengths=None, reset_mask=None, every_state=False, time_major=False,
              reset_to=None):  # fmt: skip
        return recurrent(
            x, weights, state, cell=cell, lengths=lengths, reset_mask=reset_mask, every_state=every_state,
            time_major=time_major, reset_to=reset_to,
        )  # fmt: skip

    layer.__name__ = layer.__qualname__ = title
    layer.__doc__ = (
        f"Runs :func:`recurrent` with the cell ``{cell}``; the other arguments and the results are the same."
    )
    return layer


lstm, gru, slstm = _named("lstm", "lstm"), _named("gru", "gru"), _named("slstm", "slstm")
elman = _named("elman", "elman")


def min_gru(x, weights, state=None, *, candidate="linear", lengths=None, reset_mask=None, time_major=False,
            reset_to=None):  # fmt: skip
    """Runs :func:`recurrent` with the cell minGRU; ``candidate`` is ``"linear"`` or ``"positive"``."""
    cell = minimal_cell("mingru", candidate)
    rest = {"lengths": lengths, "reset_mask": reset_mask, "time_major": time_major, "reset_to": reset_to}
    return recurrent(x, weights, state, cell=cell, **rest)


def min_lstm(x, weights, state=None, *, candidate="linear", lengths=None, reset_mask=None, time_major=False,
             reset_to=None):  # fmt: skip
    """Runs :func:`recurrent` with the cell minLSTM; ``candidate`` is ``"linear"`` or ``"positive"``."""
    cell = minimal_cell("minlstm", candidate)
    rest = {"lengths": lengths, "reset_mask": reset_mask, "time_major": time_major, "reset_to": reset_to}
    return recurrent(x, weights, state, cell=cell, **rest)


def initial_weights(key, cell, input_size, hidden_size, *, num_layers=1, bidirectional=False, bias=True, num_heads=1,
                    dtype=jnp.float32):  # fmt: skip
    """Returns new weights for :func:`recurrent`, {name: array}, drawn as PyTorch's layers draw them.

    Args:
        key: A key of ``jax.random``.
        cell: The name of a cell, or a custom cell. Its learnt vectors begin with their initial values.
        input_size: I.
        hidden_size: H.
        num_layers: Number of stacked layers.
        bidirectional: True: a second layer of each runs from the last step to the first.
        bias: True: the layers have biases.
        num_heads: Number of diagonal blocks of the recurrent matrix.
        dtype: Dtype of the weights.
    """
    name, text = describe_cell(cell)
    if learnt_vectors(name) and not bias:
        raise InvalidArgument(f"the cell {name} has learnt vectors, which stand in bias_ih: bias must be True")
    sizes = {"input_size": input_size, "hidden_size": hidden_size, "num_layers": num_layers, "num_heads": num_heads}
    for size, value in sizes.items():
        if not hasattr(value, "__index__") or operator.index(value) < 1:
            raise InvalidArgument(f"{size} must be an integer of at least 1, not {value!r}")
    if hidden_size % num_heads:
        raise InvalidArgument(f"num_heads must divide hidden_size {hidden_size}, not {num_heads}")
    directions, weights = 2 if bidirectional else 1, {}
    for layer in range(num_layers):
        inputs = hidden_size * directions if layer else input_size
        for end in ("", "_reverse")[:directions]:
            for part, shape in parameter_shapes(
                name, inputs, hidden_size, num_heads, "both" if bias else "none"
            ).items():
                key, own = jax.random.split(key)
                bound = 1 / math.sqrt(hidden_size)
                drawn = jax.random.uniform(own, shape, dtype, -bound, bound)
                if part == "bias_ih" and (values := initial_values(text)):
                    drawn = drawn.at[-len(values) * hidden_size :].set(
                        jnp.repeat(jnp.asarray(values, dtype), hidden_size)
                    )
                weights[f"{part}_l{layer}{end}"] = drawn
    return weights


def named_layers(base):
    """Returns the classes RNN, GRU, LSTM, SLSTM, MinGRU and MinLSTM: a framework's Recurrent of one cell each."""

    def layer(name, cell):
        def __init__(self, input_size, hidden_size, **options):
            base.__init__(self, cell, input_size, hidden_size, **options)

        text = f"A stack of layers of the cell ``{cell}``. The arguments are those of :class:`Recurrent`."
        return type(name, (base,), {"__init__": __init__, "__doc__": text, "__module__": base.__module__})

    cells = ("elman", "gru", "lstm", "slstm", "mingru", "minlstm")
    return tuple(map(layer, ("RNN", "GRU", "LSTM", "SLSTM", "MinGRU", "MinLSTM"), cells))
