#!/usr/bin/env bash
# Lays down the libraries that Penstock needs, as Debian builds them for arm64, in a folder for the cross-compiler. The
# machine's own packages and architectures stay as they are: apt keeps its lists for this in that folder too.
#
#   tools/arm64_sysroot.sh FOLDER [PACKAGE...]     PACKAGE: another package of Debian, such as libc6:arm64
set -euo pipefail
folder=$(realpath -m "${1:?usage: tools/arm64_sysroot.sh FOLDER [PACKAGE...]}")
shift

packages=(libfmt-dev:arm64 libfmt9:arm64 libhwy-dev:arm64 libhwy1:arm64 libdnnl-dev:arm64 libdnnl2:arm64
  libxxhash-dev:arm64 libxxhash0:arm64 zlib1g-dev:arm64 zlib1g:arm64 libgtest-dev:arm64 libgmock-dev:arm64 nlohmann-json3-dev libcli11-dev
  # oneDNN's CMake package looks for OpenCL.
  opencl-c-headers ocl-icd-opencl-dev:arm64 ocl-icd-libopencl1:arm64 "$@")
# Laid down again only when the list of packages has changed.
if [[ -f $folder/packages && $(<"$folder/packages") == "${packages[*]}" ]]; then exit 0; fi

echo "penstock: libraries for arm64, in $folder"
rm -rf "$folder"
mkdir -p "$folder"/apt/{lists,archives}/partial "$folder/debs"
apt=(apt-get -q -o Dpkg::Use-Pty=0 -o APT::Sandbox::User=root -o Debug::NoLocking=1
  -o Dir::State::lists="$folder/apt/lists" -o Dir::Cache::archives="$folder/apt/archives" -o Dir::Cache::pkgcache=
  -o Dir::Cache::srcpkgcache= -o APT::Architectures::="$(dpkg --print-architecture)" -o APT::Architectures::=arm64)
log=$folder/log
if ! { "${apt[@]}" update && cd "$folder/debs" && "${apt[@]}" download "${packages[@]}"; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "penstock: apt-get could not fetch the libraries for arm64" >&2
  exit 1
fi
for package in "$folder"/debs/*.deb; do dpkg -x "$package" "$folder"; done
rm -rf "$folder/apt" "$folder/debs"
echo "${packages[*]}" >"$folder/packages"
