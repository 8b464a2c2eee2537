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

  const float* tensor(const std::string& name, const std::vector<Index>& shape);
  /// Places of `count` floats of work or of state, which move behind the state at the end.
  Place work(Index count);
  Place state(Index count);
  void add(const Instruction& instruction) { model_.instructions.push_back(instruction); }

  void find_shared();
  Place add_input(const std::string& prefix);
  Place linear(const std::string& name, Place x, Index inputs, Index outputs);
  Place convolution(const std::string& name, Place x, Index width, Index taps);
  Place silu_gate(Place x, Index inner);
  Place norm(const std::string& name, ResidualStream& stream, Index width);
  Place recurrence(const std::string& name, Place x, Index input, Index hidden, Index heads, bool pooling);
  void block(const std::string& name, Index index, ResidualStream& stream);
  Place member(const std::string& prefix);
  void linear_branch(Place outputs);
  void filter_branch(Place outputs);
  bool pack();
  void move_behind_state();

  /// Weights of a layer until all are packed.
  struct LayerWeights {
    cpu::StepWeights<float> weights;
    Index learnt = 0;
  };

  RecurrentModel& model_;
  const TensorFile& file_;
  const Description& of_;
  Failure& failure_;
  std::vector<LayerWeights> weights_;
  std::vector<bool> used_;
  Index state_ = 0, work_ = 0;
};

}  // namespace penstock::runtime
