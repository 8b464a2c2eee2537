#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "base/per_thread.h"
#include "ops/memory/memory.h"
#include "penstock/recurrent_program.h"

/// A stack of recurrent layers on the device of a stream: the device side of Recurrent.
namespace penstock::nn {

/// Returns a contiguous tensor of a shape.
Tensor tensor_of(void* data, DType dtype, const std::vector<Index>& shape, Device device);

/// Data that a forward pass of a DeviceStack saves for its backward pass, in device memory.
struct DeviceTape {
  std::shared_ptr<ops::Queue> queue;  // owner of the memory
  ops::Buffer memory;                 // saved values of the layers, laid out by their program
  ops::Buffer state_in;               // initial states of the rows
  RecurrentForm form;
  Execution execution;
  Batch batch;
  Tensor x, y, state;  // of the forward call; `state` lies in `state_in`
  std::uint64_t pass = 0, seed = 0;
};

/// A stack of layers with weights and gradients on the device of a stream. Every call is queued on that stream as a
/// call of a RecurrentProgram, which checks its arguments. Any number of threads may call forward() at once.
class DeviceStack {
 public:
  /// Makes a stack with zero weights.
  DeviceStack(const RecurrentSpec& spec, Stream& stream, DType dtype);

  Device device() const { return queue_->device(); }
  const std::shared_ptr<ops::Queue>& queue() const { return queue_; }
  DType dtype() const { return dtype_; }
  const RecurrentSpec& spec() const { return spec_; }

  /// Weights in the order of parameter_shapes(), each contiguous and aligned to 256 bytes; gradients likewise.
  const std::vector<Tensor>& weights() const { return weights_; }
  const std::vector<Tensor>& gradients() const { return gradients_; }
  /// read() copies a weight or gradient to host memory, write() from host memory; both wait.
  void read(const Tensor& one, void* to) const;
  void write(const Tensor& one, const void* from);
  void weights_changed() { ++version_; }
  std::uint64_t version() const { return version_; }
  void zero_gradients() { gradient_memory_.zero(); }

  /// Queues a forward pass. `states`: receives all states except the output; no data: not wanted. `tape`: filled for a
  /// backward pass; null: none follows.
  void forward(const Batch& batch, const Tensor& x, const Tensor& y, const Tensor& state_in, const Tensor& state_out,
               const Tensor& states, DeviceTape* tape, std::uint64_t seed, const Execution& execution) const;
  /// Queues a backward pass, which adds to the gradients of weights. `dx`, `dstate_in`: no data: not wanted.
  void backward(const Batch& batch, const Tensor& x, const Tensor& dy, const Tensor& dstate_out, const Tensor& dx,
                const Tensor& dstate_in, const Tensor& dstates, DeviceTape& tape, const Execution& execution) const;
  /// Queues one step of B rows: x [B, 1, I], y [B, 1, H].
  void step(const Tensor& x, const Tensor& y, const Tensor& state, const Execution& execution) const;

 private:
  /// Packed weights that programs read, with the version of the weights they were packed from.
  struct Packed {
    ops::Buffer memory;
    std::uint64_t version = 0;
  };
  /// Dtype, precision, exact mode, pass, whether the form is of single steps, and the number of the instruction set.
  using PackedKey = std::tuple<DType, Precision, bool, Pass, bool, unsigned>;
  struct Work {
    ops::Buffer memory;
  };

  /// Returns the buffer that a weight or gradient is in.
  const ops::Buffer& memory_of(const Tensor& one) const;
  Execution resolved(const Execution& execution) const;
  RecurrentForm form_of(const Batch& batch, const Tensor& x) const;
  void set_states(RecurrentForm& form, const char* name, const Tensor& states, const Batch& batch) const;
  Memory workspace(const RecurrentProgram& program) const;
  Memory packed(const RecurrentProgram& program, const Context& context, Pass pass) const;
  Context context_of(const Execution& execution, std::uint64_t seed) const;

  RecurrentSpec spec_;
  std::shared_ptr<ops::Queue> queue_;
  DType dtype_;
  ops::Buffer weight_memory_, gradient_memory_;
  std::vector<Tensor> weights_, gradients_;
  std::uint64_t version_ = 1;
  PerThread<Work> works_{[] { return std::make_unique<Work>(); }};
  mutable std::mutex packing_;
  mutable std::map<PackedKey, Packed> packed_;
};

}  // namespace penstock::nn
