#!/usr/bin/env python3
"""Times scans over sequences that are spread over several GPUs, compared with one GPU that has them whole.

    torchrun --nproc-per-node 2 bench/layers/torch_distributed.py [--seconds S] [--groups P] [--profile]
                                      [--layer | --training | --model]

First it checks the timed operations, and training with DistributedDataParallel and fully_shard, against one GPU. Then it
times scans in bfloat16 (forward, and forward with backward) and a minGRU layer. A line has the least and the median time
of each, and the throughput of all GPUs relative to one. At the end it times scans with decays close to one, which forget
slowly. --layer: only the layer. --training: only training steps of six layers on one GPU, and with as many rows on each
GPU under DistributedDataParallel, eager and under torch.compile. --model: only training steps of a whole model of four
blocks on one sequence of 2^20 tokens. --profile: the time of the last process by kernel.
"""

import argparse
import copy
import os
import statistics
import time

import torch
from torch import distributed, nn

import penstock.torch as ours

# Rows, steps of the whole sequence, channels.
SCANS = [(1, 1 << 20, 1024), (4, 1 << 20, 1024), (1, 1 << 21, 2048)]
LAYER = (1, 1 << 20, 512)


def rank():
    return distributed.get_rank()


def own_chunk(steps):
    size = distributed.get_world_size()
    return slice(steps * rank() // size, steps * (rank() + 1) // size)


def say(text):
    if rank() == 0:
        print(text, flush=True)


class Clock:
    """Seconds from when all processes begin until the last has ended."""

    def __init__(self, seconds):
        self.seconds = seconds

    def once(self, call):
        torch.cuda.synchronize()
        distributed.barrier()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        took = torch.tensor(time.perf_counter() - start, device="cuda")
        distributed.all_reduce(took, distributed.ReduceOp.MAX)
        return took.item()

    def compare(self, calls):
        for call in calls:
            self.once(call)
        times = [[] for _ in calls]
        while min(sum(t) for t in times) < self.seconds or len(times[0]) < 5:
            for call, own in zip(calls, times):
                own.append(self.once(call))
        return [(min(t), statistics.median(t)) for t in times]

    def line(self, what, one, all_of_them):
        (least, median), (least_all, median_all) = self.compare([one if rank() == 0 else lambda: None, all_of_them])
        say(
            f"{what:44} one GPU {1e3 * least:8.2f} / {1e3 * median:8.2f}   {distributed.get_world_size()} GPUs"
            f" {1e3 * least_all:8.2f} / {1e3 * median_all:8.2f} ms   {median / median_all:5.2f} x"
        )


def check_scans():
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        a, b = torch.rand(2, 3, 5003, 257, device="cuda").to(dtype)
        h0 = torch.randn(3, 257, device="cuda")
        own = own_chunk(5003)

        def results(a, b, **options):
            leaves = [t.detach().requires_grad_() for t in (a, b)]
            h, _ = ours.scan(*leaves, h0, **options)
            h.float().sin().sum().backward()
            return [h, *(leaf.grad for leaf in leaves)]

        whole = [t[:, own] for t in results(a, b)]
        for got, expected in zip(results(a[:, own], b[:, own], process_group=distributed.group.WORLD), whole):
            off = ((got.float() - expected.float()).abs().max() / expected.float().abs().max()).item()
            assert off < (1e-5 if dtype == torch.float32 else 1e-2), off
    say("scans: as one GPU")


def check_layer():
    """In both directions, of states that are told beforehand and of some that go too far back for that."""
    own = own_chunk(20011)
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 2e-2)):
        for keep in (0.0, 12.0):
            torch.manual_seed(2)
            options = {"bidirectional": True, "batch_first": True, "device": "cuda", "dtype": dtype}
            one = ours.MinGRU(24, 64, **options)
            with torch.no_grad():
                one.bias_ih_l0[:64] -= keep
            several = ours.MinGRU(24, 64, process_group=distributed.group.WORLD, **options)
            several.load_state_dict(one.state_dict())
            x = torch.randn(2, 20011, 24, device="cuda", dtype=dtype)

            def results(module, x):
                leaf = x.detach().requires_grad_()
                y, _ = module(leaf)
                y.float().sin().sum().backward()
                return [y, leaf.grad], [p.grad for p in module.parameters()]

            whole, of_weights = results(one, x)
            chunks, of_weights_mine = results(several, x[:, own])
            for gradient in of_weights_mine:
                distributed.all_reduce(gradient)
            pairs = zip((*chunks, *of_weights_mine), (*(t[:, own] for t in whole), *of_weights))
            for got, expected in pairs:
                off = ((got.float() - expected.float()).abs().max() / expected.float().abs().max()).item()
                assert off < tolerance, (dtype, keep, off)
    say("layer: as one GPU")


