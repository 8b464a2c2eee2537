#include "data/stream_windows.h"

#include <algorithm>

namespace penstock::data {

bool StreamWindows::starts_at(Index step) const {
  return step == 0 || std::binary_search(starts_.begin(), starts_.end(), step);
}

void StreamWindows::mark(Example& example, Index row, Index step) {
  example.reset.resize(static_cast<std::size_t>(example.rows * example.steps));
  example.reset[row * example.steps + step] = 1;
}

void StreamWindows::next(Index rows, Index steps, Example& example, std::vector<Index>& places) {
  check_batch(rows, steps);
  clear(example, rows, steps);
  example.continues = static_cast<Index>(positions_.size()) == rows;
  const Index known = std::min(static_cast<Index>(positions_.size()), rows);
  positions_.resize(static_cast<std::size_t>(rows));
  for (Index b = known; b < rows; ++b) positions_[b] = training_ * b / rows;

  places.resize(static_cast<std::size_t>(rows * steps));
  for (Index b = 0; b < rows; ++b) {
    Index& position = positions_[b];
    for (Index t = 0; t < steps; ++t) {
      if (starts_at(position) && (t > 0 || example.continues)) mark(example, b, t);
      places[b * steps + t] = position;
      position = position + 1 == training_ ? 0 : position + 1;
    }
  }
}

bool StreamWindows::validation(Index i, Index rows, Index steps, Example& example, std::vector<Index>& places) const {
  check_batch(rows, steps);
  rows = std::clamp<Index>(validation_ / steps, 1, rows);
  const Index longest = (validation_ + rows - 1) / rows;
  if (i < 0 || i >= (longest + steps - 1) / steps) return false;
  const Index begin = i * steps;
  steps = std::min(steps, longest - begin);
  clear(example, rows, steps);
  example.continues = i > 0;
  places.assign(static_cast<std::size_t>(rows * steps), -1);
  bool full = true;
  for (Index b = 0; b < rows; ++b) {
    const Index first = validation_ * b / rows + begin;
    const Index length = std::min(steps, validation_ * (b + 1) / rows - first);
    for (Index t = 0; t < length; ++t) {
      const Index step = training_ + first + t;
      places[b * steps + t] = step;
      if (starts_at(step) && (t > 0 || example.continues)) mark(example, b, t);
    }
    example.lengths.push_back(length);
    full = full && length == steps;
  }
  if (full) example.lengths.clear();
  return true;
}

bool StreamWindows::restore(std::vector<Index> positions) {
  const auto inside = [&](Index position) { return position >= 0 && position < training_; };
  if (!std::all_of(positions.begin(), positions.end(), inside)) return false;
  positions_ = std::move(positions);
  return true;
}

}  // namespace penstock::data
