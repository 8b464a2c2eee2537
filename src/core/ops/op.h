#pragma once

#include <any>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "penstock/call_flags.h"
#include "penstock/device.h"
#include "penstock/plan.h"
#include "penstock/recurrent.h"

namespace penstock::plan {
struct Machine;
}

/// Ops are the only code that touches numbers. An Op says what is computed; prepared for a Target (a device, a shape, a
/// precision) it becomes an Executable, which is handed memory and runs.
namespace penstock::ops {

/// Device, sizes and precision that an op is prepared for.
struct Target {
  Device device = {};
  DType dtype = DType::f32;  ///< Activations. Parameters and their gradients are f32 (f64 if activations are)
  Index rows = 1;            ///< B
  Index steps = 1;           ///< T; of packed rows, the longest one's
  Index packed = 0;          ///< Packed rows (Batch::cu_seqlens): steps of all rows together. 0: rows are padded.
  CallFlags flags = {};      ///< As in the form of the calls.
  Execution execution = {};  ///< Its number of threads is that of every call: scratch depends on it.

  bool has(CallFlag flag) const { return flags.has(flag); }
  /// Positions (b, t), those beyond a row's length included.
  Index positions() const { return packed > 0 ? packed : rows * steps; }
  /// Returns whether products of floats may run in TF32.
  bool tf32() const { return dtype == DType::f32 && execution.precision == Precision::tf32 && !execution.exact; }
  /// Returns the type of parameters, their gradients and states.
  DType master() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }

  bool operator==(const Target&) const = default;
};

/// The strides of a gradient, which lies like what it is of unless said otherwise.
inline const SequenceStrides& strides_or(const SequenceStrides& own, const SequenceStrides& others) {
  return own == SequenceStrides{} ? others : own;
}

/// Arguments that may differ from run to run.
struct Call {
  Batch batch = {};        ///< Rows and steps of the target; lengths, packed rows and resets lie in the device's memory
  int threads = 0;         ///< As in Execution; CPU only
  std::uint64_t seed = 0;  ///< Decides every dropout mask.
  /// Instead of `seed`: the same in the memory of the device, where it is new in every run of a recording.
  const unsigned long long* device_seed = nullptr;
  void* stream = nullptr;  ///< CUDA only: where work is put
};

/// The memory of one run. Each op's header lists its operands in order, as LinearOperand does.
struct Operands {
  void* const* values;         ///< First what the op reads, then what it writes; null: absent
  void* scratch = nullptr;     ///< scratch_bytes(), of any content
  void* persistent = nullptr;  ///< persistent_bytes(), as the last run left it

  template <class T>
  T* get(int i) const {
    return static_cast<T*>(values[i]);
  }
};

/// Operands of ops that make y of x alone.
struct UnaryOperand {
  enum : int { x, y };
};

/// An op, ready to run. It keeps nothing from run to run that changes a result, but may keep tables: it serves one
/// call at a time. Running allocates nothing and waits for nothing on a GPU.
class Executable {
 public:
  virtual ~Executable() = default;

  virtual std::size_t scratch_bytes() const { return 0; }
  /// Zero before the first run, and left alone by everybody else.
  virtual std::size_t persistent_bytes() const { return 0; }
  /// Size of an output whose layout is the op's own affair, such as a tape; `write` counts the outputs from 0.
  virtual std::size_t opaque_bytes(int write) const;
  virtual void run(const Call& call, const Operands& memory) = 0;
};

/// Computation as data, without a device or sizes of a batch.
struct Op {
  std::string name;  ///< "linear", "linear.backward"
  std::function<std::unique_ptr<Executable>(const Target&)> prepare;
  double products = 0.0;  ///< Multiply-adds of its matrix products for each position
  /// Returns the planner's choices for a target on a machine, which need not be there; empty: there is nothing to
  /// choose.
  std::function<std::vector<PlanReport>(const Target&, const plan::Machine&)> explain = {};
  /// The computation as plain data, such as an ops::Linear, for exporters of graphs. Ops of a forward pass have one;
  /// reads and writes are in the order that the op's maker says.
  std::any definition = {};
};

/// An executable that is one function.
template <class Run>
class Simple final : public Executable {
 public:
  Simple(Run run, std::size_t scratch, std::size_t persistent)
      : run_(std::move(run)), scratch_(scratch), persistent_(persistent) {}
  std::size_t scratch_bytes() const override { return scratch_; }
  std::size_t persistent_bytes() const override { return persistent_; }
  void run(const Call& call, const Operands& memory) override { run_(call, memory); }

 private:
  Run run_;
  std::size_t scratch_, persistent_;
};

template <class Run>
std::unique_ptr<Executable> simple(Run run, std::size_t scratch = 0, std::size_t persistent = 0) {
  return std::make_unique<Simple<Run>>(std::move(run), scratch, persistent);
}

}  // namespace penstock::ops
