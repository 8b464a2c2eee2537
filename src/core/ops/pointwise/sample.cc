#include "ops/pointwise/sample.h"

#include <algorithm>
#include <cmath>

#include "base/counter_random.h"
#include "ops/cuda/ops.h"
#include "ops/pointwise/elementwise.h"

namespace penstock::ops {

namespace {

/// Candidates from the likeliest down, equal ones in the order of their tokens, ordered only as far as they are asked
/// for: a few tokens have most of the probability.
class Ranking {
 public:
  Ranking(Candidate* candidates, Index count) : candidates_(candidates), count_(count) {
    std::make_heap(candidates, candidates + count, less_likely);
  }

  const Candidate& operator[](Index rank) {
    for (; ordered_ <= rank; ++ordered_) std::pop_heap(candidates_, candidates_ + count_ - ordered_, less_likely);
    return candidates_[count_ - 1 - rank];
  }

 private:
  static bool less_likely(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit < b.logit : a.token > b.token;
  }

  Candidate* candidates_;
  Index count_, ordered_ = 0;
};

std::unique_ptr<Executable> sample_on_cpu(const Sample& shape, const Target& target) {
  return simple(
      [shape](const Call& call, const Operands& memory) {
        const auto* const logits = memory.get<const float>(SampleOperand::logits);
        const auto* const keys = memory.get<const std::uint64_t>(SampleOperand::keys);
        auto* const tokens = memory.get<std::int32_t>(SampleOperand::tokens);
        auto* const counters = memory.get<std::uint64_t>(SampleOperand::counters);
        auto* const history = memory.get<std::int32_t>(SampleOperand::history);
        auto* const scratch = static_cast<Candidate*>(memory.scratch);
        const auto classes = static_cast<std::size_t>(shape.classes);
        constexpr Index work_of_class = 16;  // values of other loops that take as long
        for_range(call.threads, call.batch.rows, work_of_class * shape.classes, [&](Index begin, Index end) {
          for (Index b = begin; b < end; ++b) {
            const double random = counter_random::uniform(keys[b], counters[b]);
            tokens[b] =
                draw({logits + b * shape.classes, classes}, shape.sampling, random, scratch + b * shape.classes);
            history[b * shape.history + static_cast<Index>(counters[b] % static_cast<std::uint64_t>(shape.history))] =
                tokens[b];
            ++counters[b];
          }
        });
      },
      static_cast<std::size_t>(target.rows * shape.classes) * sizeof(Candidate));
}

}  // namespace

void check_sampling(const Sampling& sampling) {
  require_argument(std::isfinite(sampling.temperature) && sampling.temperature >= 0.0, "temperature",
                   sampling.temperature, "at least 0");
  require_argument(sampling.top_k >= 0, "top_k", sampling.top_k, "at least 0");
  require_argument(sampling.top_p > 0.0 && sampling.top_p <= 1.0, "top_p", sampling.top_p, "in (0, 1]");
}

std::int32_t draw(std::span<const float> logits, const Sampling& sampling, double random, Candidate* scratch) {
  if (!std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); })) {
    fail(ErrorCode::numerical, "logits are not finite: no token can be drawn");
  }
  const auto likeliest = std::ranges::max_element(logits);
  if (sampling.temperature == 0.0) return static_cast<std::int32_t>(likeliest - logits.begin());
  const auto classes = static_cast<Index>(logits.size());
  const auto largest = static_cast<double>(*likeliest);
  double total = 0.0;
  for (Index i = 0; i < classes; ++i) {
    const float logit = logits[static_cast<std::size_t>(i)];
    scratch[i] = {std::exp((static_cast<double>(logit) - largest) / sampling.temperature), logit,
                  static_cast<std::int32_t>(i)};
    total += scratch[i].weight;
  }
  Ranking ranking(scratch, classes);
  Index limit = classes;
  if (sampling.top_k > 0 && sampling.top_k < classes) {
    limit = sampling.top_k;
    total = 0.0;
    for (Index rank = 0; rank < limit; ++rank) total += ranking[rank].weight;
  }
  double kept = 0.0;
  Index count = 0;
  while (count < limit && (count == 0 || kept < sampling.top_p * total)) kept += ranking[count++].weight;

  double left = random * kept;
  for (Index rank = 0; rank + 1 < count; ++rank) {
    left -= ranking[rank].weight;
    if (left < 0.0) return ranking[rank].token;
  }
  return ranking[count - 1].token;
}

Op sample(const Sample& shape) {
  return {"sample", [shape](const Target& target) {
            check_sampling(shape.sampling);
            require(target.steps == 1, "sampling takes one step at a time, not {}", target.steps);
            return target.device.is_cuda() ? cuda_sample(shape, target) : sample_on_cpu(shape, target);
          }};
}

}  // namespace penstock::ops
