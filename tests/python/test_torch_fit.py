"""penstock.torch.fit in one process: it is penstock.train in PyTorch."""

import inspect
import json
import math
import subprocess
import time

import numpy
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
penstock = pytest.importorskip("penstock", reason="penstock is not installed")
ours = pytest.importorskip("penstock.torch", reason="PyTorch is too old")

from torch.distributed import checkpoint as dcp  # noqa: E402

from penstock.torch import _library as library  # noqa: E402
from penstock.torch import train as command_line  # noqa: E402
from penstock.torch._fitting import options as fit_options  # noqa: E402
from penstock.torch._fitting import trainer  # noqa: E402
from penstock.torch._fitting import run as fit_run  # noqa: E402

torch.set_num_threads(1)
WORDS = ["river", "stone", "bridge", "water", "the", "flows", "under", "old", "a", "slowly"]


def text_of(words):
    """A text that can be learnt a little: words in an order that repeats now and then."""
    return " ".join(WORDS[(i * i + i // 7) % len(WORDS)] for i in range(words)) + "\n"


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(text_of(300))
    return path


def series(folder, name="series.csv", rows=160, phase=0.0):
    """A table whose first column can be forecast from both."""
    lines = [f"{math.sin(0.3 * i + phase) + 0.1 * math.sin(i * i):.4f},{math.cos(0.3 * i + phase):.4f}" for i in range(rows)]
    path = folder / name
    path.write_text("\n".join(["a,b", *lines]) + "\n")
    return path


def labelled(folder):
    """Sequences of different lengths that rise or fall."""
    lines = ["sequence,label,x"]
    for i in range(40):
        step = 0.1 if i % 3 else -0.1
        lines += [f"{i},{'up' if step > 0 else 'down'},{step * t + math.sin(i + t):.4f}" for t in range(4 + i % 5)]
    path = folder / "labelled.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def labelled_texts(folder):
    lines = ["text,label"] + [f"{' '.join(WORDS[i % 5 :][: 3 + i % 4])} number {i},{'ab'[i % 2]}" for i in range(40)]
    path = folder / "texts.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def tokens(folder):
    path = folder / "tokens.npy"
    numpy.save(path, numpy.array([1000 + (i * i + i // 7) % 40 for i in range(500)], "u2"))
    return path


OPENERS = {
    "text": lambda path: penstock.open_text(path, validation_fraction=0.2),
    "tokens": lambda path: penstock.open_text(tokens(path), validation_fraction=0.2),
    "series": lambda path: penstock.open_series(series(path), targets=["a"], horizon=2),
    "values": lambda path: penstock.open_series(series(path), targets=["b"], from_last=False, autoregression=False),
    "files": lambda path: penstock.open_series([series(path), series(path, "b.csv", 90, 1.0)], autoregression=False),
    "labelled": lambda path: penstock.open_labelled(labelled(path)),
    "labelled texts": lambda path: penstock.open_labelled_texts(labelled_texts(path)),
}


def run(function, path, model=None, kind="text", **options):
    """Trains a small model and returns its curve, the result and the model."""
    data = OPENERS[kind](path)
    made = penstock.Model(data, **({"width": 16, "blocks": 2, "dropout": 0.2, "seed": 5} | (model or {})))
    curve = []
    usual = {"steps": 10, "batch": 5, "length": 12, "log_every": 0, "seed": 3, "progress": False, "validate_every": 0}
    usual |= {"threads": 1, "callback": curve.append}
    result = function(made, data, **(usual | options))
    return [p for p in curve if not p.warning], result, made


def same_curve(got, expected, tolerance=1e-5):
    assert [p.step for p in got] == [p.step for p in expected]
    for mine, theirs in zip(got, expected):
        assert math.isclose(mine.loss, theirs.loss, rel_tol=tolerance), mine.step
        assert math.isclose(mine.learning_rate, theirs.learning_rate, rel_tol=1e-12)
        assert math.isclose(mine.gradient_norm, theirs.gradient_norm, rel_tol=10 * tolerance)
        assert (mine.accuracy, mine.epoch) == (theirs.accuracy, theirs.epoch)


def test_arguments_are_those_of_train():
    theirs = dict(inspect.signature(penstock.train).parameters)
    mine = dict(inspect.signature(ours.fit).parameters)
    for name, parameter in theirs.items():
        assert (mine[name].default, str(mine[name].annotation)) == (parameter.default, str(parameter.annotation)), name


@pytest.mark.parametrize(
    "cell, options",
    [
        ("mingru", {"steps": 40}),  # several passes: sequences start within windows
        ("lstm", {"optimizer": "sgd", "learning_rate": 0.05, "carry_state": False}),
        ("gru", {"epochs": 0.7, "weight_decay": 0.2, "clip": 0.0, "warmup": 0.5}),
        ("gru", {"optimizer": "lion", "learning_rate": 3e-4, "schedule": "onecycle", "steps": 40}),
        ("gru", {"optimizer": "rmsprop", "learning_rate": 3e-4}),
        ("gru", {"schedule": "plateau", "steps": 40, "learning_rate": 0.03, "validate_steps": 2, "keep_best": False}),
        ("gru", {"steps": 40, "average": 0.9, "validate_steps": 10, "keep_best": True}),
        ("gru", {"average": 0.95, "keep_best": False}),
    ],
)
def test_curve_of_penstock_train(text, cell, options):
    expected, theirs, model = run(penstock.train, text, {"cell": cell}, **options)
    got, result, mine = run(ours.fit, text, {"cell": cell}, **options)
    same_curve(got, expected)
    assert math.isclose(result.validation.loss, theirs.validation.loss, rel_tol=1e-5)
    assert result.validation.scored == theirs.validation.scored and result.model_step == theirs.model_step
    assert mine.history["score"] == model.history["score"] and mine.history["steps"] == model.history["steps"]
    tokens = list(b"the river")
    assert abs(mine.forward(tokens)[0] - model.forward(tokens)[0]).max() < 1e-3


def test_muon_of_penstock_train_is_torchs_in_floats(text, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda self: self)
    options = {"optimizer": "muon", "steps": 100, "learning_rate": 1e-3, "clip": 0.0}
    expected, _, model = run(penstock.train, text, {"cell": "gru"}, **options)
    got, _, mine = run(ours.fit, text, {"cell": "gru"}, **options)
    # Five steps of Newton and Schulz enlarge the rounding of small singular values by up to 3.4 ** 5.
    assert [p.loss for p in got] == pytest.approx([p.loss for p in expected], rel=485 * 2**-22)
    tokens = list(b"the river")
    assert abs(mine.forward(tokens)[0] - model.forward(tokens)[0]).max() < 1e-2


@pytest.mark.parametrize("options", [{"average": 0.9, "patience": 4}, {"schedule": "plateau", "patience": 6}])
def test_cooldown_of_penstock_train(text, options):
    options |= {"steps": 400, "learning_rate": 0.03, "validate_steps": 3, "keep_best": False}
    expected, theirs, _ = run(penstock.train, text, {"cell": "gru"}, **options)
    got, result, _ = run(ours.fit, text, {"cell": "gru"}, **options)
    assert result.stopped_early and theirs.stopped_early and result.last.step < 300
    same_curve(got, expected, 1e-3)
    assert got[-1].learning_rate < 0.1 * options["learning_rate"]
    assert math.isclose(result.validation.loss, theirs.validation.loss, rel_tol=1e-4)


@pytest.mark.parametrize("options", [{}, {"accumulate": 2, "carry_state": False}])
@pytest.mark.parametrize("kind", [kind for kind in OPENERS if kind != "text"])
def test_curve_of_penstock_train_on_other_data(tmp_path, kind, options):
    usual = {"steps": 12, "filters": False, "learning_rate": 0.003}
    expected, theirs, model = run(penstock.train, tmp_path, kind=kind, **usual, carry_state=not options)
    got, result, mine = run(ours.fit, tmp_path, kind=kind, **usual, **options)
    same_curve(got, expected, 1e-4 if kind == "series" else 1e-5)
    assert math.isclose(result.validation.loss, theirs.validation.loss, rel_tol=1e-3)
    assert result.validation.scored == theirs.validation.scored and result.model_step == theirs.model_step
    assert result.share == pytest.approx(theirs.share, abs=0.02)
    assert mine.history["data"] == model.history["data"] and mine.data.keys() == model.data.keys()


def test_filters_beside_layers(tmp_path):
    """What is fitted behind the training of layers is fitted here, too."""
    path = labelled(tmp_path)
    data = penstock.open_labelled(path, validation_fraction=0.4)
    with pytest.raises(penstock.Unsupported, match="the filters stand alone: filters=False trains layers"):
        ours.fit(penstock.Model(data, width=8, blocks=1), data, steps=2)
    whole = penstock.open_series(series(tmp_path), targets=["a"])
    model = penstock.Model(whole, width=8, blocks=1)
    result = ours.fit(model, whole, steps=2, batch=4, length=16, progress=False)
    levels = model.predict(str(series(tmp_path)), quantiles=[0.1, 0.9])[1]
    assert (levels[..., 0] < levels[..., -1]).all() and 0.0 <= result.share <= 1.0


@pytest.mark.parametrize("kind", ["text", "series", "labelled"])
def test_defaults_are_those_of_penstock_train(text, tmp_path, kind):
    """The library tells them to both."""
    data = OPENERS[kind](text if kind == "text" else tmp_path)
    model = penstock.Model(data)
    said = {name: p.default for name, p in inspect.signature(ours.fit).parameters.items()} | {"filters": False}
    options = fit_options.resolve(model, data, said, "cpu")
    metrics = tmp_path / "metrics.jsonl"
    limit = {} if kind == "text" else {"steps": 1}
    penstock.train(model, data, **({"seconds": 0.01} | limit), metrics=metrics, progress=False, filters=False)
    theirs = json.loads(metrics.read_text().splitlines()[0])["options"]
    assert {name: getattr(options, name) for name in theirs} == theirs
    if kind == "text":
        assert (options.seconds, options.validate_every, options.keep_best) == (60.0, 30.0, True)


def test_early_stopping_as_penstock_train(text):
    options = {"steps": 200, "validate_steps": 3, "patience": 3, "learning_rate": 0.05, "keep_best": True}
    expected, theirs, _ = run(penstock.train, text, **options)
    got, result, _ = run(ours.fit, text, **options)
    assert theirs.stopped_early and result.stopped_early
    assert len(got) == len(expected) and result.model_step == theirs.model_step
    same_curve(got[:30], expected[:30], 1e-4)


def test_accumulation_changes_nothing(text):
    expected, _, _ = run(ours.fit, text)
    same_curve(run(ours.fit, text, accumulate=3)[0], expected)
    halves, _, _ = run(ours.fit, text, precision="bf16")
    assert [p.loss for p in halves] != [p.loss for p in expected]
    assert all(abs(a.loss - b.loss) < 0.05 for a, b in zip(halves, expected))


def test_full_precision_is_float32(text, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn.rnn, "fp32_precision", "tf32")
    seen = []
    run(ours.fit, text, precision="full", callback=lambda progress: seen.append(library._tf32()))
    assert seen and not any(seen)
    assert library._tf32()


def test_compiled_blocks_compute_the_same(text):
    one = {"blocks": 1, "convolution": 0, "feed_forward": 0.0}
    expected, _, _ = run(ours.fit, text, one, steps=2)
    same_curve(run(ours.fit, text, one, steps=2, compile="aot_eager")[0], expected)


def test_a_run_that_stays_unstable_says_what_to_try(text):
    options = {"learning_rate": 1e30, "weight_decay": 0.0, "optimizer": "sgd", "clip": 0.0, "warmup": 0.0}
    reports = []
    with pytest.warns(UserWarning, match="try clipping: clip=1$"):
        _, result, _ = run(ours.fit, text, **options, steps=400, rollbacks=3, callback=reports.append)
    assert result.gave_up.startswith("training is unstable: at step") and result.last.rollbacks == 3
    assert sum("the run returns to its state after step 0" in p.warning for p in reports) == 3
    assert math.isfinite(result.validation.loss)


@pytest.mark.parametrize("options", [{"optimizer": "lion", "learning_rate": 1e-3}, {"optimizer": "muon"},
                                     {"optimizer": "rmsprop"}, {"schedule": "onecycle"},
                                     {"schedule": "plateau", "validate_steps": 5}, {"average": 0.9}])  # fmt: skip
def test_all_of_them_learn(text, options):
    curve, result, _ = run(ours.fit, text, **({"steps": 40, "keep_best": False} | options))
    assert curve[-1].loss < curve[0].loss - 0.3
    assert result.validation.loss < curve[0].loss - 0.3


@pytest.mark.parametrize(
    "options, words",
    [
        ({"steps": -1}, "steps must be at least 0, not -1"),
        ({"learning_rate": 0.0}, "learning_rate must be greater than 0"),
        ({"warmup": 2.0}, "warmup must be 0 to 1"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"loss": "mse"}, "loss mse does not fit"),
        ({"optimizer": "adam"}, "optimizer must be one of adamw, sgd, lion, rmsprop, muon, not \"adam\""),
        ({"schedule": "linear"}, "schedule must be one of cosine, onecycle, plateau"),
        ({"sharding": "zero"}, "sharding must be one of ddp, fsdp"),
        ({"optimizer": "muon", "sharding": "fsdp"}, "'muon' needs whole matrices on each rank: take sharding='ddp'"),
        ({"average": 1.0}, "average must be at least 0 and below 1"),
        ({"accumulate": 9}, "batch is 5 sequences, too few for 1 ranks with accumulate=9: give at least 9"),
        ({"resume": True}, "resume needs checkpoint"),
    ],
)
def test_impossible_options(text, options, words):
    with pytest.raises(penstock.InvalidArgument, match=words):
        run(ours.fit, text, **options)


def test_unknown_options(text):
    with pytest.raises(TypeError, match=r"^fit\(\) has no argument 'lr', did you mean 'learning_rate'\?$"):
        run(ours.fit, text, lr=0.01)


@pytest.mark.parametrize("options", [{"seeds": 2}, {"exact": True}, {"tensorboard": "here"}, {"precision": "f16"}])
def test_options_of_penstock_train_alone(text, options):
    with pytest.raises(penstock.Unsupported, match="penstock.train"):
        run(ours.fit, text, **options)


def test_other_data_are_refused(text):
    data = penstock.open_task("parity")
    with pytest.raises(penstock.Unsupported, match="on data with an end, not on a built-in task: penstock.train does"):
        ours.fit(penstock.Model(data), data)
    data = penstock.open_text(text, validation_fraction=0)
    with pytest.raises(penstock.InvalidArgument, match="schedule plateau goes by the loss of held-out data: hold some out"):
        ours.fit(penstock.Model(data, width=8), data, steps=3, schedule="plateau", validate_steps=1)


def interrupted_at(step):
    def stop(progress):
        import os
        import signal

        if progress.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    return stop


def test_sigterm_saves_and_the_run_goes_on(text, tmp_path):
    options = {"steps": 14, "average": 0.9, "validate_steps": 4, "keep_best": True}
    whole, expected, _ = run(ours.fit, text, **options)
    options |= {"checkpoint": tmp_path / "run", "checkpoint_every": 0, "checkpoints": 3}
    _, half, _ = run(ours.fit, text, **options, callback=interrupted_at(6))
    assert half.interrupted and half.checkpoint_error == ""
    assert [p.name for p in sorted((tmp_path / "run").iterdir())] == [f"step-{n:09d}" for n in (5, 6, 7)]
    rest, result, _ = run(ours.fit, text, **options, resume=True)
    same_curve(rest, whole[7:])
    assert math.isclose(result.validation.loss, expected.validation.loss, rel_tol=1e-5)
    with pytest.raises(penstock.Incompatible, match="is of a run with batch = 5, not 6: give the options of that run"):
        run(ours.fit, text, **options, resume=True, batch=6)
    with pytest.raises(penstock.Incompatible, match="with model = "):
        run(ours.fit, text, {"width": 8}, **options, resume=True)


@pytest.mark.parametrize("chosen", [{"schedule": "plateau", "patience": 0}, {"patience": 3}])
def test_a_run_goes_on_with_its_own_validations(text, tmp_path, chosen):
    options = {"steps": 8, "checkpoint": tmp_path / "run", "validate_steps": 3} | chosen
    run(ours.fit, text, **options, callback=interrupted_at(4))
    with pytest.raises(penstock.Incompatible, match="with validate_steps = 3, not 4: give the options of that run"):
        run(ours.fit, text, **options | {"validate_steps": 4}, resume=True)
    assert run(ours.fit, text, **options, resume=True)[1].last.step == 8


def test_a_return_to_a_good_state_takes_the_average_along(text, monkeypatch):
    """The weights blow up after step 115: the run returns to those of step 100, and so does their average."""
    averages = {}

    class Spoilt(trainer.Trainer):
        def _update(self, rate, norm):
            super()._update(rate, norm)
            averages[self.step] = (self.updates, [v.clone() for v in self.average.values])
            if self.step == 115:
                for parameter in self.optimizers.parameters:
                    parameter.data *= 1e4

        def _roll_back(self, trouble):
            super()._roll_back(trouble)
            averages["after"] = (self.updates, [v.clone() for v in self.average.values])

    monkeypatch.setattr(fit_run, "Trainer", Spoilt)
    assert run(ours.fit, text, steps=125, average=0.9, learning_rate=0.01)[1].last.rollbacks == 1
    assert averages["after"][0] == averages[100][0] == 100
    assert all(torch.equal(a, b) for a, b in zip(averages["after"][1], averages[100][1]))


def test_a_checkpoint_written_beside_the_training_is_that_of_its_step(text, tmp_path, monkeypatch):
    kept = {}

    def save_if_due(self):
        if self.step == 5:
            kept.update({name: t.detach().clone() for name, t in self.tensors().items()})
            self.save(wait=False)

    save = dcp.save
    monkeypatch.setattr(trainer.Trainer, "_save_if_due", save_if_due)
    monkeypatch.setattr(dcp, "save", lambda *given, **named: time.sleep(0.5) or save(*given, **named))  # steps go on
    run(ours.fit, text, checkpoint=tmp_path / "run")
    got = {name: torch.zeros_like(t) for name, t in kept.items()}
    dcp.load(got, checkpoint_id=tmp_path / "run" / "step-000000005", no_dist=True)
    assert all(torch.equal(got[name], t) for name, t in kept.items()) and "optimizer.head.weight.exp_avg" in kept


def test_a_run_that_fails_waits_for_its_checkpoint(text, tmp_path, monkeypatch):
    def fail(progress):
        if progress.step == 2:
            raise ZeroDivisionError

    save = dcp.save
    monkeypatch.setattr(dcp, "save", lambda *given, **named: time.sleep(0.5) or save(*given, **named))
    with pytest.raises(ZeroDivisionError):
        run(ours.fit, text, checkpoint=tmp_path / "run", checkpoint_every=0, callback=fail)
    assert [path.name for path in (tmp_path / "run").glob("*/.metadata")] == [".metadata"]


def test_checkpoints_that_are_not_there(text, tmp_path):
    with pytest.raises(penstock.IoFailure, match="there is no complete checkpoint in"):
        run(ours.fit, text, checkpoint=tmp_path / "none", resume=True)
    run(ours.fit, text, checkpoint=tmp_path / "run")
    (path,) = (tmp_path / "run").iterdir()
    (shard,) = path.glob("*.distcp")
    shard.rename(tmp_path / "elsewhere")
    with pytest.raises(penstock.BadInput, match=f"lacks {shard.name}: put the files of all ranks into one folder"):
        run(ours.fit, text, checkpoint=tmp_path / "run", resume=True)
    (tmp_path / "file").write_text("of another program")
    with pytest.raises(penstock.InvalidArgument, match="is a file, such as penstock train writes"):
        run(ours.fit, text, checkpoint=tmp_path / "file")


def test_command_line(text, tmp_path, capsys):
    model, metrics = tmp_path / "model.safetensors", tmp_path / "metrics.jsonl"
    given = [str(text), "--steps", "8", "--width=16", "--blocks", "1", "--conv", "0", "--norms", "between", "-o", str(model)]
    given += ["--validation-fraction", "0.2", "--no-carry", "--keep-last", "--cell", "gru", "--batch", "4"]
    assert command_line.main([*given, "--metrics", str(metrics)]) == 0
    assert "8 steps" in capsys.readouterr().out and not (tmp_path / "model.safetensors.checkpoint").exists()
    loaded = penstock.Model.load(model)
    assert loaded.spec["cell"] == "gru" and not loaded.spec["end_norms"] and loaded.spec["convolution"] == 0
    kinds = [json.loads(line)["kind"] for line in metrics.read_text().splitlines()]
    assert kinds[0] == "run" and kinds[-1] == "final"
    assert command_line.main(given) == 1 and "exists: --force overwrites it" in capsys.readouterr().err
    config = tmp_path / "options"
    config.write_text("[train]\nsteps = 3  # few\nforce = true\nquiet = true\n")
    assert command_line.main([str(text), "--config", str(config), "-o", str(model), "--init", str(model)]) == 0
    assert penstock.Model.load(model).history["steps"] == 3
    assert command_line.main(["task:parity"]) == 1 and "'penstock train' trains on" in capsys.readouterr().err


def test_a_disk_that_is_full_at_the_end(text, tmp_path, monkeypatch, capsys):
    output, save = str(tmp_path / "model"), penstock.Model.save
    given = [str(text), "--steps", "3", "--width", "8", "--blocks", "1", "-o", output, "--quiet"]

    def full(model, path):
        if path == output:
            raise penstock.IoFailure(f"cannot write '{path}': No space left on device")
        save(model, path)

    with monkeypatch.context() as patch:
        patch.setattr(penstock.Model, "save", full)
        assert command_line.main(given) == 1
    words = f"No space left on device; make room, then --resume goes on from {output}.checkpoint"
    assert words in capsys.readouterr().err
    assert command_line.main([*given, "--resume"]) == 0 and (tmp_path / "model").exists()


def test_help():
    text = command_line.parser().format_help()
    assert "--learning-rate" in text and "Highest learning rate of the schedule" in text
    assert "--rank-timeout" in text and "--keep-last" in text and "--conv" in text and "--validation-fraction" in text


def test_the_program_runs_what_fit_trained(text, tmp_path):
    from program import BIN

    _, _, model = run(ours.fit, text, optimizer="muon")
    path = tmp_path / "model.safetensors"
    model.save(path)
    command = [BIN, "generate", path, "--prompt", "the", "--bytes", "10"]
    result = subprocess.run(command, capture_output=True)
    assert result.returncode == 0 and result.stdout.startswith(b"the"), result.stderr
    session = penstock.Session(model)
    assert session.push(ord("t")).shape == (256,)
    model.save_onnx(tmp_path / "model.onnx")
