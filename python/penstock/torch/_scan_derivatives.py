"""Derivatives of scans h_t = a_t h_{t-1} + b_t, each as further scans.

`scan` and `form` are the op `penstock::scan` and its arguments from the lengths on. They run in parallel over the
sequence, so derivatives of every order and mode do, too.
"""

import torch
from torch.autograd import forward_ad


class Terms:
    """The terms of a scan as plain numbers, without those that are not read, and where each row begins and ends."""

    def __init__(self, a, b, h0, lengths, reset, logarithmic, reverse):
        self.lengths, self.reverse, self.logarithmic = lengths, reverse, logarithmic
        rows, steps, channels = a.shape
        self.h0 = a.new_zeros(rows, channels) if h0 is None else h0.to(a.dtype)
        self.valid = None
        if lengths is not None:
            self.valid = (torch.arange(steps, device=a.device) < lengths.unsqueeze(1)).unsqueeze(-1)
            a, b = self.read(a), self.read(b)
        self.a, self.b = (a.exp(), b.exp()) if logarithmic else (a, b)
        self.reset = None if reset is None else reset.bool().unsqueeze(-1)
        self.decay = self.a if reset is None else torch.where(self.reset, torch.zeros_like(a), self.a)

    def read(self, x):
        """Returns x with zeros at steps beyond a row's length."""
        return x if self.valid is None else torch.where(self.valid, x, torch.zeros_like(x))

    def _shifted(self, x, end, back):
        """Returns x of the step before each step, or after it; `end` [B, C] where a row has none."""
        end = end.unsqueeze(1)[:, : x.shape[1]]  # nothing in a sequence without steps
        if back:
            return torch.cat([end, x[:, :-1]], 1)
        x = torch.cat([x[:, 1:], end], 1)
        if self.lengths is None:
            return x
        last = torch.arange(x.shape[1], device=x.device) == self.lengths.unsqueeze(1) - 1
        return torch.where(last.unsqueeze(-1), end, x)

    def before(self, h):
        """Returns the state that enters each step, of which `h` are the results."""
        entering = self._shifted(h, self.h0, not self.reverse)
        return entering if self.reset is None else torch.where(self.reset, torch.zeros_like(h), entering)

    def decay_of_next(self):
        """Returns the decay of the step after each step; one at the last."""
        return self._shifted(self.decay, torch.ones_like(self.h0), self.reverse)

    def first_decay(self):
        """Returns the decay [B, C] of each row's first step; one for a row without steps."""
        if self.decay.shape[1] == 0:
            return torch.ones_like(self.h0)
        if self.lengths is None:
            return self.decay[:, -1 if self.reverse else 0]
        first = (self.lengths - 1).clamp(min=0) if self.reverse else torch.zeros_like(self.lengths)
        index = first.reshape(-1, 1, 1).expand(-1, 1, self.decay.shape[2])
        decay = self.decay.gather(1, index).squeeze(1)
        return torch.where(self.lengths.unsqueeze(1) > 0, decay, torch.ones_like(decay))


def tangents(scan, primals, moving, form):
    """Returns the tangents of h and of the last state. `moving` are those of a, b and h0, None for zeros."""
    terms, (lengths, reset, _, reverse) = Terms(*primals, *form), form
    ta, tb, th0 = moving
    steps = torch.zeros_like(terms.a)
    if ta is not None:
        ta = terms.read(ta)
        h, _ = scan(*primals, *form)
        steps = steps + (ta * terms.a if terms.logarithmic else ta) * terms.before(h)
    if tb is not None:
        tb = terms.read(tb)
        steps = steps + (tb * terms.b if terms.logarithmic else tb)
    return scan(terms.a, steps, None if th0 is None else th0.to(steps.dtype), lengths, reset, False, reverse)


def with_tangents(scan, a, b, h0, *form):
    """Computes the op `penstock::scan` for tensors of torch.autograd.forward_ad, in a graph that is being recorded."""
    parts = [(None, None) if t is None else tuple(forward_ad.unpack_dual(t)) for t in (a, b, h0)]
    primals, moving = zip(*parts)
    results, found = scan(*primals, *form), tangents(scan, primals, moving, form)
    return tuple(forward_ad.make_dual(result, tangent) for result, tangent in zip(results, found))


def backward(scan, dh, dh_last, a, b, h0, form):
    """Computes the op `penstock::scan_backward`: the gradients of a, b and h0."""
    terms, (lengths, _, _, reverse) = Terms(a, b, h0, *form), form
    dh = torch.zeros_like(terms.a) if dh is None else terms.read(dh.to(a.dtype))
    dh_last = torch.zeros_like(terms.h0) if dh_last is None else dh_last.to(a.dtype)
    h, _ = scan(a, b, h0, *form)
    sums, first = scan(terms.decay_of_next(), dh, dh_last, lengths, None, False, not reverse)
    da, db = sums * terms.before(h), sums
    if terms.logarithmic:
        da, db = da * terms.a, db * terms.b
    return da, db, first * terms.first_decay()
