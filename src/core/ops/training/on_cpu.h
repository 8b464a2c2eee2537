#pragma once

#include <memory>
#include <type_traits>

#include "base/check.h"
#include "ops/op.h"

namespace penstock::ops {

/// Returns the `prepare` of an op of training: a CPU runs cpu(shape, call, memory) in floats, with `scratch` bytes.
template <class Shape, class Gpu, class Cpu>
auto trained_by(const Shape& shape, Gpu gpu, Cpu cpu,
                std::size_t (*scratch)(const std::type_identity_t<Shape>&, const Target&) = nullptr) {
  return [=](const Target& target) -> std::unique_ptr<Executable> {
    if (target.device.is_cuda()) return gpu(shape, target);
    require(target.dtype == DType::f32, "models are trained in f32 on the CPU, not {}", to_string(target.dtype));
    return simple([=](const Call& call, const Operands& memory) { cpu(shape, call, memory); },
                  scratch == nullptr ? 0 : scratch(shape, target));
  };
}

}  // namespace penstock::ops
