#pragma once

#include "backend/cuda/pointwise/launch.h"

namespace penstock::cuda {

/// y = the row of a table that belongs to each token.
struct Embedding {
  Positions positions = {};
  Index vocabulary = 256, width = 1;            ///< W
  plan::Storage storage = plan::Storage::bf16;  ///< Storage of y and dy
  plan::Storage table = plan::Storage::bf16;    ///< Storage of the table; its gradient is float
  bool add = false;                             ///< The gradient is added to, instead of replaced
  int alignment = kAlignment;
};

struct EmbeddingForwardCall {
  DeviceAddress tokens = 0;   ///< int32 [B, T]; beyond the lengths it is not read
  DeviceAddress lengths = 0;  ///< int64 [B], or 0
  DeviceAddress table = 0;    ///< [vocabulary, W]
  DeviceAddress y = 0;        ///< [B, T, W]: zeros beyond the lengths, NaN for a token outside of the vocabulary
};

class EmbeddingForwardExecutable {
 public:
  EmbeddingForwardExecutable(Device& device, const Embedding& spec);
  void run(const EmbeddingForwardCall& call, StreamHandle stream) const;

 private:
  Embedding spec_;
  RowPlan plan_;
  const Kernel* kernel_;
};

struct EmbeddingBackwardCall {
  DeviceAddress tokens = 0;  ///< As of the forward pass; those outside of the vocabulary are left out
  DeviceAddress lengths = 0;
  DeviceAddress dy = 0;        ///< [B, T, W]
  DeviceAddress gradient = 0;  ///< float [vocabulary, W]
};

/// Sorts the positions by token, then sums runs of equal tokens in the order of the positions.
class EmbeddingBackwardExecutable {
 public:
  EmbeddingBackwardExecutable(Device& device, const Embedding& spec);
  std::size_t workspace_bytes() const;
  void run(const EmbeddingBackwardCall& call, DeviceAddress workspace, StreamHandle stream) const;

 private:
  DeviceAddress sort(const EmbeddingBackwardCall& call, DeviceAddress workspace, StreamHandle stream) const;

  Device* device_;
  Embedding spec_;
  RowPlan plan_;
  int passes_, bits_;
  Index chunks_, segments_;
  const Kernel *count_[2], *scan_, *scatter_[2], *segment_, *join_;
};

enum class SortPart { count, scan, scatter };

KernelSource embedding_forward_source(const Embedding& spec);
KernelSource sort_source(SortPart part, bool first, int bits);
KernelSource embedding_backward_source(const Embedding& spec, bool join);

}  // namespace penstock::cuda
