// The value types and the cells, compiled once per Highway target. Include between HWY_BEFORE_NAMESPACE and
// HWY_AFTER_NAMESPACE, inside penstock::cpu::HWY_NAMESPACE.

#include "backend/cpu/vec.inl"

#undef PENSTOCK_CELL
#define PENSTOCK_CELL HWY_INLINE
#include "cells/gate_functions.h"

#include "cells/list.h"

#include "cells/recurrence.h"

/// body(std::type_identity<Cell>()) of the cell with that index among all of them, if it is a dense one.
template <class Body>
void WithDenseCell(int cell, const Body& body) {
  int index = 0;
#define PENSTOCK_CALL(Cell) \
  if (index++ == cell) body(std::type_identity<Cell>());
  PENSTOCK_DENSE_CELLS(PENSTOCK_CALL)
#undef PENSTOCK_CALL
}

/// Calls `body` with a scan cell, by its number.
template <class Body>
void WithScanCell(int cell, const Body& body) {
  int index = 0;
#define PENSTOCK_SKIP(Cell) ++index;
#define PENSTOCK_CALL(Cell) \
  if (index++ == cell) body(std::type_identity<Cell>());
  PENSTOCK_DENSE_CELLS(PENSTOCK_SKIP)
  PENSTOCK_SCAN_CELLS(PENSTOCK_CALL)
#undef PENSTOCK_CALL
#undef PENSTOCK_SKIP
}
