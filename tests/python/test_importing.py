"""What importing and using the package loads: modules, shared libraries, settings of threads."""

import os
import re
import subprocess
import sys

import pytest

import penstock


IMPORTED = """
import pathlib, sys
import penstock
{use}
maps = pathlib.Path("/proc/self/maps")
paths = {{line.split()[-1] for line in maps.read_text().splitlines()}} if maps.exists() else set()
print(*(name.partition(".")[0] for name in sys.modules))
print(*(pathlib.Path(path).name for path in paths if path.startswith("/") and ".so" in path))
"""
HEAVY = {"torch", "tensorflow", "keras", "jax", "scipy", "pandas", "matplotlib", "onnx", "numba", "triton", "cupy"}
HEAVY_LIBRARIES = ("libcuda", "libcudart", "libnvrtc", "libcublas", "libcudnn", "libtorch", "libc10", "libpenstock_torch",
                   "libpenstock_jax")


def what_is_loaded(use):
    """Modules and shared libraries of a fresh interpreter that has imported penstock and run `use`."""
    script = IMPORTED.format(use=use)
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    modules, libraries = result.stdout.splitlines()
    return set(modules.split()), libraries.split()


def test_importing_opens_nothing_that_is_not_needed():
    modules, libraries = what_is_loaded("")
    assert "penstock" in modules
    assert not modules & (HEAVY | {"numpy", "dataclasses"})
    assert not [name for name in libraries if name.startswith(HEAVY_LIBRARIES)]


def test_using_cells_needs_numpy_alone():
    """NumPy comes with the first array. What is installed beside it stays where it is, and so does a GPU's driver."""
    use = "penstock.LSTMCell(3, 5).forward([[[0.0] * 3] * 4]); penstock.scan([[[0.5]]], [[[1.0]]])"
    modules, libraries = what_is_loaded(use)
    assert "numpy" in modules
    assert not modules & HEAVY
    assert any(name.startswith("libpenstock") for name in libraries) or not libraries
    assert not [name for name in libraries if name.startswith(HEAVY_LIBRARIES)]


def test_an_older_pytorch_is_refused_and_numpy_stays():
    script = """
import sys, types
sys.modules["torch"] = torch = types.ModuleType("torch")
torch.__version__ = "2.9.1+cpu"
import penstock
print(penstock.LSTMCell(3, 5).step([0.0, 0.0, 0.0]).shape)
try:
    import penstock.torch
except ImportError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    shape, message = result.stdout.splitlines()
    assert shape == "(2, 5)"
    assert message == "penstock.torch needs PyTorch 2.10 or later, not 2.9.1+cpu: pip install 'torch>=2.10'"


def test_cuda_says_what_is_missing():
    assert penstock.cuda.is_available() == (penstock.cuda.device_count() > 0) == (not penstock.cuda.why_not())
    with pytest.raises(IndexError):
        penstock.cuda.device_name(99)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of GNU's OpenMP")
@pytest.mark.parametrize("given", [{}, {"GOMP_SPINCOUNT": "7"}])
def test_threads_do_not_spin_for_long(given):
    """As libgomp says itself when it is loaded, and programs that are started later are left alone."""
    environment = {key: value for key, value in os.environ.items() if key not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    program = "import os, penstock; print(os.environ.get('GOMP_SPINCOUNT'))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment, **given, "OMP_DISPLAY_ENV": "verbose"},
        capture_output=True,
        text=True,
        check=True,
    )
    turns = int(re.search(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr)[1])
    # 40 us, of turns of some nanoseconds each
    assert turns == 7 if given else 40e-6 / 100e-9 < turns < 40e-6 / 0.5e-9
    assert done.stdout.strip() == str(given.get("GOMP_SPINCOUNT"))
