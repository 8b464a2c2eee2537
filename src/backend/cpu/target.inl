// The value types and the cells, compiled once per Highway target. Include between HWY_BEFORE_NAMESPACE and
// HWY_AFTER_NAMESPACE, inside penstock::cpu::HWY_NAMESPACE.

#include "backend/cpu/vec.inl"

#undef PENSTOCK_CELL
#define PENSTOCK_CELL HWY_INLINE
#include "cells/prelude.h"

#include "cells/list.h"
