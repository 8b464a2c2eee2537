#pragma once

#include <vector>

#include "nn/layer.h"
#include "penstock/data.h"

namespace penstock::nn {

/// A series by its changes. For every column that is an input and a target, the layers read the change from the row
/// before beside the value, and what they say is the change from the row that was read. They then need not learn to
/// copy a number, nor to tell apart values that differ little, nor to reach values that training never saw. The
/// value itself they read as its hyperbolic tangent: one that has grown beyond all of training looks like the largest
/// of those.
///
/// It has no parameters, and inputs no gradient: there is nothing to do in a backward pass. S below is the number of
/// such columns, I that of the inputs.
class Changes {
 public:
  explicit Changes(const DataDescription& data);

  bool empty() const { return columns_.empty(); }
  /// I + S
  Index width() const { return inputs_ + shared(); }
  /// The S values of the row before, and whether there was one: zeros mean the start.
  Index state_size() const { return shared() + 1; }

  /// y [B, T, I + S]: features [B, T, I], bounded where shared, then the changes: 0 at the start of a sequence. Zeros
  /// beyond a row's length.
  /// state [B, S + 1] in and out.
  template <class Real>
  void read(const Pass& pass, const Real* features, Real* y, Real* state) const;

  /// outputs [B, T, horizon, targets] += the values of the rows of features [B, T, I], normalised as targets. Neither
  /// is touched beyond a row's length.
  template <class Real>
  void add_last(const Pass& pass, const Real* features, Real* outputs) const;

 private:
  /// An input that is a target too: normalised as a target it is offset + factor * input.
  struct Shared {
    Index input, target;
    double factor, offset;
  };

  Index shared() const { return static_cast<Index>(columns_.size()); }

  Index inputs_, targets_, horizon_;
  double change_scale_;  // of changes from row to row, in normalised targets
  std::vector<Shared> columns_;
};

extern template void Changes::read(const Pass&, const float*, float*, float*) const;
extern template void Changes::read(const Pass&, const double*, double*, double*) const;
extern template void Changes::add_last(const Pass&, const float*, float*) const;
extern template void Changes::add_last(const Pass&, const double*, double*) const;

}  // namespace penstock::nn
