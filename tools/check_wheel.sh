#!/usr/bin/env bash
# Checks wheels as an index and an installer see them: metadata, the platform that the name promises, and Python's stable
# ABI.
#   tools/check_wheel.sh PYTHON WHEEL...     PYTHON has twine, auditwheel and abi3audit
set -euo pipefail
python=$(realpath --no-symlinks "${1:?usage: tools/check_wheel.sh PYTHON WHEEL...}")
shift
: "${1:?usage: tools/check_wheel.sh PYTHON WHEEL...}"
PATH="$(dirname "$python"):$PATH"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
run() {
  "$python" -m "$@" >"$folder/log" 2>&1 || { cat "$folder/log" >&2; echo "check_wheel: $1 refuses it" >&2; exit 1; }
}

for wheel in "$@"; do
  name=$(basename "$wheel" .whl)
  run twine check --strict "$wheel"
  run auditwheel show "$wheel"
  grep -q "\"${name##*-}\"" "$folder/log" || {
    cat "$folder/log" >&2
    echo "check_wheel: auditwheel finds another platform than ${name##*-}" >&2
    exit 1
  }
  if [[ $name == *-abi3-* ]]; then
    run abi3audit --strict "$wheel"
  else  # the bindings are those of one version; the other extension serves all
    "$python" -m zipfile -e "$wheel" "$folder/wheel"
    run abi3audit --strict --assume-minimum-abi3 3.10 "$folder/wheel/penstock/_spin.so"
    rm -rf "$folder/wheel"
  fi
  echo "check_wheel: $name: twine, auditwheel and abi3audit find no fault"
done
