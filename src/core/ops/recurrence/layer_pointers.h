#pragma once

// The operands of a layer's run on a CPU under their names. Private to src/core/ops.

#include "ops/recurrence/recurrence.h"
#include "ops/scan/stored_view.h"

namespace penstock::ops {

/// A run as the engines see it: the form of the layer, whose strides are with_strides(), and its operands. Nothing is
/// copied; absent operands are null. Shapes as in recurrence.h.
struct LayerPointers {
  const Recurrence& form;
  void* const* operands;

 protected:
  template <class Value>
  Value* get(int i) const {
    return static_cast<Value*>(operands[i]);
  }
  template <class Value>
  StoredView<Value> sequence(int i, bool is_bf16, const SequenceStrides& strides) const {
    StoredView<Value> view{{is_bf16 ? nullptr : get<Value>(i), strides.row, strides.step}};
    if (is_bf16) view.bf16 = get<cpu::Bf16Of<Value>>(i);
    return view;
  }
  /// The states but h after each step, or gradients of them.
  template <class Value>
  SequenceView<Value> other_states(int i) const {
    if (!form.every_state) return {};
    return {get<Value>(i), form.state_strides.row, form.state_strides.step};
  }
};

template <class Real>
struct ForwardPointers : LayerPointers {
  using Of = ForwardOperand;

  StoredView<const Real> x() const { return sequence<const Real>(Of::x, form.bf16_x, form.x_strides); }
  StoredView<Real> y() const { return sequence<Real>(Of::y, form.bf16_y, form.y_strides); }
  const Real* state_in() const { return get<const Real>(Of::state_in); }
  Real* state_out() const { return get<Real>(Of::state_out); }
  const Real* weight_ih() const { return get<const Real>(Of::weight_ih); }
  const Real* weight_hh() const { return get<const Real>(Of::weight_hh); }
  const Real* bias_ih() const { return get<const Real>(Of::bias_ih); }
  const Real* bias_hh() const { return get<const Real>(Of::bias_hh); }
  const Real* panels() const { return get<const Real>(Of::panels); }
  Real* tape() const { return get<Real>(Of::tape); }
  SequenceView<Real> every_state() const { return other_states<Real>(Of::states); }
};

template <class Real>
struct BackwardPointers : LayerPointers {
  using Of = BackwardOperand;

  StoredView<const Real> x() const { return sequence<const Real>(Of::x, form.bf16_x, form.x_strides); }
  StoredView<const Real> y() const { return sequence<const Real>(Of::y, form.bf16_y, form.y_strides); }
  StoredView<const Real> dy() const { return sequence<const Real>(Of::dy, form.bf16_y, form.dy_strides); }
  const Real* state_in() const { return get<const Real>(Of::state_in); }
  const Real* bias_ih() const { return get<const Real>(Of::bias_ih); }
  const Real* panels() const { return get<const Real>(Of::panels); }
  const Real* tape() const { return get<const Real>(Of::tape); }
  const Real* dstate_out() const { return get<const Real>(Of::dstate_out); }
  SequenceView<const Real> dstates() const { return other_states<const Real>(Of::dstates); }
  Real* dweight_ih() const { return get<Real>(Of::dweight_ih); }
  Real* dweight_hh() const { return get<Real>(Of::dweight_hh); }
  Real* dbias_ih() const { return get<Real>(Of::dbias_ih); }
  Real* dbias_hh() const { return get<Real>(Of::dbias_hh); }
  StoredView<Real> dx() const { return sequence<Real>(Of::dx, form.bf16_x, form.dx_strides); }
  Real* dstate_in() const { return get<Real>(Of::dstate_in); }
};

}  // namespace penstock::ops
