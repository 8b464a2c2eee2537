"""What people call the package with who do not know it: errors name what was meant."""

import inspect
import pathlib
import re
import sys
import warnings

import numpy as np
import penstock
import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    (folder / "series.csv").write_text("level,flow\n" + "".join(f"{i % 7},{i % 5}\n" for i in range(120)))
    (folder / "text.txt").write_text("In the beginning was the word, and the word was with the maker of words.\n" * 40)
    (folder / "long.csv").write_text(
        "date,shop,x\n" + "".join(f"2024-{m:02}-{d:02},{s},{d}\n" for m in (1, 2) for d in range(1, 29) for s in "AB")
    )
    return folder


@pytest.fixture(scope="module")
def data(folder):
    return penstock.open_series(folder / "series.csv")


@pytest.fixture(scope="module")
def model(data):
    return penstock.Model(data, width=8, blocks=1)


def refused(error, text):
    return pytest.raises(error, match=f"^{re.escape(text)}$")


def test_arguments_that_a_function_does_not_have(model, data):
    for call, text in [
        (lambda: penstock.train(model, data, lr=3), "train() has no argument 'lr', did you mean 'learning_rate'?"),
        (lambda: penstock.train(model, data, batch_size=3), "train() has no argument 'batch_size', did you mean 'batch'?"),
        (lambda: penstock.train(model, data, lerning_rate=3),
         "train() has no argument 'lerning_rate', did you mean 'learning_rate'?"),
        (lambda: penstock.train(model, data, width=3),
         "train() has no argument 'width': 'width' is an argument of penstock.Model"),
        (lambda: penstock.Model(data, cel="gru"), "Model() has no argument 'cel', did you mean 'cell'?"),
        (lambda: penstock.Model(data, horizon=3),
         "Model() has no argument 'horizon': 'horizon' is an argument of penstock.open_series"),
        (lambda: penstock.Model(data, learning_rate=3),
         "Model() has no argument 'learning_rate': 'learning_rate' is an argument of penstock.train"),
        (lambda: penstock.open_series("x", target="y"), "open_series() has no argument 'target', did you mean 'targets'?"),
        (lambda: penstock.open_task("parity", lenght=3), "open_task() has no argument 'lenght', did you mean 'length'?"),
        (lambda: model.predict([[1, 2]], quantile=[0.1]),
         "Model.predict() has no argument 'quantile', did you mean 'quantiles'?"),
        (lambda: penstock.Model.load(file="x"), "Model.load() has no argument 'file', only path, device"),
        (lambda: penstock.Recurrent("lstm", 3, 4, num_layers=2),
         "Recurrent() has no argument 'num_layers', did you mean 'layers'?"),
        (lambda: penstock.LSTMCell(3, 4, unit=1),
         "LSTMCell() has no argument 'unit', only input_size, hidden_size, heads, bias, dtype, seed"),
    ]:  # fmt: skip
        with refused(TypeError, text):
            call()


def test_layers_of_pytorch():
    torch_face = pytest.importorskip("penstock.torch", reason="PyTorch is not installed")
    for name, unknown, text in [
        ("MinGRU", {"layers": 2}, "MinGRU() has no argument 'layers', did you mean 'num_layers'?"),
        ("GRU", {"n_layers": 2}, "GRU() has no argument 'n_layers', did you mean 'num_layers'?"),
        ("GRUCell", {"biass": 2}, "GRUCell() has no argument 'biass', did you mean 'bias'?"),
    ]:
        with refused(TypeError, text):
            getattr(torch_face, name)(3, 4, **unknown)
    with pytest.warns(UserWarning, match="dropout") as said:
        torch_face.MinGRU(3, 4, dropout=0.5)
    assert said[0].filename == __file__


def explained():
    """Every public function and constructor, but those that compute for microseconds."""
    for name in penstock.__all__:
        value = getattr(penstock, name)
        if inspect.isclass(value) and not issubclass(value, Exception):
            yield name, value
        elif inspect.isfunction(value) and "scan" not in name:
            yield name, value


def test_every_public_function_explains_itself():
    found = dict(explained())
    assert {"Model", "Session", "Recurrent", "GRUCell", "train", "evaluate", "open_text"} <= set(found)
    for name, value in found.items():
        if name in ("Progress", "TrainResult", "Evaluation", "Dataset", "CustomCell"):
            continue  # which the package makes
        with pytest.raises(TypeError, match=rf"^{name}\(\) has no argument 'zzz', only "):
            value(zzz=1)
    assert list(inspect.signature(penstock.train).parameters)[:3] == ["model", "data", "steps"]


