#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "penstock/error.h"
#include "penstock/model.h"

/// Thousands of streams of one model that join, step and leave at any time.
namespace penstock {

/// A session of a SessionPool. A pool refuses sessions that were closed and those of other pools.
struct PooledSession {
  std::uint64_t id = 0;  ///< 0: no session.

  bool operator==(const PooledSession&) const = default;
};

/// A session of a call that got no answer.
struct PoolFailure {
  Index position;  ///< Its position in the call.
  Error error;     ///< Why.
};

/// Runs many streams of one model on a CPU. A call takes one step of any of them; the pool computes these steps in
/// batches, on all its threads.
///
/// Each session gets the answers of a Session to the bit. The constructor allocates the memory of all sessions. A pool
/// shares the weights of its model and keeps them alive. Sizes: n sessions of a call, I input
/// features, O outputs of a step. Not safe for concurrent calls on one pool.
class SessionPool {
 public:
  /// Makes a pool for at most `capacity` open sessions. Execution::algorithm has no effect. Throws Error:
  /// invalid_argument for a capacity below 1 or above 2^24; unsupported for a GPU or without the precision;
  /// out_of_memory.
  SessionPool(const Model& model, Index capacity, const Execution& execution = {});
  ~SessionPool();
  SessionPool(SessionPool&&) noexcept;
  SessionPool& operator=(SessionPool&&) noexcept;

  Index capacity() const;
  /// Returns the number of open sessions.
  Index open_sessions() const;

  /// Opens a session at the start of a sequence. Throws Error(out_of_memory) if `capacity` sessions are open.
  PooledSession open();
  /// Closes a session. Throws Error(invalid_argument), as all calls below do, for one that is not open in this pool.
  void close(PooledSession session);
  /// Returns a session to the start of a sequence.
  void reset(PooledSession session);
  /// Returns a copy of the state of a session, for restore() of any pool or Session of the same model.
  std::vector<float> state(PooledSession session) const;
  /// Continues from a state. Throws Error(invalid_argument) unless `state` has as many values as state() and all are
  /// finite.
  void restore(PooledSession session, std::span<const float> state);

  /// Takes a step of each of n sessions: reads a token [n] or normalised features [n, I] and writes outputs [n, O].
  ///
  /// Returns the sessions that failed, by position; their outputs are NaN, and all others took their step. A failure is
  /// invalid_argument for a session that is not open here or comes twice, a token beyond the vocabulary, or features
  /// that are not finite or exceed Column::furthest: its state is as before. It is numerical if an output is not
  /// finite: the session is then reset. Throws Error(invalid_argument) for the wrong kind or number of values; no
  /// session then took a step.
  std::vector<PoolFailure> push(std::span<const PooledSession> sessions, std::span<const std::int32_t> tokens,
                                std::span<float> outputs);
  std::vector<PoolFailure> push(std::span<const PooledSession> sessions, std::span<const float> features,
                                std::span<float> outputs);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;

  /// Throws Error(invalid_argument) if the pool was moved from.
  Impl& held() const;
};

}  // namespace penstock
