#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "custom/cell.h"
#include "penstock/types.h"
#include "runtime/failure.h"

namespace penstock::runtime {

/// An input or a target, as far as a step or the caller needs it (penstock/description/column.h).
struct ModelColumn {
  std::string name;
  double mean = 0.0, scale = 1.0;
  bool logarithm = false, non_negative = false, is_value = true;
  Index ahead = 0;
};

/// The architecture of a model and what it reads: a ModelSpec and a DataDescription in one.
struct Description {
  Index version = 0;
  std::string cell;
  std::shared_ptr<const custom::DerivedCell> custom = nullptr;  ///< Null: a built-in cell.
  Index width = 0, blocks = 0, hidden = -1, heads = 0, taps = -1, inner = 0;
  bool end_norms = true, from_last = false, known_effects = false;
  Index lags = 0, filters = 0, dilations = 0, members = 1;
  std::vector<std::string> int8;  ///< Layers whose matrices are int8.

  penstock_task task = PENSTOCK_LANGUAGE;
  Index vocabulary = 0, horizon = 0, sample_rate = 0;
  std::vector<ModelColumn> inputs, targets;
  std::vector<std::string> classes;

  Index input_size() const { return vocabulary > 0 ? 1 : static_cast<Index>(inputs.size()); }
  Index output_size() const;
};

/// Reads and checks the text that describes a model in its file.
bool read_description(std::string_view text, Description& description, Failure& failure);

}  // namespace penstock::runtime
