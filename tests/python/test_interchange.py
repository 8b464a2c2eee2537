"""Weights of other libraries: each format both ways, against the library where there is one, or its equations."""

import numpy as np
import pytest

penstock = pytest.importorskip("penstock", reason="penstock is not installed")

from interchange_checks import check, outputs, random_weights, same, values  # noqa: E402

from penstock import interchange  # noqa: E402
from penstock.interchange import RecurrentWeights  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras' own
SIZES = [(1, 1), (3, 5), (7, 16), (33, 17)]  # I, H


def sigmoid(x):
    return 1 / (1 + np.exp(-np.asarray(x, np.float64)))


# haste: written out, since it is on no index of packages.


def haste_gru(t, x):
    h, ys = np.zeros((x.shape[0], t["recurrent_kernel"].shape[0])), []
    for step in range(x.shape[1]):
        vx = np.split(x[:, step] @ t["kernel"].astype(np.float64) + t["bias"], 3, 1)
        vh = np.split(h @ t["recurrent_kernel"].astype(np.float64) + t["recurrent_bias"], 3, 1)
        z, r = sigmoid(vx[0] + vh[0]), sigmoid(vx[1] + vh[1])
        h = z * h + (1 - z) * np.tanh(vx[2] + r * vh[2])
        ys.append(h)
    return np.stack(ys, 1)


