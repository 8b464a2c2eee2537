#pragma once

#include <string>
#include <vector>

#include "nn/model/model_programs.h"
#include "nn/model/parameters.h"
#include "penstock/train/train.h"

namespace penstock::training {

/// What an optimiser remembers from step to step, in the host's memory: arrays in the layout of the parameters, which a
/// checkpoint keeps.
struct OptimizerState {
  struct Slot {
    std::string name;  // "first_moment"
    std::vector<float> values;
  };

  OptimizerState(const TrainOptions& options, const nn::ParameterLayout& layout);

  std::vector<Slot> slots;
};

ops::LossKind kind_of(Loss resolved);

/// The part of a training step that the options decide. `training_steps`: scored steps in one pass over the data, or 0.
nn::TrainingShape training_shape(const TrainOptions& options, Loss loss, Index training_steps);

}  // namespace penstock::training
