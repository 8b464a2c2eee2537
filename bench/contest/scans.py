"""Scans, minimal cells and layers with episodes beside other packages' scans, minGRU-pytorch and TorchRL."""

import importlib.util
import sys
import types
from pathlib import Path

import numpy as np
import penstock.torch
import torch
from measuring import DTYPES, OURS, Contender, compare, inferred, named, optional, table, trained, version
from torch.nn.functional import sigmoid, softplus


def join(left, right):
    """Of two neighbouring pieces h -> a h + b."""
    return left[0] * right[0], right[0] * left[1] + right[1]


def associative(device):
    """torch.associative_scan of (a, b) [B, T, C], compiled on a GPU, where it is then one kernel."""
    from torch._higher_order_ops.associative_scan import associative_scan

    def scan(a, b):
        return associative_scan(join, (a, b), dim=1, combine_mode="generic")[1]

    return torch.compile(scan) if device == "cuda" else scan


def looped(a, b):
    h, answers = torch.zeros_like(a[:, 0]), []
    for a_t, b_t in zip(a.unbind(1), b.unbind(1)):
        h = torch.addcmul(b_t, a_t, h)
        answers.append(h)
    return torch.stack(answers, 1)


class Scan(torch.nn.Module):
    """A scan as a layer whose input is (a, b) beside each other: [B, T, C, 2] or, channels first, [2, B, C, T]."""

    def __init__(self, scan, axis):
        super().__init__()
        self.scan, self.axis = scan, axis

    def forward(self, terms):
        return self.scan(*terms.unbind(self.axis))


def scans_of_packages(device, kernels=("scalar",)):
    """{name: scan of a, b [B, C, T]}: accelerated-scan's kernels ("scalar" is Triton's, "warp" CUDA's), time last."""
    if device == "cpu":
        optional("accelerated_scan", "accelerated-scan")  # its kernels are for GPUs
        return {}
    modules = {kernel: optional(f"accelerated_scan.{kernel}", "accelerated-scan") for kernel in kernels}
    return {f"accelerated-scan {version('accelerated-scan')}, {kernel}": module.scan
            for kernel, module in modules.items() if module}


def of_jax(a, b, dh):
    jax = optional("jax", "jax")
    if jax is None or (jax.devices()[0].platform == "cpu") != (a.device.type == "cpu"):
        return []
    a, b, dh = (jax.numpy.asarray(array.cpu().numpy()) for array in (a, b, dh))

    def scan(a, b):
        return jax.lax.associative_scan(join, (a, b), axis=1)[1]

    forward = jax.jit(scan)
    backward = jax.jit(jax.grad(lambda a, b: (scan(a, b) * dh).sum(), (0, 1)))

    def read(result):
        parts = result if isinstance(result, tuple) else (result,)
        parts = [torch.from_numpy(np.asarray(part, dtype="float64").copy()) for part in parts]
        return torch.stack(parts, -1) if len(parts) > 1 else parts[0]

    class Both(tuple):
        def block_until_ready(self):
            jax.block_until_ready(tuple(self))

    name = "jax.lax.associative_scan, " + named("jax", "JAX")
    return [Contender(name, lambda: forward(a, b), lambda: Both(backward(a, b)), read=read)]


def scans(settings):
    """The scan by itself

    h_t = a_t h_{t-1} + b_t with given a and b, float32. Each side has the layout that it wants: accelerated-scan has
    time last. Training computes the gradients of a and b.
    """
    shapes = [(8, 8192, 1024)] if settings.device == "cuda" else [(8, 1024, 256), (1, 4096, 512)]
    rows = []
    for batch, steps, channels in shapes:
        steps = settings.steps(steps)
        torch.manual_seed(0)
        terms = torch.rand(batch, steps, channels, 2, device=settings.device)
        dh = torch.randn(batch, steps, channels, device=settings.device)
        exact = terms.double().requires_grad_()
        h = looped(*exact.unbind(-1))
        h.backward(dh.double())
        contenders = contenders_of_scans(terms, dh, settings.device)
        rows += compare(f"scan: {batch}, {steps}, {channels}", contenders, h.detach(), exact.grad, settings)
    return table(rows, "scan: B, T, C")


