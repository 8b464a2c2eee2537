#pragma once

#include "penstock/data/dataset.h"
#include "penstock/train/train.h"

namespace penstock::training {

/// Returns the batch that comes next, which stays the next one.
Example next_batch(Dataset& data, const TrainOptions& options);

}  // namespace penstock::training
