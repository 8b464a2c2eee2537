// Layers of dense cells on top of each other on a GPU, as a wavefront: while a layer runs a chunk of steps, those above
// it run the chunks before, on branches of the stream's work. Where that is recorded, they are branches of the graph.

#include <array>
#include <optional>

#include "backend/cuda/product/matrix_product.h"
#include "ops/cuda/branches.h"
#include "ops/cuda/dense_layer.h"
#include "ops/cuda/layer_memory.h"
#include "ops/cuda/ops.h"
#include "ops/recurrence/recurrence_stack_operands.h"

namespace penstock::ops {

namespace {

using cuda::DeviceAddress;

/// Arguments of one chunk of a layer.
struct ChunkCall {
  const Call& call;
  const StackForwardLayer& operands;
  DeviceAddress scratch;
  cuda::StreamHandle stream;
  Index number, chunks;  // in the order in which the layer runs
  Index begin, steps;    // in time

  DeviceAddress address(int i) const { return address_of(operands.values[i]); }
};

/// The forward pass of one layer in chunks, for each a product of its input and the recurrence over that. The lowest
/// layer multiplies its whole input beforehand, whose steps may lie anywhere; those above read steps that follow each
/// other in memory. Products of two chunks have memory, so that one is made while the recurrence reads the other.
class ChunkedLayer {
 public:
  ChunkedLayer(const Recurrence& shape, const Target& target, bool lowest, const plan::GpuWavefront& plan,
               ScratchPlaces& places)
      : shape_(shape),
        target_(target),
        chunk_(plan.chunk),
        lowest_(lowest),
        tape_(shape, target),
        input_(shape, target, false, false),
        states_(shape, target),
        spec_(dense_spec(shape, target)),
        whole_(planned_forward(shape, target, input_, tape_, StateBlocks(shape, target))),
        recurrence_(gpu_of(target), spec_, planned(), plan.plan),
        product_(gpu_of(target), input_product(lowest ? target.steps : chunk_)) {
    std::size_t product_bytes = product_.workspace_bytes();
    if (const Index rest = lowest ? 0 : target.steps % chunk_; rest > 0) {
      rest_product_.emplace(gpu_of(target), input_product(rest));
      product_bytes = std::max(product_bytes, rest_product_->workspace_bytes());
    }
    product_place_ = places.take(product_bytes);
    if (!keeps_wx()) {
      wx_places_.fill(places.take(bytes_of(wx_steps() * step_values())));
      if (!lowest) wx_places_[1] = places.take(bytes_of(chunk_ * step_values()));
    }
    input_place_ = places.take(input_.scratch_bytes());
    order_place_ = places.take(recurrence_.workspace_bytes());
    entering_place_ = places.take(states_.scratch_bytes());
    state_place_ = places.take(static_cast<std::size_t>(shape.state_size() * target.rows) * size_of(target.master()));
  }

  std::size_t tape_bytes() const { return tape_.end; }

  /// Multiplies the input of a chunk; of the lowest layer, which is asked for the first one alone, of all chunks.
  void run_product(const ChunkCall& chunk) const {
    DeviceAddress x = chunk.address(StackForwardLayer::x), wx = wx_of(chunk).data;
    const bool whole = lowest_ || chunk.steps == chunk_;
    if (lowest_) {
      x = input_.enter(call_of(chunk), x, chunk.scratch + input_place_).data;
      wx = all_wx(chunk);
    } else {
      x += bytes_of(chunk.begin * target_.rows * shape_.input);
    }
    const cuda::MatrixProduct& product = whole ? product_ : *rest_product_;
    product.run(x, chunk.address(StackForwardLayer::weight_ih), wx, 0, chunk.scratch + product_place_, chunk.stream);
  }

