"""What users read runs: the examples, the Python of the README and of the docs, and the docstrings."""

import doctest
import importlib
import pathlib
import re

import pytest

import penstock

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
MODULES = ["penstock", *(f"penstock.{name}" for name in ("csp", "cuda", "datasets", "equations", "interchange", "layers", "models", "quantization", "reference", "scans", "training", "variants"))]


# Arguments of an example; several, if it runs several times. Without them some would take minutes.
ARGUMENTS = {
    "clean_speech.py": [],  # test_clean_speech.py runs it
    "write_text.py": [["README.md", "1"]],
    "client.py": [["--help"]],  # test_serve_ray.py runs it
    "ray_train.py": [["README.md", "model.safetensors", "--steps", "3", "--device", "cpu"]],
    "train_language_model.py": [["README.md", "--size", "1m", "--steps", "2", "--batch", "2", "--length", "16", "--device", "cpu"]],
    "ppo_memory.py": [["cartpole", "--updates", "2"], ["repeat", "--updates", "2", "--layer", "MinGRU"]],
}
EXAMPLES = [
    pytest.param(example, arguments, id=f"{example.name} {' '.join(arguments)}".rstrip())
    for example in sorted((ROOT / "examples").rglob("*.py"))
    for arguments in ARGUMENTS.get(example.name, [[]])
]


@pytest.mark.parametrize("example, arguments", EXAMPLES)
def test_example(example, arguments, tmp_path, run_script):
    for package in re.findall(r"^(?:import|from) (torch|sklearn|optuna|matplotlib|ray|websockets)\b", example.read_text(), re.M):
        pytest.importorskip(package, reason=f"{package} is not installed")
    if "README.md" in arguments:
        (tmp_path / "README.md").write_bytes((ROOT / "README.md").read_bytes())
    result = run_script(example, *arguments)
    assert result.returncode == 0, result.stderr


def snippets():
    for page in PAGES:
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S)):
            yield pytest.param(code, id=f"{page.name}-{number}")


@pytest.mark.parametrize("code", list(snippets()))
def test_snippet(code, tmp_path, monkeypatch):
    if "torch" in code:
        pytest.importorskip("torch", minversion="2.10", reason="penstock.torch needs PyTorch 2.10")
    if 'device="cuda"' in code and not penstock.cuda.is_available():
        pytest.skip(f"there is no GPU: {penstock.cuda.why_not()}")
    for package in re.findall(r"^from (torchrl|sb3_contrib)\b", code, re.M):
        pytest.importorskip(package, reason=f"{package} is not installed")
    if "polars" in code:
        pytest.importorskip("polars", reason="Polars is not installed")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").symlink_to(ROOT / "data")  # pages are read, and their lines pasted, in a checkout
    exec(compile(code, "snippet", "exec"), {"__name__": "snippet"})


# A script of ours and its arguments, on a line of a page or in a sentence.
SCRIPT = re.compile(r"(?:python3?|torchrun [^\n`]*?) ?\b((?:bench|tools)/[\w/]+\.py)([^`|>#\n]*)")


def test_scripts_that_pages_start_have_their_options():
    found = [(page.name, *match) for page in PAGES for match in SCRIPT.findall(page.read_text())]
    assert {"bench/layers/torch_layers.py", "bench/layers/torch_distributed.py", "bench/layers/episode_layers.py"} <= {script for _, script, _ in found}
    for page, script, arguments in found:
        source = (ROOT / script).read_text()
        for option in re.findall(r"--[a-z-]+", arguments):
            assert f'"{option}"' in source, f"{page}: {script} {option}"


def test_what_a_call_costs_can_be_measured(run_script):
    pytest.importorskip("torch", minversion="2.10", reason="penstock.torch needs PyTorch 2.10")
    result = run_script(ROOT / "bench" / "layers" / "torch_layers.py", "--threads", "1", "--overhead", "--seconds", "0.001")
    assert result.returncode == 0, result.stderr
    assert re.search(r"^import penstock: [0-9.]+ ms$", result.stdout, re.M) and "us a call" in result.stdout


def test_layers_over_episodes_can_be_measured(run_script):
    pytest.importorskip("torchrl", reason="torchrl is not installed")
    result = run_script(ROOT / "bench" / "layers" / "episode_layers.py", "--seconds", "0.001", "--shapes", "2x8x4x8", "--backends", "pad")
    assert result.returncode == 0, result.stderr
    assert re.search(r"^\| LSTM 2x8x4x8 \| [0-9.]+ \(", result.stdout, re.M)


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    module = importlib.import_module(name)
    failed, tried = doctest.testmod(module)
    assert failed == 0


def test_docstrings_of_torch():
    pytest.importorskip("torch", minversion="2.10", reason="penstock.torch needs PyTorch 2.10")
    failed, tried = doctest.testmod(importlib.import_module("penstock.torch"))
    assert failed == 0 and tried > 3


def test_doctests_are_found():
    finder = doctest.DocTestFinder()
    tried = sum(len(test.examples) for name in MODULES for test in finder.find(importlib.import_module(name)))
    assert tried > 20


@pytest.mark.parametrize("module", ["penstock", "penstock.torch"])
def test_everything_public_has_a_docstring(module):
    if module == "penstock.torch":
        pytest.importorskip("torch", minversion="2.10", reason="penstock.torch needs PyTorch 2.10")
    module = importlib.import_module(module)
    for name in getattr(module, "__all__", dir(module)):
        value = getattr(module, name) if not name.startswith("_") and name != "torch" else None
        if not (callable(value) or isinstance(value, type)):
            continue
        assert value.__doc__, name
        for member, attribute in vars(value).items() if isinstance(value, type) else ():
            if not member.startswith("_") and (callable(attribute) or isinstance(attribute, property)):
                assert attribute.__doc__, f"{name}.{member}"
