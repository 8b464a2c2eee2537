#pragma once

#include <utility>
#include <vector>

#include "penstock/description/series.h"

/// Columns with the scaling of one of many series.
namespace penstock {

/// Returns `column` with the additional scaling of a group.
inline Column with_scaling(Column column, const Scaling& scaling) {
  column.mean = scaling.mean + scaling.scale * column.mean;
  column.scale *= scaling.scale;
  return column;
}

/// Returns columns with the additional scalings of a group, by position; columns without a scaling stay.
inline std::vector<Column> with_scalings(std::vector<Column> columns, const std::vector<Scaling>& scalings) {
  for (std::size_t i = 0; i < columns.size() && i < scalings.size(); ++i) {
    columns[i] = with_scaling(std::move(columns[i]), scalings[i]);
  }
  return columns;
}

}  // namespace penstock
