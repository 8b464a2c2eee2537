// What a cell must offer, checked where the list is first compiled so that an incomplete cell fails with its name.
// Include after list.h, in the same namespace.
//
// Every cell: name, description, gates G, states S (state 0 is the output h), scan; for the first values of its biases
//   keep_gate and overwrite_gate, the gates that make the memory longer or shorter (-1: none), and spread_memory, true
//   if each channel should begin with a time constant of its own.
// Dense cells (scan == false): saved N, phases (1 or 2), split_gradients, and
//   forward(wx[G], rh[G], prev[S], next[S], save[N]): wx = W x + bias_ih, rh = R h + bias_hh;
//   backward(save[N], prev[S], dnext[S], dwx[G], drh[G], dprev[S]): dprev without the part that flows through rh,
//   which the engine adds. split_gradients says that drh is not the same as dwx.
// Two-phase cells have first_gates and forward_first, forward_second, backward_second, backward_first, operand.
// Scan cells: affine(wx[G], a, b) and affine_backward(wx[G], da, db, dwx[G]).

template <class Cell>
constexpr bool IsGateOrNone(int gate) {
  return gate >= -1 && gate < Cell::gates;
}

template <class Cell>
constexpr bool DeclaresMemory() {
  return IsGateOrNone<Cell>(Cell::keep_gate) && IsGateOrNone<Cell>(Cell::overwrite_gate) && requires {
    Cell::spread_memory;
  };
}

template <class Cell>
constexpr bool IsDenseCell() {
  return DeclaresMemory<Cell>() && !Cell::scan && Cell::gates >= 1 && Cell::states >= 1 && Cell::saved >= 1 &&
         (Cell::phases == 1 || Cell::phases == 2) && requires {
    Cell::split_gradients;
  };
}

template <class Cell>
constexpr bool IsScanCell() {
  return DeclaresMemory<Cell>() && Cell::scan && Cell::gates >= 1 && Cell::states == 1;
}

#define PENSTOCK_CHECK_DENSE(Cell) static_assert(IsDenseCell<Cell>(), #Cell " is not a dense cell: see contract.h");
#define PENSTOCK_CHECK_SCAN(Cell) static_assert(IsScanCell<Cell>(), #Cell " is not a scan cell: see contract.h");
PENSTOCK_DENSE_CELLS(PENSTOCK_CHECK_DENSE)
PENSTOCK_SCAN_CELLS(PENSTOCK_CHECK_SCAN)
#undef PENSTOCK_CHECK_DENSE
#undef PENSTOCK_CHECK_SCAN
