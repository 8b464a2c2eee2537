#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/rows/stream_opening.h"
#include "data/table/categories.h"
#include "penstock/data_description.h"

namespace penstock::data {

/// Positions of a model's columns in the rows of a stream.
struct StreamColumns {
  /// Throws Error(bad_input) if the header lacks a column that the model needs.
  StreamColumns(const DataDescription& data, StreamOpening opened, const std::string& sequence_column);

  const std::string& source() const { return opening.header.source(); }

  StreamOpening opening;
  CategoryFields categories;  ///< Adds their fields to a row.
  std::vector<std::size_t> inputs;
  std::vector<bool> known_ahead;                          ///< Of each input: so is its column.
  std::vector<std::optional<std::size_t>> target_inputs;  ///< Of each target: the input that is its value.
  std::vector<std::size_t> targets;  ///< Of a model that reads ahead, if they are all there; empty otherwise.
  std::optional<std::size_t> group, sequence;
  std::optional<std::size_t> date;  ///< Column of row dates, if dates are needed for more than inputs.
  struct Dated {
    std::size_t position;
    DateForm form;
  };
  std::optional<Dated> dated_input;  ///< The first column of dates that is an input.

 private:
  void find_inputs(const DataDescription& data);
  void find_known(const DataDescription& data);
  void find_dates(const DataDescription& data);
  void find_group(const DataDescription& data);
};

}  // namespace penstock::data
