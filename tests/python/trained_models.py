"""Small models of each task and the data that they were trained on, as fixtures that a file of tests imports."""

import pytest

import penstock
from small_data import labelled_of, series_of, text_of

TEXT, SERIES, LABELLED = text_of(40), series_of(300), labelled_of(40)
QUICK = {"batch": 4, "length": 32, "threads": 1, "progress": False}
SMALL = {"width": 16, "blocks": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data of each kind."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "text.txt").write_bytes(TEXT)
    (folder / "series.csv").write_text(SERIES)
    (folder / "labelled.csv").write_text(LABELLED)
    return folder


@pytest.fixture(scope="module")
def language(folder):
    data = penstock.open_text(folder / "text.txt")
    model = penstock.Model(data, **SMALL)
    penstock.train(model, data, steps=60, **QUICK)
    model.save(folder / "text.safetensors")
    return model


@pytest.fixture(scope="module")
def forecaster(folder):
    data = penstock.open_series(folder / "series.csv", inputs=["level", "flow"], horizon=2, from_last=False)
    model = penstock.Model(data, cell="gru", **SMALL)
    penstock.train(model, data, steps=30, **QUICK)
    model.save(folder / "series.safetensors")
    return model


@pytest.fixture(scope="module")
def classifier(folder):
    data = penstock.open_labelled(folder / "labelled.csv")
    model = penstock.Model(data, cell="lstm", **SMALL)
    penstock.train(model, data, steps=60, learning_rate=0.02, filters=False, **QUICK)
    model.save(folder / "labels.safetensors")
    return model
