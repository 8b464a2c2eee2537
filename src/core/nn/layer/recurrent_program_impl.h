#pragma once

#include <optional>

#include "base/pool.h"
#include "graph/program.h"
#include "nn/layer/recurrent_graph.h"
#include "ops/program_check.h"
#include "ops/tensor_check.h"
#include "penstock/recurrent_program.h"

/// Implementation of RecurrentProgram: its passes, their workspaces, and the parts of a call.
namespace penstock {

struct RecurrentProgram::Impl {
  using Workspaces = Pool<graph::Workspace>;  // executables that nobody runs at the moment

  /// The start of every tape.
  struct TapeHeader {
    std::uint64_t pass = 0;       // on the CPU: which pass filled it
    unsigned long long seed = 0;  // of its dropouts
  };
  static constexpr std::size_t kHeaderBytes = memory_alignment;

  RecurrentSpec spec;
  RecurrentForm form;
  Execution execution;
  std::vector<ParameterShape> parameters;
  nn::StackPass forward;
  std::optional<nn::StackPass> backward;
  std::uint64_t identity;

  Impl(const RecurrentSpec& s, const RecurrentForm& f, const Execution& e);

  const nn::StackPass& pass(Pass which) const;
  Workspaces& workspaces(Pass which) const {
    return which == Pass::forward ? forward_workspaces_ : backward_workspaces_;
  }
  std::size_t tape_bytes() const { return form.has(CallFlag::training) ? kHeaderBytes + forward.tape.bytes : 0; }
  ops::FormExtent extent() const { return {form.rows, form.steps, form.positions}; }
  /// Rows of state_in and dstate_in.
  Index entering_rows() const { return state_rows(form.restarts, form.rows, form.steps); }

  /// Throw Error(invalid_argument) unless a call matches the form: its batch, and its tensors in type, shape, strides
  /// and places. Not its weights and memory, which a Recurrent has of its own.
  void check(const Forward& call) const;
  void check(const Backward& call) const;
  /// Throw Error(invalid_argument) if positions of a sequence that a call writes overlap each other or what it reads.
  static void check_places(const Forward& call);
  static void check_places(const Backward& call);
  void check_parameters(const char* name, std::span<const Tensor> tensors, DType type) const;

  /// Returns a number that tells this pass from others. The host cannot read lengths and resets on a GPU.
  std::uint64_t pass_number(const Batch& batch) const;
  ops::Call call_of(const Context& context, const Batch& batch) const;

  /// Give a workspace the tensors of a call, its weights and their gradients, its tape, and its memory. With a tape on
  /// a GPU, the call reads the seed of the dropout masks from the tape.
  void bind(graph::Workspace& workspace, const Forward& call) const;
  void bind(graph::Workspace& workspace, const Backward& call) const;
  static void bind_weights(graph::Workspace& workspace, const nn::StackPass& pass, std::span<const Tensor> weights,
                           std::span<const Tensor> gradients = {});
  void bind_tape(graph::Workspace& workspace, const nn::StackPass& pass, void* tape, ops::Call& call) const;
  void place(graph::Workspace& workspace, void* memory, const ops::Call& call) const;
  void run(graph::Workspace& workspace, const ops::Call& call) const;

 private:
  /// Throw unless a sequence of a call has the form's shape and strides.
  void check_sequence(const char* name, const Tensor& tensor, Index channels, const SequenceStrides& planned) const;
  void check_strides(const char* name, const Tensor& tensor, Index channels, const SequenceStrides& planned) const;
  void check_every_state(const char* name, const Tensor& states) const;
  void check_state(const char* name, const Tensor& state, Index rows) const;
  void check_batch(const Batch& batch) const;
  void check_batch_sizes(const Batch& batch) const;

  DType type_of_states() const { return form.dtype == DType::f64 ? DType::f64 : DType::f32; }
  /// Returns the channels of every state but the output.
  Index other_states() const { return (states_ - 1) * spec.output_size(); }

  Index states_;  // of the cell
  mutable Workspaces forward_workspaces_, backward_workspaces_;
};

}  // namespace penstock
