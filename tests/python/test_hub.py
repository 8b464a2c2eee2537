"""Folders of models and repositories of the Hugging Face Hub. Nothing is downloaded: a stand-in keeps them in folders."""

import inspect
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import types

import numpy as np
import pytest

import penstock
from program import BIN
from trained_models import classifier, folder, forecaster, language  # noqa: F401


@pytest.fixture(params=["language", "forecaster", "classifier"])
def model(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def saved(forecaster, tmp_path):
    """A folder with a model of a series."""
    forecaster.save_pretrained(tmp_path / "rivers")
    return tmp_path / "rivers"


class FakeHub(types.ModuleType):
    """huggingface_hub with folders in place of repositories: {name: {revision: folder}}."""

    def __init__(self, root):
        super().__init__("huggingface_hub")
        self.root, self.calls = root, []
        hub = self

        class HfApi:
            def __init__(self, token=None):
                hub.calls.append(("HfApi", {"token": token}))

            def create_repo(self, repo_id, **options):
                hub.calls.append(("create_repo", options))
                name = repo_id if "/" in repo_id else f"me/{repo_id}"
                (hub.root / name / "main").mkdir(parents=True, exist_ok=True)
                return types.SimpleNamespace(repo_id=name)

            def file_exists(self, repo_id, filename, *, revision=None):
                return (hub.root / repo_id / (revision or "main") / filename).exists()

            def upload_folder(self, *, repo_id, folder_path, revision, **options):
                hub.calls.append(("upload_folder", options))
                shutil.copytree(folder_path, hub.root / repo_id / (revision or "main"), dirs_exist_ok=True)
                return f"https://hub.invalid/{repo_id}/commit/1"

        self.HfApi = HfApi

    def hf_hub_download(self, repo_id, filename, *, revision=None, **options):
        self.calls.append(("hf_hub_download", options))
        file = self.root / repo_id / (revision or "main") / filename
        if not file.exists():
            raise FileNotFoundError(f"404: {repo_id} has no {filename}")
        return str(file)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    hub = FakeHub(tmp_path / "hub")
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    return hub


def inputs_of(model):
    if model.task == "language":
        return np.arange(40, dtype=np.int32) % 250
    return np.random.default_rng(1).standard_normal((40, model.data["input_size"])).astype(np.float32)


def test_a_folder_holds_a_model(model, tmp_path):
    assert model.save_pretrained(tmp_path / "deep" / "m") is None
    assert sorted(os.listdir(tmp_path / "deep" / "m")) == ["README.md", "config.json", "model.safetensors"]
    again = penstock.Model.from_pretrained(tmp_path / "deep" / "m", device="cpu")
    inputs = inputs_of(model)
    assert again.forward(inputs)[0].tobytes() == model.forward(inputs)[0].tobytes()
    assert (again.spec, again.data, again.history) == (model.spec, model.data, model.history)


def test_config_json_says_what_a_model_is(model, tmp_path):
    model.save_pretrained(tmp_path, config={"purpose": "a test"})
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model_type"] == "penstock" and config["purpose"] == "a test"
    assert config["penstock_version"] == penstock.__version__ and config["parameters"] == model.parameter_count
    assert {name: config["model"][name] for name in ("cell", "width", "blocks")} == {
        name: model.spec[name] for name in ("cell", "width", "blocks")
    }
    assert config["data"]["task"] == model.task
    assert config["training"] == {name: value for name, value in model.history.items() if value != ""}
    assert config["training"]["options"]["seed"] == 0 and config["training"]["options"]["batch"] == 4


def test_the_program_reads_the_weights(saved, folder):  # noqa: F811
    command = [BIN, "predict", saved / "model.safetensors", folder / "series.csv", "--last"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0 and result.stdout.count("\n") >= 2, result.stderr
    described = json.loads(subprocess.run([BIN, "info", saved / "model.safetensors", "--json"], capture_output=True).stdout)
    assert described["history"]["options"]["seed"] == 0
    assert described["history"]["scores"]["columns"]["level"]["rivals"]["the last value"]["rmse"] > 0


def test_training_notes_scores_beside_baselines(forecaster, classifier, language):  # noqa: F811
    scores = forecaster.history["scores"]["columns"]
    assert scores.keys() == {"level", "flow"} and {"the last value", "drift"} <= scores["level"]["rivals"].keys()
    assert classifier.history["scores"] == {"scored": 8, "accuracy": classifier.history["scores"]["accuracy"]}
    bits = language.history["scores"]["bits_per_byte"]
    assert language.history["score"].startswith(f"{bits:.4g} bits/byte on {language.history['scores']['bytes']:,}")
    assert re.search(r"; [\d,]+ rows to train on, [\d,]+ held out$", forecaster.history["data"])


def test_an_untrained_model_has_a_folder_too(folder, tmp_path):  # noqa: F811
    model = penstock.Model(penstock.open_text(folder / "text.txt"), width=8, blocks=1)
    model.save_pretrained(tmp_path)
    assert "Scores" not in (tmp_path / "README.md").read_text()
    assert penstock.Model.from_pretrained(tmp_path).history == {}


@pytest.mark.parametrize(
    "damage, error, message",
    [
        (lambda f: shutil.rmtree(f), penstock.IoFailure, "there is no folder '.*', and a repository is named OWNER/NAME"),
        (lambda f: (f / "config.json").unlink(), penstock.IoFailure, r"has no config.json: give a folder that save_pretrained\(\) wrote"),
        (lambda f: (f / "model.safetensors").unlink(), penstock.IoFailure, r"has no model.safetensors: save_pretrained\(\) writes it"),
        (lambda f: (f / "config.json").write_text("{"), penstock.BadInput, "config.json: not JSON: "),
        (lambda f: (f / "config.json").write_text("[" * 100000), penstock.BadInput, "config.json: not JSON: "),
        (lambda f: (f / "config.json").write_bytes(b"\xff\xfe\xff"), penstock.BadInput, "config.json: not JSON: "),
        (lambda f: (f / "config.json").write_text("[]"), penstock.Incompatible, "its model_type must be 'penstock', not None"),
        (lambda f: (f / "config.json").write_text('{"model_type": "bert"}'), penstock.Incompatible, "must be 'penstock', not 'bert'"),
        (lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-9]), penstock.BadInput, "model.safetensors"),
        (lambda f: (f / "model.safetensors").write_bytes(b""), penstock.BadInput, "model.safetensors"),
    ],
)  # fmt: skip
def test_a_damaged_folder_is_refused(saved, damage, error, message):
    damage(saved)
    with pytest.raises(error, match=message):
        penstock.Model.from_pretrained(saved)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda c: c["model"].update(width=32), "model.width is 32, but model.safetensors has 16: the files belong to different models"),
        (lambda c: c["model"].pop("cell"), "model.cell is None, but model.safetensors has gru"),
        (lambda c: c["data"]["inputs"][0].update(mean=0), r"data.inputs is \["),
        (lambda c: c.update(format_version=1), "format_version is 1, but model.safetensors has 2"),
        (lambda c: c.pop("data"), "data is None, but"),
        (lambda c: c.update(model="gru"), "model is gru, but"),
    ],
)
def test_a_config_of_other_weights_is_refused(saved, change, message):
    config = json.loads((saved / "config.json").read_text())
    change(config)
    (saved / "config.json").write_text(json.dumps(config))
    with pytest.raises(penstock.Incompatible, match=message):
        penstock.Model.from_pretrained(saved)


