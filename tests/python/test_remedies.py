"""Training in Python: runs that are unstable, and initial weights."""

import numpy as np
import pytest

import penstock

TEXT = b"In the beginning was the word, and the word was with the maker of words.\n" * 40
QUICK = {"batch": 4, "length": 32, "threads": 1, "progress": False}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("remedies") / "text.txt"
    path.write_bytes(TEXT)
    return path


@pytest.fixture
def data(path):
    return penstock.open_text(path)


def model_of(data, **options):
    return penstock.Model(data, width=16, blocks=1, convolution=0, feed_forward=0, **options)


def test_a_run_that_stays_unstable_says_what_to_try(data):
    reports = []
    with pytest.warns(UserWarning, match="try clipping: clip=1$"):
        result = penstock.train(
            model_of(data), data, steps=400, learning_rate=1e30, weight_decay=0.0, optimizer="sgd", clip=0.0, rollbacks=3,
            log_every=0.0, callback=reports.append, **QUICK,
        )  # fmt: skip
    assert result.gave_up.startswith("training is unstable: at step")
    assert result.last.rollbacks == 3
    assert sum("the run returns to its state after step 0" in report.warning for report in reports) == 3
    assert np.isfinite(result.validation.loss)


def test_metrics_that_cannot_be_written_are_named_in_the_result(data):
    result = penstock.train(model_of(data), data, steps=2, metrics="/dev/full", **QUICK)
    assert "No space left on device" in result.metrics_error
    assert result.checkpoint_error == ""


def test_a_stable_run_is_the_same_without_rollbacks(path):
    losses = []
    for rollbacks in (0, 10):
        data = penstock.open_text(path)  # whose training part begins anew
        result = penstock.train(model_of(data, cell="gru"), data, steps=120, rollbacks=rollbacks, **QUICK)
        losses.append((result.last.loss, result.validation.loss))
        assert result.gave_up == "" and result.last.rollbacks == 0
    assert losses[0] == losses[1]


def test_initial_weights_of_models(path):
    data = penstock.open_text(path)

    def first_loss(**options):
        data = penstock.open_text(path)
        model = model_of(data, cell="gru", **options)
        return penstock.train(model, data, steps=1, log_every=0.0, **QUICK).last.loss

    standard = first_loss()
    assert first_loss(initial_weights="standard") == standard
    others = [first_loss(initial_weights="orthogonal"), first_loss(initial_weights="uniform"), first_loss(chrono=40)]
    assert len({standard, *others}) == 4
    with pytest.raises(penstock.InvalidArgument, match="initial_weights must be one of standard, uniform, orthogonal, identity"):
        model_of(data, initial_weights="glorot")


def test_models_of_other_seeds_start_alike(path):
    """A mean of two seeds is the mean of the two models trained alone."""
    options = {"cell": "gru", "initial_weights": "orthogonal", "chrono": 20}
    alone = []
    for seed in (0, 1):
        data = penstock.open_text(path)
        alone.append(model_of(data, seed=seed, **options))
        penstock.train(alone[-1], data, steps=5, seed=seed, **QUICK)
    data = penstock.open_text(path)
    both = model_of(data, **options)
    penstock.train(both, data, steps=5, seeds=2, **QUICK)
    tokens = np.frombuffer(TEXT[:20], np.uint8).astype(np.int32)
    answers = [penstock.Session(model).run(tokens) for model in alone]
    np.testing.assert_allclose(penstock.Session(both).run(tokens), sum(answers) / 2, atol=1e-6)


def test_initial_weights_of_layers():
    layer = penstock.LSTM(3, 8) if hasattr(penstock, "LSTM") else penstock.Recurrent("lstm", 3, 8)
    before = layer.state_dict()
    layer.initialise("orthogonal", chrono=50, seed=3)
    after = layer.state_dict()
    assert (after["weight_ih_l0"] == before["weight_ih_l0"]).all()
    for gate in after["weight_hh_l0"].reshape(4, 8, 8).astype(float):
        np.testing.assert_allclose(gate @ gate.T, np.eye(8), atol=1e-6)
    assert (after["bias_ih_l0"][:8] == -after["bias_ih_l0"][8:16]).all()
    with pytest.raises(penstock.InvalidArgument, match="identity needs a cell"):
        layer.initialise("identity")
    tape_free = layer.state_dict()
    assert all((tape_free[name] == after[name]).all() for name in after)


def test_sessions_have_the_names_of_other_libraries(data):
    session = penstock.Session(model_of(data))
    tokens = np.arange(5, dtype=np.int32)
    expected = session.run(tokens)
    session.reset_state()
    assert (session.process_chunk(tokens) == expected).all()
