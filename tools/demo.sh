#!/usr/bin/env bash
# Trains a byte-level minGRU on the King James Bible, lets it write, and runs it on a stream.
#   tools/demo.sh PENSTOCK OUTPUT_DIR      SECONDS_OF_TRAINING=75 to change how long
#   DEVICE=cuda SECONDS_OF_TRAINING=5 tools/demo.sh PENSTOCK OUTPUT_DIR      the same on a GPU
set -euo pipefail
cd "$(dirname "$0")/.."
penstock=${1:?usage: tools/demo.sh PENSTOCK OUTPUT_DIR}
folder=${2:?usage: tools/demo.sh PENSTOCK OUTPUT_DIR}
model=$folder/kjv.safetensors
text=data/kjv.txt
mkdir -p "$folder"
# A GPU takes larger batches in the same time.
batch=16 place=()
if [[ ${DEVICE:-cpu} == cuda* ]]; then batch=64 place=(--device "$DEVICE" --precision bf16); fi

# Shows a command as one would type it, then runs it.
show() {
  local word line=
  for word in "$@"; do
    [[ $word == *' '* ]] && word="'$word'"
    line+=" $word"
  done
  printf '\n$%s\n' "${line/ $penstock/ penstock}"
  "$@"
}

# A causal convolution before each minGRU and a gated feed-forward after it: of the shapes that fit a minute on two
# cores, the one that learns most.
show "$penstock" train "$text" --force --output "$model" --seconds "${SECONDS_OF_TRAINING:-75}" \
  --width 128 --blocks 3 --conv 4 --ffn 2 --batch "$batch" --learning-rate 0.006 --metrics "$folder/metrics.jsonl" "${place[@]}"

held_out=$(($(stat -c %s "$text") * 5 / 100))
squeezed=$(tail -c "$held_out" "$text" | gzip -9 | wc -c)
awk -v a="$squeezed" -v b="$held_out" 'BEGIN {
  printf "For comparison: gzip -9 needs %.2f bits per byte on the same held-out text.\n", 8 * a / b }'

show "$penstock" generate "$model" --prompt "In the beginning" --bytes 600 "${place[@]}"

printf '\nEach byte as it comes: how many bits of surprise it was, and which byte is expected next.\n'
verse='And God said, Let there be light'
printf "$ printf '%s' | penstock stream %s --stats\n" "$verse" "$model"
printf '%s' "$verse" | "$penstock" stream "$model" --stats "${place[@]}"