def test_weights_of_another_model_are_refused(saved, language):  # noqa: F811
    language.save(saved / "model.safetensors")
    with pytest.raises(penstock.Incompatible, match="the files belong to different models; write both by save_pretrained"):
        penstock.Model.from_pretrained(saved)


def test_entries_of_others_in_config_json_stay_without_effect(saved):
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps({**config, "weights": "../../secret", "auto_map": {"AutoModel": "x.py"}}))
    assert penstock.Model.from_pretrained(saved).task == "forecast"


def test_what_is_no_folder_is_refused(saved, hub):
    with pytest.raises(penstock.IoFailure, match=r"is a file: from_pretrained\(\) reads a folder; load\(\) reads a model file"):
        penstock.Model.from_pretrained(saved / "model.safetensors")
    with pytest.raises(penstock.InvalidArgument, match="revision must be None for a folder"):
        penstock.Model.from_pretrained(saved, revision="v1")
    for name in ("../up", "a/../b", "a/b/c", "/none", "./here", "", "a//b", "a/", "-x/y", "a\\b", "a/b\n", "é/b", "a--b"):
        with pytest.raises(penstock.IoFailure, match="there is no folder '"):
            penstock.Model.from_pretrained(name)
    assert hub.calls == []
    with pytest.raises(TypeError):
        penstock.Model.from_pretrained(3)


