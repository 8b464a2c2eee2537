// States that enter a step: cleared by a reset, an output of the row, or the state that came in.

#include "backend/cuda/kernels/dense/rows.cuh"

PENSTOCK_DEVICE const unsigned char* AddressOfReset(const DenseRows& rows, const Row& row, int step) {
  return rows.reset + row.memory * rows.reset_row_stride + row.time(step, kDescending) * rows.reset_step_stride;
}

/// Returns whether a row's states are cleared before a step; false for a step that the row does not have.
PENSTOCK_DEVICE bool ResetsAt(const DenseRows& rows, const Row& row, int step) {
  if (!kReset || step < 0 || step >= row.length) return false;
  return *AddressOfReset(rows, row, step) != 0;
}

/// Returns ResetsAt() as a number, 0 for false. No instruction waits for the load before the comparison with 0.
PENSTOCK_DEVICE int ResetFlag(const DenseRows& rows, const Row& row, int step) {
  if (!kReset || step < 0 || step >= row.length) return 0;
  return *AddressOfReset(rows, row, step);
}

/// Returns state `i` of a unit, of all H, with which a row starts again before a step.
PENSTOCK_DEVICE float RestartState(const DenseRows& rows, const Row& row, int step, int i, int unit) {
  if (!kRestarts || rows.restarts == nullptr) return 0.0f;
  return rows.restarts[i * rows.restart_state + row.number * rows.restart_row +
                       row.time(step, kDescending) * rows.restart_step + unit];
}

/// Returns h of a unit, of all H, that enters the first step of a row.
PENSTOCK_DEVICE float FirstOutput(const DenseForwardArguments& args, const Row& row, int unit) {
  if (ResetsAt(args.rows, row, 0)) return RestartState(args.rows, row, 0, 0, unit);
  return args.state_in == nullptr ? 0.0f : args.state_in[(Index)row.number * args.hidden + unit];
}

/// Returns whether the h that entered a step is an output of the row, and not of the state that came in.
PENSTOCK_DEVICE bool HasOutputBefore(const DenseRows& rows, int step) { return step > 0 || rows.begin > 0; }
