#include "ops/pointwise/sample.h"

#include <vector>

#include "base/check.h"

namespace penstock {

std::int32_t sample(std::span<const float> logits, const Sampling& sampling, double random) {
  require(!logits.empty(), "logits must not be empty");
  ops::check_sampling(sampling);
  require_argument(random >= 0.0 && random < 1.0, "random", random, "in [0, 1)");
  std::vector<ops::Candidate> scratch(logits.size());
  return ops::draw(logits, sampling, random, scratch.data());
}

}  // namespace penstock
