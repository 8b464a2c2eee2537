"""FlashRNN's functions: the recurrence alone, the product of the input given.

On a GPU its fused kernels, compiled by CUDA ("cuda_fused") where it finds a compiler that it can use, else those of
Triton ("triton_fused"), or those that FLASHRNN_BACKEND names; on a CPU its plain PyTorch code, so that what is compared
can be tried without a GPU.
"""

import os
import warnings

import torch
from flashrnn import flashrnn
from torch.nn.functional import linear

from server import Refused
from torch_peer import HALVES, as_array, sample_on_gpu

HEADS = True
FUNCTIONS = {"lstm": "lstm", "slstm": "slstm", "gru": "gru", "elman": "elman"}
DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}


def version():
    from importlib.metadata import version as version_of

    return version_of("flashrnn")


class Recurrence:
    """W x is made before, its gradients behind what is timed."""

    def __init__(self, case, arrays):
        self.case = case
        self.kind = HALVES.get(case["dtype"], torch.float32)
        self.device = case.get("device", "cpu")
        self.heads, self.size = case["heads"], case["H"] // case["heads"]
        self.arrays = {name: torch.from_numpy(array).to(self.device).to(self.kind) for name, array in arrays.items()}
        self.gates = self.arrays["weight_ih_l0"].shape[0] // case["H"]
        gates, heads, size = self.gates, self.heads, self.size
        weight = self.arrays["weight_hh_l0"].reshape(heads, gates, size, size).transpose(0, 1)
        ih, hh = (self.arrays[f"bias_{which}_l0"].reshape(gates, heads, size) for which in ("ih", "hh"))
        bias = ih + hh
        if case["cell"] == "gru":  # its order: what is reset, r, z; of biases also n, which W x alone has
            weight = weight[[2, 0, 1]]
            bias = torch.stack([hh[2], bias[0], bias[1], ih[2]])
        self.training = case["pass"] == "training"
        x = self.arrays["x"]
        wx = linear(x, self.arrays["weight_ih_l0"]).reshape(*x.shape[:2], gates, heads, size)
        self.wx, self.weight, self.bias = (
            tensor.contiguous().detach().requires_grad_(self.training) for tensor in (wx, weight, bias)
        )
        self.backend = self.find_backend()

    def find_backend(self):
        if self.device == "cpu":
            self.backend = "vanilla"
            return self.backend
        complaints = []
        for backend in os.environ.get("FLASHRNN_BACKEND", "cuda_fused,triton_fused").split(","):
            self.backend = backend
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self.forward()
                torch.cuda.synchronize()
                return backend
            except Exception as error:  # whatever its compilers throw
                complaints.append(f"{backend}: {type(error).__name__}")
        raise Refused("has no kernel that runs here (" + ", ".join(complaints) + ")")

    def forward(self):
        states, _ = flashrnn(
            self.wx,
            self.weight,
            self.bias,
            function=FUNCTIONS[self.case["cell"]],
            backend=self.backend,
            dtype=DTYPES[self.case["dtype"]],
        )
        self.y = states[0].flatten(2)  # [S, B, T, heads, D]

    def call(self, dy=None):
        if not self.training:
            with torch.no_grad():
                return self.forward()
        self.wx.grad = self.weight.grad = self.bias.grad = None
        self.forward()
        return self.y.backward(self.arrays["dy"] if dy is None else dy)

    def check(self):
        self.call(self.arrays.get("masked_dy"))
        answers = self.last()
        if self.training:
            answers.update(self.gradients())
        return answers

    def last(self):
        rows = self.case["rows"]
        answers = {"y": as_array(self.y.detach())[rows]}
        if self.training:
            answers["dx"] = as_array(self.dwx() @ self.arrays["weight_ih_l0"])[rows]
        return answers

    def dwx(self):
        return self.wx.grad.flatten(2)

    def gradients(self):
        weight, bias = self.weight.grad, self.bias.grad
        if self.case["cell"] == "gru":
            weight = weight[[1, 2, 0]]
            ih, hh = bias[[1, 2, 3]], bias[[1, 2, 0]]
        else:
            ih = hh = bias
        weight = weight.transpose(0, 1).reshape(self.heads, self.gates * self.size, self.size)
        of_input = self.dwx().flatten(0, 1).float().T @ self.arrays["x"].flatten(0, 1).float()
        return {
            "weight_ih_l0": as_array(of_input),
            "weight_hh_l0": as_array(weight if self.heads > 1 else weight[0]),
            "bias_ih_l0": as_array(ih.reshape(-1)),
            "bias_hh_l0": as_array(hh.reshape(-1)),
        }

    def sample(self, seconds, time_calls):
        return sample_on_gpu(seconds, self.call) if self.device == "cuda" else time_calls(seconds, self.call)


def make(_, case, arrays):
    if case["cell"] not in FUNCTIONS or case["pass"] == "step":
        raise Refused("is for LSTM, sLSTM, GRU and Elman, whole sequences")
    return Recurrence(case, arrays)
