#pragma once

#include <optional>
#include <vector>

#include "data/series/series_rows.h"

/// The order in which training and validation read the segments of a series.
namespace penstock::data {

/// The steps of a StreamDataset: first those of training, segment by segment, then those whose forecasts are held out.
struct SeriesSteps {
  explicit SeriesSteps(const std::vector<training::Segment>& segments);

  Index training = 0, held_out = 0;
  std::vector<Index> rows;    ///< That each step reads.
  std::vector<Index> starts;  ///< Steps before which no other of the same segment stands, from the second one on.
};

/// A batch of held-out rows that are led in.
struct HeldOutBatch {
  Index steps = 0;             ///< T
  bool continues = false;      ///< Goes on from the batch before it.
  std::vector<Index> lengths;  ///< [B]
  std::vector<Index> rows;     ///< [B, T], -1 beyond a row's length
  std::vector<bool> leads;     ///< [B, T]: this one only leads in.
};

/// Batches of at most so many rows and steps. The held-out rows of a segment are one row of a batch or several
/// contiguous ones, each led in by up to `lead` of what stands before it in the segment. Where there are more than fit
/// into a batch, each is made of rows from all over the data.
class HeldOutBatches {
 public:
  HeldOutBatches(const std::vector<training::Segment>& segments, Index lead, Index rows, Index steps);

  bool are_of(Index lead, Index rows, Index steps) const { return lead == lead_ && rows == rows_ && steps == steps_; }
  /// The i-th one; nothing if there are no more.
  std::optional<HeldOutBatch> batch(Index i) const;

 private:
  /// Held-out rows that follow each other, read from `first` on; the forecasts of `lead` rows do not count.
  struct LedRows {
    Index first, lead, count;
    Index length() const { return lead + count; }
  };

  void find_rows(const std::vector<training::Segment>& segments, Index lead);
  Index longest_of(Index turn) const;

  Index lead_, rows_, steps_;
  std::vector<LedRows> all_;
  Index turns_ = 0;          // turn k is of rows k, k + turns, k + 2 turns, ...
  std::vector<Index> ends_;  // batches of all turns up to and with each
};

}  // namespace penstock::data
