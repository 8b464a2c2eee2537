// A stack of recurrent layers as an op, over tensors of PyTorch.

#include <algorithm>
#include <map>
#include <tuple>

#include "torch_call.h"
#include "torch_ops.h"

namespace penstock::torch_ops {
namespace {

/// Runs a call on the CPU, in float or double.
template <class Real>
class HostCall {
 public:
  HostCall(const RecurrentCall& call, std::int32_t type) : call_(call), type_(type), network_(network(call.spec)) {
    std::uint32_t threads = 0;
    check_status(shim().threads(&threads), "torch.get_num_threads");
    execution_.threads = static_cast<int>(threads);
    if (call.x.dtype() == shim().bf16) execution_.precision = Precision::bf16;
    take_weights();
    batch_.rows = call.rows;
    batch_.steps = call.steps;
    lengths_ = call.lengths ? call.lengths.contiguous() : TorchTensor();
    if (lengths_) batch_.lengths = lengths_.data<Index>();
    if (call.packed) {
      cu_seqlens_ = call.packed->cu_seqlens(call.x);
      batch_.cu_seqlens = cu_seqlens_.template data<Index>();
    }
    if (call.reset) {
      reset_ = in_rows(call.reset);
      batch_.reset = reset_.template data<std::uint8_t>();
    }
    x_ = sequence(call.x);
    state_ = real(call.state);
  }

  void forward(TorchTensor& y, TorchTensor& state_out) {
    const TorchTensor out = x_.empty(call_.y_sizes(), type_);
    network_.forward(batch_, view<const Real>(x_), view<Real>(out), values(state_), values(state_out), nullptr,
                     execution_);
    y = result(out, call_.x.dtype());
  }

  void backward(const TorchTensor& dy_given, const TorchTensor& dstate_out, TorchTensor* dx, TorchTensor& dstate,
                std::vector<TorchTensor>& dweights) {
    // What the forward pass left is made again.
    RecurrentTape<Real> tape;
    const TorchTensor y = x_.empty(call_.y_sizes(), type_);
    const TorchTensor state_out = x_.empty(call_.state_sizes(), type_);
    network_.forward(batch_, view<const Real>(x_), view<Real>(y), values(state_), values(state_out), &tape, execution_);
    TorchTensor dy = dy_given ? sequence(dy_given) : x_.empty(call_.y_sizes(), type_);
    if (!dy_given) dy.zero();
    for (auto& parameter : network_.parameters())
      std::fill(parameter.gradient.begin(), parameter.gradient.end(), Real(0));
    const TorchTensor dx_real = dx != nullptr ? x_.empty(sizes_of(call_.x), type_) : TorchTensor();
    const TorchTensor dlast = real(dstate_out);
    network_.backward(batch_, view<const Real>(x_), view<const Real>(dy), values(dlast),
                      dx != nullptr ? view<Real>(dx_real) : SequenceView<Real>(), values(dstate), tape, execution_);
    if (dx != nullptr) *dx = result(dx_real, call_.x.dtype());
    give_gradients(dweights);
  }

 private:
  /// One network for each shape and thread, since it works with memory of its own.
  static Recurrent<Real>& network(const RecurrentSpec& spec) {
    using Key = std::tuple<std::string, Index, Index, Index, Index, Direction, Bias>;
    thread_local std::map<Key, Recurrent<Real>> networks;
    const Key key(spec.cell, spec.input_size, spec.hidden_size, spec.heads, spec.layers, spec.direction, spec.bias);
    const auto found = networks.find(key);
    return found != networks.end() ? found->second : networks.emplace(key, Recurrent<Real>(spec)).first->second;
  }

  TorchTensor real(const TorchTensor& tensor) const { return tensor ? tensor.to(type_).contiguous() : TorchTensor(); }

  /// Contiguous, of the type in which the host computes, packed rows one after the other.
  TorchTensor sequence(const TorchTensor& tensor) const { return in_rows(tensor.to(type_)); }

  TorchTensor in_rows(const TorchTensor& tensor) const {
    return call_.packed ? call_.packed->by_rows(tensor) : tensor.contiguous();
  }

  TorchTensor result(const TorchTensor& tensor, std::int32_t type) const {
    return (call_.packed ? call_.packed->by_steps(tensor) : tensor.share()).to(type);
  }

