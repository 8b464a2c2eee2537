#pragma once

#include <vector>

#include "nn/layer.h"
#include "penstock/data.h"

namespace penstock::nn {

/// Adds to every forecast the value that its column has in the row that was read, so that the layers say the change.
/// They then need not learn to copy a number, nor to reach values that training never saw. Nothing for columns that are
/// no inputs. It has no parameters, and inputs no gradient: there is nothing to do in a backward pass.
class LastValues {
 public:
  explicit LastValues(const DataDescription& data);

  bool empty() const { return columns_.empty(); }

  /// outputs [B, T, horizon, targets] += the rows of features [B, T, I]; both normalised. Neither is touched beyond a
  /// row's length.
  template <class Real>
  void add(const Pass& pass, const Real* features, Real* outputs) const;

 private:
  /// An input that is a target too: normalised as a target it is offset + factor * input.
  struct Shared {
    Index input, target;
    double factor, offset;  // 1 and 0 unless somebody normalised the two differently
  };

  Index inputs_, targets_, horizon_;
  std::vector<Shared> columns_;
};

extern template void LastValues::add(const Pass&, const float*, float*) const;
extern template void LastValues::add(const Pass&, const double*, double*) const;

}  // namespace penstock::nn
