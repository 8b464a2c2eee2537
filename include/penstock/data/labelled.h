#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "penstock/data/dataset.h"

/// Datasets of labelled sequences of numbers: opening tables and .ts files.
namespace penstock {

/// Says how to read a table of labelled sequences.
struct LabelledOptions {
  /// Column with the name of each row's sequence. Consecutive rows with the same name are one sequence; a name must not
  /// come back later in the same file.
  std::string sequence_column = "sequence";
  std::string label_column = "label";        ///< Column with the label, constant within a sequence.
  std::vector<std::string> inputs = {};      ///< Names of the input columns; empty: all other numeric columns.
  std::vector<std::string> categories = {};  ///< As SeriesOptions::categories.
  double validation_fraction = 0.2;          ///< Fraction of the sequences that is held out, chosen by `seed`.
  TableFormat format = {};
  Missing missing = Missing::refuse;
  std::uint64_t seed = 0;
};
/// Opens tables of labelled sequences, or .ts files of the UCR and UEA archive. Throws Error: io_failure if a file
/// cannot be read; bad_input, with file, line and column, for bad content such as a sequence whose rows are not
/// consecutive; invalid_argument for impossible options. With the description of a model's data as `origin`, columns,
/// scaling and labels are those of the model, and labels that it does not know are Error(incompatible).
std::unique_ptr<Dataset> open_labelled(const TableSources& sources, const LabelledOptions& options = {},
                                       const DataDescription* origin = nullptr);

}  // namespace penstock
