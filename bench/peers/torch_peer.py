"""PyTorch, eager ("torch"), compiled ("torch-compile") and as a loop over torch.nn's cells ("torch-loop").

Elman, GRU and LSTM are torch.nn's own layers and cells. What torch.nn has not is eager code as its users write it: the
sLSTM a loop over steps, minimal cells with the positive candidate the published scan in log space, those with the linear
candidate a loop of a_t h + b_t.
On device "cuda" calls are timed by CUDA events, with L2 overwritten before each, as Penstock's are.
"""

import os

# Compiled by this process alone: helpers would go on working while others are timed.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch
from torch.nn.functional import linear, logsigmoid, softplus

from server import Refused

LAYERS = {
    "lstm": torch.nn.LSTM,
    "gru": torch.nn.GRU,
    "elman": torch.nn.RNN,
    "elman-relu": lambda *sizes, **options: torch.nn.RNN(*sizes, nonlinearity="relu", **options),
}
CELLS = {
    "lstm": torch.nn.LSTMCell,
    "gru": torch.nn.GRUCell,
    "elman": torch.nn.RNNCell,
    "elman-relu": lambda *sizes: torch.nn.RNNCell(*sizes, nonlinearity="relu"),
}


HEADS = True  # of the sLSTM; make() refuses the others

HALVES = {"bf16": torch.bfloat16, "f16": torch.float16}


def version():
    return torch.__version__


