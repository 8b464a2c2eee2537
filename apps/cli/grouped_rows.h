#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rows.h"

/// The rows of a file at once, for models that know series by their names or read what is known in advance.
namespace penstock::cli {

/// The rows of one series, which may be apart in the file.
struct GroupedRows {
  std::string name;
  DataDescription data;                        ///< With its scaling.
  bool trained = true;                         ///< Whether training saw it; otherwise its rows say how it is scaled.
  std::vector<float> features;                 ///< [rows + to_come, I]
  std::vector<std::uint8_t> known;             ///< [rows, targets]: whether the value of a target is there.
  std::vector<std::vector<std::string>> kept;  ///< Columns to be kept, of each row.
  std::vector<std::vector<double>> values;     ///< What `values_of` said of each row.
  std::vector<std::optional<double>> dates;    ///< As RowReader::date(), of each row.
  std::vector<bool> missing;                   ///< Of each row: the file has none.
  Index to_come = 0;                           ///< Rows behind these that only say what is known in advance.
};

struct GroupReading {
  /// So many first rows of a series that training did not see say how it is scaled; 0: all.
  Index scaled_by = 0;
  /// Called with each row as it is read, and whether it is missing in the file; may be empty.
  std::function<std::vector<double>(const Rows&, bool missing)> values_of = {};
};

/// Reads all rows, series by series in the order of their first rows; one series without a name where the model has no
/// groups.
std::vector<GroupedRows> read_groups(Rows& rows, const DataDescription& data, const GroupReading& reading);

/// Says on standard error which series training did not see, if any, and how they are scaled.
void say_new_groups(const std::vector<GroupedRows>& groups, const std::string& source, Index scaled_by);

}  // namespace penstock::cli