def test_values_of_another_type(model, data):
    for call, text in [
        (lambda: penstock.Model(data, width="wide"), "width must be a whole number, not 'wide'"),
        (lambda: penstock.Model(data, width=16.0), "width must be a whole number, not 16.0"),
        (lambda: penstock.train(model, data, steps="10"), "steps must be a whole number, not '10'"),
        (lambda: penstock.train(model, data, learning_rate="fast"), "learning_rate must be a number, not 'fast'"),
        (lambda: penstock.open_series("x", horizon="7"), "horizon must be a whole number, not '7'"),
        (lambda: penstock.open_series("x", group=7), "group must be a str, not 7"),
        (lambda: penstock.Recurrent("lstm", "3", 4), "input_size must be a whole number, not '3'"),
    ]:
        with refused(TypeError, text):
            call()
    penstock.Model(data, width=np.int64(8), blocks=1, dropout=np.float32(0), hidden_size=0)


def test_what_is_no_dataset_and_no_model(model, data):
    for call, text in [
        (lambda: penstock.Model("a.csv"), "data must be a penstock.Dataset, which penstock.open_series('a.csv') returns, not str"),
        (lambda: penstock.Model("a.txt"), "data must be a penstock.Dataset, which penstock.open_text('a.txt') returns, not str"),
        (lambda: penstock.Model(np.zeros(3)), "data must be a penstock.Dataset, which penstock.open_series(...) returns, not ndarray"),
        (lambda: penstock.train(model, "a.csv"),
         "data must be a penstock.Dataset, which penstock.open_series('a.csv') returns, not str"),
        (lambda: penstock.evaluate(model, "a.csv"),
         "data must be a penstock.Dataset, which penstock.open_series('a.csv') returns, not str"),
        (lambda: penstock.train(data, model), "model must be a penstock.Model, not a Dataset: penstock.Model(data) makes one"),
        (lambda: penstock.train(model, model),
         "data must be a penstock.Dataset, not a Model: the model is the argument before it"),
        (lambda: penstock.Session("m"), "model must be a penstock.Model, which penstock.Model.load('m') returns, not str"),
        (lambda: model.predict(data), "inputs must be rows of numbers, a path or a table in memory, not Dataset"),
        (lambda: model.predict(None), "inputs must be rows of numbers, a path or a table in memory, not NoneType"),
    ]:  # fmt: skip
        with refused(TypeError, text):
            call()


@pytest.mark.parametrize("given, kind", [
    (np.zeros((3, 2)), "ndarray"), ([1, 2], "list of int"), ({"a": [1]}, "dict"), (None, "NoneType"), (3, "int"),
])  # fmt: skip
def test_what_is_no_path(given, kind):
    text = f"path must be a file, a list of files or a table in memory such as pandas.DataFrame, not {kind}"
    with refused(TypeError, text):
        penstock.open_series(given)


def test_one_column_may_be_named_by_itself(folder):
    path = folder / "series.csv"
    one = penstock.open_series(path, targets="level", inputs="flow", known="flow")
    assert one.description == penstock.open_series(path, targets=["level"], inputs=["flow"], known=["flow"]).description


def test_files_of_another_kind(folder):
    with pytest.raises(penstock.BadInput, match=r"it looks like a text: penstock.open_text\('.*text.txt'\) reads one$"):
        penstock.open_series(folder / "text.txt")
    with pytest.raises(penstock.BadInput, match=r"for each \"shop\", such as \"A\" and \"B\"; group='shop' reads each by itself"):
        penstock.open_series(folder / "long.csv")
    penstock.Model(penstock.open_text(folder / "text.txt"), width=8, blocks=1).save(folder / "m.csv")
    with pytest.raises(penstock.BadInput, match="this is a safetensors file, .*; penstock.Model.load reads a model$"):
        penstock.open_series(folder / "m.csv")
    with pytest.raises(penstock.BadInput, match="this is a program, not a table in text$"):
        penstock.open_series(sys.executable)
    with pytest.raises(penstock.IoFailure, match="not addresses: first: curl -Lo a.csv 'https://x.org/a.csv'$"):
        penstock.open_series("https://x.org/a.csv")


def test_addresses_to_write_to(model):
    with pytest.raises(penstock.IoFailure, match="write m, then: aws s3 cp m s3://bucket/m$"):
        model.save("s3://bucket/m")


