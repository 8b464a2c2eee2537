#pragma once

#include <memory>
#include <vector>

#include "graph/program.h"
#include "penstock/recurrent_program.h"

namespace penstock::nn {

using graph::ValueId;

/// Throws Error(invalid_argument) naming the field of a stack that is impossible.
void check_spec(const RecurrentSpec& spec);
/// The same of a form, for a device; unsupported for a type that the device does not compute in.
void check_form(const RecurrentSpec& spec, const RecurrentForm& form, const Execution& execution);

/// Where each of a stack's parameters is among parameter_shapes(); -1: absent.
struct LayerParameters {
  int weight_ih = -1, weight_hh = -1, bias_ih = -1, bias_hh = -1;
};
/// Of each layer and direction.
std::vector<LayerParameters> layer_parameters(const RecurrentSpec& spec);

/// What a program of one pass is prepared for.
ops::Target stack_target(const RecurrentForm& form, const Execution& execution);

/// What a forward pass leaves for its backward pass: of each layer and direction its own tape, and the outputs of all
/// layers but the last.
struct StackTape {
  struct Part {
    std::size_t offset = 0, bytes = 0;
  };
  std::vector<Part> kept;     // [layers * directions]
  std::vector<Part> outputs;  // [layers - 1]
  std::size_t bytes = 0;
};

/// One pass of a stack of recurrent layers as a program, and the numbers of what its caller gives. Immutable.
struct StackPass {
  std::shared_ptr<const graph::Program> program;
  ValueId x, y, dy, dx, state_in, state_out, dstate_out, dstate_in;
  ValueId states, dstates;                       // of forms with every state
  std::vector<ValueId> weights, gradients;       // in the order of parameter_shapes()
  std::vector<ValueId> tape_kept, tape_outputs;  // in the order of StackTape
  std::vector<ValueId> derived;                  // panels, and weights in another type
  StackTape tape;                                // of training
  std::size_t derived_bytes = 0;
  bool rounds_tape = false;  // what the layers keep is bfloat16

  /// Tells the tape to the workspace.
  void bind_tape(graph::Workspace& workspace, void* tape_memory) const;
  /// The same of what is derived, one after the other in memory of derived_bytes.
  void bind_derived(graph::Workspace& workspace, void* memory) const;
};

StackPass forward_pass(const RecurrentSpec& spec, const RecurrentForm& form, const Execution& execution);
/// `tape`: of the forward pass.
StackPass backward_pass(const RecurrentSpec& spec, const RecurrentForm& form, const Execution& execution,
                        const StackTape& tape);

/// The nodes of the forward pass and, where the form is of training, of the backward pass, on a device that need not be
/// there.
std::vector<graph::Graph> pass_graphs(const RecurrentSpec& spec, const RecurrentForm& form, const Execution& execution);

}  // namespace penstock::nn
