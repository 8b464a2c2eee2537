// The backward pass of layers of dense cells on top of each other on a GPU, as a wavefront from the highest layer down:
// while a layer runs a chunk of steps, the one below runs the chunk before, whose gradients of outputs are there.

#include <array>
#include <optional>

#include "backend/cuda/pointwise/copy.h"
#include "ops/cuda/branches.h"
#include "ops/cuda/dense_layer_gradients.h"
#include "ops/cuda/ops.h"
#include "ops/recurrence/recurrence_stack_operands.h"

namespace penstock::ops {

namespace {

using cuda::DeviceAddress;

/// The steps of a chunk, and how many chunks have run before it.
struct Chunk {
  Index number, begin, steps;
};

/// One layer. Gradients of its outputs come from the layer above, those of its inputs go to the one below, chunk by
/// chunk; what else the products of its gates' gradients make is made at the end, over all steps.
class ChunkedGradients {
 public:
  ChunkedGradients(const Recurrence& shape, bool lowest, bool wants_dx, const Target& target,
                   const plan::GpuWavefront& plan, ScratchPlaces& scratch, ScratchPlaces& persistent)
      : shape_(shape),
        target_(target),
        chunk_(plan.chunk),
        chunks_(plan.chunks(target.steps)),
        gradients_(shape, lowest && wants_dx, target, plan.plan),
        edges_(gpu_of(target), copy_of_edges()),
        place_(scratch.take(gradients_.scratch_bytes())),
        persistent_place_(persistent.take(gradients_.persistent_bytes())),
        edges_place_(scratch.take(static_cast<std::size_t>(chunks_ - 1) * output_bytes())) {
    for (std::size_t& place : carry_places_) place = scratch.take(state_bytes());
    if (lowest) return;
    dx_place_ = scratch.take(bytes_of_inputs());
    add_product(dx_product_, chunk_);
    if (const Index rest = target.steps % chunk_; rest > 0) add_product(rest_product_, rest);
    product_place_ = scratch.take(product_bytes_);
  }

  /// Returns the place of the gradient of the output of the layer below.
  void* dx(const Operands& memory) const { return static_cast<std::byte*>(memory.scratch) + dx_place_; }

  /// Begins before the first chunk. `values`: the operands of the layer's own backward pass.
  void begin(const Call& call, void* const* values, const Operands& memory) {
    const cuda::DenseBackward& loop = gradients_.enter(call, own(values, memory));
    const Index edge = shape_.reverse ? chunk_ : chunk_ - 1;  // the step whose output entered a chunk
    const std::size_t bytes = static_cast<std::size_t>(edge * loop.y.step_stride) * size_of(target_.dtype);
    edges_.run({.from = loop.y.data + bytes, .to = address_of(memory.scratch) + edges_place_}, stream_of(call));
  }

  void run_loop(const Call& call, const Chunk& chunk, void* const* values, const Operands& memory) const {
    cuda::DenseBackward part = cuda::steps_of(gradients_.whole(), gradients_.spec(), chunk.begin, chunk.steps);
    const DeviceAddress scratch = address_of(memory.scratch);
    const auto carry = [&](Index number) { return scratch + carry_places_[static_cast<std::size_t>(number % 2)]; };
    if (chunk.number > 0) part.dstate_out = carry(chunk.number - 1);
    if (chunk.number + 1 < chunks_) {
      part.dstate_in = carry(chunk.number);
      const Index edge = shape_.reverse ? chunk.number : chunks_ - 2 - chunk.number;
      part.state_in = scratch + edges_place_ + static_cast<std::size_t>(edge) * output_bytes();
    }
    gradients_.run_loop(call, own(values, memory), part);
  }

  void run_dx(const Call& call, const Chunk& chunk, void* const* values, const Operands& memory) const {
    const auto bytes_of = [&](Index width) {
      return static_cast<DeviceAddress>(chunk.begin * target_.rows * width) * size_of(target_.dtype);
    };
    const cuda::MatrixProduct& product = chunk.steps == chunk_ ? *dx_product_ : *rest_product_;
    product.run(gradients_.whole().dwx + bytes_of(gate_pitch_of(shape_, target_)),
                address_of(values[BackwardOperand::weight_ih]), address_of(dx(memory)) + bytes_of(shape_.input), 0,
                address_of(memory.scratch) + product_place_, stream_of(call));
  }

  /// Finishes after the last chunk.
  void finish(const Call& call, void* const* values, const Operands& memory) const {
    gradients_.finish(call, own(values, memory));
  }

 private:
  std::size_t output_bytes() const { return static_cast<std::size_t>(target_.rows * shape_.hidden) * sizeof(float); }
  std::size_t state_bytes() const {
    return static_cast<std::size_t>(shape_.state_size() * target_.rows) * size_of(target_.master());
  }
  std::size_t bytes_of_inputs() const {
    return static_cast<std::size_t>(target_.positions() * shape_.input) * size_of(target_.dtype);
  }

  /// The layer's part of the stack's memory.
  Operands own(void* const* values, const Operands& memory) const {
    return {values, static_cast<std::byte*>(memory.scratch) + place_,
            static_cast<std::byte*>(memory.persistent) + persistent_place_};
  }

