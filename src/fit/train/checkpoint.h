#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "nn/model/model_impl.h"
#include "penstock/data/dataset.h"
#include "penstock/train/guard.h"
#include "penstock/train/stopping.h"
#include "penstock/train/train.h"
#include "train/optimizer_state.h"

namespace penstock::training {

/// Name of the weights among the slots of a state.
constexpr const char* weights_name = "weights";

/// A state that a run can return to (guard.h).
struct GoodState {
  Index updates = 0, good_steps = 0;  ///< As in RunState.
  std::optional<double> loss_scale;
  std::vector<OptimizerState::Slot> slots;  ///< The weights, then the slots of the optimiser.
};

/// Where a run stands, apart from the weights and the optimiser's slots.
struct RunState {
  Index step = 0;  ///< Batches so far, skipped ones included.
  Index skipped = 0;
  Index skipped_in_a_row = 0;
  Index scored = 0;                  ///< Scored time steps so far.
  Index updates = 0;                 ///< Of the optimiser.
  std::optional<double> loss_scale;  ///< f16 only
  Index good_steps = 0;              ///< Since the loss scale changed
  double seconds = 0.0;
  Index carried_rows = 0;      ///< Rows of `carried`; 0 before the first batch.
  std::vector<float> carried;  ///< State of the model behind the last good batch.
  ValidationHistory history;
  Plateau plateau;
  std::vector<float> best;  ///< The weights of the best validation, as the parameters' layout has them; empty: none.
  GuardState guard;         ///< As load_checkpoint() read it; save_checkpoint() takes another one.
  GoodState good, pending;  ///< Those of the guard.
};

/// Writes everything that a run needs to go on bit for bit, as one safetensors file that replaces `path` as a whole or
/// not at all. `identity` is that of the options.
void save_checkpoint(const std::string& path, const Model::Impl& model, const OptimizerState& optimizer,
                     const RunState& state, const GuardState& guard, const Dataset& data,
                     const nlohmann::json& identity);

/// Reads it back into all four. Throws Error(incompatible) naming the first field of model, data or options that
/// differs from this run's, or a tensor that does not fit, Error(bad_input) for a file that is damaged, and then leaves
/// the model untouched.
RunState load_checkpoint(const std::string& path, Model::Impl& model, OptimizerState& optimizer, Dataset& data,
                         const nlohmann::json& identity);

}  // namespace penstock::training
