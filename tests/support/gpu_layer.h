#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "backend/cuda/scan/scan.h"
#include "oracle/network.h"
#include "support/gpu.h"

namespace penstock::test {

template <class Case>
using LayerParameters = std::tuple<Case, std::string_view, Storage>;

/// A layer with random numbers, as the oracle has them and in the memory of a GPU. `Case` says rows, steps and how the
/// batch is laid out.
template <class Case>
class GpuLayerTest : public GpuTestOf<LayerParameters<Case>> {
 protected:
  Case c = std::get<0>(this->GetParam());
  std::string cell{std::get<1>(this->GetParam())};
  Storage storage = std::get<2>(this->GetParam());
  std::vector<Index> lengths, bounds;
  std::vector<std::uint8_t> reset;
  Batch batch;
  oracle::Arguments<double> arguments;
  Doubles dy, dstate;
  cuda::Buffer lengths_gpu, reset_gpu;

  GpuLayerTest() { this->random = Random(7); }

  Index positions() const { return c.packed ? c.steps : c.rows * c.steps; }

  /// The batch of `lengths` or `bounds`, with resets at a share of its positions.
  void set_batch(double resets) {
    batch = {.rows = c.rows, .steps = c.steps};
    reset.resize(static_cast<std::size_t>(positions()));
    for (std::uint8_t& r : reset) r = this->random.uniform() < resets ? 1 : 0;
    if (c.lengths) batch.lengths = lengths.data();
    if (c.packed) batch.cu_seqlens = bounds.data();
    if (c.reset) batch.reset = reset.data();
  }

  /// The batch in the GPU's memory.
  template <class GpuBatch>
  GpuBatch gpu_batch() {
    GpuBatch of{.rows = c.rows, .steps = c.steps};
    lengths_gpu = this->put(c.packed ? bounds : lengths);
    if (c.lengths) of.lengths = lengths_gpu.address();
    if (c.packed) of.cu_seqlens = lengths_gpu.address();
    reset_gpu = this->put(reset);
    if (c.reset) of.reset = reset_gpu.address();
    of.reset_row_stride = c.steps, of.reset_step_stride = 1;
    return of;
  }

  /// In memory a time-first tensor has the oracle's positions in another order.
  Doubles ordered(const Doubles& values, Index channels, bool to_memory) const {
    if (!c.time_first) return values;
    Doubles result(values.size());
    for (Index i = 0; i < c.rows * c.steps * channels; ++i) {
      const Index b = i / channels / c.steps, t = i / channels % c.steps, j = i % channels;
      const auto ours = static_cast<std::size_t>(i);
      const auto theirs = static_cast<std::size_t>((t * c.rows + b) * channels + j);
      (to_memory ? result[theirs] : result[ours]) = to_memory ? values[ours] : values[theirs];
    }
    return result;
  }
  cuda::DeviceSequence sequence(const cuda::Buffer& buffer, Index channels) const {
    if (c.time_first) return {buffer.address(), channels, c.rows * channels};
    return {buffer.address(), c.steps * channels, channels};
  }
};

/// The name of the test of a layer.
template <class Case>
std::string name_of(const testing::TestParamInfo<LayerParameters<Case>>& info) {
  const auto& [c, cell, storage] = info.param;
  std::string name = fmt::format("{}_{}_{}", c.name, cell, to_string(storage));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace penstock::test