  /// The outputs that entered each chunk but the first in the order of the forward pass, as floats [chunks - 1, B, H].
  cuda::CopyRows copy_of_edges() const {
    const SequenceStrides y = strides_or(shape_.y_strides, {target_.steps * shape_.hidden, shape_.hidden});
    const auto bytes = [&](Index values) { return values * static_cast<Index>(size_of(target_.dtype)); };
    cuda::CopyRows copy{.positions = {target_.rows, chunks_ - 1}, .width = shape_.hidden};
    copy.batches = true;
    copy.from_stride = chunk_ * y.step, copy.from_batch = y.row;
    copy.to_stride = target_.rows * shape_.hidden, copy.to_batch = shape_.hidden;
    copy.from = storage_of(target_.dtype), copy.to = plan::Storage::f32;
    const auto given = static_cast<std::int64_t>(planned_sequence(shape_));
    copy.alignment = cuda::common_alignment(cuda::kAlignment, {given, bytes(y.step), bytes(y.row)});
    return copy;
  }

  void add_product(std::optional<cuda::MatrixProduct>& product, Index steps) {
    cuda::GradientShape shape = gradients_.products_of(target_.rows * steps);
    const auto chunk_bytes = [&](Index width) {
      return chunk_ * target_.rows * width * static_cast<Index>(size_of(target_.dtype));
    };
    shape.dy_alignment = cuda::common_alignment(shape.dy_alignment, {chunk_bytes(gate_pitch_of(shape_, target_))});
    shape.dx_alignment = cuda::common_alignment(planned_value, {chunk_bytes(shape_.input)});
    shape.x_stride = shape_.input;
    product.emplace(gpu_of(target_), cuda::input_gradient_product(shape));
    product_bytes_ = std::max(product_bytes_, product->workspace_bytes());
  }

  Recurrence shape_;
  Target target_;
  Index chunk_, chunks_;
  DenseLayerGradients gradients_;
  cuda::CopyRowsExecutable edges_;
  std::optional<cuda::MatrixProduct> dx_product_, rest_product_;  // the second of the last chunk, where that is shorter
  std::size_t place_, persistent_place_, edges_place_, dx_place_ = 0, product_place_ = 0, product_bytes_ = 0;
  std::array<std::size_t, 2> carry_places_ = {};  // gradients of the state between two chunks
};

/// A layer's passes run on one branch, the gradients of its inputs on another.
class DenseStackBackward final : public Executable {
 public:
  DenseStackBackward(const RecurrenceStack& stack, bool wants_dx, const Target& target, const plan::GpuWavefront& plan)
      : steps_(target.steps),
        chunk_(plan.chunk),
        chunks_(plan.chunks(target.steps)),
        reverse_(stack.layers.front().reverse),
        branches_(gpu_of(target), static_cast<Index>(stack.layers.size())) {
    for (const Recurrence& layer : stack.layers) {
      layers_.push_back(
          std::make_unique<ChunkedGradients>(layer, layers_.empty(), wants_dx, target, plan, scratch_, persistent_));
      done_.push_back(std::make_unique<cuda::Event>(gpu_of(target)));
      multiplied_.push_back(std::make_unique<ChunkEvents>(gpu_of(target)));
    }
  }

  std::size_t scratch_bytes() const override { return scratch_.bytes(); }
  std::size_t persistent_bytes() const override { return persistent_.bytes(); }

  void run(const Call& call, const Operands& memory) override {
    const std::size_t layers = layers_.size();
    branches_.fork(stream_of(call));
    run_waves(static_cast<Index>(layers), chunks_, [&](Index above, Index number) {
      run_chunk(layers - 1 - static_cast<std::size_t>(above), number, call, memory);
    });
    branches_.join(stream_of(call));
  }

 private:
  void run_chunk(std::size_t l, Index number, const Call& call, const Operands& memory) {
    StackBackwardLayer operands(memory, layers_.size(), l);
    ChunkedGradients& layer = *layers_[l];
    const bool highest = l + 1 == layers_.size(), lowest = l == 0;
    if (!highest) operands.values[StackBackwardLayer::dy] = layers_[l + 1]->dx(memory);
    const Index place = reverse_ ? number : chunks_ - 1 - number;
    const Chunk chunk{number, place * chunk_, std::min(chunk_, steps_ - place * chunk_)};
    Call on_branch = call;
    on_branch.stream = branches_.of_recurrence(l);
    if (number == 0) layer.begin(on_branch, operands.values, memory);
    if (!highest) multiplied_[l + 1]->of(number).hold_back(branches_.of_recurrence(l));
    layer.run_loop(on_branch, chunk, operands.values, memory);
    if (!lowest) {
      done_[l]->record(branches_.of_recurrence(l));
      done_[l]->hold_back(branches_.of_product(l));
      Call of_product = call;
      of_product.stream = branches_.of_product(l);
      layer.run_dx(of_product, chunk, operands.values, memory);
      multiplied_[l]->of(number).record(branches_.of_product(l));
    }
    if (number + 1 == chunks_) layer.finish(on_branch, operands.values, memory);
  }

  Index steps_, chunk_, chunks_;
  bool reverse_;
  ScratchPlaces scratch_, persistent_;
  LayerBranches branches_;
  std::vector<std::unique_ptr<ChunkedGradients>> layers_;
  std::vector<std::unique_ptr<cuda::Event>> done_;        // of each layer's latest chunk
  std::vector<std::unique_ptr<ChunkEvents>> multiplied_;  // of the gradients of each layer's inputs
};

}  // namespace

Prepared cuda_stack_backward(const RecurrenceStack& stack, bool wants_dx, const Target& target) {
  const plan::GpuWavefront plan = plan_gpu_stack(stack, target, gpu_of(target).model(), true);
  return plan.chunk > 0 ? std::make_unique<DenseStackBackward>(stack, wants_dx, target, plan) : nullptr;
}

}  // namespace penstock::ops
