// The interface of a cell. The list of cells is checked against it at compile time: an incomplete cell fails with its
// name and the missing member. Include after list.h, in the same namespace.
//
// Every cell has
//   name, description, gates G, states S (state 0 is the output h), scan;
//   for the initial values of biases: keep_gate and overwrite_gate, the gates that make the memory longer or shorter
//   (-1: none), and spread_memory, true if each channel should start with a different time constant;
//   has_kink, true if the slope of a function of its logits jumps; tests avoid these points.
// Dense cells (scan == false) have
//   saved N, phases (1 or 2), split_gradients (true if drh differs from dwx), and bounded, true if h stays in -1 .. 1
//   from a zero state on, as outputs of tanh do that gates weigh;
//   forward(wx[G], rh[G], prev[S], next[S], save[N]) with wx = W x + bias_ih, rh = R h + bias_hh;
//   backward(save[N], prev[S], dnext[S], dwx[G], drh[G], dprev[S]); dprev excludes the part that flows through rh,
//   which the engine adds.
// Two-phase cells have first_gates and forward_first, forward_second, backward_second, backward_first, operand.
// Scan cells have affine(wx[G], a, b) and affine_backward(wx[G], da, db, dwx[G]).
//
// NaN and infinity: a NaN in an argument must reach the output. An infinite logit must give the limit of the cell for a
// growing logit, unless that limit is 0 times an infinite candidate. Therefore weigh terms one by one, as in
// (1 - z) c + z h: the form c + z (h - c) would subtract an infinite c from itself.

template <class Cell>
concept DeclaresCell = requires(const char* text, int number, bool flag) {
  text = Cell::name, text = Cell::description;
  number = Cell::gates, number = Cell::states, number = Cell::keep_gate, number = Cell::overwrite_gate;
  flag = Cell::scan, flag = Cell::spread_memory, flag = Cell::has_kink;
};

template <class Cell>
concept CountsAreSound =
    Cell::gates >= 1 && Cell::states >= 1 && Cell::keep_gate >= -1 &&
    Cell::keep_gate < Cell::gates&& Cell::overwrite_gate >= -1 && Cell::overwrite_gate < Cell::gates;

template <class Cell>
concept DeclaresDense = !Cell::scan && requires(int number, bool flag) {
  number = Cell::saved, number = Cell::phases;
  flag = Cell::split_gradients, flag = Cell::bounded;
}
&&Cell::saved >= 1 && (Cell::phases == 1 || Cell::phases == 2);

/// Types of the arguments of a dense cell's functions.
template <class Cell>
struct DenseArguments {
  using Gates = double[Cell::gates];
  using States = double[Cell::states];
  using Saved = double[Cell::saved];
};

template <class Cell>
concept HasOnePhase = Cell::phases == 1 && requires(typename DenseArguments<Cell>::Gates& out,
                                                    typename DenseArguments<Cell>::Gates& other_out,
                                                    const typename DenseArguments<Cell>::Gates& wx,
                                                    const typename DenseArguments<Cell>::Gates& rh,
                                                    typename DenseArguments<Cell>::States& next,
                                                    const typename DenseArguments<Cell>::States& prev,
                                                    typename DenseArguments<Cell>::Saved& save,
                                                    const typename DenseArguments<Cell>::Saved& saved) {
  Cell::forward(wx, rh, prev, next, save);
  Cell::backward(saved, prev, prev, out, other_out, next);
};

template <class Cell>
concept HasTwoPhases = Cell::phases == 2 && Cell::first_gates >= 1 &&
                       Cell::first_gates < Cell::gates&& requires(typename DenseArguments<Cell>::Gates& out,
                                                                  typename DenseArguments<Cell>::Gates& other_out,
                                                                  const typename DenseArguments<Cell>::Gates& wx,
                                                                  const typename DenseArguments<Cell>::Gates& rh,
                                                                  typename DenseArguments<Cell>::States& next,
                                                                  const typename DenseArguments<Cell>::States& prev,
                                                                  typename DenseArguments<Cell>::Saved& save,
                                                                  const typename DenseArguments<Cell>::Saved& saved,
                                                                  double operand) {
  Cell::forward_first(wx, rh, prev, operand, save);
  Cell::forward_second(wx, rh, prev, next, save);
  operand = Cell::operand(saved, prev);
  Cell::backward_second(saved, prev, prev, out, other_out, next);
  Cell::backward_first(saved, prev, operand, out, other_out, next);
};

template <class Cell>
concept HasAffine = requires(const double (&wx)[Cell::gates], double (&dwx)[Cell::gates], double a, double b) {
  Cell::affine(wx, a, b);
  Cell::affine_backward(wx, a, b, dwx);
};

#define PENSTOCK_CHECK_CELL(Cell)                                                                             \
  static_assert(DeclaresCell<Cell>, #Cell " lacks something that every cell declares: see cells/contract.h"); \
  static_assert(CountsAreSound<Cell>, #Cell " has no gates or states, or names a gate that it does not have");
#define PENSTOCK_CHECK_DENSE(Cell)                                                                                   \
  PENSTOCK_CHECK_CELL(Cell)                                                                                          \
  static_assert(DeclaresDense<Cell>, #Cell " lacks something that every dense cell declares: see cells/contract.h"); \
  static_assert(HasOnePhase<Cell> || HasTwoPhases<Cell>,                                                             \
                #Cell " lacks a function of dense cells, or it takes other arguments than cells/contract.h says");
#define PENSTOCK_CHECK_SCAN(Cell)                                                                             \
  PENSTOCK_CHECK_CELL(Cell)                                                                                   \
  static_assert(Cell::scan && Cell::states == 1, #Cell " is no scan cell: it needs scan and a single state"); \
  static_assert(HasAffine<Cell>, #Cell                                                                        \
                " lacks affine or affine_backward, or they take other arguments than "                        \
                "cells/contract.h says");
PENSTOCK_DENSE_CELLS(PENSTOCK_CHECK_DENSE)
PENSTOCK_SCAN_CELLS(PENSTOCK_CHECK_SCAN)
#undef PENSTOCK_CHECK_CELL
#undef PENSTOCK_CHECK_DENSE
#undef PENSTOCK_CHECK_SCAN
