#!/usr/bin/env bash
# Formatting, the order of the layers, and clang-tidy over src/ and apps/ (headers through the sources that use them).
#   tools/lint.sh BUILD_DIR     a configured build folder, for its compile_commands.json
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: tools/lint.sh BUILD_DIR}

echo 'lint: clang-format'
git ls-files '*.h' '*.cc' '*.inl' | xargs clang-format --dry-run -Werror
echo 'lint: tools/check_deps.py'
tools/check_deps.py
echo 'lint: clang-tidy'
tools/tidy.py "$build"
