#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "nn/model/model_programs.h"
#include "nn/model/parameters.h"
#include "penstock/data_description.h"

/// Implementation of Model, for the parts that save, train and stream it.
namespace penstock {

/// Spec, data description, parameters and programs of a model.
struct Model::Impl {
  /// Checks the spec and makes zero parameters.
  Impl(const ModelSpec& spec, const DataDescription& data);

  ModelSpec spec;
  DataDescription data;
  /// Shared with the sessions of the model, which may outlive it.
  std::shared_ptr<nn::Parameters<float>> parameters;
  Index state_size = 0;  ///< Number of values in one row's state.
  /// Fingerprint of the weights that training continues from (continue_from()); empty: initial weights.
  std::string origin = {};
  /// Programs, made on first use by any thread.
  mutable nn::ModelPrograms programs;

  /// Returns the parameters on a device. On a GPU they are a copy, which is updated if those of the host have changed.
  /// Throws Error: unsupported without such a device; out_of_memory.
  std::shared_ptr<graph::Weights> weights_on(Device device) const;
  /// Call before writing weights in place: open sessions keep the old ones.
  void detach_sessions();
  /// Copies the trained parameters of a device to those of the host.
  void take_weights_from(Device device);

  Index inputs() const { return data.input_size(); }
  Index outputs() const { return data.output_size(); }

 private:
  struct Copy {
    Device device;
    std::shared_ptr<graph::Weights> weights;
    std::uint64_t of_version = 0;  // version of the host's weights
  };
  mutable std::mutex guard_;  // guards copies_
  mutable std::vector<Copy> copies_;
};

/// Returns the target that programs of a model are prepared for. The precision decides the type of activations. Throws
/// Error(unsupported) for a precision that the device does not have.
ops::Target model_target(Index rows, Index steps, const Execution& execution);

}  // namespace penstock
