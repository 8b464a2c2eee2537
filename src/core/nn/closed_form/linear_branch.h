#pragma once

#include "penstock/closed_form_branch.h"
#include "penstock/description/series.h"
#include "penstock/model.h"

namespace penstock::nn {

/// A linear forecast from the last rows (forecast/linear/autoregression.h) and the effects of known later rows
/// (forecast/linear/covariates.h). It is added to the last values, which ModelSpec::from_last adds.
class LinearBranch final : public ClosedFormBranch {
 public:
  using ClosedFormBranch::ClosedFormBranch;

  static constexpr Index most_lags = 65536;

  bool precedes_layers() const override { return true; }
  Index past_rows() const override { return fields().lags; }
  void check(const ModelSpec& spec, const DataDescription& data) const override;
  double parameter_count(const DataDescription& data) const override;
  void add_to(GraphBuilder& builder, const DataDescription& data, graph::ValueId outputs) const override;
};

/// Sets the linear forecast of a model with a branch for as many lags.
void set_linear(Model::Impl& model, const Autoregression& linear);

}  // namespace penstock::nn
