"""penstock.torch under PyTorch's tools for programs that serve models: quantisation, TorchScript, traces."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
ours = pytest.importorskip("penstock.torch", reason="penstock is not installed")

from torch import nn  # noqa: E402

import penstock  # noqa: E402
from penstock import variants  # noqa: E402

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


@pytest.mark.parametrize("layer", [ours.GRU(3, 4, batch_first=True), ours.Recurrent(variants.gru(candidate="elu"), 3, 4)])
def test_files_for_other_programs(layer, tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    x = torch.randn(5, 2, 3)
    paths = ours.export_files(layer.train(), x, tmp_path / "new", "net")
    assert not layer.training
    assert [path.name for path in paths.values()] == ["net.pt", "net_optimised.pt", "net.onnx"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(path.name for path in paths.values())
    x = torch.randn(7, 4, 3)
    expected = [result.detach() for result in layer(x)]
    session = runtime.InferenceSession(paths["onnx"])
    of_onnx = [torch.from_numpy(each) for each in session.run(None, {session.get_inputs()[0].name: x.numpy()})]
    for found in (torch.jit.load(paths["traced"])(x), torch.jit.load(paths["optimised"])(x), of_onnx):
        for got, wanted in zip(found, expected, strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(penstock.IoFailure, match="net.pt"):
        (tmp_path / "taken" / "net.pt").mkdir(parents=True)
        ours.export_files(layer, x, tmp_path / "taken", "net")
    with pytest.raises(TypeError, match="model must be a torch.nn.Module, not str"):
        ours.export_files("model.pt", x, tmp_path)


@pytest.mark.parametrize("link", ["symbolic", "hard", "dangling"])
def test_exported_files_are_different_files(link, tmp_path):
    layer, x = ours.GRU(3, 4), torch.randn(5, 2, 3)
    if link != "dangling":
        ours.export_files(layer, x, tmp_path, "net")
        (tmp_path / "net_optimised.pt").unlink()
    if link == "hard":
        (tmp_path / "net_optimised.pt").hardlink_to(tmp_path / "net.pt")
    else:
        (tmp_path / "net_optimised.pt").symlink_to("net.pt")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.exists()}
    with pytest.raises(penstock.InvalidArgument, match="net.pt and .*net_optimised.pt must be different files"):
        ours.export_files(layer, x, tmp_path, "net")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.exists()} == before


@pytest.mark.parametrize("name", ["net.pt", "net_optimised.pt", "net.onnx"])
def test_files_of_another_kind_are_kept(name, tmp_path):
    layer, x = ours.GRU(3, 4, batch_first=True), torch.randn(2, 5, 3)
    torch.save(layer.state_dict(), tmp_path / name)
    before = (tmp_path / name).read_bytes()
    with pytest.raises(penstock.InvalidArgument, match=f"{name} is there already, not a.*; remove it first"):
        ours.export_files(layer, x, tmp_path, "net")
    assert [path.name for path in tmp_path.iterdir()] == [name] and (tmp_path / name).read_bytes() == before
    (tmp_path / name).unlink()
    for _ in range(2):  # new files, and those of the same kind
        ours.export_files(layer, x, tmp_path, "net")
    torch.jit.save(torch.jit.trace(nn.Linear(3, 4), x), tmp_path / "net.pt")
    ours.export_files(layer, x, tmp_path, "net")
    with pytest.raises(penstock.InvalidArgument, match="net.pt is there already, a TorchScript program, not an ONNX"):
        penstock.Recurrent("gru", 3, 4).save_onnx(tmp_path / "net.pt")


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