def contenders_of_scans(terms, dh, device):
    a, b = (part.contiguous() for part in terms.unbind(-1))

    def given_apart(scan, a, b, dh, read):
        """Gradients of a and b as two tensors, without the cost of cutting one input into two."""
        leaves = [part.detach().requires_grad_() for part in (a, b)]

        def forward():
            with torch.no_grad():
                return scan(a, b)

        def training():
            for leaf in leaves:
                leaf.grad = None
            scan(*leaves).backward(dh)
            return [leaf.grad for leaf in leaves]

        def read_either(result):
            return torch.stack([read(part) for part in result], -1) if isinstance(result, list) else read(result)

        return forward, training, read_either

    found = []
    calls = {OURS: (lambda a, b: penstock.torch.scan(a, b)[0], False)}
    calls[f"torch.associative_scan, {named('torch', 'PyTorch')}"] = (associative(device), False)
    calls |= {name: (scan, True) for name, scan in scans_of_packages(device, ("scalar", "warp")).items()}
    for name, (scan, last) in calls.items():
        x, y, dy = (part.transpose(1, 2).contiguous() if last else part for part in (a, b, dh))

        def read(part, last=last):
            return (part.transpose(1, 2) if last else part).double()

        forward, training, read = given_apart(scan, x, y, dy, read)
        found.append(Contender(name, forward, training, read=read))
    return found + of_jax(a, b, dh) + (into_arrays(a, b) if device == "cpu" else [])


def into_arrays(a, b):
    """Penstock's function of NumPy arrays and a loop compiled by Numba, forward, into an array that is there already."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))
    loop = optional("numba_peer", "numba")
    a, b, h = a.numpy(), b.numpy(), np.empty_like(a.numpy())

    def ours():
        penstock.scan(a, b, out=h, device="cpu", threads=torch.get_num_threads())
        return h

    def theirs():
        loop.scan(a, b, h, 1)
        return h

    def read(h):
        return torch.from_numpy(h.copy()).double()

    found = [Contender(OURS, ours, read=read)]
    return found + ([Contender("a loop compiled by " + named("numba", "Numba"), theirs, read=read)] if loop else [])


class LinearMinGRU(torch.nn.Module):
    """minGRU with h~ = W x in PyTorch's operations, over somebody's scan."""

    def __init__(self, layer, scan, last=False):
        super().__init__()
        self.gates = torch.nn.Linear(layer.input_size, 2 * layer.hidden_size).to(layer.weight_ih_l0)
        self.gates.weight.data.copy_(layer.weight_ih_l0)
        self.gates.bias.data.copy_(layer.bias_ih_l0)
        self.scan, self.last = scan, last

    def forward(self, x):
        k, candidate = self.gates(x).chunk(2, -1)
        z = sigmoid(k)
        a, b = 1 - z, z * candidate
        if self.last:
            return (self.scan(a.transpose(1, 2).contiguous(), b.transpose(1, 2).contiguous()).transpose(1, 2),)
        return (self.scan(a, b),)


class LogMinGRU(torch.nn.Module):
    """minGRU with a positive candidate as its paper's appendix writes it; sums of logarithms are float32 at least."""

    def __init__(self, layer):
        super().__init__()
        self.weight = torch.nn.Parameter(layer.weight_ih_l0.detach().clone())

    def forward(self, x):
        k, value = torch.nn.functional.linear(x, self.weight).chunk(2, -1)
        if k.dtype != torch.float64:
            k, value = k.float(), value.float()
        log_candidate = torch.where(value >= 0, (value.relu() + 0.5).log(), -softplus(-value))
        decay = torch.cumsum(-softplus(k), 1)
        return ((decay + torch.logcumsumexp(log_candidate - softplus(-k) - decay, 1)).exp().to(x.dtype),)


def in_double(module, x, dy):
    """y and the gradient of x in float64. The module becomes one of float64."""
    given = x.double().requires_grad_()
    y = module.double()(given)[0]
    y.backward(dy.double())
    return y.detach(), given.grad


def minimal(settings):
    """Layers of minGRU

    I = H. With a positive candidate beside the package minGRU-pytorch as it is; with a linear one beside the same layer
    over other scans. In 16 bits, sums of logarithms over thousands of steps keep few digits: such results are wrong.
    """
    shapes = [(8, 4096, 1024)] if settings.device == "cuda" else [(8, 1024, 256), (64, 512, 128)]
    kinds = ("bf16",) if settings.device == "cuda" else ("f32",)
    rows = []
    for batch, steps, size in shapes:
        steps = settings.steps(steps)
        for kind in kinds:
            torch.manual_seed(0)
            x, dy = (torch.randn(batch, steps, size, device=settings.device).to(DTYPES[kind]) for _ in range(2))
            for candidate, contenders in (("positive", of_positive), ("linear", of_linear)):
                layer = penstock.torch.MinGRU(size, size, bias=candidate == "linear", batch_first=True,
                                              candidate=candidate).to(settings.device, DTYPES[kind])  # fmt: skip
                double = LogMinGRU(layer) if candidate == "positive" else LinearMinGRU(layer, looped)
                found = [Contender(OURS, inferred(layer, x), trained(layer, x, dy), kind),
                         *contenders(layer, x, dy, kind, settings.device)]
                what = f"{candidate}, {kind}: {batch}, {steps}, {size}"
                rows += compare(what, found, *in_double(double, x, dy), settings)
    return table(rows, "minGRU: B, T, I = H")


