"""Models that Penstock trains as modules of PyTorch: the same outputs, step by step too, and files both ways."""

import json
import time

import numpy as np
import pytest

from small_data import labelled_of, series_of, text_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
penstock = pytest.importorskip("penstock", reason="penstock is not installed")

from penstock.torch import SequenceModel  # noqa: E402

torch.set_num_threads(1)

TEXT, SERIES, LABELLED = text_of(20), series_of(200), labelled_of(20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "text.txt").write_bytes(TEXT)
    (folder / "series.csv").write_text(SERIES)
    (folder / "labelled.csv").write_text(LABELLED)
    return folder


def trained(folder, kind, filters=False, **spec):
    """A model after some steps, so that no parameter is zero, and inputs for it."""
    if kind == "text":
        data = penstock.open_text(folder / "text.txt")
        inputs = np.frombuffer(TEXT[:60], np.uint8).astype(np.int32).reshape(2, 30)
    elif kind == "series":
        data = penstock.open_series(folder / "series.csv", inputs=["level", "flow"], horizon=2, from_last=False)
        inputs = np.random.default_rng(1).normal(size=(2, 30, 2)).astype(np.float32)
    else:
        data = penstock.open_labelled(folder / "labelled.csv")
        inputs = np.random.default_rng(1).normal(size=(2, 8, 1)).astype(np.float32)
    model = penstock.Model(data, **{"width": 12, "blocks": 2, "seed": 3, **spec})
    penstock.train(model, data, steps=4, batch=4, length=16, filters=False, threads=1, progress=False)
    if filters:
        assert model.add_filters(data, seed=1, threads=1) == (0.0, 1.0)  # too few are held out to trust the layers
        assert model.spec["filters"] * model.spec["dilations"] == 1024
    path = folder / "model.safetensors"
    model.save(path)
    return model, path, inputs


FORMS = [
    ("text", {"cell": "mingru"}),
    ("text", {"cell": "gru", "hidden_size": 8, "convolution": 3, "feed_forward": 1.5}),
    ("text", {"cell": "slstm", "heads": 2, "dropout": 0.1}),
    ("series", {"cell": "lstm"}),
    ("series", {"cell": "minlstm-log", "from_last": True, "convolution": 4}),
    ("labelled", {"cell": "gru-before"}),
    ("labelled", {"cell": "gru", "filters": True}),
]


@pytest.mark.parametrize("kind, spec", FORMS)
def test_outputs(folder, kind, spec):
    model, path, inputs = trained(folder, kind, **spec)
    expected, _ = model.forward(inputs, threads=1)
    module = SequenceModel.load(path)
    with torch.no_grad():
        x = torch.from_numpy(inputs.astype(np.int64) if kind == "text" else inputs)
        y, _ = module(x)
        torch.testing.assert_close(y.numpy(), expected, rtol=0, atol=2e-6 * max(1, np.abs(expected).max()))
        first, state = module(x[:, :3])
        second, _ = module(x[:, 3:], state)
        torch.testing.assert_close(torch.cat([first, second], 1), y, rtol=0, atol=2e-5)


@pytest.mark.parametrize("kind, spec", FORMS[1::3])
def test_files_go_both_ways(folder, tmp_path, kind, spec):
    model, path, inputs = trained(folder, kind, **spec)
    module = SequenceModel.load(path)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(1.125)
    module.save(tmp_path / "changed.safetensors")
    again = penstock.Model.load(tmp_path / "changed.safetensors")
    expected, _ = module(torch.from_numpy(inputs.astype(np.int64) if kind == "text" else inputs))
    got, _ = again.forward(inputs, threads=1)
    torch.testing.assert_close(torch.from_numpy(got), expected.detach(), rtol=0, atol=1e-5)
    module.load_state_dict(SequenceModel.load(tmp_path / "changed.safetensors").state_dict())


