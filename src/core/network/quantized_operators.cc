// Numbers as eight bits, and back.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "network/preparation.h"
#include "network/quantize.h"
#include "network/transpose.h"

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

enum Dynamic : int { kAll, kRange, kBytes, kLevels };

/// n: blocks of all rows, rows, elements of a row in a block. Writes scale and zero point of each row, the last
/// results.
void find_byte_ranges(const Step& step, const Memory& memory) {
  const std::size_t zero = kIsRuntime ? 2 : step.writes.size() - 1;
  const Index rows = kIsRuntime ? 1 : step.n[1], n = step.n[2];
  for (Index row = 0; row < rows; ++row) {
    const ByteRange range = byte_range(memory.kernels, n, step.floats(0, memory) + row * n, step.n[0], rows * n);
    step.result(zero - 1, memory)[row] = range.scale;
    set_real(Type::u8, step.write(zero, memory), row, static_cast<double>(range.zero));
  }
}

/// The same n. Writes rows with such ranges as bytes, or as `levels` without the zero point.
void write_rounded(const Step& step, const Memory& memory, const float* scale, const std::byte* zero, bool levels) {
  const Index rows = kIsRuntime ? 1 : step.n[1], blocks = kIsRuntime ? 1 : step.n[0], n = step.n[2];
  for (Index at = 0; at < blocks * rows; ++at) {
    const Index row = at % rows;
    const ByteRange range{scale[row], static_cast<float>(real_at(Type::u8, zero, row))};
    const float* const x = step.floats(0, memory) + at * n;
    if (!kIsRuntime && levels) {
      round_to_levels(memory.kernels, range, 0, 255, n, x, step.result(0, memory) + at * n);
    } else {
      quantise(memory.kernels, range, false, n, x, step.write(0, memory) + at * n);
    }
  }
}

void run_dynamic(const Step& step, const Memory& memory) {
  find_byte_ranges(step, memory);
  write_rounded(step, memory, step.result(1, memory), step.write(2, memory), false);
}

void run_rounded(const Step& step, const Memory& memory) {
  write_rounded(step, memory, step.floats(1, memory), step.read(2, memory), step.variant == kLevels);
}

/// DynamicQuantizeLinear, or one of the steps that the builder makes of it: ranges; bytes, or levels without the zero
/// point, of x and its ranges. With the attribute "rows", each position of this axis has a range.
Status prepare_dynamic(Preparation& p) {
  const auto part = static_cast<Dynamic>(kIsRuntime ? kAll : p.variant());
  PENSTOCK_TRY(p.only(0, {Type::f32}));
  if (part == kAll && p.writes() != 3) return p.refuse("it must have three outputs");
  Shape ranges;
  Index blocks = 1, rows = 1;
  if (const Index axis = kIsRuntime ? -1 : p.integer("rows", -1); axis >= 0 && axis < p.rank(0)) {
    ranges.assign(p.shape(0).size(), 1);
    rows = ranges[axis] = p.shape(0)[axis];
    blocks = elements(p.shape(0), 0, static_cast<std::size_t>(axis));
  }
  std::size_t written = 0;
  if (part != kRange) PENSTOCK_TRY(p.write(written++, part == kLevels ? Type::f32 : Type::u8, p.shape(0)));
  if (part == kAll || part == kRange) {
    PENSTOCK_TRY(p.write(written++, Type::f32, ranges));
    PENSTOCK_TRY(p.write(written++, Type::u8, ranges));
  }
  p.run(kIsRuntime || part == kAll ? &run_dynamic : part == kRange ? &find_byte_ranges : &run_rounded);
  p.step.n = {blocks, rows, p.count(0) / std::max<Index>(blocks * rows, 1)};
  p.step.variant = part;
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

ByteRange byte_range(const Kernels& kernels, Index n, const float* x, Index blocks, Index stride) {
  float low = 0, high = 0;
  const Index most = kIsRuntime ? n : 4096;  // which the first cache holds for both reductions
  if (kIsRuntime) blocks = 1;
  for (Index block = 0; block < blocks; ++block, x += stride) {
    for (Index begin = 0; begin < n; begin += most) {
      const Index count = std::min(most, n - begin);
      low = std::min(low, kernels.reduce(Reduction::minimum, count, x + begin));
      high = std::max(high, kernels.reduce(Reduction::maximum, count, x + begin));
    }
  }
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
    {"DynamicQuantizeLinear", prepare_dynamic, 1, 1, kAll},
#if !PENSTOCK_RUNTIME
    {"RowDynamicQuantizeLinear", prepare_dynamic, 1, 1, kAll},  // of give_row_ranges()
#endif
    {"QuantizeLinear", prepare_linear_scale, 2, 3, 0},
    {"DequantizeLinear", prepare_linear_scale, 2, 3, 1},
  };
  return operators;
}

#if !PENSTOCK_RUNTIME
Operators dynamic_operators() {
  static constexpr Operator operators[] = {
      {"DynamicRange", prepare_dynamic, 1, 1, kRange},
      {"DynamicBytes", prepare_dynamic, 3, 3, kBytes},
      {"DynamicLevels", prepare_dynamic, 3, 3, kLevels},
  };
  return operators;
}
#endif

}  // namespace penstock::network
