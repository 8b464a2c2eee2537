#!/usr/bin/env bash
# Tests penstock.torch and NumPy arrays on the lowest versions that pyproject.toml allows and this Python has wheels of.
#   tools/test_lowest.sh [WHEEL]     a wheel of the package; by default that in dist/
# PyTorch and its libraries are a download of some gigabytes, which uv keeps.
set -euo pipefail
cd "$(dirname "$0")/.."
wheel=${1:-$(find dist -name '*.whl' | head -n 1)}
[[ -f $wheel ]] || { echo "test_lowest: no wheel in dist/: make python builds one" >&2; exit 1; }
venv=build/lowest
python3 -m venv --clear "$venv"
"$venv/bin/pip" install --quiet uv
install() { "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --only-binary :all: "$@"; }
# onnxscript takes any version of ml_dtypes, but fails with those before 0.5.
install --resolution lowest-direct --requirement pyproject.toml --extra torch --extra onnx 'ml_dtypes>=0.5'
"$venv/bin/uv" pip freeze --python "$venv/bin/python" | grep -E '^(numpy|onnx|torch)==' | tee "$venv/lowest.txt"
install --constraint "$venv/lowest.txt" "$wheel" pytest onnxruntime onnxscript
tests=(tests/python/test_{bindings,cells,pickle,interchange,torch_arrays,torch_layers,torch_onnx,torch_regularise}.py
       tests/python/test_torch_{session,trainer,transforms}.py)
OMP_WAIT_POLICY=passive "$venv/bin/python" -m pytest -q "${tests[@]}"
