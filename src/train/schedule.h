#pragma once

#include "penstock/train/train.h"

namespace penstock::training {

/// The learning rate at `fraction` (0..1) of the run: it rises in a straight line over the first `warmup` of the run,
/// then falls along half a cosine to final_rate * learning_rate.
double scheduled_rate(const TrainOptions& options, double fraction);

}  // namespace penstock::training
