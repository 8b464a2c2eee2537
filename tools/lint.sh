#!/usr/bin/env bash
# Formatting, the order of the layers, prose and spelling, workflows and the Dockerfile, and clang-tidy over all our
# sources but tests (headers through those that use them).
#   tools/lint.sh BUILD_DIR     a configured build folder, for its compile_commands.json
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: tools/lint.sh BUILD_DIR}

# Every version formats a little differently and finds other things: the one of Debian 12, on which CI runs, decides.
wanted=14
version_of() { "$1" --version | sed -nE 's/.*version ([0-9]+)\..*/\1/p' | head -n 1; }
decides() {
  local version
  version=$(version_of "$1")
  [[ $version == "$wanted" ]] || echo "lint: $1 $version is not asked: what version $wanted says decides"
  [[ $version == "$wanted" ]]
}

echo 'lint: tools/check_deps.py'
tools/check_deps.py
echo 'lint: tools/check_prose.py'
tools/check_prose.py
# Prints the path of a program, in build/venv or elsewhere. Fails if there is none, after a line that says so.
find_or_say() {
  command -v "build/venv/bin/$1" "$1" | head -n 1 | grep . && return
  echo "lint: $1 is not there ($2): $3" >&2
  return 1
}

# No error: a checkout without an address builds and works.
placeholders=$(grep -n 'repository\.invalid' pyproject.toml CITATION.cff docs/tutorial.ipynb | cut -d: -f1,2 | paste -sd' ' || true)
[[ -z $placeholders ]] || echo "lint: the repository's address is not set: replace https://repository.invalid in $placeholders"
if codespell=$(find_or_say codespell 'build/venv has it' 'the spelling was not checked'); then
  echo 'lint: codespell'
  # Words of other languages, names of ours and of files (.nam), and what a text is cut off at.
  git ls-files '*.md' '*.h' '*.cc' '*.inl' '*.cuh' '*.py' '*.sh' | grep -Ev '^tests/|^CHANGELOG' |
    xargs "$codespell" --ignore-words-list atleast,atmost,categor,constrint,falso,fro,nam,offen,statics
fi
if hadolint=$(find_or_say hadolint 'build/venv has it' 'the Dockerfile was not checked'); then
  echo 'lint: hadolint'
  git ls-files '*Dockerfile' | xargs "$hadolint"
fi
if zizmor=$(find_or_say zizmor 'build/venv has it' 'the security of the workflows was not checked'); then
  echo 'lint: zizmor'
  "$zizmor" --offline --quiet .github/workflows
fi
if actionlint=$(find_or_say actionlint 'https://github.com/rhysd/actionlint' 'the workflows were not checked'); then
  echo 'lint: actionlint'
  "$actionlint"
fi
echo 'lint: reserved names'
declared='(class|struct|enum|define|using|namespace|auto|bool|char|int|float|double|void|Index|size_t) +[*&]?(_[A-Z]|[A-Za-z0-9]\w*__)'
if git grep -nE "$declared" -- 'apps/*' 'bench/*' 'include/*' 'src/*' 'python/*.cc' 'python/*.h'; then
  echo 'lint: names that begin with _ and a capital letter, or have two underscores, belong to the compiler' >&2
  exit 1
fi
if decides clang-format; then
  echo 'lint: clang-format'
  git ls-files '*.h' '*.cc' '*.inl' '*.cuh' | xargs clang-format --dry-run -Werror
fi
if decides clang-tidy; then
  echo 'lint: clang-tidy'
  tools/tidy.py "$build"
fi
