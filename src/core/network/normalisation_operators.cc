// Operators that scale rows by what they hold, or channels by constants.

#include <algorithm>
#include <cmath>
#include <tuple>

#include "network/preparation.h"
#include "network/rows.h"

namespace penstock::network {

namespace {

/// Rows that were copied go back by the same loop.
float* rows_to(const Step& step, const Memory& memory) {
  return step.loops.empty() ? step.result(0, memory) : step.spare(memory);
}

void put_back(const Step& step, const Memory& memory) {
  if (step.loops.empty()) return;
  const StridedLoop& loop = step.loops[0];
  const float* from = step.spare(memory);
  float* to = step.result(0, memory);
  loop.rows([&](const StridedLoop::Strides& at) {
    for (Index i = 0; i < loop.inner(); ++i) {
      to[at[1] + i * loop.inner_stride(1)] = from[at[0] + i * loop.inner_stride(0)];
    }
  });
}

enum class Share : int { softmax, log_softmax, hardmax };

void run_softmax(const Step& step, const Memory& memory) {
  const auto* x = reinterpret_cast<const float*>(rows_of(step, memory));
  float* y = rows_to(step, memory);
  const Index n = step.n[1];
  const Kernels& kernels = memory.kernels;
  for (Index row = 0; row < step.n[0]; ++row, x += n, y += n) {
    const float largest = kernels.reduce(Reduction::maximum, n, x);
    if (static_cast<Share>(step.variant) == Share::softmax) {
      const float sum = kernels.exponentials(n, largest, x, y);
      kernels.unary(Unary::affine, n, y, y, 1 / sum, 0);
    } else if (static_cast<Share>(step.variant) == Share::log_softmax) {
      const float sum = kernels.exponentials(n, largest, x, nullptr);
      kernels.unary(Unary::affine, n, x, y, 1, -largest);
      kernels.unary(Unary::affine, n, y, y, 1, -std::log(sum));
    } else {
      const Index first = std::find(x, x + n, largest) - x;
      for (Index i = 0; i < n; ++i) y[i] = i == first ? 1.0f : 0.0f;
    }
  }
  put_back(step, memory);
}

Status prepare_softmax(Preparation& p) {
  PENSTOCK_TRY(p.only(0, {Type::f32}));
  Index axis = 0;
  PENSTOCK_TRY(p.axis(-1, p.rank(0), axis));
  PENSTOCK_TRY(p.write(0, Type::f32, p.shape(0)));
  p.run(&run_softmax).variant = p.variant();
  lay_in_rows(p, {axis});
  if (p.step.loops.empty()) p.in_place(0);
  return {};
}

/// A scale and a shift of the elements of a row, or of blocks of them.
void scale_row(const Step& step, const Memory& memory, Index row, float* y) {
  const auto [columns, block, period] = std::tuple(step.n[1], step.n[2], step.n[3]);
  for (const std::size_t i : {1, 2}) {
    if (step.reads.size() <= i || step.n[3 + i] == 0) continue;
    const Binary op = i == 1 ? Binary::multiply : Binary::add;
    for (Index begin = 0; begin < columns; begin += block) {
      const Index at = block == columns && period == 0 ? 0 : (row * (columns / block) + begin / block) % period;
      memory.kernels.binary(op, block, y + begin, 1, step.floats(i, memory) + at, period == 0 ? 1 : 0, y + begin);
    }
  }
}

/// n: rows, columns, elements with the same scale, their period (0: one scale for each element of a row), 1 if there is
/// a scale, 1 if there is a shift; f: epsilon. variant: 1 without the mean.
void run_normalisation(const Step& step, const Memory& memory) {
  const float* x = step.floats(0, memory);
  float* y = step.result(0, memory);
  const Index n = step.n[1];
  for (Index row = 0; row < step.n[0]; ++row, x += n, y += n) {
    memory.kernels.normalise(n, step.variant == 0, step.f[0], x, y);
    scale_row(step, memory, row, y);
  }
}

Status prepare_normalisation(Preparation& p, Index rows, Index block, Index period) {
  PENSTOCK_TRY(p.write(0, Type::f32, p.shape(0)));
  Step& step = p.run(&run_normalisation);
  const Index columns = rows == 0 ? 0 : p.count(0) / rows;
  step.n = {rows, columns, period == 0 ? columns : block, period, p.has(1), p.has(2)};
  step.f = {p.number("epsilon", 1e-5f)};
  step.variant = p.variant();
  p.in_place(0);
  return {};
}

Status floats_only(const Preparation& p) {
  for (std::size_t i = 0; i < p.reads(); ++i) {
    if (p.has(i)) PENSTOCK_TRY(p.only(i, {Type::f32}));
  }
  return {};
}

/// LayerNormalization, and RMSNormalization (variant 1).
Status prepare_layer_norm(Preparation& p) {
  PENSTOCK_TRY(floats_only(p));
  Index axis = 0;
  PENSTOCK_TRY(p.axis(-1, p.rank(0), axis));
  const Shape inner(p.shape(0).begin() + axis, p.shape(0).end());
  for (std::size_t i = 1; i < p.reads(); ++i) {
    if (p.has(i) && p.count(i) != elements(inner)) {
      return p.unsupported("a scale or shift of shape " + text_of(p.shape(i)) + "; supported: " + text_of(inner));
    }
  }
  return prepare_normalisation(p, elements(p.shape(0), 0, axis), 0, 0);
}

Status prepare_instance_norm(Preparation& p) {
  PENSTOCK_TRY(floats_only(p));
  if (p.rank(0) < 2) return p.refuse("an input of shape " + text_of(p.shape(0)) + " has no channels");
  const Index channels = p.shape(0)[1], size = elements(p.shape(0), 2);
  const Index groups = p.variant() == 0 && p.node().op == "GroupNormalization" ? p.integer("num_groups", 0) : channels;
  if (p.count(1) != channels || p.count(2) != channels || groups < 1 || channels % groups != 0) {
    return p.refuse("its scale, its shift and its groups do not fit " + text_of(channels) + " channels");
  }
  return prepare_normalisation(p, p.shape(0)[0] * groups, size, channels);
}

/// n: images, channels, elements of a channel; packed: gain, then shift.
void run_channels(const Step& step, const Memory& memory) {
  const float* x = step.floats(0, memory);
  float* y = step.result(0, memory);
  const Index size = step.n[2];
  for (Index image = 0; image < step.n[0]; ++image) {
    for (Index channel = 0; channel < step.n[1]; ++channel, x += size, y += size) {
      const float *gain = step.packed.data() + channel, *shift = gain + step.n[1];
      memory.kernels.unary(Unary::affine, size, x, y, *gain, *shift);
    }
  }
}

Status prepare_batch_norm(Preparation& p) {
  PENSTOCK_TRY(floats_only(p));
  const Index channels = p.rank(0) < 2 ? 1 : p.shape(0)[1];
  for (std::size_t i = 1; i < 5; ++i) {
    if (p.count(i) != channels)
      return p.refuse("input " + text_of(static_cast<Index>(i) + 1) + " does not fit " + text_of(channels) +
                      " channels");
    if (p.known(i) == nullptr)
      return p.unsupported("its scale and statistics depend on the inputs; supported: constants");
  }
  PENSTOCK_TRY(p.write(0, Type::f32, p.shape(0)));
  Step& step = p.run(&run_channels);
  step.n = {p.rank(0) == 0 ? 1 : p.shape(0)[0], channels, elements(p.shape(0), 2)};
  Weights::Floats& packed = step.packed.own();
  packed.resize(static_cast<std::size_t>(2 * channels));
  for (Index i = 0; i < channels; ++i) {
    const double gain =
        p.known_floats(1)[i] / std::sqrt(static_cast<double>(p.known_floats(4)[i]) + p.number("epsilon", 1e-5f));
    packed[i] = static_cast<float>(gain);
    packed[channels + i] = static_cast<float>(p.known_floats(2)[i] - gain * p.known_floats(3)[i]);
  }
  step.scales_channels = true;
  p.in_place(0);
  return {};
}

/// f: the norm's power. n: rows, columns.
void run_norm(const Step& step, const Memory& memory) {
  const auto* x = reinterpret_cast<const float*>(rows_of(step, memory));
  float* y = rows_to(step, memory);
  const Index n = step.n[1];
  for (Index row = 0; row < step.n[0]; ++row, x += n, y += n) {
    const float norm = step.variant == 1 ? memory.kernels.reduce(Reduction::absolutes, n, x)
                                         : std::sqrt(memory.kernels.reduce(Reduction::squares, n, x));
    memory.kernels.unary(Unary::affine, n, x, y, norm == 0 ? 0 : 1 / norm, 0);
  }
  put_back(step, memory);
}

Status prepare_norm(Preparation& p) {
  PENSTOCK_TRY(p.only(0, {Type::f32}));
  Index axis = 0;
  PENSTOCK_TRY(p.axis(-1, p.rank(0), axis));
  const Index power = p.integer("p", 2);
  if (power != 1 && power != 2) return p.refuse("'p' is " + text_of(power) + ", not 1 or 2");
  PENSTOCK_TRY(p.write(0, Type::f32, p.shape(0)));
  p.run(&run_norm).variant = static_cast<int>(power);
  lay_in_rows(p, {axis});
  return {};
}

/// n: rows, columns. Of all places of a map.
void run_global_pool(const Step& step, const Memory& memory) {
  const Reduction op = step.variant != 0 ? Reduction::maximum : Reduction::sum;
  for (Index row = 0; row < step.n[0]; ++row) {
    const float all = memory.kernels.reduce(op, step.n[1], step.floats(0, memory) + row * step.n[1]);
    step.result(0, memory)[row] = step.variant != 0 ? all : all / static_cast<float>(step.n[1]);
  }
}

Status prepare_global_pool(Preparation& p) {
  PENSTOCK_TRY(p.only(0, {Type::f32}));
  if (p.rank(0) < 2) return p.refuse("an input of shape " + text_of(p.shape(0)) + " has no channels");
  Shape shape = p.shape(0);
  std::fill(shape.begin() + 2, shape.end(), 1);
  PENSTOCK_TRY(p.write(0, Type::f32, shape));
  p.run(&run_global_pool).n = {shape[0] * shape[1], elements(p.shape(0), 2)};
  p.step.variant = p.variant();
  return {};
}

}  // namespace

Operators normalisation_operators() {
  static constexpr Operator operators[] = {
      {"Softmax", prepare_softmax, 1, 1, static_cast<int>(Share::softmax)},
      {"LogSoftmax", prepare_softmax, 1, 1, static_cast<int>(Share::log_softmax)},
      {"Hardmax", prepare_softmax, 1, 1, static_cast<int>(Share::hardmax)},
      {"LayerNormalization", prepare_layer_norm, 2, 3, 0},
      {"RMSNormalization", prepare_layer_norm, 2, 2, 1},
      {"InstanceNormalization", prepare_instance_norm, 3, 3},
      {"GroupNormalization", prepare_instance_norm, 3, 3},
      {"BatchNormalization", prepare_batch_norm, 5, 5},
      {"LpNormalization", prepare_norm, 1, 1},
      {"GlobalAveragePool", prepare_global_pool, 1, 1, 0},
      {"GlobalMaxPool", prepare_global_pool, 1, 1, 1},
  };
  return operators;
}

}  // namespace penstock::network
