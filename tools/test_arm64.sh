#!/usr/bin/env bash
# Runs what was cross-compiled for arm64 under an emulator: tests, and the program, which trains and lets a model write.
#   tools/test_arm64.sh BUILD_DIR PENSTOCK TEST...     PENSTOCK: this machine's own program
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
usage='usage: tools/test_arm64.sh BUILD_DIR PENSTOCK TEST...'
build=$(cd "${1:?$usage}" && pwd)
native=$(realpath "${2:?$usage}")
shift 2
sysroot=$(sed -n 's/^ARM64_SYSROOT:[A-Z]*=//p' "$build/CMakeCache.txt")
emulate=(qemu-aarch64 -L /usr/aarch64-linux-gnu -E OMP_WAIT_POLICY=passive
  -E "LD_LIBRARY_PATH=$sysroot/usr/lib/aarch64-linux-gnu:/usr/aarch64-linux-gnu/lib")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

run_test() {
  echo "arm64: $1"
  "${emulate[@]}" "$build/tests/$1" --gtest_brief=1 >"$folder/$1.log" 2>&1 || { cat "$folder/$1.log"; return 1; }
}

train_and_write() {
  echo "arm64: penstock trains, and its model writes there what it writes here"
  head -c 20000 "$root/data/kjv.txt" >"$folder/text"
  "${emulate[@]}" "$build/penstock" train "$folder/text" --output "$folder/model.safetensors" --steps 60 --batch 4 \
    --length 64 --width 32 --blocks 1 --quiet
  local write=(generate "$folder/model.safetensors" --prompt 'In the ' --bytes 60 --temperature 0)
  "${emulate[@]}" "$build/penstock" "${write[@]}" >"$folder/there"
  "$native" "${write[@]}" >"$folder/here"
  cmp "$folder/there" "$folder/here"
  (($(wc -c <"$folder/there") >= 60))
}

train_and_write &
jobs=($!)
for test in "$@"; do
  run_test "$test" &
  jobs+=($!)
done
for job in "${jobs[@]}"; do wait "$job"; done
