"""Tensors of PyTorch given to the NumPy face: memory that holds the negative of its values."""

import numpy as np
import pytest

import penstock

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
ours = pytest.importorskip("penstock.torch", reason="penstock is not installed")


def negative(*shape, dtype=torch.complex64):
    view = torch.randn(*shape, dtype=dtype).conj().imag
    assert view.is_neg()
    return view


def test_inputs_have_their_signs():
    torch.manual_seed(0)
    x, h = negative(4, 3), negative(4, 5)
    cell = penstock.GRUCell(3, 5)
    np.testing.assert_array_equal(cell.step(x, h), cell.step(x.resolve_neg(), h.resolve_neg()))
    np.testing.assert_array_equal(cell.forward(x)[0], cell.forward(x.resolve_neg())[0])
    a, b = negative(2, 6, 3), negative(2, 6, 3)
    for got, expected in zip(penstock.scan(a, b), penstock.scan(a.resolve_neg(), b.resolve_neg())):
        np.testing.assert_array_equal(got, expected)
    doubles = penstock.Recurrent("lstm", 3, 5, dtype="float64")
    x = negative(2, 4, 3, dtype=torch.complex128)
    tape, other = doubles.tape(), doubles.tape()
    y, _ = doubles.forward(x, tape=tape)
    np.testing.assert_array_equal(y, doubles.forward(x.resolve_neg(), tape=other)[0])
    dy = negative(2, 4, 5, dtype=torch.complex128)
    dx, _ = doubles.backward(dy, tape=tape)
    np.testing.assert_array_equal(dx, doubles.backward(dy.resolve_neg(), tape=other)[0])


def test_weights_have_their_signs():
    cell = penstock.MinGRUCell(3, 4)
    weights = {name: negative(*value.shape) for name, value in cell.state_dict().items()}
    cell.load_state_dict(weights)
    for name, value in weights.items():
        np.testing.assert_array_equal(cell.parameters[name], value.resolve_neg().numpy())


def test_outputs_are_refused():
    with pytest.raises(penstock.InvalidArgument, match="out must hold its values and not their negatives"):
        penstock.GRUCell(3, 5).step(torch.zeros(4, 3), out=negative(4, 5))


def test_layers_of_pytorch_have_their_signs():
    layer, x = ours.GRU(3, 4, batch_first=True), negative(2, 5, 3)
    for got, expected in zip(layer(x), layer(x.resolve_neg())):
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
    with torch.no_grad():
        torch.testing.assert_close(layer(x)[0], layer(x.resolve_neg())[0], rtol=0, atol=0)
