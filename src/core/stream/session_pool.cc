#include "penstock/session_pool.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>
#include <mutex>

#include "base/alive.h"
#include "base/check.h"
#include "base/threads.h"
#include "nn/enough_memory.h"
#include "ops/pointwise/elementwise.h"
#include "ops/pointwise/embedding.h"
#include "stream/session_rows.h"

namespace penstock {

namespace {

using streaming::SessionRows;

constexpr Index kMostSessions = Index{1} << 24;
// Rows of one batch. Each weight that is read serves as many products; states and products still fit the cache.
constexpr Index kMostRows = 64;
// Rows that pay for another thread.
constexpr Index kRowsOfThread = 16;

/// Numbers of pools: 1 to 2^15 - 1, and again, so that the number of a session fits a signed integer, too.
std::uint64_t next_pool() {
  static std::atomic<std::uint64_t> pools{0};
  return 1 + pools++ % 0x7fff;
}

}  // namespace

struct SessionPool::Impl {
  /// The batches of one thread: of 1, 2, 4 ... rows.
  class Batches {
   public:
    Batches(const Model::Impl& model, Index most, const Execution& execution) {
      for (Index rows = 1; rows < 2 * most; rows *= 2) {
        batches_.push_back(std::make_unique<SessionRows>(model, rows, execution));
      }
    }
    Index most() const { return batches_.back()->rows(); }
    /// Returns the smallest batch for `rows` rows.
    SessionRows& of(Index rows) const {
      return *batches_[static_cast<std::size_t>(std::bit_width(static_cast<std::size_t>(rows) - 1))];
    }

   private:
    std::vector<std::unique_ptr<SessionRows>> batches_;
  };

  Impl(const Model::Impl& model, Index capacity, const Execution& execution)
      : data(model.data), state_size(model.state_size), slots(static_cast<std::size_t>(capacity)) {
    states.resize(slots.size() * static_cast<std::size_t>(state_size));
    ready.reserve(slots.size());
    free.resize(slots.size());
    for (Index slot = 0; slot < capacity; ++slot) free[static_cast<std::size_t>(slot)] = capacity - 1 - slot;
    Execution of_thread = execution;
    of_thread.threads = 1;
    const Index threads = std::clamp<Index>(capacity / kRowsOfThread, 1, resolve_threads(execution.threads));
    for (Index thread = 0; thread < threads; ++thread) {
      batches.emplace_back(model, std::min(capacity, kMostRows), of_thread);
    }
  }

  /// What a session's place in memory knows of it.
  struct Slot {
    std::uint64_t turn = 0;  // of the sessions that had this place
    std::uint64_t call = 0;  // the last one that took a step
    bool open = false;
  };
  /// A session whose step can be computed.
  struct Ready {
    Index position, slot;
  };

  PooledSession session_at(Index slot) const {
    const std::uint64_t turn = slots[static_cast<std::size_t>(slot)].turn & 0xffffff;
    return {number << 48 | turn << 24 | static_cast<std::uint64_t>(slot)};
  }

  Index slot_of(PooledSession session) const {
    require(session.id >> 48 == number, "session {} is not of this pool", session.id);
    const auto slot = static_cast<Index>(session.id & 0xffffff);
    require(slot < static_cast<Index>(slots.size()) && slots[static_cast<std::size_t>(slot)].open &&
                session_at(slot) == session,
            "session {} was closed", session.id);
    return slot;
  }

  std::span<float> state(Index slot) {
    const auto size = static_cast<std::size_t>(state_size);
    return std::span(states).subspan(static_cast<std::size_t>(slot) * size, size);
  }

  Index values_of_step() const { return data.vocabulary > 0 ? 1 : data.input_size(); }

  void check_step(const std::int32_t* token) const { ops::check_tokens({}, token, data.vocabulary); }
  void check_step(const float* features) const {
    streaming::require_near({features, static_cast<std::size_t>(data.input_size())});
  }

  void fail_at(Index position, const Error& error, std::span<float> outputs) {
    const auto width = static_cast<std::size_t>(data.output_size());
    std::ranges::fill(outputs.subspan(static_cast<std::size_t>(position) * width, width),
                      std::numeric_limits<float>::quiet_NaN());
    const std::scoped_lock lock(failing);
    failures.push_back({position, error});
  }

  /// Finds the sessions whose step can be computed.
  template <class Value>
  void find_ready(std::span<const PooledSession> sessions, const Value* values, std::span<float> outputs) {
    ++call;
    ready.clear();
    for (Index position = 0; position < static_cast<Index>(sessions.size()); ++position) {
      try {
        const Index slot = slot_of(sessions[static_cast<std::size_t>(position)]);
        std::uint64_t& last = slots[static_cast<std::size_t>(slot)].call;
        require(last != call, "a session takes one step in a call, but this one comes twice");
        check_step(values + position * values_of_step());
        last = call;
        ready.push_back({position, slot});
      } catch (const Error& error) {
        fail_at(position, error, outputs);
      }
    }
  }

  /// Computes a step of a few sessions in one batch.
  template <class Value>
  void run(SessionRows& rows, std::span<const Ready> part, const Value* values, std::span<float> outputs) {
    auto* const input = static_cast<Value*>(rows.input());
    for (std::size_t row = 0; row < part.size(); ++row) {
      rows.set_row(static_cast<Index>(row), state(part[row].slot).data());
      std::copy_n(values + part[row].position * values_of_step(), values_of_step(),
                  input + static_cast<Index>(row) * values_of_step());
    }
    const float* answer = rows.step().data();
    const Index width = data.output_size();
    for (std::size_t row = 0; row < part.size(); ++row, answer += width) {
      const auto [position, slot] = part[row];
      if (ops::all_finite(1, width, answer)) {
        rows.copy_row(static_cast<Index>(row), state(slot).data());
        std::copy_n(answer, width, outputs.data() + position * width);
      } else {
        std::ranges::fill(state(slot), 0.0f);
        fail_at(position, Error(ErrorCode::numerical, "the model's answer is not finite; the session was reset"),
                outputs);
      }
    }
  }

