"""What one of several processes does for test_torch_distributed.py, under torchrun: each case runs in all of them, and
compares with what one process computes in double precision. Then it runs the script that is its argument."""

import copy
import os
import runpy
import sys

import torch
from torch import distributed, nn

import penstock.torch as ours

EPSILON = 2.0**-52  # of doubles


def close(got, expected, roundings=256):
    """Equal but for so many roundings, of sums whose terms are some times as large as they are."""
    tolerance = 16 * EPSILON * roundings
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


def chunk_of(steps, group):
    """Unequal parts of so many steps, one for each process; of one step where it must be."""
    size, rank = distributed.get_world_size(group), distributed.get_rank(group)
    ends = [0, *(max(i, steps * i * i // size**2) for i in range(1, size)), steps]
    return slice(ends[rank], ends[rank + 1])


def is_first(reverse, group):
    return distributed.get_rank(group) == (distributed.get_world_size(group) - 1 if reverse else 0)


def is_last(reverse, group):
    return is_first(not reverse, group)


def leaves_of(*tensors):
    return [None if t is None else t.detach().clone().requires_grad_() for t in tensors]


def scans(group, scan, rows, steps, channels, with_h0, reverse, groups, ragged=False):
    """With `ragged`, rows end anywhere, also in chunks before this one, and are reset here and there."""
    torch.manual_seed(steps)
    own = chunk_of(steps, group)
    a, b = torch.rand(2, rows, steps, channels, dtype=torch.float64) + 0.01
    if scan is ours.log_scan:
        a, b = a.log(), b.log()
    h0 = torch.randn(rows, channels, dtype=torch.float64) if with_h0 else None
    lengths = torch.randint(0, steps + 1, (rows,)) if ragged else None
    reset = torch.rand(rows, steps) < 0.1 if ragged else None
    whole = leaves_of(a, b, h0)
    h, last = scan(*whole, lengths=lengths, reset_mask=reset, reverse=reverse)
    (h.sin().sum() + last.cos().sum()).backward()

    mine = leaves_of(a[:, own], b[:, own], h0)
    own_lengths = (lengths - own.start).clamp(0, own.stop - own.start) if ragged else None
    own_reset = reset[:, own] if ragged else None
    options = {"lengths": own_lengths, "reset_mask": own_reset, "reverse": reverse}
    h_mine, last_mine = scan(*mine, **options, process_group=group, groups=groups)
    close(h_mine, h[:, own])
    if is_last(reverse, group):
        close(last_mine, last)
    loss = h_mine.sin().sum()
    (loss + last_mine.cos().sum() if is_last(reverse, group) else loss).backward()
    close(mine[0].grad, whole[0].grad[:, own])
    close(mine[1].grad, whole[1].grad[:, own])
    if with_h0 and is_first(reverse, group):
        close(mine[2].grad, whole[2].grad)
    if with_h0 and not is_first(reverse, group):
        assert mine[2].grad is None


def halves_carry_floats(group):
    """States between chunks are not rounded: as one process that goes chunk by chunk in the same precision."""
    torch.manual_seed(1)
    a, b = torch.rand(2, 2, 40, 64).bfloat16()
    h, last = ours.scan(a.float(), b.float())
    own = chunk_of(40, group)
    got, _ = ours.scan(a[:, own], b[:, own], process_group=group)
    assert (got.float() - h[:, own]).abs().max() <= 2**-8 * h.abs().max()


def gradients_close(mine, leaves, one, whole, own, group, roundings=256):
    """Of a chunk, of the states where directions begin, and of weights (summed over the processes), as in one process."""
    close(leaves[0].grad, whole[0].grad[:, own])
    for slot in range(4):
        if is_first(slot % 2 == 1, group):
            close(leaves[1].grad[slot], whole[1].grad[slot])
    for p, expected in zip(mine.parameters(), one.parameters()):
        distributed.all_reduce(p.grad, group=group)
        close(p.grad, expected.grad, roundings)


def layers(group, kind, candidate, batch_first):
    torch.manual_seed(7)
    options = {"num_layers": 2, "bidirectional": True, "candidate": candidate, "dtype": torch.float64}
    one = kind(3, 5, batch_first=batch_first, **options)
    mine = kind(3, 5, batch_first=batch_first, process_group=group, **options)
    mine.load_state_dict(one.state_dict())
    assert copy.deepcopy(mine).process_group is mine.process_group
    rows, steps = 4, 13
    x = torch.randn(rows, steps, 3, dtype=torch.float64)
    hx = torch.randn(4, rows, 5, dtype=torch.float64)
    lengths, reset = torch.tensor([13, 1, 6, 9]), torch.rand(rows, steps) < 0.2
    own = chunk_of(steps, group)

    def turned(tensor):
        return tensor if batch_first else tensor.transpose(0, 1)

    whole = leaves_of(x, hx)
    y, last = one(turned(whole[0]), whole[1], lengths=lengths, reset_mask=turned(reset))
    y = turned(y)
    (y.sin().sum() + last.cos().sum()).backward()

    own_lengths = (lengths - own.start).clamp(0, own.stop - own.start)
    leaves = leaves_of(x[:, own], hx)
    y_mine, last_mine = mine(turned(leaves[0]), leaves[1], lengths=own_lengths, reset_mask=turned(reset[:, own]))
    y_mine = turned(y_mine)
    close(y_mine, y[:, own])
    loss = y_mine.sin().sum()
    for slot in range(4):
        if is_last(slot % 2 == 1, group):
            close(last_mine[slot], last[slot])
            loss = loss + last_mine[slot].cos().sum()
    loss.backward()
    gradients_close(mine, leaves, one, whole, own, group)


def long_layers(group, kind, memory):
    """Layers whose chunks run at once, from states that were told beforehand. With a `memory` that goes beyond what is
    told, the chunks run one after the other, until the layers run as scans."""
    torch.manual_seed(13)
    options = {"num_layers": 2, "bidirectional": True, "batch_first": True, "dtype": torch.float64}
    one, mine = kind(3, 5, **options), kind(3, 5, process_group=group, **options)
    if memory == "long":
        gate = slice(0, 5) if kind is ours.MinGRU else slice(5, 10)  # that decides how much is new: nearly shut
        with torch.no_grad():
            one.bias_ih_l0[gate] -= 12
            one.bias_ih_l1_reverse[gate] -= 12
    mine.load_state_dict(one.state_dict())
    steps = 12000
    x, hx = torch.randn(2, steps, 3, dtype=torch.float64), torch.randn(4, 2, 5, dtype=torch.float64)
    reset = torch.rand(2, steps) < 1e-4
    own = chunk_of(steps, group)
    whole = leaves_of(x, hx)
    y, last = one(*whole, reset_mask=reset)
    (y.sin().sum() + last.cos().sum()).backward()
    reaches = []
    for _ in range(4 if memory == "long" else 1):
        mine.zero_grad()
        leaves = leaves_of(x[:, own], hx)
        y_mine, last_mine = mine(*leaves, reset_mask=reset[:, own])
        close(y_mine, y[:, own])
        ends = [slot for slot in range(4) if is_last(slot % 2 == 1, group)]
        (y_mine.sin().sum() + last_mine[ends].cos().sum()).backward()
        gradients_close(mine, leaves, one, whole, own, group, 2 * steps)  # of weights: a sum over rows and steps
        reaches.append(mine._reach.steps)
    if memory == "long":
        assert reaches[0] > 1024, reaches
        if distributed.get_world_size(group) > 2:  # the first of two knows its whole chunk in the end
            assert not mine._reach.is_short(), reaches
    else:
        assert reaches == [1024], reaches


def models(group, cell, ends):
    """A model of tokens with convolutions, whose sequences begin anywhere with `ends`. Gradients by DistributedDataParallel."""
    torch.manual_seed(19)
    spec = {"cell": cell, "width": 6, "blocks": 2, "hidden_size": 5, "heads": 1, "convolution": 4, "feed_forward": 2.0,
            "dropout": 0.0}  # fmt: skip
    data = {"inputs": [], "targets": [], "classes": [], "vocabulary": 7, "horizon": 0}
    one = ours.SequenceModel(spec, data).double()
    for p in one.parameters():
        nn.init.normal_(p, std=0.5)
    mine = copy.deepcopy(one)
    mine.share_sequences(group)
    rows, steps, size = 3, 90, distributed.get_world_size(group)
    x, wanted = torch.randint(7, (2, rows, steps))
    reset, own = torch.rand(rows, steps) < 0.2 if ends else None, chunk_of(steps, group)
    with torch.no_grad():
        _, before = one(x[:, :5])
    y, last = one(x, before, reset=reset)
    nn.functional.cross_entropy(y.flatten(0, 1), wanted.flatten(), reduction="sum").backward()
    shared = nn.parallel.DistributedDataParallel(mine, process_group=group)
    y_mine, last_mine = shared(x[:, own], before, reset=None if reset is None else reset[:, own])
    close(y_mine, y[:, own])
    if is_last(False, group):
        for number in range(2):
            close(last_mine[number]["convolution"], last[number]["convolution"])
            close(last_mine[number]["recurrent"], last[number]["recurrent"])
    loss = nn.functional.cross_entropy(y_mine.flatten(0, 1), wanted[:, own].flatten(), reduction="sum")
    (size * loss).backward()  # DistributedDataParallel divides by the number of processes
    for p, expected in zip(mine.parameters(), one.parameters()):
        close(p.grad, expected.grad, 4 * rows * steps)


def layers_under_autocast(group):
    """As one process in the same precision: without gradients, and with those of float weights."""
    torch.manual_seed(17)
    one, mine = (ours.MinGRU(8, 16, batch_first=True, process_group=g) for g in (None, group))
    mine.load_state_dict(one.state_dict())
    x, own = torch.randn(3, 3000, 8), chunk_of(3000, group)
    with torch.autocast("cpu", torch.bfloat16):
        with torch.no_grad():
            y, _ = one(x)
            inferred, _ = mine(x[:, own])
        y_mine, last = mine(x[:, own])
        one(x)[0].float().square().sum().backward()
    assert y_mine.dtype == torch.bfloat16 and last.dtype == torch.float32 and torch.equal(inferred, y_mine)
    y_mine.float().square().sum().backward()
    pairs = [(y_mine, y[:, own])]
    for p, expected in zip(mine.parameters(), one.parameters()):
        distributed.all_reduce(p.grad, group=group)
        pairs.append((p.grad, expected.grad))
    for got, expected in pairs:
        assert got.dtype == expected.dtype
        assert (got.float() - expected.float()).abs().max() <= 2**-7 * expected.abs().max()


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = ours.LSTM(3, 8, num_layers=2, batch_first=True, dtype=torch.float64)
        self.mixer = ours.GRU(8, 5, batch_first=True, num_heads=1, dtype=torch.float64)
        self.head = nn.Linear(5, 2, dtype=torch.float64)

    def forward(self, x):
        return self.head(self.mixer(self.encoder(x)[0])[0])


def wrapped(wrap):
    """Three steps of training with the batch divided, beside one process that has all of it."""
    size, rank = distributed.get_world_size(), distributed.get_rank()
    torch.manual_seed(11)
    one = Tagger()
    model, whole_state = wrap(copy.deepcopy(one))
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (one, model)]
    for _ in range(3):
        x = torch.randn(2 * size, 9, 3, dtype=torch.float64)
        for m, optimizer, given in zip((one, model), optimizers, (x, x[2 * rank : 2 * rank + 2])):
            optimizer.zero_grad()
            m(given).square().mean().backward()
            optimizer.step()
    got = whole_state(model)
    for name, value in one.state_dict().items():
        close(got[name], value)


def data_parallel(model):
    return nn.parallel.DistributedDataParallel(model), lambda m: m.module.state_dict()


def fully_sharded(model):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.fsdp import fully_shard

    mesh = distributed.init_device_mesh("cpu", (distributed.get_world_size(),))
    for module in (model.encoder, model.mixer, model):
        fully_shard(module, mesh=mesh)
    return model, lambda m: get_model_state_dict(m, options=StateDictOptions(full_state_dict=True))


def sequence_parallel(group):
    for reverse in (False, True):
        scans(group, ours.scan, 1, 3, 1, True, reverse, groups=1)
        scans(group, ours.scan, 2, 131, 70, False, reverse, groups=16)
        scans(group, ours.log_scan, 5, 64, 33, True, reverse, groups=3)
        scans(group, ours.scan, 4, 130, 33, True, reverse, groups=3, ragged=True)
        scans(group, ours.scan, 2, 5, 3, True, reverse, groups=None)
        scans(group, ours.scan, 3, 1000, 5, False, reverse, groups=None)
        scans(group, ours.log_scan, 5, 200, 7, True, reverse, groups=None, ragged=True)
    halves_carry_floats(group)
    layers(group, ours.MinGRU, "linear", True)
    layers(group, ours.MinLSTM, "positive", False)
    layers_under_autocast(group)
    models(group, "mingru", False)
    models(group, "minlstm-log", True)
    for kind in (ours.MinGRU, ours.MinLSTM):
        for memory in ("short", "long"):
            long_layers(group, kind, memory)


def main():
    distributed.init_process_group("gloo")
    size = distributed.get_world_size()
    sequence_parallel(distributed.group.WORLD)
    pair = distributed.new_group([size - 2, size - 1])
    if distributed.get_rank() >= size - 2:
        sequence_parallel(pair)
    wrapped(data_parallel)
    wrapped(fully_sharded)
    runpy.run_path(sys.argv[1])
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
    # DistributedDataParallel keeps its group for ever, and a thread of gloo's that still lets go of a tensor while Python
    # ends aborts the process.
    sys.stdout.flush()
    os._exit(0)