  template <class Value>
  SequenceView<Value> view(const TorchTensor& tensor) const {
    const Index channels = tensor.size(-1);
    auto* const data = tensor.data<Value>();
    if (call_.packed) return {data, 0, channels};
    return call_.batch_first ? SequenceView<Value>::batch_first(data, call_.steps, channels)
                             : SequenceView<Value>::time_first(data, call_.rows, channels);
  }

  static Real* values(const TorchTensor& tensor) { return tensor ? tensor.data<Real>() : nullptr; }

  void take_weights() {
    auto& parameters = network_.parameters();
    check(parameters.size() == call_.weights.size(), "weights must be as many as the cell has");
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const TorchTensor weight = real(call_.weights[i]);
      std::copy_n(weight.data<Real>(), parameters[i].value.size(), parameters[i].value.begin());
    }
    network_.weights_changed();
  }

  void give_gradients(std::vector<TorchTensor>& dweights) {
    auto& parameters = network_.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const TorchTensor& weight = call_.weights[i];
      std::vector<Index> sizes;
      for (Index d = 0; d < weight.dim(); ++d) sizes.push_back(weight.size(d));
      const TorchTensor gradient = weight.empty(sizes, type_);
      std::copy(parameters[i].gradient.begin(), parameters[i].gradient.end(), gradient.data<Real>());
      dweights.push_back(gradient.to(weight.dtype()));
    }
  }

  const RecurrentCall& call_;
  std::int32_t type_;
  Recurrent<Real>& network_;
  Execution execution_;
  Batch batch_;
  TorchTensor x_, state_, lengths_, cu_seqlens_, reset_;
};

template <class Body>
void with_type(std::int32_t type, const Body& body) {
  if (type == shim().float64) {
    body(double());
  } else {
    body(float());
  }
}

/// What nothing has flowed through: zeros of the weights' shapes.
std::vector<TorchTensor> zero_gradients(const RecurrentCall& call) {
  std::vector<TorchTensor> zeros;
  for (const TorchTensor& weight : call.weights) {
    zeros.push_back(weight.empty(sizes_of(weight), weight.dtype()));
    zeros.back().zero();
  }
  return zeros;
}

}  // namespace

void recurrent(StableValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  RecurrentCall call;
  call.take_tensors(arguments);
  call.take_form(arguments);
  arguments.boolean();  // keep_tape: the backward pass runs the forward pass again
  call.validate();
  check(!call.x.is_cuda(), "penstock::recurrent has no kernel for CUDA in this build");
  const std::int32_t type = call.state_type();
  TorchTensor y = call.x.empty(call.y_sizes(), call.x.dtype());
  TorchTensor state_out = call.x.empty(call.state_sizes(), type);
  TorchTensor tape = call.x.empty({0}, shim().uint8);
  if (!call.empty()) {
    with_type(type, [&](auto real) { HostCall<decltype(real)>(call, type).forward(y, state_out); });
  }
  stack[0] = y.release();
  stack[1] = state_out.release();
  stack[2] = tape.release();
}

void recurrent_backward(StableValue* stack, std::uint64_t, std::uint64_t) {
  Arguments arguments(stack);
  RecurrentCall call;
  const TorchTensor dy = arguments.optional_tensor();
  const TorchTensor dstate_out = arguments.optional_tensor();
  call.take_tensors(arguments);
  const TorchTensor y = arguments.tensor();
  const TorchTensor tape = arguments.tensor();
  call.take_form(arguments);
  const bool want_dx = arguments.boolean(), want_dweights = arguments.boolean();
  call.validate();
  check(!call.x.is_cuda(), "penstock::recurrent_backward has no kernel for CUDA in this build");
  const std::int32_t type = call.state_type();
  TorchTensor dx = call.x.empty(want_dx ? sizes_of(call.x) : std::vector<Index>{0}, call.x.dtype());
  TorchTensor dstate = call.x.empty(call.state_sizes(), type);
  std::vector<TorchTensor> dweights;
  if (call.empty()) {
    dweights = zero_gradients(call);
  } else {
    with_type(type, [&](auto real) {
      HostCall<decltype(real)>(call, type).backward(dy, dstate_out, want_dx ? &dx : nullptr, dstate, dweights);
    });
  }
  stack[0] = dx.release();
  stack[1] = dstate.release();
  if (!want_dweights) dweights.clear();
  stack[2] = release(dweights);
}

}  // namespace penstock::torch_ops
