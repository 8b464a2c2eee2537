// Numbers as eight bits, and back.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "network/preparation.h"
#include "network/quantize.h"

namespace penstock::network {

namespace {

/// y [n] = x as bytes.
void quantise(const Kernels& kernels, const ByteRange& range, bool has_sign, Index n, const float* x, std::byte* y) {
  constexpr Index most = 256;
  const float low = has_sign ? -128.0f : 0.0f;
  float levels[most];
  for (Index begin = 0; begin < n; begin += most, y += most) {
    const Index count = std::min(most, n - begin);
    round_to_levels(kernels, range, low, low + 255.0f, count, x + begin, levels);
    for (Index i = 0; i < count; ++i) y[i] = static_cast<std::byte>(static_cast<int>(levels[i] + range.zero));
  }
}

/// n: elements.
void run_dynamic(const Step& step, const Memory& memory) {
  const ByteRange range = byte_range(memory.kernels, step.n[0], step.floats(0, memory));
  quantise(memory.kernels, range, false, step.n[0], step.floats(0, memory), step.write(0, memory));
  *step.result(1, memory) = range.scale;
  set_real(Type::u8, step.write(2, memory), 0, static_cast<double>(range.zero));
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
  const bool back = step.variant != 0;
  const Type type = back ? step.read_type(0) : step.write_type(0);
  const auto size = static_cast<Index>(size_of(type)), count = step.n[1];
  const Kernels& kernels = memory.kernels;
  for (Index begin = 0; begin < step.n[0]; begin += count) {
    const Index at = begin / count % step.n[2];
    const double zero = step.n[3] != 0 ? real_at(step.read_type(2), step.read(2, memory), at) : 0.0;
    const ByteRange range{step.floats(1, memory)[at], static_cast<float>(zero)};
    if (back) {
      float* const y = step.result(0, memory) + begin;
      convert(type, step.read(0, memory) + begin * size, Type::f32, reinterpret_cast<std::byte*>(y), count);
      kernels.binary(Binary::subtract, count, y, 1, &range.zero, 0, y);
      kernels.binary(Binary::multiply, count, y, 1, &range.scale, 0, y);
    } else {
      quantise(kernels, range, type == Type::i8, count, step.floats(0, memory) + begin,
               step.write(0, memory) + begin * size);
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
  Index inner = p.count(0), extent = 1;
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

ByteRange byte_range(const Kernels& kernels, Index n, const float* x) {
  const float low = std::min(0.0f, kernels.reduce(Reduction::minimum, n, x));
  const float high = std::max(0.0f, kernels.reduce(Reduction::maximum, n, x));
  const float scale = high > low ? (high - low) / 255.0f : 1.0f;
  const float zero = std::nearbyint(-low / scale);
  return {scale, zero >= 0 ? std::min(zero, 255.0f) : 0.0f};  // NaN where the range is infinite
}

void round_to_levels(const Kernels& kernels, const ByteRange& range, float low, float high, Index n, const float* x,
                     float* levels) {
  kernels.binary(Binary::divide, n, x, 1, &range.scale, 0, levels);
  kernels.unary(Unary::round, n, levels, levels, 0, 0);
  for (Index i = 0; i < n; ++i) {
    const float level = levels[i] == levels[i] ? levels[i] : 0.0f;
    levels[i] = std::clamp(level, low - range.zero, high - range.zero);
  }
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
