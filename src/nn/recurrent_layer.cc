#include "nn/recurrent_layer.h"

#include <optional>

#include "backend/cpu/kernels.h"
#include "base/aligned.h"
#include "base/check.h"
#include "base/denormals.h"
#include "ops/recurrent.h"

namespace penstock::nn {

template <class Real>
struct RecurrentLayer<Real>::Impl {
  RecurrentLayerSpec spec;
  const plan::CellTraits& cell;
  std::optional<ops::RecurrentOp<Real>> op;  // made anew when the instruction set or the precision changes
  RecurrentWeights<Real> weights;
  // Panels are made on first use, since inference never needs the transposed ones.
  using Panels = typename SharedPanels<Real>::Panels;
  std::shared_ptr<SharedPanels<Real>> shared;
  Panels packed_forward, packed_backward, packed_step;
  std::uint64_t version = 0;  // of the shared panels that these are of
  AlignedVector<Real> workspace, step_workspace;
  std::optional<cpu::CellStep<Real>> step;  // made on first use
  unsigned isa_generation = cpu::isa_generation();
  Precision precision = Precision::full;
  bool exact = true;                     // whether the kernels are those for exact mode
  std::optional<bool> denormal_weights;  // not known before the first call with these weights

  Impl(const RecurrentLayerSpec& s, std::shared_ptr<SharedPanels<Real>> panels)
      : spec(s), cell(plan::cell_traits(s.cell)), shared(std::move(panels)), version(shared->version()) {
    make_op(Precision::full, true);
  }

  void make_op(Precision wanted, bool exactly) {
    op.emplace(cell, spec.input_size, spec.hidden_size, spec.heads, spec.reverse, wanted, exactly);
    isa_generation = cpu::isa_generation();
    precision = wanted;
    exact = exactly;
  }

  /// Panels and kernels belong to one instruction set and one precision, and in bf16 exact mode has kernels of its own.
  void follow(Precision wanted, bool exactly) {
    if (version != shared->version()) {
      version = shared->version();
      forget_panels();
    }
    exactly |= wanted != Precision::bf16;
    if (isa_generation == cpu::isa_generation() && precision == wanted && exact == exactly) return;
    make_op(wanted, exactly);
    forget_panels();
  }

  void forget_panels() {
    packed_forward = packed_backward = packed_step = nullptr;
    denormal_weights.reset();
    step.reset();
  }

  bool has_denormal_weights() {
    if (!denormal_weights) {
      const Index gates = cell.info.gates * spec.hidden_size;
      const auto found = [](const Real* values, Index count) {
        return values != nullptr && has_denormals(values, count);
      };
      denormal_weights = found(weights.weight_ih, gates * spec.input_size) ||
                         found(weights.weight_hh, gates * spec.hidden_size / spec.heads) ||
                         found(weights.bias_ih, gates) || found(weights.bias_hh, gates);
    }
    return *denormal_weights;
  }

  /// Runs work() on sequences with denormal numbers counted as zeros: decaying states and gradients, saturated gates
  /// and some weights are denormal, and would make a layer up to a hundred times slower on some processors.
  template <class Work>
  static void run(const Work& work) {
    const WithDenormals as_zeros(DenormalMode::zeros());
    work();
  }

  /// The same of a step, but only if weights are denormal: changing the mode takes half as long as a small step does,
  /// and callers of many steps do it once.
  template <class Work>
  void run_step(const Work& work) {
    if (!has_denormal_weights()) return work();
    run(work);
  }

  void prepare(const Batch& batch, SequenceView<const Real> x, const Execution& execution) {
    require(weights.weight_ih != nullptr, "set_weights() must come before the first call of a recurrent layer");
    follow(execution.precision, execution.exact);
    op->prepare(batch, x, execution);
  }

  /// Panels of that name for the instruction set and the precision of the op, filled by pack(memory).
  template <class Pack>
  Panels panels(const char* name, std::size_t size, const Pack& pack) {
    return shared->get(fmt::format("{} {} {} {}", name, isa_generation, to_string(precision), exact), [&] {
      AlignedVector<Real> memory(size);
      pack(memory.data());
      return memory;
    });
  }

  const Real* forward_panels() {
    if (!packed_forward) {
      packed_forward = panels("forward", op->packed_forward_size(),
                              [&](Real* memory) { op->pack_forward(weights.weight_ih, weights.weight_hh, memory); });
    }
    return packed_forward->data();
  }

  const Real* backward_panels() {
    if (!packed_backward) {
      packed_backward = panels("backward", op->packed_backward_size(),
                               [&](Real* memory) { op->pack_backward(weights.weight_ih, weights.weight_hh, memory); });
    }
    return packed_backward->data();
  }

  void prepare_step() {
    require(weights.weight_ih != nullptr, "set_weights() must come before the first step of a recurrent layer");
    packed_step = panels("step", op->packed_step_size(), [&](Real* memory) {
      op->pack_step({weights.weight_ih, weights.weight_hh, weights.bias_ih, weights.bias_hh}, memory);
    });
    step_workspace.resize(op->step_workspace());
    step = op->step_job(packed_step->data(), step_workspace.data());
  }

  Real* space(std::size_t size) {
    if (workspace.size() < size) workspace.resize(size);
    return workspace.data();
  }

