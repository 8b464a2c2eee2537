#pragma once

#include "ops/op.h"
#include "penstock/recurrent.h"
#include "penstock/tensor.h"

/// Checks of forms and calls that programs of all kinds share.
namespace penstock::ops {

/// Programs that are kept of each kind.
inline constexpr std::size_t kept_programs = 256;

/// Rows and steps of a form; `positions` of packed rows, else 0.
struct FormExtent {
  Index rows = 1, steps = 1, positions = 0;
};

/// Returns the target of the calls of a form, whose rows are packed if it has positions.
template <class Form>
Target target_of_form(const Form& form, const Execution& execution) {
  Target target;
  target.device = execution.device;
  target.dtype = form.dtype;
  target.rows = form.rows;
  target.steps = form.steps;
  if constexpr (requires { form.positions; }) target.packed = form.positions;
  target.flags = form.flags;
  target.execution = execution;
  return target;
}

/// `stores_bf16`: on a CPU, too, though it computes in float.
void check_dtype(DType dtype, Device device, bool stores_bf16 = false);
void check_extent(const FormExtent& extent, bool lengths);
void check_alignment(int alignment, DType dtype);

// Checks of calls. Each throws Error(invalid_argument) naming the argument.
void require_device(const Context& context, Device device);
void require_batch(const Batch& batch, const FormExtent& extent, bool lengths, bool reset, Device device);
/// A sequence [B, T, C], packed [positions, C], with channels side by side.
void require_sequence(const char* name, const Tensor& tensor, const FormExtent& extent, Index channels);

}  // namespace penstock::ops
