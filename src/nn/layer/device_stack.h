#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "base/per_thread.h"
#include "ops/memory/memory.h"
#include "penstock/recurrent_program.h"

namespace penstock::nn {

/// A tensor of that shape without gaps.
Tensor tensor_of(void* data, DType dtype, const std::vector<Index>& shape, Device device);

/// What a forward pass of a DeviceStack leaves for its backward pass, in memory of the device.
struct DeviceTape {
  std::shared_ptr<ops::Queue> queue;  // of the memory
  ops::Buffer memory;                 // what the layers keep, laid out by their program
  ops::Buffer state_in;               // what the rows began with
  RecurrentForm form;
  Execution execution;
  Batch batch;
  Tensor x, y, state;  // of the forward call; `state` lies in `state_in`
  std::uint64_t pass = 0, seed = 0;
};

/// A stack of layers whose weights and gradients lie on the device of a stream. Every call is put into that stream and
/// is a call of a RecurrentProgram, which checks it. Threads may make forward calls at once, as of a Recurrent.
class DeviceStack {
 public:
  /// All weights zero.
  DeviceStack(const RecurrentSpec& spec, Stream& stream, DType dtype);

  Device device() const { return queue_->device(); }
  const std::shared_ptr<ops::Queue>& queue() const { return queue_; }
  DType dtype() const { return dtype_; }
  const RecurrentSpec& spec() const { return spec_; }

  /// In the order of parameter_shapes(), each without gaps and at a multiple of 256 bytes.
  const std::vector<Tensor>& weights() const { return weights_; }
  const std::vector<Tensor>& gradients() const { return gradients_; }
  /// Copies one of them, from or to the host's memory, and waits for that.
  void read(const Tensor& one, void* to) const;
  void write(const Tensor& one, const void* from);
  void weights_changed() { ++version_; }
  std::uint64_t version() const { return version_; }
  void zero_gradients() { gradient_memory_.zero(); }

  /// `states`: every state but the output, without data if not wanted. `tape`: if a backward pass is to follow.
  void forward(const Batch& batch, const Tensor& x, const Tensor& y, const Tensor& state_in, const Tensor& state_out,
               const Tensor& states, DeviceTape* tape, std::uint64_t seed, const Execution& execution) const;
  /// Adds to the gradients of weights. `dx`, `dstate_in`: without data, they are not wanted.
  void backward(const Batch& batch, const Tensor& x, const Tensor& dy, const Tensor& dstate_out, const Tensor& dx,
                const Tensor& dstate_in, const Tensor& dstates, DeviceTape& tape, const Execution& execution) const;
  /// One step of B rows, x [B, 1, I] and y [B, 1, H].
  void step(const Tensor& x, const Tensor& y, const Tensor& state, const Execution& execution) const;

 private:
  /// What programs read instead of the weights: of which version of them it is.
  struct Packed {
    ops::Buffer memory;
    std::uint64_t version = 0;
  };
  /// Of which type and precision, for which pass, of sequences or of steps.
  using PackedKey = std::tuple<DType, Precision, bool, Pass, bool>;
  struct Work {
    ops::Buffer memory;
  };

  /// The memory that a weight or a gradient lies in.
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