def of_positive(layer, x, dy, kind, device):
    package = optional("minGRU_pytorch.minGRU", "minGRU-pytorch")
    modules = {}
    if package:
        theirs = package.minGRU(layer.input_size).to(x)
        weight = penstock.interchange.to_lucidrains(penstock.interchange.RecurrentWeights.from_torch(layer.float()))
        layer.to(x)
        theirs.load_state_dict({name: torch.as_tensor(value) for name, value in weight.items()})
        modules[named("minGRU-pytorch")] = (theirs, lambda y: y)
        modules[named("minGRU-pytorch") + ", compiled"] = (torch.compile(theirs), lambda y: y)
    modules["logarithms in float32, compiled"] = (torch.compile(LogMinGRU(layer)), lambda y: y[0])
    return [Contender(name, inferred(module, x, take), trained(module, x, dy, take), kind)
            for name, (module, take) in modules.items()]


def of_linear(layer, x, dy, kind, device):
    modules = {f"torch.associative_scan, {named('torch', 'PyTorch')}": LinearMinGRU(layer, associative("cpu"))}
    packages = scans_of_packages(device)
    modules |= {name: LinearMinGRU(layer, scan, last=True) for name, scan in packages.items()}
    if device == "cuda":
        modules = {name: torch.compile(module) for name, module in modules.items()}
    return [Contender(name, inferred(module, x), trained(module, x, dy), kind) for name, module in modules.items()]


