"""Models of files that are trained on a GPU from Python: the answers of those of a CPU."""

import numpy as np
import pytest

import penstock

if not penstock.cuda.is_available():
    pytest.skip(f"there is no GPU: {penstock.cuda.why_not()}", allow_module_level=True)


def series(rows):
    drawn = np.random.default_rng(4)
    return "x\n" + "".join(f"{20 + 5 * np.sin(t / 6) + drawn.normal():.3f}\n" for t in range(rows))


def labelled(sequences):
    drawn = np.random.default_rng(5)
    rows = ["sequence,label,x"]
    for i in range(sequences):
        rows += [f"{i},{'ab'[i % 2]},{np.sin((1 + i % 2) * t / 4) + drawn.normal():.3f}" for t in range(24)]
    return "\n".join(rows) + "\n"


@pytest.mark.filterwarnings("ignore:too few sequences")
@pytest.mark.parametrize("kind", ["series", "labels", "filters alone"])
def test_files(kind, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(series(1100) if kind == "series" else labelled(200 if kind == "labels" else 30))
    answers = {}
    for trained, other in (("cpu", "cuda"), ("cuda", "cpu")):
        data = penstock.open_series(path, horizon=6) if kind == "series" else penstock.open_labelled(path)
        model = penstock.Model(data)
        penstock.train(model, data, steps=40, device=trained, progress=False)
        answers[trained] = model.predict(path, device=trained)
        np.testing.assert_allclose(model.predict(path, device=other), answers[trained], rtol=1e-4, atol=1e-4)
    # Sums of another order in every step of the training.
    np.testing.assert_allclose(answers["cuda"], answers["cpu"], rtol=2e-3, atol=2e-3)
