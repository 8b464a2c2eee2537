#include "ops/pointwise/series.h"

#include <algorithm>
#include <cmath>

#include "ops/cuda/ops.h"
#include "ops/pointwise/elementwise.h"

namespace penstock::ops {

namespace {

template <class Real>
void read(const Changes& changes, const Call& call, const Operands& memory) {
  const auto* const features = memory.get<const Real>(ReadChangesOperand::features);
  const auto* const state = memory.get<const Real>(ReadChangesOperand::state_in);
  auto* const y = memory.get<Real>(ReadChangesOperand::y);
  auto* const state_out = memory.get<Real>(ReadChangesOperand::state_out);
  const Batch& batch = call.batch;
  const Index inputs = changes.inputs, width = changes.width(), shared = changes.shared();
  for_positions(call.threads, batch, width, [&](Index r, Index b, Index t) {
    if (t >= row_length(batch, b)) {
      std::fill_n(y + r * width, width, Real(0));
      return;
    }
    const Real* const x = features + r * inputs;
    const bool starts = batch.reset && batch.reset[r];
    const Real* const carried = state + b * changes.state_size();
    Real* const levels = y + r * width;
    Real* out = std::copy_n(x, inputs, levels);
    for (Index i = 0; i < shared; ++i) {
      const Changes::Shared& column = changes.columns[static_cast<std::size_t>(i)];
      const Real value = x[column.input];
      Real before = value;  // nothing known: no change
      if (t > 0 && !starts) before = (x - inputs)[column.input];
      if (t == 0 && !starts && carried[shared] != Real(0)) before = carried[i];
      *out++ = static_cast<Real>(changes.change_scale * column.factor) * (value - before);
      levels[column.input] = std::tanh(value);
    }
  });
  if (state_out == nullptr) return;
  for (Index b = 0; b < batch.rows; ++b) {
    const Index length = row_length(batch, b);
    Real* out = state_out + b * changes.state_size();
    if (length == 0) {
      if (state != state_out) std::copy_n(state + b * changes.state_size(), changes.state_size(), out);
      continue;
    }
    const Real* const last = features + (b * batch.steps + length - 1) * inputs;
    for (const Changes::Shared& column : changes.columns) *out++ = last[column.input];
    *out = Real(1);
  }
}

template <class Real>
void add_last(const Changes& changes, const Call& call, const Operands& memory) {
  const auto* const features = memory.get<const Real>(AddLastValuesOperand::features);
  auto* const outputs = memory.get<Real>(AddLastValuesOperand::outputs);
  const Index width = changes.horizon * changes.targets;
  for_positions(call.threads, call.batch, width, [&](Index r, Index b, Index t) {
    if (t >= row_length(call.batch, b)) return;
    for (const Changes::Shared& column : changes.columns) {
      const double input = static_cast<double>(features[r * changes.inputs + column.input]);
      const Real last = static_cast<Real>(column.offset + column.factor * input);
      Real* const y = outputs + r * width + column.target;
      for (Index ahead = 0; ahead < changes.horizon; ++ahead) y[ahead * changes.targets] += last;
    }
  });
}

template <class Real>
void clear(Index width, const Call& call, const Operands& memory) {
  const auto* const x = memory.get<const Real>(UnaryOperand::x);
  auto* const y = memory.get<Real>(UnaryOperand::y);
  for_positions(call.threads, call.batch, width, [&](Index r, Index b, Index t) {
    if (t < row_length(call.batch, b)) {
      std::copy_n(x + r * width, width, y + r * width);
    } else {
      std::fill_n(y + r * width, width, Real(0));
    }
  });
}

}  // namespace

Op clear_padding(Index width) {
  return {.name = "clear_padding",
          .prepare = prepared_by(width, cuda_clear_padding,
                                 [](auto real, const auto&... given) { clear<decltype(real)>(given...); }),
          .definition = ClearPadding{width}};
}

Op read_changes(const Changes& changes) {
  return {.name = "read_changes",
          .prepare = prepared_by(changes, cuda_read_changes,
                                 [](auto real, const auto&... given) { read<decltype(real)>(given...); }),
          .definition = ReadChanges{changes}};
}

Op add_last_values(const Changes& changes) {
  return {.name = "add_last_values",
          .prepare = prepared_by(changes, cuda_add_last_values,
                                 [](auto real, const auto&... given) { add_last<decltype(real)>(given...); }),
          .definition = AddLastValues{changes}};
}

}  // namespace penstock::ops
