#!/usr/bin/env bash
# Makes the page of this folder, with the runtime and models, in a folder to serve.
#   examples/web/build.sh FOLDER
# PYTHON=python3 is one that has the package silero-vad, PENSTOCK=penstock the program.
# Models that are in FOLDER/models already stay.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:?usage: examples/web/build.sh FOLDER}
models=$folder/models
mkdir -p "$models"
tools/wasm.sh build/wasm
cp build/wasm/penstock.wasm examples/web/{index.html,*.js} "$folder"

if [[ ! -f $models/voice.safetensors ]]; then
  # Python finds the package without importing it, which would need PyTorch.
  package=$("${PYTHON:-python3}" -c 'import importlib.util
found = importlib.util.find_spec("silero_vad")
print(found.submodule_search_locations[0] if found else "")')
  if [[ -n $package ]] && command -v "${PENSTOCK:-penstock}" >/dev/null; then
    "${PENSTOCK:-penstock}" import "$package/data/silero_vad.onnx" --set sr=16000 \
      --output "$models/voice.safetensors" >/dev/null
  else
    echo "There is no voice model. It needs the program penstock (PENSTOCK=build/release/penstock), and a Python" >&2
    echo "(PYTHON=...) with silero-vad: pip install --no-deps silero-vad" >&2
  fi
fi
if [[ ! -f $models/text.safetensors ]]; then
  cp tests/released/0.1/text.safetensors "$models/text.safetensors"
  echo "The text is by a model of four units. A better one, in a minute:"
  echo "  penstock train data/kjv.txt --force --output $models/text.safetensors --seconds 75 --width 128 --blocks 3 \\"
  echo "    --conv 4 --ffn 2"
fi
if [[ ! -f $models/forecast.safetensors ]]; then
  cp tests/released/0.1/lstm.safetensors "$models/forecast.safetensors"
  cp tests/released/0.1/series.csv "$models/forecast.csv"
  echo "The forecast is by a model of eight units, one step ahead. Another one, with its table:"
  echo "  penstock train data/sunspots.csv --force --output $models/forecast.safetensors --horizon 24"
  echo "  cp data/sunspots.csv $models/forecast.csv"
fi
echo "Serve it: python3 -m http.server --directory $folder"
