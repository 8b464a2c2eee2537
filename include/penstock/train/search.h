#pragma once

#include <functional>
#include <string>
#include <vector>

#include "penstock/data/dataset.h"
#include "penstock/model.h"
#include "penstock/train/train.h"

/// Hyper-parameter search. Candidates are trained on a part of the training data and scored on the rest of it; the
/// hold-out set of the final score is not used.
namespace penstock {

/// One candidate of a search.
struct SearchChoice {
  std::string cell;            ///< ModelSpec::cell
  Index width = 0;             ///< ModelSpec::width
  double dropout = 0.0;        ///< ModelSpec::dropout
  double learning_rate = 0.0;  ///< TrainOptions::learning_rate

  bool operator==(const SearchChoice&) const = default;
  /// Returns the candidate as text: "gru of width 64, dropout 0.2, learning rate 0.003".
  std::string text() const;
  /// Writes the four values to `spec` and `options`.
  void apply(ModelSpec& spec, TrainOptions& options) const;
};

/// Values that the search tries for each field; numbers ascending. A single value fixes a field.
struct SearchSpace {
  std::vector<std::string> cells;
  std::vector<Index> widths;
  std::vector<double> dropouts;
  std::vector<double> learning_rates;
};

/// All trainings of one candidate.
struct SearchTrial {
  SearchChoice choice;
  std::vector<double> losses;  ///< Validation loss of each training; infinity if training failed with NaN or infinity.
  double seconds = 0.0;        ///< Time of all trainings together.

  /// Returns the mean of the losses.
  double loss() const;
};

/// Options of search().
struct SearchOptions {
  SearchSpace space;
  double seconds = 0.0;    ///< Budget of wall time, above 0. A training that is unfinished at its end is discarded.
  std::string path;        ///< File for the trials, as JSON lines, one per training; empty: none.
  bool resume = false;     ///< Continues with the trials and the used time in that file.
  std::uint64_t seed = 0;  ///< Decides which candidates are tried.
};

/// Result of search().
struct SearchResult {
  SearchChoice best;                ///< The best candidate.
  std::vector<SearchTrial> trials;  ///< All candidates; the first one is the starting point of the search.
  double seconds = 0.0;             ///< Wall time, including that of resumed runs.
  bool interrupted = false;         ///< True if SearchCallbacks::stop ended the search.

  /// Returns the mean loss of the best candidate.
  double loss() const;
};

/// Functions that a search calls, from its own thread. Each may be empty.
struct SearchCallbacks {
  /// Called before a training of `choice` and while it runs. `seconds`: time of the search so far.
  std::function<void(const SearchChoice& choice, double seconds)> progress;
  /// Called after each training of trial `number`. `best`: this is the best candidate so far.
  std::function<void(const SearchTrial& trial, Index number, bool best)> trial;
  /// Returns true to end the search.
  std::function<bool()> stop;
};

/// Returns the default search space around a model: the main cells, a quarter of its width to twice its width, dropouts
/// of 0 to 0.5, and 0.1 to 3.3 times its learning rate. `fixed`: fields of SearchChoice that stay as they are.
SearchSpace suggest_space(const ModelSpec& spec, const TrainOptions& options,
                          const std::vector<std::string>& fixed = {});

/// Searches the best candidate for a dataset. All fields that a candidate does not set are those of `spec` and
/// `options`.
///
/// The search starts with `spec` and `options` themselves, then trains random candidates, then mostly neighbours of the
/// best. In the last 35 % of the time it trains the three best again, up to three times each, with other seeds. This
/// guards against lucky results.
///
/// Throws Error: unsupported for data that are generated without end; invalid_argument for an ensemble, an empty space,
/// no time, or if not one training ended in time; incompatible if the file to resume is of another search.
SearchResult search(const ModelSpec& spec, const Dataset& data, const TrainOptions& options,
                    const SearchOptions& search_options, const SearchCallbacks& callbacks = {});

}  // namespace penstock
