#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "oracle/network.h"
#include "penstock/recurrent.h"
#include "support/cases.h"

namespace penstock::test {

/// The memory behind a SequenceView, in any layout. Whatever belongs to no position holds a marked NaN that nobody may
/// overwrite, and that shows up in results if somebody reads it.
///
/// Values are given and taken in the oracle's order, one vector of C channels per position.
template <class Real>
class Sequence {
 public:
  Sequence(const Batch& batch, Index channels, Layout layout) : batch_(batch), channels_(channels) {
    const bool slice = layout == Layout::batch_first_slice || layout == Layout::time_first_slice;
    const bool gapped = layout == Layout::batch_first_gapped || layout == Layout::time_first_gapped;
    const bool time_first =
        layout == Layout::time_first || layout == Layout::time_first_slice || layout == Layout::time_first_gapped;
    const Index gap = slice || gapped ? 3 : 0, inner = channels + gap, outer_gap = gapped ? 5 : 0;
    if (batch.cu_seqlens) {
      step_stride_ = inner;
      row_stride_ = -1000003;  // packed batches must not use it
    } else if (time_first) {
      row_stride_ = inner;
      step_stride_ = batch.rows * inner + outer_gap;
    } else {
      step_stride_ = inner;
      row_stride_ = batch.steps * inner + outer_gap;
    }
    Index last = gap;
    for_each_position([&](Index, Index first, bool) { last = std::max(last, first + channels_); }, gap);
    memory_.assign(last + gap, poison());
    start_ = gap;
  }

  /// Writes the valid steps; padding keeps the poison.
  void fill(const std::vector<Real>& values) {
    for_each_position([&](Index position, Index first, bool valid) {
      for (Index c = 0; c < channels_ && valid; ++c) memory_[first + c] = values[position * channels_ + c];
    });
  }

  /// Every position's values, those of padding included.
  std::vector<Real> values() const {
    std::vector<Real> values(oracle::position_count(batch_) * channels_);
    for_each_position([&](Index position, Index first, bool) {
      for (Index c = 0; c < channels_; ++c) values[position * channels_ + c] = memory_[first + c];
    });
    return values;
  }

  /// Padding must have become zeros, and nothing between the positions may have been touched.
  testing::AssertionResult was_written_where_due() const {
    std::vector<char> owned(memory_.size(), 0);  // quicker than bits without optimisation
    std::string complaint;
    for_each_position([&](Index position, Index first, bool valid) {
      for (Index c = 0; c < channels_; ++c) {
        owned[first + c] = 1;
        if (!valid && memory_[first + c] != Real(0)) {
          complaint = "padding at position " + std::to_string(position) + " is " + std::to_string(memory_[first + c]);
        }
      }
    });
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      const Real untouched = poison();
      if (owned[i] == 0 && std::memcmp(&memory_[i], &untouched, sizeof(Real)) != 0) {
        complaint = "element " + std::to_string(i) + " between steps was overwritten";
      }
    }
    return complaint.empty() ? testing::AssertionSuccess() : testing::AssertionFailure() << complaint;
  }

  SequenceView<Real> view() { return {memory_.data() + start_, row_stride_, step_stride_}; }

 private:
  static Real poison() { return static_cast<Real>(-std::numeric_limits<double>::quiet_NaN()); }

  /// visit(position, index of its first element, whether there is a step)
  template <class Visit>
  void for_each_position(Visit&& visit) const {
    for_each_position(visit, start_);
  }
  template <class Visit>
  void for_each_position(Visit&& visit, Index start) const {
    for (Index b = 0; b < batch_.rows; ++b) {
      const oracle::Span span = oracle::row_span(batch_, b);
      const Index positions = batch_.cu_seqlens ? span.length : batch_.steps;
      for (Index t = 0; t < positions; ++t) {
        const Index offset = batch_.cu_seqlens ? (span.first + t) * step_stride_ : b * row_stride_ + t * step_stride_;
        visit(span.first + t, start + offset, t < span.length);
      }
    }
  }

  Batch batch_;
  Index channels_, row_stride_, step_stride_, start_ = 0;
  std::vector<Real> memory_;
};

}  // namespace penstock::test
