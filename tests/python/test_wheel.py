"""The wheel of `make wheel`, installed into an empty virtual environment and used as a stranger would use it."""

import email
import json
import pathlib
import re
import shutil
import subprocess
import sys
import venv
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel():
    wheels = list((ROOT / "dist").glob("penstock_rnn-*.whl"))
    assert len(wheels) == 1, "there must be one wheel in dist/: make wheel"
    return wheels[0]


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """The folder bin/ of a virtual environment with the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("wheel") / "environment"
    venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", wheel], check=True)
    return folder / "bin"


def run(*command, cwd):
    """Runs a command with no environment of ours, so that nothing is found that is not installed."""
    result = subprocess.run(
        list(map(str, command)), cwd=cwd, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def metadata_of(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    return email.message_from_bytes(archive.read(name))


def test_its_name_says_what_it_runs_on(wheel):
    own = f"cp{sys.version_info.major}{sys.version_info.minor}"
    python = "cp312-abi3" if sys.version_info >= (3, 12) else f"{own}-{own}"
    assert re.fullmatch(rf"penstock_rnn-[0-9.]+-{python}-manylinux_2_\d+_\w+\.whl", wheel.name)


def test_it_has_its_shared_libraries_inside(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert any(re.match(r"penstock_rnn\.libs/libdnnl-", name) for name in names)
    assert [name for name in names if ".libs/" in name and "libgomp" in name] == ["penstock_rnn.libs/libgomp.so.1"]  # shared with PyTorch
    assert {"penstock/libpenstock.so", "penstock/bin/penstock", "penstock/py.typed"} <= set(names)


def test_it_has_one_copy_of_the_library(wheel):
    sizes = {entry.filename: entry.file_size for entry in zipfile.ZipFile(wheel).infolist()}
    assert sizes["penstock/bin/penstock"] < sizes["penstock/libpenstock.so"] / 2


def test_it_has_the_licences_of_what_it_passes_on(wheel):
    archive = zipfile.ZipFile(wheel)
    libraries = {name.rpartition("/")[2] for name in archive.namelist() if ".libs/" in name} - {""}
    terms = [name for name in archive.namelist() if "/licenses/third_party/" in name and name.endswith(".txt")]
    texts = {name.rpartition("/")[2]: archive.read(name).decode() for name in terms}
    assert libraries == {text.partition("\n")[0] for text in texts.values()} & libraries and libraries
    assert {"nanobind.txt", "libhwy-dev.txt", "nlohmann-json3-dev.txt", "libcli11-dev.txt"} <= set(texts)
    assert all("opyright" in text for text in texts.values())


def test_its_metadata_name_what_else_it_can_use(wheel):
    metadata = metadata_of(wheel)
    asked = {}
    for line in metadata.get_all("Requires-Dist"):
        requirement, _, condition = (part.strip() for part in line.partition(";"))
        extra = re.fullmatch(r"""extra\s*==\s*["']([a-z]+)["']""", condition)
        assert extra or not condition, line
        asked.setdefault(extra.group(1) if extra else None, set()).add(requirement.replace(" ", ""))
    assert asked == {
        None: {"numpy>=1.23"},
        "torch": {"torch>=2.10"},
        "jax": {"jax>=0.8"},
        "cuda": {"nvidia-cuda-nvrtc", "nvidia-cublas"},
        "report": {"matplotlib"},
        "keras": {"h5py"},
        "serve": {"ray[serve]"},
    }
    assert set(metadata.get_all("Provides-Extra")) == set(asked) - {None}
    assert metadata["Requires-Python"] == ">=3.10"


def test_what_is_said_of_extras_names_those_there_are(wheel):
    """`pip install '.[torch]'` on pages. Messages name the package that is missing: `penstock` on the index is another."""
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    code = [*ROOT.glob("python/**/*.py"), *ROOT.glob("python/src/*/*"), *ROOT.glob("apps/**/*.*")]
    assert not [path for path in code if re.search(r"pip install '?penstock\b", path.read_text())]
    said = {name for path in pages for name in re.findall(r"'\.\[([a-z]+)\]", path.read_text())}
    assert said == set(metadata_of(wheel).get_all("Provides-Extra"))


def test_it_asks_for_numpy_alone(environment, tmp_path):
    script = "import sys, penstock; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    modules = run(environment / "python", "-c", script, cwd=tmp_path).split()
    installed = {"matplotlib", "nanobind", "nvidia", "scipy", "torch"}
    assert "penstock" in modules and not installed & set(modules)


def test_the_torch_face_says_what_it_needs(environment, tmp_path):
    script = """
import penstock
try:
    penstock.torch
except ModuleNotFoundError as error:
    assert error.name == "torch"
    print(error)
"""
    message = run(environment / "python", "-c", script, cwd=tmp_path).strip()
    assert message == "penstock.torch needs PyTorch 2.10 or later: pip install 'torch>=2.10'"


def test_cells_compute(environment, tmp_path):
    script = """
import numpy as np, penstock
cell = penstock.LSTMCell(3, 5)
x = np.random.default_rng(0).standard_normal((2, 7, 3), np.float32)
y, last = cell.forward(x)
state = None
for t in range(7):
    state = cell.step(x[:, t], state)
    assert (state[0] == y[:, t]).all()
assert (state == last).all()
"""
    run(environment / "python", "-c", script, cwd=tmp_path)


def test_the_notebook_installs_it_from_a_file(wheel, tmp_path):
    cells = json.loads((ROOT / "docs" / "tutorial.ipynb").read_text())["cells"]
    install = next("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    venv.create(tmp_path / "environment", with_pip=True)
    shutil.copy(wheel, tmp_path)
    python = tmp_path / "environment" / "bin" / "python"
    run(python, "-c", install + "\nimport penstock", cwd=tmp_path)
    assert run(python, "-c", "import penstock, matplotlib; print(penstock.__file__)", cwd=tmp_path).startswith(str(tmp_path))


def test_the_program_comes_with_it(environment, tmp_path):
    assert run(environment / "penstock", "--version", cwd=tmp_path).startswith("penstock ")
    (tmp_path / "text.txt").write_text("In the beginning was the word. " * 40)
    run(
        environment / "penstock",
        "train",
        "text.txt",
        "--steps",
        2,
        "--width",
        8,
        "--blocks",
        1,
        "--quiet",
        "-o",
        "model.safetensors",
        cwd=tmp_path,
    )
    assert (tmp_path / "model.safetensors").exists()


def test_the_source_distribution_has_all_that_a_build_reads(tmp_path):
    # The builder looks at every file below the root one by one: build/ holds 70,000 that it leaves out.
    sources = tmp_path / "sources"
    left_out = {str(ROOT): {"build", "dist", ".git"}}
    shutil.copytree(ROOT, sources, symlinks=True, ignore=lambda folder, names: left_out.get(str(folder), set()))
    subprocess.run(
        [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path, sources],
        check=True,
        capture_output=True,
    )
    (archive,) = tmp_path.glob("penstock_rnn-*.tar.gz")
    import tarfile

    names = {name.partition("/")[2] for name in tarfile.open(archive).getnames()}
    for pattern in (
        "CMakeLists.txt",
        "cmake/*",
        "include/**/*.h",
        "src/**/*.*",
        "bench/**/*.*",
        "oracle/*.h",
        "apps/**/*.*",
        "python/**/*.py",
        "python/src/*/*",
    ):
        wanted = {str(path.relative_to(ROOT)) for path in ROOT.glob(pattern) if path.is_file()}
        wanted = {name for name in wanted if "__pycache__" not in name}
        assert wanted and wanted <= names, sorted(wanted - names)
