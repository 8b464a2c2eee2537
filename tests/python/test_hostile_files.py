"""Files made to be expensive to read: each is refused in words, at once and in little memory."""

import contextlib
import importlib
import io
import json
import os
import time
import tracemalloc
import zipfile

import numpy as np
import pytest

penstock = pytest.importorskip("penstock", reason="penstock is not installed")

from penstock import _safetensors, interchange  # noqa: E402

MODEST = 5  # seconds; what is refused takes milliseconds


@pytest.fixture(autouse=True)
def packages_are_there():
    """So that no time below is that of an import."""
    for name in ("torch", "onnx", "h5py"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def refused(path, message, error=penstock.BadInput, **options):
    tracemalloc.start()
    begin = time.process_time()
    try:
        with pytest.raises(error, match=message):
            interchange.load(path, **options)
        assert time.process_time() - begin < MODEST
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def onnx_file(path, nodes, count=1):
    """An ONNX file with `count` GRUs whose initial states are those that nodes make of the input x."""
    import onnx
    from onnx import helper

    shapes = {"W": (1, 3, 1), "R": (1, 3, 1)}
    stored = [onnx.numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in shapes.items()]
    layers = [helper.make_node("GRU", ["x", "W", "R", "", "", "h"], [f"y{i}"]) for i in range(count)]
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("x", "y0")]
    graph = helper.make_graph([*nodes, *layers], "g", ends[:1], ends[1:], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(path))


def test_states_of_many_nodes(tmp_path):
    """Where a state comes from is found at once, however many nodes there are."""
    onnx = pytest.importorskip("onnx")
    # Shape cuts each of these off from the input, so all are looked at.
    wide = [onnx.helper.make_node("Shape", ["x"], [f"s{i}"]) for i in range(60_000)]
    wide.append(onnx.helper.make_node("Sum", [f"s{i}" for i in range(60_000)], ["h"]))
    onnx_file(tmp_path / "wide.onnx", wide)
    deep = [onnx.helper.make_node("Shape", ["x"], ["s0"])]
    deep += [onnx.helper.make_node("Abs", [f"s{i}"], [f"s{i + 1}"]) for i in range(60_000)]
    deep.append(onnx.helper.make_node("Abs", ["s60000"], ["h"]))
    onnx_file(tmp_path / "deep.onnx", deep)
    for name in ("wide", "deep"):
        begin = time.process_time()
        assert list(interchange.load(tmp_path / f"{name}.onnx")) == ["y0"]
        assert time.process_time() - begin < MODEST
    onnx_file(tmp_path / "many.onnx", deep, count=1000)
    refused(tmp_path / "many.onnx", "finding where its states come from takes more than 10000000 steps")


def test_many_functions_of_onnx(tmp_path):
    onnx = pytest.importorskip("onnx")
    opset = [onnx.helper.make_opsetid("", 17)]
    same = [onnx.helper.make_node("Identity", ["a"], ["b"])]
    functions = [onnx.helper.make_function("own", f"f{i}", ["a"], ["b"], same, opset) for i in range(40_000)]
    nodes = [onnx.helper.make_node("f39999", ["x"], [f"v{i}"], domain="own") for i in range(40_000)]
    nodes.append(onnx.helper.make_node("Identity", ["v0"], ["h"]))
    onnx_file(tmp_path / "m.onnx", nodes)
    model = onnx.load(str(tmp_path / "m.onnx"))
    model.functions.extend(functions)
    onnx.save(model, str(tmp_path / "m.onnx"))
    begin = time.process_time()
    assert list(interchange.load(tmp_path / "m.onnx")) == ["y0"]
    assert time.process_time() - begin < MODEST


def test_groups_that_many_links_lead_to(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "diamonds.h5", "w") as file:
        group = file
        for _ in range(30):
            below = group.create_group("a")
            group["b"] = below
            group = below
        group["loop"] = file["/"]
    refused(tmp_path / "diamonds.h5", "there is no recurrent layer in it")


def test_groups_within_groups(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "deep.h5", "w") as file:
        file.create_group("/".join("a" * 2000))
    refused(tmp_path / "deep.h5", "more than 32 deep")


def test_arrays_that_are_declared_and_not_there(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "large.h5", "w") as file:
        own = file.create_group("lstm/cell")
        own.create_dataset("kernel", (10_000, 40_000), "f4", chunks=(1000, 1000))
        own.create_dataset("recurrent_kernel", (10_000, 40_000), "f4", chunks=(1000, 1000))
    refused(tmp_path / "large.h5", "needs 1600000000 bytes, and at most", cell="lstm")