  void run_recurrence(const ChunkCall& chunk) {
    enter(chunk);
    cuda::DenseForward forward = cuda::steps_of(whole_, spec_, chunk.begin, chunk.steps);
    forward.wx = wx_of(chunk);
    const DeviceAddress state_out = chunk.address(StackForwardLayer::state_out);
    const DeviceAddress state = states_.copies() || state_out == 0 ? chunk.scratch + state_place_ : state_out;
    const Call call = call_of(chunk);
    const bool first = chunk.number == 0, last = chunk.number + 1 == chunk.chunks;
    forward.state_in =
        first ? states_.enter(call, chunk.address(StackForwardLayer::state_in), chunk.scratch + entering_place_)
              : state;
    forward.state_out = state;
    recurrence_.run(forward, chunk.scratch + order_place_, chunk.stream);
    if (last && state_out != 0) states_.leave(call, state_out, state);
  }

 private:
  static Call call_of(const ChunkCall& chunk) {
    Call call = chunk.call;
    call.stream = chunk.stream;
    return call;
  }
  static DeviceAddress tape(const ChunkCall& chunk) { return chunk.address(StackForwardLayer::tape); }

  /// Bytes of values of activations.
  std::size_t bytes_of(Index values) const { return static_cast<std::size_t>(values) * size_of(target_.dtype); }
  /// Values of a step of wx.
  Index step_values() const { return target_.rows * gate_pitch_of(shape_, target_); }
  /// Returns whether the backward pass reads wx again.
  bool keeps_wx() const { return target_.has(CallFlag::training) && tape_.split; }
  /// Steps of one wx that there is memory for.
  Index wx_steps() const { return lowest_ || keeps_wx() ? target_.steps : chunk_; }

  /// wx of all steps, where it is not one of two chunks.
  DeviceAddress all_wx(const ChunkCall& chunk) const {
    return keeps_wx() ? tape(chunk) + tape_.wx : chunk.scratch + wx_places_[0];
  }
  /// wx of a chunk.
  cuda::DeviceSequence wx_of(const ChunkCall& chunk) const {
    cuda::DenseBatch batch = whole_.batch;
    batch.steps = wx_steps();
    cuda::DeviceSequence wx = gapless(0, batch, gate_pitch_of(shape_, target_));
    if (wx_steps() == chunk_) {
      wx.data = chunk.scratch + wx_places_[static_cast<std::size_t>(chunk.number % 2)];
    } else {
      wx.data = all_wx(chunk) + bytes_of(chunk.begin * wx.step_stride);
    }
    return wx;
  }

  /// Gives the whole pass its addresses, but for W x and the states that enter and leave: each chunk has its own.
  void enter(const ChunkCall& chunk) {
    set_rows(whole_.batch, chunk.call.batch);
    whole_.y.data = chunk.address(StackForwardLayer::y);
    whole_.weights = {chunk.address(StackForwardLayer::weight_hh), chunk.address(StackForwardLayer::bias_ih),
                      chunk.address(StackForwardLayer::bias_hh)};
    if (target_.has(CallFlag::training)) whole_.tape = tape_.at(tape(chunk));
    whole_.every_state.data = chunk.address(StackForwardLayer::states);
  }

  cuda::ProductShape input_product(Index steps) const {
    cuda::ProductShape product = ops::input_product(shape_, target_, input_, target_.rows * steps);
    if (lowest_) return product;
    // Bytes that the inputs of all chunks are multiples of, and their products.
    const auto chunk_bytes = [&](Index step) { return static_cast<std::int64_t>(bytes_of(chunk_ * step)); };
    product.a_alignment = cuda::common_alignment(product.a_alignment, {chunk_bytes(target_.rows * shape_.input)});
    product.d_alignment = cuda::common_alignment(product.d_alignment, {chunk_bytes(step_values())});
    return product;
  }

  /// A call of a chunk.
  cuda::DenseForward planned() const {
    cuda::DenseForward forward = whole_;
    forward.batch.tape_steps = forward.batch.steps;
    forward.batch.steps = chunk_;
    return forward;
  }

