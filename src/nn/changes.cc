#include "nn/changes.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_map>

#include "nn/elementwise.h"

namespace penstock::nn {

Changes::Changes(const DataDescription& data)
    : inputs_(static_cast<Index>(data.inputs.size())),
      targets_(static_cast<Index>(data.targets.size())),
      horizon_(data.horizon),
      // Targets are scaled by their change over the horizon, and that of a random walk grows with the square root of
      // the distance: so are the changes of one row of about unit variance, and the layers see them.
      change_scale_(std::sqrt((static_cast<double>(data.horizon) + 1.0) / 2.0)) {
  std::unordered_map<std::string_view, Index> positions;
  for (Index input = 0; input < inputs_; ++input) positions.try_emplace(data.inputs[input].name, input);
  for (Index target = 0; target < targets_; ++target) {
    const Column& to = data.targets[target];
    const auto found = positions.find(to.name);
    if (found == positions.end()) continue;
    const Column& from = data.inputs[found->second];
    columns_.push_back({found->second, target, from.scale / to.scale, (from.mean - to.mean) / to.scale});
  }
}

template <class Real>
void Changes::read(const Pass& pass, const Real* features, Real* y, Real* state) const {
  const Batch& batch = pass.batch;
  const auto step = [&](Index b, Index t) {
    const Index row = b * batch.steps + t;
    const Real* const x = features + row * inputs_;
    const bool starts = batch.reset && batch.reset[row];
    const Real* const carried = state + b * state_size();
    Real* const levels = y + row * width();
    Real* out = std::copy_n(x, inputs_, levels);
    for (Index i = 0; i < shared(); ++i) {
      const Shared& column = columns_[i];
      const Real value = x[column.input];
      Real before = value;  // nothing known: no change
      if (t > 0 && !starts) before = (x - inputs_)[column.input];
      if (t == 0 && !starts && carried[shared()] != Real(0)) before = carried[i];
      *out++ = static_cast<Real>(change_scale_ * column.factor) * (value - before);
      levels[column.input] = std::tanh(value);
    }
  };
  for_rows(pass.execution, pass.rows(), width(), [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      const Index b = row / batch.steps, t = row % batch.steps;
      if (t < row_length(batch, b)) {
        step(b, t);
      } else {
        // Padding may hold anything, NaN included, which zero gradients would not keep out of the weights.
        std::fill_n(y + row * width(), width(), Real(0));
      }
    }
  });
  for (Index b = 0; b < batch.rows; ++b) {
    const Index length = row_length(batch, b);
    if (length == 0) continue;
    const Real* const last = features + (b * batch.steps + length - 1) * inputs_;
    Real* out = state + b * state_size();
    for (const Shared& column : columns_) *out++ = last[column.input];
    *out = Real(1);
  }
}

template <class Real>
void Changes::add_last(const Pass& pass, const Real* features, Real* outputs) const {
  const Index width = horizon_ * targets_, steps = pass.batch.steps;
  for_rows(pass.execution, pass.rows(), width, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      if (row % steps >= row_length(pass.batch, row / steps)) continue;
      for (const Shared& column : columns_) {
        const double input = static_cast<double>(features[row * inputs_ + column.input]);
        const Real last = static_cast<Real>(column.offset + column.factor * input);
        Real* const y = outputs + row * width + column.target;
        for (Index ahead = 0; ahead < horizon_; ++ahead) y[ahead * targets_] += last;
      }
    }
  });
}

template void Changes::read(const Pass&, const float*, float*, float*) const;
template void Changes::read(const Pass&, const double*, double*, double*) const;
template void Changes::add_last(const Pass&, const float*, float*) const;
template void Changes::add_last(const Pass&, const double*, double*) const;

}  // namespace penstock::nn
