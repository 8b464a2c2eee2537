#pragma once

#include <array>
#include <atomic>
#include <optional>

#include "backend/cpu/instruction_sets.h"
#include "base/check.h"
#include "base/denormals.h"
#include "base/dtype.h"
#include "base/last_used_cache.h"
#include "base/per_thread.h"
#include "graph/weights.h"
#include "nn/layer/batch_hash.h"
#include "nn/layer/recurrent_program_impl.h"
#include "ops/memory/host_copies.h"
#include "penstock/recurrent.h"

/// Implementation of Recurrent and its tape: weights on a device, and the programs that ran last.
namespace penstock {
namespace nn {

/// Number of prepared passes that a thread keeps, for the shapes that it used last.
inline constexpr std::size_t kPreparedPasses = 16;

/// Returns whether a [n] and b [m] do not overlap.
template <class Real>
bool are_apart(const Real* a, Index n, const Real* b, Index m) {
  return std::less_equal<>()(a + n, b) || std::less_equal<>()(b + m, a);
}

}  // namespace nn

/// Data that a forward pass saves, in the layout of its program, and what identifies the pass.
template <class Real>
struct RecurrentTape<Real>::Content {
  std::shared_ptr<ops::Queue> queue;  // owner of the memory
  ops::Buffer memory;
  ops::Buffer state_in;    // initial states of the rows
  ops::HostCopies copies;  // of a call with host memory
  RecurrentForm form;
  Tensor x, y, state;         // of the forward call; `state` lies in `state_in`
  Index places = 0;           // steps of all rows
  std::uint64_t network = 0;  // identity of the network
  std::uint64_t version = 0;  // version of its weights
  std::uint64_t batch = 0;    // hash of lengths, row offsets and resets, where the host can read them
  std::uint64_t seed = 0;     // seed of the dropout masks
  bool rounded = false;       // saved values are bfloat16
  bool filled = false;
};

template <class Real>
struct Recurrent<Real>::Impl {
  using TapeContent = typename RecurrentTape<Real>::Content;

  /// Key of a prepared pass.
  struct PassKey {
    Pass pass = Pass::forward;  // first, as the passes of training take turns
    unsigned isa = cpu::isa_generation();
    RecurrentForm form = {};
    Execution execution = {};
    bool operator==(const PassKey&) const = default;
  };

  /// A pass of a program with a workspace of its own, where the weights are bound.
  struct Prepared {
    Prepared(const Impl& network, const PassKey& key);
    ~Prepared() { workspace->bind(nullptr); }
    Prepared(const Prepared&) = delete;
    Prepared& operator=(const Prepared&) = delete;

    std::shared_ptr<const RecurrentProgram> owner;
    const RecurrentProgram::Impl& program;
    const nn::StackPass& pass;
    RecurrentProgram::Impl::Workspaces::Lease workspace;
    std::uint64_t version = 0;  // of the weights that its panels were packed from
  };

  /// Single steps of one row on a CPU.
  struct PreparedStep : Prepared {
    using Prepared::Prepared;

    unsigned isa = cpu::isa_generation();
    bool denormal_weights = false;  // that version of the weights has some
    const Real* state = nullptr;    // the bound state of the caller
  };

  /// Scratch memory and prepared passes of one thread.
  struct Work {
    LastUsedCache<PassKey, Prepared> prepared{nn::kPreparedPasses};
    std::array<std::optional<PreparedStep>, 4> steps;  // by precision
    ops::Buffer memory;                                // workspace of one call at a time
    ops::HostCopies copies;
  };

  RecurrentSpec spec;
  std::uint64_t seed;
  std::shared_ptr<ops::Queue> queue;
  std::uint64_t identity;  // unique to this network
  Device device;
  PassKey common;                   // what all calls have in common: to copy it takes less time than to make it
  Index states = 0, row_state = 0;  // of the cell; values of one row, all layers and directions
  std::shared_ptr<graph::Weights> weights;
  ops::Buffer gradients;
  std::vector<Parameter> parameters;
  std::atomic<std::uint64_t> passes{0};  // training passes so far: each draws dropout masks of its own
  PerThread<Work> works{[] { return std::make_unique<Work>(); }};

