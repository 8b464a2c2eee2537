#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "penstock/error.h"
#include "penstock/model.h"
#include "penstock/network.h"

/// Thousands of streams of one model or network that join, step and leave at any time.
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

/// How steps wait for a batch: SessionPool::submit() and run().
struct PoolQueue {
  Index steps = 0;    ///< Steps that may wait; 0: none, the pool takes steps by push() alone.
  double wait_s = 0;  ///< Seconds that the first step waits for others before run() computes; 0: not at all.
  Index batch = 0;    ///< Steps that run() computes at once, and for which it waits no longer; 0: 64 for each thread;
                      ///< on a GPU `capacity`, at most 16,384.
};

/// Steps that run() took: n of them, with the outputs [n, O]. Valid until the next call.
struct PoolAnswers {
  std::span<const PooledSession> sessions;
  std::span<const std::uint64_t> tags;  ///< What submit() was given.
  std::span<const float> outputs;
  std::vector<PoolFailure> failures;  ///< As of push().
};

/// Runs many streams of one model, or of one network. The pool computes steps of any of them in batches, on all its
/// threads or on a GPU, in whose memory the states of a model then stay. There are two ways to take steps:
///
/// - push() takes a step of each of some sessions, and returns the outputs.
/// - submit() puts a step into a bounded queue and returns at once, for any number of threads; one thread calls run(),
///   which computes what waits and returns the answers. The steps of a session are computed in their order.
///
/// Each session gets the answers of a Session to the bit; those of a NetworkSession, and of a Session on a GPU, differ
/// by rounding. The constructor allocates the memory of all sessions. A pool shares the weights of its model and keeps
/// them alive. Sizes: n sessions of a call, I input features, O outputs of a step; those of a network are all elements
/// of its inputs and outputs, one tensor after the other. Except for submit() and waiting(), not safe for concurrent
/// calls on one pool: for one thread on each core that waits for no other, make one pool for each.
class SessionPool {
 public:
  /// Makes a pool for at most `capacity` open sessions. Execution::algorithm has no effect. Throws Error:
  /// invalid_argument for a capacity below 1 or above 2^24, or an impossible queue; unsupported without the device or
  /// the precision; out_of_memory.
  SessionPool(const Model& model, Index capacity, const Execution& execution = {}, const PoolQueue& queue = {});
  /// Makes a pool of a network. `shapes` are those of one stream, as for a NetworkSession. The first extent of each
  /// input and state that the caller chooses is that of the rows of a batch, and 1 in `shapes`. Networks run on a CPU;
  /// of `execution`, only Execution::threads has an effect.
  ///
  /// Throws Error as above, and as a NetworkSession; unsupported, with the reason, for a GPU, or if an input, an output
  /// or a state has no extent for rows or holds other values than floats, or if the answer of a row depends on other
  /// rows.
  SessionPool(const Network& network, const NetworkShapes& shapes, Index capacity, const Execution& execution = {},
              const PoolQueue& queue = {});
  ~SessionPool();
  SessionPool(SessionPool&&) noexcept;
  SessionPool& operator=(SessionPool&&) noexcept;

  Index capacity() const;
  /// Returns the number of open sessions.
  Index open_sessions() const;
  /// Return the numbers of values that a step reads, 1 for a token, and returns.
  Index inputs() const;
  Index outputs() const;
  /// Returns the number of values of state().
  Index state_size() const;

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

  /// Puts a step of a session into the queue: a token, or normalised features [I]. `tag` returns with the answer.
  ///
  /// Returns false if the queue is full: nothing has changed, and the caller has to wait, to slow its stream down or to
  /// refuse it. Allocates nothing and takes no lock. Any thread may call it at any time, steps of one session one
  /// thread at a time. Throws Error(invalid_argument) for a wrong number of values, or for a pool without a queue;
  /// run() checks all else.
  bool submit(PooledSession session, std::int32_t token, std::uint64_t tag = 0);
  bool submit(PooledSession session, std::span<const float> features, std::uint64_t tag = 0);
  /// Returns the number of steps in the queue. Any thread may call it.
  Index waiting() const;
  /// Takes the steps that wait, at most one of each session and PoolQueue::batch of them. If there are none, waits up
  /// to `idle_s` seconds for the first; then up to PoolQueue::wait_s from its arrival, unless the batch is full before.
  /// Returns no answers if none came. Steps of closed sessions fail as in push().
  ///
  /// With C waiting steps at most and r steps a second, a step is answered within wait_s + (C + batch) / r seconds.
  PoolAnswers run(double idle_s = 0);

 private:
  struct Impl;
  template <class Form>
  static std::unique_ptr<Impl> make(Index capacity, const Execution& execution, const PoolQueue& queue,
                                    const Form& form);
  std::unique_ptr<Impl> impl_;

  /// Throws Error(invalid_argument) if the pool was moved from.
  Impl& held() const;
};

}  // namespace penstock
