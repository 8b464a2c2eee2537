"""Scans over sequences that several processes hold: each has the steps of one chunk, in the order of their ranks.

Where the decays of each chunk's first steps multiply to zero, nothing that came before a chunk reaches its end. Then all
processes scan their chunks at once, hand their last states on, and scan those first steps again, now with the state
before them. Which steps those are is agreed by all of them, which waits for the device.

Otherwise a chunk cannot begin before the one before it has ended, but channels and rows do not depend on each other. So
they are divided into groups, and the chunks of one group are scanned while the chunks before compute the next: of R
processes with P groups, all are busy but for R - 1 of P + R - 1 turns.

Either way states are what one process computes that goes over the sequence chunk by chunk.
"""

import math

import torch
from torch import distributed

from ._ops import state_type

#: Exponents beyond count as these.
_EXPONENT = {torch.float32: 87.0, torch.float64: 707.0}
#: Channels of a group are at least so many, which keeps reads of memory whole.
_LEAST_CHANNELS = 32


def groups_of(rows, channels, wanted):
    """Ranges of rows and of channels, `wanted` pairs of them if there are enough."""
    by_rows = max(1, min(rows, wanted))
    by_channels = max(1, min(-(-wanted // by_rows), channels // _LEAST_CHANNELS))
    return [(r, c) for r in _ranges(rows, by_rows, 1) for c in _ranges(channels, by_channels, _LEAST_CHANNELS)]


def _ranges(size, count, unit):
    """`size` in `count` ranges of nearly equal length, which begin at multiples of `unit`."""
    units = -(-size // unit)
    ends = [min(size, units * i // count * unit) for i in range(count + 1)]
    ends[-1] = size
    return [slice(begin, end) for begin, end in zip(ends, ends[1:])]


def _steps_that_forget(a, logarithmic, neighbours):
    """L, if in each process the decays of the first and of the last L steps of its chunk multiply to zero, whatever they
    are multiplied with; else None. The same in all of them."""
    dtype = state_type(a.dtype)
    state = torch.finfo(dtype)
    # From the largest number to half the smallest; decays by themselves may be larger than one in between.
    vanishing = math.log(state.smallest_normal) + math.log(state.eps / 2) - math.log(state.max)
    steps = a.shape[1]
    for share in (64, 8):
        length = -(-steps // share)

        def vanishes(part):
            if logarithmic:  # as scans bound exponents
                logarithms = part.to(dtype).clamp(-_EXPONENT[dtype], _EXPONENT[dtype])
            else:
                logarithms = part.abs().to(dtype).log()
            return (logarithms.sum(1) < vanishing).all()

        verdict = (vanishes(a[:, :length]) & vanishes(a[:, steps - length :])).to(torch.int32)
        distributed.all_reduce(verdict, distributed.ReduceOp.MIN, neighbours.group)
        if verdict.item() == 1:
            return length
    return None


class _Neighbours:
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
        """Fills the tensor, in the order of the current stream."""
        if tensor.numel() > 0:
            distributed.irecv(tensor, source, self.group).wait()
        return tensor

    def send(self, tensor, destination):
        """Begins to send; the tensor must stay as it is until finish()."""
        if tensor.numel() > 0:
            self._sent.append((distributed.isend(tensor, destination, self.group), tensor))

    def finish(self):
        for work, _ in self._sent:
            work.wait()
        self._sent.clear()


def _scan_at_once(neighbours, a, b, h0, h, logarithmic, reverse, length):
    """Fills h; returns the state before this chunk and the one after it."""
    width, steps = state_type(a.dtype), a.shape[1]
    last = a.new_empty(a.shape[0], a.shape[2], dtype=width)
    state = None if h0 is None else h0.to(width)
    first = neighbours.before is None
    torch.ops.penstock.scan_out(a, b, state if first else None, logarithmic, reverse, h=h, h_last=last)
    if neighbours.after is not None:
        neighbours.send(last, neighbours.after)
    if not first:
        state = neighbours.receive(torch.empty_like(last), neighbours.before)
        part = slice(steps - length, steps) if reverse else slice(0, length)
        torch.ops.penstock.scan_out(
            a[:, part], b[:, part], state, logarithmic, reverse, h=h[:, part], h_last=torch.empty_like(last)
        )
    neighbours.finish()
    return [state], last


def _backward_at_once(neighbours, dh, dlast, a, b, states, h, logarithmic, reverse, length, da, db):
    """Fills da and db; returns the gradient of the state before this chunk."""
    width, steps = state_type(a.dtype), a.shape[1]
    (state,) = states
    dlast = None if dlast is None else dlast.to(width)
    dstate = a.new_empty(a.shape[0], a.shape[2], dtype=width)
    form = (logarithmic, reverse)
    torch.ops.penstock.scan_backward_out(dh, dlast, a, b, state, h, *form, da=da, db=db, dh0=dstate)
    if neighbours.before is not None:
        neighbours.send(dstate, neighbours.before)
    if neighbours.after is not None:
        received = neighbours.receive(torch.empty_like(dstate), neighbours.after)
        dlast = received if dlast is None else dlast + received
        part = slice(0, length) if reverse else slice(steps - length, steps)
        if length < steps:
            state = h[:, length if reverse else steps - length - 1].to(width)
        torch.ops.penstock.scan_backward_out(
            None if dh is None else dh[:, part], dlast, a[:, part], b[:, part], state, h[:, part], *form,
            da=da[:, part], db=db[:, part], dh0=torch.empty_like(dstate),
        )  # fmt: skip
    neighbours.finish()
    return dstate


def _scan_in_groups(neighbours, a, b, h0, h, logarithmic, reverse, parts):
    """Fills h; returns the state before each part of this chunk and the one after all."""
    width = state_type(a.dtype)
    last = a.new_empty(a.shape[0], a.shape[2], dtype=width)
    states = []
    for r, c in parts:
        leaving = a.new_empty(r.stop - r.start, c.stop - c.start, dtype=width)
        if neighbours.before is not None:
            state = neighbours.receive(torch.empty_like(leaving), neighbours.before)
        else:
            state = None if h0 is None else h0[r, c].to(width)
        torch.ops.penstock.scan_out(
            a[r, :, c], b[r, :, c], state, logarithmic, reverse, h=h[r, :, c], h_last=leaving
        )
        if neighbours.after is not None:
            neighbours.send(leaving, neighbours.after)
        last[r, c] = leaving
        states.append(state)
    neighbours.finish()
    return states, last


def _backward_in_groups(neighbours, dh, dlast, a, b, states, h, logarithmic, reverse, parts, da, db):
    """Fills da and db; returns the gradient of the state before this chunk."""
    width = state_type(a.dtype)
    dbefore = a.new_empty(a.shape[0], a.shape[2], dtype=width)
    for (r, c), state in zip(parts, states):
        dstate = a.new_empty(r.stop - r.start, c.stop - c.start, dtype=width)
        dleaving = None if dlast is None else dlast[r, c].to(width)
        if neighbours.after is not None:
            received = neighbours.receive(torch.empty_like(dstate), neighbours.after)
            dleaving = received if dleaving is None else dleaving + received
        torch.ops.penstock.scan_backward_out(
            None if dh is None else dh[r, :, c], dleaving, a[r, :, c], b[r, :, c], state, h[r, :, c], logarithmic,
            reverse, da=da[r, :, c], db=db[r, :, c], dh0=dstate,
        )  # fmt: skip
        if neighbours.before is not None:
            neighbours.send(dstate, neighbours.before)
        dbefore[r, c] = dstate
    neighbours.finish()
    return dbefore


class _Scan(torch.autograd.Function):
    """h and the state after this chunk, from its terms and, where the sequence begins, h0."""

    @staticmethod
    def forward(ctx, a, b, h0, logarithmic, reverse, process_group, groups):
        neighbours = _Neighbours(process_group, reverse)
        h = torch.empty_like(a)
        ctx.forgetful = _steps_that_forget(a, logarithmic, neighbours)
        ctx.parts = groups_of(a.shape[0], a.shape[2], groups)
        if ctx.forgetful is not None:
            states, last = _scan_at_once(neighbours, a, b, h0, h, logarithmic, reverse, ctx.forgetful)
        else:
            states, last = _scan_in_groups(neighbours, a, b, h0, h, logarithmic, reverse, ctx.parts)
        ctx.save_for_backward(a, b, h, *states)
        ctx.h0_dtype = None if h0 is None or neighbours.before is not None else h0.dtype
        ctx.form = (logarithmic, reverse)
        ctx.process_group = process_group
        ctx.set_materialize_grads(False)
        return h, last.to(a.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dh, dlast):
        a, b, h, *states = ctx.saved_tensors
        neighbours = _Neighbours(ctx.process_group, ctx.form[1])
        da, db = torch.empty_like(a), torch.empty_like(b)
        given = (neighbours, dh, dlast, a, b, states, h, *ctx.form)
        if ctx.forgetful is not None:
            dstate = _backward_at_once(*given, ctx.forgetful, da, db)
        else:
            dstate = _backward_in_groups(*given, ctx.parts, da, db)
        return da, db, None if ctx.h0_dtype is None else dstate.to(ctx.h0_dtype), None, None, None, None


def parallel_scan(a, b, h0, logarithmic, reverse, process_group, groups):
    """As the op `penstock::scan`, of this process's chunk of the sequence."""
    if not distributed.is_available() or not distributed.is_initialized():
        raise RuntimeError("process_group needs torch.distributed.init_process_group()")
    if groups < 1:
        raise ValueError(f"groups must be at least 1, got {groups}")
    return _Scan.apply(a, b, h0, logarithmic, reverse, process_group, groups)