def recurrent_product(h, weight):
    """[B, 4H] from h [B, H] and weight [4H, H], or of several heads [heads, 4D, D]."""
    if weight.dim() == 2:
        return linear(h, weight)
    heads, rows, size = weight.shape
    product = torch.einsum("bhd,hgd->bhg", h.unflatten(-1, (heads, size)), weight)
    return product.unflatten(-1, (rows // size, size)).transpose(1, 2).flatten(1)


def slstm_step(wx, weight, bias, h, c, n, m):
    """wx [B, 4H] is the input's product; states [B, H]."""
    i, f, z, o = (wx + recurrent_product(h, weight) + bias).chunk(4, dim=-1)
    log_f = logsigmoid(f) + m
    m = torch.where(n == 0, i, torch.maximum(log_f, i))
    forget, take = torch.where(n == 0, 0, torch.exp(log_f - m)), torch.exp(i - m)
    c, n = forget * c + take * torch.tanh(z), forget * n + take
    return torch.sigmoid(o) * c / n, c, n, m


def log_gates(cell, parts):
    """log a, log z of h_t = a h_{t-1} + z h~, from the products of the gates."""
    if cell.startswith("mingru"):
        return -softplus(parts[0]), -softplus(-parts[0])
    difference = softplus(-parts[1]) - softplus(-parts[0])
    return -softplus(-difference), -softplus(difference)


def linear_gates(cell, parts):
    if cell.startswith("mingru"):
        z = torch.sigmoid(parts[0])
        return 1 - z, z
    f, i = torch.sigmoid(parts[0]), torch.sigmoid(parts[1])
    return f / (f + i), i / (f + i)


def positive(x):
    return torch.where(x >= 0, x + 0.5, torch.sigmoid(x))


def log_scan(log_a, log_b):
    """h [B, T, C] with h_t = a_t h_{t-1} + b_t from h = 0, from logarithms, as cumulative sums."""
    total = log_a.cumsum(dim=1)
    return (total + torch.logcumsumexp(log_b - total, dim=1)).exp()


def linear_scan(a, b):
    h, answers = torch.zeros_like(a[:, 0]), []
    for a_t, b_t in zip(a.unbind(1), b.unbind(1)):
        h = torch.addcmul(b_t, a_t, h)
        answers.append(h)
    return torch.stack(answers, dim=1)


class BareScan(torch.nn.Module):
    """The scan by itself; its terms are its parameters, so that gradients are asked for as elsewhere."""

    def __init__(self, cell, arrays):
        super().__init__()
        self.a, self.b = (torch.nn.Parameter(torch.from_numpy(arrays[name])) for name in "ab")
        self.scan = log_scan if cell == "scan-log" else linear_scan

    def forward(self, _):
        return self.scan(self.a, self.b)


class Own(torch.nn.Module):
    """The cells that torch.nn has not; parameters named as in torch.nn.LSTM."""

    def __init__(self, cell, arrays):
        super().__init__()
        self.cell = cell
        self.gates = {"slstm": 4, "mingru": 2, "minlstm": 3}[cell.removesuffix("-log")]
        for name, array in arrays.items():
            if name.startswith(("weight", "bias")):
                setattr(self, name, torch.nn.Parameter(torch.from_numpy(array)))
        self.step_of_slstm = slstm_step

    def forward(self, x):
        wx = linear(x, self.weight_ih_l0, self.bias_ih_l0)
        if self.cell == "slstm":
            return self.loop(wx)
        parts = wx.chunk(self.gates, dim=-1)
        if self.cell.endswith("-log"):
            log_a, log_z = log_gates(self.cell, parts)
            candidate = parts[-1]
            log_candidate = torch.where(candidate >= 0, (torch.relu(candidate) + 0.5).log(), -softplus(-candidate))
            return log_scan(log_a, log_z + log_candidate)
        a, z = linear_gates(self.cell, parts)
        return linear_scan(a, z * parts[-1])

    def loop(self, wx):
        state = [torch.zeros_like(wx[:, 0, : wx.shape[-1] // 4])] * 4
        answers = []
        for wx_t in wx.unbind(1):
            state = self.step_of_slstm(wx_t, self.weight_hh_l0, self.bias_hh_l0, *state)
            answers.append(state[0])
        return torch.stack(answers, dim=1)

    def step(self, x, state):
        """x [B, I], states [B, H] -> states, the first of which is the answer."""
        wx = linear(x, self.weight_ih_l0, self.bias_ih_l0)
        if self.cell == "slstm":
            return self.step_of_slstm(wx, self.weight_hh_l0, self.bias_hh_l0, *state)
        parts = wx.chunk(self.gates, dim=-1)
        a, z = linear_gates(self.cell, parts)
        candidate = positive(parts[-1]) if self.cell.endswith("-log") else parts[-1]
        return (torch.addcmul(z * candidate, a, state[0]),)


def as_array(tensor):
    return (tensor.float() if tensor.dtype in HALVES.values() else tensor).cpu().numpy()


def sample_on_gpu(seconds, call, most=1000):
    """Seconds of each of as many calls as together take `seconds`, 3 to `most`, after one to warm up. L2 is overwritten
    before each."""
    flushed = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def once():
        flushed.zero_()
        start.record()
        call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3

    once()
    times = []
    while (sum(times) < seconds and len(times) < most) or len(times) < 3:
        times.append(once())
    return times


class Sequence:
    """Whole sequences, forward or training."""

    def __init__(self, compiled, case, arrays, twin=False, make_module=None):
        self.case = case
        kind = None if twin else HALVES.get(case["dtype"])  # None: as the arrays are
        device = case.get("device", "cpu")
        self.module = (make_module or module)(case, arrays).to(device).to(kind)
        self.run = self.compile(compiled)
        self.bare = case["cell"].startswith("scan")
        self.x = torch.empty(0) if self.bare else torch.from_numpy(arrays["x"]).to(device).to(kind)
        self.training = case["pass"] == "training"
        if self.training:
            self.x.requires_grad_(not self.bare)
            self.dy, self.masked_dy = (
                torch.from_numpy(arrays[name]).to(device).to(kind) for name in ("dy", "masked_dy")
            )
        # Sums of logarithms grow with T, and what is as large as T is rounded to T times the precision; gradients sum
        # that once more. In double enough is left to see whether the formulas are right.
        self.in_double = case["cell"].endswith("-log") and not twin
        self.in_double_check = lambda doubles: Sequence(compiled, case, doubles, twin=True).check()
        self.arrays = arrays if self.in_double else None

    def compile(self, compiled):
        if not compiled:
            return self.module
        if self.case["cell"] in LAYERS:
            raise Refused("leaves the layers of torch.nn as they are")
        if self.case["cell"] in ("mingru", "minlstm"):
            raise Refused("would unroll the loop over all steps")
        if self.case["cell"] == "slstm":
            self.module.step_of_slstm = torch.compile(slstm_step)
            return self.module
        return torch.compile(self.module)

    def forward(self):
        with torch.inference_mode():
            self.y = self.run(self.x)
            self.y = self.y[0] if isinstance(self.y, tuple) else self.y

    def train(self, dy):
        self.module.zero_grad()
        self.x.grad = None
        y = self.run(self.x)
        self.y = y[0] if isinstance(y, tuple) else y
        self.y.backward(dy)

    def check(self):
        if self.in_double:
            return self.in_double_check({name: array.astype("float64") for name, array in self.arrays.items()})
        if not self.training:
            self.forward()
            return self.last()
        self.train(self.masked_dy)
        rows = self.case["rows"] if self.bare else slice(None)
        return {**self.last(), **{name: as_array(p.grad)[rows] for name, p in self.module.named_parameters()}}

    def last(self):
        rows = self.case["rows"]
        answers = {"y": as_array(self.y.detach())[rows]}
        if self.training and not self.bare:
            answers["dx"] = as_array(self.x.grad)[rows]
        return answers

    def sample(self, seconds, time_calls):
        call = (lambda: self.train(self.dy)) if self.training else self.forward
        return sample_on_gpu(seconds, call) if self.case.get("device") == "cuda" else time_calls(seconds, call)


def loop_over(cell, steps):
    """h [B, H] of every step, from x [B, I] of each: what people write who have a cell."""
    state, answers = None, []
    for x in steps:
        state = cell(x, state)
        answers.append(state[0] if isinstance(state, tuple) else state)
    return answers


class LoopOverCells(torch.nn.Module):
    """x [B, T, I] -> [B, T, H], a call for every step."""

    def __init__(self, case, arrays):
        super().__init__()
        self.cell = CELLS[case["cell"]](case["I"], case["H"])
        load(self.cell, arrays, "")

    def forward(self, x):
        return torch.stack(loop_over(self.cell, x.unbind(1)), dim=1)

    def named_parameters(self, *args, **kwargs):
        """Named as those of torch.nn's layers are."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield f"{name.removeprefix('cell.')}_l0", parameter


class CellLoop:
    """A sequence as a loop over a cell of torch.nn, steps first; forward only."""

    def __init__(self, case, arrays):
        self.case = case
        self.x = torch.from_numpy(arrays["x"]).transpose(0, 1).contiguous()
        self.cell = CELLS[case["cell"]](case["I"], case["H"])
        load(self.cell, arrays, "")

    def call(self):
        with torch.inference_mode():
            self.y = torch.stack(loop_over(self.cell, self.x))

    def check(self):
        self.call()
        return self.last()

    def last(self):
        return {"y": self.y.transpose(0, 1).numpy()[self.case["rows"]]}

    def sample(self, seconds, time_calls):
        return time_calls(seconds, self.call)


class Stream:
    """One step a call, the state carried on."""

    def __init__(self, compiled, case, arrays):
        self.case = case
        self.x = [step.contiguous() for step in torch.from_numpy(arrays["x"]).unbind(1)]
        head = [torch.from_numpy(arrays[name]) for name in ("head_weight", "head_bias")] if case["head"] else None
        step = self.cell(arrays)

        def step_and_head(x, state):
            state = step(x, state)
            return state, linear(state[0], *head) if head else state[0]

        self.run = torch.compile(step_and_head) if compiled else step_and_head
        self.start()

    def cell(self, arrays):
        if self.case["cell"] not in CELLS:
            return Own(self.case["cell"], arrays).step
        cell = CELLS[self.case["cell"]](self.case["I"], self.case["H"])
        load(cell, arrays, "")
        if self.case["cell"] == "lstm":
            return lambda x, state: cell(x, state)
        return lambda x, state: (cell(x, state[0]),)

    def start(self):
        states = {"lstm": 2, "slstm": 4}.get(self.case["cell"], 1)
        self.state = tuple(torch.zeros(self.case["B"], self.case["H"]) for _ in range(states))
        self.t = 0

    def step(self):
        with torch.inference_mode():
            self.state, self.y = self.run(self.x[self.t], self.state)
        self.t = (self.t + 1) % self.case["T"]

    def check(self):
        self.start()
        answers = []
        for _ in range(self.case["T"]):
            self.step()
            answers.append(torch.cat([self.state[0], self.y], dim=-1) if self.case["head"] else self.y)
        return {"y": torch.stack(answers, dim=1).numpy()[self.case["rows"]]}

    last = check

    def sample(self, seconds, time_calls):
        return time_calls(seconds, self.step)


def load(destination, arrays, suffix):
    with torch.no_grad():
        for name, parameter in destination.named_parameters():
            parameter.copy_(torch.from_numpy(arrays[name if suffix else f"{name}_l0"]))


def module(case, arrays):
    if case["cell"] in LAYERS:
        layer = LAYERS[case["cell"]](case["I"], case["H"], batch_first=True)
        load(layer, arrays, "_l0")
        return layer
    return (BareScan if case["cell"].startswith("scan") else Own)(case["cell"], arrays)


def make(name, case, arrays):
    if case["cell"] == "gru-before":
        raise Refused("has a GRU that resets after the product only")
    if case.get("device") == "cuda" and not torch.cuda.is_available():
        raise Refused("sees no GPU")
    halves = HALVES if case.get("device") == "cuda" else ["bf16"]
    if case["heads"] > 1 and case["cell"] != "slstm":
        raise Refused("has no heads")
    on_cpu_loop = name == "torch-loop" and case.get("device") != "cuda"
    if case["dtype"] != "f32" and (case["dtype"] not in halves or case["pass"] == "step" or on_cpu_loop):
        raise Refused(f"is not asked for {case['dtype']} here")
    torch.set_num_threads(case["threads"])
    # cuDNN's default for float32 is TF32, whose results are off by more than a wrong result may be.
    torch.backends.cudnn.allow_tf32 = False
    if name == "torch-loop":
        on_gpu = case.get("device") == "cuda"
        if case["cell"] not in CELLS or (case["pass"] != "forward" and not on_gpu):
            raise Refused("is for the cells of torch.nn, forward")
        return Sequence(False, case, arrays, make_module=LoopOverCells) if on_gpu else CellLoop(case, arrays)
    kind = Stream if case["pass"] == "step" else Sequence
    return kind(name == "torch-compile", case, arrays)
