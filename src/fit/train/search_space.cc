#include "train/search_space.h"

#include <algorithm>
#include <numeric>

namespace penstock::training {

namespace {

constexpr std::size_t random_trials = 8;  // before neighbours of the best are tried
constexpr double share_of_random = 0.25;  // of what is tried afterwards: the best so far may be in the wrong corner
constexpr std::size_t confirmed = 3;      // of the best trials are trained again
constexpr int attempts = 200;             // at a choice that was not tried yet

template <class T>
const T& pick(const std::vector<T>& values, Random& random) {
  return values[static_cast<std::size_t>(random.below(static_cast<Index>(values.size())))];
}

/// The value above or below; another one at random where there is no order.
template <class T>
T step(const std::vector<T>& values, const T& value, bool ordered, Random& random) {
  if (values.size() < 2) return value;
  const auto at = std::ranges::find(values, value) - values.begin();
  const auto last = static_cast<Index>(values.size()) - 1;
  if (at > last) return pick(values, random);  // not one of them, as what a search begins with may be
  if (!ordered) return values[static_cast<std::size_t>((at + 1 + random.below(last)) % (last + 1))];
  const Index to = at == 0 ? 1 : at == last ? last - 1 : at + (random.below(2) == 0 ? -1 : 1);
  return values[static_cast<std::size_t>(to)];
}

}  // namespace

std::size_t Proposals::count() const {
  return space_.cells.size() * space_.widths.size() * space_.dropouts.size() * space_.learning_rates.size();
}

SearchChoice Proposals::any(Random& random) const {
  return {pick(space_.cells, random), pick(space_.widths, random), pick(space_.dropouts, random),
          pick(space_.learning_rates, random)};
}

SearchChoice Proposals::neighbour(SearchChoice choice, Random& random) const {
  constexpr Index dimensions = 4;
  const Index changes = 1 + random.below(2);
  for (Index i = 0; i < changes; ++i) {
    switch (random.below(dimensions)) {
      case 0:
        choice.cell = step(space_.cells, choice.cell, false, random);
        break;
      case 1:
        choice.width = step(space_.widths, choice.width, true, random);
        break;
      case 2:
        choice.dropout = step(space_.dropouts, choice.dropout, true, random);
        break;
      default:
        choice.learning_rate = step(space_.learning_rates, choice.learning_rate, true, random);
    }
  }
  return choice;
}

std::optional<SearchChoice> Proposals::next(const std::vector<SearchTrial>& trials) const {
  Random random(seed_ + trials.size());
  const auto is_known = [&](const SearchChoice& choice) {
    return std::ranges::any_of(trials, [&](const SearchTrial& trial) { return trial.choice == choice; });
  };
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const bool random_one = trials.size() < random_trials || random.uniform() < share_of_random;
    SearchChoice choice = random_one ? any(random) : neighbour(trials[best_trial(trials)].choice, random);
    if (!is_known(choice)) return choice;
    if (trials.size() > count()) break;
  }
  return std::nullopt;
}

std::size_t best_trial(const std::vector<SearchTrial>& trials) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < trials.size(); ++i) {
    const std::size_t here = trials[i].losses.size(), there = trials[best].losses.size();
    if (here > there || (here == there && trials[i].loss() < trials[best].loss())) best = i;
  }
  return best;
}

std::optional<std::size_t> trial_to_repeat(const std::vector<SearchTrial>& trials, std::size_t times) {
  std::vector<std::size_t> order(trials.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // By the first loss, so that those that are repeated stay the same.
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return trials[i].losses.front(); });
  order.resize(std::min(confirmed, order.size()));
  const auto least = std::ranges::min_element(order, {}, [&](std::size_t i) { return trials[i].losses.size(); });
  if (least == order.end() || trials[*least].losses.size() >= times) return std::nullopt;
  return *least;
}

}  // namespace penstock::training
