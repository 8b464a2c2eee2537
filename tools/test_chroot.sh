#!/usr/bin/env bash
# Installs a wheel in a minimal Debian 12 without a compiler and without a network, and runs the README's first snippet there,
# within 60 seconds. It needs root and debootstrap, and says so where they are not there.
#   tools/test_chroot.sh WHEEL PYTHON [FOLDER]
# The wheel is one of Python 3.11, which Debian 12 has. PYTHON is of that version too: its PyTorch and the packages beside
# it are lent to the chroot. FOLDER keeps the Debian for the next time [build/chroot].
set -euo pipefail
cd "$(dirname "$0")/.."
usage='usage: tools/test_chroot.sh WHEEL PYTHON [FOLDER]'
wheel=$(realpath "${1:?$usage}")
python=$(realpath --no-symlinks "${2:?$usage}")
root=$(realpath -m "${3:-build/chroot}")
if ((EUID != 0)) || ! command -v debootstrap >/dev/null; then
  echo "test_chroot: not run, as it needs root and debootstrap"
  exit 0
fi
# Mounts end with the process.
if [[ -z ${PENSTOCK_OWN_MOUNTS:-} ]]; then PENSTOCK_OWN_MOUNTS=1 exec unshare --mount "$0" "$wheel" "$python" "$root"; fi

if [[ ! -f $root/ready ]]; then
  rm -rf "$root"
  mkdir -p "$root"
  debootstrap --variant=minbase --include=python3-venv bookworm "$root" >"$root.log" 2>&1 || { tail -n 20 "$root.log" >&2; exit 1; }
  touch "$root/ready"
fi
for compiler in cc c++ gcc g++ clang; do
  if chroot "$root" which "$compiler" >/dev/null; then echo "test_chroot: the chroot has a compiler: $compiler" >&2; exit 1; fi
done

work=$root/work
rm -rf "$work"
mkdir -p "$work/wheels" "$work/lent"
"$python" -m pip download --quiet --disable-pip-version-check --dest "$work/wheels" "$wheel"
awk '/^```$/ && on {exit} on {print} /^```python$/ {on = 1}' README.md >"$work/snippet.py"
echo 'print(penstock.__file__, tuple(y.shape), tuple(h.shape))' | sed '1i import penstock' >>"$work/snippet.py"
site=$("$python" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])')
mount --bind "$site" "$work/lent"
for folder in proc sys dev; do mount --rbind "/$folder" "$root/$folder"; done

begin=$(date +%s)
# The lent packages come last, so that what is installed is found first.
timeout 60 unshare --net chroot "$root" /bin/sh -euc '
  python3 -m venv /work/environment
  /work/environment/bin/pip install --quiet --no-index --find-links /work/wheels penstock-rnn
  echo /work/lent >"$(echo /work/environment/lib/python3*/site-packages)/lent.pth"
  cd /work && environment/bin/python snippet.py && environment/bin/penstock --version
' || { echo "test_chroot: the snippet failed, or took more than 60 seconds" >&2; exit 1; }
echo "test_chroot: installed and run in $(($(date +%s) - begin)) seconds"
