#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/recurrent_model.h"

namespace penstock::runtime {

/// Makes the instructions of a step, in the order of nn/model/model_graph.cc and with its names of parameters, so that
/// states lie as those of the full library.
class RecurrentBuilder {
 public:
  RecurrentBuilder(RecurrentModel& model, const TensorFile& file, Failure& failure)
      : model_(model), file_(file), of_(model.description), failure_(failure) {}

  /// Returns false after a failure.
  bool build();

 private:
  /// The sum of all residuals so far is x + branch, which the next norm makes.
  struct ResidualStream {
    Place x = 0, branch = -1;
  };

  /// Weights of a layer until all are packed.
  struct LayerWeights {
    cpu::StepWeights<float> weights;
    Index learnt = 0;
  };

  const float* tensor(const std::string& name, const std::vector<Index>& shape, bool counts = true);
  /// Returns whether the description says that a layer, whose rows have so many values at most, is int8.
  bool is_int8(const std::string& layer, Index columns);
  /// A matrix of int8 and its scales.
  cpu::Int8Matrix int8_tensor(const std::string& name, const std::vector<Index>& shape);
  /// Places of `count` floats of work or of state, which move behind the state at the end.
  Place work(Index count);
  Place state(Index count);
  void add(const Instruction& instruction) { model_.instructions.push_back(instruction); }

  void find_shared();
  Place add_input(const std::string& prefix);
  /// Sets the weight [rows, columns] of a layer, of floats or of int8.
  void take_matrix(Instruction& to, const std::string& name, Index rows, Index columns, bool int8);
  Place linear(const std::string& name, Place x, Index inputs, Index outputs, bool may_be_int8 = false);
  Place convolution(const std::string& name, Place x, Index width, Index taps);
  Place silu_gate(Place x, Index inner);
  Place norm(const std::string& name, ResidualStream& stream, Index width);
  Place recurrence(const std::string& name, Place x, Index input, Index hidden, Index heads, bool pooling);
  Place int8_recurrence(const std::string& name, Place x, Index input, Index hidden, Index heads);
  void block(const std::string& name, Index index, ResidualStream& stream);
  Place member(const std::string& prefix);
  void linear_branch(Place outputs);
  void filter_branch(Place outputs);
  bool pack();
  void move_behind_state();

  RecurrentModel& model_;
  const TensorFile& file_;
  const Description& of_;
  Failure& failure_;
  std::vector<LayerWeights> weights_;
  std::vector<bool> used_;
  std::size_t int8_layers_ = 0;  // that were found
  Index state_ = 0, work_ = 0;
};

}  // namespace penstock::runtime
