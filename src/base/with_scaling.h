#pragma once

#include "penstock/data.h"

namespace penstock {

/// What `column` becomes by the scaling of a group.
inline Column with_scaling(Column column, const Scaling& scaling) {
  column.mean = scaling.mean + scaling.scale * column.mean;
  column.scale *= scaling.scale;
  return column;
}

}  // namespace penstock
