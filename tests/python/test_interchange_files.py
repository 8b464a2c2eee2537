"""Files of weights: safetensors, shards, checkpoints of PyTorch, files of the C++ library, and damaged ones."""

import json
import os
import pathlib
import re
import struct
import subprocess

import numpy as np
import pytest

penstock = pytest.importorskip("penstock", reason="penstock is not installed")

from interchange_checks import check, outputs, random_weights, same, values  # noqa: E402

from penstock import _core, interchange  # noqa: E402

BUILD = pathlib.Path(os.environ.get("PENSTOCK_BUILD", pathlib.Path(__file__).parents[2] / "build" / "release"))
PROBE = BUILD / "tests" / "torch_probe"


def test_safetensors_are_those_of_the_package(tmp_path):
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    state = {
        "a.weight": torch.randn(3, 4),
        "b": torch.randn(5).bfloat16(),
        "n": torch.arange(3),
        "e": torch.empty(0, 2),
    }
    theirs.save_file(state, tmp_path / "theirs.safetensors", metadata={"format": "pt"})
    found = interchange.read_tensors(tmp_path / "theirs.safetensors")
    for name, tensor in state.items():
        np.testing.assert_array_equal(found[name], tensor.float().numpy() if name == "b" else tensor.numpy())
    interchange.write_tensors(tmp_path / "ours.safetensors", found)
    for name, tensor in theirs.load_file(tmp_path / "ours.safetensors").items():
        np.testing.assert_array_equal(tensor.numpy(), found[name])


@pytest.mark.parametrize("form", ["torch", "penstock"])
def test_no_damage_to_safetensors_goes_unnoticed(tmp_path, form):
    path = tmp_path / "a.safetensors"
    interchange.save(path, random_weights("gru", 1, 2), format=form)
    whole = path.read_bytes()
    assert b'"penstock.checksum"' in whole
    interchange.load(path)
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with pytest.raises(penstock.Error):
            interchange.load(path)
    older = whole.replace(b"penstock.checksum", b"another.checksum_").replace(b"penstock.checked", b"another.checked_")
    path.write_bytes(older)
    interchange.load(path)  # from before there were checksums


def test_files_say_the_cell_of_each_layer(tmp_path):
    layers = {cell: random_weights(cell, 3, 4) for cell in ("slstm", "gru-before", "elman-relu", "elman", "mingru")}
    for form, shard in ((None, None), (None, 100), ("flashrnn", None)):
        chosen = layers if form is None else {"slstm": layers["slstm"], "elman": layers["elman"]}
        interchange.save(tmp_path / "a.safetensors", chosen, format=form or "torch", max_shard_bytes=shard)
        found = interchange.load(tmp_path / ("a.safetensors" + (".index.json" if shard else "")))
        assert {name: w.cell for name, w in found.items()} == {name: name for name in chosen}
    interchange.save(tmp_path / "b.safetensors", layers)
    with pytest.raises(penstock.InvalidArgument, match="layer 'slstm' is of the cell 'slstm', not 'lstm'"):
        interchange.load(tmp_path / "b.safetensors", prefix="slstm", cell="lstm")
    interchange.write_tensors(tmp_path / "c.safetensors", layers["elman-relu"].tensors)
    with pytest.raises(penstock.BadInput, match='does not say its cell.*cell="elman" or cell="elman-relu"'):
        interchange.load(tmp_path / "c.safetensors")
    torch = pytest.importorskip("torch")
    module = layers["slstm"].to_torch()
    torch.save({"model": {"x": 1}, "state": module.state_dict()}, tmp_path / "d.pt")
    same(interchange.load(tmp_path / "d.pt")[""], layers["slstm"])


