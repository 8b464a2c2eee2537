#include "backend/cuda/pointwise/sample.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "backend/cuda/pointwise/arguments.h"
#include "base/check.h"
#include "base/training_step.h"

namespace penstock::cuda {
namespace {

constexpr Index kMostShared = 2048;  // classes whose keys and sums fit shared memory

/// Returns the number of keys that the sort has room for, a power of two.
Index size_of(const Sample& spec) {
  return static_cast<Index>(std::bit_ceil(static_cast<std::uint64_t>(std::max<Index>(spec.classes, 2))));
}

int threads_of(const Sample& spec) { return static_cast<int>(std::clamp<Index>(size_of(spec) / 2, 32, 512)); }

}  // namespace

KernelSource sample_source(const Sample& spec) {
  return pointwise_source("Sample", "sample",
                          {{"using Logits", storage_type(spec.logits)},
                           {"constexpr int kClasses", spec.classes},
                           {"constexpr int kSize", size_of(spec)},
                           {"constexpr bool kShared", size_of(spec) <= kMostShared},
                           {"constexpr int kThreads", threads_of(spec)}});
}

SampleExecutable::SampleExecutable(Device& device, const Sample& spec) : spec_(spec) {
  require_size(spec.streams, 0, "streams");
  require_size(spec.classes, 1, "classes");
  require(std::isfinite(spec.temperature) && spec.temperature >= 0.0, "temperature must not be negative, not {}",
          spec.temperature);
  require_size(spec.top_k, 0, "top_k");
  require_argument(spec.top_p > 0.0 && spec.top_p <= 1.0, "top_p", spec.top_p, "in (0, 1]");
  kernel_ = &Kernel::load(device, sample_source(spec));
}

std::size_t SampleExecutable::workspace_bytes() const {
  return size_of(spec_) <= kMostShared ? 0 : static_cast<std::size_t>(16 * spec_.streams * size_of(spec_));
}

void SampleExecutable::run(const SampleCall& call, DeviceAddress workspace, StreamHandle stream) const {
  if (spec_.streams == 0) return;
  require_address(call.logits, "logits");
  require_address(call.keys, "keys");
  require_address(call.counters, "counters");
  require_address(call.tokens, "tokens");
  require(call.logits_stride >= spec_.classes || spec_.streams == 1,
          "the rows of logits must be at least {} elements apart, not {}", spec_.classes, call.logits_stride);
  require_argument(call.history == 0 || call.history_length >= 1, "history_length", call.history_length, "at least 1");
  if (workspace_bytes() > 0) require_aligned(workspace, kAlignment, "workspace");
  SampleArguments arguments{};
  arguments.logits = device_pointer<const char>(call.logits);
  arguments.keys = device_pointer<const unsigned long long>(call.keys);
  arguments.counters = device_pointer<unsigned long long>(call.counters);
  arguments.tokens = device_pointer<int>(call.tokens);
  arguments.history = device_pointer<int>(call.history);
  arguments.sort = device_pointer<unsigned long long>(workspace);
  arguments.sums = device_pointer<double>(workspace) + spec_.streams * size_of(spec_);
  arguments.stride = call.logits_stride;
  arguments.history_length = call.history_length;
  arguments.temperature = spec_.temperature;
  arguments.top_p = spec_.top_p;
  arguments.top_k = static_cast<int>(spec_.top_k);
  kernel_->launch(static_cast<unsigned>(spec_.streams), static_cast<unsigned>(threads_of(spec_)), arguments, stream);
}

}  // namespace penstock::cuda
