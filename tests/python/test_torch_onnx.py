"""torch.onnx.export of penstock.torch: what ONNX Runtime computes for batch sizes and lengths that were not exported."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
ours = pytest.importorskip("penstock.torch", reason="penstock is not installed")
onnx = pytest.importorskip("onnx", reason="ONNX is not installed")
runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

from torch import nn  # noqa: E402

import penstock  # noqa: E402
from penstock import variants  # noqa: E402
from penstock.equations import clamp, mean, minimum, sigmoid, softplus, tanh, where  # noqa: E402

torch.set_num_threads(1)  # these sizes are too small to share
pytestmark = pytest.mark.filterwarnings("ignore")


UNNAMED = "torch.export of unnamed axes"


@pytest.fixture(params=["torch.export", "trace"])
def export(request, tmp_path):
    """A function that exports a model with the given names of the axes of its inputs, and returns the file's path.
    torch.export takes seconds for each layer and direction, so tests ask for UNNAMED with few models."""
    if request.param != "trace":
        pytest.importorskip("onnxscript", reason="this exporter needs onnxscript")

    def exported(model, inputs, axes):
        path = tmp_path / "model.onnx"
        if request.param == "trace":
            names = [f"input_{i}" for i in range(len(inputs))]
            sizes = dict(zip(names, axes))
            torch.onnx.export(model, inputs, path, dynamo=False, input_names=names, dynamic_axes=sizes)
        else:
            known = {}
            named = request.param == "torch.export"
            new = torch.export.Dim if named else lambda name: torch.export.Dim.DYNAMIC
            sizes = tuple({i: known.setdefault(n, new(n)) for i, n in of.items()} for of in axes)
            torch.onnx.export(model, inputs, path, dynamo=True, dynamic_shapes=sizes, verbose=False)
        return path

    return exported


def answers(path, *inputs):
    session = runtime.InferenceSession(path)
    return session.run(None, {i.name: x.numpy() for i, x in zip(session.get_inputs(), inputs)})


ROWS_FIRST, STEPS_FIRST = {0: "rows", 1: "steps"}, {0: "steps", 1: "rows"}


class Flat(nn.Module):
    """A layer whose results are a flat tuple."""

    def __init__(self, layer, **options):
        super().__init__()
        self.layer, self.options = layer, options

    def forward(self, x):
        y, last, *every = self.layer(x, **self.options)
        return y, *([last] if isinstance(last, torch.Tensor) else last), *(s for of in every for s in of)


@penstock.cell(states=("h", "c"), gates=2, learnt={"gain": 0.5})
def onnx_dense(wx, rh, s, p):
    """Constants, a mean over units, a learnt vector, comparisons and two states."""
    c = 0.5 * s.c + where(wx[0] > 0, clamp(rh[0], -1, 1), 0.25) * p.gain + minimum(0.1, mean(rh[1]))
    return tanh(c + softplus(wx[1])) - 0.3, c


@penstock.cell(gates=2, scan=True, learnt={"decay": 1.0})
def onnx_scan(wx, p):
    a = sigmoid(wx[0] + p.decay)
    return a, (1 - a) * tanh(wx[1])


# Two layers in both directions are four loops to export: once as the runtime's operator, once as loops.
LAYERS = {
    "RNN": ours.RNN(3, 8, 2, batch_first=True),
    "rectified RNN": ours.RNN(3, 8, nonlinearity="relu", batch_first=True),
    "GRU": ours.GRU(3, 8, bidirectional=True, batch_first=True),
    "GRU, reset before": ours.GRU(3, 8, batch_first=True, reset_after=False),
    "GRU of heads": ours.GRU(3, 8, batch_first=True, num_heads=2),
    "LSTM": ours.LSTM(3, 8, 2, bidirectional=True, batch_first=True),
    "LSTM without biases": ours.LSTM(3, 8, bias=False, batch_first=True),
    "LSTM, projected": ours.LSTM(3, 8, 2, proj_size=4, bidirectional=True, batch_first=True),
    "SLSTM": ours.SLSTM(3, 8, batch_first=True),
    "SLSTM of heads": ours.SLSTM(3, 8, num_heads=4, batch_first=True),
    "MinGRU": ours.MinGRU(3, 8, bidirectional=True, batch_first=True),
    "positive MinGRU": ours.MinGRU(3, 8, batch_first=True, candidate="positive"),
    "MinLSTM": ours.MinLSTM(3, 8, batch_first=True),
    "positive MinLSTM": ours.MinLSTM(3, 8, batch_first=True, candidate="positive"),
    "custom cell": ours.Recurrent(onnx_dense, 3, 8, batch_first=True, num_heads=2),
    "custom scan cell": ours.Recurrent(onnx_scan, 3, 8, bidirectional=True, batch_first=True),
    "LSTM with peepholes": ours.Recurrent(variants.lstm(peepholes=True, cell_clip=3.0), 3, 8, batch_first=True),
    "GRU with ELU": ours.Recurrent(variants.gru(candidate="elu"), 3, 8, batch_first=True),
    "Elman network with GELU": ours.Recurrent(variants.elman(activation="gelu"), 3, 8, batch_first=True),
    "LSTM with zoneout": ours.regularise(ours.LSTM(3, 8, batch_first=True), zoneout=0.2, cell_zoneout=0.1),
}


#: Layers that are one operator of the runtime.
OPERATORS = {"GRU": "GRU", "LSTM": "LSTM", "LSTM, projected": "LSTM"}


def exporters_of(names, unnamed):
    pairs = [(exporter, name) for exporter in ("torch.export", "trace") for name in names]
    return pytest.mark.parametrize("export, name", pairs + [(UNNAMED, name) for name in unnamed], indirect=["export"])


@exporters_of(LAYERS, unnamed=["LSTM", "MinGRU", "custom cell"])
def test_layers(export, name, request):
    model = Flat(LAYERS[name]).eval()
    path = export(model, (torch.randn(2, 5, 3),), [ROWS_FIRST])
    onnx.checker.check_model(path)
    for shape in ((2, 5, 3), (4, 9, 3), (1, 2, 3)):
        x = torch.randn(shape)
        for got, expected in zip(answers(path, x), model(x), strict=True):
            torch.testing.assert_close(torch.from_numpy(got), expected, rtol=1e-5, atol=1e-6)
    if name in OPERATORS:  # the newer exporter of PyTorch 2.10 would write them for one length: there they are loops
        traced = request.node.callspec.params["export"] == "trace"
        operators = {node.op_type for node in onnx.load(path).graph.node}
        assert OPERATORS[name] in operators or (not traced and "Scan" in operators and torch.__version__.startswith("2.10."))


@exporters_of(["GRU", "LSTM", "MinGRU", "custom cell"], unnamed=[])
def test_bare_layers(export, name):
    layer = LAYERS[name].eval()
    path = export(layer, (torch.randn(2, 5, 3),), [ROWS_FIRST])
    x = torch.randn(4, 9, 3)
    y, last = layer(x)
    expected = [y, last] if isinstance(last, torch.Tensor) else [y, *last]
    for got, wanted in zip(answers(path, x), expected, strict=True):
        torch.testing.assert_close(torch.from_numpy(got), wanted, rtol=1e-5, atol=1e-6)


RAGGED = {"LSTM": ours.LSTM(3, 8), "LSTM, projected": ours.LSTM(3, 8, proj_size=4), "MinGRU": ours.MinGRU(3, 8)}


@exporters_of(RAGGED, unnamed=["LSTM"])
def test_lengths_resets_and_states(export, name):
    layer = RAGGED[name]

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x, h, lengths, reset):
            hx = h[0] if isinstance(layer, ours.MinGRU) else (h[0][..., : layer.proj_size or 8], h[1])
            y, last = self.layer(x, hx, lengths=lengths, reset_mask=reset)
            return y, last if isinstance(last, torch.Tensor) else torch.cat(last, -1)

    def inputs(steps, rows):
        lengths = torch.randint(1, steps + 1, (rows,))
        return torch.randn(steps, rows, 3), torch.randn(2, 1, rows, 8), lengths, torch.rand(steps, rows) < 0.3

    model = Model().eval()
    path = export(model, inputs(5, 3), [STEPS_FIRST, {2: "rows"}, {0: "rows"}, STEPS_FIRST])
    given = inputs(9, 4)
    for got, expected in zip(answers(path, *given), model(*given), strict=True):
        torch.testing.assert_close(torch.from_numpy(got), expected, rtol=1e-5, atol=1e-6)


def test_every_state(export):
    model = Flat(ours.SLSTM(3, 8, bidirectional=True), every_state=True).eval()
    path = export(model, (torch.randn(5, 2, 3),), [STEPS_FIRST])
    x = torch.randn(7, 4, 3)
    for got, expected in zip(answers(path, x), model(x), strict=True):
        torch.testing.assert_close(torch.from_numpy(got), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("function, reverse", [(ours.scan, False), (ours.log_scan, True)])
def test_scans(export, function, reverse):
    class Scan(nn.Module):
        def forward(self, a, b):
            return function(a, b, reverse=reverse)

    axes = ROWS_FIRST
    path = export(Scan(), (torch.rand(2, 3, 4), torch.rand(2, 3, 4)), [axes, axes])
    a, b = torch.rand(2, 5, 7, 4)
    for got, expected in zip(answers(path, a, b), Scan()(a, b), strict=True):
        torch.testing.assert_close(torch.from_numpy(got), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cell", [ours.LSTMCell, ours.MinGRUCell])
def test_cells(export, cell):
    class Output(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = cell(3, 4)

        def forward(self, x):
            after = self.cell(x)
            return after[0] if isinstance(after, tuple) else after

    model = Output().eval()
    path = export(model, (torch.randn(2, 3),), [{0: "rows"}])
    x = torch.randn(5, 3)
    torch.testing.assert_close(torch.from_numpy(answers(path, x)[0]), model(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cell", ["mingru", "slstm"])
def test_models_of_penstock_train(export, cell, tmp_path):
    (tmp_path / "text.txt").write_bytes(b"hello world " * 200)
    data = penstock.open_text(tmp_path / "text.txt")
    penstock.Model(data, cell=cell, width=16, blocks=2).save(tmp_path / "model")

    class Logits(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = ours.SequenceModel.load(tmp_path / "model")

        def forward(self, tokens):
            return self.model(tokens)[0]

    model = Logits().eval()
    path = export(model, (torch.zeros(2, 7, dtype=torch.int64),), [ROWS_FIRST])
    tokens = torch.randint(0, 256, (3, 9))
    torch.testing.assert_close(torch.from_numpy(answers(path, tokens)[0]), model(tokens), rtol=1e-4, atol=1e-5)


def test_packed_sequences_are_refused(tmp_path):
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = ours.GRU(3, 4)

        def forward(self, x):
            return self.layer(nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 2])))[0].data

    with pytest.raises(RuntimeError, match="torch.onnx cannot write a PackedSequence: pass padded rows and lengths="):
        torch.onnx.export(Packed(), (torch.randn(5, 2, 3),), tmp_path / "model.onnx", dynamo=False)
