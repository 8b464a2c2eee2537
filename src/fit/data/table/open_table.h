#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/table/categories.h"
#include "data/table/csv.h"
#include "data/table/table_columns.h"
#include "data/table/table_format.h"
#include "penstock/data/dataset.h"
#include "penstock/description/table.h"
#include "penstock/sources.h"

namespace penstock::data {

/// Question which columns of a table can be read.
struct ColumnQuestion {
  std::vector<std::size_t> excluded = {};
  std::vector<std::size_t> only = {};  ///< Beside those that are named as categories; empty: all others.
  CategoryChoice categories = {};
  std::vector<std::size_t> counters = {};            ///< That may be counters: somebody named them.
  std::optional<std::size_t> series = std::nullopt;  ///< Names the series of a row, of which each is numbered anew.
  bool needs_number = true;                          ///< Categories alone are nothing to read.
};

/// The rows of a table, file by file.
class TableRows;

/// CSV files or tables in memory, with their headers read. Several hold the same columns in the same order.
class OpenTable {
 public:
  /// Throws Error(io_failure) if a file cannot be read, Error(bad_input) if one is empty or no table, its header is not
  /// sound, or it has other columns than the first.
  OpenTable(const TableSources& sources, const TableFormat& format);

  /// Header and format of the first file.
  const TableHeader& header() const { return files_.front().header; }
  const FoundFormat& format() const { return files_.front().format; }
  /// Stands before the first row.
  TableRows rows() const;
  /// Returns the position of a column. Throws Error(invalid_argument) that lists the columns; `argument` is the option
  /// that names it.
  std::size_t column(const std::string& name, const char* argument) const;
  /// Returns the positions of several columns; each may be named once.
  std::vector<std::size_t> columns(const std::vector<std::string>& names, const char* argument) const;

  struct LeftOut {
    std::size_t column;
    std::string reason;  ///< "dates", "text", "no values", "always the same", "no name", CounterSearch::what()
  };
  struct TruthColumn {
    std::size_t column;
    std::string yes, no;  ///< Words that are read as 1 and as 0.
  };
  struct Choice {
    std::vector<std::size_t> columns;
    std::vector<CategoryColumn> categories;
    std::vector<TruthColumn> truths;  ///< Those of the columns that hold such words.
    std::vector<LeftOut> left_out;    ///< Empty if ColumnQuestion::only says which columns are read.
  };
  /// All columns of numbers, as the first value that is not missing shows, or of truth values, as the first two words
  /// show. Later values do not count: one bad value must be an error, not the end of a column. Dates, a first column
  /// without a name, columns that never change and, if others are left, counters of rows are left out. Columns of few
  /// texts, in all rows, are categories, and so are those that are named. Throws Error(bad_input) if there is nothing
  /// to read, or too many texts in a column that is named.
  Choice choose_columns(const ColumnQuestion& question) const;

  /// Reads a column as categories from now on: where the columns stand that all rows get for them.
  std::vector<std::size_t> add_categories(CategoryColumn column);

  /// Leaves out these rows, by their numbers in all files together, from now on.
  void leave_out(const std::vector<Index>& rows);

  /// Returns the sentences of Dataset::reading(). `read` are the columns that were used, those of categories among
  /// them; `choice` is empty if they were asked for.
  std::vector<Message> reading(const std::vector<std::size_t>& read, const Choice& choice) const;

  const Sources& sources() const { return sources_; }

 private:
  friend class TableRows;

  struct File {
    std::string content;
    std::shared_ptr<const TableColumns> columns;  // instead of the content
    FoundFormat format;
    TableHeader header;
  };

  static File open_columns(const Table& table, const TableFormat& given);
  /// Takes the text of the table.
  File open_text(Table& table, TableFormat given);
  std::string describe_truths(const Choice& choice) const;
  /// Throws Error(bad_input) if the first row alone has no number.
  void refuse_units() const;

  Sources sources_;
  bool windows_1252_ = false;  // some of the files are
  std::vector<File> files_;
  CategoryFields categories_;
  std::vector<bool> left_out_;  // of the first rows; empty if none are
};

class TableRows {
 public:
  explicit TableRows(const OpenTable& table) : table_(table) { open(0); }

  /// False behind the last row of the last file. Passes over rows that are left out. Throws Error(bad_input) for a row
  /// of another width than the header.
  bool next();
  const std::vector<Field>& fields() const { return fields_; }
  /// Returns the header of the file that the row is in.
  const TableHeader& header() const { return table_.files_[file_].header; }
  std::size_t file() const { return file_; }
  /// Returns whether this is the first row of its file.
  bool starts_file() const { return starts_file_; }

 private:
  void open(std::size_t file);
  /// Reads the next row of this file.
  bool read_file();
  /// The next row of the files, left out or not.
  bool read();

  const OpenTable& table_;
  std::size_t file_ = 0, row_ = 0;   // row_: of those of the files, the next one
  std::optional<CsvReader> reader_;  // of a file's text; empty for columns, which are read at `place_`
  std::size_t place_ = 0;
  std::vector<Field> fields_;
  bool opened_ = false, starts_file_ = false;  // no row of the file was read yet; the row is the first one
};

}  // namespace penstock::data