  ops::Weights<Real> weights_with(const Real* packed) const {
    return {weights.weight_ih, weights.bias_ih, weights.bias_hh, packed};
  }
};

template <class Real>
auto SharedPanels<Real>::get(const std::string& key, const std::function<AlignedVector<Real>()>& make) -> Panels {
  const std::lock_guard lock(guard_);
  Panels& held = panels_[key];
  if (!held) held = std::make_shared<const AlignedVector<Real>>(make());
  return held;
}

template <class Real>
void SharedPanels<Real>::forget() {
  const std::lock_guard lock(guard_);
  panels_.clear();
  version_.fetch_add(1, std::memory_order_release);
}

template <class Real>
RecurrentLayer<Real>::RecurrentLayer(const RecurrentLayerSpec& spec, std::shared_ptr<SharedPanels<Real>> panels)
    : impl_(std::make_unique<Impl>(spec, std::move(panels))) {}
template <class Real>
RecurrentLayer<Real>::~RecurrentLayer() = default;
template <class Real>
RecurrentLayer<Real>::RecurrentLayer(RecurrentLayer&&) noexcept = default;
template <class Real>
RecurrentLayer<Real>& RecurrentLayer<Real>::operator=(RecurrentLayer&&) noexcept = default;

template <class Real>
const RecurrentLayerSpec& RecurrentLayer<Real>::spec() const {
  return impl_->spec;
}

template <class Real>
std::vector<typename RecurrentLayer<Real>::ParameterShape> RecurrentLayer<Real>::parameters() const {
  const RecurrentLayerSpec& spec = impl_->spec;
  const Index gates = impl_->cell.info.gates * spec.hidden_size;
  const bool dense = !impl_->cell.info.scan;
  using Weights = RecurrentWeights<Real>;
  std::vector<ParameterShape> shapes = {{"weight_ih", {gates, spec.input_size}, &Weights::weight_ih}};
  if (dense && spec.heads == 1) shapes.push_back({"weight_hh", {gates, spec.hidden_size}, &Weights::weight_hh});
  if (dense && spec.heads > 1) {
    shapes.push_back(
        {"weight_hh", {spec.heads, gates / spec.heads, spec.hidden_size / spec.heads}, &Weights::weight_hh});
  }
  if (spec.bias != Bias::none) shapes.push_back({"bias_ih", {gates}, &Weights::bias_ih});
  if (spec.bias == Bias::both && dense) shapes.push_back({"bias_hh", {gates}, &Weights::bias_hh});
  return shapes;
}

template <class Real>
void RecurrentLayer<Real>::set_weights(const RecurrentWeights<Real>& weights) {
  impl_->weights = weights;
  impl_->forget_panels();
}

template <class Real>
Index RecurrentLayer<Real>::states() const {
  return impl_->cell.info.states;
}

template <class Real>
Index RecurrentLayer<Real>::tape_size(const Batch& batch, const Execution& execution) const {
  impl_->follow(execution.precision, execution.exact);
  impl_->op->prepare(batch, SequenceView<const Real>::batch_first(nullptr, batch.steps, impl_->spec.input_size),
                     execution);
  return static_cast<Index>(impl_->op->tape_size());
}

template <class Real>
bool RecurrentLayer<Real>::rounds_tape(const Execution& execution) const {
  impl_->follow(execution.precision, execution.exact);
  return impl_->op->rounds_tape();
}

template <class Real>
void RecurrentLayer<Real>::forward(const Batch& batch, SequenceView<const Real> x, SequenceView<Real> y,
                                   const Real* state_in, Real* state_out, Real* tape,
                                   const Execution& execution) const {
  impl_->prepare(batch, x, execution);
  ops::ForwardArguments<Real> call;
  call.x = x;
  call.y = y;
  call.state_in = state_in;
  call.state_out = state_out;
  call.weights = impl_->weights_with(impl_->forward_panels());
  call.tape = tape;
  Impl::run([&] { impl_->op->forward(call, impl_->space(impl_->op->forward_workspace())); });
}

template <class Real>
void RecurrentLayer<Real>::prepare_step(Precision precision) const {
  impl_->follow(precision, impl_->exact);
  impl_->prepare_step();
}

template <class Real>
void RecurrentLayer<Real>::step(const Real* x, Real* y, Real* state, Index stride, Precision precision) const {
  Impl& impl = *impl_;
  impl.follow(precision, impl.exact);  // a step has one row: both kinds of kernels give the same bits
  if (!impl.step) impl.prepare_step();
  cpu::CellStep<Real>& job = *impl.step;
  job.backwards = !job.backwards;
  job.x = x;
  job.y = y;
  for (Index k = 0; k < impl.cell.info.states; ++k) job.state[k] = state + k * stride;
  impl.run_step([&] { impl.op->step(job); });
}

template <class Real>
void RecurrentLayer<Real>::backward(const Batch& batch, SequenceView<const Real> x, SequenceView<const Real> y,
                                    SequenceView<const Real> dy, const Real* state_in, const Real* dstate_out,
                                    SequenceView<Real> dx, Real* dstate_in, const Real* tape,
                                    const RecurrentWeights<Real>& gradients, const Execution& execution) const {
  impl_->prepare(batch, x, execution);
  ops::BackwardArguments<Real> call;
  call.x = x;
  call.y = y;
  call.dy = dy;
  call.state_in = state_in;
  call.dstate_out = dstate_out;
  call.dx = dx;
  call.dstate_in = dstate_in;
  call.weights = impl_->weights_with(impl_->backward_panels());
  call.gradients = {gradients.weight_ih, gradients.weight_hh, gradients.bias_ih, gradients.bias_hh};
  call.tape = tape;
  Impl::run([&] { impl_->op->backward(call, impl_->space(impl_->op->backward_workspace())); });
}

template class SharedPanels<float>;
template class SharedPanels<double>;
template class RecurrentLayer<float>;
template class RecurrentLayer<double>;

}  // namespace penstock::nn
