// The only list of cells. Include after the prelude, inside the namespace for the cells.

#include "cells/elman.h"
#include "cells/gru.h"
#include "cells/lstm.h"
#include "cells/minimal.h"
#include "cells/slstm.h"

// clang-format off
#define PENSTOCK_DENSE_CELLS(X) X(ElmanTanh) X(ElmanRelu) X(Gru) X(GruResetBefore) X(Lstm) X(Slstm)
#define PENSTOCK_SCAN_CELLS(X) X(MinGru) X(MinGruLog) X(MinLstm) X(MinLstmLog)
// clang-format on
#define PENSTOCK_CELLS(X) PENSTOCK_DENSE_CELLS(X) PENSTOCK_SCAN_CELLS(X)
