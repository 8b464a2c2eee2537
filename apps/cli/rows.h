#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "input.h"
#include "penstock/data.h"

/// The rows of a CSV stream, and the lines of a stream of tokens, for models that do not read bytes.
namespace penstock::cli {

/// Which columns of the input matter besides those that the model reads, and how the rows are written.
struct RowOptions {
  std::vector<std::string> keep;             ///< Copied to the output.
  std::string sequence_column = "sequence";  ///< Of labelled sequences; it need not be there.
  RowFormat format;
};

/// Reads the header at once. Throws Error(bad_input) if there is none or it lacks a column, and Error(invalid_argument)
/// if a column to be kept is not there.
class Rows {
 public:
  Rows(Input& input, const DataDescription& data, const RowOptions& options);

  /// As messages call the stream.
  const std::string& name() const { return input_.name(); }

  enum class Kind {
    row,
    missing,  ///< One that the input has not and a regular calendar has, in front of the row whose columns are kept.
    blank,
    end,
  };
  Kind next();
  /// How many were missing so far.
  Index missing() const { return missing_; }

  const RowReader& reader() const { return *reader_; }
  RowReader& reader() { return *reader_; }
  /// Values that were missing, or could not be read, and were replaced by the last ones.
  Index replaced() const { return reader_->replaced(); }
  std::string first_replaced() const;

  const std::vector<float>& features() const { return features_; }
  /// As RowReader::known_targets(): of a row that is missing, none.
  std::span<const std::uint8_t> known_targets() const { return known_targets_; }
  const std::vector<std::string>& kept() const { return kept_; }
  /// As RowReader::date(): of a row that is missing, nothing.
  std::optional<double> date() const;
  /// Of the last row; empty without such a column.
  const std::string& sequence() const { return sequence_; }
  bool has_sequences() const { return sequence_position_.has_value(); }
  /// Whether the last row belongs to another sequence than the one before it.
  bool starts_sequence() const { return reader_->starts_sequence(); }

 private:
  Input& input_;
  std::string line_;
  std::optional<RowReader> reader_;
  std::vector<std::optional<std::size_t>> kept_positions_;  // none: what the file calls the series
  std::optional<std::size_t> sequence_position_;
  std::vector<float> features_;
  std::vector<std::string> kept_;
  std::vector<std::uint8_t> known_targets_;
  std::string sequence_;
  std::vector<float> row_;      // features of the row behind those that are missing
  std::size_t handed_out_ = 0;  // features of missing rows
  Index missing_ = 0;
  bool waiting_ = false;  // the first line is a row, and not read yet
  bool waits_ = false;    // the last row, for those that are missing in front of it

  std::optional<Kind> next_of_missing();
};

/// Says on standard error how many rows were missing and values replaced, if any were.
void say_replaced(const Rows& rows);

/// "0 1 1 0" as tokens below the vocabulary. Throws Error(bad_input) with the place of anything else.
std::vector<std::int32_t> parse_tokens(const std::string& line, Index vocabulary, const std::string& source,
                                       Index line_number);

}  // namespace penstock::cli
