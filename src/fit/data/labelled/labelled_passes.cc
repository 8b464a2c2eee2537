#include "data/labelled/labelled_passes.h"

#include <algorithm>
#include <optional>

#include "data/dataset.h"
#include "data/labelled/labels.h"
#include "data/labelled/shuffle.h"

namespace penstock::data {
namespace {

constexpr Index most_passes = Index{1} << 62;  // no run gets there; a damaged position must not overflow

}  // namespace

void LabelledPasses::next(Index rows, Index steps, Example& example) {
  check_batch(rows, steps);
  std::vector<Index> chosen;
  while (static_cast<Index>(chosen.size()) < rows) {
    if (done_ == training_steps()) begin_pass(pass_ + 1);
    chosen.push_back(order_[done_++]);
  }
  fill(chosen, example);
}

bool LabelledPasses::validation(Index i, Index rows, Index steps, Example& example) const {
  check_batch(rows, steps);
  return fill_batch(validation_, i, rows, example);
}

bool LabelledPasses::training(Index i, Index rows, Example& example) const {
  check_batch(rows, 1);
  return fill_batch(training_, i, rows, example);
}

Index LabelledPasses::longest() const {
  Index most = 0;
  for (const auto* part : {&training_, &validation_}) {
    for (const Index i : *part) most = std::max(most, length(i));
  }
  return most;
}

std::vector<std::string> LabelledPasses::labels_held_out() const {
  std::vector<bool> trained(description_.labels.classes.size(), false), held_out = trained;
  for (const Index i : training_) trained[static_cast<std::size_t>(label(i))] = true;
  for (const Index i : validation_) held_out[static_cast<std::size_t>(label(i))] = true;
  std::vector<std::string> labels;
  for (std::size_t c = 0; c < trained.size(); ++c) {
    if (held_out[c] && !trained[c]) labels.push_back(description_.labels.classes[c]);
  }
  return labels;
}

std::string LabelledPasses::position() const { return to_text({kind_, fingerprint_, {pass_, done_}, std::nullopt}); }

void LabelledPasses::restore(const std::string& position) {
  const auto numbers = parse_position(position, kind_, fingerprint_).numbers;
  if (numbers.size() != 2 || numbers[0] < 0 || numbers[0] > most_passes || numbers[1] < 0 ||
      numbers[1] > training_steps()) {
    bad_position(kind_);
  }
  begin_pass(numbers[0]);
  done_ = numbers[1];
}

void LabelledPasses::begin_pass(Index pass) {
  pass_ = pass;
  done_ = 0;
  const auto purpose = static_cast<std::uint64_t>(pass) + 1;
  order_.clear();
  for (const Index i : shuffled(training_steps(), seed_, purpose)) order_.push_back(training_[i]);
  arrange(order_, purpose);
}

bool LabelledPasses::fill_batch(std::span<const Index> part, Index i, Index rows, Example& example) const {
  const auto count = static_cast<Index>(part.size());
  if (i < 0 || i >= (count + rows - 1) / rows) return false;
  fill(part.subspan(i * rows, std::min(rows, count - i * rows)), example);
  return true;
}

void LabelledPasses::fill(std::span<const Index> chosen, Example& example) const {
  const auto rows = static_cast<Index>(chosen.size());
  Index steps = 0;
  for (const Index i : chosen) steps = std::max(steps, length(i));
  clear(example, rows, steps);
  example.labels.assign(static_cast<std::size_t>(rows * steps), -1);
  const bool equal = std::ranges::all_of(chosen, [&](Index i) { return length(i) == steps; });
  for (Index b = 0; b < rows; ++b) {
    const Index valid = length(chosen[b]);
    example.labels[b * steps + valid - 1] = label(chosen[b]);
    if (!equal) example.lengths.push_back(valid);
  }
  fill_inputs(chosen, example);
}

}  // namespace penstock::data
