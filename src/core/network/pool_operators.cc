// MaxPool and AveragePool: rows are joined first, then the columns of the joined row.

#include <algorithm>
#include <cmath>

#include "network/preparation.h"
#include "network/window.h"

namespace penstock::network {

namespace {

struct Pool {
  Windows windows;
  bool averages = false, counts_padding = false;
};

/// The part of a window that the input has.
void there(const Window& w, Index result, Index& begin, Index& end) {
  const Index first = result * w.stride - w.before;
  begin = first < 0 ? (-first + w.dilation - 1) / w.dilation : 0;
  end = std::clamp<Index>((w.in - first + w.dilation - 1) / w.dilation, begin, std::max(begin, w.size));
}

/// Places of a window that padding has, but nothing behind it.
Index counted(const Window& w, Index result) {
  const Index first = result * w.stride, rest = w.in + w.before + w.after - first;
  return std::clamp<Index>((rest + w.dilation - 1) / w.dilation, 0, w.size);
}

/// Pools the columns of x to a row of results. For place k of the window, results [begin, end) have a column. `spare`
/// [out] takes columns that do not lie side by side.
void pool_row(const Pool& pool, const Kernels& kernels, const float* x, float* spare, float* y) {
  const Window& w = pool.windows.w;
  const Binary join = pool.averages ? Binary::add : Binary::maximum;
  std::fill_n(y, w.out, pool.averages ? 0.0f : -HUGE_VALF);
  for (Index k = 0; k < w.size; ++k) {
    const Index shift = k * w.dilation - w.before;  // column c reads element c * stride + shift
    const Index begin = shift < 0 ? std::min(w.out, (w.stride - 1 - shift) / w.stride) : 0;
    const Index end = std::clamp<Index>((w.in - shift + w.stride - 1) / w.stride, begin, w.out);
    if (begin == end) continue;
    const float* from = x + begin * w.stride + shift;
    if (w.stride != 1) {
      for (Index c = 0; c < end - begin; ++c) spare[c] = from[c * w.stride];
      from = spare;
    }
    kernels.binary(join, end - begin, y + begin, 1, from, 1, y + begin);
  }
}

void run_pool(const Step& step, const Memory& memory) {
  const auto& pool = *static_cast<const Pool*>(step.plan.get());
  const Window &h = pool.windows.h, &w = pool.windows.w;
  const Binary join = pool.averages ? Binary::add : Binary::maximum;
  const float* x = step.floats(0, memory);
  float *joined = step.spare(memory), *y = step.result(0, memory);
  for (Index map = 0; map < step.n[0]; ++map, x += h.in * w.in) {
    for (Index row = 0; row < h.out; ++row, y += w.out) {
      Index top = 0, bottom = 0;
      there(h, row, top, bottom);
      std::fill_n(joined, w.in, pool.averages ? 0.0f : -HUGE_VALF);
      for (Index i = top; i < bottom; ++i) {
        const float* from = x + (row * h.stride - h.before + i * h.dilation) * w.in;
        memory.kernels.binary(join, w.in, joined, 1, from, 1, joined);
      }
      pool_row(pool, memory.kernels, joined, joined + w.in, y);
      for (Index column = 0; pool.averages && column < w.out; ++column) {
        Index left = 0, right = 0;
        there(w, column, left, right);
        const Index all = pool.counts_padding ? counted(h, row) * counted(w, column) : (bottom - top) * (right - left);
        y[column] /= static_cast<float>(all);
      }
    }
  }
}

Status prepare_pool(Preparation& p) {
  PENSTOCK_TRY(p.only(0, {Type::f32}));
  const auto pool = std::make_shared<Pool>();
  PENSTOCK_TRY(read_windows(p, {}, pool->windows));
  pool->averages = p.variant() != 0;
  pool->counts_padding = p.integer("count_include_pad", 0) != 0;
  Shape shape = p.shape(0);
  shape.back() = pool->windows.w.out;
  if (p.rank(0) == 4) shape[2] = pool->windows.h.out;
  PENSTOCK_TRY(p.write(0, Type::f32, shape));
  const auto spare = static_cast<std::size_t>(pool->windows.w.in + pool->windows.w.out);
  p.run(&run_pool, spare * sizeof(float)).n = {shape[0] * shape[1]};
  p.step.plan = pool;
  return {};
}

}  // namespace

Operators pool_operators() {
  static constexpr Operator operators[] = {
      {"MaxPool", prepare_pool, 1, 1, 0},
      {"AveragePool", prepare_pool, 1, 1, 1},
  };
  return operators;
}

}  // namespace penstock::network
