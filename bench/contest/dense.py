"""Layers with recurrent matrices beside cuDNN, oneDNN, ONNX Runtime, JAX, FlashRNN, pararnn and TorchRL."""

import contextlib
import io
import tempfile
import warnings
from pathlib import Path

import penstock.torch
import torch
from measuring import DTYPES, OURS, Contender, compare, inferred, named, optional, table, trained, version

# Cell, rows, steps, inputs, hidden size.
CPU_SHAPES = [("LSTM", 1, 200, 256, 256), ("LSTM", 16, 200, 256, 256), ("LSTM", 64, 100, 128, 256),
              ("LSTM", 64, 200, 256, 512), ("GRU", 16, 200, 256, 256), ("GRU", 64, 100, 128, 256)]  # fmt: skip
GPU_SHAPES = [("LSTM", 64, 512, 1024, 1024), ("LSTM", 16, 1024, 512, 512), ("LSTM", 16, 1024, 768, 768),
              ("LSTM", 256, 128, 2048, 2048), ("GRU", 16, 1024, 256, 256), ("GRU", 64, 512, 1024, 1024)]  # fmt: skip
GPU_FLOAT_SHAPES = [("LSTM", 64, 512, 512, 512), ("LSTM", 16, 1024, 128, 128)]


def exact_layer(cell, layer, x, dy):
    """y and the gradient of x in float64, by torch.nn."""
    double = getattr(torch.nn, cell)(layer.input_size, layer.hidden_size, batch_first=True).to(x.device, torch.double)
    double.load_state_dict({name: value.double() for name, value in layer.state_dict().items()})
    given = x.double().requires_grad_()
    y = double(given)[0]
    y.backward(dy.double())
    return y.detach(), given.grad


@contextlib.contextmanager
def tf32(allowed):
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def under_tf32(call, allowed):
    def run():
        with tf32(allowed):
            return call()

    return run


def of_torch(cell, kind, layer, x, dy):
    """Contenders Penstock and torch.nn in one type."""
    device, dtype = x.device, DTYPES[kind]
    peer = f"cuDNN by {named('torch', 'PyTorch')}" if device.type == "cuda" else named("torch", "PyTorch")
    found = []
    for name, package in ((OURS, penstock.torch), (peer, torch.nn)):
        module = getattr(package, cell)(layer.input_size, layer.hidden_size, batch_first=True)
        module.load_state_dict(layer.state_dict())
        module.to(device, dtype)
        calls = inferred(module, x.to(dtype)), trained(module, x.to(dtype), dy.to(dtype))
        if kind in ("f32", "TF32"):
            calls = tuple(under_tf32(call, kind == "TF32") for call in calls)
        found.append(Contender(name, *calls, kind=kind))
    return found


def of_numpy(layer, x, threads):
    """Penstock's form without PyTorch, which keeps its weights packed."""
    network = penstock.interchange.RecurrentWeights.from_torch(layer).to_numpy()
    given = x.numpy()
    return [Contender(OURS, lambda: network.forward(given, threads=threads)[0],
                      read=lambda y: torch.from_numpy(y).double())]


def of_jax(cell, layer, x, dy, kind="f32"):
    """jax.lax.scan over the steps, and on a GPU JAX's cuDNN."""
    jax = optional("jax", "jax")
    if jax is None:
        return []
    on = jax.devices()[0].platform
    if (on == "cpu") != (x.device.type == "cpu"):
        return []
    import jax.numpy as jnp
    import jax_layers

    precision = jax.lax.Precision.HIGHEST if kind == "f32" else jax.lax.Precision.HIGH
    weights = {name: jnp.asarray(value.detach().cpu().numpy()) for name, value in layer.state_dict().items()}
    given, dy = (jnp.asarray(array.cpu().numpy()) for array in (x, dy))

    def by_scan(x, w):
        with jax.default_matmul_precision(precision.name.lower()):
            return jax_layers.by_scan(cell.lower(), x, w)

    def by_cudnn(x, w):
        return jax_layers.by_cudnn(cell.lower(), x, w, (precision, precision))

    def read(array):
        import numpy as np

        return torch.from_numpy(np.asarray(array, dtype="float64").copy()).to(layer.weight_ih_l0.device)

    forms = {"jax.lax.scan, " + named("jax", "JAX"): by_scan}
    if on != "cpu" and cell == "LSTM":
        forms["cuDNN by " + named("jax", "JAX")] = by_cudnn
    found = []
    for name, function in forms.items():
        forward = jax.jit(function)
        backward = jax.jit(jax.grad(lambda x, w, f=function: (f(x, w) * dy).sum(), (0, 1)))
        calls = lambda f=forward: f(given, weights), lambda f=backward: f(given, weights)[0]
        found.append(Contender(name, *calls, kind, read))
    return found