@pytest.mark.parametrize("kind, spec", [FORMS[1], FORMS[4]])
def test_ensembles_are_sums_of_their_members(folder, tmp_path, kind, spec):
    members, inputs = [], None
    for seed in range(3):
        _, path, inputs = trained(folder, kind, **spec, seed=seed)
        members.append(SequenceModel.load(path))
    x = torch.from_numpy(inputs.astype(np.int64) if kind == "text" else inputs)
    ensemble = SequenceModel({**members[0].spec, "members": 3}, members[0].data).eval()
    state = {}
    for i, member in enumerate(members):
        for name, tensor in member.state_dict().items():
            state[f"members.{i}.{name}"] = tensor / 3 if name.startswith("head.") else tensor
    ensemble.load_state_dict(state)
    with torch.no_grad():
        expected = sum(member(x)[0] for member in members) / 3
        y, _ = ensemble(x)
        torch.testing.assert_close(y, expected, rtol=0, atol=1e-5)
        first, after = ensemble(x[:, :3])
        second, _ = ensemble(x[:, 3:], after)
        torch.testing.assert_close(torch.cat([first, second], 1), y, rtol=0, atol=2e-5)
    ensemble.save(tmp_path / "ensemble.safetensors")
    again = SequenceModel.load(tmp_path / "ensemble.safetensors")
    with torch.no_grad():
        assert torch.equal(again(x)[0], y)


def test_modules_train(folder):
    _, path, inputs = trained(folder, "text", cell="gru", convolution=2)
    module = SequenceModel.load(path).train()
    tokens = torch.from_numpy(inputs.astype(np.int64))
    optimizer = torch.optim.Adam(module.parameters(), 1e-2)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(tokens[:, :-1])[0].flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def changed(path, change, to):
    """A copy of a model whose description says something else; format_version 1, which has no checksum."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    description = json.loads(header["__metadata__"]["penstock"])
    description["format_version"] = 1
    change(description)
    header["__metadata__"] = {"penstock": json.dumps(description)}
    text = json.dumps(header).encode()
    to.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])
    return to


@pytest.mark.parametrize("written_by", ["program", "module"])
def test_no_flipped_bit_is_loaded(folder, tmp_path, written_by):
    _, path, _ = trained(folder, "text", cell="gru", width=4, blocks=1)
    if written_by == "module":
        SequenceModel.load(path).save(tmp_path / "module.safetensors")
        path = tmp_path / "module.safetensors"
    sound, damaged = path.read_bytes(), tmp_path / "damaged.safetensors"
    for place in np.random.default_rng(4).choice(len(sound) * 8, 400, replace=False):
        content = bytearray(sound)
        content[place // 8] ^= 1 << place % 8
        damaged.write_bytes(content)
        with pytest.raises((penstock.BadInput, penstock.Incompatible)):
            SequenceModel.load(damaged)


@pytest.mark.parametrize(
    "field, value, problem",
    [
        ("lags", 10**9, "lags must be 0 to 65536"),
        ("blocks", 10**6, "blocks"),
        ("width", 10**9, "width"),
        ("hidden_size", 10**7, "architecture|hidden_size"),
        ("members", 10**9, "members"),
        ("cell", "spam", "cell"),
        ("dropout", None, "dropout"),
    ],
)
def test_descriptions_that_ask_for_too_much(folder, tmp_path, field, value, problem):
    _, path, _ = trained(folder, "series", cell="gru", from_last=True)
    wrong = changed(path, lambda d: d["model"].__setitem__(field, value), tmp_path / "wrong.safetensors")
    begin = time.monotonic()
    with pytest.raises((penstock.BadInput, penstock.Incompatible), match=problem):
        SequenceModel.load(wrong)
    assert time.monotonic() - begin < 5


def test_descriptions_that_lack_something(folder, tmp_path):
    _, path, _ = trained(folder, "text")
    for part in ("model", "data", "format_version"):
        wrong = changed(path, lambda d: d.pop(part), tmp_path / "wrong.safetensors")
        with pytest.raises(penstock.BadInput, match=part):
            SequenceModel.load(wrong)
    with pytest.raises(penstock.IoFailure, match="nothing.safetensors"):
        SequenceModel.load(tmp_path / "nothing.safetensors")


def test_values_that_are_not_finite_are_not_saved(folder, tmp_path):
    _, path, _ = trained(folder, "text")
    module = SequenceModel.load(path)
    module.head.bias.data[0] = float("nan")
    with pytest.raises(penstock.BadInput, match="head.bias holds values that are not finite"):
        module.save(tmp_path / "wrong.safetensors")
    assert not (tmp_path / "wrong.safetensors").exists()
