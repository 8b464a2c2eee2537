#!/usr/bin/env bash
# Runs all fuzzers of a folder for a while each, as many at once as there are cores. Each begins with the files of
# tests/fuzz/corpus, and with what earlier runs in the folder kept. What they find, they say; the input that did it lies
# in the folder afterwards. The same SEED (1 unless told; 0 takes another one every time) tries the same inputs in the
# same order, starting from the same corpus, so that what one machine finds another can repeat.
#   tools/fuzz.sh FOLDER SECONDS [SEED]
set -euo pipefail
seeds=$(cd "$(dirname "$0")/../tests/fuzz/corpus" && pwd)
export seeds
cd "${1:?usage: tools/fuzz.sh FOLDER SECONDS [SEED]}"
seconds=${2:?usage: tools/fuzz.sh FOLDER SECONDS [SEED]}
seed=${3:-1}

fuzz() {
  local name=$1 seconds=$2 seed=$3
  mkdir -p "corpus/$name"
  if "./$name" -seed="$seed" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -dict="$seeds/${name#fuzz_}.dict" "corpus/$name" "$seeds/${name#fuzz_}" >"$name.log" 2>&1; then
    printf 'fuzz: %-20s %9d inputs in %d seconds, none of them bad\n' "$name" \
      "$(sed -n 's/^stat::number_of_executed_units: *//p' "$name.log")" "$seconds"
  else
    tail -n 60 "$name.log" >&2
    echo "tools/fuzz.sh: $name has found something; see $PWD/$name.log" >&2
    return 1
  fi
}
export -f fuzz

mapfile -t fuzzers < <(find . -maxdepth 1 -name 'fuzz_*' -type f -executable -printf '%f\n' | sort)
((${#fuzzers[@]} > 0)) || { echo "tools/fuzz.sh: no fuzzer in $PWD" >&2; exit 1; }
printf '%s\n' "${fuzzers[@]}" | xargs -P "$(nproc)" -I {} bash -c 'fuzz {} '"$seconds $seed"
