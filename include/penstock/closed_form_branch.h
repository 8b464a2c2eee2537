#pragma once

#include <memory>

#include "penstock/types.h"

/// Parts of a model that are fitted and not trained.
namespace penstock {

struct DataDescription;
struct ModelSpec;
namespace graph {
struct ValueId;
}
namespace nn {
class GraphBuilder;
}

/// Fields of closed-form branches under their names in model files, `--json` and Python. A branch of one kind leaves
/// those of the other kinds 0.
struct ClosedFormBranchFields {
  /// Linear forecast: past rows that it reads, 1 to 65536. Requires ModelSpec::from_last.
  Index lags = 0;
  /// Linear forecast: includes the effects of columns that are known in advance (Autoregression::effects). Requires
  /// data that read later rows.
  bool known_effects = false;
  /// Filters: number of convolution filters for each of `dilations` dilations; even. Half of them read values and half
  /// differences. A classifier reads their means over the sequence. Requires labelled sequences of numbers.
  Index filters = 0;
  /// Filters: number of dilations, 1 to 7: 1, 2, 4, ... steps.
  Index dilations = 0;
};

/// A part of a model in parallel to its layers, whose parameters are fitted in closed form or drawn at random: a linear
/// forecast, or convolution filters with a classifier. Its outputs are added to those of the layers.
class ClosedFormBranch {
 public:
  explicit ClosedFormBranch(const ClosedFormBranchFields& fields) : fields_(fields) {}
  virtual ~ClosedFormBranch() = default;

  const ClosedFormBranchFields& fields() const { return fields_; }
  /// Returns whether the branch is fitted before the layers, which are trained to correct it. Otherwise it is fitted
  /// after their training, and may be the whole model.
  virtual bool precedes_layers() const = 0;
  /// Returns the number of past rows that an output depends on; 0: all of them.
  virtual Index past_rows() const = 0;

  /// Internal. Throws Error(invalid_argument) that names a field that is impossible for the model.
  virtual void check(const ModelSpec& spec, const DataDescription& data) const = 0;
  /// Internal. Returns the number of parameters. In double, because a file may claim anything.
  virtual double parameter_count(const DataDescription& data) const = 0;
  /// Internal. Adds the parameters and nodes of the branch, whose outputs are added to `outputs` [B, T, O] in the type
  /// of parameters.
  virtual void add_to(nn::GraphBuilder& builder, const DataDescription& data, graph::ValueId outputs) const = 0;

 private:
  ClosedFormBranchFields fields_;
};

/// Returns a branch with these fields; null if all are 0. Model checks them.
std::shared_ptr<const ClosedFormBranch> closed_form_branch(const ClosedFormBranchFields& fields);

}  // namespace penstock
