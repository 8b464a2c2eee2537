#pragma once

#include "backend/cpu/kernels.h"
#include "penstock/types.h"

namespace penstock::ops {

/// A sequence as the caller stores it: of Reals or, where `bf16` is there instead of `data`, of bfloat16.
template <class Real>
struct StoredView : SequenceView<Real> {
  cpu::Bf16Of<Real>* bf16 = nullptr;

  explicit operator bool() const { return this->data != nullptr || bf16 != nullptr; }
};

}  // namespace penstock::ops
