#!/usr/bin/env bash
# Tests penstock.serve with Ray Serve and Triton's schema, which CI does without: 390 MB of packages, and a minute.
#   tools/test_serving.sh [WHEEL]     a wheel of the package; by default that in dist/
# The Python is the python3 of the PATH.
set -euo pipefail
cd "$(dirname "$0")/.."
wheel=${1:-$(find dist -name '*.whl' | head -n 1)}
[[ -f $wheel ]] || { echo "test_serving: no wheel in dist/: make wheel builds one" >&2; exit 1; }
venv=build/serving
python3 -m venv --clear "$venv"
"$venv/bin/pip" install --quiet "$wheel" 'ray[serve]' websockets tritonclient 'protobuf>=6.30' onnx onnxruntime pytest pytest-timeout pyyaml
OMP_WAIT_POLICY=passive "$venv/bin/python" -m pytest -q -rs tests/python/test_serve_*.py
