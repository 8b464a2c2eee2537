#!/usr/bin/env bash
# Builds the C runtime for other platforms by plain compiler lines, and compares its answers with those of this machine:
# an emulator runs what this machine cannot.
#   tools/test_runtime.sh WORK_DIR [PLATFORM...]    arm64, arm, riscv64, wasm, windows; without one, those whose
#                                                   compiler is there
# The compilers are Debian's g++-aarch64-linux-gnu, g++-arm-linux-gnueabihf, g++-riscv64-linux-gnu,
# g++-mingw-w64-x86-64-posix and clang with the packages that tools/wasm.sh names. The emulators are those of qemu-user
# and wine64; Node runs WebAssembly. Where one of the last two is missing, programs are linked and not run.
set -euo pipefail
cd "$(dirname "$0")/.."
work=${1:?usage: tools/test_runtime.sh WORK_DIR [PLATFORM...]}
shift
compiler_of() {
  case "$1" in
    native) echo c++ ;;
    arm64) echo aarch64-linux-gnu-g++ ;;
    arm) echo arm-linux-gnueabihf-g++ ;;
    riscv64) echo riscv64-linux-gnu-g++ ;;
    wasm) echo clang++ ;;
    windows) echo x86_64-w64-mingw32-g++-posix ;;
    *)
      echo "tools/test_runtime.sh: the platform must be arm64, arm, riscv64, wasm or windows, not '$1'" >&2
      exit 2
      ;;
  esac
}
options_of() {
  case "$1" in
    arm) echo -mfpu=neon-vfpv4 -mfp16-format=ieee -Wno-psabi ;;  # Highway has halves; a note for each call of the library
    wasm) echo --target=wasm32-wasi ;;
    windows) echo -D__USE_MINGW_ANSI_STDIO=1 ;;
  esac
}
emulator_of() {
  case "$1" in
    arm64) echo qemu-aarch64 ;;
    arm) echo qemu-arm ;;
    riscv64) echo qemu-riscv64 ;;
    wasm) if command -v node >/dev/null; then echo node --no-warnings tools/run_wasi.mjs; fi ;;
    windows) command -v wine64 /usr/lib/wine/wine64 | head -n 1 || true ;;  # Debian keeps it there
  esac
}

platforms=("$@")
if ((${#platforms[@]} == 0)); then
  for platform in arm64 arm riscv64 wasm windows; do
    read -ra options <<<"$(options_of "$platform")"
    if "$(compiler_of "$platform")" "${options[@]}" -x c++ -E -include algorithm /dev/null >/dev/null 2>&1; then
      platforms+=("$platform")
    fi
  done
fi
# -O2 takes a third longer to compile, and tests/core/runtime/check_library.py builds by it.
flags=(-std=c++20 -O1 -fno-exceptions -fno-rtti -ffp-contract=off -DHWY_COMPILE_ONLY_STATIC -I.)
models=(tests/released/0.1/{series,ensemble,own_cell,lstm,network}.safetensors)
mkdir -p "$work"
work=$(realpath "$work")
export WINEPREFIX=$work/wine WINEDEBUG=-all
tools/vendor.py "$work/vendored"
python3 -c 'for i in range(600): print((i * 7 % 23) / 4 + 1)' >"$work/rows"

# Compiles the vendored folder into $folder/runtime.a.
build_library() {
  local source job archiver=ar jobs=()
  for source in $(cd "$work/vendored" && echo penstock_*.cc); do
    (cd "$work/vendored" && "$compiler" "${flags[@]}" "${options[@]}" -c "$source" -o "$folder/${source%.cc}.o") &
    jobs+=($!)
    if ((${#jobs[@]} % 2 == 0)); then wait "${jobs[-2]}"; fi  # a few at a time
  done
  for job in "${jobs[@]}"; do wait "$job"; done
  rm -f "$folder/runtime.a"
  if [[ $compiler == *-g++* ]]; then archiver=${compiler%g++*}ar; fi
  "$archiver" rcs "$folder/runtime.a" "$folder"/penstock_*.o
}

for platform in native "${platforms[@]}"; do
  compiler=$(compiler_of "$platform")
  folder=$work/$platform
  mkdir -p "$folder"
  read -ra options <<<"$(options_of "$platform")"
  if [[ $platform == wasm ]]; then
    tools/wasm.sh "$folder"
    library=("$folder"/penstock_*.o)
  else
    build_library
    library=("$folder/runtime.a")
  fi
  case "$platform" in
    windows) end=.exe ;;
    wasm) end=.wasm ;;
    *) end= ;;
  esac
  for program in stream network; do
    "$compiler" -x c -std=c11 "${options[@]}" -I"$work/vendored" -c "examples/runtime/$program.c" -o "$folder/$program.o"
    "$compiler" "${options[@]}" -static -s "$folder/$program.o" "${library[@]}" -o "$folder/$program$end"
  done
  read -ra emulator <<<"$(emulator_of "$platform")"
  if [[ -n $end && ${#emulator[@]} == 0 ]]; then
    echo "runtime: $platform: linked, $(stat -c %s "$folder/stream$end") bytes; there is no wine64 or node to run it"
    continue
  fi
  # Without fused multiply-add, as native here, only the order of sums differs.
  tolerance=2e-5
  if [[ $platform == wasm ]]; then tolerance=1e-6; fi
  for model in "${models[@]}"; do
    program=stream
    if [[ $model == */network.safetensors ]]; then program=network; fi
    answers=$(basename "$model").answers
    "${emulator[@]}" "$folder/$program$end" "$model" <"$work/rows" 2>"$folder/errors" | tr -d '\r' >"$folder/$answers"
    python3 - "$work/native/$answers" "$folder/$answers" "$tolerance" <<'PYTHON'
import sys
want, got = ([float(word) for word in open(name).read().split()] for name in sys.argv[1:3])
if not want or len(want) != len(got):
    sys.exit(f"{len(got)} answers instead of {len(want)}")
for mine, theirs in zip(got, want):
    if not abs(mine - theirs) <= float(sys.argv[3]) * max(1.0, abs(theirs)):
        sys.exit(f"{mine} instead of {theirs}")
PYTHON
  done
  if [[ $platform == wasm ]]; then
    PENSTOCK_WORK=$work node --test tests/web/test_penstock.mjs >"$folder/tests" || { cat "$folder/tests"; exit 1; }
  fi
  echo "runtime: $platform: ${#models[@]} models, $(stat -c %s "$folder"/{stream,network}"$end" | paste -s -d' ') bytes, all of the C library in them"
done
