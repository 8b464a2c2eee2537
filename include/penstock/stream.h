#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "penstock/model.h"

/// Models on streams: one time step per call, for one row or many, and text generation.
namespace penstock {

/// Says how to draw a token from logits.
struct Sampling {
  double temperature = 0.8;  ///< Divides the logits; 0: always the most likely token.
  Index top_k = 0;           ///< Draws only from the k most likely tokens; 0: from all.
  double top_p = 0.95;       ///< Draws only from the smallest set of tokens with this total probability: (0, 1].

  bool operator==(const Sampling&) const = default;
};

/// Runs a model on one stream, one time step per call.
///
/// The constructor allocates all memory. A step allocates nothing, takes no lock and starts no thread. Denormal numbers
/// count as zeros.
///
/// A session shares the weights of its model and keeps them alive. Open a new session after the model was trained
/// further. Sizes: I input features, O outputs of a step. Not safe for concurrent calls on one session.
///
/// The answers equal those of Model::forward() on the whole sequence to the bit, in exact mode and the same precision.
/// On a CPU sessions are always exact; on a GPU if Execution::exact says so, which is slower.
class Session {
 public:
  /// Opens a session on the CPU.
  explicit Session(const Model& model, Precision precision = Precision::full);
  /// Opens a session on a device. On a GPU a step is one launch of a recorded graph. Execution::threads and
  /// Execution::algorithm have no effect. Throws Error: unsupported without the device or precision; out_of_memory.
  Session(const Model& model, const Execution& execution);
  ~Session();
  Session(Session&&) noexcept;

  /// Reads one token and returns the logits [O], which are valid until the next call. The token must be below the
  /// vocabulary.
  ///
  /// Throws Error: invalid_argument for a wrong input; numerical if an output is not finite, and the session is then
  /// reset to the start of a sequence.
  std::span<const float> push(std::int32_t token);
  /// Reads one row of normalised features [I] and returns the normalised outputs [O], which are valid until the next
  /// call. Features must be finite and at most Column::furthest in magnitude. Throws as above.
  std::span<const float> push(std::span<const float> features);
  /// Reads T tokens or T rows of features [T, I], as push() does one after the other, and returns the outputs [T, O].
  /// Allocates. Throws as push(); the message begins with the number of the step. After a wrong input, or when a
  /// Stoppable (stop.h) interrupts the call, the state is as before it.
  std::vector<float> process_chunk(std::span<const std::int32_t> tokens);
  std::vector<float> process_chunk(std::span<const float> features);
  /// Returns to the start of a sequence.
  void reset();
  /// Calls reset().
  void reset_state() { reset(); }

  /// Returns a session that continues from the same state with the same weights, also if the model was trained since.
  /// Allocates.
  Session clone() const;
  /// Returns a copy of the recurrent state after the steps so far, for restore(). Allocates.
  std::vector<float> state() const;
  /// Continues from a state that state() returned. Throws Error(invalid_argument) unless `state` has as many values as
  /// state() and all are finite.
  void restore(std::span<const float> state);

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;

  /// Throws Error(invalid_argument) if the session was moved from.
  Impl& held() const;
};

/// Runs a model on many streams: one time step of all B rows per call.
///
/// On the CPU each row gets the answers of a Session to the bit; on a GPU they differ by rounding, since products have
/// another shape. Not safe for concurrent calls on one batch. Sessions of one model share its weights.
class SessionBatch {
 public:
  /// Opens a session of `rows` rows. Throws Error: invalid_argument for fewer than one row; unsupported without the
  /// device or precision; out_of_memory.
  SessionBatch(const Model& model, Index rows, const Execution& execution = {});
  ~SessionBatch();
  SessionBatch(SessionBatch&&) noexcept;
  SessionBatch& operator=(SessionBatch&&) noexcept;

  Index rows() const;
  /// Reads one token per row [B] and returns the logits [B, O], which are valid until the next call. Throws
  /// Error(invalid_argument) for a wrong input. Outputs are not checked: a row that is not finite stays so until
  /// reset().
  std::span<const float> push(std::span<const std::int32_t> tokens);
  /// Reads normalised features [B, I] and returns the normalised outputs [B, O], which are valid until the next call.
  /// Throws as above.
  std::span<const float> push(std::span<const float> features);
  /// Returns all rows to the start of a sequence. Does not reset their random numbers.
  void reset();
  /// Returns one row to the start of a sequence. Throws Error(invalid_argument) if there is no such row.
  void reset(Index row);

  /// Sets the seed of the tokens that a row draws from now on. The default seed of a row is its number. The same seed
  /// draws the same tokens in any row of any batch.
  void seed(Index row, std::uint64_t seed);
  /// Draws tokens [B, steps]: each row draws a token from its last logits and reads it, `steps` times. On a GPU the
  /// steps follow each other without waiting for the host.
  ///
  /// Throws Error: invalid_argument unless the model is a language model; numerical that names a row whose logits are
  /// not finite, and all rows must then be reset.
  void generate(const Sampling& sampling, Index steps, std::span<std::int32_t> tokens);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;

  /// Throws Error(invalid_argument) if the batch was moved from.
  Impl& held() const;
};

/// Draws a token from logits. `random` is a number in [0, 1) that decides the draw. Throws Error: invalid_argument for
/// impossible sampling; numerical for logits that are not finite.
std::int32_t sample(std::span<const float> logits, const Sampling& sampling, double random);

/// Writes text with a language model: draws a byte, reads it, and draws the next.
class Generator {
 public:
  /// Makes a generator. The same seed draws the same bytes in every program. Throws Error(invalid_argument) for
  /// impossible sampling and for a model of another task.
  Generator(const Model& model, const Sampling& sampling, std::uint64_t seed, const Execution& execution = {});
  ~Generator();
  Generator(Generator&&) noexcept;

  /// Reads text that the generated text continues.
  void read(std::string_view text);
  /// Draws the next byte. If no text was read, generation starts at the beginning of a line.
  char next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;

  /// Throws Error(invalid_argument) if the generator was moved from.
  Impl& held() const;
};

}  // namespace penstock
