#!/usr/bin/env bash
# Makes this machine ready: installs the Debian packages that are missing, as root or through sudo, and nothing when
# all is there.
#
#   tools/setup.sh build    what the library and the program need (default)
#   tools/setup.sh test     that, and what the tests and the linters need
#   tools/setup.sh portable that, and clang's fuzzer, cross-compilers for arm64, arm, RISC-V, WebAssembly and Windows,
#                           an emulator, Node and Wine (Debian 12's names)
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ cmake ninja-build libfmt-dev nlohmann-json3-dev libcli11-dev libhwy-dev libdnnl-dev libxxhash-dev zlib1g-dev
  # Debian's oneDNN looks for the OpenCL headers whenever CMake looks for oneDNN.
  ocl-icd-opencl-dev)
tools=(c++ cmake ninja)
modules="include($PWD/cmake/PenstockDependencies.cmake)"
purpose=${1:-build}
case "$purpose" in
  build) ;;
  test | portable)
    # libomp-dev: clang-tidy reads our OpenMP code and wants clang's <omp.h>. lld links the tests, where it is there.
    packages+=(libgtest-dev libgmock-dev libsndfile1 clang-format clang-tidy libomp-dev lld git python3 python3-venv lv2-dev lilv-utils)
    tools+=(clang-format clang-tidy git python3)
    modules+=$'\nfind_package(GTest REQUIRED)'
    if [[ $purpose == portable ]]; then
      packages+=(clang libclang-rt-14-dev g++-aarch64-linux-gnu g++-arm-linux-gnueabihf g++-riscv64-linux-gnu qemu-user
        libc++-16-dev-wasm32 libclang-rt-14-dev-wasm32 nodejs g++-mingw-w64-x86-64-posix wine64)
      tools+=(clang++ aarch64-linux-gnu-g++ arm-linux-gnueabihf-g++ riscv64-linux-gnu-g++ qemu-aarch64 wasm-ld node
        x86_64-w64-mingw32-g++-posix)
    fi
    ;;
  *)
    echo "tools/setup.sh: the argument must be build, test or portable, not '$1'" >&2
    exit 2
    ;;
esac

missing_packages() {
  local installed
  installed=" $(dpkg-query -W -f '${db:Status-Status}=${binary:Package} ' "${packages[@]}" 2>/dev/null || true) "
  for package in "${packages[@]}"; do
    [[ $installed =~ \ installed=${package//+/\\+}(:[a-z0-9-]+)?\  ]] || echo "$package"
  done
}

# Is everything installed? Asks the compiler and CMake, as the build will. Prints what is not.
probe() {
  local tool folder status=0
  for tool in "${tools[@]}"; do
    command -v "$tool" >/dev/null || { echo "no $tool on the PATH"; status=1; }
  done
  ((status == 0)) || return 1
  if [[ " ${tools[*]} " == *" python3 "* ]] && ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    echo "python3 cannot make virtual environments"
    return 1
  fi
  folder=$(mktemp -d)
  printf 'cmake_minimum_required(VERSION 3.22)\nproject(probe CXX)\n%s\n' "$modules" >"$folder/CMakeLists.txt"
  cmake -S "$folder" -B "$folder/build" -G Ninja >/dev/null 2>"$folder/errors" || status=1
  sed -nE '/^CMake finds no /p; s/.*Could NOT find ([A-Za-z0-9_]+).*/CMake finds no \1/p' "$folder/errors"
  rm -rf "$folder"
  return "$status"
}

if command -v dpkg-query >/dev/null; then
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]} > 0)) || exit 0
else
  missing=("${packages[@]}")
fi
if report=$(probe); then exit 0; fi

give_up() {
  {
    echo "penstock: $1"
    [[ -z $report ]] || sed 's/^/  /' <<<"$report"
    echo "Install these (Debian's names; g++ 11, CMake 3.22, Highway 1.0 and oneDNN 2.6 or newer), then run make again:"
    echo "  ${missing[*]}"
  } >&2
  exit 1
}

lacking="something that the build needs is missing, and there is"
command -v apt-get >/dev/null || give_up "$lacking no apt-get to install it with."
as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null || give_up "$lacking neither root nor sudo to install it with."
  as_root=(sudo)
fi

echo "penstock: installing ${missing[*]}"
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } 2>&1 |
  tee "$log" | sed -un 's/^\(Need to get\|Fetched\|After this\)/  &/p'; then
  tail -n 20 "$log" >&2
  give_up "apt-get could not install what is missing."
fi
report=$(probe) || give_up "the packages are installed, but the build would still not find everything."