def of_onnxruntime(layer, x, threads):
    """The file of PyTorch's exporter, steps first: the operator LSTM or GRU and nothing around it."""
    runtime = optional("onnxruntime", "onnxruntime")
    if runtime is None or optional("onnx", "onnx") is None:
        return []
    module = getattr(torch.nn, type(layer).__name__)(layer.input_size, layer.hidden_size)
    module.load_state_dict(layer.state_dict())
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        path = str(Path(folder) / "layer.onnx")
        torch.onnx.export(module, (x.transpose(0, 1),), path, dynamo=False, input_names=["x"], output_names=["y"])
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 3
        session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = {"x": x.transpose(0, 1).contiguous().numpy()}
    return [Contender(named("onnxruntime", "ONNX Runtime"), lambda: session.run(["y"], given)[0],
                      read=lambda y: torch.from_numpy(y).double().transpose(0, 1))]


def problem(cell, rows, steps, inputs, hidden, device):
    torch.manual_seed(0)
    layer = getattr(torch.nn, cell)(inputs, hidden, batch_first=True).to(device)
    x, dy = torch.randn(rows, steps, inputs, device=device), torch.randn(rows, steps, hidden, device=device)
    return layer, x, dy, *exact_layer(cell, layer, x, dy)


def layers(settings):
    """Whole layers

    One layer over whole sequences: LSTM and GRU of torch.nn. On a GPU in 16 bits, each side in its quicker type.
    """
    rows = []
    for cell, *shape in GPU_SHAPES if settings.device == "cuda" else CPU_SHAPES:
        shape[1] = settings.steps(shape[1])
        layer, x, dy, *exact = problem(cell, *shape, settings.device)
        if settings.device == "cuda":
            contenders = [each for kind in ("bf16", "f16") for each in of_torch(cell, kind, layer, x, dy)]
        else:
            contenders = [*of_torch(cell, "f32", layer, x, dy), *of_numpy(layer, x, settings.threads),
                          *of_onnxruntime(layer, x, settings.threads), *of_jax(cell, layer, x, dy)]
        rows += compare(f"{cell}: {', '.join(map(str, shape))}", contenders, *exact, settings)
    return table(rows)


def floats(settings):
    """Whole layers in float32

    On a GPU, once with the accuracy of float32 and once with TF32, which PyTorch's flags allow by default. Penstock
    uses TF32 where these flags permit it.
    """
    if settings.device == "cpu":
        return "On a CPU all layers above are in float32."
    rows = []
    for cell, *shape in GPU_FLOAT_SHAPES:
        shape[1] = settings.steps(shape[1])
        layer, x, dy, *exact = problem(cell, *shape, settings.device)
        for kind in ("f32", "TF32"):
            contenders = of_torch(cell, kind, layer, x, dy) + of_jax(cell, layer, x, dy, kind)
            rows += compare(f"{cell}: {', '.join(map(str, shape))}", contenders, *exact, settings)
    return table(rows)


# Function, rows, steps, heads, units of a head.
RECURRENCES = [("slstm", 16, 1024, 12, 64), ("lstm", 16, 1024, 12, 64), ("lstm", 16, 1024, 1, 768)]


