#pragma once

#include <cstdint>
#include <span>

#include "ops/op.h"
#include "penstock/stream.h"

namespace penstock::ops {

struct Sample {
  Index classes = 1;  ///< O
  Sampling sampling = {};
  Index history = 1;  ///< Draws of a row that are remembered
};

/// Reads logits [B, 1, O] f32, keys and counters i64 [B]. Writes tokens i32 [B, 1], counters, history i32 [B, history]:
/// a token of each row, by the row's random number of that counter (base/counter_random.h), which goes to the place
/// counter % history. Logits that are not finite: Error(numerical) on the CPU, the token -1 on a GPU.
struct SampleOperand {
  enum : int { logits, keys, counters_in, tokens, counters, history };
};
Op sample(const Sample& shape);

/// A token that may be drawn.
struct Candidate {
  double weight;
  float logit;
  std::int32_t token;
};

/// Throws Error(invalid_argument) naming the field that is impossible.
void check_sampling(const Sampling& sampling);
/// The token that a random number in [0, 1) draws; `scratch` [O] is of any content. Throws Error(numerical).
std::int32_t draw(std::span<const float> logits, const Sampling& sampling, double random, Candidate* scratch);

}  // namespace penstock::ops
