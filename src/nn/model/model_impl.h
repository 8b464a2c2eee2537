#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "nn/model/model_programs.h"
#include "nn/model/parameters.h"
#include "penstock/data_description.h"

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
  /// Tells which weights training goes on from (continue_from); empty: fresh ones.
  std::string origin = {};
  /// Made when they are first asked for, by any thread.
  mutable nn::ModelPrograms programs;

  /// The parameters on a device. Elsewhere than on the CPU they are a copy, brought up to date if the host's have
  /// changed. Throws Error: unsupported without such a device; out_of_memory.
  std::shared_ptr<graph::Weights> weights_on(Device device) const;
  /// Before weights are written in place: sessions that were opened on the model keep them as they are.
  void part_from_sessions();
  /// The host's parameters become those of a copy, which somebody has trained.
  void take_weights_from(Device device);

  Index inputs() const { return data.input_size(); }
  Index outputs() const { return data.output_size(); }

 private:
  struct Copy {
    Device device;
    std::shared_ptr<graph::Weights> weights;
    std::uint64_t of_version = 0;  // of the host's weights
  };
  mutable std::mutex guard_;  // of copies_
  mutable std::vector<Copy> copies_;
};

/// What a program of a model is prepared for: the type of activations follows from the precision. Throws
/// Error(unsupported) for a precision that the device does not have.
ops::Target model_target(Index rows, Index steps, const Execution& execution);

}  // namespace penstock
