#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "penstock/model.h"

namespace penstock {

/// A model that answers one step at a time. Everything is allocated on construction; a step allocates nothing, takes
/// no lock and starts no thread. It shares the model's weights, which stay alive with it: open it anew once the model
/// has been trained further. Its answers equal those of Model::forward on the whole sequence in exact mode and the same
/// precision, to the bit.
class Session {
 public:
  explicit Session(const Model& model, Precision precision = Precision::full);
  /// On a device: a GPU takes a step in one launch of a recorded graph. Threads and algorithm mean nothing here.
  Session(const Model& model, const Execution& execution);
  ~Session();
  Session(Session&&) noexcept;

  /// One token in, logits [O] out; the span stays valid until the next call. The token must be below the vocabulary.
  std::span<const float> push(std::int32_t token);
  /// One row of normalised features [I] in, outputs [O] (normalised) out.
  std::span<const float> push(std::span<const float> features);
  /// Back to the start of a sequence.
  void reset();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// How to draw a token from logits.
struct Sampling {
  double temperature = 0.8;  ///< 0: always the likeliest.
  Index top_k = 0;           ///< Only the k likeliest; 0: all.
  double top_p = 0.95;       ///< Only the smallest set of this total probability; (0, 1].
};

/// Draws a token; `random` is uniform in [0, 1).
std::int32_t sample(std::span<const float> logits, const Sampling& sampling, double random);

/// A language model that writes: it draws a byte, reads it, and draws the next.
class Generator {
 public:
  /// The same seed draws the same bytes, in every program. Throws Error(invalid_argument) for impossible sampling and
  /// for a model of another task.
  Generator(const Model& model, const Sampling& sampling, std::uint64_t seed, const Execution& execution = {});
  ~Generator();
  Generator(Generator&&) noexcept;

  /// What the text begins with, or goes on with.
  void read(std::string_view text);
  /// The next byte. A text of which nothing has been read starts as if a line had just ended.
  char next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
