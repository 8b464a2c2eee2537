#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/data/dataset.h"

/// Tables that hold a text and its label in each row: sentiment, topics, languages. A model reads the bytes of a text
/// and a zero behind them, at which it says the label.
namespace penstock {

struct LabelledTextOptions {
  std::string text_column = {};      ///< Empty: the column of the longest texts, most of which differ.
  std::string label_column = {};     ///< Empty: the one called label, class, category, target, sentiment, topic, ...
  Index longest = 1000;              ///< Bytes of a text that are read, 1 to 2^20; longer ones are cut.
  double validation_fraction = 0.2;  ///< Of the texts of every label, chosen by the seed.
  TableFormat format = {};
  /// Rows without a text or a label: refuse, or mask, which leaves them out.
  Missing missing = Missing::refuse;
  std::uint64_t seed = 0;
};

/// Whether the first rows of a table plainly are texts and labels. `label_column` names the label; empty: it has one of
/// the usual names.
bool holds_labelled_texts(const Sources& sources, const TableFormat& format, const std::string& label_column = {});

/// One sequence a row. With the description of a model as `origin` its columns, lengths and labels are taken. Throws
/// Error(invalid_argument | bad_input | incompatible).
std::unique_ptr<Dataset> open_labelled_texts(const Sources& sources, const LabelledTextOptions& options = {},
                                             const DataDescription* origin = nullptr);
/// The same of tables in memory.
std::unique_ptr<Dataset> open_labelled_text_tables(const std::vector<Table>& tables,
                                                   const LabelledTextOptions& options = {},
                                                   const DataDescription* origin = nullptr);

/// A row of texts that a model labels.
struct TextRow {
  std::string text;
  std::vector<std::string> kept;  ///< Columns that were asked for.
};
/// All rows of a table with the text column of a model, in their order; texts may be empty.
std::vector<TextRow> read_text_rows(const Sources& sources, const DataDescription& data, const TableFormat& format,
                                    const std::vector<std::string>& keep);
std::vector<TextRow> read_text_rows(const Table& table, const DataDescription& data, const TableFormat& format,
                                    const std::vector<std::string>& keep);

/// The tokens that a model reads of a text: its first bytes, and the zero that ends it.
std::vector<std::int32_t> text_tokens(const DataDescription& data, std::string_view text);

}  // namespace penstock
