#!/usr/bin/env bash
# Builds the C runtime for browsers and Node: FOLDER/penstock.wasm, beside its sources and objects. docs/browser.md is
# the manual of what to do with it.
#   tools/wasm.sh FOLDER
# The compiler is clang with wasm-ld, and Debian's wasi-libc, libc++-16-dev-wasm32, libc++abi-16-dev-wasm32 and
# libclang-rt-14-dev-wasm32 (tools/setup.sh portable installs them).
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:?usage: tools/wasm.sh FOLDER}
mkdir -p "$folder"
folder=$(realpath "$folder")
tools/vendor.py "$folder/vendored"
target=(--target=wasm32-wasi -msimd128)
flags=(-std=c++20 -fno-exceptions -fno-rtti -ffp-contract=off -DHWY_COMPILE_ONLY_STATIC -I.)

objects=()
jobs=()
cd "$folder/vendored"
for source in penstock_networks.cc $(ls penstock_*.cc | grep -v penstock_networks); do  # the longest first
  object=$folder/${source%.cc}.o
  optimise=-Os
  if [[ $source == *_kernels.cc ]]; then optimise=-O2; fi
  clang++ "${target[@]}" "${flags[@]}" "$optimise" -c "$source" -o "$object" &
  objects+=("$object")
  jobs+=($!)
  if ((${#jobs[@]} > 2)); then wait "${jobs[-3]}"; fi  # a few at a time
done
for job in "${jobs[@]}"; do wait "$job"; done

# Every call of the header but those that open a path: there are no files.
calls=$(sed -nE 's/^PENSTOCK_API.*[ *](penstock_[a-z0-9_]+)\(.*/\1/p' penstock.h |
  grep -vE '^penstock_(int8_)?(model|network)_open$')
exports=()
for call in $calls malloc free; do exports+=("-Wl,--export=$call"); done
# The stack comes first: one that is too deep ends the program rather than writing over data.
clang++ "${target[@]}" -mexec-model=reactor -s -Wl,--stack-first,-z,stack-size=1048576 "${exports[@]}" \
  "${objects[@]}" -o "$folder/penstock.wasm"
echo "penstock.wasm: $(stat -c %s "$folder/penstock.wasm") bytes, $(gzip -9c "$folder/penstock.wasm" | wc -c) by gzip"
