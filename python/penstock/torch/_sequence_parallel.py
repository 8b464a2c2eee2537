"""Scans over sequences that several processes share. Each has the steps of one chunk, in the order of ranks.

By default all processes scan their chunks at the same time from a zero state. Then states pass from chunk to chunk, and
each process corrects its results. The contribution of the state before a chunk is multiplied by a decay at every step,
until it is too small to change a state. On a GPU the correction stops there, mostly after some hundred steps, without
synchronising with the host.

With decays of one or more, the correction computes a whole chunk again. Such scans can split channels and rows, which
are independent, into P groups. A process then scans its chunk of one group while the process before it scans its chunk
of the next group. With R processes, each is idle in R - 1 of P + R - 1 turns.

In both cases the states are those of one process that scans the sequence chunk by chunk.
"""

import collections
import datetime
import json

import torch
from torch import distributed
from torch.distributed import distributed_c10d

from ._higher_derivatives import state_type
from ._tangents import refuse_tangents

#: Smallest number of channels of a group, for contiguous memory accesses.
_LEAST_CHANNELS = 32
_AGREE_SECONDS = 45.0  # in which all processes of a group have to share their sequences
_agreements: collections.Counter[str] = collections.Counter()  # by group: each agreement has keys of its own


def groups_of(rows, channels, wanted):
    """Returns pairs of ranges of rows and channels: `wanted` pairs, or fewer if there are too few rows and channels."""
    by_rows = max(1, min(rows, wanted))
    by_channels = max(1, min(-(-wanted // by_rows), channels // _LEAST_CHANNELS))
    return [(r, c) for r in _ranges(rows, by_rows, 1) for c in _ranges(channels, by_channels, _LEAST_CHANNELS)]


def _ranges(size, count, unit):
    """Splits `size` into `count` ranges of nearly equal length that begin at multiples of `unit`."""
    units = -(-size // unit)
    ends = [min(size, units * i // count * unit) for i in range(count + 1)]
    ends[-1] = size
    return [slice(begin, end) for begin, end in zip(ends, ends[1:])]


def require_processes():
    if not distributed.is_available() or not distributed.is_initialized():
        raise RuntimeError("process_group needs torch.distributed.init_process_group()")


def agree_to_share(process_group, model, refusal):
    """Raises on every process of the group if one refuses, has another model or does not call this in 45 s.

    The processes meet in the store of their launcher, because a collective operation would wait for the group's timeout.

    Args:
        process_group: The processes.
        model: What all have to have in common, as {name: value}.
        refusal: Why this process cannot share; empty if it can.
    """
    if refusal and not distributed.is_initialized():
        raise ValueError(refusal)
    require_processes()
    rank, size = distributed.get_rank(process_group), distributed.get_world_size(process_group)
    name = process_group.group_name
    _agreements[name] += 1
    folder = f"penstock/share/{name}/{_agreements[name]}/"
    store = distributed.PrefixStore(folder, distributed_c10d._get_default_store().clone())
    store.set_timeout(datetime.timedelta(seconds=_AGREE_SECONDS))
    store.set(str(rank), json.dumps([model, refusal]))
    expected = None
    for other in range(size):
        try:
            found, why = json.loads(store.get(str(other)))
        except distributed.DistError as error:
            raise RuntimeError(
                f"rank {other} of {size} has not called share_sequences() within {_AGREE_SECONDS:g} s: call it on every "
                "process of the group; that rank's own error says more if it has ended"
            ) from error
        if why:
            raise ValueError(refusal or f"rank {other} of {size} cannot share its sequences: {why}")
        expected = expected or found
        for key, value in found.items():
            if value != expected.get(key):
                raise ValueError(
                    f"rank {other} of {size} has a model with {key} = {value!r}, rank 0 has {expected.get(key)!r}: load "
                    "the same model on every process"
                )


def agree_on_chunks(process_group, x, least, needs):
    """Raises on every process unless the chunks x [B, T] of all have equal B, and at least `least` steps.

    `needs` says what reads so many steps.
    """
    require_processes()
    size = distributed.get_world_size(process_group)
    own = torch.tensor(x.shape[:2], device=x.device)
    chunks = [torch.empty_like(own) for _ in range(size)]
    distributed.all_gather(chunks, own, process_group)
    chunks = torch.stack(chunks).tolist()
    for rank, (rows, steps) in enumerate(chunks):
        if rows != chunks[0][0]:
            raise ValueError(
                f"rank {rank} of {size} has {rows} rows, rank 0 has {chunks[0][0]}: give every process the same rows"
            )
        if steps < least:
            raise ValueError(
                f"rank {rank} of {size} has a chunk of {steps} steps, but {needs} reads the last {least} steps before a "
                "chunk: share longer sequences, or use fewer processes"
            )


class Shared:
    """Holds a process group. Copies of a module share it."""

    def __init__(self, group):
        self.group = group

    def __deepcopy__(self, memo):
        return self


class Neighbours:
    """The processes with the chunks before and after this one, in the direction of the scan."""

    def __init__(self, process_group, reverse):
        rank, size = distributed.get_rank(process_group), distributed.get_world_size(process_group)
        if rank < 0:
            raise ValueError("this process is not a member of process_group")
        step = -1 if reverse else 1
        self.group = process_group
        self.before = self._global(rank - step, size)
        self.after = self._global(rank + step, size)
        self._sent = []

    def _global(self, rank, size):
        if not 0 <= rank < size:
            return None
        return distributed.get_global_rank(self.group, rank) if self.group is not distributed.group.WORLD else rank

    def receive(self, tensor, source):
        """Receives into the tensor, in the order of the current stream."""
        if tensor.numel() > 0:
            distributed.irecv(tensor, source, self.group).wait()
        return tensor

    def send(self, tensor, destination):
        """Starts to send. The tensor must not change before finish()."""
        if tensor.numel() > 0:
            self._sent.append((distributed.isend(tensor, destination, self.group), tensor))

    def finish(self):
        for work, _ in self._sent:
            work.wait()
        self._sent.clear()


def _form_of(rows, lengths, reset, *directions):
    """Returns the op's arguments after the initial state for some rows: lengths, reset, logarithmic, reverse."""
    return None if lengths is None else lengths[rows], None if reset is None else reset[rows], *directions


def _scan(neighbours, a, b, h0, h, form, parts, at_once):
    """Fills h, part by part. Returns the states before the parts of this chunk, and the state after all.

    `at_once`: scans from a zero state, and corrects the results for the state that arrives.
    """
    width = state_type(a.dtype)
    last = a.new_empty(a.shape[0], a.shape[2], dtype=width)
    states = []
    for r, c in parts:
        leaving = a.new_empty(r.stop - r.start, c.stop - c.start, dtype=width)
        terms, results = (a[r, :, c], b[r, :, c]), {"h": h[r, :, c], "h_last": leaving}
        state = None if h0 is None or neighbours.before is not None else h0[r, c].to(width)
        if neighbours.before is not None and not at_once:
            state = neighbours.receive(torch.empty_like(leaving), neighbours.before)
        torch.ops.penstock.scan_out(*terms, state, *_form_of(r, *form), **results)
        if neighbours.before is not None and at_once:
            state = neighbours.receive(torch.empty_like(leaving), neighbours.before)
            torch.ops.penstock.scan_correct(*terms, state, *_form_of(r, *form), None, **results)
        if neighbours.after is not None:
            neighbours.send(leaving, neighbours.after)
        last[r, c] = leaving
        states.append(state)
    neighbours.finish()
    return states, last


def _backward(neighbours, dh, dlast, a, b, states, h, form, da, db, parts, at_once):
    """Fills da and db, part by part. Returns the gradient of the state before this chunk."""
    width = state_type(a.dtype)
    dbefore = a.new_empty(a.shape[0], a.shape[2], dtype=width)
    for (r, c), state in zip(parts, states):
        dstate = a.new_empty(r.stop - r.start, c.stop - c.start, dtype=width)
        lengths, reset, *directions = _form_of(r, *form)
        terms = (a[r, :, c], b[r, :, c], state, lengths, reset, h[r, :, c], *directions)
        results = {"da": da[r, :, c], "db": db[r, :, c], "dh0": dstate}
        given = None if dh is None else dh[r, :, c]
        own = whole = None if dlast is None else dlast[r, c].to(width)

        def received():
            arrived = neighbours.receive(torch.empty_like(dstate), neighbours.after)
            return arrived if own is None else own + arrived

        if neighbours.after is not None and not at_once:
            whole = received()
        torch.ops.penstock.scan_backward_out(given, whole, *terms, **results)
        if neighbours.after is not None and at_once:
            torch.ops.penstock.scan_backward_correct(given, received(), *terms, own, **results)
        if neighbours.before is not None:
            neighbours.send(dstate, neighbours.before)
        dbefore[r, c] = dstate
    neighbours.finish()
    return dbefore


class _Scan(torch.autograd.Function):
    """Function of parallel_scan(): h and the state after this chunk. h0 counts only at the start of the sequence."""

    @staticmethod
    def forward(ctx, a, b, h0, lengths, reset, logarithmic, reverse, process_group, groups):
        neighbours = Neighbours(process_group, reverse)
        h = torch.empty_like(a)
        form = (lengths, reset, logarithmic, reverse)
        ctx.parts = groups_of(a.shape[0], a.shape[2], groups or 1), groups is None
        states, last = _scan(neighbours, a, b, h0, h, form, *ctx.parts)
        ctx.save_for_backward(a, b, h, lengths, reset, *states)
        ctx.h0_dtype = None if h0 is None or neighbours.before is not None else h0.dtype
        ctx.directions = logarithmic, reverse
        ctx.process_group = process_group
        ctx.set_materialize_grads(False)
        return h, last.to(a.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dh, dlast):
        a, b, h, lengths, reset, *states = ctx.saved_tensors
        neighbours = Neighbours(ctx.process_group, ctx.directions[1])
        da, db = torch.empty_like(a), torch.empty_like(b)
        form = (lengths, reset, *ctx.directions)
        dstate = _backward(neighbours, dh, dlast, a, b, states, h, form, da, db, *ctx.parts)
        return da, db, None if ctx.h0_dtype is None else dstate.to(ctx.h0_dtype), *[None] * 6


def parallel_scan(a, b, h0, lengths, reset, logarithmic, reverse, process_group, groups):
    """Computes the op `penstock::scan` over this process's chunk. Returns h and the state after the chunk."""
    require_processes()
    refuse_tangents(a, b, h0)
    if groups is not None and groups < 1:
        raise ValueError(f"groups must be at least 1, got {groups}")
    return _Scan.apply(a, b, h0, lengths, reset, logarithmic, reverse, process_group, groups)


class _FromBefore(torch.autograd.Function):
    """Function of from_before()."""

    @staticmethod
    def forward(ctx, leaving, first, process_group):
        neighbours = ctx.neighbours = Neighbours(process_group, False)
        ctx.set_materialize_grads(False)
        ctx.like = leaving.new_empty(0)
        ctx.shape = leaving.shape
        if neighbours.after is not None:
            neighbours.send(leaving.contiguous(), neighbours.after)
        if neighbours.before is None:
            entering = torch.zeros_like(leaving) if first is None else first.clone()
        else:
            entering = neighbours.receive(torch.empty_like(leaving, memory_format=torch.contiguous_format), neighbours.before)
        neighbours.finish()
        return entering

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        neighbours, own = ctx.neighbours, None
        if gradient is None:
            gradient = ctx.like.new_zeros(ctx.shape)
        if neighbours.before is not None:
            neighbours.send(gradient.contiguous(), neighbours.before)
        if neighbours.after is not None:
            own = neighbours.receive(ctx.like.new_empty(ctx.shape), neighbours.after)
        neighbours.finish()
        return own, gradient if neighbours.before is None and ctx.needs_input_grad[1] else None, None


def from_before(leaving, first, process_group):
    """Returns the tensor `leaving` of the process with the chunk before this one; `first` (None: zeros) on the process
    with the first chunk. All have equal shapes. Gradients travel back."""
    require_processes()
    refuse_tangents(leaving, first)
    return _FromBefore.apply(leaving, first, process_group)