  Recurrence shape_;
  Target target_;
  Index chunk_;
  bool lowest_;
  TapePlaces tape_;
  InputMatrix input_;
  StateBlocks states_;
  cuda::DenseSpec spec_;
  cuda::DenseForward whole_;
  cuda::DenseForwardExecutable recurrence_;
  cuda::MatrixProduct product_;
  std::optional<cuda::MatrixProduct> rest_product_;  // of the last chunk, where that is shorter
  std::array<std::size_t, 2> wx_places_ = {};
  std::size_t product_place_ = 0, input_place_ = 0, order_place_ = 0, entering_place_ = 0, state_place_ = 0;
};

/// A layer's recurrences run on one branch, its products on another, a chunk ahead.
class DenseStackForward final : public Executable {
 public:
  DenseStackForward(const RecurrenceStack& stack, const Target& target, const plan::GpuWavefront& plan)
      : target_(target),
        chunk_(plan.chunk),
        chunks_(plan.chunks(target.steps)),
        reverse_(stack.layers.front().reverse),
        branches_(gpu_of(target), static_cast<Index>(stack.layers.size())) {
    for (const Recurrence& layer : stack.layers) {
      layers_.push_back(std::make_unique<ChunkedLayer>(layer, target, layers_.empty(), plan, places_));
      done_.push_back(std::make_unique<ChunkEvents>(gpu_of(target)));
      multiplied_.push_back(std::make_unique<cuda::Event>(gpu_of(target)));
    }
  }

  std::size_t scratch_bytes() const override { return places_.bytes(); }
  std::size_t opaque_bytes(int write) const override {
    return layers_[static_cast<std::size_t>(write / StackForwardLayer::writes)]->tape_bytes();
  }

  void run(const Call& call, const Operands& memory) override {
    branches_.fork(stream_of(call));
    run_waves(static_cast<Index>(layers_.size()), chunks_,
              [&](Index layer, Index number) { run_chunk(static_cast<std::size_t>(layer), number, call, memory); });
    branches_.join(stream_of(call));
  }

 private:
  void run_chunk(std::size_t l, Index number, const Call& call, const Operands& memory) {
    const StackForwardLayer operands(memory, layers_.size(), l);
    const Index place = reverse_ ? chunks_ - 1 - number : number;
    ChunkCall chunk{.call = call,
                    .operands = operands,
                    .scratch = address_of(memory.scratch),
                    .stream = branches_.of_product(l),
                    .number = number,
                    .chunks = chunks_,
                    .begin = place * chunk_,
                    .steps = std::min(chunk_, target_.steps - place * chunk_)};
    if (l > 0) done_[l - 1]->of(number).hold_back(chunk.stream);
    if (l > 0 && number >= 2) done_[l]->of(number).hold_back(chunk.stream);  // which read the memory of this product
    if (l > 0 || number == 0) {
      layers_[l]->run_product(chunk);
      multiplied_[l]->record(chunk.stream);
    }
    chunk.stream = branches_.of_recurrence(l);
    multiplied_[l]->hold_back(chunk.stream);
    layers_[l]->run_recurrence(chunk);
    done_[l]->of(number).record(chunk.stream);
  }

  Target target_;
  Index chunk_, chunks_;
  bool reverse_;
  ScratchPlaces places_;
  LayerBranches branches_;
  std::vector<std::unique_ptr<ChunkedLayer>> layers_;
  std::vector<std::unique_ptr<ChunkEvents>> done_;        // of each layer
  std::vector<std::unique_ptr<cuda::Event>> multiplied_;  // of each layer's latest product
};

}  // namespace

Prepared cuda_stack_forward(const RecurrenceStack& stack, const Target& target) {
  const plan::GpuWavefront plan = plan_gpu_stack(stack, target, gpu_of(target).model(), false);
  return plan.chunk > 0 ? std::make_unique<DenseStackForward>(stack, target, plan) : nullptr;
}

}  // namespace penstock::ops
