#include "backend/cuda/scan_rule.h"

#include <cmath>

#include "base/check.h"
#include "plan/cell_table.h"

namespace penstock::cuda {
namespace {

#include "cells/prelude.h"

#include "cells/list.h"

}  // namespace

ScanRule scan_rule(std::string_view cell) {
  const plan::CellTraits& traits = plan::cell_traits(cell);
  if (!traits.info.scan) fail(ErrorCode::unsupported, "cell {} does not run on a GPU yet; scan cells do", cell);
  ScanRule rule;
#define PENSTOCK_NAME(Cell) \
  if (cell == Cell::name) rule.type = #Cell;
  PENSTOCK_SCAN_CELLS(PENSTOCK_NAME)
#undef PENSTOCK_NAME
  rule.gates = rule.read_back = traits.gates();
  return rule;
}

}  // namespace penstock::cuda
