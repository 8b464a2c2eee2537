"""Scans over sequences that several processes hold: each has the steps of one chunk, in the order of their ranks.

A chunk cannot begin before the one before it has ended, but channels and rows do not depend on each other. So they are
divided into groups, and the chunks of one group are scanned while the chunks before compute the next: of R processes
with P groups, all are busy but for R - 1 of P + R - 1 turns. What is computed, and in which order, is what one process
computes that goes over the sequence chunk by chunk; nothing is computed twice.
"""

import torch
from torch import distributed

from ._ops import state_type

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


class _Scan(torch.autograd.Function):
    """h and the state after this chunk, from its terms and, where the sequence begins, h0."""

    @staticmethod
    def forward(ctx, a, b, h0, logarithmic, reverse, process_group, groups):
        neighbours = _Neighbours(process_group, reverse)
        rows, _, channels = a.shape
        h, last = torch.empty_like(a), a.new_empty(rows, channels)
        entering = []
        parts = groups_of(rows, channels, groups)
        for r, c in parts:
            shape, width = (r.stop - r.start, c.stop - c.start), state_type(a.dtype)
            if neighbours.before is not None:
                state = neighbours.receive(a.new_empty(shape, dtype=width), neighbours.before)
            else:
                state = None if h0 is None else h0[r, c].to(width)
            leaving = a.new_empty(shape, dtype=width)
            torch.ops.penstock.scan_out(
                a[r, :, c], b[r, :, c], state, logarithmic, reverse, h=h[r, :, c], h_last=leaving
            )
            if neighbours.after is not None:
                neighbours.send(leaving, neighbours.after)
            last[r, c] = leaving
            entering.append(state)
        neighbours.finish()
        ctx.save_for_backward(a, b, h, *(state for state in entering if state is not None))
        ctx.has_states = bool(entering) and entering[0] is not None
        ctx.h0_dtype = None if h0 is None else h0.dtype
        ctx.form = (logarithmic, reverse)
        ctx.process_group, ctx.parts = process_group, parts
        ctx.set_materialize_grads(False)
        return h, last

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dh, dlast):
        a, b, h, *entering = ctx.saved_tensors
        if not ctx.has_states:
            entering = [None] * len(ctx.parts)
        neighbours = _Neighbours(ctx.process_group, ctx.form[1])
        da, db = torch.empty_like(a), torch.empty_like(b)
        dh0 = None
        if neighbours.before is None and ctx.h0_dtype is not None:
            dh0 = a.new_empty(a.shape[0], a.shape[2], dtype=ctx.h0_dtype)
        for (r, c), state in zip(ctx.parts, entering):
            shape, width = (r.stop - r.start, c.stop - c.start), state_type(a.dtype)
            dleaving = None if dlast is None else dlast[r, c].to(width)
            if neighbours.after is not None:
                received = neighbours.receive(a.new_empty(shape, dtype=width), neighbours.after)
                dleaving = received if dleaving is None else dleaving + received
            dentering = a.new_empty(shape, dtype=width)
            torch.ops.penstock.scan_backward_out(
                None if dh is None else dh[r, :, c], dleaving, a[r, :, c], b[r, :, c], state, h[r, :, c], *ctx.form,
                da=da[r, :, c], db=db[r, :, c], dh0=dentering,
            )  # fmt: skip
            if neighbours.before is not None:
                neighbours.send(dentering, neighbours.before)
            elif dh0 is not None:
                dh0[r, c] = dentering
        neighbours.finish()
        return da, db, dh0, None, None, None, None


def parallel_scan(a, b, h0, logarithmic, reverse, process_group, groups):
    """As the op `penstock::scan`, of this process's chunk of the sequence."""
    if not distributed.is_available() or not distributed.is_initialized():
        raise RuntimeError("process_group needs torch.distributed.init_process_group()")
    if groups < 1:
        raise ValueError(f"groups must be at least 1, got {groups}")
    return _Scan.apply(a, b, h0, logarithmic, reverse, process_group, groups)
