// Numbers as eight bits, and back.

#include <algorithm>
#include <cmath>

#include "network/preparation.h"
#include "network/quantize.h"

namespace penstock::network {

namespace {

double lowest(Type type) { return type == Type::u8 ? 0 : type == Type::i8 ? -128 : -2147483648.0; }
double highest(Type type) { return type == Type::u8 ? 255 : type == Type::i8 ? 127 : 2147483647.0; }

double quantised(Type type, float x, float scale, double zero) {
  const double rounded = std::nearbyint(static_cast<double>(x / scale)) + zero;
  return std::clamp(rounded == rounded ? rounded : zero, lowest(type), highest(type));
}

struct Range {
  float scale;
  double zero;
};

Range range_of(const Kernels& kernels, Index n, const float* x) {
  const float low = std::min(0.0f, kernels.reduce(Reduction::minimum, n, x));
  const float high = std::max(0.0f, kernels.reduce(Reduction::maximum, n, x));
  const float scale = high > low ? (high - low) / 255.0f : 1.0f;
  return {scale, static_cast<double>(std::clamp(std::nearbyint(-low / scale), 0.0f, 255.0f))};
}

/// n: elements.
void run_dynamic(const Step& step, const Memory& memory) {
  const float* x = step.floats(0, memory);
  const Index n = step.n[0];
  const auto [scale, zero] = range_of(memory.kernels, n, x);
  for (Index i = 0; i < n; ++i) set_real(Type::u8, step.write(0, memory), i, quantised(Type::u8, x[i], scale, zero));
  set_real(Type::f32, step.write(1, memory), 0, static_cast<double>(scale));
  set_real(Type::u8, step.write(2, memory), 0, zero);
}

Status prepare_dynamic(Preparation& p) {
  PENSTOCK_TRY(p.only(0, {Type::f32}));
  if (p.writes() != 3) return p.refuse("it must have three outputs");
  PENSTOCK_TRY(p.write(0, Type::u8, p.shape(0)));
  PENSTOCK_TRY(p.write(1, Type::f32, {}));
  PENSTOCK_TRY(p.write(2, Type::u8, {}));
  p.run(&run_dynamic).n = {p.count(0)};
  return {};
}

/// n: elements, elements behind the axis, its extent (1: one scale for all), 1 if there is a zero point.
void run_linear_scale(const Step& step, const Memory& memory) {
  const Type from = step.read_type(0), to = step.write_type(0);
  const std::byte* x = step.read(0, memory);
  const auto zero_at = [&](Index at) {
    return step.n[3] != 0 ? real_at(step.read_type(2), step.read(2, memory), at) : 0.0;
  };
  for (Index i = 0; i < step.n[0]; ++i) {
    const Index at = i / step.n[1] % step.n[2];
    const float scale = step.floats(1, memory)[at];
    if (step.variant == 0) {
      set_real(to, step.write(0, memory), i, quantised(to, step.floats(0, memory)[i], scale, zero_at(at)));
    } else {
      step.result(0, memory)[i] = static_cast<float>(real_at(from, x, i) - zero_at(at)) * scale;
    }
  }
}

/// QuantizeLinear, and DequantizeLinear (variant 1).
Status prepare_linear_scale(Preparation& p) {
  const bool back = p.variant() != 0;
  if (back) {
    PENSTOCK_TRY(p.only(0, {Type::u8, Type::i8, Type::i32}));
  } else {
    PENSTOCK_TRY(p.only(0, {Type::f32}));
  }
  PENSTOCK_TRY(p.only(1, {Type::f32}));
  if (p.integer("block_size", 0) != 0) return p.unsupported("'block_size': scales of blocks");
  Index inner = 1, extent = 1;
  if (p.count(1) != 1) {
    Index axis = 0;
    PENSTOCK_TRY(p.axis(1, p.rank(0), axis));
    extent = p.shape(0)[axis], inner = elements(p.shape(0), axis + 1);
  }
  if (p.count(1) != extent || p.rank(1) > 1 || (p.has(2) && p.count(2) != p.count(1))) {
    return p.refuse("its scale and zero point do not fit the input of shape " + text_of(p.shape(0)));
  }
  const Index number = p.integer("output_dtype", 0);
  Type type = p.has(2) ? p.type(2) : number == 3 ? Type::i8 : Type::u8;
  if (back) type = Type::f32;
  if (!back && type != Type::u8 && type != Type::i8) return p.unsupported("to other types than int8 and uint8");
  PENSTOCK_TRY(p.write(0, type, p.shape(0)));
  p.run(&run_linear_scale).n = {p.count(0), std::max<Index>(inner, 1), std::max<Index>(extent, 1), p.has(2)};
  p.step.variant = p.variant();
  return {};
}

}  // namespace

void round_to_bytes(const Kernels& kernels, Index n, const float* x, float* y) {
  const auto [scale, zero] = range_of(kernels, n, x);
  for (Index i = 0; i < n; ++i) y[i] = static_cast<float>(quantised(Type::u8, x[i], scale, zero) - zero) * scale;
}

Operators quantized_operators() {
  static constexpr Operator operators[] = {
      {"DynamicQuantizeLinear", prepare_dynamic, 1, 1},
      {"QuantizeLinear", prepare_linear_scale, 2, 3, 0},
      {"DequantizeLinear", prepare_linear_scale, 2, 3, 1},
  };
  return operators;
}

}  // namespace penstock::network
