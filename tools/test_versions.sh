#!/usr/bin/env bash
# Tests penstock.torch, NumPy arrays and ONNX on the lowest versions of other packages that pyproject.toml allows and this
# Python has wheels of, or on the newest; or penstock.jax on the lowest JAX, which needs a later NumPy than PyTorch does.
#   tools/test_versions.sh lowest|newest|lowest-jax [WHEEL]     a wheel of the package; by default that in dist/
# The Python is the python3 of the PATH. PyTorch and its libraries are a download of some gigabytes, which uv keeps.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=(--extra torch 'onnx>=1.17')
others=(onnxruntime onnxscript)
tests=(tests/python/test_{bindings,cells,hub,pickle,interchange,torch_arrays,torch_layers,torch_onnx,torch_regularise}.py
       tests/python/test_torch_{session,trainer,transforms}.py)
case "${1:-}" in
  # onnxscript takes any version of ml_dtypes, but fails with those before 0.5.
  lowest) choose=(--resolution lowest-direct 'ml_dtypes>=0.5') ;;
  newest) choose=(--upgrade) ;;
  lowest-jax)
    choose=(--resolution lowest-direct)
    packages=(--extra jax)
    others=(equinox flax)
    tests=(tests/python/test_jax.py tests/python/test_jax_errors.py)
    ;;
  *)
    echo "usage: tools/test_versions.sh lowest|newest|lowest-jax [WHEEL]" >&2
    exit 2
    ;;
esac
wheel=${2:-$(find dist -name '*.whl' | head -n 1)}
[[ -f $wheel ]] || { echo "test_versions: no wheel in dist/: make python builds one" >&2; exit 1; }
venv=build/$1
python3 -m venv --clear "$venv"
"$venv/bin/pip" install --quiet uv
install() { "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --only-binary :all: "$@"; }
install --requirement pyproject.toml "${packages[@]}" "${choose[@]}"
"$venv/bin/python" --version
"$venv/bin/uv" pip freeze --python "$venv/bin/python" | grep -E '^(jax|jaxlib|numpy|onnx|torch)==' | tee "$venv/chosen.txt"
install --constraint "$venv/chosen.txt" "$wheel" pytest "${others[@]}"
PENSTOCK_BIN=$PWD/$venv/bin/penstock OMP_WAIT_POLICY=passive "$venv/bin/python" -m pytest -q "${tests[@]}"
