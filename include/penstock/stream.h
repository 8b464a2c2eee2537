#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "penstock/model.h"

namespace penstock {

/// How to draw a token from logits.
struct Sampling {
  double temperature = 0.8;  ///< 0: always the likeliest.
  Index top_k = 0;           ///< Only the k likeliest; 0: all.
  double top_p = 0.95;       ///< Only the smallest set of this total probability; (0, 1].

  bool operator==(const Sampling&) const = default;
};

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
  /// Throws Error(numerical) where outputs would not be finite; the session is then at the start of a sequence.
  std::span<const float> push(std::int32_t token);
  /// One row of normalised features [I] in, none beyond Column::furthest, outputs [O] (normalised) out; the same.
  std::span<const float> push(std::span<const float> features);
  /// Back to the start of a sequence.
  void reset();

  /// What the model remembers of the steps so far, to go on from later or elsewhere. Allocates.
  std::vector<float> state() const;
  /// Goes on from there. Throws Error(invalid_argument) unless there are as many values as state() has, all finite.
  void restore(std::span<const float> state);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;

  /// Throws where it was moved from.
  Impl& held() const;
};

/// Many streams of one model, which answer one step of all of them at a time. On the CPU each row has the answers of a
/// Session, to the bit; on a GPU those of a Session but for the roundings of products of another shape. One call at a
/// time; sessions of one model share its weights.
class SessionBatch {
 public:
  /// Throws Error(invalid_argument) for less than one row; unsupported or out_of_memory as the device has it.
  SessionBatch(const Model& model, Index rows, const Execution& execution = {});
  ~SessionBatch();
  SessionBatch(SessionBatch&&) noexcept;
  SessionBatch& operator=(SessionBatch&&) noexcept;

  Index rows() const;
  /// One token of each row [B] in, logits [B, O] out; the span stays valid until the next call.
  std::span<const float> push(std::span<const std::int32_t> tokens);
  /// A row of normalised features of each row [B, I] in, outputs [B, O] (normalised) out.
  std::span<const float> push(std::span<const float> features);
  /// All rows, or one of them, back to the start of a sequence. Draws go on from where they were.
  void reset();
  void reset(Index row);

  /// What a row draws from now on depends on this seed and on how many tokens it has drawn since; at first, on its
  /// number. The same seed draws the same tokens in any row of any batch.
  void seed(Index row, std::uint64_t seed);
  /// Every row draws a token from its last logits and reads it, `steps` times; tokens [B, steps] out. On a GPU nothing
  /// waits for the host between the steps. Throws Error(numerical) naming a row whose logits are not finite: the rows
  /// are then to be reset.
  void generate(const Sampling& sampling, Index steps, std::span<std::int32_t> tokens);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;

  /// Throws where it was moved from.
  Impl& held() const;
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

  /// Throws where it was moved from.
  Impl& held() const;
};

}  // namespace penstock
