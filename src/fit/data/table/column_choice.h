#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/table/counters.h"
#include "data/table/open_table.h"

namespace penstock::data {

/// Decides from the rows of a table which of its columns a model can read.
class ColumnChooser {
 public:
  ColumnChooser(const TableHeader& header, char decimal, const ColumnQuestion& question);

  void look(const std::vector<Field>& row);
  /// The next row is the first of a file.
  void restart();
  /// Returns whether more rows would change nothing.
  bool decided() const { return undecided_ == 0; }
  /// Throws Error(bad_input) if there is no column to read, or one has too many texts to be categories.
  OpenTable::Choice choice() const;

 private:
  enum class Kind { excluded, unknown, number, truth, date, text, named };

  struct Seen {
    Kind kind = Kind::unknown;
    std::string first;               // value
    std::string other;               // of truth values: the word that says the opposite
    std::vector<std::string> texts;  // different ones, in the order of the rows
    bool changes = false, missing = false;
    std::vector<double> numbers;  // of a column that may hold dates as numbers
    bool maybe_dates = false;
    std::optional<CounterSearch> counter;  // of a column that may be one
    bool done = false;
  };

  std::size_t series_of(const std::vector<Field>& row);
  void look(const Field& field, std::size_t column, std::size_t series);
  void look_at_number(const Field& field, std::size_t series, Seen& seen) const;
  void leave_out_counters(OpenTable::Choice& choice) const;
  static void look_at_truth(const Field& field, Seen& seen);
  void look_at_text(const Field& field, Seen& seen) const;
  static bool is_half_a_pair(const Seen& seen);
  bool are_categories(std::size_t column) const;
  void check_named(std::size_t column) const;
  std::string reason(std::size_t column) const;
  OpenTable::TruthColumn truth(std::size_t column) const;

  const TableHeader& header_;
  char decimal_;
  bool find_categories_, needs_number_, any_;
  std::vector<Seen> columns_;
  std::vector<std::size_t> counters_;  // that may be counters
  std::optional<std::size_t> series_column_;
  std::unordered_map<std::string, std::size_t> series_;  // numbers by name
  std::size_t undecided_;
  Index rows_ = 0;
};

}  // namespace penstock::data
