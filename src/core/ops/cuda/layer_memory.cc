#include "ops/cuda/layer_memory.h"

#include "backend/cuda/driver/driver.h"
#include "base/check.h"
#include "plan/cell_table.h"

namespace penstock::ops {

namespace {

cuda::CopyRows sequence_copy(const Target& target, Index channels, const SequenceStrides& from,
                             const SequenceStrides& to, int alignment) {
  cuda::CopyRows copy{.positions = {target.rows, target.steps, target.has(CallFlag::lengths)}, .width = channels};
  if (target.packed > 0) copy.positions = {1, target.packed, false};
  copy.from_stride = from.step, copy.to_stride = to.step;
  copy.batches = true;
  if (target.packed == 0) copy.from_batch = from.row, copy.to_batch = to.row;
  copy.from = copy.to = storage_of(target.dtype);
  copy.alignment = std::min(alignment, cuda::kAlignment);
  return copy;
}

/// Values of the gradients of weight_ih, weight_hh, bias_ih, bias_hh.
std::array<Index, 4> gradient_sizes(const Recurrence& shape) {
  const Index gates = plan::cell_traits(shape.cell).info.gates * shape.hidden;
  const bool dense = !shape.is_scan();
  const Index bias = plan::cell_traits(shape.cell).bias_vectors() * shape.hidden;
  return {shape.projected ? 0 : gates * shape.input, dense ? gates * (shape.hidden / shape.heads) : 0,
          shape.bias != Bias::none ? bias : 0, dense && shape.bias == Bias::both ? gates : 0};
}

}  // namespace

SequenceCopy::SequenceCopy(const Target& target, Index channels, const SequenceStrides& from, const SequenceStrides& to,
                           int alignment)
    : kernel_(gpu_of(target), sequence_copy(target, channels, from, to, alignment)),
      lengths_(target.has(CallFlag::lengths)) {}

void SequenceCopy::run(const Call& call, cuda::DeviceAddress from, cuda::DeviceAddress to) const {
  kernel_.run({.from = from, .to = to, .lengths = lengths_ ? address_of(call.batch.lengths) : 0}, stream_of(call));
}

InputMatrix::InputMatrix(const Recurrence& shape, const Target& target, bool clean, bool wants_dx)
    : alignment_(shape.alignment) {
  const Index rows = target.packed > 0 ? 1 : target.rows;
  const Index width = shape.input;
  steps_ = target.packed > 0 ? target.packed : target.steps;
  const SequenceStrides by_row{steps_ * width, width};
  // The strides of a single position may be anything.
  const bool one = rows * steps_ == 1;
  const SequenceStrides x = one ? by_row : strides_or(shape.x_strides, by_row);
  const SequenceStrides dx = one ? by_row : strides_or(shape.dx_strides, x);
  const bool by_rows =
      steps_ == 1 ? rows == 1 || x.row >= width : (rows == 1 || x.row == steps_ * x.step) && x.step >= width;
  const bool by_steps = steps_ > 1 && rows > 1 && x.step == rows * x.row && x.row >= width;
  const std::size_t bytes = padded(static_cast<std::size_t>(target.positions() * width) * size_of(target.dtype));
  strides_ = dx_strides_ = x;
  time_first_ = !by_rows && by_steps;
  const SequenceStrides gapless = time_first_ ? SequenceStrides{width, rows * width} : by_row;
  if (shape.projected) {
    dx_strides_ = gapless;
    const bool as_made = (rows == 1 || dx.row == gapless.row) && (steps_ == 1 || dx.step == gapless.step);
    if (!wants_dx || as_made) return;
    dx_bytes_ = bytes;
    dx_out_.emplace(target, width, gapless, dx, shape.alignment);
    return;
  }
  const bool apart = !by_rows && !by_steps;
  // Products make dx with the strides of the matrix that they read. A gradient in places of its own has no gaps.
  const bool dx_apart = wants_dx && (dx != x || apart || (clean && target.has(CallFlag::lengths)));
  if (apart || dx_apart || (clean && target.has(CallFlag::lengths))) {
    strides_ = dx_strides_ = gapless;  // in the order of the forward pass
    alignment_ = call_alignment;
    x_bytes_ = bytes;
    x_in_.emplace(target, width, x, strides_, shape.alignment);
  }
  if (!dx_apart) return;
  dx_bytes_ = bytes;
  if (shape.add_dx) dx_in_.emplace(target, width, dx, strides_, shape.alignment);
  dx_out_.emplace(target, width, strides_, dx, shape.alignment);
}

cuda::DeviceSequence InputMatrix::enter(const Call& call, cuda::DeviceAddress x, cuda::DeviceAddress scratch) const {
  if (x_in_) x_in_->run(call, x, scratch);
  return {place(x, scratch), strides_.row, strides_.step};
}

cuda::DeviceSequence InputMatrix::enter_dx(const Call& call, cuda::DeviceAddress dx,
                                           cuda::DeviceAddress scratch) const {
  const cuda::DeviceAddress copy = scratch + x_bytes_;
  if (dx_in_) dx_in_->run(call, dx, copy);
  return {dx_out_ ? copy : dx, dx_strides_.row, dx_strides_.step};
}

void InputMatrix::leave_dx(const Call& call, cuda::DeviceAddress dx, cuda::DeviceAddress scratch) const {
  if (dx_out_) dx_out_->run(call, scratch + x_bytes_, dx);
}

LayerGradients::LayerGradients(const Recurrence& shape, const Target& target) {
  if (!shape.add_gradients) return;
  const std::array<Index, 4> sizes = gradient_sizes(shape);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) continue;
    places_[i] = bytes_;
    bytes_ += padded(static_cast<std::size_t>(sizes[i]) * size_of(target.master()));
    sums_[i].emplace(gpu_of(target), cuda::Residual{.size = sizes[i], .storage = plan::Storage::f32});
  }
}

