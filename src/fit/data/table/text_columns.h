#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "data/table/open_table.h"

/// Choice of the columns of a table that hold texts and their labels.
namespace penstock::data {

struct TextColumns {
  std::size_t text = 0, label = 0;
};

/// The columns as their names and first rows show them; those that are named are taken as they are. Nothing if they
/// are not plainly there.
std::optional<TextColumns> find_text_columns(const OpenTable& table, const std::string& text, const std::string& label);

/// The first column that is called as labels usually are.
std::optional<std::size_t> usual_label(const TableHeader& header);

}  // namespace penstock::data
