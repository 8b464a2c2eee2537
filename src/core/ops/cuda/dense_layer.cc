// Recurrent layers of dense cells on a GPU: the input product of all positions, unless it is given, then the recurrence
// over it.

#include <optional>

#include "ops/cuda/dense_layer.h"
#include "ops/cuda/dense_layer_gradients.h"
#include "ops/cuda/ops.h"

namespace penstock::ops {

namespace {

using cuda::DeviceAddress;

class DenseLayerForward final : public Executable {
  using Of = ForwardOperand;

 public:
  DenseLayerForward(const Recurrence& shape, const Target& target)
      : shape_(shape),
        target_(target),
        tape_(shape, target),
        input_(shape, target, false, false),
        states_(shape, target),
        call_(planned_forward(shape, target, input_, tape_, states_)),
        recurrence_(gpu_of(target), dense_spec(shape, target), call_) {
    if (!shape.projected) product_.emplace(gpu_of(target), input_product(shape, target, input_, target.positions()));
  }

  std::size_t scratch_bytes() const override { return state_place() + 2 * states_.scratch_bytes(); }
  std::size_t opaque_bytes(int) const override { return tape_.end; }

  void run(const Call& call, const Operands& memory) override {
    const DeviceAddress scratch = address_of(memory.scratch), tape = address_of(memory, Of::tape);
    const DeviceAddress entering = scratch + state_place(), leaving = entering + states_.scratch_bytes();
    const cuda::DeviceSequence x = input_.enter(call, address_of(memory, Of::x), scratch + input_place());
    call_.wx.data = product_ ? (tape != 0 && tape_.keeps_wx ? tape + tape_.wx : scratch + wx_place()) : x.data;
    if (product_) product_->run(x.data, address_of(memory, Of::weight_ih), call_.wx.data, 0, scratch, stream_of(call));
    set_rows(call_.batch, call.batch);
    call_.y.data = address_of(memory, Of::y);
    call_.weights = {address_of(memory, Of::weight_hh), address_of(memory, Of::bias_ih),
                     address_of(memory, Of::bias_hh)};
    call_.state_in = states_.enter_first(call, address_of(memory, Of::state_in), entering);
    call_.batch.restarts = states_.given_restarts(address_of(memory, Of::state_in));
    call_.state_out = states_.place(address_of(memory, Of::state_out), leaving);
    if (tape != 0) call_.tape = tape_.at(tape);
    if (shape_.every_state) call_.every_state.data = address_of(memory, Of::states);
    recurrence_.run(call_, scratch + order_place(), stream_of(call));
    states_.leave(call, address_of(memory, Of::state_out), leaving);
  }

 private:
  std::size_t wx_place() const { return product_ ? padded(product_->workspace_bytes()) : 0; }
  std::size_t order_place() const {
    const bool elsewhere = !product_ || (target_.has(CallFlag::training) && tape_.keeps_wx);
    return wx_place() + (elsewhere ? 0 : tape_.gates);
  }
  std::size_t input_place() const { return order_place() + padded(recurrence_.workspace_bytes()); }
  std::size_t state_place() const { return input_place() + input_.scratch_bytes(); }

  Recurrence shape_;
  Target target_;
  TapePlaces tape_;
  InputMatrix input_;
  StateBlocks states_;
  cuda::DenseForward call_;
  cuda::DenseForwardExecutable recurrence_;
  std::optional<cuda::MatrixProduct> product_;
};

class DenseLayerBackward final : public Executable {
 public:
  DenseLayerBackward(const Recurrence& shape, bool wants_dx, const Target& target)
      : layer_(shape, wants_dx, target, std::nullopt) {}
  std::size_t scratch_bytes() const override { return layer_.scratch_bytes(); }
  std::size_t persistent_bytes() const override { return layer_.persistent_bytes(); }

  void run(const Call& call, const Operands& memory) override {
    layer_.run_loop(call, memory, layer_.enter(call, memory));
    layer_.finish(call, memory);
  }

 private:
  DenseLayerGradients layer_;
};

}  // namespace

Prepared cuda_dense_forward(const Recurrence& shape, const Target& target) {
  return std::make_unique<DenseLayerForward>(shape, target);
}

Prepared cuda_dense_backward(const Recurrence& shape, bool wants_dx, const Target& target) {
  return std::make_unique<DenseLayerBackward>(shape, wants_dx, target);
}

}  // namespace penstock::ops