  template <class Value>
  std::vector<PoolFailure> push(std::span<const PooledSession> sessions, std::span<const Value> values,
                                std::span<float> outputs) {
    const auto size = sessions.size() * static_cast<std::size_t>(data.output_size());
    require(outputs.size() == size, "outputs must hold {} values, not {}", size, outputs.size());
    find_ready(sessions, values.data(), outputs);
    const std::span<const Ready> all(ready);
    const auto team = std::clamp<std::size_t>(all.size() / kRowsOfThread, 1, batches.size());
    run_team(static_cast<int>(team), [&](int thread, int threads) {
      const auto begin = all.size() * static_cast<std::size_t>(thread) / static_cast<std::size_t>(threads);
      const auto end = all.size() * static_cast<std::size_t>(thread + 1) / static_cast<std::size_t>(threads);
      const Batches& own = batches[static_cast<std::size_t>(thread)];
      for (std::size_t at = begin; at < end;) {
        const std::size_t count = std::min(end - at, static_cast<std::size_t>(own.most()));
        run(own.of(static_cast<Index>(count)), all.subspan(at, count), values.data(), outputs);
        at += count;
      }
    });
    std::ranges::sort(failures, {}, &PoolFailure::position);
    return std::exchange(failures, {});
  }

  DataDescription data;
  Index state_size;
  std::uint64_t number = next_pool();
  std::vector<Slot> slots;
  std::vector<Index> free;       // the next session gets the last one
  std::vector<float> states;     // [capacity, state_size], each in the order of a session by itself
  std::vector<Batches> batches;  // of each thread
  std::uint64_t call = 0;
  std::vector<Ready> ready;
  std::mutex failing;  // taken for a failure only
  std::vector<PoolFailure> failures;
};

SessionPool::SessionPool(const Model& model, Index capacity, const Execution& execution) {
  require_argument(capacity >= 1 && capacity <= kMostSessions, "capacity", capacity, "in 1..{}", kMostSessions);
  if (execution.device.is_cuda()) {
    fail(ErrorCode::unsupported, "a pool of sessions runs on a CPU, not on {}: a SessionBatch steps many rows there",
         to_string(execution.device));
  }
  const auto need = [&] {
    const auto bytes = static_cast<std::size_t>(capacity * model.impl().state_size) * sizeof(float);
    return nn::MemoryNeed{fmt::format("a pool of {} sessions", capacity), [=] { return bytes; },
                          "a smaller capacity needs less"};
  };
  impl_ = nn::with_enough_memory(execution.device, need,
                                 [&] { return std::make_unique<Impl>(model.impl(), capacity, execution); });
}
SessionPool::~SessionPool() = default;
SessionPool::SessionPool(SessionPool&&) noexcept = default;
SessionPool& SessionPool::operator=(SessionPool&&) noexcept = default;

SessionPool::Impl& SessionPool::held() const { return alive(impl_, "the pool of sessions"); }

Index SessionPool::capacity() const { return static_cast<Index>(held().slots.size()); }
Index SessionPool::open_sessions() const { return capacity() - static_cast<Index>(held().free.size()); }

PooledSession SessionPool::open() {
  Impl& impl = held();
  if (impl.free.empty()) {
    fail(ErrorCode::out_of_memory,
         "all {} sessions of the pool are open: close one, or make a pool of a larger capacity", capacity());
  }
  const Index slot = impl.free.back();
  impl.free.pop_back();
  Impl::Slot& place = impl.slots[static_cast<std::size_t>(slot)];
  ++place.turn;
  place.open = true;
  std::ranges::fill(impl.state(slot), 0.0f);
  return impl.session_at(slot);
}

void SessionPool::close(PooledSession session) {
  Impl& impl = held();
  const Index slot = impl.slot_of(session);
  impl.slots[static_cast<std::size_t>(slot)].open = false;
  impl.free.push_back(slot);
}

void SessionPool::reset(PooledSession session) {
  Impl& impl = held();
  std::ranges::fill(impl.state(impl.slot_of(session)), 0.0f);
}

std::vector<float> SessionPool::state(PooledSession session) const {
  Impl& impl = held();
  const std::span<const float> state = impl.state(impl.slot_of(session));
  return {state.begin(), state.end()};
}

void SessionPool::restore(PooledSession session, std::span<const float> state) {
  Impl& impl = held();
  const std::span<float> own = impl.state(impl.slot_of(session));
  streaming::require_state(impl.state_size, state);
  std::ranges::copy(state, own.begin());
}

std::vector<PoolFailure> SessionPool::push(std::span<const PooledSession> sessions,
                                           std::span<const std::int32_t> tokens, std::span<float> outputs) {
  Impl& impl = held();
  streaming::require_tokens(impl.data);
  require(tokens.size() == sessions.size(), "tokens must hold {} values, not {}", sessions.size(), tokens.size());
  return impl.push(sessions, tokens, outputs);
}

std::vector<PoolFailure> SessionPool::push(std::span<const PooledSession> sessions, std::span<const float> features,
                                           std::span<float> outputs) {
  Impl& impl = held();
  streaming::require_features(impl.data, static_cast<Index>(sessions.size()), features.size());
  return impl.push(sessions, features, outputs);
}

}  // namespace penstock
