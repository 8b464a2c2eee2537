"""penstock.train: what it takes, learns, reports and resumes."""

import _thread
import io
import threading

import numpy as np
import pytest
from trained_models import QUICK, SERIES, SMALL, classifier, folder, forecaster  # noqa: F401: fixtures

import penstock


def test_training_goes_on_from_a_model(forecaster, classifier, folder):
    (folder / "later.csv").write_text(SERIES.replace("day,", "week,"))
    data = penstock.open_series(folder / "later.csv", origin=forecaster)
    assert data.description["inputs"] == forecaster.data["inputs"] and data.description["horizon"] == 2
    model = penstock.Model.continue_from(forecaster, data, dropout=0.1)
    rows = np.ones((5, 2))
    assert (model.predict(rows) == forecaster.predict(rows)).all() and model.spec["dropout"] == 0.1
    rates = []
    penstock.train(model, data, steps=5, warmup=0, log_every=0, callback=lambda p: rates.append(p.learning_rate), **QUICK)
    assert 8e-4 < max(rates) <= 1e-3
    assert (model.predict(rows) != forecaster.predict(rows)).any()
    with pytest.raises(penstock.InvalidArgument, match="horizon contradicts origin"):
        penstock.open_series(folder / "later.csv", horizon=3, origin=forecaster)
    with pytest.raises(penstock.Incompatible, match="is for labelled sequences, not for series"):
        penstock.open_series(folder / "later.csv", origin=classifier)
    labelled = penstock.open_labelled(folder / "labelled.csv", origin=classifier)
    again = penstock.Model.continue_from(classifier, labelled)
    assert (again.predict(rows[:, :1]) == classifier.predict(rows[:, :1])).all()
    with pytest.raises(penstock.Incompatible, match="the data are not those of the model"):
        penstock.Model.continue_from(classifier, data)


def test_training_takes_what_suits_the_data(folder):
    data = penstock.open_series(folder / "series.csv", from_last=True, autoregression=True, transform="auto")
    model = penstock.Model(data, from_last=True, width=8, blocks=1)
    assert model.spec["lags"] > 0
    result = penstock.train(model, data, steps=3, progress=False, threads=1)
    assert result.last.step == 3 and 0 <= result.model_step <= 3 and not result.interrupted
    assert np.isfinite(model.predict(np.array([[5.0, 20.0]]))).all()


def test_layers_that_could_add_nothing_are_not_trained(folder):
    """Sixty held-out rows do not say what layers add to the linear forecast."""
    forecasts = []
    for options in ({}, {"steps": 20}):
        data = penstock.open_series(folder / "series.csv", inputs=["level"])
        model = penstock.Model(data, seed=3, **SMALL)
        result = penstock.train(model, data, threads=1, progress=False, **options)
        assert result.share == 0 and result.validation.loss > 0 and not result.interrupted
        assert (result.last.step == 0) == (not options)
        forecasts.append(model.predict(np.arange(40.0)[:, None]))
    assert (forecasts[0] == forecasts[1]).all()


def test_training_puts_filters_beside_layers(tmp_path):
    rows = [f"{i},{'up' if i % 2 else 'down'},{(1 if i % 2 else -1) * t:.2f}" for i in range(160) for t in range(8)]
    (tmp_path / "many.csv").write_text("\n".join(["sequence,label,value", *rows]) + "\n")
    data = penstock.open_labelled(tmp_path / "many.csv")
    model = penstock.Model(data, **SMALL)
    assert model.spec["cell"] == "gru" and model.spec["dropout"] == 0.2
    result = penstock.train(model, data, steps=5, **QUICK)
    assert model.spec["filters"] > 0 and result.filter_share > 0 and result.validation.accuracy == 1
    noise = np.random.default_rng(1).normal(0, 3, 40 * 8)
    rows = [f"{i // 8},{'up' if i // 8 % 2 else 'down'},{i // 8 % 2 + value:.2f}" for i, value in enumerate(noise)]
    (tmp_path / "few.csv").write_text("\n".join(["sequence,label,value", *rows]) + "\n")
    few = penstock.open_labelled(tmp_path / "few.csv")
    model = penstock.Model(few, **SMALL)
    with pytest.warns(UserWarning, match="the filters stand alone"):
        result = penstock.train(model, few, **QUICK)
    assert model.spec["blocks"] == 0 and (result.share, result.filter_share) == (0, 1)
    assert penstock.evaluate(model, few).loss < result.validation.loss, "the score has not seen the hold-out set"


def test_training_from_several_seeds_makes_their_mean(folder, tmp_path):
    data = penstock.open_series(folder / "series.csv", inputs=["level"], from_last=False)
    members = []
    for seed in (5, 6):
        members.append(penstock.Model(data, seed=seed, **SMALL))
        again = penstock.open_series(folder / "series.csv", inputs=["level"], from_last=False)
        penstock.train(members[-1], again, steps=8, seed=seed, **QUICK)
    model = penstock.Model(data, seed=5, **SMALL)
    result = penstock.train(model, data, steps=8, seeds=2, seed=5, checkpoint=tmp_path / "c", **QUICK)
    assert model.spec["members"] == 2 and (tmp_path / "c.2").exists()
    rows = np.array([[5.0], [5.5], [6.0]])
    mean = np.mean([member.predict(rows) for member in members], axis=0)
    np.testing.assert_allclose(model.predict(rows), mean, rtol=1e-4)
    assert result.validation.loss == pytest.approx(penstock.evaluate(model, data).loss, rel=1e-5)
    with pytest.raises(penstock.InvalidArgument, match="seeds must be at least 1, not 0"):
        penstock.train(model, data, seeds=0, **QUICK)
    with pytest.raises(penstock.InvalidArgument, match="seeds=1100: members must be 1 to 1024, not 1100"):
        penstock.train(model, data, seeds=1100, **QUICK)