  /// Makes a network with zero weights.
  Impl(const RecurrentSpec& spec_, std::uint64_t seed_, std::shared_ptr<ops::Queue> queue_);

  void initialise();
  Parameter& parameter(std::string_view name);

  /// [S, layers * directions, B, H]
  std::array<Index, 4> state_shape(Index rows) const {
    return {states, spec.layers * spec.directions(), rows, spec.hidden_size};
  }
  /// Returns the states of some rows on the host; null: a tensor without data.
  Tensor state_on_host(const Real* values, Index rows) const {
    const Index B = rows, H = spec.hidden_size, layers = spec.layers * spec.directions();
    // Calls only read what is const here. NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast)
    return {const_cast<Real*>(values), dtype_of<Real>(), {}, 4, {states, layers, B, H}, {layers * B * H, B * H, H, 1}};
  }
  /// Returns the channels of all states except the output.
  Index other_states() const { return (states - 1) * spec.output_size(); }

  /// Makes a tape ready for a forward pass of a batch with that hash.
  void start(TapeContent& tape, std::uint64_t batch);
  /// Throws unless the tape is of this network with its current weights. Gradients of changed weights would be wrong.
  void require_tape_of_this(const TapeContent& tape) const;
  /// Returns a hash of a batch in the memory of the network's device; 0 where the host cannot read it.
  std::uint64_t hash_of(const Batch& batch) const { return device.is_cuda() ? 0 : nn::hash_of(batch); }

  /// Origin of the tensors of a call: host memory, checked already, or the caller.
  enum class Origin { host, device };

  // Calls with tensors of the network's device, but for weights, workspace and tape.
  /// `tape`: null if no backward pass follows; otherwise start() has been called, and the call reads the tape's copy of
  /// its state_in from then on. `step`: the call is a step.
  void forward(RecurrentProgram::Forward& call, TapeContent* tape, const Execution& execution, Origin origin,
               bool step = false);
  /// `batch`: hash of the batch.
  void backward(const RecurrentProgram::Backward& call, TapeContent& tape, std::uint64_t batch,
                const Execution& execution, Origin origin);

  /// Returns whether step_row() can take these arguments. If not, step() reports why.
  bool accepts_row(const Real* x, const Real* y, const Real* state, const Execution& execution) const {
    return !device.is_cuda() && x != nullptr && y != nullptr && state != nullptr &&
           spec.direction == Direction::forward && execution.precision < Precision::f16 &&
           execution.precision >= Precision::full && nn::are_apart(y, spec.hidden_size, x, spec.input_size) &&
           nn::are_apart(y, spec.hidden_size, state, row_state);
  }
  /// Throws Error(invalid_argument) for a batch that no call with host memory can have.
  void check_on_host(const Batch& batch) const;
  /// Computes one step of some rows in host memory: x [B, I] to y [B, H], state [S, layers, B, H].
  void step_rows(Index rows, const Real* x, Real* y, Real* state, const Execution& execution);
  /// Computes one step of one row on a CPU: x [I] to y [H], state [S, layers, H].
  void step_row(const Real* x, Real* y, Real* state, Precision precision);

 private:
  PassKey key_of(const Batch& batch, const Tensor& x, const Execution& execution, Pass pass) const;
  void set_states(RecurrentForm& form, const char* name, const Tensor& tensor, const Batch& batch) const;
  int alignment_of(int most, const Tensor& a, const Tensor& b) const;
  /// Saves what a backward pass reads of a forward call, whose initial state is the tape's copy afterwards.
  void keep(TapeContent& tape, const Prepared& prepared, RecurrentProgram::Forward& call) const;
  template <class Call>
  void run(Work& work, Prepared& prepared, const Call& call, const TapeContent* tape) const;
  /// Gives a prepared pass the thread's workspace, and packs its weights if they have changed.
  void refresh(Work& work, Prepared& prepared, const ops::Call& call) const;
  void prepare_step(Work& work, std::optional<PreparedStep>& held, Precision precision) const;
  /// Copies the initial state to the final state, for a batch in which no row has a step.
  void pass_on(const Batch& batch, const char* in_name, const Tensor& in, const char* out_name,
               const Tensor& out) const;
};

}  // namespace penstock
