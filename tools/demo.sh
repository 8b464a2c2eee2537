#!/usr/bin/env bash
# Trains a byte-level minGRU on the King James Bible, lets it write, and runs it on a stream.
#   tools/demo.sh PENSTOCK OUTPUT_DIR      SECONDS_OF_TRAINING=75 to change how long
set -euo pipefail
cd "$(dirname "$0")/.."
penstock=${1:?usage: tools/demo.sh PENSTOCK OUTPUT_DIR}
folder=${2:?usage: tools/demo.sh PENSTOCK OUTPUT_DIR}
model=$folder/kjv.safetensors
text=data/kjv.txt
mkdir -p "$folder"

# Shows a command as one would type it, then runs it.
show() {
  printf '\n$ %s\n' "${*/#$penstock/penstock}"
  "$@"
}

show "$penstock" train "$text" --output "$model" --seconds "${SECONDS_OF_TRAINING:-75}" --metrics "$folder/metrics.jsonl"

held_out=$(($(stat -c %s "$text") * 5 / 100))
squeezed=$(tail -c "$held_out" "$text" | gzip -9 | wc -c)
awk -v a="$squeezed" -v b="$held_out" 'BEGIN { printf "For comparison: gzip -9 needs %.2f bits a byte on the same held-out text.\n", 8 * a / b }'

show "$penstock" generate "$model" --prompt "In the beginning" --bytes 600

printf '\n$ tail -n 1 %s | penstock stream %s --bits     # how surprised it is by each byte\n' "$text" "$model"
tail -n 1 "$text" | "$penstock" stream "$model" --bits
