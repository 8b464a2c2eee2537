"""penstock.torch under PyTorch's tools for programs that serve models: quantisation, TorchScript, traces."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
ours = pytest.importorskip("penstock.torch", reason="penstock is not installed")

from torch import nn  # noqa: E402

torch.set_num_threads(1)  # these sizes are too small to share


def is_quantised(module):
    return "quantized" in type(module).__module__


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layer", [ours.LSTM, ours.GRUCell])
def test_dynamic_quantisation_names_what_it_leaves(layer):
    model = nn.Sequential(nn.Linear(3, 3), layer(3, 4))
    x = torch.randn(2, 3) if layer is ours.GRUCell else torch.randn(5, 2, 3)
    with pytest.warns(UserWarning, match=rf"leaves penstock.torch.{layer.__name__} as it is: quantise.*convert_back"):
        quantised = torch.ao.quantization.quantize_dynamic(model)
    assert is_quantised(quantised[0]) and type(quantised[1]) is layer
    assert not hasattr(quantised[1], "qconfig")
    assert torch.equal(quantised[1](x)[0], model[1](x)[0])
    quantised = torch.ao.quantization.quantize_dynamic(ours.convert_back(copy.deepcopy(model)))
    assert is_quantised(quantised[1])


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated", "ignore::DeprecationWarning")
def test_dynamic_quantisation_says_what_has_no_quantised_form():
    with pytest.warns(UserWarning, match="has no MinGRU: the layer stays as it is"):
        torch.ao.quantization.quantize_dynamic(nn.Sequential(ours.MinGRU(3, 4)), {ours.MinGRU})


@pytest.mark.filterwarnings("ignore")
def test_scripting_says_what_to_do():
    for layer in (ours.LSTM(3, 4), nn.Sequential(ours.MinGRU(3, 4)), ours.LSTMCell(3, 4)):
        with pytest.raises(RuntimeError, match=r"torch.jit.script cannot compile .*use torch.jit.trace.*convert_back"):
            torch.jit.script(layer)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", ["saved", "frozen", "optimised"])
@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM", "SLSTM", "MinGRU", "MinLSTM"])
def test_traced_layers_hold_for_all_sizes(name, way, tmp_path):
    """As programs that serve models have them, without initial states."""
    layer = getattr(ours, name)(3, 4, num_layers=2, bidirectional=True, batch_first=True).eval()
    traced = torch.jit.trace(layer, (torch.randn(2, 5, 3),))
    if way == "saved":
        torch.jit.save(traced, tmp_path / "model.pt")
        traced = torch.jit.load(tmp_path / "model.pt")
    else:
        traced = torch.jit.freeze(traced)
        traced = torch.jit.optimize_for_inference(traced) if way == "optimised" else traced
    for shape in ((1, 1, 3), (4, 9, 3)):
        x = torch.randn(shape)
        got, expected = traced(x), layer(x)
        for mine, other in zip((got[0], *got[1]), (expected[0], *expected[1])):
            assert torch.equal(mine, other)