def haste_lstm(t, x):
    h = c = np.zeros((x.shape[0], t["recurrent_kernel"].shape[0]))
    ys = []
    for step in range(x.shape[1]):
        v = x[:, step] @ t["kernel"].astype(np.float64) + h @ t["recurrent_kernel"].astype(np.float64) + t["bias"]
        i, g, f, o = np.split(v, 4, 1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        ys.append(h)
    return np.stack(ys, 1)


@pytest.mark.parametrize("inputs, hidden", SIZES)
@pytest.mark.parametrize("gates, equations", [(3, haste_gru), (4, haste_lstm)])
def test_haste(inputs, hidden, gates, equations):
    t = {
        "kernel": values(inputs, gates * hidden),
        "recurrent_kernel": values(hidden, gates * hidden, seed=1),
        "bias": values(gates * hidden, seed=2),
    }
    if gates == 3:
        t["recurrent_bias"] = values(gates * hidden, seed=3)
    x = values(2, 9, inputs, seed=4)
    weights = interchange.from_haste(t)
    check(outputs(weights, x), equations(t, x))
    back = interchange.to_haste(weights)
    assert back.keys() == t.keys()
    for name in t:
        np.testing.assert_array_equal(back[name], t[name])


# FlashRNN: written out, too.


def flashrnn(t, x, function):
    r, b, w = (t[n].astype(np.float64) for n in ("R", "b", "W"))
    gates, heads, size, _ = r.shape
    rows, hidden = x.shape[0], heads * size
    h, c, n, m = np.zeros((4, rows, heads, size))
    ys = []
    for step in range(x.shape[1]):
        wx = (x[:, step] @ w.T).reshape(rows, -1, heads, size).transpose(1, 0, 2, 3)
        rh = np.einsum("ghdp,bhp->gbhd", r, h)
        if function == "gru":
            reset, z = sigmoid(wx[0] + rh[1] + b[1]), sigmoid(wx[1] + rh[2] + b[2])
            h = z * h + (1 - z) * np.tanh(wx[2] + b[3] + reset * (rh[0] + b[0]))
        else:
            raw = wx + rh + b[:, None]
            if function == "elman":
                h = np.tanh(raw[0])
            else:
                i, f, z, o = raw
                if function == "lstm":
                    c = sigmoid(f) * c + sigmoid(i) * np.tanh(z)
                    h = sigmoid(o) * np.tanh(c)
                else:
                    kept = m - np.logaddexp(0, -f)
                    m = i if step == 0 else np.maximum(i, kept)
                    i, f = np.exp(i - m), np.exp(kept - m)
                    c, n = f * c + i * np.tanh(z), np.maximum(f * n + i, 1)
                    h = sigmoid(o) * c / n
        ys.append(h.reshape(rows, hidden))
    return np.stack(ys, 1)


@pytest.mark.parametrize("heads, size", [(1, 5), (3, 4), (4, 1)])
@pytest.mark.parametrize(
    "function, of_r, of_w, of_b", [("lstm", 4, 4, 4), ("slstm", 4, 4, 4), ("gru", 3, 3, 4), ("elman", 1, 1, 1)]
)
def test_flashrnn(heads, size, function, of_r, of_w, of_b):
    inputs = 6
    t = {
        "R": values(of_r, heads, size, size),
        "b": values(of_b, heads, size, seed=1),
        "W": values(of_w * heads * size, inputs, seed=2),
    }
    x = values(2, 9, inputs, seed=3)
    weights = interchange.from_flashrnn(t, function=function)
    check(outputs(weights, x), flashrnn(t, x, function))
    back = interchange.to_flashrnn(weights)
    for name in t:
        np.testing.assert_allclose(back[name], t[name], rtol=0, atol=1e-7)


# torch.nn and files of state_dicts.


@pytest.mark.parametrize("kind, options", [("LSTM", {}), ("GRU", {"num_layers": 2, "bidirectional": True}),
                                           ("RNN", {"bias": False}), ("RNN", {"nonlinearity": "relu"}),
                                           ("LSTM", {"num_layers": 3, "dtype": "float64"})])  # fmt: skip
def test_torch(tmp_path, kind, options):
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, options.pop("dtype", "float32"))
    theirs = getattr(torch.nn, kind)(5, 7, batch_first=True, dtype=dtype, **options)
    x = values(2, 9, 5, dtype=np.float64 if dtype == torch.float64 else np.float32)
    expected = theirs(torch.from_numpy(x))[0].detach()
    weights = RecurrentWeights.from_torch(theirs)
    check(outputs(weights, x), expected.numpy())
    check(weights.to_torch()(torch.from_numpy(x))[0].detach().numpy(), expected.numpy())
    cell = None if kind != "RNN" else "elman-relu" if options.get("nonlinearity") == "relu" else "elman"
    # A module among others, in one file and in shards; a state_dict of PyTorch's own.
    model = torch.nn.ModuleDict({"encoder": theirs, "head": torch.nn.Linear(7, 2)})
    torch.save(model.state_dict(), tmp_path / "model.pt")
    arrays = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    interchange.write_tensors(tmp_path / "one.safetensors", arrays)
    interchange.write_tensors(tmp_path / "many.safetensors", arrays, max_shard_bytes=200)
    assert len(list(tmp_path.glob("many-*-of-*.safetensors"))) > 2
    for name in ("model.pt", "one.safetensors", "many.safetensors.index.json"):
        loaded = interchange.load(tmp_path / name, cell=cell)
        assert list(loaded) == ["encoder"]
        same(loaded["encoder"], weights)
    interchange.save(tmp_path / "back.safetensors", {"encoder": weights})
    again = getattr(torch.nn, kind)(5, 7, batch_first=True, dtype=dtype, **options)
    state = interchange.read_tensors(tmp_path / "back.safetensors")
    again.load_state_dict({name.removeprefix("encoder."): torch.from_numpy(array) for name, array in state.items()})
    assert torch.equal(again(torch.from_numpy(x))[0], theirs(torch.from_numpy(x))[0])


@pytest.mark.parametrize(
    "cell, heads", [("slstm", 2), ("gru-before", 1), ("mingru", 1), ("minlstm-log", 1), ("lstm", 4)]
)
def test_what_torch_does_not_have(tmp_path, cell, heads):
    torch = pytest.importorskip("torch")
    weights = random_weights(
        cell, 3, 8, layers=2, heads=heads, bias=True if cell not in ("mingru", "minlstm-log") else "single"
    )
    x = values(2, 9, 3)
    module = weights.to_torch()
    check(module(torch.from_numpy(x))[0].detach().numpy(), outputs(weights, x))
    same(RecurrentWeights.from_torch(module), weights)
    interchange.save(tmp_path / "a.safetensors", weights)
    same(interchange.load(tmp_path / "a.safetensors", prefix="", cell=cell)[""] if cell.startswith("min") else
         interchange.load(tmp_path / "a.safetensors", cell=cell)[""], weights)  # fmt: skip


# minGRU-pytorch and xlstm: against the packages themselves.