def test_what_cannot_be_resumed(folder, tmp_path):
    data = penstock.open_text(folder / "text.txt")
    model = penstock.Model(data, cell="gru", dropout=0.0, **SMALL)
    with pytest.raises(penstock.IoFailure, match="resume: there is no checkpoint"):
        penstock.train(model, data, steps=3, resume=True, checkpoint=tmp_path / "e", **QUICK)
    with pytest.raises(penstock.InvalidArgument, match="resume needs checkpoint"):
        penstock.train(model, data, steps=3, resume=True, **QUICK)
    with pytest.raises(penstock.InvalidArgument, match="steps, seconds or epochs must be above 0"):
        penstock.train(model, data, steps=0, **QUICK)


def test_a_run_without_a_hold_out_set_keeps_its_last_weights(folder):
    data = penstock.open_series(folder / "series.csv", inputs=["level"], validation_fraction=0.0)
    result = penstock.train(penstock.Model(data, **SMALL), data, steps=60, **QUICK)
    assert (result.model_step, result.last.step, result.stopped_early, result.validation) == (60, 60, False, None)


def test_seeds_of_a_model_that_goes_on_begin_with_its_weights(folder, forecaster):
    data = penstock.open_series(folder / "series.csv", origin=forecaster)
    model = penstock.Model.continue_from(forecaster, data)
    penstock.train(model, data, steps=2, seeds=2, learning_rate=1e-12, **QUICK)
    rows = np.ones((5, 2))
    assert model.spec["members"] == 2
    np.testing.assert_allclose(model.predict(rows), forecaster.predict(rows), rtol=1e-3)


def test_training_learns_reports_and_resumes(folder, tmp_path):
    data = penstock.open_text(folder / "text.txt")
    options = dict(QUICK, steps=40, log_every=0.0, checkpoint=tmp_path / "c", checkpoint_every=0.0)
    model = penstock.Model(data, **SMALL)
    seen = []
    result = penstock.train(model, data, callback=seen.append, **options)
    assert [progress.step for progress in seen] == list(range(1, 41))
    assert seen[-1].loss < seen[0].loss and result.last.step == 40 and not result.interrupted
    assert result.validation.scored > 0
    again = penstock.evaluate(model, data, batch=4, length=32)
    assert again.loss == pytest.approx(result.validation.loss, rel=1e-4)

    class Enough(Exception):
        pass

    def stop(progress):
        if progress.step == 20:
            raise Enough

    data, half = penstock.open_text(folder / "text.txt"), penstock.Model(data, **SMALL)
    (tmp_path / "c").unlink()
    with pytest.raises(Enough):
        penstock.train(half, data, callback=stop, **options)
    data, resumed = penstock.open_text(folder / "text.txt"), penstock.Model(data, **SMALL)
    penstock.train(resumed, data, resume=True, **options)
    tokens = np.arange(50, dtype=np.int32)
    assert (resumed.forward(tokens)[0] == model.forward(tokens)[0]).all()


def test_a_model_in_training_is_not_used(folder):
    data = penstock.open_text(folder / "text.txt")
    model = penstock.Model(data, **SMALL)
    messages = []

    def use(_):
        for call in (lambda: model.forward(np.zeros(3, np.int32)), lambda: penstock.train(model, data, steps=1)):
            with pytest.raises(penstock.InvalidArgument) as caught:
                call()
            messages.append(str(caught.value))

    penstock.train(model, data, steps=1, log_every=0.0, callback=use, **QUICK)
    assert messages[0].startswith("the model is being trained")
    assert messages[1].startswith("the dataset is being trained with")


def test_the_interpreter_goes_on_while_a_model_trains(folder, ctrl_c_is_heard):
    data = penstock.open_text(folder / "text.txt")
    model = penstock.Model(data, **SMALL)
    begun = threading.Event()

    def end_it():
        begun.wait()
        _thread.interrupt_main()

    thread = threading.Thread(target=end_it, daemon=True)
    thread.start()
    # Nothing else ends it, and nothing of Python's runs between its steps but the one report of the first.
    result = penstock.train(
        model, data, steps=10**9, seconds=120, patience=0, log_every=1e9, callback=lambda _: begun.set(), **QUICK
    )
    thread.join()
    assert result.interrupted


def test_the_progress_bar(folder, monkeypatch):
    data = penstock.open_task("parity", length=8, validation_length=8)
    model = penstock.Model(data, cell="lstm", **SMALL)
    stream = io.StringIO()
    penstock.train(model, data, steps=5, batch=4, log_every=0.0, threads=1, progress=stream)
    lines = stream.getvalue().split("\r")
    assert "100 % [########################]" in lines[-1] and "step 5" in lines[-1] and "acc" in lines[-1]

    from penstock import _progress, training

    shown = []

    class Handle:
        def update(self, bundle, raw):
            shown.append(bundle["text/plain"])

    def display(bundle, raw, display_id):
        shown.append(bundle["text/plain"])
        return Handle()

    monkeypatch.setattr(training, "bar_for", lambda _, *about: _progress.NotebookBar(display, *about))
    penstock.train(model, data, steps=5, batch=4, log_every=0.0, threads=1)
    assert len(shown) >= 5 and "step 5" in shown[-1]
