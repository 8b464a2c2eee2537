#pragma once

#include <memory>
#include <vector>

#include "graph/program.h"
#include "penstock/recurrent_program.h"

/// Graphs and programs of the passes of a recurrent stack.
namespace penstock::nn {

using graph::ValueId;

/// Throws Error(invalid_argument) that names an impossible field of a stack.
void check_spec(const RecurrentSpec& spec);
/// Throws Error(invalid_argument) that names an impossible field of a form; unsupported for a type that the device does
/// not compute in.
void check_form(const RecurrentSpec& spec, const RecurrentForm& form, const Execution& execution);

/// Indices of the parameters of one layer and direction in parameter_shapes(); -1: absent.
struct LayerParameters {
  int weight_ih = -1, weight_hh = -1, bias_ih = -1, bias_hh = -1;
};
/// Returns the indices for each layer and direction.
std::vector<LayerParameters> layer_parameters(const RecurrentSpec& spec);

/// Returns the target that programs of a form are prepared for.
ops::Target stack_target(const RecurrentForm& form, const Execution& execution);

/// Layout of the tape of a forward pass: the saved values of each layer and direction, and the outputs of all layers
/// but the last.
struct StackTape {
  struct Part {
    std::size_t offset = 0, bytes = 0;
  };
  std::vector<Part> kept;     // [layers * directions]
  std::vector<Part> outputs;  // [layers - 1]
  std::size_t bytes = 0;
};

/// A program of one pass of a recurrent stack, with the ids of the values that its caller provides. Immutable.
struct StackPass {
  std::shared_ptr<const graph::Program> program;
  ValueId x, y, dy, dx, state_in, state_out, dstate_out, dstate_in;
  ValueId states, dstates;                       // of forms with every_state
  std::vector<ValueId> weights, gradients;       // in the order of parameter_shapes()
  std::vector<ValueId> tape_kept, tape_outputs;  // in the order of StackTape
  std::vector<ValueId> derived;                  // packed panels, and weights in another type
  StackTape tape;                                // in training
  std::size_t derived_bytes = 0;
  bool rounds_tape = false;  // saved values are bfloat16

  /// Binds the memory of the tape to the workspace.
  void bind_tape(graph::Workspace& workspace, void* tape_memory) const;
  /// Binds the derived values to the workspace, in sequence in memory of derived_bytes.
  void bind_derived(graph::Workspace& workspace, void* memory) const;
};

/// Makes the program of the forward pass.
StackPass forward_pass(const RecurrentSpec& spec, const RecurrentForm& form, const Execution& execution);
/// Makes the program of the backward pass. `tape`: StackPass::tape of the forward pass.
StackPass backward_pass(const RecurrentSpec& spec, const RecurrentForm& form, const Execution& execution,
                        const StackTape& tape);

/// Returns the graphs of the forward pass and, in training, of the backward pass, for a device that need not be
/// present.
std::vector<graph::Graph> pass_graphs(const RecurrentSpec& spec, const RecurrentForm& form, const Execution& execution);

}  // namespace penstock::nn
