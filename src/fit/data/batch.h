#pragma once

#include "nn/model/model_impl.h"
#include "penstock/data/dataset.h"
#include "penstock/data_description.h"

/// Checks of Examples, and what programs need to know of them.
namespace penstock::training {

/// Throws Error(invalid_argument) if the example that a dataset gave does not have the shape that its description
/// promises.
void check_example(const Example& example, const DataDescription& data);

/// Throws Error(incompatible) naming the field if a model was made for other data than the dataset's.
void check_same_data(const DataDescription& model, const DataDescription& dataset);

/// Rows, steps, lengths and resets; points into the example.
Batch batch_of(const Example& example);
/// Returns the target to prepare a program for this example.
ops::Target target_of(const Example& example, const Execution& execution);

/// Positions with a target.
Index scored_positions(const Example& example);

}  // namespace penstock::training
