#include "nn/layer/batch_hash.h"

namespace penstock::nn {

std::uint64_t hash_of(const Batch& batch) {
  Hash hash;
  hash.add(batch.rows).add(batch.steps).add(batch.lengths != nullptr);
  for (Index b = 0; batch.lengths != nullptr && b < batch.rows; ++b) hash.add(batch.lengths[b]);
  for (Index b = 0; batch.cu_seqlens != nullptr && b <= batch.rows; ++b) hash.add(batch.cu_seqlens[b]);
  if (batch.by_steps) hash.add(3);
  const Index positions = batch.cu_seqlens != nullptr ? batch.cu_seqlens[batch.rows] : batch.rows * batch.steps;
  for (Index i = 0; batch.reset != nullptr && i < positions; ++i) hash.add(batch.reset[i] != 0 ? 1 : 2);
  return hash.value();
}

}  // namespace penstock::nn
