#!/usr/bin/env bash
# Builds the wheel of the Python package, with the shared libraries that it needs inside, into dist/.
#   tools/wheel.sh PYTHON [BUILD_DIR]
#   tools/wheel.sh --arm64 PYTHON
# PYTHON has what tests/python/requirements.txt names. With a BUILD_DIR of the presets `release` or `test` the library is
# not compiled again; without one everything is, in a folder of its own. With --arm64 Debian's cross-compiler builds the
# wheel against Debian's libraries and Python 3.11 for arm64, in build/arm64_wheel; PYTHON is a 3.11 too.
# tools/test_arm64_wheel.sh tests that wheel.
set -euo pipefail
cd "$(dirname "$0")/.."
usage='usage: tools/wheel.sh [--arm64] PYTHON [BUILD_DIR]'
arm64=
if [[ ${1:-} == --arm64 ]]; then
  arm64=on
  shift
fi
python=$(realpath --no-symlinks "${1:?$usage}")
build=${2:-}

options=()
repair=()
if [[ -n $arm64 ]]; then
  "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
    echo "wheel.sh: --arm64 needs Python 3.11, as Debian 12 has for arm64, not $("$python" --version)" >&2
    exit 1
  }
  sysroot=$PWD/build/arm64_wheel/sysroot
  # The emulator runs this Python at the end of the build, which writes the types of the bindings to a file.
  tools/arm64_sysroot.sh "$sysroot" {libpython3.11-{dev,minimal,stdlib},python3.11-minimal,libexpat1{,-dev}}:arm64 \
    {libc6,libstdc++6,libgcc-s1,libgomp1,libffi8,libssl3,libbz2-1.0,liblzma5}:arm64
  printf '#!/bin/sh\nexec qemu-aarch64 -L %q %q "$@"\n' "$sysroot" "$sysroot/usr/bin/python3.11" >build/arm64_wheel/python
  chmod +x build/arm64_wheel/python
  PYTHONPATH=$("$python" -c 'import pathlib, nanobind; print(pathlib.Path(nanobind.__file__).parents[1])')
  # Debian's pyconfig.h includes that of the architecture by its path below /usr/include.
  export PYTHONPATH CXXFLAGS="-idirafter $sysroot/usr/include"
  export _PYTHON_HOST_PLATFORM=linux-aarch64 SETUPTOOLS_EXT_SUFFIX=.cpython-311-aarch64-linux-gnu.so
  options=(-C build-dir=build/arm64_wheel/build -C cmake.define.CMAKE_TOOLCHAIN_FILE="$PWD/cmake/arm64.cmake"
           -C cmake.define.ARM64_SYSROOT="$sysroot" -C cmake.define.Python_EXECUTABLE="$PWD/build/arm64_wheel/python"
           -C cmake.define.Python_INCLUDE_DIR="$sysroot/usr/include/python3.11"
           -C cmake.define.ZLIB_LIBRARY="$sysroot/lib/aarch64-linux-gnu/libz.so.1")
  repair=(--ldpaths "$sysroot/usr/lib/aarch64-linux-gnu:$sysroot/lib/aarch64-linux-gnu")
elif [[ -n $build ]]; then
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
PATH="$(dirname "$python"):$PATH" "$python" -m auditwheel repair "${repair[@]}" --wheel-dir dist "$raw"/*.whl >"$raw/log" 2>&1 || {
  cat "$raw/log" >&2
  exit 1
}
PATH="$(dirname "$python"):$PATH" "$python" tools/one_openmp.py dist/*.whl
PATH="$(dirname "$python"):$PATH" "$python" tools/wheel_licences.py dist/*.whl
tools/check_wheel.sh "$python" dist/*.whl
ls dist/*.whl