cuda::DeviceAddress LayerGradients::address(const Operands& memory, int which, cuda::DeviceAddress scratch) const {
  const auto i = static_cast<std::size_t>(which);
  const cuda::DeviceAddress wanted = address_of(memory, BackwardOperand::dweight_ih + which);
  return wanted != 0 && sums_[i] ? scratch + places_[i] : wanted;
}

void LayerGradients::finish(const Call& call, const Operands& memory, cuda::DeviceAddress scratch) const {
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const cuda::DeviceAddress sum = address_of(memory, BackwardOperand::dweight_ih + static_cast<int>(i));
    if (sums_[i] && sum != 0) sums_[i]->run({.x = sum, .branch = scratch + places_[i], .y = sum}, stream_of(call));
  }
}

StateBlocks::StateBlocks(const Recurrence& shape, const Target& target)
    : device_(&gpu_of(target)),
      states_(plan::cell_traits(shape.cell).info.states),
      block_(static_cast<std::size_t>(target.rows * shape.hidden) * size_of(target.master())),
      pitch_(block_ * static_cast<std::size_t>(shape.state_pitch)),
      first_pitch_(pitch_ / static_cast<std::size_t>(target.rows) *
                   static_cast<std::size_t>(state_rows(shape.restarts, target.rows, target.steps))),
      has_restarts_(shape.restarts != Restarts::zeros),
      copies_(states_ > 1 && (shape.state_pitch > 1 || has_restarts_)) {
  const bool steps = shape.restarts == Restarts::steps;
  restarts_.state = static_cast<Index>(first_pitch_ / size_of(target.master()));
  restarts_.row = shape.restarts == Restarts::one ? 0 : steps ? target.steps * shape.hidden : shape.hidden;
  restarts_.step = steps ? shape.hidden : 0;
}

cuda::RestartStates StateBlocks::given_restarts(cuda::DeviceAddress state_in) const {
  require(!has_restarts_ || state_in != 0,
          "state_in must not be null on a GPU where rows start again at given states: these stand in it");
  return restarts(state_in);
}

cuda::DeviceAddress StateBlocks::enter(const Call& call, cuda::DeviceAddress states, std::size_t pitch,
                                       cuda::DeviceAddress scratch) const {
  if (states == 0 || !copies_) return states;
  copy(call, states, pitch, scratch, block_);
  return scratch;
}

void StateBlocks::leave(const Call& call, cuda::DeviceAddress states, std::size_t pitch,
                        cuda::DeviceAddress scratch) const {
  if (states != 0 && copies_) copy(call, scratch, block_, states, pitch);
}

void StateBlocks::copy(const Call& call, cuda::DeviceAddress from, std::size_t from_pitch, cuda::DeviceAddress to,
                       std::size_t to_pitch) const {
  device_->make_current();
  for (std::size_t k = 0; k < static_cast<std::size_t>(states_); ++k) {
    cuda::check(cuda::driver().copy_on_device(to + k * to_pitch, from + k * from_pitch, block_, stream_of(call)),
                "copying states of a layer");
  }
}

}  // namespace penstock::ops
