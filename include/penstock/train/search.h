#pragma once

#include <functional>
#include <string>
#include <vector>

#include "penstock/data/dataset.h"
#include "penstock/model.h"
#include "penstock/train/train.h"

/// A search for the model that suits some data: many are trained on a part of the training part, and scored on the rest
/// of it. What is held out for the final score is not looked at.
namespace penstock {

/// What a search decides: fields of ModelSpec and TrainOptions.
struct SearchChoice {
  std::string cell;
  Index width = 0;
  double dropout = 0.0;
  double learning_rate = 0.0;

  bool operator==(const SearchChoice&) const = default;
  /// "gru of width 64, dropout 0.2, learning rate 0.003"
  std::string text() const;
  void apply(ModelSpec& spec, TrainOptions& options) const;
};

/// The values that each may take, ascending but for the cells; one value fixes it.
struct SearchSpace {
  std::vector<std::string> cells;
  std::vector<Index> widths;
  std::vector<double> dropouts;
  std::vector<double> learning_rates;
};

struct SearchTrial {
  SearchChoice choice;
  std::vector<double> losses;  ///< Of every training of it, on what was held out of the training part.
  double seconds = 0.0;        ///< All trainings together.

  /// Mean of the losses.
  double loss() const;
};

struct SearchOptions {
  SearchSpace space;
  double seconds = 0.0;  ///< The budget of wall time; what is under way then is not counted.
  std::string path;      ///< Keeps every trial as it ends, as JSON lines; empty: nowhere.
  bool resume = false;   ///< Goes on from the trials and the time in that file.
  std::uint64_t seed = 0;
};

struct SearchResult {
  SearchChoice best;
  std::vector<SearchTrial> trials;  ///< The first one is what the search began with.
  double seconds = 0.0;
  bool interrupted = false;

  /// Of the best one.
  double loss() const;
};

/// Called from the searching thread.
struct SearchCallbacks {
  /// Before a training of `choice`, and while it runs.
  std::function<void(const SearchChoice& choice, double seconds)> progress;
  /// Behind each training; `best`: no other choice has a lower loss so far.
  std::function<void(const SearchTrial& trial, Index number, bool best)> trial;
  std::function<bool()> stop;
};

/// What is worth trying around a model: all cells but variants of each other, from a quarter of its width to twice.
SearchSpace suggest_space(const ModelSpec& spec, const TrainOptions& options);

/// Trains models of the choices in the space, `spec` and `options` otherwise, on data.inner(): at first that of `spec`
/// and `options` themselves, then random ones, then neighbours of the best. In the last third of the time the three
/// best are trained again with other seeds, so that the best is not the luckiest. Throws Error(unsupported) for data
/// that are generated without end, Error(invalid_argument) if not one training ended in time.
SearchResult search(const ModelSpec& spec, const Dataset& data, const TrainOptions& options,
                    const SearchOptions& search_options, const SearchCallbacks& callbacks = {});

}  // namespace penstock
