#pragma once

#include <nlohmann/json.hpp>

#include "penstock/data/dataset.h"
#include "penstock/description/task.h"
#include "penstock/train/train.h"

namespace penstock::training {

/// Throws Error(invalid_argument) naming the option that is out of range, or limits that never end a run over `data`.
void check_options(const TrainOptions& options, const Dataset& data);

/// Throws it for the sizes of batches, and their number in a validation.
void check_batches(const TrainOptions& options);

/// The loss that `automatic` stands for. Throws Error(invalid_argument) if the task has no such loss.
Loss resolve_loss(Loss loss, Task task);

/// Throws Error for a loss that does not fit the data, the length of a window or the device.
void check_loss(const TrainOptions& options, const DataDescription& data);

/// The options that decide which weights come out, for comparison with a checkpoint's. Limits, paths, how often things
/// happen and the execution are left out: a run may go on for longer, or on another machine.
nlohmann::json identity(TrainOptions options, Task task);

}  // namespace penstock::training