@pytest.mark.parametrize("suffix", [".weights.h5", ".keras"])
def test_heaps_with_objects_of_no_size(tmp_path, suffix):
    """The HDF5 library goes on with the same object forever."""
    pytest.importorskip("h5py")
    path = tmp_path / ("a" + suffix)
    shapes = {"weight_ih_l0": (8, 2), "weight_hh_l0": (8, 2), "bias_ih_l0": (8,), "bias_hh_l0": (8,)}
    weights = interchange.RecurrentWeights("lstm", {name: np.ones(shape, np.float32) for name, shape in shapes.items()})
    interchange.save(path, weights, format="keras")
    assert list(interchange.load(path)) == ["lstm" if suffix == ".weights.h5" else "recurrent"]
    content = bytearray(path.read_bytes())
    heap = content.index(b"GCOL")
    free = content.index(bytes(8) + (4096 - 16 - 24).to_bytes(8, "little"), heap)
    content[free + 8] -= 16  # what is left behind it is an object of no size
    if suffix == ".keras":
        with zipfile.ZipFile(path) as archive:
            config = archive.read("config.json")
            start = content.index(archive.read("model.weights.h5")[:100])
            size = archive.getinfo("model.weights.h5").file_size
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("config.json", config)
            archive.writestr("model.weights.h5", bytes(content[start : start + size]))
    else:
        path.write_bytes(content)
    refused(path, "damaged: object 0 of the heap")


@pytest.mark.parametrize("name", ["config.json", "model.weights.h5"])
def test_archives_that_expand(tmp_path, name):
    pytest.importorskip("h5py")
    with zipfile.ZipFile(tmp_path / "bomb.keras", "w", zipfile.ZIP_DEFLATED) as archive:
        for each in ("config.json", "model.weights.h5"):
            with archive.open(each, "w") as file:
                for _ in range(300 if each == name else 1):
                    file.write(bytes(1 << 20))
    refused(tmp_path / "bomb.keras", f"'{name}' needs 31[45]......\\ bytes")


def test_damaged_archives(tmp_path):
    pytest.importorskip("h5py")
    with zipfile.ZipFile(tmp_path / "a.keras", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", json.dumps({"a": list(range(1000))}))
        archive.writestr("model.weights.h5", os.urandom(100))
    content = bytearray((tmp_path / "a.keras").read_bytes())
    content[60:90] = bytes(30)
    (tmp_path / "a.keras").write_bytes(content)
    refused(tmp_path / "a.keras", "no sound zip archive")


def onnx_lstm(onnx, place=None, **entries):
    """A model of one LSTM, whose W may lie in another file."""
    weights = {"W": np.ones((1, 20, 3), np.float32), "R": np.ones((1, 20, 5), np.float32)}
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    if place is not None:
        tensors[0].ClearField("raw_data")
        tensors[0].data_location = onnx.TensorProto.EXTERNAL
        for key, value in {"location": place, **entries}.items():
            tensors[0].external_data.add(key=key, value=str(value))
    node = onnx.helper.make_node("LSTM", ["x", "W", "R"], ["y"], hidden_size=5)
    given = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["t", "b", 3])]
    made = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    return onnx.helper.make_model(onnx.helper.make_graph([node], "g", given, [made], tensors))


def test_tensors_outside_the_folder(tmp_path):
    onnx = pytest.importorskip("onnx")
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_bytes(bytes(240))
    (tmp_path / "in" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "in" / "short").write_bytes(bytes(239))
    os.mkfifo(tmp_path / "in" / "fifo")
    path = tmp_path / "in" / "m.onnx"
    for place, entries, message in [
        ("../secret", {}, "expected the name of a file in the model's folder"),
        (str(tmp_path / "secret"), {}, "expected the name of a file in the model's folder"),
        ("sub/../../secret", {}, "expected the name of a file in the model's folder"),
        ("link", {}, "behind a link"),
        ("", {}, "expected the name of a file in the model's folder"),
        ("nothing", {}, "there is no such file"),
        ("fifo", {}, "there is no such file"),
        ("short", {}, "takes 240 bytes, and the model says 240 at 0 of the 239"),
        ("short", {"length": 10}, "takes 240 bytes, and the model says 10"),
        ("short", {"offset": "-1"}, "at -1"),
    ]:
        path.write_bytes(onnx_lstm(onnx, place, **entries).SerializeToString())
        refused(path, message)
    (tmp_path / "in" / "good").write_bytes(bytes(8) + np.arange(60, dtype="<f4").tobytes())
    path.write_bytes(onnx_lstm(onnx, "good", offset=8, length=240).SerializeToString())
    (weights,) = interchange.load(path).values()
    order = [0, 2, 3, 1]  # i, f, c, o of i, o, f, c
    expected = np.concatenate([np.arange(60, dtype=np.float32).reshape(4, 5, 3)[i] for i in order])
    assert np.array_equal(weights.tensors["weight_ih_l0"], expected)


@pytest.mark.parametrize("loop", [False, True])
def test_functions_that_call_functions(tmp_path, loop):
    onnx = pytest.importorskip("onnx")
    model, deep = onnx_lstm(onnx), 30
    for i in range(deep):
        called = f"f{(i + 1) % deep}" if loop or i + 1 < deep else ""
        nodes = [
            onnx.helper.make_node(called or "Identity", ["a"], ["b"], domain="own" if called else ""),
            onnx.helper.make_node(called or "Identity", ["b"], ["c"], domain="own" if called else ""),
        ]
        imports = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("own", 1)]
        model.functions.append(onnx.helper.make_function("own", f"f{i}", ["a"], ["c"], nodes, imports))
    model.graph.node.append(onnx.helper.make_node("f0", ["y"], ["z"], domain="own"))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    refused(tmp_path / "m.onnx", "calls itself" if loop else "more than 1000000 nodes with those of functions")