@pytest.mark.parametrize("kind, expansion", [("minGRU", 1.0), ("minGRU", 1.5), ("minLSTM", 1.0), ("minLSTM", 2.0)])
def test_lucidrains(tmp_path, kind, expansion):
    torch = pytest.importorskip("torch")
    package = pytest.importorskip("minGRU_pytorch." + kind, reason="minGRU-pytorch is not installed")
    theirs = getattr(package, kind)(6, expansion_factor=expansion)
    arrays = {name: tensor.numpy() for name, tensor in theirs.state_dict().items()}
    interchange.write_tensors(tmp_path / "a.safetensors", {"layers.0." + name: array for name, array in arrays.items()})
    weights = interchange.load(tmp_path / "a.safetensors")["layers.0"]
    x = torch.from_numpy(values(2, 33, 6))
    with torch.no_grad():
        found = interchange.lucidrains.to_module(weights)(x)[0].numpy()
        # In double precision: sums of logarithms lose in single what is allowed between the two.
        check(found, theirs.double()(x.double()).float().numpy())
    back = interchange.to_lucidrains(weights)
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)


def xlstm_layer(t, x):
    """The layer of xlstm written out, for weights of its backend "vanilla"."""
    t = {name: array.astype(np.float64) for name, array in t.items()}
    rows, steps, width = x.shape
    heads, size = t["fgate.weight"].shape[:2]
    x = x.astype(np.float64)
    convolved = x
    if "conv1d.conv.weight" in t:
        kernel = t["conv1d.conv.weight"][:, 0]
        past = np.concatenate([np.zeros((rows, kernel.shape[1] - 1, width)), x], 1)
        sums = (
            sum(past[:, tap : tap + steps] * kernel[:, tap] for tap in range(kernel.shape[1])) + t["conv1d.conv.bias"]
        )
        convolved = sums * sigmoid(sums)

    def projected(values, name):
        return np.einsum("bthi,hoi->btho", values.reshape(rows, steps, heads, -1), t[name])

    gates = [projected(convolved, "fgate.weight"), projected(convolved, "igate.weight"),
             projected(x, "zgate.weight"), projected(x, "ogate.weight")]  # fmt: skip
    kernel = t["slstm_cell._recurrent_kernel_"].reshape(heads, 4, size, size)
    bias = t["slstm_cell._bias_"].reshape(4, 1, heads, size)
    h, c, n, m = np.zeros((4, rows, heads, size))
    ys = []
    for step in range(steps):
        i, f, z, o = np.stack([gate[:, step] for gate in gates]) + np.einsum("hgop,bhp->gbho", kernel, h) + bias
        kept = m - np.logaddexp(0, -f)
        m = i if step == 0 else np.maximum(i, kept)
        i, f = np.exp(i - m), np.minimum(np.exp(kept - m), 1)
        c, n = f * c + i * np.tanh(z), f * n + i
        h = sigmoid(o) * c / n
        ys.append(h)
    y = np.stack(ys, 1)
    spread = np.sqrt(y.var(-1, keepdims=True) + 1e-5)
    return ((y - y.mean(-1, keepdims=True)) / spread).reshape(rows, steps, -1) * (1 + t["group_norm.weight"])


@pytest.mark.parametrize("heads, convolution", [(1, 0), (2, 4), (3, 1)])
def test_xlstm_by_its_equations(heads, convolution):
    torch = pytest.importorskip("torch")
    width, size = 4 * heads, 4
    t = {f"{gate}gate.weight": values(heads, size, size, seed=i) for i, gate in enumerate("fizo")}
    t["slstm_cell._recurrent_kernel_"] = values(heads, 4 * size, size, seed=4)
    t["slstm_cell._bias_"] = values(4 * width, seed=5)
    t["group_norm.weight"] = values(width, seed=6)
    if convolution:
        t["conv1d.conv.weight"], t["conv1d.conv.bias"] = values(width, 1, convolution, seed=7), values(width, seed=8)
    x = values(2, 11, width, seed=9)
    module = interchange.xlstm.to_module(interchange.from_xlstm(t)).double()
    found = module(torch.from_numpy(x).double()).detach().numpy()
    check(found, xlstm_layer(t, x))


