"""Layers of LSTMs with projections (Sak et al. 2014): h_t = W_hr m_t [B, P], where m_t = o_t tanh(c_t) [B, H].

The recurrent product is W_hh h_{t-1} = R' m_{t-1} with R' = W_hh W_hr [4H, H]. The kernels therefore run an LSTM
without projections, whose recurrent matrix is R' and whose outputs are m. One product with W_hr makes h of all steps.
"""

import torch
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ._checks import check_values_of_lengths
from ._composed import composed, of_steps
from ._ops import is_plain, run_layers
from ._tangents import has_tangents

#: Multiply-adds that R' may add to each gate of a unit and position on a CPU. So many take about as long as what the
#: kernels save over PyTorch's LSTM, whose steps are a dozen operations each.
_MOST_ADDED = 384


def run_projected(x, weights, states, rows, *form):
    """Does what run_layers() does, for layers whose weights of each direction end with W_hr [P, H]."""
    run = _stepwise if _favours_steps(x, weights[-1], rows, form[-2]) else _folded
    if not torch.compiler.is_compiling() and has_tangents(x, weights, states):
        with torch.inference_mode(False):  # inference mode would lose tangents
            return run(x, weights, states, rows, *form)
    return run(x, weights, states, rows, *form)


def _favours_steps(x, weight_hr, rows, batch_first):
    """Returns True if R' would cost more than the kernels save, and for float64 on a GPU, where no kernel has it.

    R' costs too much for a single step, and on a CPU if it adds too many multiply-adds: for each gate of a unit it adds
    H - P at each position, and H P once.
    """
    if torch.jit.is_tracing():
        return False  # a trace holds for other lengths, too
    if x.is_cuda and x.dtype == torch.float64:
        return True
    lengths, batch_sizes, _ = rows
    if lengths is not None and batch_sizes is not None:
        is_one_step = int(batch_sizes) == 1
    else:
        is_one_step = (x.shape[1 if batch_first else 0] if batch_sizes is None else len(batch_sizes)) == 1
    if not is_plain(x):
        return is_one_step and lengths is None  # the kernels check lengths on every device and in compiled graphs
    (width, hidden), positions = weight_hr.shape, x.shape[:-1].numel()
    return is_one_step or (0 < positions and hidden - width + hidden * width / positions > _MOST_ADDED)


def _stepwise(x, weights, states, rows, cell, layers, bidirectional, batch_first, every_state):
    """Runs PyTorch's own LSTM if it supports all arguments, otherwise PyTorch's operations, step by step."""
    lengths, batch_sizes, reset = rows
    slots = layers * (2 if bidirectional else 1)
    if not states:
        count = x.shape[0 if batch_first else 1] if batch_sizes is None else int(batch_sizes[0])
        states = tuple(x.new_zeros(slots, count, width) for width in weights[-1].shape)
    row_after_row = lengths is not None and batch_sizes is not None
    if lengths is not None and not row_after_row:
        check_values_of_lengths(lengths, x.shape[1 if batch_first else 0])
    if reset is None and not every_state and is_plain(x) and not row_after_row:
        form = (len(weights) == 5 * slots, layers, 0.0, False, bidirectional)

        def run(data, batch_sizes, states):
            return torch.lstm(data, batch_sizes, states, weights, *form)

        if batch_sizes is not None:
            return list(run(x, batch_sizes, states))
        if lengths is None:
            return list(torch.lstm(x, states, weights, *form, batch_first))
        if lengths.any():
            return _packed(run, x, states, lengths, batch_first)
    form = (cell, layers, bidirectional, batch_first, every_state)
    y, last, every = composed(x, weights, states, lengths, batch_sizes, reset, *form)
    return [y, *last, every] if every_state else [y, *last]


def _packed(run, x, states, lengths, batch_first):
    """Packs padded rows and calls run(data, batch_sizes, states).

    Returns y with zeros beyond a row's length, and the last states [slots, B, ...]. Rows with length 0 keep their
    states.
    """
    batch, steps = (0, 1) if batch_first else (1, 0)
    some = lengths.nonzero().squeeze(1)
    packed = pack_padded_sequence(x.index_select(batch, some), lengths[some], batch_first, enforce_sorted=False)
    order = some[packed.sorted_indices]
    y, *last = run(packed.data, packed.batch_sizes, tuple(s.index_select(1, order) for s in states))
    y, _ = pad_packed_sequence(packed._replace(data=y), batch_first, total_length=x.shape[steps])
    y = y.new_zeros(*x.shape[:2], y.shape[2]).index_copy(batch, some, y)
    return [y, *(s.index_copy(1, order, after) for s, after in zip(states, last))]


