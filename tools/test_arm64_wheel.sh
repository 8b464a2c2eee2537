#!/usr/bin/env bash
# Runs a wheel of `tools/wheel.sh --arm64` under an emulator and compares its results with those of x86-64 in tests/released:
# layers, a custom cell, a session and an imported network, on NumPy arrays.
#   tools/test_arm64_wheel.sh PYTHON WHEEL     PYTHON: this machine's own, whose pip fetches NumPy for arm64
set -euo pipefail
cd "$(dirname "$0")/.."
usage='usage: tools/test_arm64_wheel.sh PYTHON WHEEL'
python=${1:?$usage}
wheel=$(realpath "${2:?$usage}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
platforms=(--platform "$(basename "${wheel##*-}" .whl)")
for platform in manylinux_2_28_aarch64 manylinux_2_27_aarch64 manylinux2014_aarch64; do platforms+=(--platform "$platform"); done
"$python" -m pip install --quiet --disable-pip-version-check --python-version 3.11 "${platforms[@]}" --only-binary :all: \
  --target "$folder" "$wheel"

qemu-aarch64 -L build/arm64_wheel/sysroot "$folder/penstock/bin/penstock" --version
OMP_WAIT_POLICY=passive PYTHONPATH=$folder:tests/python:tests/cli build/arm64_wheel/python - <<'END'
import json
import platform

import numpy as np

import penstock
import released

folder = released.RELEASED / "0.1"
worst = 0.0
for case in ("cell", "layers", "network", "session"):
    expected = (folder / "answers" / f"{case}.jsonl").read_text().splitlines()
    for mine, theirs in zip(released.answers(folder, case), expected, strict=True):
        (name, answer), (other_name, other) = (*json.loads(mine).items(), *json.loads(theirs).items())
        assert name == other_name
        worst = max(worst, np.abs(np.subtract(answer, other)).max())
# At most 12 steps of sums of at most 16 terms: about 200 roundings of values of at most 1.
assert worst <= 200 * 2**-24, worst
print(f"test_arm64_wheel: {penstock.__file__} on {platform.machine()}: largest difference from x86-64 {worst:.1e}")
END
