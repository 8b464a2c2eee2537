#pragma once

#include <memory>
#include <string>

#include "penstock/data/labelled.h"
#include "penstock/data/series.h"
#include "penstock/data/sound.h"
#include "penstock/model.h"

/// Training that goes on from the weights of a model, on data of the same form. Data are opened as the model has them:
/// its columns with their scaling and its labels, so that a value means the same as in the first training.
namespace penstock {

/// A good highest learning rate for weights that know something already.
constexpr double fine_tuning_rate = 1e-3;

/// As the functions of these names without `origin`, which is the description of a model's data and decides about
/// columns, horizon, logarithms and cycles of dates: those fields of the options are not looked at. Throw
/// Error(incompatible) for data that the model is not for: of another task, with missing columns or unknown labels, in
/// another unit.
std::unique_ptr<Dataset> open_series(const Sources& sources, const SeriesOptions& options,
                                     const DataDescription& origin);
std::unique_ptr<Dataset> open_labelled(const Sources& sources, const LabelledOptions& options,
                                       const DataDescription& origin);
std::unique_ptr<Dataset> open_sound(const std::string& input, const std::string& target, const SoundOptions& options,
                                    const DataDescription& origin);

/// A model with the weights of `origin`, to be trained on `data`. A linear forecast is that of the data, if they have
/// one, of as many lags. Throws Error(incompatible) for data that were not opened as the model has them,
/// Error(invalid_argument) for an ensemble or an impossible dropout.
Model continue_from(const Model& origin, const Dataset& data, double dropout);

}  // namespace penstock