class FlashLayer(torch.nn.Module):
    """FlashRNN behind the product of the input, with the weights of one of Penstock's layers."""

    def __init__(self, flashrnn, function, backend, layer):
        super().__init__()
        self.run, self.function, self.backend, self.heads = flashrnn, function, backend, layer.num_heads
        units, size = layer.hidden_size, layer.hidden_size // layer.num_heads
        hh = layer.weight_hh_l0.detach()
        weight = hh.reshape(self.heads, 4, size, size).transpose(0, 1)
        self.product = torch.nn.Linear(layer.input_size, 4 * units, bias=False).to(hh.device, hh.dtype)
        self.product.weight.data.copy_(layer.weight_ih_l0)
        self.weight = torch.nn.Parameter(weight.contiguous().clone())
        self.bias = torch.nn.Parameter((layer.bias_ih_l0 + layer.bias_hh_l0).detach().reshape(4, self.heads, size))
        self.dtype = {torch.bfloat16: "bfloat16", torch.float16: "float16"}.get(hh.dtype, "float32")

    def forward(self, x):
        wx = self.product(x).reshape(*x.shape[:2], 4, self.heads, -1)
        states, _ = self.run(wx, self.weight, self.bias, function=self.function, backend=self.backend, dtype=self.dtype)
        return (states[0].flatten(2),)


def slstm_in_double(layer, x):
    """A loop over the steps of an sLSTM."""
    weight, bias = layer.weight_hh_l0.double(), (layer.bias_ih_l0 + layer.bias_hh_l0).double()
    wx = x.double() @ layer.weight_ih_l0.double().t() + bias
    h = c = n = m = x.new_zeros(len(x), layer.hidden_size, dtype=torch.double)
    answers = []
    for wx_t in wx.unbind(1):
        parts = torch.einsum("bhd,hgd->bhg", h.unflatten(-1, (layer.num_heads, -1)), weight)
        i, f, z, o = (wx_t + parts.unflatten(-1, (4, -1)).transpose(1, 2).flatten(1)).chunk(4, -1)
        log_f = torch.nn.functional.logsigmoid(f) + m
        m = torch.where(n == 0, i, torch.maximum(log_f, i))
        forget, take = torch.where(n == 0, 0, torch.exp(log_f - m)), torch.exp(i - m)
        c, n = forget * c + take * torch.tanh(z), forget * n + take
        h = torch.sigmoid(o) * c / n
        answers.append(h)
    return torch.stack(answers, 1)


def lstm_in_double(layer, x):
    """torch.nn's LSTM with the heads as blocks of one matrix."""
    size = layer.hidden_size // layer.num_heads
    double = torch.nn.LSTM(layer.input_size, layer.hidden_size, batch_first=True).to(x.device, torch.double)
    state = {name: value.double() for name, value in layer.state_dict().items()}
    if layer.num_heads > 1:
        gates = state["weight_hh_l0"].reshape(layer.num_heads, 4, size, size).transpose(0, 1)
        state["weight_hh_l0"] = torch.cat([torch.block_diag(*gate) for gate in gates])
    double.load_state_dict(state)
    return double(x.double())[0]


def beside_flashrnn(settings, backend):
    package = optional("flashrnn", "flashrnn")
    if settings.device == "cpu" or package is None:
        return "FlashRNN's kernels are for GPUs." if package else "FlashRNN is not installed."
    rows = []
    for function, batch, steps, heads, size in RECURRENCES:
        steps, units = settings.steps(steps), heads * size
        torch.manual_seed(0)
        cell = penstock.torch.SLSTM if function == "slstm" else penstock.torch.LSTM
        layer = cell(units, units, batch_first=True, num_heads=heads).to("cuda", torch.bfloat16)
        x, dy = (torch.randn(batch, steps, units, device="cuda").to(torch.bfloat16) for _ in range(2))
        given = x.double().requires_grad_()
        y = (slstm_in_double if function == "slstm" else lstm_in_double)(layer, given)
        y.backward(dy.double())
        module = FlashLayer(package.flashrnn, function, backend, layer)
        contenders = [Contender(OURS, inferred(layer, x), trained(layer, x, dy), "bf16"),
                      Contender(f"FlashRNN {version('flashrnn')}, {backend}", inferred(module, x),
                                trained(module, x, dy), "bf16")]
        rows += compare(f"{function}: {batch}, {steps}, {units}, {heads} x {size}", contenders, y.detach(), given.grad,
                        settings)
    return table(rows)


def recurrences(settings):
    """Layers with heads, beside FlashRNN's Triton kernels

    bf16, with the product of the input, which FlashRNN leaves to PyTorch. "12 x 64" are 12 heads of 64 units. Kernels
    that do not compile stand with their error.
    """
    return beside_flashrnn(settings, "triton_fused")


