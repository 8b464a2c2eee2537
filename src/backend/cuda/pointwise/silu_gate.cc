#include "backend/cuda/pointwise/silu_gate.h"

#include "backend/cuda/pointwise/arguments.h"
#include "backend/cuda/pointwise/step_state.h"
#include "base/check.h"

namespace penstock::cuda {
namespace {

RowPlan plan_of(const SiluGate& spec) {
  return plan_rows(spec.width, vector_for(spec.width, spec.alignment, {spec.storage}));
}

}  // namespace

KernelSource silu_gate_source(const SiluGate& spec) {
  KernelSource source = pointwise_source(spec.backward ? "SiluGateBackward" : "SiluGate",
                                         spec.backward ? "silu_gate_backward" : "silu_gate",
                                         {{"using Storage", storage_type(spec.storage)}});
  plan_of(spec).add_to(source);
  return source;
}

SiluGateExecutable::SiluGateExecutable(Device& device, const SiluGate& spec) : spec_(spec), plan_(plan_of(spec)) {
  require_size(spec.rows, 0, "rows");
  require_size(spec.width, 1, "width");
  kernel_ = &Kernel::load(device, silu_gate_source(spec));
}

void SiluGateExecutable::run(const SiluGateCall& call, StreamHandle stream) const {
  if (spec_.rows == 0) return;
  require((call.dy != 0) == spec_.backward, "dy must be {}", spec_.backward ? "an address on the GPU" : "null");
  require_aligned(call.gv, spec_.alignment, "gv");
  require_optional(call.dy, spec_.alignment, "dy");
  require_aligned(call.to, spec_.alignment, "to");
  GateArguments arguments{};
  arguments.gv = device_pointer<const char>(call.gv);
  arguments.dy = device_pointer<const char>(call.dy);
  arguments.to = device_pointer<char>(call.to);
  arguments.rows = spec_.rows;
  kernel_->launch(blocks_for(spec_.rows, plan_.rows_of_block()), static_cast<unsigned>(plan_.threads), arguments,
                  stream);
}

}  // namespace penstock::cuda
