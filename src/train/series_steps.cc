#include "train/series_steps.h"

#include <algorithm>

namespace penstock::data {
namespace {

using training::Segment;

/// Held-out rows that follow each other, read from `first` on; the forecasts of `lead` rows do not count.
struct LedRows {
  Index first, lead, count;
  Index length() const { return lead + count; }
};

std::vector<LedRows> led_rows(const std::vector<Segment>& segments, Index lead, Index rows, Index steps) {
  Index total = 0;
  for (const Segment& segment : segments) total += segment.held_out();
  std::vector<LedRows> all;
  for (const Segment& segment : segments) {
    const Index held_out = segment.held_out();
    if (held_out == 0) continue;
    const Index own_lead = std::min(lead, segment.training_rows() - 1);
    const Index share = std::max<Index>(1, rows * held_out / total);
    const Index parts = std::clamp<Index>(held_out / std::max({steps, own_lead, Index{1}}), 1, share);
    for (Index part = 0; part < parts; ++part) {
      const Index first = held_out * part / parts, count = held_out * (part + 1) / parts - first;
      all.push_back({segment.training_end - 1 + first - own_lead, own_lead, count});
    }
  }
  return all;
}

}  // namespace

SeriesSteps::SeriesSteps(const std::vector<Segment>& segments) {
  const auto walk = [&](Index first, Index end) {
    if (first < end && !rows.empty()) starts.push_back(static_cast<Index>(rows.size()));
    for (Index row = first; row < end; ++row) rows.push_back(row);
  };
  for (const Segment& segment : segments) walk(segment.first, segment.training_end - 1);
  training = static_cast<Index>(rows.size());
  for (const Segment& segment : segments) {
    if (segment.held_out() > 0) walk(segment.training_end - 1, segment.end - 1);
  }
  held_out = static_cast<Index>(rows.size()) - training;
}

std::optional<HeldOutBatch> held_out_batch(const std::vector<Segment>& segments, Index lead, Index i, Index rows,
                                           Index steps) {
  const std::vector<LedRows> all = led_rows(segments, lead, rows, steps);
  const auto count = static_cast<Index>(all.size());
  const Index turns = (count + rows - 1) / std::max<Index>(rows, 1);
  for (Index turn = 0; turn < turns; ++turn) {
    std::vector<LedRows> chosen;
    for (Index k = turn; k < count; k += turns) chosen.push_back(all[static_cast<std::size_t>(k)]);
    const Index longest = std::ranges::max(chosen, {}, &LedRows::length).length();
    const Index windows = (longest + steps - 1) / steps;
    if (i >= windows) {
      i -= windows;
      continue;
    }
    if (i < 0) return std::nullopt;
    const Index begin = i * steps;
    HeldOutBatch batch{
        .steps = std::min(steps, longest - begin), .continues = i > 0, .lengths = {}, .rows = {}, .leads = {}};
    for (const LedRows& each : chosen) {
      const Index length = std::clamp<Index>(each.length() - begin, 0, batch.steps);
      batch.lengths.push_back(length);
      for (Index t = 0; t < batch.steps; ++t) {
        batch.rows.push_back(t < length ? each.first + begin + t : -1);
        batch.leads.push_back(t < length && begin + t < each.lead);
      }
    }
    return batch;
  }
  return std::nullopt;
}

}  // namespace penstock::data
