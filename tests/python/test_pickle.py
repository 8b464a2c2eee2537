"""Pickles and copies of models, layers, cells and weights; the remedy of what cannot be pickled."""

import copy
import multiprocessing
import pickle
import subprocess
import sys

import numpy as np
import pytest

import penstock
from penstock import csp, interchange, variants
from penstock.equations import tanh


@penstock.cell(gates=1, learnt={"gain": 0.5})
def pickled_cell(wx, rh, p):
    return tanh(wx[0] + p.gain * rh[0])


def normal(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def copies(of):
    return [pickle.loads(pickle.dumps(of)), copy.deepcopy(of), copy.copy(of)]


LAYERS = {
    "cell": lambda: penstock.GRUCell(3, 4, reset_after=False, seed=5),
    "scan cell": lambda: penstock.MinGRUCell(3, 4, candidate="positive", bias="none"),
    "stack": lambda: penstock.Recurrent("lstm", 3, 4, layers=2, direction="bidirectional", heads=2, dropout=0.1),
    "doubles": lambda: penstock.Recurrent("slstm", 3, 4, dtype="float64", gradient_clip=0.5),
    "custom cell": lambda: penstock.Recurrent(pickled_cell, 3, 4),
    "custom cell by its name": lambda: penstock.Recurrent(str(variants.lstm(peepholes=True)), 3, 4),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    layer = LAYERS[name]()
    with layer.edit() as weights:
        next(iter(weights.values()))[:] += 1
    x = normal(2, 5, 3).astype(layer.dtype)
    for other in copies(layer):
        assert type(other) is type(layer) and repr(other) == repr(layer) and vars(other).keys() == vars(layer).keys()
        for got, expected in zip(other.forward(x), layer.forward(x)):
            np.testing.assert_array_equal(got, expected)
        with other.edit() as weights:
            next(iter(weights.values()))[:] = 0
    assert all(np.any(value) for value in list(layer.parameters.values())[:1])  # copies have weights of their own


def series(tmp_path):
    rows = "\n".join(f"{np.sin(t / 3):.4f}" for t in range(200))
    (tmp_path / "a.csv").write_text("value\n" + rows + "\n")
    return penstock.open_series(tmp_path / "a.csv", horizon=2)


def test_models(tmp_path):
    data = series(tmp_path)
    model = penstock.Model(data, cell=pickled_cell, width=8, blocks=1)
    untrained = pickle.loads(pickle.dumps(model))
    assert repr(untrained) == repr(model) and "untrained" in repr(model)
    assert penstock.train(untrained, data, steps=2, progress=False).last.step == 2
    penstock.train(model, data, steps=3, progress=False)
    rows = normal(9, 1)
    for other in copies(model):
        np.testing.assert_array_equal(other.predict(rows), model.predict(rows))
        assert (other.history, other.spec, other.data, other.device) == (
            model.history, model.spec, model.data, model.device)  # fmt: skip
        assert other._arguments == model._arguments


def test_damaged_bytes_of_a_model_are_refused(tmp_path):
    model = penstock.Model(series(tmp_path), width=8, blocks=1)
    state = model.__getstate__()
    state["_model"] = state["_model"][:-7]
    with pytest.raises(penstock.BadInput):
        penstock.Model.__new__(penstock.Model).__setstate__(state)


def predicted(model, rows):
    return model.predict(rows)


def test_models_and_layers_travel_to_spawned_processes(tmp_path):
    model, layer = penstock.Model(series(tmp_path), cell="gru", width=8, blocks=1), LAYERS["stack"]()
    rows, x = normal(9, 1), normal(2, 5, 3)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        np.testing.assert_array_equal(pool.apply(predicted, (model, rows)), model.predict(rows))
        for got, expected in zip(pool.apply(penstock.Recurrent.forward, (layer, x)), layer.forward(x)):
            np.testing.assert_array_equal(got, expected)


def test_custom_cells_are_known_where_they_are_unpickled(tmp_path):
    """A new process has not run the code that defines them."""
    cell = str(variants.lstm(cell_clip=2.5))
    layer = penstock.Recurrent(cell, 3, 4)
    things = [layer, interchange.RecurrentWeights.from_numpy(layer)]
    (tmp_path / "things").write_bytes(pickle.dumps(things))
    program = (
        "import pickle, sys; layer, weights = pickle.load(open(sys.argv[1], 'rb')); "
        "assert weights.gates == 4; print(layer.cell, weights.to_numpy().cell)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "things")], capture_output=True, text=True)
    assert done.stdout.split() == [cell, cell], done.stderr


def test_joblib(tmp_path):
    joblib = pytest.importorskip("joblib", reason="joblib is not installed")
    model = penstock.Model(series(tmp_path), width=8, blocks=1)
    joblib.dump(model, tmp_path / "model.joblib")
    rows = normal(9, 1)
    np.testing.assert_array_equal(joblib.load(tmp_path / "model.joblib").predict(rows), model.predict(rows))


def test_what_cannot_be_pickled_names_the_remedy(tmp_path):
    data = series(tmp_path)
    session = penstock.Session(penstock.Model(data, width=8, blocks=1))
    problem = csp.Model()
    problem.var("x", range(3))
    for of, name, remedy in (
        (data, "Dataset", "open it there"),
        (session, "Session", "session.state"),
        (penstock.SessionBatch(session.model, 2), "SessionBatch", "make another one"),
        (penstock.SessionPool(session.model, 2), "SessionPool", "restore"),
        (penstock.Recurrent("gru", 1, 1).tape(), "Tape", "run the forward pass"),
        (problem, "Model", "build it in the process"),
        (problem.solve(), "Solution", "dict\\(solution\\)"),
    ):
        with pytest.raises(TypeError, match=f"cannot pickle or copy a {name}.*{remedy}"):
            pickle.dumps(of)


def test_copies_of_datasets_and_sessions(tmp_path):
    data = series(tmp_path)
    assert copy.deepcopy(data) is data and copy.copy(data) is data
    session = penstock.Session(penstock.Model(data, width=8, blocks=1))
    session.push(normal(1))
    other = copy.deepcopy(session)
    np.testing.assert_array_equal(other.state, session.state)
    other.push(normal(1))
    assert not np.array_equal(other.state, session.state)


def test_nothing_is_said_of_networks_that_live_until_the_end():
    program = (
        "import penstock, numpy, builtins; network = penstock.Recurrent('gru', 2, 3); "
        "builtins.kept = [memoryview(array) for array in network.parameters.values()]"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
