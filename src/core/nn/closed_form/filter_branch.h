#pragma once

#include <string>

#include "base/filter_shape.h"
#include "nn/model/graph_builder.h"
#include "penstock/closed_form_branch.h"

/// A bank of convolution filters in parallel to the layers of a model that labels sequences, after MiniRocket
/// (Dempster, Schmidt and Webb 2021).
///
/// Each filter has nine taps, one dilation and one threshold, which are drawn at random and not trained. A linear
/// classifier reads, for each filter, the mean over the sequence of the part above the threshold. The classifier is
/// applied at each step and its outputs are averaged, which is the same by linearity. A stream then keeps one value for
/// each class.
namespace penstock::nn {

/// Gate logit of the layer that sums over the sequence. The sum forgets a share of 2^-16 at each step and stays finite
/// on an endless stream. The number of steps forgets the same share, so their ratio is still a mean.
constexpr double forgetting_logit = -11.090354888959125;  // ln(2^-16)
/// Value that the counter of steps adds at each step. It keeps the count far above the epsilon of the norm and above
/// the sums that it divides.
constexpr double step_weight = 65536.0;

/// Returns the prefix of a bank's parameter names: "filters.0".
std::string filter_prefix(Index bank);
/// Returns the number of channels that filters read.
Index filter_channels(const DataDescription& data);

/// Outputs of the filters of one bank.
enum class FilterValues {
  sums,        ///< [B, T, 2 * filters of the bank]: filter outputs minus their thresholds, followed by ones
  activations  ///< [B, T, filters of the bank]: the part above the threshold
};

/// Banks of filters and their classifier. A model adds their logits of each class so far.
class FilterBranch final : public ClosedFormBranch {
 public:
  using ClosedFormBranch::ClosedFormBranch;

  /// Returns the number of banks: two for each dilation.
  Index banks() const { return 2 * fields().dilations; }
  Index filters_of_bank() const { return fields().filters / 2; }
  /// Adds the filters of one bank alone and returns their outputs.
  ValueId add_filters(GraphBuilder& builder, const DataDescription& data, Index bank, FilterValues wanted,
                      graph::Home home) const;

  bool precedes_layers() const override { return false; }
  Index past_rows() const override { return 0; }
  void check(const ModelSpec& spec, const DataDescription& data) const override;
  double parameter_count(const DataDescription& data) const override;
  void add_to(GraphBuilder& builder, const DataDescription& data, ValueId outputs) const override;
};

}  // namespace penstock::nn
