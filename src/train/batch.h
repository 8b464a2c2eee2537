#pragma once

#include <string>

#include "nn/model_impl.h"
#include "ops/loss.h"
#include "penstock/train.h"

/// From an Example to the arguments of the network and the loss.
namespace penstock::training {

/// Throws Error(invalid_argument) if the example that a dataset gave does not have the shape that its description
/// promises.
void check_example(const Example& example, const DataDescription& data);

/// Throws Error(incompatible) naming the field if a model was made for other data than the dataset's.
void check_same_data(const DataDescription& model, const DataDescription& dataset);

/// Rows, steps, lengths and resets; points into the example.
Batch batch_of(const Example& example);
/// What a program for the example is prepared for.
ops::Target target_of(const Example& example, const Execution& execution);
/// Says where the model finds its input.
void bind_input(const Example& example, graph::Workspace& workspace);

/// The loss of outputs [B, T, O], already resolved from `automatic`; `gradient` as in ops/loss.h, and
/// `scratch` of the size that it says.
ops::LossSum compute_loss(Loss loss, const Example& example, const Execution& execution, Index outputs, const float* y,
                          float* gradient, void* scratch);

/// Values of the state that the example starts from: those of `carried`, which are for `carried_rows` rows, where it
/// continues them, else zeros. Resizes and fills `state`.
void start_state(const Example& example, bool carry, Index carried_rows, std::span<const float> carried,
                 Index state_size, std::vector<float>& state);

}  // namespace penstock::training
