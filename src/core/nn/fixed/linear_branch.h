#pragma once

#include "penstock/fixed_branch.h"

namespace penstock::nn {

/// A linear forecast from the last rows (forecast/linear/autoregression.h) and the effects of known later rows
/// (forecast/linear/covariates.h). It is added to the last values, which ModelSpec::from_last adds.
class LinearBranch final : public FixedBranch {
 public:
  using FixedBranch::FixedBranch;

  bool precedes_layers() const override { return true; }
  Index past_rows() const override { return fields().lags; }
  void check(const ModelSpec& spec, const DataDescription& data) const override;
  double parameter_count(const DataDescription& data) const override;
  void add_to(GraphBuilder& builder, const DataDescription& data, graph::ValueId outputs) const override;
};

}  // namespace penstock::nn
