#pragma once

#include <memory>
#include <string>

#include "penstock/data/labelled.h"
#include "penstock/data/series.h"
#include "penstock/data/sound.h"
#include "penstock/model.h"

/// Fine-tuning: training that continues from the weights of a model on new data. The data are opened with the columns,
/// scaling and labels of the model, so a value means the same as in the first training.
namespace penstock {

/// Recommended TrainOptions::learning_rate for fine-tuning.
constexpr double fine_tuning_rate = 1e-3;

/// Opens a series for a model. `origin` is the description of the model's data. It decides on columns, horizon,
/// logarithms and calendar; these fields of the options are ignored.
///
/// Throws what open_series() without `origin` throws, and Error(incompatible) for data of another task, without the
/// model's columns, or in another unit.
std::unique_ptr<Dataset> open_series(const Sources& sources, const SeriesOptions& options,
                                     const DataDescription& origin);
/// Opens labelled sequences for a model, as above. Also throws Error(incompatible) for labels that the model does not
/// know.
std::unique_ptr<Dataset> open_labelled(const Sources& sources, const LabelledOptions& options,
                                       const DataDescription& origin);
/// Opens sound for a model, as above. Also throws Error(incompatible) for another sample rate.
std::unique_ptr<Dataset> open_sound(const std::string& input, const std::string& target, const SoundOptions& options,
                                    const DataDescription& origin);

/// Makes a model with the weights of `origin`, to be trained on `data`. If the dataset has a linear forecast, the new
/// model takes that one. Filters are dropped; they are fitted again after training.
///
/// Throws Error: incompatible if `data` was not opened for `origin` as above; invalid_argument for an ensemble, a model
/// of filters alone, or an impossible dropout.
Model continue_from(const Model& origin, const Dataset& data, double dropout);

}  // namespace penstock
