#pragma once

#include <optional>
#include <vector>

#include "base/random.h"
#include "penstock/train/search.h"

namespace penstock::training {

/// Proposes what to try next. The same proposals for the same seed and the same losses, so that a search that was
/// interrupted goes on as if it had not been.
class Proposals {
 public:
  Proposals(const SearchSpace& space, std::uint64_t seed) : space_(space), seed_(seed) {}

  /// A choice that is not among the trials; nothing if all have been tried.
  std::optional<SearchChoice> next(const std::vector<SearchTrial>& trials) const;

 private:
  SearchChoice any(Random& random) const;
  SearchChoice neighbour(SearchChoice choice, Random& random) const;
  std::size_t count() const;

  SearchSpace space_;
  std::uint64_t seed_;
};

/// The trial with the lowest loss of those that were trained most often.
std::size_t best_trial(const std::vector<SearchTrial>& trials);

/// Which of the best trials is to be trained again to make sure: the one that was trained least often; nothing once
/// each was trained `times` times.
std::optional<std::size_t> trial_to_repeat(const std::vector<SearchTrial>& trials, std::size_t times);

}  // namespace penstock::training