def check_training():
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 32), ours.LSTM(32, 64, 2, batch_first=True)).cuda()

    class First(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x)[0]

    one = First(model)
    doubled = nn.parallel.DistributedDataParallel(copy.deepcopy(one))
    sharded = copy.deepcopy(one)
    for module in (*sharded.inner, sharded):
        fully_shard(module)
    models = (one, doubled, sharded)
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in models]
    for _ in range(3):
        x = torch.randn(8, 65, 8, device="cuda")
        each = 8 // distributed.get_world_size()
        for m, optimizer in zip(models, optimizers):
            optimizer.zero_grad()
            m(x if m is one else x[each * rank() : each * (rank() + 1)]).square().mean().backward()
            optimizer.step()
    whole = get_model_state_dict(sharded, options=StateDictOptions(full_state_dict=True))
    for name, value in one.state_dict().items():
        torch.testing.assert_close(doubled.module.state_dict()[name], value, rtol=0, atol=1e-5)
        if rank() == 0:
            torch.testing.assert_close(whole[name].cuda(), value, rtol=0, atol=1e-5)
    say("DistributedDataParallel, fully_shard: as one GPU")


def profile(what, call):
    """Kernels by the time they take, of some calls in a row, in the process that is corrected the most."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    distributed.barrier()
    kinds = (torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=kinds) as profiler:
        for _ in range(5):
            call()
        torch.cuda.synchronize()
    if rank() == distributed.get_world_size() - 1:
        kernels = [e for e in profiler.key_averages() if e.device_type == torch.autograd.DeviceType.CUDA]
        print(f"  {what}, {rank()}'s kernels:")
        for event in sorted(kernels, key=lambda e: -e.self_device_time_total)[:8]:
            print(f"    {event.self_device_time_total / 5:10.1f} us  {event.count / 5:5.1f} x  {event.key[:60]}", flush=True)
    distributed.barrier()


def time_scans(clock, groups, decays, profiled):
    for rows, steps, channels in SCANS:
        own = own_chunk(steps)
        shape = (rows, steps if rank() == 0 else own.stop - own.start, channels)
        a = torch.empty(shape, device="cuda", dtype=torch.bfloat16).uniform_(*decays)
        b = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        # The first process has all of the sequence for the comparison; what it holds as one of several is a copy.
        mine = [(t[:, own] if rank() == 0 else t).contiguous().requires_grad_() for t in (a, b)]
        options = {"process_group": distributed.group.WORLD, "groups": groups}
        gradient = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        gradient_mine = (gradient[:, own] if rank() == 0 else gradient).contiguous()

        def one():
            with torch.no_grad():
                ours.scan(a, b)

        def several():
            with torch.no_grad():
                ours.scan(*mine, **options)

        def one_trained():
            leaves = [t.detach().requires_grad_() for t in (a, b)]
            torch.autograd.grad(ours.scan(*leaves)[0], leaves, gradient)

        def several_trained():
            torch.autograd.grad(ours.scan(*mine, **options)[0], mine, gradient_mine)

        what = f"scan ({rows}, {steps}, {channels}) bf16" + (f" decays {decays}" if decays[0] > 0 else "")
        clock.line(what + " forward", one, several)
        clock.line(what + " with backward", one_trained, several_trained)
        if profiled:
            profile(what + " with backward", several_trained)
        del a, b, mine, gradient, gradient_mine
        torch.cuda.empty_cache()


def time_layer(clock, profiled):
    rows, steps, size = LAYER
    options = {"batch_first": True, "device": "cuda", "dtype": torch.bfloat16}
    alone = ours.MinGRU(size, size, **options)
    layer = ours.MinGRU(size, size, process_group=distributed.group.WORLD, **options)
    layer.load_state_dict(alone.state_dict())
    own = own_chunk(steps)
    x = torch.randn(rows, steps, size, device="cuda", dtype=torch.bfloat16)
    x_mine = x[:, own].contiguous()

    def inferred(module, x):
        def call():
            with torch.no_grad():
                module(x)

        return call

    def trained(module, x):
        def step():
            module.zero_grad()
            module(x)[0].float().square().mean().backward()

        return step

    clock.line(f"MinGRU {LAYER} bf16 forward", inferred(alone, x), inferred(layer, x_mine))
    clock.line(f"MinGRU {LAYER} bf16 with backward", trained(alone, x), trained(layer, x_mine))
    if profiled:
        profile(f"MinGRU {LAYER} bf16 with backward", trained(layer, x_mine))


class SixLayers(nn.Module):
    """Layers of 1,024 units and a linear layer to 256 outputs: an LSTM of six layers, or six minGRUs with residuals."""

    def __init__(self, kind):
        super().__init__()
        modules, layers = (1, 6) if kind is ours.LSTM else (6, 1)
        self.layers = nn.ModuleList(kind(1024, 1024, layers, batch_first=True) for _ in range(modules))
        self.outputs = nn.Linear(1024, 256)

    def forward(self, x):
        for layer in self.layers:
            y, _ = layer(x)
            x = y if len(self.layers) == 1 else x + y
        return self.outputs(x)


def training_step(kind, x, compiled, shared):
    """A step of AdamW under bfloat16 autocast."""
    model = SixLayers(kind).cuda()
    if shared:
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    run = torch.compile(model) if compiled else model

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(x).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def time_training(clock):
    count = distributed.get_world_size()
    for kind, steps in ((ours.LSTM, 512), (ours.MinGRU, 1024)):
        x = torch.randn(32, steps, 1024, device="cuda")
        for compiled in (False, True):
            torch.compiler.reset()
            alone, shared = (training_step(kind, x, compiled, of_all) for of_all in (False, True))
            (_, one), (_, each) = clock.compare([alone if rank() == 0 else lambda: None, shared])
            how = "compiled" if compiled else "eager"
            say(f"6 x {kind.__name__} {tuple(x.shape)}, {how:8}: one GPU {1e3 * one:6.2f} ms, {count} GPUs with as many "
                f"rows each {1e3 * each:6.2f} ms, {count * one / each:.2f} x")


def token_model(cell, shared):
    """Returns a model of bytes with four blocks of width 512, and the module to call."""
    spec = {"cell": cell, "width": 512, "blocks": 4, "hidden_size": 0, "heads": 1, "convolution": 4, "feed_forward": 2.0,
            "dropout": 0.0}  # fmt: skip
    data = {"inputs": [], "targets": [], "classes": [], "vocabulary": 256, "horizon": 0}
    model = ours.SequenceModel(spec, data).cuda()
    torch.manual_seed(5)
    for p in model.parameters():
        nn.init.normal_(p, std=0.03) if p.dim() == 2 else nn.init.ones_(p)
    if shared:
        model.share_sequences(distributed.new_group())  # DistributedDataParallel has the other one
        return model, nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    return model, model


def time_model(clock, profiled):
    steps, count = LAYER[1], distributed.get_world_size()
    own = own_chunk(steps)
    torch.manual_seed(4)
    tokens = torch.randint(256, (1, steps + 1), device="cuda")

    def training(call, optimizer, chunk, factor):
        x, wanted = tokens[:, :-1][:, chunk], tokens[:, 1:][:, chunk]

        def step():
            with torch.autocast("cuda", torch.bfloat16):
                y, _ = call(x)
            loss = nn.functional.cross_entropy(y.float().flatten(0, 1), wanted.flatten(), reduction="sum") / steps
            (loss * factor).backward()
            optimizer.step()
            norm = torch.stack([p.grad.norm() for group in optimizer.param_groups for p in group["params"]]).norm()
            optimizer.zero_grad()
            return torch.stack([loss.detach(), norm])

        return step

    for cell in ("mingru", "minlstm"):
        (one, call_one), (mine, call_mine) = token_model(cell, False), token_model(cell, True)
        optimizers = [torch.optim.AdamW(m.parameters(), 1e-4, fused=True) for m in (one, mine)]
        alone = training(call_one, optimizers[0], slice(None), 1)
        shared = training(call_mine, optimizers[1], own, count)  # whose gradients are averaged
        found = shared()
        distributed.all_reduce(found[0])
        if rank() == 0:
            expected = alone()
            apart = ((found - expected).abs() / expected).tolist()
            say(f"{cell} of 4 blocks: loss and norm of gradients differ by {apart[0]:.1e} and {apart[1]:.1e} from one GPU's")
            assert max(apart) < 1e-2, (found, expected)
        clock.line(f"{cell}, 4 blocks (1, {steps}, 512), a step", alone, shared)
        say(f"  {torch.cuda.max_memory_allocated() / 1e9:.1f} GB with both")
        if profiled:
            profile(f"{cell}, a step", shared)
        del one, call_one, mine, call_mine, optimizers, alone, shared
        torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--groups", type=int)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--layer", action="store_true")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--model", action="store_true")
    options = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    clock = Clock(options.seconds)
    if options.training or options.model:
        time_training(clock) if options.training else time_model(clock, options.profile)
        distributed.destroy_process_group()
        return
    if not options.layer:
        check_scans()
        check_training()
        time_scans(clock, options.groups, (0.0, 1.0), options.profile)
        time_scans(clock, options.groups, (0.98, 0.999), False)
    check_layer()
    time_layer(clock, options.profile)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
