#include "backend/cuda/pointwise/residual.h"

#include "backend/cuda/pointwise/arguments.h"
#include "backend/cuda/pointwise/dropout_fill.h"
#include "base/check.h"
#include "base/training_step.h"

namespace penstock::cuda {
namespace {

int vector_of(const Residual& spec) { return vector_for(0, spec.alignment, {spec.storage}); }

}  // namespace

void require_dropout(const DropoutSite& dropout) {
  require_argument(dropout.probability >= 0.0 && dropout.probability < 1.0, "dropout", dropout.probability,
                   "in [0, 1)");
}

void require_seed(const DropoutSite& dropout, DeviceAddress seed) {
  require((seed != 0) == dropout.active(), "seed must be {}",
          dropout.active() ? "an address on the GPU" : "null without dropout");
}

KernelSource residual_source(const Residual& spec) {
  return pointwise_source("Residual", "residual",
                          {{"using Storage", storage_type(spec.storage)},
                           {"constexpr bool kAdd", spec.add},
                           {"constexpr bool kDropout", spec.dropout.active()},
                           {"constexpr int kVector", vector_of(spec)},
                           {"constexpr int kThreads", kBlockThreads}});
}

ResidualExecutable::ResidualExecutable(Device& device, const Residual& spec) : spec_(spec), vector_(vector_of(spec)) {
  require(spec.size >= 0, "size must not be negative, not {}", spec.size);
  require_dropout(spec.dropout);
  kernel_ = &Kernel::load(device, residual_source(spec));
}

void ResidualExecutable::run(const ResidualCall& call, StreamHandle stream) const {
  if (spec_.size == 0) return;
  require_seed(spec_.dropout, call.seed);
  if (spec_.add) require_aligned(call.x, spec_.alignment, "x");
  require_aligned(call.branch, spec_.alignment, "branch");
  require_aligned(call.y, spec_.alignment, "y");
  ResidualArguments arguments{};
  arguments.x = device_pointer<const char>(call.x);
  arguments.branch = device_pointer<const char>(call.branch);
  arguments.y = device_pointer<char>(call.y);
  arguments.size = spec_.size;
  arguments.dropout = dropout_arguments<DropoutArguments>(spec_.dropout, call.seed);
  kernel_->launch(blocks_for(spec_.size, Index{kBlockThreads} * vector_), kBlockThreads, arguments, stream);
}

}  // namespace penstock::cuda