def compiled_recurrences(settings):
    """Layers with heads, beside FlashRNN's CUDA kernels

    The same layers. FlashRNN compiles these kernels by CUDA's compiler, which takes minutes or fails: the last part.
    """
    return beside_flashrnn(settings, "cuda_fused")


DIAGONAL = (1, 65536, 256, 256)  # rows, steps, inputs, hidden size
CHECKED_STEPS = 2048


def diagonal_pair(pararnn, shape):
    """A GRU whose units read only their own state: Penstock's layer, and pararnn's with the same weights."""
    _, _, inputs, hidden = shape
    torch.manual_seed(0)
    ours = penstock.torch.GRU(inputs, hidden, batch_first=True, num_heads=hidden).to("cuda")
    theirs = pararnn.ParaGRU(inputs, hidden, device="cuda")
    sign = {"z": -1, "r": 1, "n": 1}  # pararnn's z is 1 - z of torch.nn
    with torch.no_grad():
        ours.bias_hh_l0.zero_()
        ours.weight_hh_l0.clamp_(-0.4, 0.4)
        for place, gate in enumerate("rzn"):
            getattr(theirs, f"a_{gate}").copy_(sign[gate] * ours.weight_hh_l0.reshape(hidden, 3)[:, place])
            part, to = slice(place * hidden, (place + 1) * hidden), "zrn".index(gate)
            theirs.W_x.weight[to * hidden:(to + 1) * hidden] = sign[gate] * ours.weight_ih_l0[part]
            theirs.W_x.bias[to * hidden:(to + 1) * hidden] = sign[gate] * ours.bias_ih_l0[part]
    return ours, pararnn.ParaRNN(theirs, solver="newton")


def diagonal_in_double(layer, x):
    wx = (x.double() @ layer.weight_ih_l0.double().t() + layer.bias_ih_l0.double()).chunk(3, -1)
    w = layer.weight_hh_l0.double().reshape(-1, 3).unbind(-1)
    h, answers = torch.zeros_like(wx[0][:, 0]), []
    for r, z, n in zip(*(part.unbind(1) for part in wx)):
        r, z = torch.sigmoid(r + w[0] * h), torch.sigmoid(z + w[1] * h)
        h = (1 - z) * torch.tanh(n + r * (w[2] * h)) + z * h
        answers.append(h)
    return torch.stack(answers, 1)


def diagonals(settings):
    """A diagonal GRU, beside pararnn-torch

    Units read only their own state, and both sides solve for all steps at once by Newton's method. The results of the
    first 2,048 steps are checked.
    """
    package = optional("pararnn", "pararnn-torch")
    if settings.device == "cpu" or package is None:
        return "pararnn's kernels are for GPUs." if package else "pararnn-torch is not installed."
    ours, theirs = diagonal_pair(package, DIAGONAL)
    batch, steps, inputs, hidden = DIAGONAL
    steps = settings.steps(steps)
    checked = min(steps, CHECKED_STEPS)
    x, dy = torch.randn(batch, steps, inputs, device="cuda"), torch.randn(batch, steps, hidden, device="cuda")
    dy[:, checked:] = 0  # so that the first steps' gradients depend on nothing behind them
    given = x[:, :checked].double().requires_grad_()
    y = diagonal_in_double(ours, given)
    y.backward(dy[:, :checked].double())

    def first(result):
        return result[:, :checked].double()

    contenders = []
    for name, module, take in ((OURS, ours, lambda y: y[0]), (named("pararnn-torch"), theirs, lambda y: y)):
        calls = inferred(module, x, take), trained(module, x, dy, take)
        contenders.append(Contender(name, *(under_tf32(call, False) for call in calls), read=first))
    sizes = ", ".join(map(str, (batch, steps, inputs, hidden)))
    return table(compare(f"diagonal GRU: {sizes}", contenders, y.detach(), given.grad, settings))


PARTS = {"layers": layers, "floats": floats, "recurrences": recurrences, "diagonals": diagonals}
LAST_PARTS = {"compiled_recurrences": compiled_recurrences}
