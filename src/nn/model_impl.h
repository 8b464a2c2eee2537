#pragma once

#include <memory>

#include "nn/model_programs.h"
#include "nn/parameters.h"

namespace penstock {

/// What stands behind a Model, for the layers that save, train and stream it.
struct Model::Impl {
  /// Checks the spec; parameters are zero.
  Impl(const ModelSpec& spec, const DataDescription& data);

  ModelSpec spec;
  DataDescription data;
  /// Shared with the sessions that were opened on the model, which may outlive it.
  std::shared_ptr<nn::Parameters<float>> parameters;
  Index state_size = 0;  ///< Values of one row's state
  /// Made when they are first asked for, by any thread.
  mutable nn::ModelPrograms programs;

  Index inputs() const { return data.input_size(); }
  Index outputs() const { return data.output_size(); }
};

}  // namespace penstock
