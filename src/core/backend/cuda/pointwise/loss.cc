#include "backend/cuda/pointwise/loss.h"

#include "backend/cuda/pointwise/arguments.h"
#include "base/check.h"

namespace penstock::cuda {
namespace {

constexpr int kFinishThreads = 1024;
constexpr int kLossBlocks = 4;  // of a multiprocessor: each leaves partial sums

RowPlan plan_of(const Loss& spec) {
  return plan_rows(spec.width, vector_for(spec.width, spec.alignment, {spec.outputs, spec.gradients}));
}

bool of_classes(const Loss& spec) { return spec.kind == LossKind::cross_entropy; }

}  // namespace

KernelSource loss_source(const Loss& spec, LossPart part) {
  if (part == LossPart::finish || part == LossPart::finish_weights) {
    return pointwise_source(
        "FinishLoss", "training/finish_loss",
        {{"constexpr bool kWeights", part == LossPart::finish_weights}, {"constexpr int kThreads", kFinishThreads}});
  }
  if (part == LossPart::weights) {
    if (of_classes(spec)) {
      return pointwise_source("CountLabels", "training/count_labels", {{"constexpr int kThreads", kFinishThreads}});
    }
    return pointwise_source("RegressionWeights", "training/regression_weights",
                            {{"constexpr int kThreads", kBlockThreads}, {"constexpr int kWidth", spec.width}});
  }
  std::vector<Constant> constants = {{"using Storage", storage_type(spec.gradients)},
                                     {"constexpr bool kGradient", spec.gradient}};
  if (!of_classes(spec)) {
    constants.emplace_back("using Outputs", storage_type(spec.outputs));
    constants.emplace_back("constexpr int kThreads", kBlockThreads);
    constants.emplace_back("constexpr int kWidth", spec.width);
    KernelSource source = pointwise_source("Regression", "training/regression", constants);
    source.rule.type = rule_name(spec.kind);
    return source;
  }
  constants.emplace_back("using Logits", storage_type(spec.outputs));
  KernelSource source = pointwise_source("CrossEntropy", "training/cross_entropy", constants);
  plan_of(spec).add_to(source);
  return source;
}

LossExecutable::LossExecutable(Device& device, const Loss& spec) : spec_(spec), plan_(plan_of(spec)) {
  require_size(spec.rows, 0, "rows");
  require_size(spec.width, 1, "width");
  if (of_classes(spec)) {
    const int of_multiprocessor = std::max(1, kLossBlocks * kBlockThreads / plan_.threads);
    blocks_ = blocks_for(spec.rows, plan_.rows_of_block(), resident_blocks(device, of_multiprocessor));
  } else {
    plan_.threads = kBlockThreads;
    blocks_ = blocks_for(spec.rows * spec.width, kBlockThreads, resident_blocks(device, kLossBlocks));
    finish_weights_ = &Kernel::load(device, loss_source(spec, LossPart::finish_weights));
  }
  weights_ = &Kernel::load(device, loss_source(spec, LossPart::weights));
  loss_ = &Kernel::load(device, loss_source(spec, LossPart::loss));
  finish_ = &Kernel::load(device, loss_source(spec, LossPart::finish));
}

std::size_t LossExecutable::workspace_bytes() const { return static_cast<std::size_t>(blocks_) * sizeof(LossPartial); }

void LossExecutable::run(const LossCall& call, DeviceAddress workspace, StreamHandle stream) const {
  require_address(call.sums, "sums");
  require((call.gradient != 0) == spec_.gradient || spec_.rows == 0, "gradient must be {}",
          spec_.gradient ? "an address on the GPU" : "null, as it is not wanted");
  LossArguments arguments{};
  if (spec_.rows > 0) {
    require_aligned(call.y, spec_.alignment, "y");
    require_optional(call.gradient, spec_.alignment, "gradient");
    require(call.gradient != call.y || spec_.outputs == spec_.gradients,
            "gradient may replace y in the same storage only");
    require_address(of_classes(spec_) ? call.labels : call.targets, of_classes(spec_) ? "labels" : "targets");
    require_address(of_classes(spec_) ? call.labels : call.weights, of_classes(spec_) ? "labels" : "weights");
    require_aligned(workspace, kAlignment, "workspace");
  }
  arguments.y = device_pointer<const char>(call.y);
  arguments.labels = device_pointer<const int>(call.labels);
  arguments.targets = device_pointer<const float>(call.targets);
  arguments.weights = device_pointer<const float>(call.weights);
  arguments.gradient = device_pointer<char>(call.gradient);
  arguments.loss_scale = device_pointer<const float>(call.loss_scale);
  arguments.partial = device_pointer<LossPartial>(workspace);
  arguments.sums = device_pointer<LossSums>(call.sums);
  arguments.rows = spec_.rows;
  arguments.blocks = static_cast<int>(blocks_);
  const auto blocks = static_cast<unsigned>(blocks_), threads = static_cast<unsigned>(plan_.threads);
  if (of_classes(spec_)) {
    weights_->launch(1, kFinishThreads, arguments, stream);
  } else {
    if (blocks > 0) weights_->launch(blocks, kBlockThreads, arguments, stream);
    finish_weights_->launch(1, kFinishThreads, arguments, stream);
  }
  if (blocks > 0) loss_->launch(blocks, threads, arguments, stream);
  finish_->launch(1, kFinishThreads, arguments, stream);
}

}  // namespace penstock::cuda