def test_checkpoints(tmp_path):
    torch = pytest.importorskip("torch")
    lstm = torch.nn.LSTM(3, 4, batch_first=True)
    state = torch.nn.ModuleDict({"e": lstm}).state_dict()
    path, x = tmp_path / "a.ckpt", torch.randn(2, 5, 3)
    optimizer = torch.optim.Adam(lstm.parameters())
    lstm(x)[0].sum().backward()
    optimizer.step()
    whole = {"epoch": 1, "state_dict": state, "optimizer": optimizer.state_dict(), "path": tmp_path}
    torch.save(whole, path)
    assert list(interchange.load(path)) == ["e"]
    torch.save({**whole, "ema": {name: tensor * 2 for name, tensor in state.items()}}, path)
    assert list(interchange.load(path)) == ["state_dict.e", "ema.e"]
    (tmp_path / "a.safetensors").write_bytes(path.read_bytes())
    assert list(interchange.load(tmp_path / "a.safetensors")) == ["state_dict.e", "ema.e"]
    torch.save({"epoch": 1, "model": lstm}, path)
    with pytest.raises(penstock.BadInput, match=r"it holds epoch .int., model .torch.nn.modules.rnn.LSTM.; save one by"):
        interchange.load(path)
    for normalise in (torch.nn.utils.weight_norm, torch.nn.utils.parametrizations.weight_norm):
        for dim in (0, 1, None):
            normed = torch.nn.LSTM(3, 4, batch_first=True)
            normalise(normed, "weight_hh_l0", dim=dim)
            normalise(normed, "weight_ih_l0", dim=dim)
            with torch.no_grad():
                for parameter in normed.parameters():
                    parameter.mul_(1.5)
            torch.save(normed.state_dict(), path)
            check(outputs(interchange.load(path)[""], x.numpy()), normed(x)[0].detach().numpy())
    projected = torch.nn.LSTM(3, 4, proj_size=2)
    torch.save(projected.state_dict(), path)
    with pytest.raises(penstock.BadInput, match="'weight_hr_l0' is a projection.*into penstock.torch.LSTM"):
        interchange.load(path)
    with pytest.raises(penstock.InvalidArgument, match="must have no projections .proj_size., not 2"):
        interchange.RecurrentWeights.from_torch(projected)
    spectral = torch.nn.utils.parametrizations.spectral_norm(torch.nn.GRU(3, 4), "weight_hh_l0")
    torch.save(spectral.state_dict(), path)
    with pytest.raises(penstock.BadInput, match="not a weight but a part of one.*remove_parametrizations"):
        interchange.load(path)


# Files of the C++ library.


@pytest.mark.parametrize(
    "cell, options",
    [
        ("lstm", {"layers": 2, "direction": "bidirectional"}),
        ("slstm", {"heads": 2}),
        ("gru-before", {"bias": False}),
        ("mingru-log", {"bias": "single"}),
    ],
)
def test_stacks_that_cpp_programs_load(tmp_path, cell, options):
    weights = random_weights(cell, 3, 8, **options)
    path = tmp_path / "stack.safetensors"
    interchange.save(path, weights, format="penstock")
    same(interchange.load(path)[""], weights)
    x = values(2, 9, 3)
    done = subprocess.run([PROBE, path, "2", "9"], input=x.tobytes(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    expected = outputs(weights, x)
    np.testing.assert_array_equal(np.frombuffer(done.stdout, np.float32).reshape(expected.shape), expected)


def test_a_stack_with_a_field_of_a_later_version_is_refused(tmp_path):
    path = tmp_path / "stack.safetensors"
    weights = random_weights("gru", 3, 8)
    description = json.dumps({"cell": "gru", "dropout": 0.5, "gradient_clip": 1.0})
    tensors = weights.tensors
    interchange._files._safetensors.write_file(path, tensors, {"penstock.recurrent": description})
    same(interchange.load(path)[""], weights)
    later = description.replace("}", ', "leak": 0.1}')
    interchange._files._safetensors.write_file(path, tensors, {"penstock.recurrent": later})
    known = "cell, input_size, hidden_size, heads, layers, direction, bias, cell_equations, dropout, gradient_clip"
    message = f"{path}: penstock.recurrent has no field 'leak'; it may have {known}: use a newer Penstock"
    with pytest.raises(penstock.BadInput, match=re.escape(message)):
        interchange.load(path)


def test_whole_models_are_read_elsewhere(tmp_path):
    interchange._files._safetensors.write_file(
        tmp_path / "a.safetensors", {"head.weight": values(2, 3)}, {"penstock": "{}"}
    )
    with pytest.raises(penstock.Incompatible, match="a whole model: penstock.Model.load"):
        interchange.load(tmp_path / "a.safetensors")
    interchange._files._safetensors.write_file(tmp_path / "b.safetensors", {}, {"penstock.recurrent": '{"cell": "nn"}'})
    with pytest.raises(penstock.BadInput, match="its cell must be one of elman, .*, not 'nn'"):
        interchange.load(tmp_path / "b.safetensors")


# Damaged and hostile files.


def safetensors_file(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    "content, problem",
    [
        (b"", "no safetensors file: 0 bytes are too few for a header"),
        (b"version https://git-lfs.github.com/spec/v1", "a pointer of Git LFS and not the file itself"),
        (struct.pack("<Q", 1 << 60), "it does not begin with the length of a header"),
        (safetensors_file(b"{" * 100_000), "the header is not JSON in UTF-8"),
        (safetensors_file([1]), "the header is not a JSON object"),
        (safetensors_file({"a": 5}), 'tensor "a": must be an object with dtype, shape and data_offsets'),
        (safetensors_file({"a": {"dtype": "F31", "shape": [1], "data_offsets": [0, 4]}}),
         'dtype "F31" is none of BOOL'),
        (safetensors_file({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}),
         "shape must be a list of at most 64 whole numbers"),
        (safetensors_file({"a": {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 4]}}, b"1234"),
         "shape [1099511627776, 1099511627776] is too large"),
        (safetensors_file({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, b"1234"),
         "data_offsets [4, 8] reach beyond the 4 bytes of data in the file"),
        (safetensors_file({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"1234"),
         "no recurrent layer that is known; its tensors are a"),
    ],
)  # fmt: skip
def test_bad_safetensors(tmp_path, content, problem):
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(penstock.BadInput) as caught:
        interchange.load(tmp_path / "a.safetensors")
    assert problem in str(caught.value) and str(tmp_path / "a.safetensors") in str(caught.value)


def test_numbers_of_every_type_are_kept(tmp_path):
    given = {kind: np.arange(6).reshape(2, 3).astype(kind) for kind in ("?", "i1", "u1", "i2", "u2", "f2", "i4", "u4", "f4", "i8", "u8", "f8")}
    interchange.write_tensors(tmp_path / "a.safetensors", given)
    read = interchange.read_tensors(tmp_path / "a.safetensors")
    assert {name: (value.dtype, value.tolist()) for name, value in read.items()} == {
        name: (value.dtype, value.tolist()) for name, value in given.items()
    }


def test_shards_stay_beside_their_index(tmp_path):
    secret = tmp_path / "secret.safetensors"
    interchange.write_tensors(secret, {"weight_ih_l0": values(4, 1)})
    folder = tmp_path / "model"
    folder.mkdir()
    for file in ("../secret.safetensors", str(secret), "model.bin", 5):
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"weight_ih_l0": file}}))
        with pytest.raises(penstock.BadInput, match="which is not a file beside the index"):
            interchange.read_tensors(folder)
    (folder / "model.safetensors.index.json").write_text("[1]")
    with pytest.raises(penstock.BadInput, match="no index of shards"):
        interchange.read_tensors(folder)
    with pytest.raises(penstock.IoFailure, match="No such file"):
        interchange.read_tensors(folder / "none.safetensors")