class MLSTM(torch.nn.Module):
    """Queries, keys, values and gates by one product, then the kernel of mlstm_kernels."""

    def __init__(self, kernel, size, heads):
        super().__init__()
        self.product = torch.nn.Linear(size, 2 * size + 2 * heads)
        self.kernel, self.size, self.heads = kernel, size, heads

    def forward(self, x):
        q, k, v, i, f = self.product(x).split([self.size // 2, self.size // 2, self.size, self.heads, self.heads], -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (q, k, v))
        h = self.kernel(q, k, v, i.transpose(1, 2).float(), f.transpose(1, 2).float() + 3)
        return (h.transpose(1, 2).flatten(2),)


def mamba2():
    """mamba_ssm's module of Mamba-2 alone: the package itself would load all its models and what they need."""
    found = importlib.util.find_spec("mamba_ssm")
    if found and "mamba_ssm" not in sys.modules:
        sys.modules["mamba_ssm"] = types.ModuleType("mamba_ssm")
        sys.modules["mamba_ssm"].__path__ = list(found.submodule_search_locations)
    return optional("mamba_ssm.modules.mamba2", "mamba-ssm")


def other_cells(settings):
    """Other cells of equal width

    Not the same function: a layer of mLSTM (product of the input and mlstm_kernels' chunkwise kernel) and one of
    Mamba-2 (mamba_ssm, whole, with its convolution, gate and output product) beside a layer of minGRU, bf16. Their
    states are matrices, and they compute more. Their results only have to be finite; minGRU's are compared.
    """
    if settings.device == "cpu":
        return "Their kernels are for GPUs."
    shape = 8, settings.steps(4096), 1024
    torch.manual_seed(0)
    modules = {}
    kernels = optional("mlstm_kernels.torch.chunkwise", "mlstm_kernels")
    if kernels:
        import functools

        kernel = functools.partial(kernels.registry["triton_xl_chunk"], autocast_kernel_dtype=torch.bfloat16)
        module = MLSTM(kernel, shape[-1], 4)
        modules[f"mLSTM, 4 heads, mlstm_kernels {version('mlstm_kernels')}"] = module, lambda y: y[0]
    mamba = mamba2()
    if mamba:
        fast = optional("causal_conv1d", "causal-conv1d") is not None
        module = mamba.Mamba2(shape[-1], expand=1, use_mem_eff_path=fast)
        modules[f"Mamba-2, {named('mamba-ssm')}" + ("" if fast else ", convolution by PyTorch")] = module, lambda y: y
    return table(beside_mingru(modules, *shape, settings), "width: B, T, I = H")


def beside_mingru(modules, batch, steps, size, settings):
    """Rows of a minGRU and of modules of other cells, {name: (module, function of its result that gives y)}, in bf16."""
    layer = penstock.torch.MinGRU(size, size, batch_first=True, candidate="linear").to(settings.device, torch.bfloat16)
    x, dy = (torch.randn(batch, steps, size, device=settings.device, dtype=torch.bfloat16) for _ in range(2))
    contenders = [Contender(OURS, inferred(layer, x), trained(layer, x, dy), "bf16")]
    for name, (module, take) in modules.items():
        module.to(settings.device, torch.bfloat16)
        contenders.append(Contender(name, inferred(module, x, take), trained(module, x, dy, take), "bf16", read=None))
    exact = in_double(LinearMinGRU(layer, looped), x, dy)
    return compare(f"{batch}, {steps}, {size}", contenders, *exact, settings)


END = 0.03  # probability that an episode ends with a step


def episodes(settings):
    """Layers over rollouts with episodes, beside TorchRL

    float32. States are zero where an episode starts; 3 % of the steps end one. Each of TorchRL's backends has a
    row.
    """
    modules = optional("torchrl.modules", "torchrl")
    if modules is None:
        return "TorchRL is not installed."
    import penstock.rl  # noqa: F401
    from tensordict import TensorDict

    rows = []
    for cell in ("LSTM", "GRU"):
        batch, steps, inputs, hidden = 64, settings.steps(128), 64, 256
        torch.manual_seed(0)
        layer = getattr(torch.nn, cell)(inputs, hidden, batch_first=True).to(settings.device)
        ours = getattr(penstock.torch, cell)(inputs, hidden, batch_first=True).to(settings.device)
        ours.load_state_dict(layer.state_dict())
        x = torch.randn(batch, steps, inputs, device=settings.device)
        dy = torch.randn(batch, steps, hidden, device=settings.device)
        starts = penstock.torch.episode_starts(torch.rand(batch, steps) < END, batch_first=True).to(settings.device)
        given = x.double().requires_grad_()
        y = restarted(cell, layer, given, starts)
        y.backward(dy.double())
        module = with_resets(ours, starts)
        contenders = [Contender(OURS, inferred(module, x), trained(module, x, dy))]
        states = ["h", "c"] if cell == "LSTM" else ["h"]
        keys = {"in_keys": ["x", *states], "out_keys": ["y", *(("next", name) for name in states)]}
        for backend in ("pad", "scan", "triton") if settings.device == "cuda" else ("pad", "scan"):
            precise = {"recurrent_matmul_precision": "ieee"} if backend == "triton" else {}
            module = getattr(modules, f"{cell}Module")(inputs, hidden, **keys, recurrent_backend=backend, **precise)
            getattr(module, cell.lower()).load_state_dict(layer.state_dict())
            module.to(settings.device)
            rest = {name: torch.zeros(batch, steps, 1, hidden, device=settings.device) for name in states}
            wrapped = Rollout(modules, module, TensorDict, rest | {"is_init": starts.unsqueeze(-1)})
            contenders.append(Contender(f"TorchRL {version('torchrl')}, {backend}", inferred(wrapped, x),
                                        trained(wrapped, x, dy)))
        sizes = ", ".join(map(str, (batch, steps, inputs, hidden)))
        rows += compare(f"{cell}: {sizes}", contenders, y.detach(), given.grad, settings)
    return table(rows)


def with_resets(layer, starts):
    class Reset(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(x, reset_mask=starts)

    return Reset()


class Rollout(torch.nn.Module):
    """A module of TorchRL as a function of x."""

    def __init__(self, modules, module, tensordict, others):
        super().__init__()
        self.module, self.mode, self.make, self.others = module, modules.set_recurrent_mode, tensordict, others

    def forward(self, x):
        with self.mode(True):
            return (self.module(self.make({"x": x, **self.others}, x.shape[:2]))["y"],)


def restarted(cell, layer, x, starts):
    """torch.nn's cell in float64, step by step."""
    double = getattr(torch.nn, cell + "Cell")(layer.input_size, layer.hidden_size).to(x)
    double.load_state_dict({name.removesuffix("_l0"): value.double() for name, value in layer.state_dict().items()})
    state = [x.new_zeros(len(x), layer.hidden_size)] * (2 if cell == "LSTM" else 1)
    answers = []
    for x_t, start in zip(x.unbind(1), starts.unbind(1)):
        state = [torch.where(start.unsqueeze(1), 0, part) for part in state]
        after = double(x_t, tuple(state) if cell == "LSTM" else state[0])
        state = list(after) if cell == "LSTM" else [after]
        answers.append(state[0])
    return torch.stack(answers, 1)


PARTS = {"scans": scans, "minimal": minimal, "other_cells": other_cells, "episodes": episodes}