def test_checkpoints_that_expand(tmp_path):
    torch = pytest.importorskip("torch")
    state = {"rnn.weight_ih_l0": torch.zeros(1).expand(40_000, 10_000)}
    torch.save(state, tmp_path / "repeated.pt")
    refused(tmp_path / "repeated.pt", "a tensor needs 16000[0-9]* bytes")
    indices = torch.zeros(2, 1, dtype=torch.int64)
    sparse = torch.sparse_coo_tensor(indices, torch.ones(1), (40_000, 10_000))
    torch.save({"rnn.weight_ih_l0": sparse}, tmp_path / "sparse.pt")
    refused(tmp_path / "sparse.pt", "a tensor needs 16000[0-9]* bytes")
    torch.save({"rnn.weight_ih_l0": torch.zeros(3000, 30_000)}, buffer := io.BytesIO())
    with zipfile.ZipFile(buffer) as stored, zipfile.ZipFile(tmp_path / "zip.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in stored.namelist():
            archive.writestr(name, stored.read(name))
    refused(tmp_path / "zip.pt", "needs 3[0-9]* bytes")


@pytest.mark.parametrize(
    "header, problem",
    [
        ({"a": ["F32", [2], 0, 8], "b": ["F32", [2], 4, 12]}, 'tensor "b" overlaps tensor "a"'),
        ({"a": ["F32", [2], 0, 8]}, "4 bytes after the last tensor belonging to no tensor"),
        ({"a": ["F32", [1] * 100, 0, 4], "b": ["F32", [2], 4, 12]}, "a list of at most 64 whole numbers"),
        ({"a": ["F32", [1] * 40, 0, 4], "b": ["F32", [2], 4, 12]}, "has 40 axes, and arrays have at most 32"),
        ({"a": ["F32", [0, 10**30], 0, 0], "b": ["F32", [3], 0, 12]}, "a list of at most 64 whole numbers"),
        ({"a": ["F32", [10**4000] * 30, 0, 12]}, "a list of at most 64 whole numbers"),
    ],
)
def test_safetensors_whose_tensors_do_not_fit(tmp_path, header, problem):
    entries = {n: {"dtype": kind, "shape": shape, "data_offsets": [b, e]} for n, (kind, shape, b, e) in header.items()}
    text = json.dumps(entries).encode()
    (tmp_path / "a.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(12))
    refused(tmp_path / "a.safetensors", problem)


def test_checksums_of_safetensors_are_verified(tmp_path):
    path = tmp_path / "a.safetensors"
    (tmp_path / "text.txt").write_bytes(b"what is read here " * 40)
    penstock.Model(penstock.open_text(tmp_path / "text.txt"), cell="gru", width=4, blocks=1).save(path)
    assert "head.bias" in interchange.read_tensors(path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(penstock.BadInput, match="damaged: the checksum"):
        interchange.read_tensors(path)


RED = "\x1b[31mred\x9b\x07\u202e"


def test_control_characters_of_files_are_escaped_in_messages(tmp_path):
    def printable(path, read):
        with pytest.raises(penstock.Error) as caught:
            read(path)
        assert "\\x1b[31mred" in str(caught.value)
        assert str(caught.value).isprintable()

    weights = interchange.RecurrentWeights("elman", {"weight_ih_l0": np.ones((2, 2)), "weight_hh_l0": np.ones((2, 2))})
    cell = {"penstock.recurrent": json.dumps({"cell": RED}), "penstock.layers": json.dumps({"": RED})}
    for name, content in cell.items():
        _safetensors.write_file(tmp_path / "cell.safetensors", weights.tensors, {name: content})
        printable(tmp_path / "cell.safetensors", interchange.load)
    _safetensors.write_file(tmp_path / "tensor.safetensors", {RED: np.ones(2, np.float32)}, {})
    printable(tmp_path / "tensor.safetensors", interchange.load)
    penstock.Model(penstock.open_task("parity", length=4), cell="gru", width=4).save(tmp_path / "m.safetensors")
    tensors, metadata = _safetensors.read_file(tmp_path / "m.safetensors")
    changed = {name: text.replace('"gru"', json.dumps(RED)).replace('"format_version":2', '"format_version":1') for name, text in metadata.items()}
    assert changed != metadata
    (tmp_path / "m.safetensors").unlink()
    _safetensors.write_file(tmp_path / "m.safetensors", tensors, changed)
    printable(tmp_path / "m.safetensors", penstock.Model.load)


def test_a_note_of_another_cell_is_escaped_in_messages():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from penstock.torch import GRU

    state = GRU(2, 3).state_dict()
    state._metadata[""]["cell"] = RED
    with pytest.raises(RuntimeError, match="weights are those of a cell") as caught:
        torch.nn.Module.load_state_dict(GRU(2, 3), state)
    assert "\x1b" not in str(caught.value)
