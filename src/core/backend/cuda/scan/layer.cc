#include "backend/cuda/scan/layer.h"

#include <algorithm>

#include "backend/cuda/driver/driver.h"
#include "backend/cuda/driver/range.h"
#include "base/check.h"

namespace penstock::cuda {
namespace {

MatrixRows positions_of(const LayerBatch& batch, const DeviceSequence& x, Index input) {
  const Index B = batch.cu_seqlens != 0 ? 1 : batch.rows, T = batch.steps;
  MatrixRows positions;
  positions.count = B * T;
  if (B == 1 || x.row_stride == T * x.step_stride) {
    positions.x_stride = T == 1 && B > 1 ? x.row_stride : x.step_stride;
    positions.row_stride = T, positions.step_stride = 1;
  } else if (T == 1 || x.step_stride == B * x.row_stride) {
    positions.x_stride = x.row_stride;
    positions.row_stride = 1, positions.step_stride = B;
  } else {
    fail(
        ErrorCode::invalid_argument,
        "x must lie row after row or step after step without gaps between them (a row stride of {} or a step stride of "
        "{}), not with strides {} and {}; copy it into one such tensor",
        T * x.step_stride, B * x.row_stride, x.row_stride, x.step_stride);
  }
  require(positions.x_stride >= input, "the positions of x must be at least its {} channels apart, not {}", input,
          positions.x_stride);
  return positions;
}

/// The place behind the gates of a bias, or of its gradient, in `storage`; 0 without learnt vectors.
DeviceAddress learnt_of(DeviceAddress bias, const LayerSpec& spec, const ScanRule& rule, plan::Storage storage) {
  if (bias == 0 || rule.learnt == 0) return 0;
  return bias + static_cast<DeviceAddress>(rule.gates * spec.hidden * plan::size_of(storage));
}

LayerBatch completed(LayerBatch batch, DeviceAddress bias, const LayerSpec& spec, const ScanRule& rule) {
  batch.rule = rule;
  batch.learnt = learnt_of(bias, spec, rule, spec.storage);
  batch.storage = spec.storage;
  batch.channels = spec.hidden;
  batch.reverse = spec.reverse;
  batch.algorithm = spec.algorithm;
  return batch;
}

/// Gate g of [P, G, H], for each g.
ScanTerms gate_terms(DeviceAddress gates, const LayerSpec& spec, const ScanRule& rule, const MatrixRows& positions) {
  ScanTerms terms;
  const Index width = rule.gates * spec.hidden, size = plan::size_of(spec.storage);
  for (std::size_t g = 0; g < static_cast<std::size_t>(rule.gates); ++g) {
    terms[g] = {gates + g * static_cast<DeviceAddress>(spec.hidden * size), positions.row_stride * width,
                positions.step_stride * width};
  }
  return terms;
}

void check_spec(const LayerSpec& spec) {
  require(spec.input >= 1 && spec.hidden >= 1, "input and hidden must be at least 1, not {} and {}", spec.input,
          spec.hidden);
  require(spec.gradients == spec.storage || spec.gradients == plan::Storage::f32,
          "gradients must be f32 or {} as the weights are, not {}", to_string(spec.storage), to_string(spec.gradients));
  require_bias_of(spec);
  require(!spec.tf32 || spec.storage == plan::Storage::f32, "tf32 is for f32 storage, not {}", to_string(spec.storage));
}

WorkspacePlaces one_after_the_other(const WorkspaceParts& parts) {
  return {0, parts.passed, parts.passed + parts.sums};
}

void set_alignments(ProductShape& shape, DeviceAddress a, DeviceAddress b, DeviceAddress d) {
  shape.a_alignment = alignment_of(a), shape.b_alignment = alignment_of(b), shape.d_alignment = alignment_of(d);
}

/// Returns the scan of a layer, without gates if they are not kept: only the fused algorithm can do without.
ScanForward scan_of(const LayerForward& call, const LayerSpec& spec, const ScanRule& rule) {
  check_spec(spec);
  require_address(call.x.data, "x");
  require_address(call.weights.weight, "weight");
  require((call.weights.bias != 0) == spec.bias, "bias must be {}", spec.bias ? "an address on the GPU" : "null");
  ScanForward scan;
  scan.shape = completed(call.batch, call.weights.bias, spec, rule);
  const MatrixRows positions = positions_of(call.batch, call.x, spec.input);
  if (call.gates != 0) scan.terms = gate_terms(call.gates, spec, rule, positions);
  scan.y = call.y;
  scan.state_in = call.state_in;
  scan.state_out = call.state_out;
  return scan;
}

FusedForward fused_of(const LayerForward& call, const LayerSpec& spec, const ScanRule& rule) {
  FusedForward fused{scan_of(call, spec, rule), spec.input, call.x, call.weights.weight, call.weights.bias};
  if (!call.keep_gates) fused.scan.terms = {};
  return fused;
}

plan::GpuLayerProblem problem_of(const LayerForward& call, const LayerSpec& spec, const ScanRule& rule) {
  plan::GpuLayerProblem problem = problem_of(fused_of(call, spec, rule));
  problem.tf32 = spec.tf32;
  problem.needs_one_launch = call.gates == 0;
  const plan::ScanAlgorithm algorithm = problem.scan.algorithm;
  require(call.gates != 0 || (algorithm != plan::ScanAlgorithm::direct && algorithm != plan::ScanAlgorithm::scan),
          "gates must be an address on the GPU, not null, in the {} algorithm", to_string(algorithm));
  return problem;
}

ScanBackward scan_of(const LayerBackward& call, const LayerSpec& spec, const ScanRule& rule) {
  check_spec(spec);
  require_address(call.x.data, "x");
  require_address(call.weights.weight, "weight");
  require_address(call.gates, "gates");
  require_address(call.dgates, "dgates");
  require_address(call.gradients.weight, "the gradient of weight");
  require((call.gradients.bias != 0) == spec.bias, "the gradient of bias must be {}",
          spec.bias ? "an address on the GPU" : "null");
  require(call.dx.data == 0 || (call.dx.row_stride == call.x.row_stride && call.dx.step_stride == call.x.step_stride),
          "dx must be laid out like x, with strides {} and {}, not {} and {}", call.x.row_stride, call.x.step_stride,
          call.dx.row_stride, call.dx.step_stride);
  const MatrixRows positions = positions_of(call.batch, call.x, spec.input);
  ScanBackward scan;
  scan.shape = completed(call.batch, call.weights.bias, spec, rule);
  const bool one_launch =
      spec.algorithm == plan::ScanAlgorithm::fused || spec.algorithm == plan::ScanAlgorithm::epilogue;
  if (one_launch) scan.shape.algorithm = plan::ScanAlgorithm::automatic;
  scan.terms = gate_terms(call.gates, spec, rule, positions);
  scan.dterms = gate_terms(call.dgates, spec, rule, positions);
  scan.y = call.y;
  scan.dy = call.dy;
  scan.state_in = call.state_in;
  scan.dstate_out = call.dstate_out;
  scan.dstate_in = call.dstate_in;
  return scan;
}

ProductShape forward_product(const LayerForward& call, const LayerSpec& spec, const ScanRule& rule) {
  const MatrixRows positions = positions_of(call.batch, call.x, spec.input);
  ProductShape shape{.storage = spec.storage, .result = spec.storage, .tf32 = spec.tf32};
  shape.m = positions.count, shape.n = rule.gates * spec.hidden, shape.k = spec.input;
  shape.m_varies = true;
  shape.exact = spec.exact;
  shape.b_transposed = true;
  shape.a_stride = positions.x_stride, shape.b_stride = spec.input, shape.d_stride = shape.n;
  shape.epilogue = spec.bias ? Epilogue::add_bias : Epilogue::nothing;
  set_alignments(shape, call.x.data, call.weights.weight, call.gates);
  return shape;
}

GradientShape gradients_of(const LayerBackward& call, const LayerSpec& spec, const ScanRule& rule) {
  return {.storage = spec.storage,
          .gradients = spec.gradients,
          .positions = positions_of(call.batch, call.x, spec.input).count,
          .inputs = spec.input,
          .outputs = rule.gates * spec.hidden,
          .x_stride = positions_of(call.batch, call.x, spec.input).x_stride,
          .bias = spec.bias,
          .dx = call.dx.data != 0,
          .tf32 = spec.tf32,
          .dy_alignment = alignment_of(call.dgates),
          .x_alignment = alignment_of(call.x.data),
          .weight_alignment = alignment_of(call.weights.weight),
          .dweight_alignment = alignment_of(call.gradients.weight),
          .dx_alignment = alignment_of(call.dx.data)};
}

}  // namespace

void require_bias_of(const LayerSpec& spec) {
  const int learnt = plan::cell_traits(spec.cell).learnt;
  require(spec.bias || learnt == 0, "a layer of {} must have a bias, behind which its {} learnt vectors lie", spec.cell,
          learnt);
}

void MatrixRows::require_of(const LayerBatch& batch, const DeviceSequence& x, Index input) const {
  const MatrixRows other = positions_of(batch, x, input);
  require(other.count == count && other.x_stride == x_stride,
          "the call must have the {} positions of x that were prepared, {} elements apart, not {} that are {} apart",
          count, x_stride, other.count, other.x_stride);
}

plan::GpuLayerProblem problem_of(const LayerForward& call, const LayerSpec& spec) {
  return problem_of(call, spec, scan_rule(spec.cell));
}

LayerForwardExecutable::LayerForwardExecutable(Device& device, const LayerSpec& spec, const LayerForward& call,
                                               const plan::GpuScanPlan& plan)
    : spec_(spec), rule_(scan_rule(spec.cell)), positions_(positions_of(call.batch, call.x, spec.input)) {
  require(prepare_one_launch(device, call, plan), "the plan must be of the fused or the epilogue algorithm, not {}",
          to_string(plan.algorithm));
}

bool LayerForwardExecutable::prepare_one_launch(Device& device, const LayerForward& call,
                                                const plan::GpuScanPlan& plan) {
  if (plan.algorithm == plan::ScanAlgorithm::fused) fused_.emplace(device, fused_of(call, spec_, rule_), plan);
  if (plan.algorithm == plan::ScanAlgorithm::epilogue) epilogue_.emplace(device, fused_of(call, spec_, rule_), plan);
  places_ = one_after_the_other(parts());
  return fused_.has_value() || epilogue_.has_value();
}

const plan::GpuScanPlan& LayerForwardExecutable::plan() const {
  return fused_ ? fused_->plan() : epilogue_ ? epilogue_->plan() : scan_->plan();
}

LayerForwardExecutable::LayerForwardExecutable(Device& device, const LayerSpec& spec, const LayerForward& call)
    : spec_(spec), rule_(scan_rule(spec.cell)), positions_(positions_of(call.batch, call.x, spec.input)) {
  const plan::GpuScanPlan plan = plan_gpu_layer(problem_of(call, spec, rule_), device.model());
  if (prepare_one_launch(device, call, plan)) return;
  scan_.emplace(device, scan_of(call, spec, rule_), plan);
  product_ = MatrixProduct(device, forward_product(call, spec, rule_));
  places_ = one_after_the_other(parts());
}

WorkspaceParts LayerForwardExecutable::parts() const {
  const std::size_t passed = scan_ ? scan_->workspace_bytes() : epilogue_ ? epilogue_->workspace_bytes() : 0;
  return {padded(passed), 0, product_.workspace_bytes()};
}

void LayerForwardExecutable::run(const LayerForward& call, DeviceAddress workspace, StreamHandle stream) const {
  const Range range("penstock layer forward");
  if (fused_) {
    fused_->run(fused_of(call, spec_, rule_), stream);
    return;
  }
  if (epilogue_) {
    epilogue_->run(fused_of(call, spec_, rule_), workspace + places_.passed, stream);
    return;
  }
  require_address(call.gates, "gates");
  const ScanForward scan = scan_of(call, spec_, rule_);
  positions_.require_of(call.batch, call.x, spec_.input);
  product_.run(call.x.data, call.weights.weight, call.gates, call.weights.bias, workspace + places_.products, stream);
  scan_->run(scan, workspace + places_.passed, stream);
}

void LayerForwardExecutable::run_scan(const LayerForward& call, DeviceAddress workspace, StreamHandle stream) const {
  require(scan_.has_value(), "a layer of one launch has no second half");
  scan_->run(scan_of(call, spec_, rule_), workspace + places_.passed, stream);
}

LayerBackwardExecutable::LayerBackwardExecutable(Device& device, const LayerSpec& spec, const LayerBackward& call)
    : spec_(spec),
      rule_(scan_rule(spec.cell)),
      scan_(device, scan_of(call, spec, rule_)),
      positions_(positions_of(call.batch, call.x, spec.input)),
      products_(device, gradients_of(call, spec, rule_)),
      wants_dx_(call.dx.data != 0) {
  if (rule_.learnt > 0) {
    const ColumnSums sums{.storage = plan::Storage::f32,
                          .result = spec.gradients,
                          .rows = scan_.dlearnt_rows(),
                          .columns = rule_.learnt * spec.hidden,
                          .alignment = common_alignment(16, {rule_.learnt * spec.hidden * Index{sizeof(float)}})};
    learnt_sums_.emplace(device, sums);
  }
  if (const RestartStates& restarts = call.batch.restarts; call.drestarts != 0 && restarts.step == 0) {
    const Index shares = scan_.step_groups(), rows = call.batch.rows;
    const bool one = restarts.row == 0;
    restart_sums_.emplace(device, ColumnSums{.storage = plan::Storage::f32,
                                             .result = plan::Storage::f32,
                                             .rows = one ? shares * rows : shares,
                                             .columns = one ? spec.hidden : rows * spec.hidden,
                                             .alignment = common_alignment(16, {spec.hidden * Index{sizeof(float)}})});
  }
  places_ = one_after_the_other(parts());
}

std::size_t LayerBackwardExecutable::dlearnt_bytes() const {
  if (!learnt_sums_) return 0;
  return padded(static_cast<std::size_t>(scan_.dlearnt_rows() * rule_.learnt * spec_.hidden) * sizeof(float));
}

std::size_t LayerBackwardExecutable::drestarts_bytes() const {
  return restart_sums_ ? padded(static_cast<std::size_t>(scan_.dlearnt_rows() * spec_.hidden) * sizeof(float)) : 0;
}

WorkspaceParts LayerBackwardExecutable::parts() const {
  const std::size_t sums = padded(products_.sums_bytes()) + padded(learnt_sums_ ? learnt_sums_->workspace_bytes() : 0) +
                           padded(restart_sums_ ? restart_sums_->workspace_bytes() : 0);
  return {padded(scan_.workspace_bytes()), sums,
          std::max(products_.products_bytes(), dlearnt_bytes() + drestarts_bytes())};
}

/// Returns where the scan adds the gradients of restarts, zeros at first: at their own place, or as shares of it.
DeviceAddress LayerBackwardExecutable::clear_drestarts(const LayerBackward& call, DeviceAddress shares,
                                                       StreamHandle stream) const {
  if (call.drestarts == 0) return 0;
  const auto own = static_cast<std::size_t>(call.batch.rows * call.batch.restarts.row) * sizeof(float);
  const DeviceAddress to = restart_sums_ ? shares : call.drestarts;
  check(driver().fill_bytes(to, 0, restart_sums_ ? drestarts_bytes() : own, stream), "clearing gradients of states");
  return to;
}

void LayerBackwardExecutable::run(const LayerBackward& call, DeviceAddress workspace, StreamHandle stream) const {
  const Range range("penstock layer backward");
  ScanBackward scan = scan_of(call, spec_, rule_);
  positions_.require_of(call.batch, call.x, spec_.input);
  require((call.dx.data != 0) == wants_dx_, "the call must have {}, as prepared", wants_dx_ ? "a dx" : "no dx");
  if (learnt_sums_) {
    scan.dlearnt = workspace + places_.products;
    check(driver().fill_bytes(scan.dlearnt, 0, dlearnt_bytes(), stream), "clearing gradients of learnt vectors");
  }
  const DeviceAddress shares = workspace + places_.products + dlearnt_bytes();
  scan.drestarts = clear_drestarts(call, shares, stream);
  scan_.run(scan, workspace + places_.passed, stream);
  if (scan.drestarts != 0 && restart_sums_) {
    const std::size_t counters = parts().sums - padded(restart_sums_->workspace_bytes());
    restart_sums_->run(shares, call.drestarts, workspace + places_.sums + counters, stream);
  }
  if (learnt_sums_) {
    learnt_sums_->run(scan.dlearnt, learnt_of(call.gradients.bias, spec_, rule_, spec_.gradients),
                      workspace + places_.sums + padded(products_.sums_bytes()), stream);
  }
  products_.run({.x = call.x.data,
                 .weight = call.weights.weight,
                 .dy = call.dgates,
                 .dweight = call.gradients.weight,
                 .dbias = call.gradients.bias,
                 .dx = call.dx.data,
                 .add_dx = call.add_dx},
                workspace + places_.sums, workspace + places_.products, stream);
}

}  // namespace penstock::cuda