def test_methods_that_a_model_does_not_have(model):
    with refused(AttributeError, "'Model' object has no attribute 'fit', did you mean penstock.train(model, data)?"):
        model.fit
    cell, page = penstock.MinGRUCell(1, 1), "docs/coming_from.md has more"
    for name, meant in (("process_sequence", 'mode="sequential"'), ("process_sequence_parallel", 'mode="scan"')):
        text = f"'MinGRUCell' object has no attribute '{name}': here it is cell.forward(x, {meant}); {page}"
        with refused(AttributeError, text):
            getattr(cell, name)
    with refused(AttributeError, "'MinGRUCell' object has no attribute 'zzz'"):
        cell.zzz  # noqa: B018
    with refused(AttributeError, "'Model' object has no attribute 'zzz'"):
        model.zzz


def test_names_and_arguments_of_other_libraries_lead_to_their_page():
    """Each with the line of ours; the page has their line beside it."""
    page = "docs/coming_from.md has more"
    text = (pathlib.Path(__file__).parents[2] / "docs" / "coming_from.md").read_text()
    for name in ("minGRULM", "heinsen_associative_scan_log", "parallel_scan", "MinGRUCellCUDA", "Bidirectional", "SimpleRNN"):
        with pytest.raises(AttributeError, match=rf"no attribute '{name}': here it is .*; {page}$"):
            getattr(penstock, name)
        assert name in text
    layer = penstock.Recurrent("lstm", 3, 4)
    for name in ("get_weights", "set_weights", "extract_scan_params"):
        with pytest.raises(AttributeError, match=rf"no attribute '{name}': here it is .*; {page}$"):
            getattr(layer, name)
        assert name in text
    for argument in ("return_sequences", "stateful", "go_backwards", "backend", "function", "return_state"):
        with pytest.raises(TypeError, match=rf"no argument '{argument}': here it is .*; {page}$"):
            penstock.Recurrent("lstm", 3, 4, **{argument: True})
        assert f"{argument}=" in text
    for argument in ("initial_state", "hx", "mask", "return_next_prev_hidden"):
        with pytest.raises(TypeError, match=rf"^forward\(\) has no argument '{argument}': here it is .*; {page}$"):
            layer.forward(np.zeros((2, 3), np.float32), **{argument: None})
    with refused(TypeError, "Recurrent() needs 'hidden_size': Recurrent(cell, input_size, hidden_size); "
                            "docs/coming_from.md has the lines of other packages"):  # fmt: skip
        penstock.Recurrent("lstm", 3)
    for kind in (penstock.MinGRUCell, penstock.MinLSTMCell):
        with refused(TypeError, f"{kind.__name__}() has no argument 'log_space': here it is candidate=\"positive\"; {page}"):
            kind(3, 4, candidate="positive", log_space=True)


def test_names_that_the_package_does_not_have():
    for name, text in [
        ("LSTM", "; penstock.torch has LSTM"),
        ("load", "; it is a method: penstock.Model.load"),
        ("load_model", "; it is a method: penstock.Model.load"),
        ("forecast", ", did you mean 'penstock.Model.predict'?"),
        ("trian", ", did you mean 'penstock.train'?"),
        ("minGRU", ": here it is penstock.torch.MinGRU; docs/coming_from.md has more"),
        ("CUDA_AVAILABLE", ": here it is penstock.cuda.is_available(); docs/coming_from.md has more"),
        ("zzz", ""),
    ]:
        with refused(AttributeError, f"module 'penstock' has no attribute '{name}'{text}"):
            getattr(penstock, name)
    torch = pytest.importorskip("penstock.torch")
    for name, text in [
        ("lstm", ", did you mean 'penstock.torch.LSTM'?"),
        ("sLSTM", ", did you mean 'penstock.torch.SLSTM'?"),
        ("LSTMcel", ", did you mean 'penstock.torch.LSTMCell'?"),
        ("Elman", ": here it is penstock.torch.RNN; docs/coming_from.md has more"),
        ("zzz", ""),
    ]:
        with refused(AttributeError, f"module 'penstock.torch' has no attribute '{name}'{text}"):
            getattr(torch, name)
    assert not hasattr(penstock, "__path_of_nothing__")


def test_warnings_name_the_line_of_the_caller(tmp_path):
    rows = [f"s{i},{'ab'[i % 2]},{(t if i % 2 else -t)}" for i in range(30) for t in range(5 + i % 4)]
    (tmp_path / "labelled.csv").write_text("sequence,label,x\n" + "\n".join(rows) + "\n")
    data = penstock.open_labelled(tmp_path / "labelled.csv")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        penstock.train(penstock.Model(data), data, progress=False, threads=1)
    assert [each.filename for each in said if "filters stand alone" in str(each.message)] == [__file__]
