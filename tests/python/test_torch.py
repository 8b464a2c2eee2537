"""PyTorch as a second opinion: values and gradients of the cells that it has, in float32.

Both sides get the same weights and inputs; the C++ side runs in the program torch_probe, found in the build folder
PENSTOCK_BUILD (build/release unless the environment says otherwise).
"""

import os
import pathlib
import subprocess

import numpy as np
import pytest
import torch

BUILD = pathlib.Path(os.environ.get("PENSTOCK_BUILD", pathlib.Path(__file__).parents[2] / "build" / "release"))
PROBE = BUILD / "tests" / "torch_probe"
TOLERANCE = 1e-5  # of the largest value of each tensor

torch.set_num_threads(1)  # these sizes are too small to share

MODULES = {
    "elman": lambda *sizes, **options: torch.nn.RNN(*sizes, nonlinearity="tanh", **options),
    "elman-relu": lambda *sizes, **options: torch.nn.RNN(*sizes, nonlinearity="relu", **options),
    "gru": torch.nn.GRU,
    "lstm": torch.nn.LSTM,
}


def ours(cell, module, bias, arrays):
    """Runs torch_probe and returns its flat float32 output."""
    rows, steps, _ = arrays["x"].shape
    command = [PROBE, cell, module.input_size, module.hidden_size, module.num_layers]
    command += ["bidirectional" if module.bidirectional else "forward", bias, rows, steps]
    numbers = [p.detach().numpy() for p in module.parameters()]
    numbers += [arrays[name] for name in ("x", "state_in", "dy", "dstate_out")]
    done = subprocess.run(
        [str(word) for word in command],
        input=b"".join(np.ascontiguousarray(n, dtype=np.float32).tobytes() for n in numbers),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return np.frombuffer(done.stdout, dtype=np.float32)


def theirs(cell, module, arrays):
    """The same through PyTorch: a list of (name, array) in the order in which torch_probe writes."""
    x = torch.from_numpy(arrays["x"]).requires_grad_()
    state_in = torch.from_numpy(arrays["state_in"]).requires_grad_()
    y, state = module(x, tuple(state_in) if cell == "lstm" else state_in[0])
    state_out = torch.stack(state) if cell == "lstm" else state[None]
    loss = (y * torch.from_numpy(arrays["dy"])).sum() + (state_out * torch.from_numpy(arrays["dstate_out"])).sum()
    loss.backward()
    results = [("y", y), ("state_out", state_out), ("dx", x.grad), ("dstate_in", state_in.grad)]
    results += [(f"gradient of {name}", p.grad) for name, p in module.named_parameters()]
    return [(name, tensor.detach().numpy()) for name, tensor in results]


@pytest.mark.parametrize("rows, steps, inputs, hidden", [(1, 1, 1, 1), (3, 7, 5, 17), (2, 65, 3, 33)])
@pytest.mark.parametrize("bias", ["both", "none"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", MODULES)
def test_values_and_gradients(cell, layers, bidirectional, bias, rows, steps, inputs, hidden):
    torch.manual_seed(1)
    module = MODULES[cell](
        inputs, hidden, num_layers=layers, bias=bias == "both", bidirectional=bidirectional, batch_first=True
    )
    # A seed with which no rectified unit comes within rounding of its kink, where the two may rightly differ.
    random = np.random.default_rng(3)

    def draw(*shape):
        return random.uniform(-1, 1, shape).astype(np.float32)

    directions = 2 if bidirectional else 1
    states = (2 if cell == "lstm" else 1, layers * directions, rows, hidden)
    arrays = {
        "x": draw(rows, steps, inputs),
        "state_in": draw(*states),
        "dy": draw(rows, steps, hidden * directions),
        "dstate_out": draw(*states),
    }
    got = ours(cell, module, bias, arrays)
    want = theirs(cell, module, arrays)
    assert got.size == sum(array.size for _, array in want)
    first = 0
    for name, array in want:
        part = got[first : first + array.size].reshape(array.shape)
        first += array.size
        error, largest = np.abs(part - array).max(), np.abs(array).max()
        assert error <= TOLERANCE * largest, f"{name} is off by {error:.2e}, its largest value is {largest:.2e}"
