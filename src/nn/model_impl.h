#pragma once

#include <memory>
#include <mutex>

#include "nn/network.h"

namespace penstock {

/// What stands behind a Model, for the layers that save, train and stream it.
struct Model::Impl {
  /// Checks the spec; parameters are zero.
  Impl(const ModelSpec& spec, const DataDescription& data);

  ModelSpec spec;
  DataDescription data;
  /// Its layers keep scratch memory, hence mutable; what it computes does not depend on that.
  mutable nn::Network<float> network;
  /// Shared with the sessions that were opened on the model, which may outlive it.
  std::shared_ptr<nn::Parameters<float>> parameters;
  mutable nn::Arena arena;   // of forward() and of training
  mutable std::mutex guard;  // the network and the arena serve one call at a time
};

}  // namespace penstock
