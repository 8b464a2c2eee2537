#pragma once

#include "nn/model/model_impl.h"
#include "penstock/data/dataset.h"
#include "penstock/train/train.h"

namespace penstock::training {

/// The work of penstock::evaluate() with the loss already resolved.
Evaluation evaluate_model(const Model::Impl& model, const Dataset& data, const TrainOptions& options, Loss loss);

}  // namespace penstock::training
