#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/data_description.h"
#include "penstock/sources.h"

namespace penstock {

/// One batch for training or validation. Only the members that the task needs are filled.
struct Example {
  Index rows = 0;                    ///< B
  Index steps = 0;                   ///< T
  std::vector<std::int32_t> tokens;  ///< [B, T] token inputs
  std::vector<float> features;       ///< [B, T, I] numeric inputs, normalised
  std::vector<std::int32_t> labels;  ///< [B, T] class targets, -1: this step is not scored
  std::vector<float> targets;        ///< [B, T, O] numeric targets, normalised
  std::vector<float> weights;        ///< [B, T, O] for `targets`: 0 not scored, 1 scored
  std::vector<Index> lengths;        ///< [B], or empty when all rows have T steps
  std::vector<std::uint8_t> reset;   ///< [B, T], or empty
  /// True when step 0 continues the previous Example of this dataset (truncated back-propagation carries the state).
  bool continues = false;
};

/// A linear forecast of a series from its last rows, as a dataset has fitted it (ModelSpec::lags): what is added to the
/// last value x_t is bias + sum_k weights_k x_{t-k}, all normalised as targets. With effects of what is known in
/// advance it is that of x_t less the effects in its row, and those in the row that is forecast are added.
struct Autoregression {
  Index lags = 0;
  std::vector<float> weights;  ///< [lags, horizon, targets], the current row first
  std::vector<float> bias;     ///< [horizon, targets]
  /// [I, targets]: what a normalised input of a row adds to a target of the same row; 0 but for those that are known in
  /// advance. Empty: no effects.
  std::vector<float> effects = {};
};

/// A source of training and validation batches. Its whole state is a short text, so that a resumed run reads on
/// exactly where it stopped.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const DataDescription& description() const = 0;
  /// Number of scored training steps in one pass, for progress; 0 when the task is generated without end.
  virtual Index training_steps() const = 0;
  /// Number of steps that are held out; 0 when the task is generated without end.
  virtual Index held_out_steps() const { return 0; }
  /// Fills `example` with B rows of at most T steps of training data and moves on.
  /// Labelled sequences and tasks are never cut: there T is the longest sequence of the batch, whatever `steps` says.
  virtual void next(Index rows, Index steps, Example& example) = 0;
  /// The i-th validation batch, the same every time; false (example untouched) when there are no more.
  virtual bool validation(Index i, Index rows, Index steps, Example& example) const = 0;
  /// The linear forecast that was fitted to the training part; null if none was.
  virtual const Autoregression* autoregression() const { return nullptr; }
  /// Position and random state as JSON text, and back. Throws Error(incompatible) for another dataset's text.
  virtual std::string position() const = 0;
  virtual void restore(const std::string& position) = 0;
  /// How the files were read, as far as that had to be found out, a finding an entry: "separator ';', decimal ','",
  /// "3 columns read, 1 left out: week (dates)".
  virtual std::vector<std::string> reading() const { return {}; }
};

/// A table in memory, written as a file of it would be.
struct Table {
  std::string name;  ///< What messages call it.
  std::string text;
  bool named = false;  ///< Commas part its fields, and its first line names the columns, even if it looks like a row.
};

}  // namespace penstock
