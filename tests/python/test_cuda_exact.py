"""Exact mode on a GPU: the bits of a row depend neither on its batch nor on where its sequence is cut."""

import numpy as np
import pytest
from layer_checks import close, networks, normal

import penstock

if not penstock.cuda.is_available():
    pytest.skip(f"there is no GPU: {penstock.cuda.why_not()}", allow_module_level=True)

NAMES = [cell["name"] for cell in penstock.cells()]
ON_GPU = {"device": "cuda", "exact": True}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sizes", [(5, 3, 1), (70, 33, 100), (20, 64, 256), (3, 40, 1024)])
def test_rows_and_cuts(name, sizes):
    rows, inputs, hidden = sizes
    steps = 37
    single, double = networks(name, inputs, hidden, layers=2)
    x = normal(1, rows, steps, inputs)
    y, last = single.forward(x, **ON_GPU)
    y_ref, last_ref = double.forward(x.astype(np.float64))
    close(y, y_ref, inputs + hidden, steps)
    close(last, last_ref, inputs + hidden, steps)
    for row in (0, rows - 1):
        alone, state = single.forward(x[row], **ON_GPU)
        np.testing.assert_array_equal(alone, y[row])
        np.testing.assert_array_equal(np.squeeze(state), np.squeeze(last[..., row, :]))
    first, between = single.forward(x[:, :20], **ON_GPU)
    second, end = single.forward(x[:, 20:], between, **ON_GPU)
    np.testing.assert_array_equal(np.concatenate([first, second], 1), y)
    np.testing.assert_array_equal(end, last)


@pytest.mark.parametrize("name", ["lstm", "gru", "slstm", "mingru"])
def test_lengths_resets_and_tapes(name):
    network, _ = networks(name, 16, 64, layers=2, direction="bidirectional")
    x, lengths = normal(3, 6, 50, 16), np.array([50, 0, 17, 1, 49, 33])
    reset_mask = np.random.default_rng(4).random((6, 50)) < 0.1
    y, _ = network.forward(x, lengths=lengths, reset_mask=reset_mask, **ON_GPU)
    taped, _ = network.forward(x, lengths=lengths, reset_mask=reset_mask, tape=network.tape(), **ON_GPU)
    np.testing.assert_array_equal(taped, y)
    for row, length in enumerate(lengths):
        if length == 0:
            continue
        alone, _ = network.forward(x[row, :length], reset_mask=reset_mask[row, :length], **ON_GPU)
        np.testing.assert_array_equal(alone, y[row, :length])
    none, _ = network.forward(x, lengths=lengths, **ON_GPU)
    zeros, _ = network.forward(x, lengths=lengths, reset_mask=np.zeros_like(reset_mask), **ON_GPU)
    np.testing.assert_array_equal(zeros, none)


@pytest.mark.parametrize("precision", ["full", "bf16", "f16"])
@pytest.mark.parametrize("cell", ["lstm", "gru", "slstm", "elman", "mingru", "minlstm"])
@pytest.mark.parametrize("width", [48, 256, 1024])
def test_models_and_sessions(tmp_path, precision, cell, width):
    text = tmp_path / "text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 100)
    model = penstock.Model(penstock.open_text(text), cell=cell, width=width, blocks=2, convolution=4, feed_forward=2.0)
    how = ON_GPU | {"precision": precision}
    tokens = np.random.default_rng(5).integers(0, 20, (40, 24)).astype(np.int32)
    outputs, _ = model.forward(tokens, **how)
    for rows in (1, 2, 17):
        np.testing.assert_array_equal(model.forward(tokens[:rows], **how)[0], outputs[:rows])
    first, state = model.forward(tokens[:3, :10], **how)
    second, _ = model.forward(tokens[:3, 10:], state, **how)
    np.testing.assert_array_equal(np.concatenate([first, second], 1), outputs[:3])
    session = penstock.Session(model, **how)
    np.testing.assert_array_equal(session.run(tokens[3]), outputs[3])