def _folded(x, weights, states, rows, cell, layers, bidirectional, batch_first, every_state):
    """Runs the kernels with R', layer by layer."""
    directions = 2 if bidirectional else 1
    each, last = len(weights) // (layers * directions), []
    for layer in range(layers):
        slots = range(layer * directions, (layer + 1) * directions)
        parts = [weights[i * each : (i + 1) * each] for i in slots]
        entering = tuple(s[slots.start : slots.stop] for s in states)
        wanted = every_state and layer == layers - 1
        x, *after = _folded_layer(x, parts, entering, rows, cell, batch_first, wanted)
        every = [after.pop()] if wanted else []
        last.append(after)
    return [x, *(torch.cat(states) for states in zip(*last)), *every]


def _folded_layer(x, parts, states, rows, cell, batch_first, every_state):
    """Runs one layer with R', given the weights of each direction.

    A given h_0 has no m_0, since W_hr is not square. It enters by P more input columns of each direction, whose weights
    are W_hh. They hold h_0 at the step that a row visits first, the h of resets at theirs, and 0 elsewhere.
    """
    lengths, entering = rows[0], ()
    if states:
        h0, c0 = states
        entering = (torch.zeros_like(c0), c0)
        firsts = [_at_first_step(h, x, rows, batch_first, i == 1) for i, h in enumerate(h0.unbind(0))]
        x = torch.cat([x, *firsts], -1)
    weights = []
    for own, (weight_ih, weight_hh, *biases, weight_hr) in enumerate(parts):
        if states:
            columns = [weight_hh if i == own else torch.zeros_like(weight_hh) for i in range(len(parts))]
            weight_ih = torch.cat([weight_ih, *columns], 1)
        weights += [weight_ih, _product(weight_hh, weight_hr), *biases]
    form = (cell, 1, len(parts) == 2, batch_first, every_state)
    m, m_last, c_last, *every = run_layers(x, weights, entering, rows, *form)
    y = [functional.linear(half, part[-1]) for half, part in zip(m.chunk(len(parts), -1), parts)]
    last = [functional.linear(half.to(part[-1].dtype), part[-1]) for half, part in zip(m_last.unbind(0), parts)]
    last = torch.stack(last).to(c_last.dtype)
    if states and lengths is not None:
        lengths = lengths if rows[1] is None else lengths.diff()
        last = torch.where((lengths > 0).unsqueeze(1), last, h0.to(last.dtype))
    return [y[0] if len(y) == 1 else torch.cat(y, -1), last, c_last, *every]


def _product(weight_hh, weight_hr):
    """Returns R'. It is rounded to the type of the weights, under autocast too, as W_hh is."""
    kind = weight_hh.device.type
    if torch._C._is_any_autocast_enabled() and torch.is_autocast_enabled(kind):
        with torch.autocast(kind, enabled=False):
            return torch.mm(weight_hh, weight_hr)
    return torch.mm(weight_hh, weight_hr)


def _at_first_step(h0, x, rows, batch_first, reverse):
    """Returns h0 [B, P] as a sequence in the layout of x, which holds it at the step that a row visits first.

    A reset at this step forgets it. The h of resets may lie behind those of the B rows. Elsewhere the sequence is 0, for
    rows without steps too.
    """
    lengths, batch_sizes, reset = rows
    h0 = h0.to(x.dtype)
    if batch_sizes is not None and lengths is not None:  # rows without steps, at the end, add nothing
        first = torch.zeros(x.shape[0] + 1, h0.shape[1], dtype=h0.dtype, device=x.device)
        return first.index_add(0, lengths[:-1], h0 * (lengths.diff() > 0).unsqueeze(1))[:-1]
    if batch_sizes is not None:
        places = torch.arange(h0.shape[0], device=batch_sizes.device)
        if reverse:
            starts = torch.cumsum(batch_sizes, 0) - batch_sizes
            steps = (batch_sizes.unsqueeze(1) > places).sum(0)
            places = places + starts[steps - 1]
        places = places.to(x.device)
        if reset is not None:
            h0 = torch.where(reset[places].bool().unsqueeze(1), torch.zeros_like(h0), h0)
        return x.new_zeros(x.shape[0], h0.shape[1]).index_copy(0, places, h0)
    count = x.shape[1 if batch_first else 0]
    first = (count if lengths is None else lengths.unsqueeze(1)) - 1 if reverse else 0
    here = torch.arange(count, device=x.device).unsqueeze(0) == first  # [B, T], or [1, T] for all rows
    if reset is not None:
        here = here & ~reset.bool()
    batch = x.shape[0 if batch_first else 1]
    sequence = torch.where(here.t().unsqueeze(-1), h0[:batch], h0.new_zeros(()))
    if reset is not None and h0.shape[0] > batch:
        sequence = torch.where(reset.bool().t().unsqueeze(-1), of_steps(h0[batch:], count, batch), sequence)
    return sequence.transpose(0, 1) if batch_first else sequence
