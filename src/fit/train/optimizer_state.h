#pragma once

#include <string>
#include <vector>

#include "nn/model/model_programs.h"
#include "nn/model/parameters.h"
#include "penstock/train/train.h"

namespace penstock::training {

/// Name of the average of the weights among the slots.
constexpr const char* average_name = "average";

/// The moments or the momentum of an optimiser in host memory, and behind them the average of the weights, if there is
/// one: arrays in the layout of the parameters, as checkpoints keep them. The update itself is ops::optimizer() of
/// ops/training/training.h.
struct OptimizerState {
  struct Slot {
    std::string name;  // "first_moment"
    std::vector<float> values;
  };

  OptimizerState(const TrainOptions& options, const nn::ParameterLayout& layout);

  std::vector<Slot> slots;
};

/// Returns how many arrays of the size of the weights a run keeps besides them: gradients, moments and the average.
Index stores_of(const TrainOptions& options);

LossKind kind_of(Loss resolved);

/// Returns the part of a training step that the options decide. `training_steps`: scored steps in one pass over the
/// data, or 0.
nn::TrainingShape training_shape(const TrainOptions& options, Loss loss, Index training_steps);

}  // namespace penstock::training
