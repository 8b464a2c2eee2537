#include "data/stream_dataset.h"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::data {

void StreamDataset::mark_start(Index step, Index row, Index t, Example& example) const {
  if (step > 0 && !std::ranges::binary_search(starts_, step)) return;
  if (t == 0 && !example.continues) return;
  example.reset.resize(static_cast<std::size_t>(example.rows * example.steps));
  example.reset[row * example.steps + t] = 1;
}

void StreamDataset::next(Index rows, Index steps, Example& example) {
  check_batch(rows, steps);
  clear(example, rows, steps);
  const auto known = static_cast<Index>(positions_.size());
  example.continues = known == rows;
  positions_.resize(static_cast<std::size_t>(rows));
  for (Index b = known; b < rows; ++b) positions_[b] = training_ * b / rows;
  places_.resize(static_cast<std::size_t>(rows * steps));
  for (Index b = 0; b < rows; ++b) {
    Index& position = positions_[b];
    for (Index t = 0; t < steps; ++t) {
      mark_start(position, b, t, example);
      places_[b * steps + t] = position;
      position = position + 1 == training_ ? 0 : position + 1;
    }
  }
  fill(places_, Part::training, example);
}

bool StreamDataset::validation(Index i, Index rows, Index steps, Example& example) const {
  check_batch(rows, steps);
  rows = std::clamp<Index>(validation_ / steps, 1, rows);
  const Index longest = (validation_ + rows - 1) / rows;
  if (i < 0 || i >= (longest + steps - 1) / steps) return false;
  const Index begin = i * steps;
  steps = std::min(steps, longest - begin);
  clear(example, rows, steps);
  example.continues = i > 0;
  std::vector<Index> places(static_cast<std::size_t>(rows * steps), -1);
  for (Index b = 0; b < rows; ++b) {
    const Index first = validation_ * b / rows + begin;
    const Index length = std::min(steps, validation_ * (b + 1) / rows - first);
    for (Index t = 0; t < length; ++t) {
      places[b * steps + t] = training_ + first + t;
      mark_start(training_ + first + t, b, t, example);
    }
    example.lengths.push_back(length);
  }
  if (std::ranges::count(example.lengths, steps) == rows) example.lengths.clear();
  fill(places, Part::validation, example);
  return true;
}

void StreamDataset::restore(const std::string& position) {
  std::vector<Index> positions = parse_position(position, kind_, fingerprint_).numbers;
  const auto inside = [&](Index step) { return step >= 0 && step < training_; };
  if (!std::ranges::all_of(positions, inside)) bad_position(kind_);
  positions_ = std::move(positions);
}

}  // namespace penstock::data