def test_saved_again_shards_are_replaced_as_one(tmp_path, monkeypatch):
    path, index = tmp_path / "m.safetensors", tmp_path / "m.safetensors.index.json"
    models = [{f"w{i}": values(2, 3, seed=seed) for i in range(3)} for seed in range(3)]

    def names():
        return sorted(file.name for file in tmp_path.iterdir() if file != index)

    def check_holds(expected):
        found = interchange.read_tensors(index)
        assert found.keys() == expected.keys() and all(np.array_equal(found[name], expected[name]) for name in expected)

    plain = [f"m-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    interchange.write_tensors(path, models[0], max_shard_bytes=24)
    assert names() == plain
    # The disk is full behind any number of files: the old model is still whole.
    write = _core.write_file
    for room in range(4):
        left = [room]

        def write_until_full(*arguments, left=left):
            if left[0] == 0:
                raise penstock.IoFailure("No space left on device")
            left[0] -= 1
            write(*arguments)

        monkeypatch.setattr(_core, "write_file", write_until_full)
        with pytest.raises(penstock.IoFailure, match="No space left"):
            interchange.write_tensors(path, models[1], max_shard_bytes=24)
        check_holds(models[0])
    monkeypatch.undo()
    interchange.write_tensors(path, models[1], max_shard_bytes=24)
    check_holds(models[1])
    assert names() == [name.replace("m-", "m-2-") for name in plain]
    interchange.write_tensors(path, models[2], max_shard_bytes=24)
    check_holds(models[2])
    assert names() == plain


@pytest.mark.parametrize("forms", [(None, 24), (24, None)])
def test_a_save_in_another_form_leaves_no_older_weights(tmp_path, forms):
    path = tmp_path / "m.safetensors"
    (tmp_path / "m-of-somebody.txt").write_text("kept")
    for version, limit in enumerate(forms):
        interchange.write_tensors(path, {name: np.full(4, version, np.float32) for name in "abc"}, max_shard_bytes=limit)
    found = interchange.read_tensors(tmp_path)
    assert found.keys() == set("abc") and all((array == 1).all() for array in found.values())
    kinds = {None: ["m-of-somebody.txt", "m.safetensors"], 24: ["m-00001-of-00003.safetensors", "m-00002-of-00003.safetensors",
             "m-00003-of-00003.safetensors", "m-of-somebody.txt", "m.safetensors.index.json"]}  # fmt: skip
    assert sorted(file.name for file in tmp_path.iterdir()) == kinds[forms[1]]


def test_nothing_is_run_that_a_file_says(tmp_path):
    torch = pytest.importorskip("torch")

    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "was_here"), "w"))

    torch.save({"weight_ih_l0": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(penstock.BadInput, match="no state_dict that can be read without running it"):
        interchange.load(tmp_path / "evil.pt")
    assert not (tmp_path / "was_here").exists()


@pytest.mark.parametrize("ending", [".pt", ".bin", ".keras", ".h5", ".onnx"])
@pytest.mark.parametrize("form", ["torch", "penstock"])
def test_a_name_that_is_read_as_another_format_is_refused(tmp_path, form, ending):
    path = tmp_path / f"a{ending}"
    with pytest.raises(penstock.InvalidArgument, match=f"must end in '.safetensors' for format '{form}', not '.*a{ending}'"):
        interchange.save(path, random_weights("gru", 1, 2), format=form)
    assert not path.exists()


@pytest.mark.parametrize("kind, cell", [("LSTMCell", "lstm"), ("GRUCell", "gru"), ("RNNCell", "elman")])
@pytest.mark.parametrize("form", ["pt", "safetensors"])
def test_cells_of_pytorch_are_layers(tmp_path, kind, cell, form):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    module = torch.nn.ModuleDict({"cell": getattr(torch.nn, kind)(3, 5), "head": torch.nn.Linear(5, 1)})
    path = tmp_path / f"m.{form}"
    if form == "pt":
        torch.save(module.state_dict(), path)
    else:
        interchange.write_tensors(path, {name: tensor.numpy() for name, tensor in module.state_dict().items()})
    if cell == "elman":  # one gate may be tanh or relu
        with pytest.raises(penstock.BadInput, match='say cell="elman" or cell="elman-relu"'):
            interchange.load(path)
    layer = interchange.load(path, **({"cell": cell} if cell == "elman" else {}))["cell"]
    assert layer.cell == cell and layer.layers == 1
    x = torch.randn(2, 1, 3)
    with torch.no_grad():
        state = module["cell"](x[:, 0])
    h = state[0] if isinstance(state, tuple) else state
    np.testing.assert_allclose(layer.to_numpy().forward(x.numpy())[0][:, 0], h.numpy(), atol=1e-6)


def test_cells_of_pytorch_with_computed_or_missing_weights(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    cell = torch.nn.GRUCell(3, 5)
    tensors = {name: tensor.numpy() for name, tensor in cell.state_dict().items()}
    for normalise in (torch.nn.utils.weight_norm, torch.nn.utils.parametrizations.weight_norm):
        normed = {"cell." + name: tensor for name, tensor in normalise(torch.nn.GRUCell(3, 5), "weight_hh").state_dict().items()}
        torch.save(normed, tmp_path / "normed.pt")
        assert interchange.load(tmp_path / "normed.pt")["cell"].cell == "gru"
    from torch.nn.utils import prune

    pruned = prune.random_unstructured(torch.nn.GRUCell(3, 5), "weight_hh", 0.5)
    torch.save(pruned.state_dict(), tmp_path / "pruned.pt")
    with pytest.raises(penstock.BadInput, match="tensor 'weight_hh_(orig|mask)' is not a weight but a part of one"):
        interchange.load(tmp_path / "pruned.pt")
    with pytest.raises(penstock.BadInput, match=r"\(a cell, read as layer 0\): there is no tensor 'weight_hh_l0'"):
        interchange.from_torch({name: array for name, array in tensors.items() if name != "weight_hh"})
    with pytest.raises(penstock.BadInput, match="'weight_ih' belongs to a cell and 'weight_hh_l0' to a layer"):
        interchange.from_torch({**tensors, "weight_hh_l0": tensors["weight_hh"]})


@pytest.mark.parametrize("format", interchange.FORMATS)
@pytest.mark.parametrize("layers", ["a.safetensors", {"a": np.zeros(3)}, [1], None])
def test_only_weights_are_saved(format, layers, tmp_path):
    with pytest.raises(TypeError, match="layers must be a RecurrentWeights or {name: RecurrentWeights}, not "):
        interchange.save(tmp_path / "a.safetensors", layers, format=format)
    assert not any(tmp_path.iterdir())
