"""penstock.torch.convert and convert_back: which layers of a model they replace, and which they refuse."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
ours = pytest.importorskip("penstock.torch", reason="penstock is not installed")

from test_torch_layers import close  # noqa: E402
from torch import nn  # noqa: E402

torch.set_num_threads(1)  # these sizes are too small to share


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.ModuleDict({"a": nn.LSTM(3, 4, proj_size=2), "b": nn.GRU(2, 4, num_layers=2, bidirectional=True)})
        self.again = self.body["b"]
        self.cell = nn.RNNCell(8, 4, nonlinearity="relu")
        self.normed = nn.utils.parametrizations.weight_norm(nn.LSTM(4, 4), "weight_hh_l0")

    def forward(self, x):
        y, _ = self.body["b"](self.body["a"](x)[0])
        return self.cell(y[-1])


def test_convert_swaps_layers_in_place_and_back():
    model = Model().eval()
    x = torch.randn(5, 2, 3)
    expected, parameters = model(x), list(model.parameters())
    assert ours.convert(model) is model
    assert type(model.body["a"]) is ours.LSTM and type(model.body["b"]) is ours.GRU
    assert type(model.cell) is ours.RNNCell and model.again is model.body["b"]
    assert isinstance(model.normed, nn.LSTM)
    assert all(a is b for a, b in zip(model.parameters(), parameters))
    assert not model.body["b"].training
    close(model(x), expected, steps=5)
    ours.convert_back(model)
    assert type(model.body["a"]) is nn.LSTM and type(model.cell) is nn.RNNCell
    assert torch.equal(model(x), expected)
    assert type(ours.convert(nn.GRU(2, 3))) is ours.GRU
    with pytest.raises(ValueError, match="no such layer"):
        ours.convert_back(ours.GRU(2, 4, num_heads=2))


def test_hooks_go_with_the_layer():
    layer, calls = nn.GRU(2, 3), []
    layer.register_forward_hook(lambda *_: calls.append("forward"))
    layer.register_full_backward_hook(lambda *_: calls.append("backward"))
    for change in (ours.convert, ours.convert_back):
        layer = change(layer)
        layer(torch.ones(4, 1, 2, requires_grad=True))[0].sum().backward()
        assert calls == ["forward", "backward"]
        calls.clear()


class Subclass(ours.LSTM):
    pass


@pytest.mark.parametrize("layer", [
    lambda: ours.MinGRU(2, 4), lambda: ours.MinLSTM(2, 4), lambda: ours.SLSTM(2, 4), lambda: ours.MinGRUCell(2, 4),
    lambda: ours.GRU(2, 4, num_heads=2), lambda: ours.GRU(2, 4, reset_after=False),
    lambda: ours.LSTMCell(2, 4, num_heads=2), lambda: Subclass(2, 4),
    lambda: nn.utils.parametrizations.weight_norm(ours.LSTM(2, 4), "weight_hh_l0"),
])  # fmt: skip
def test_convert_back_names_what_it_would_leave_and_changes_nothing(layer):
    model = nn.ModuleDict({"first": ours.GRU(3, 2), "inner": nn.Sequential(nn.Identity(), layer())})
    with pytest.raises(ValueError, match=r"torch.nn has no such layer: inner.1 is .*nothing was converted"):
        ours.convert_back(model)
    assert type(model["first"]) is ours.GRU


def test_only_modules_are_converted():
    for call in (ours.convert, ours.convert_back):
        with pytest.raises(TypeError, match="model must be a torch.nn.Module, not dict"):
            call({"encoder": nn.GRU(2, 3)})
