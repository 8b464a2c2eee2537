#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "penstock/data/dataset.h"

namespace penstock {

struct LabelledOptions {
  /// Rows with the same value, one after the other, are one sequence; a value must not come back in the same file.
  std::string sequence_column = "sequence";
  std::string label_column = "label";        ///< Constant within a sequence.
  std::vector<std::string> inputs = {};      ///< Empty: every other numeric column.
  std::vector<std::string> categories = {};  ///< As SeriesOptions has them.
  double validation_fraction = 0.2;          ///< Of the sequences, chosen by the seed.
  TableFormat format = {};
  Missing missing = Missing::refuse;
  std::uint64_t seed = 0;
};
/// A table in which each run of equal `sequence` values is one labelled sequence, or a .ts file of the UCR and UEA
/// archive. Throws Error(bad_input) where the rows of a sequence are apart.
std::unique_ptr<Dataset> open_labelled(const Sources& sources, const LabelledOptions& options = {});
std::unique_ptr<Dataset> open_labelled(const std::string& path, const LabelledOptions& options = {});
/// The same of tables in memory.
std::unique_ptr<Dataset> open_labelled_tables(const std::vector<Table>& tables, const LabelledOptions& options = {},
                                              const DataDescription* origin = nullptr);

}  // namespace penstock
