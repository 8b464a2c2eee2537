#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "data/table/csv.h"
#include "penstock/data_description.h"

namespace penstock::data {

/// A column of text of which each of these texts, its categories, is an input.
struct CategoryColumn {
  std::size_t column = 0;  ///< In the header.
  std::vector<std::string> texts;
};

/// The columns of text that a description reads, and their categories in the order of its inputs. Throws
/// Error(bad_input) for one that the header has not.
std::vector<CategoryColumn> category_columns(const DataDescription& description, const TableHeader& header);

/// Reads columns of text as numbers: a header gets a column for each category, and every record a field for it that is
/// "1" where the text is this category and "0" where it is another one, or missing.
class CategoryFields {
 public:
  /// Adds the columns of a category. Returns their positions in the header.
  std::vector<std::size_t> add(TableHeader& header, CategoryColumn column);
  /// `record` has the fields of the file alone. Returns the columns whose text is none of their categories.
  std::vector<std::size_t> extend(std::vector<Field>& record) const;

 private:
  std::vector<CategoryColumn> columns_;
};

/// Columns of text that become categories.
struct CategoryChoice {
  bool found = true;               ///< Those of few texts, beside those that are named.
  std::vector<std::size_t> named;  ///< Whatever is in them.
};
/// "auto" or nothing, "none", or the names of columns. Throws Error(invalid_argument) for a column that is not there.
CategoryChoice category_choice(const std::vector<std::string>& words, const TableHeader& header);

}  // namespace penstock::data
