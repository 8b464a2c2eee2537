#pragma once

#include <optional>
#include <vector>

#include "train/series_rows.h"

/// In which order training and validation walk through the segments of a series.
namespace penstock::data {

/// The steps of StreamWindows: first those of training, segment by segment, then those whose forecasts are held out.
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

/// The i-th batch of at most so many rows and steps; nothing if there are no more. The held-out rows of a segment are
/// one row of the batch or several contiguous ones, each led in by up to `lead` of what stands before it in the
/// segment. Where there are more than fit into a batch, each is made of rows from all over the data.
std::optional<HeldOutBatch> held_out_batch(const std::vector<training::Segment>& segments, Index lead, Index i,
                                           Index rows, Index steps);

}  // namespace penstock::data
