#pragma once

#include <memory>
#include <utility>

#include "base/check.h"
#include "ops/op.h"

namespace penstock::ops {

/// The op on the CPU, where training is in floats.
template <class Run>
std::unique_ptr<Executable> on_cpu(const Target& target, Run run, std::size_t scratch = 0) {
  require(target.dtype == DType::f32, "models are trained in f32 on the CPU, not {}", to_string(target.dtype));
  return simple(std::move(run), scratch);
}

}  // namespace penstock::ops
