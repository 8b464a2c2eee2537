#include "backend/cuda/pointwise/silu_gate.h"

#include "backend/cuda/pointwise/arguments.h"
#include "base/check.h"
#include "base/training_step.h"

namespace penstock::cuda {
namespace {

/// Returns the plan of rows. With sums, which take registers, a thread has one vector of a row if there are enough
/// threads.
RowPlan plan_of(const SiluGate& spec) {
  return plan_rows(spec.width, vector_for(spec.width, spec.alignment, {spec.storage}), spec.sums ? 1 : 2);
}

/// Returns whether the kernel's threads have enough registers for the sums of their columns of g and v.
bool sums_columns(const SiluGate& spec) {
  constexpr int most = 16;
  const RowPlan plan = plan_of(spec);
  return spec.backward && spec.sums && plan.steps * plan.vector <= most;
}

}  // namespace

KernelSource silu_gate_source(const SiluGate& spec) {
  KernelSource source = pointwise_source(spec.backward ? "SiluGateBackward" : "SiluGate",
                                         spec.backward ? "silu_gate_backward" : "silu_gate",
                                         {{"using Storage", storage_type(spec.storage)}});
  if (spec.backward) source.constants.emplace_back("constexpr bool kSums", sums_columns(spec));
  plan_of(spec).add_to(source);
  return source;
}

SiluGateExecutable::SiluGateExecutable(Device& device, const SiluGate& spec) : spec_(spec), plan_(plan_of(spec)) {
  require_size(spec.rows, 0, "rows");
  require_size(spec.width, 1, "width");
  require(spec.backward || !spec.sums, "sums are of a backward pass");
  kernel_ = &Kernel::load(device, silu_gate_source(spec));
  const bool sums = sums_columns(spec);
  // Each block leaves partial sums: no more of them than run at once.
  blocks_ = blocks_for(spec.rows, plan_.rows_of_block(),
                       sums ? all_resident(device, *kernel_, plan_.threads) : Index{1} << 30);
  if (sums) {
    sums_ = SumParts(device, blocks_, 2 * spec.width, false);
  } else if (spec.sums) {
    pass_.emplace(
        device,
        ColumnSums{.storage = spec.storage, .rows = spec.rows, .columns = 2 * spec.width, .alignment = spec.alignment});
  }
}

std::size_t SiluGateExecutable::workspace_bytes() const { return pass_ ? pass_->workspace_bytes() : sums_.bytes(); }

void SiluGateExecutable::run(const SiluGateCall& call, DeviceAddress workspace, StreamHandle stream) const {
  require((call.sums != 0) == spec_.sums, "sums must be {}", spec_.sums ? "an address on the GPU" : "null");
  if (workspace_bytes() > 0) require_aligned(workspace, kAlignment, "workspace");
  if (spec_.rows > 0) {
    require((call.dy != 0) == spec_.backward, "dy must be {}", spec_.backward ? "an address on the GPU" : "null");
    require_aligned(call.gv, spec_.alignment, "gv");
    require_optional(call.dy, spec_.alignment, "dy");
    require_aligned(call.to, spec_.alignment, "to");
    GateArguments arguments{};
    arguments.gv = device_pointer<const char>(call.gv);
    arguments.dy = device_pointer<const char>(call.dy);
    arguments.to = device_pointer<char>(call.to);
    arguments.partial = device_pointer<float>(workspace);
    arguments.rows = spec_.rows;
    kernel_->launch(static_cast<unsigned>(blocks_), static_cast<unsigned>(plan_.threads), arguments, stream);
  }
  if (!spec_.sums) return;
  if (pass_) {
    pass_->run(call.to, call.sums, workspace, stream);
  } else {
    sums_.run(workspace, call.sums, 2 * spec_.width, 0, stream);
  }
}

}  // namespace penstock::cuda