def test_a_second_save_replaces_the_first_and_nothing_else(saved, language, tmp_path):  # noqa: F811
    (saved / "notes.txt").write_text("mine")
    language.save_pretrained(saved)
    assert penstock.Model.from_pretrained(saved).task == "language"
    assert "generates texts" in (saved / "README.md").read_text() and (saved / "notes.txt").read_text() == "mine"
    (saved / "README.md").write_text("my own card")
    language.save_pretrained(saved)
    assert (saved / "README.md").read_text() == "my own card"


def test_files_of_others_are_not_replaced(forecaster, tmp_path):  # noqa: F811
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(penstock.Incompatible, match="it belongs to another library"):
        forecaster.save_pretrained(tmp_path)
    assert os.listdir(tmp_path) == ["config.json"]
    (tmp_path / "config.json").unlink()
    (tmp_path / "model.safetensors").write_text("something else")
    with pytest.raises(penstock.Error, match="model.safetensors"):
        forecaster.save_pretrained(tmp_path)
    assert os.listdir(tmp_path) == ["model.safetensors"] and (tmp_path / "model.safetensors").read_text() == "something else"
    (tmp_path / "model.safetensors").unlink()
    for name in ("config.json", "model.safetensors", "README.md"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(penstock.IoFailure, match=f"{name}' is no regular file"):
            forecaster.save_pretrained(tmp_path)
        (tmp_path / name).unlink()
    assert os.listdir(tmp_path) == []
    (tmp_path / "file").write_text("x")
    with pytest.raises(penstock.IoFailure, match="cannot make the folder '.*file'"):
        forecaster.save_pretrained(tmp_path / "file")


def test_arguments_are_checked(forecaster, tmp_path):  # noqa: F811
    with pytest.raises(penstock.InvalidArgument, match="config must not have the entry 'model'"):
        forecaster.save_pretrained(tmp_path, config={"model": 1})
    with pytest.raises(penstock.InvalidArgument, match="must have the names license, .*, not 'licence'"):
        forecaster.save_pretrained(tmp_path, model_card_kwargs={"licence": "mit"})
    with pytest.raises(penstock.InvalidArgument, match="tags must be a list, not 'river'"):
        forecaster.save_pretrained(tmp_path, model_card_kwargs={"tags": "river"})
    with pytest.raises(TypeError, match="takes private only with push_to_hub=True"):
        forecaster.save_pretrained(tmp_path, private=True)


def test_the_hub_is_refused_without_its_package(forecaster, saved, monkeypatch):  # noqa: F811
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert penstock.Model.from_pretrained(saved).task == "forecast"
    message = "there is no folder 'me/rivers', and a repository of the Hub needs the package huggingface_hub: pip install"
    with pytest.raises(ModuleNotFoundError, match=message) as caught:
        penstock.Model.from_pretrained("me/rivers")
    assert caught.value.name == "huggingface_hub"
    with pytest.raises(ModuleNotFoundError, match=r"push_to_hub\(\) needs the package huggingface_hub"):
        forecaster.push_to_hub("me/rivers")


def test_a_repository_of_the_hub(forecaster, hub, tmp_path):  # noqa: F811
    url = forecaster.save_pretrained(tmp_path / "rivers", push_to_hub=True, private=True, token="t", branch="v1", commit_message="first")
    assert url == "https://hub.invalid/me/rivers/commit/1"
    said = dict(hub.calls)
    assert said["HfApi"] == {"token": "t"} and said["create_repo"] == {"private": True, "exist_ok": True}
    assert said["upload_folder"]["commit_message"] == "first" and said["upload_folder"]["create_pr"] is None
    options = {"force_download": True, "token": "t", "cache_dir": "c", "local_files_only": False}
    hub.calls.clear()
    again = penstock.Model.from_pretrained("me/rivers", revision="v1", **options)
    assert again.spec == forecaster.spec
    for name, given in hub.calls:
        assert name == "hf_hub_download"
        assert given == {**options, "library_name": "penstock", "library_version": penstock.__version__}
    with pytest.raises(FileNotFoundError, match="404: me/rivers has no config.json"):
        penstock.Model.from_pretrained("me/rivers")  # the branch main is empty


def test_a_card_on_the_hub_that_somebody_edited_stays(forecaster, hub):  # noqa: F811
    forecaster.push_to_hub("me/rivers")
    card = hub.root / "me" / "rivers" / "main" / "README.md"
    assert card.read_text().count("# `me/rivers`") == 1
    card.write_text("edited")
    forecaster.push_to_hub("me/rivers", model_card_kwargs={"license": "mit"})
    assert card.read_text() == "edited"


def front_matter(path):
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load(path.read_text(encoding="utf-8").split("---\n")[1])


def test_the_card_says_what_training_knows(saved, forecaster):  # noqa: F811
    head = front_matter(saved / "README.md")
    assert head["library_name"] == "penstock" and head["pipeline_tag"] == "time-series-forecasting"
    assert head["tags"] == ["penstock", "recurrent-neural-network", "gru", "series"] and "license" not in head
    (entry,) = head["model-index"]
    (result,) = entry["results"]
    assert result["dataset"] == {"name": "series.csv", "type": "series", "split": "held out"}
    level = forecaster.history["scores"]["columns"]["level"]
    assert {"type": "rmse", "value": level["rmse"], "name": "RMSE of level"} in result["metrics"]
    text = (saved / "README.md").read_text()
    for said in ("| `the last value` |", "| seed | `0` |", "| batch | `4` |", f"| Penstock | {penstock.__version__} |", "rows to train on", "1 to 2 rows ahead"):
        assert said in text, said


@pytest.mark.parametrize("data, words", [
    ("series.csv", ["| `the last value` |", "| `drift` |", "RMSE", "the next 20 % held out", "MASE of flow"]),
    ("text.txt", ["| `gzip -9` |", "| held-out data | bits per byte |", "text-generation"]),
    ("labelled.csv", ["| `the most frequent label` |", "| held-out data | accuracy | macro-F1 |", "It labels sequences as `down`, `up`."]),
])  # fmt: skip
def test_the_card_of_a_model_that_the_program_trained(folder, tmp_path, data, words):  # noqa: F811
    options = ["--steps", 3, "--width", 8, "--blocks", 1, "--batch", 2, "--seed", 7, "--threads", 1, "--quiet"]
    command = [BIN, "train", folder / data, "-o", "m.safetensors", *options]
    assert subprocess.run(list(map(str, command)), cwd=tmp_path, capture_output=True).returncode == 0
    penstock.Model.load(tmp_path / "m.safetensors").save_pretrained(tmp_path / "m")
    text = (tmp_path / "m" / "README.md").read_text()
    for word in [*words, "| seed | `7` |", f"| source | `{data}` |"]:
        assert word in text, word


def test_the_card_has_what_the_caller_adds(forecaster, tmp_path):  # noqa: F811
    given = {"license": "apache-2.0", "language": ["en", "no"], "datasets": ["me/rivers-data"], "tags": ["river"], "description": "Of two rivers."}
    forecaster.save_pretrained(tmp_path, repo_id="me/two-rivers", model_card_kwargs=given)
    head = front_matter(tmp_path / "README.md")
    assert (head["license"], head["language"], head["datasets"]) == ("apache-2.0", ["en", "no"], ["me/rivers-data"])
    assert head["tags"][-1] == "river" and head["model-index"][0]["name"] == "me/two-rivers"
    assert "\nOf two rivers.\n" in (tmp_path / "README.md").read_text()


def test_names_of_the_data_cannot_break_the_card(tmp_path):
    names = ["a|b", "`x`", "---", "<script>", "no", "é\u2028\u0085\U0001f600", "x: y # z"]
    rows = "\n".join(",".join(f"{(i * (j + 3)) % 17 / 4 + j}" for j in range(len(names))) for i in range(120))
    head = ",".join(f'"{name}"' for name in names)
    (tmp_path / "t: 1.csv").write_text(f"{head}\n{rows}\n", encoding="utf-8")
    data = penstock.open_series(tmp_path / "t: 1.csv", targets=names, inputs=names)
    model = penstock.Model(data, cell="gru", width=8, blocks=1)
    penstock.train(model, data, steps=2, batch=2, length=8, threads=1, progress=False)
    model.save_pretrained(tmp_path / "m")
    metrics = front_matter(tmp_path / "m" / "README.md")["model-index"][0]["results"][0]["metrics"]
    assert {f"RMSE of {name}" for name in names} <= {metric["name"] for metric in metrics}
    tables = [line for line in (tmp_path / "m" / "README.md").read_text(encoding="utf-8").split("\n") if line.startswith("|")]
    assert len(tables) > 20 and all(line.endswith("|") for line in tables)


def test_the_three_lines_of_the_card_run(model, folder, tmp_path, monkeypatch, capsys):  # noqa: F811
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    model.save_pretrained("saved")
    code = re.search(r"```python\n(.*?)```", pathlib.Path("saved/README.md").read_text(), re.DOTALL)[1]
    assert code.count("\n") == 3 and str(folder) not in code
    exec(code, {})
    assert capsys.readouterr().out


def test_the_arguments_are_those_of_the_mixin():
    mixin = pytest.importorskip("huggingface_hub").ModelHubMixin
    for name in ("save_pretrained", "from_pretrained", "push_to_hub"):
        theirs, ours = (inspect.signature(getattr(each, name)).parameters for each in (mixin, penstock.Model))
        for argument, kind in theirs.items():
            assert ours[argument].kind == kind.kind, (name, argument)


def test_the_card_is_one_of_the_hub(model, tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    model.save_pretrained(tmp_path, model_card_kwargs={"license": "mit"})
    card = hub.ModelCard.load(tmp_path / "README.md")
    assert card.data.library_name == "penstock" and card.data.license == "mit"
    assert card.data.eval_results and all(np.isfinite(each.metric_value) for each in card.data.eval_results)
    hub.ModelCard(str(card))  # reads what it writes


def test_modules_of_pytorch(forecaster, saved, tmp_path):  # noqa: F811
    torch = pytest.importorskip("torch")
    from penstock.torch import SequenceModel

    module = SequenceModel.from_pretrained(saved)
    assert not module.training
    module.save_pretrained(tmp_path / "again")
    again = SequenceModel.from_pretrained(tmp_path / "again")
    x = torch.from_numpy(inputs_of(forecaster))[None]
    assert torch.equal(module(x)[0], again(x)[0])
    assert penstock.Model.from_pretrained(tmp_path / "again").spec == forecaster.spec


def test_a_module_with_layers_of_penstock_takes_the_mixin_of_the_hub(tmp_path):
    torch, hub = pytest.importorskip("torch"), pytest.importorskip("huggingface_hub")
    pytest.importorskip("safetensors")
    from penstock.torch import LSTM

    class Tagger(torch.nn.Module, hub.PyTorchModelHubMixin):
        def __init__(self, width=8):
            super().__init__()
            self.lstm, self.head = LSTM(3, width, batch_first=True), torch.nn.Linear(width, 2)

        def forward(self, x):
            return self.head(self.lstm(x)[0])

    tagger, x = Tagger(width=4), torch.randn(2, 5, 3)
    tagger.save_pretrained(tmp_path)
    assert torch.equal(Tagger.from_pretrained(str(tmp_path))(x), tagger(x))
