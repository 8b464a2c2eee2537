#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/data/dataset.h"

/// Datasets of labelled texts, one in each row of a table: sentiment, topics, languages. A model reads the bytes of a
/// text and a final zero byte, and outputs the label at that byte.
namespace penstock {

/// Says how to read a table of labelled texts.
struct LabelledTextOptions {
  std::string text_column = {};  ///< Column of the texts; empty: the one with the longest texts, if most are different.
  std::string label_column = {};  ///< Column of the labels; empty: the one called label, class, category, target, ...
  Index longest = 1000;           ///< Bytes that are read of each text, 1 to 2^20; the rest is cut off.
  double validation_fraction = 0.2;  ///< Fraction of the texts of every label that is held out, chosen by `seed`.
  TableFormat format = {};
  /// Treatment of rows without a text or a label: refuse is an error, mask leaves them out. No other values.
  Missing missing = Missing::refuse;
  std::uint64_t seed = 0;
};

/// Returns whether the first rows of a table look like texts and labels. `label_column` is the column of the labels;
/// empty: one with a usual name. Throws nothing: for an unreadable file it returns false.
bool holds_labelled_texts(const Sources& sources, const TableFormat& format, const std::string& label_column = {});

/// Opens tables of labelled texts. With the description of a model as `origin`, text column, length and labels are
/// those of the model.
///
/// Throws Error: io_failure if a file cannot be read; invalid_argument for impossible options; bad_input for a table
/// without such columns, rows without text or label, or fewer than two labels; incompatible for labels that the model
/// does not know, or a model of another task.
std::unique_ptr<Dataset> open_labelled_texts(const TableSources& sources, const LabelledTextOptions& options = {},
                                             const DataDescription* origin = nullptr);

/// A row of a table with a text to be labelled.
struct TextRow {
  std::string text;               ///< The text; may be empty.
  std::vector<std::string> kept;  ///< Values of the columns `keep`.
};
/// Reads all rows of a table with the text column of a model, in order. `keep` names further columns to return. Throws
/// Error(io_failure | bad_input), and invalid_argument if a column of `keep` does not exist.
std::vector<TextRow> read_text_rows(const TableSources& sources, const DataDescription& data, const TableFormat& format,
                                    const std::vector<std::string>& keep);

/// Returns the tokens that a model reads for a text: its first LabelDescription::longest_text bytes and a final zero.
std::vector<std::int32_t> text_tokens(const DataDescription& data, std::string_view text);

}  // namespace penstock
