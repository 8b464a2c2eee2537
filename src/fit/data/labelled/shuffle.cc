#include "data/labelled/shuffle.h"

#include <numeric>
#include <utility>

#include "base/random.h"

namespace penstock::data {

std::vector<Index> shuffled(Index count, std::uint64_t seed, std::uint64_t purpose) {
  std::vector<Index> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), Index{0});
  Random random(Random(seed).bits() + purpose);
  for (Index i = count - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  return order;
}

}  // namespace penstock::data
