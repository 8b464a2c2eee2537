#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/rows/stream_opening.h"
#include "data/table/categories.h"
#include "penstock/data_description.h"

namespace penstock::data {

/// Where in the rows of a stream the columns stand that a model reads.
struct StreamColumns {
  /// Throws Error(bad_input) if the header lacks a column that the model needs.
  StreamColumns(const DataDescription& data, StreamOpening opened, const std::string& sequence_column);

  const std::string& source() const { return opening.header.source(); }

  StreamOpening opening;
  CategoryFields categories;  ///< Every row gets their fields.
  std::vector<std::size_t> inputs;
  std::vector<bool> known_ahead;                          ///< Of each input: so is its column.
  std::vector<std::optional<std::size_t>> target_inputs;  ///< Of each target: the input that is its value.
  std::vector<std::size_t> targets;  ///< Of a model that reads ahead, if they are all there; empty otherwise.
  std::optional<std::size_t> group, sequence;
  std::optional<std::size_t> date;  ///< Says when a row was, unless an input reads it and nothing else does.
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
