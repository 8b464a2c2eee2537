#!/usr/bin/env bash
# Runs the tests that need a GPU, several programs at once as most of the time goes into compiling kernels; then a
# choice of them under compute-sanitizer, where there is one. Fails where there is no GPU.
#   tools/test_gpu.sh FOLDER    that holds the test programs
set -euo pipefail
cd "${1:?usage: tools/test_gpu.sh FOLDER}"
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

if ./test_backend_cuda_runtime --gtest_filter=OnGpu.DescribesItself | tee "$logs/gpu" | grep -q SKIPPED; then
  sed -n 's/^Skipped$//; /no CUDA\|driver\|libcuda/p' "$logs/gpu" | head -n 1 >&2
  echo "tools/test_gpu.sh: there is no GPU to test on" >&2
  exit 1
fi

status=0
# shards PROGRAM: all its tests, in as many processes as there are cores, 16 at most.
shards() {
  local count=$(($(nproc) < 16 ? $(nproc) : 16)) i failed=0
  local -a running=()
  for ((i = 0; i < count; ++i)); do
    GTEST_TOTAL_SHARDS=$count GTEST_SHARD_INDEX=$i "./$1" >"$logs/$1.$i" 2>&1 &
    running+=($!)
  done
  for i in "${running[@]}"; do wait "$i" || failed=1; done
  if ((failed)); then
    status=1
    grep -h -A 12 'Failure$' "$logs/$1".* | head -n 60 || true
  fi
  printf '%-28s %6d passed, %d failed, %d skipped\n' "$1" "$(cat "$logs/$1".* | grep -c '^\[       OK' || true)" \
    "$(cat "$logs/$1".* | grep -c '^\[  FAILED  \].*ms)$' || true)" \
    "$(cat "$logs/$1".* | grep -c '^\[  SKIPPED \].*ms)$' || true)"
}
for program in test_backend_cuda_runtime test_backend_cuda_products test_backend_cuda_scan test_backend_cuda_layer \
  test_backend_cuda_pointwise test_backend_cuda_training test_nn_cuda_recurrent_program test_nn_cuda_custom_cells \
  test_nn_cuda_streams test_train_cuda_models test_train_profile test_stream_cuda_session \
  test_backend_cuda_dense test_ops_op_cases; do
  shards "$program"
done

# Everything that differs between kernels once: a chain of several blocks, ragged rows, resets, layers, steps.
scans='*Loop/3x257x33_*:*Loop/1x1009x65_f32:*Loop/packed_reverse_reset_*:*Loop/lengths_reset_bf16:*Loop/misaligned_f16'
layers='*/small_*bf16:*/packed_reset_min*f32:*/reverse_lengths_minlstm_f16:*EveryAlgorithm/reverse_tiles_mingru_bf16:*EveryAlgorithm/past_a_tile_minlstm_f16'
heads='*/odd_heads_lstm_bf16:*/packed_reverse_reset_gru_f16:*/past_two_warps_slstm_bf16:*/time_first_elman_f32'
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck synccheck; do
    for part in "backend_cuda_products --gtest_filter=*/forward_*:*/of_w*" "backend_cuda_scan --gtest_filter=$scans" "backend_cuda_layer --gtest_filter=$layers" \
      "backend_cuda_dense --gtest_filter=$heads" "nn_cuda_recurrent_program --gtest_filter=*mingru_bf16:*lstm_f16" "nn_cuda_streams"; do
      # shellcheck disable=SC2086: two words on purpose
      compute-sanitizer --tool $tool --error-exitcode 1 ./test_${part} >"$logs/$tool" 2>&1 || {
        status=1
        grep '^=========' "$logs/$tool" | head -n 40
      }
      echo "$tool ${part%% *}: $(grep -h 'SUMMARY' "$logs/$tool" | tail -n 1)"
    done
  done
else
  echo "compute-sanitizer is not on the PATH: its runs are left out"
fi
exit "$status"
