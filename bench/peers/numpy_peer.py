"""A loop over time in NumPy, as the papers' equations read: what a first implementation looks like, and what CUDA_RNN and
the CPU side of CS179 were. Each step multiplies its own input; float32; forward only."""

import numpy as np

from server import Refused


def version():
    return np.__version__


def sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))  # the logistic function without its overflow


def positive(x):
    """x + 0.5 for x >= 0, else the logistic function."""
    return np.where(x >= 0, x + np.float32(0.5), sigmoid(x))


def elman(wx, product, state):
    return (np.tanh(wx[0] + product(0, state[0])),)


def elman_relu(wx, product, state):
    return (np.maximum(wx[0] + product(0, state[0]), 0),)


def gru(wx, product, state):
    (h,) = state
    r, z = sigmoid(wx[0] + product(0, h)), sigmoid(wx[1] + product(1, h))
    n = np.tanh(wx[2] + r * product(2, h))
    return ((1 - z) * n + z * h,)


def gru_before(wx, product, state):
    (h,) = state
    r, z = sigmoid(wx[0] + product(0, h)), sigmoid(wx[1] + product(1, h))
    n = np.tanh(wx[2] + product(2, r * h))
    return ((1 - z) * n + z * h,)


def lstm(wx, product, state):
    h, c = state
    i, f = sigmoid(wx[0] + product(0, h)), sigmoid(wx[1] + product(1, h))
    g, o = np.tanh(wx[2] + product(2, h)), sigmoid(wx[3] + product(3, h))
    c = f * c + i * g
    return o * np.tanh(c), c


def slstm(wx, product, state):
    h, c, n, m = state
    i, f = wx[0] + product(0, h), wx[1] + product(1, h)
    z, o = np.tanh(wx[2] + product(2, h)), sigmoid(wx[3] + product(3, h))
    log_f = -np.logaddexp(np.float32(0), -f) + m
    m = np.where(n == 0, i, np.maximum(log_f, i))
    forget, take = np.where(n == 0, 0, np.exp(log_f - m)), np.exp(i - m)
    c, n = forget * c + take * z, forget * n + take
    return o * c / n, c, n, m


def mingru(wx, _, state, candidate=lambda x: x):
    z = sigmoid(wx[0])
    return ((1 - z) * state[0] + z * candidate(wx[1]),)


def minlstm(wx, _, state, candidate=lambda x: x):
    f, i = sigmoid(wx[0]), sigmoid(wx[1])
    return ((f * state[0] + i * candidate(wx[2])) / (f + i),)


# name: (gates, states, one step)
CELLS = {
    "elman": (1, 1, elman),
    "elman-relu": (1, 1, elman_relu),
    "gru": (3, 1, gru),
    "gru-before": (3, 1, gru_before),
    "lstm": (4, 2, lstm),
    "slstm": (4, 4, slstm),
    "mingru": (2, 1, mingru),
    "mingru-log": (2, 1, lambda *step: mingru(*step, positive)),
    "minlstm": (3, 1, minlstm),
    "minlstm-log": (3, 1, lambda *step: minlstm(*step, positive)),
}


class Loop:
    def __init__(self, case, arrays):
        self.case, self.arrays = case, arrays
        self.gates, self.states, self.cell = CELLS[case["cell"]]
        hidden = case["H"]
        self.input_weights = [w.T for w in arrays["weight_ih_l0"].reshape(self.gates, hidden, case["I"])]
        self.input_biases = arrays["bias_ih_l0"].reshape(self.gates, hidden)
        if "weight_hh_l0" in arrays:
            self.weights = [w.T for w in arrays["weight_hh_l0"].reshape(self.gates, hidden, hidden)]
            self.biases = arrays["bias_hh_l0"].reshape(self.gates, hidden)
        self.y = np.empty((case["B"], case["T"], hidden + case["head"]), dtype=np.float32)
        self.start()

    def start(self):
        self.state = tuple(np.zeros((self.case["B"], self.case["H"]), dtype=np.float32) for _ in range(self.states))
        self.t = 0

    def product(self, gate, v):
        return v @ self.weights[gate] + self.biases[gate]

    def step(self):
        t = self.t
        x = self.arrays["x"][:, t]
        wx = [x @ w + b for w, b in zip(self.input_weights, self.input_biases)]
        self.state = self.cell(wx, self.product, self.state)
        h = self.state[0]
        self.y[:, t, : self.case["H"]] = h
        if self.case["head"]:
            self.y[:, t, -1:] = h @ self.arrays["head_weight"].T + self.arrays["head_bias"]
        self.t = (t + 1) % self.case["T"]

    def sequence(self):
        self.start()
        for _ in range(self.case["T"]):
            self.step()

    def check(self):
        self.sequence()
        return {"y": self.y[self.case["rows"]]}

    def last(self):
        return self.check() if self.case["pass"] == "step" else {"y": self.y[self.case["rows"]]}

    def sample(self, seconds, time_calls):
        return time_calls(seconds, self.step if self.case["pass"] == "step" else self.sequence)


class Scan:
    """The scan by itself: all rows and channels of one step at a time."""

    def __init__(self, case, arrays):
        self.case = case
        self.terms = [np.ascontiguousarray(arrays[name].transpose(1, 0, 2)) for name in "ab"]
        self.h = np.empty_like(self.terms[0])

    def call(self):
        a, b = (np.exp(term) for term in self.terms) if self.case["cell"] == "scan-log" else self.terms
        h = np.zeros_like(b[0])
        for t in range(self.case["T"]):
            h = a[t] * h + b[t]
            self.h[t] = h

    def check(self):
        self.call()
        return self.last()

    def last(self):
        return {"y": self.h.transpose(1, 0, 2)[self.case["rows"]]}

    def sample(self, seconds, time_calls):
        return time_calls(seconds, self.call)


def make(_, case, arrays):
    if case["pass"] == "training":
        raise Refused("has no gradients")
    if case["dtype"] != "f32":
        raise Refused(f"has no {case['dtype']}")
    return Scan(case, arrays) if case["cell"].startswith("scan") else Loop(case, arrays)