@pytest.mark.parametrize("heads, convolution", [(1, 0), (2, 4), (4, 3)])
def test_xlstm(heads, convolution):
    torch = pytest.importorskip("torch")
    package = pytest.importorskip("xlstm.blocks.slstm.layer", reason="xlstm is not installed")
    config = package.sLSTMLayerConfig(
        embedding_dim=8, num_heads=heads, conv1d_kernel_size=convolution, backend="vanilla"
    )
    theirs = package.sLSTMLayer(config).eval()
    with torch.no_grad():
        for i, parameter in enumerate(theirs.parameters()):
            parameter.copy_(torch.from_numpy(values(*parameter.shape, seed=i)))
    arrays = {name: tensor.detach().numpy() for name, tensor in theirs.state_dict().items()}
    weights = interchange.from_xlstm(arrays)
    x = torch.from_numpy(values(2, 19, 8))
    with torch.no_grad():
        expected = theirs(x).numpy()
        found = interchange.xlstm.to_module(weights)(x).numpy()
    # The norm divides by the spread of a head, which enlarges what rounding leaves; its inputs are compared above.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * max(1, np.abs(expected).max()) * 10)
    back = interchange.to_xlstm(weights)
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
    # The other backend has the same values in other places.
    other = interchange.to_xlstm(weights, backend="cuda")
    assert other["slstm_cell._recurrent_kernel_"].shape == (heads, 8 // heads, 4 * 8 // heads)
    same(interchange.from_xlstm(other), weights)


# Unsound inputs.


def test_bad_tensors():
    good = {"kernel": values(3, 20), "recurrent_kernel": values(5, 20), "bias": values(20)}
    with pytest.raises(penstock.BadInput, match=r"haste: tensor 'bias' is \[19\], expected \[20\]"):
        interchange.from_haste({**good, "bias": values(19)})
    with pytest.raises(penstock.BadInput, match="haste: there is no tensor 'kernel'"):
        interchange.from_haste({n: a for n, a in good.items() if n != "kernel"})
    with pytest.raises(penstock.BadInput, match="haste: tensor 'gamma' is not known"):
        interchange.from_haste({**good, "gamma": values(2, 20)})
    with pytest.raises(penstock.BadInput, match="tensor 'kernel' is of type int64, expected floats"):
        interchange.from_haste({**good, "kernel": np.zeros((3, 20), np.int64)})
    with pytest.raises(penstock.BadInput, match=r"'recurrent_kernel' is \[5, 19\], expected \[5, 20\] of a LSTM"):
        interchange.from_haste({**good, "recurrent_kernel": values(5, 19)})
    with pytest.raises(penstock.BadInput, match=r"tensor 'b' is \[3, 2, 4\], expected \[4, 2, 4\]"):
        interchange.from_flashrnn({"R": values(3, 2, 4, 4), "b": values(3, 2, 4), "W": values(24, 5)}, function="gru")
    with pytest.raises(penstock.BadInput, match="there is neither 'to_hidden_and_gate.weight' nor"):
        interchange.from_lucidrains({"weight": values(4, 2)})
    with pytest.raises(penstock.BadInput, match=r"'to_hidden_and_gate.weight' has 5 rows, expected a multiple of 2"):
        interchange.from_lucidrains({"to_hidden_and_gate.weight": values(5, 2)})
    with pytest.raises(penstock.BadInput, match="which are 1, 3 or 4 gates of no hidden size"):
        interchange.from_torch({"weight_ih_l0": values(10, 3), "weight_hh_l0": values(10, 5)})
    with pytest.raises(penstock.BadInput, match=r"there is no tensor 'weight_hh_l1'"):
        interchange.from_torch(
            {"weight_ih_l0": values(20, 3), "weight_hh_l0": values(20, 5), "weight_ih_l1": values(20, 5)}
        )
    with pytest.raises(penstock.InvalidArgument, match="biases, and those of these weights are not zero"):
        interchange.to_lucidrains(random_weights("mingru-log", 3, 4, bias="single"))
    with pytest.raises(penstock.InvalidArgument, match="gate i reads inputs that are not its head's"):
        interchange.to_xlstm(random_weights("slstm", 4, 4, heads=2))
    with pytest.raises(penstock.InvalidArgument, match="haste has one layer that runs forward, not 2 that run forward"):
        interchange.to_haste(random_weights("lstm", 3, 4, layers=2))
    assert len(random_weights("lstm", 3, 4, layers=2, direction="bidirectional").split()) == 4
