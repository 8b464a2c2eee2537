"""No writer of the package replaces a file of another kind, nor another output of the same call."""

import json

import numpy as np
import pytest

penstock = pytest.importorskip("penstock", reason="penstock is not installed")

from small_data import series_of  # noqa: E402

from penstock import interchange  # noqa: E402
from penstock.equations import sigmoid  # noqa: E402

SMALL = {"width": 8, "blocks": 1}
QUICK = {"steps": 2, "batch": 4, "length": 8, "threads": 1, "progress": False}


@penstock.cell(gates=1)
def kept_cell(wx, rh, s):
    return sigmoid(wx[0] + rh[0]) * s.h


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """One file of each kind by its name."""
    folder = tmp_path_factory.mktemp("kept")
    (folder / "data.csv").write_text(series_of(200))
    data = penstock.open_series(folder / "data.csv")
    model = penstock.Model(data, **SMALL)
    penstock.train(model, data, metrics=folder / "metrics.jsonl", checkpoint=folder / "checkpoint", **QUICK)
    model.save(folder / "model")
    model.save_onnx(folder / "onnx")
    interchange.write_tensors(folder / "tensors.safetensors", {"a": np.zeros(3, np.float32)})
    kept_cell.save(folder / "cell.json")
    (folder / "notes.txt").write_text("notes")
    return folder


def copy_of(kept, folder):
    for file in kept.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def torch_model(path):
    pytest.importorskip("torch")
    from penstock.torch import SequenceModel

    return SequenceModel.load(path)


def weights():
    return interchange.RecurrentWeights.from_numpy(penstock.Recurrent("gru", 3, 4))


WRITERS = {
    "Model.save": ("model", lambda folder, path: penstock.Model.load(folder / "model").save(path)),
    "Model.save_onnx": ("onnx", lambda folder, path: penstock.Model.load(folder / "model").save_onnx(path)),
    "Recurrent.save_onnx": ("onnx", lambda folder, path: penstock.Recurrent("gru", 3, 4).save_onnx(path)),
    "SequenceModel.save": ("model", lambda folder, path: torch_model(folder / "model").save(path)),
    "write_tensors": (
        "tensors.safetensors",
        lambda folder, path: interchange.write_tensors(path, {"a": np.zeros(3, np.float32)}),
    ),
    "interchange.save": ("tensors.safetensors", lambda folder, path: interchange.save(path, weights())),
    "CustomCell.save": ("cell.json", lambda folder, path: kept_cell.save(path)),
    "metrics": ("metrics.jsonl", lambda folder, path: train(folder, metrics=path)),
    "checkpoint": ("checkpoint", lambda folder, path: train(folder, checkpoint=path)),
}


def train(folder, **files):
    data = penstock.open_series(folder / "data.csv")
    return penstock.train(penstock.Model(data, **SMALL), data, **QUICK, **files)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_of_another_kind_is_kept(kept, tmp_path, writer):
    before = copy_of(kept, tmp_path)
    own, write = WRITERS[writer]
    for name in before:
        if name == own:
            continue
        with pytest.raises(penstock.InvalidArgument, match=f"{name} is there already, .*not a.*; remove it first"):
            write(tmp_path, tmp_path / name)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    for _ in range(2):  # a new file, and one of the same kind
        write(tmp_path, tmp_path / "new.safetensors")
    if own in before:
        write(tmp_path, tmp_path / own)


def test_shards_do_not_replace_a_model(kept, tmp_path):
    (tmp_path / "m.safetensors").write_bytes((kept / "model").read_bytes())
    with pytest.raises(penstock.InvalidArgument, match="m.safetensors is there already, a model, not a safetensors"):
        interchange.write_tensors(tmp_path / "m.safetensors", {name: np.zeros(9) for name in "abc"}, max_shard_bytes=80)
    assert [file.name for file in tmp_path.iterdir()] == ["m.safetensors"]
    (tmp_path / "n.safetensors.index.json").write_text(json.dumps({"notes": 1}))
    with pytest.raises(penstock.InvalidArgument, match="n.safetensors.index.json is there already, not an index"):
        interchange.write_tensors(tmp_path / "n.safetensors", {name: np.zeros(9) for name in "abc"}, max_shard_bytes=80)
    assert len(list(tmp_path.iterdir())) == 2


def test_two_outputs_of_a_run_are_two_files(kept, tmp_path):
    before = copy_of(kept, tmp_path)
    (tmp_path / "link").symlink_to("a")
    for files in (("a", "a"), ("a", "link"), ("link", "a")):
        named = {"checkpoint": tmp_path / files[0], "metrics": tmp_path / files[1]}
        with pytest.raises(penstock.InvalidArgument, match="checkpoint and metrics must be different files, not both"):
            train(tmp_path, **named)
    with pytest.raises(penstock.InvalidArgument, match="metrics and tensorboard must be different"):
        train(tmp_path, metrics=tmp_path / "a", tensorboard=tmp_path / "a")
    (tmp_path / "link").unlink()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_keras_files_replace_none_of_another_kind(kept, tmp_path):
    pytest.importorskip("h5py")
    (tmp_path / "a.keras").write_bytes((kept / "model").read_bytes())
    with pytest.raises(penstock.InvalidArgument, match="a.keras is there already, a model, not a file of Keras"):
        interchange.save(tmp_path / "a.keras", weights(), format="keras")
    for _ in range(2):
        interchange.save(tmp_path / "b.keras", weights(), format="keras")
