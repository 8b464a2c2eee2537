#include "backend/cuda/pointwise/rms_norm.h"

#include "backend/cuda/pointwise/arguments.h"
#include "backend/cuda/pointwise/dropout_fill.h"
#include "base/check.h"
#include "base/training_step.h"

namespace penstock::cuda {
namespace {

RowPlan plan_of(const RmsNorm& spec) {
  return plan_rows(spec.width, vector_for(spec.width, spec.alignment, {spec.storage, plan::Storage::f32}));
}

void check_spec(const RmsNorm& spec) {
  require_size(spec.rows, 0, "rows");
  require_size(spec.width, 1, "width");
  require_dropout(spec.dropout);
  require(spec.branch || !spec.dropout.active(), "dropout is of the branch, and there is none");
}

Index blocks_of(const RmsNorm& spec, const RowPlan& plan, Index most) {
  return blocks_for(spec.rows, plan.rows_of_block(), most);
}

}  // namespace

KernelSource rms_norm_forward_source(const RmsNorm& spec) {
  KernelSource source = pointwise_source("RmsNormForward", "rms_norm_forward",
                                         {{"using Storage", storage_type(spec.storage)},
                                          {"constexpr bool kBranch", spec.branch},
                                          {"constexpr bool kDropout", spec.dropout.active()}});
  plan_of(spec).add_to(source);
  return source;
}

KernelSource rms_norm_backward_source(const RmsNorm& spec) {
  KernelSource source = pointwise_source("RmsNormBackward", "rms_norm_backward",
                                         {{"using Storage", storage_type(spec.storage)},
                                          {"constexpr bool kAdd", spec.add_dx},
                                          {"constexpr bool kBranch", spec.branch},
                                          {"constexpr bool kSums", spec.sums}});
  plan_of(spec).add_to(source);
  return source;
}

RmsNormForwardExecutable::RmsNormForwardExecutable(Device& device, const RmsNorm& spec)
    : spec_(spec), plan_(plan_of(spec)) {
  check_spec(spec);
  blocks_ = blocks_of(spec, plan_, Index{1} << 30);
  kernel_ = &Kernel::load(device, rms_norm_forward_source(spec));
}

void RmsNormForwardExecutable::run(const RmsNormForwardCall& call, StreamHandle stream) const {
  if (spec_.rows == 0) return;
  require_seed(spec_.dropout, call.seed);
  require((call.branch != 0) == spec_.branch && (call.sum != 0) == spec_.branch, "branch and sum must be {}",
          spec_.branch ? "addresses on the GPU" : "null");
  require_aligned(call.x, spec_.alignment, "x");
  require_optional(call.branch | call.sum, spec_.alignment, "branch and sum");
  require_aligned(call.gain, spec_.alignment, "gain");
  require_aligned(call.y, spec_.alignment, "y");
  RmsNormForwardArguments arguments{};
  arguments.x = device_pointer<const char>(call.x);
  arguments.branch = device_pointer<const char>(call.branch);
  arguments.gain = device_pointer<const float>(call.gain);
  arguments.sum = device_pointer<char>(call.sum);
  arguments.y = device_pointer<char>(call.y);
  arguments.inverse = device_pointer<float>(call.inverse);
  arguments.rows = spec_.rows;
  arguments.epsilon = static_cast<float>(spec_.epsilon);
  arguments.dropout = dropout_arguments<DropoutArguments>(spec_.dropout, call.seed);
  kernel_->launch(static_cast<unsigned>(blocks_), static_cast<unsigned>(plan_.threads), arguments, stream);
}

RmsNormBackwardExecutable::RmsNormBackwardExecutable(Device& device, const RmsNorm& spec)
    : spec_(spec), plan_(plan_of(spec)) {
  check_spec(spec);
  require(!spec.sums || !spec.add_gain, "sums are not added to what is there, as the gain's gradient is to be");
  kernel_ = &Kernel::load(device, rms_norm_backward_source(spec));
  // Each block leaves partial sums: no more of them than run at once.
  blocks_ = blocks_of(spec, plan_, all_resident(device, *kernel_, plan_.threads));
  sums_ = SumParts(device, blocks_, (spec.sums ? 2 : 1) * spec.width, spec.add_gain);
}

void RmsNormBackwardExecutable::run(const RmsNormBackwardCall& call, DeviceAddress workspace,
                                    StreamHandle stream) const {
  require_address(call.gain_gradient, "gain_gradient");
  require((call.sums != 0) == spec_.sums, "sums must be {}", spec_.sums ? "an address on the GPU" : "null");
  if (spec_.rows > 0) {
    require((call.d != 0) == spec_.add_dx, "d must be {}", spec_.add_dx ? "an address on the GPU" : "null");
    require((call.dbranch != 0) == spec_.branch && (call.seed != 0) == spec_.branch, "dbranch and seed must be {}",
            spec_.branch ? "addresses on the GPU" : "null");
    require_aligned(call.x, spec_.alignment, "x");
    require_aligned(call.dy, spec_.alignment, "dy");
    require_aligned(call.gain, spec_.alignment, "gain");
    require_aligned(call.dx, spec_.alignment, "dx");
    require_address(call.inverse, "inverse");
    require_optional(call.d | call.dbranch, spec_.alignment, "d and dbranch");
    require_aligned(workspace, kAlignment, "workspace");
    RmsNormBackwardArguments arguments{};
    arguments.x = device_pointer<const char>(call.x);
    arguments.dy = device_pointer<const char>(call.dy);
    arguments.inverse = device_pointer<const float>(call.inverse);
    arguments.gain = device_pointer<const float>(call.gain);
    arguments.d = device_pointer<const char>(call.d);
    arguments.dx = device_pointer<char>(call.dx);
    arguments.dbranch = device_pointer<char>(call.dbranch);
    arguments.partial = device_pointer<float>(workspace);
    arguments.rows = spec_.rows;
    arguments.dropout = dropout_arguments<DropoutArguments>(spec_.dropout, call.seed);
    kernel_->launch(static_cast<unsigned>(blocks_), static_cast<unsigned>(plan_.threads), arguments, stream);
  }
  sums_.run(workspace, call.gain_gradient, spec_.width, call.sums, stream);
}

}  // namespace penstock::cuda
