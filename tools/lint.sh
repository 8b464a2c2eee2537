#!/usr/bin/env bash
# Formatting, the order of the layers, and clang-tidy over src/, bench/ and apps/ (headers through the sources that use them).
#   tools/lint.sh BUILD_DIR     a configured build folder, for its compile_commands.json
set -euo pipefail
cd "$(dirname "$0")/.."
export build=${1:?usage: tools/lint.sh BUILD_DIR}

echo 'lint: clang-format'
git ls-files '*.h' '*.cc' '*.inl' | xargs clang-format --dry-run -Werror
echo 'lint: tools/check_deps.py'
tools/check_deps.py
echo 'lint: clang-tidy'
tidy() {
  clang-tidy --quiet -p "$build" "$1" 2>&1 | sed -E '/^[0-9]+ warnings? (treated|generated)/d' >&2
}
export -f tidy
git ls-files 'src/*.cc' 'bench/*.cc' 'apps/*.cc' | xargs -P "$(nproc)" -I{} bash -o pipefail -c 'tidy {}'
