#pragma once

#include <memory>
#include <string>

#include "penstock/data/labelled.h"
#include "penstock/data/series.h"
#include "penstock/data/sound.h"
#include "penstock/model.h"

/// Fine-tuning: training that continues from the weights of a model on new data. open_series(), open_labelled() and
/// open_sound() open such data with the columns, scaling and labels of the model (`origin`), so a value means the same
/// as in the first training.
namespace penstock {

/// Recommended TrainOptions::learning_rate for fine-tuning.
constexpr double fine_tuning_rate = 1e-3;

/// Makes a model with the weights of `origin`, to be trained on `data`. If the dataset has a linear forecast, the new
/// model takes that one. Filters are dropped; they are fitted again after training.
///
/// Throws Error: incompatible if `data` was not opened for `origin`; invalid_argument for an ensemble, a model
/// of filters alone, or an impossible dropout.
Model continue_from(const Model& origin, const Dataset& data, double dropout);

}  // namespace penstock
