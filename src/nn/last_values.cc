#include "nn/last_values.h"

#include "nn/elementwise.h"

namespace penstock::nn {

LastValues::LastValues(const DataDescription& data)
    : inputs_(static_cast<Index>(data.inputs.size())),
      targets_(static_cast<Index>(data.targets.size())),
      horizon_(data.horizon) {
  for (Index target = 0; target < targets_; ++target) {
    const Column& to = data.targets[target];
    for (Index input = 0; input < inputs_; ++input) {
      const Column& from = data.inputs[input];
      if (from.name != to.name) continue;
      columns_.push_back({input, target, from.scale / to.scale, (from.mean - to.mean) / to.scale});
    }
  }
}

template <class Real>
void LastValues::add(const Pass& pass, const Real* features, Real* outputs) const {
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

template void LastValues::add(const Pass&, const float*, float*) const;
template void LastValues::add(const Pass&, const double*, double*) const;

}  // namespace penstock::nn
