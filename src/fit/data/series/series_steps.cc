#include "data/series/series_steps.h"

#include <algorithm>

namespace penstock::data {

using training::Segment;

SeriesSteps::SeriesSteps(const std::vector<Segment>& segments) {
  const auto add_steps = [&](Index first, Index end) {
    if (first < end && !rows.empty()) starts.push_back(static_cast<Index>(rows.size()));
    for (Index row = first; row < end; ++row) rows.push_back(row);
  };
  for (const Segment& segment : segments) add_steps(segment.first, segment.training_end - 1);
  training = static_cast<Index>(rows.size());
  for (const Segment& segment : segments) {
    if (segment.held_out() > 0) add_steps(segment.training_end - 1, segment.end - 1);
  }
  held_out = static_cast<Index>(rows.size()) - training;
}

HeldOutBatches::HeldOutBatches(const std::vector<Segment>& segments, Index lead, Index rows, Index steps)
    : lead_(lead), rows_(rows), steps_(steps) {
  find_rows(segments, lead);
  turns_ = (static_cast<Index>(all_.size()) + rows - 1) / std::max<Index>(rows, 1);
  Index end = 0;
  for (Index turn = 0; turn < turns_; ++turn) {
    end += (longest_of(turn) + steps - 1) / steps;
    ends_.push_back(end);
  }
}

void HeldOutBatches::find_rows(const std::vector<Segment>& segments, Index lead) {
  Index total = 0;
  for (const Segment& segment : segments) total += segment.held_out();
  for (const Segment& segment : segments) {
    const Index held_out = segment.held_out();
    if (held_out == 0) continue;
    const Index own_lead = std::min(lead, segment.training_rows() - 1);
    const Index share = std::max<Index>(1, rows_ * held_out / total);
    const Index parts = std::clamp<Index>(held_out / std::max({steps_, own_lead, Index{1}}), 1, share);
    for (Index part = 0; part < parts; ++part) {
      const Index first = held_out * part / parts, count = held_out * (part + 1) / parts - first;
      all_.push_back({segment.training_end - 1 + first - own_lead, own_lead, count});
    }
  }
}

Index HeldOutBatches::longest_of(Index turn) const {
  Index longest = 0;
  for (auto k = static_cast<std::size_t>(turn); k < all_.size(); k += static_cast<std::size_t>(turns_)) {
    longest = std::max(longest, all_[k].length());
  }
  return longest;
}

std::optional<HeldOutBatch> HeldOutBatches::batch(Index i) const {
  const Index turn = std::ranges::upper_bound(ends_, i) - ends_.begin();
  if (i < 0 || turn == turns_) return std::nullopt;
  const Index window = turn == 0 ? i : i - ends_[turn - 1], begin = window * steps_;
  HeldOutBatch batch;
  batch.steps = std::min(steps_, longest_of(turn) - begin);
  batch.continues = window > 0;
  for (auto k = static_cast<std::size_t>(turn); k < all_.size(); k += static_cast<std::size_t>(turns_)) {
    const LedRows& each = all_[k];
    const Index length = std::clamp<Index>(each.length() - begin, 0, batch.steps);
    batch.lengths.push_back(length);
    for (Index t = 0; t < batch.steps; ++t) {
      batch.rows.push_back(t < length ? each.first + begin + t : -1);
      batch.leads.push_back(t < length && begin + t < each.lead);
    }
  }
  return batch;
}

}  // namespace penstock::data
