#!/usr/bin/env bash
# Builds the wheel of the Python package, with the shared libraries that it needs inside, into dist/.
#   tools/wheel.sh PYTHON [BUILD_DIR]
# PYTHON has what tests/python/requirements.txt names. With a BUILD_DIR of the presets `release` or `test` the library is
# not compiled again; without one everything is, in a folder of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(realpath --no-symlinks "${1:?usage: tools/wheel.sh PYTHON [BUILD_DIR]}")
build=${2:-}

options=()
if [[ -n $build ]]; then
  # The program that built the folder goes on. Another of Python's packages could not read its records and would build all again.
  make_program=$(sed -n 's/^CMAKE_MAKE_PROGRAM:[A-Z]*=//p' "$build/CMakeCache.txt" 2>/dev/null || true)
  # What is cached there stays: tests that vanish from the build would be compiled again.
  tests=$(sed -n 's/^PENSTOCK_TESTS:BOOL=//p' "$build/CMakeCache.txt" 2>/dev/null || true)
  options=(-C build-dir="$build" -C cmake.define.PENSTOCK_TESTS="${tests:-OFF}"
           ${make_program:+-C cmake.define.CMAKE_MAKE_PROGRAM="$make_program"})
fi
raw=$(mktemp -d)
trap 'rm -rf "$raw"' EXIT
"$python" -m pip wheel . --quiet --no-deps --no-build-isolation --disable-pip-version-check --wheel-dir "$raw" "${options[@]}"
rm -rf dist
# The names of libraries inside get a hash, so that they meet no others of the same process.
PATH="$(dirname "$python"):$PATH" "$python" -m auditwheel repair --wheel-dir dist "$raw"/*.whl >"$raw/log" 2>&1 || {
  cat "$raw/log" >&2
  exit 1
}
PATH="$(dirname "$python"):$PATH" "$python" tools/one_openmp.py dist/*.whl
PATH="$(dirname "$python"):$PATH" "$python" tools/wheel_licences.py dist/*.whl
tools/check_wheel.sh "$python" dist/*.whl
ls dist/*.whl
