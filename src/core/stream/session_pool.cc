#include "penstock/session_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "base/alive.h"
#include "base/check.h"
#include "base/step_queue.h"
#include "base/threads.h"
#include "nn/enough_memory.h"
#include "ops/pointwise/elementwise.h"
#include "ops/pointwise/embedding.h"
#include "stream/pool_rows.h"
#include "stream/session_rows.h"

namespace penstock {

namespace {

using streaming::form_of, streaming::PoolForm, streaming::PoolParts, streaming::PoolRows, streaming::PoolStep;

constexpr Index kMostSessions = Index{1} << 24;
constexpr double kLongestWait = 1e6;  // seconds
// Rows that pay for another thread.
constexpr Index kRowsOfThread = 16;

/// Numbers of pools: 1 to 2^15 - 1, and again, so that the number of a session fits a signed integer, too.
std::uint64_t next_pool() {
  static std::atomic<std::uint64_t> pools{0};
  return 1 + pools++ % 0x7fff;
}

}  // namespace

struct SessionPool::Impl {
  /// The batches of one thread, by their rows.
  using Batches = std::vector<std::unique_ptr<PoolRows>>;

  Impl(PoolForm its, Index capacity, int most_threads, const PoolQueue& waiting)
      : form(std::move(its)), slots(static_cast<std::size_t>(capacity)) {
    ready.reserve(slots.size());
    free.resize(slots.size());
    for (Index slot = 0; slot < capacity; ++slot) free[static_cast<std::size_t>(slot)] = capacity - 1 - slot;
    const Index threads = std::clamp<Index>(capacity / kRowsOfThread, 1, resolve_threads(most_threads));
    memory = form.make(threads);
    form.make = nullptr;  // it refers to the model
    if (waiting.steps > 0) queued.emplace(waiting, form, threads * form.sizes.back());
  }

  /// Returns a batch for some of `rows` ready rows.
  PoolRows& batch_for(const Batches& own, Index rows) const {
    const auto fits = std::ranges::lower_bound(form.sizes, rows) - form.sizes.begin();
    const bool last = fits == static_cast<std::ptrdiff_t>(form.sizes.size());
    const bool smaller = last || (!form.pads && form.sizes[static_cast<std::size_t>(fits)] > rows);
    return *own[static_cast<std::size_t>(smaller ? fits - 1 : fits)];
  }

  /// What a session's place in memory knows of it.
  struct Slot {
    std::uint64_t turn = 0;  // of the sessions that had this place
    std::uint64_t call = 0;  // the last one that took a step
    bool open = false;
  };

  PooledSession session_at(Index slot) const {
    const std::uint64_t turn = slots[static_cast<std::size_t>(slot)].turn & 0xffffff;
    return {number << 48 | turn << 24 | static_cast<std::uint64_t>(slot)};
  }

  /// Returns the place of an open session of this pool; nothing for any other.
  std::optional<Index> find_slot(PooledSession session) const {
    const auto slot = static_cast<Index>(session.id & 0xffffff);
    const bool open = slot < static_cast<Index>(slots.size()) && slots[static_cast<std::size_t>(slot)].open;
    return open && session_at(slot) == session ? std::optional(slot) : std::nullopt;
  }

  Index slot_of(PooledSession session) const {
    require(session.id >> 48 == number, "session {} is not of this pool", session.id);
    const std::optional<Index> slot = find_slot(session);
    require(slot.has_value(), "session {} was closed", session.id);
    return *slot;
  }

  /// Throws Error(invalid_argument) unless `given` values are n steps of the kind that the pool reads.
  template <class Value>
  void require_steps(std::size_t n, std::size_t given) const {
    const bool tokens = std::is_same_v<Value, std::int32_t>;
    require(tokens == (form.vocabulary > 0), "this model reads {}, not {}", tokens ? "features" : "tokens",
            tokens ? "tokens" : "features");
    const std::size_t expected = n * static_cast<std::size_t>(form.inputs);
    require(given == expected, "{} must hold {} values, not {}", tokens ? "tokens" : "features", expected, given);
  }

  void check_steps(const std::int32_t* tokens, std::size_t count) const {
    ops::check_tokens({.rows = static_cast<Index>(count), .steps = 1}, tokens, form.vocabulary);
  }
  void check_steps(const float* features, std::size_t count) const {
    streaming::require_near({features, count * static_cast<std::size_t>(form.inputs)});
  }

  void fail_at(Index position, const Error& error, std::span<float> outputs) {
    const auto width = static_cast<std::size_t>(form.outputs);
    std::ranges::fill(outputs.subspan(static_cast<std::size_t>(position) * width, width),
                      std::numeric_limits<float>::quiet_NaN());
    const std::scoped_lock lock(failing);
    failures.push_back({position, error});
  }

  /// Finds the sessions that take a step.
  void find_ready(std::span<const PooledSession> sessions, std::span<float> outputs) {
    ++call;
    ready.clear();
    for (Index position = 0; position < static_cast<Index>(sessions.size()); ++position) {
      try {
        const Index slot = slot_of(sessions[static_cast<std::size_t>(position)]);
        const std::uint64_t last = std::exchange(slots[static_cast<std::size_t>(slot)].call, call);
        require(last != call, "a session takes one step in a call, but this one comes twice");
        ready.push_back({position, slot});
      } catch (const Error& error) {
        fail_at(position, error, outputs);
      }
    }
  }

  /// Sets the rows of a batch. Returns those that are set: steps with values that a model does not take are left out.
  template <class Value>
  std::span<const PoolStep> set_rows(PoolRows& rows, std::span<PoolStep> part, const Value* values,
                                     std::span<float> outputs) {
    const auto check = [&](std::span<const PoolStep> steps) {
      check_steps(values + steps.front().position * form.inputs, steps.size());
    };
    if (streaming::are_gapless(part)) {  // all at once: calls for each row take longer than the copies
      try {
        check(part);
        rows.set_rows(0, part, values);
        return part;
      } catch (const Error&) {
        // The steps that are refused are found below.
      }
    }
    std::size_t set = 0;
    for (const PoolStep step : part) {
      try {
        check({&step, 1});
      } catch (const Error& error) {
        fail_at(step.position, error, outputs);
        continue;
      }
      rows.set_rows(static_cast<Index>(set), {&step, 1}, values);
      part[set++] = step;
    }
    return part.first(set);
  }

  bool are_finite(std::span<const PoolStep> steps, std::span<const float> outputs) const {
    const Index values = static_cast<Index>(steps.size()) * form.outputs;
    return ops::all_finite(1, values, outputs.data() + steps.front().position * form.outputs);
  }

  /// Computes a step of a few sessions in one batch.
  template <class Value>
  void run(PoolRows& rows, std::span<PoolStep> all, const Value* values, std::span<float> outputs) {
    const std::span<const PoolStep> part = set_rows(rows, all, values, outputs);
    if (part.empty()) return;
    rows.step(static_cast<Index>(part.size()));
    rows.copy_outputs(part, outputs.data());
    if (streaming::are_gapless(part) && are_finite(part, outputs)) {
      rows.keep_states(part);
      return;
    }
    Index row = 0;
    for (const PoolStep& step : part) {
      if (are_finite({&step, 1}, outputs)) {
        rows.keep_state(row, step.slot);
      } else {
        memory.states->clear(step.slot);
        fail_at(step.position, Error(ErrorCode::numerical, "the model's answer is not finite; the session was reset"),
                outputs);
      }
      ++row;
    }
  }

  template <class Value>
  std::vector<PoolFailure> push(std::span<const PooledSession> sessions, std::span<const Value> values,
                                std::span<float> outputs) {
    const auto size = sessions.size() * static_cast<std::size_t>(form.outputs);
    require(outputs.size() == size, "outputs must hold {} values, not {}", size, outputs.size());
    find_ready(sessions, outputs);
    const std::span<PoolStep> all(ready);
    const auto team = std::clamp<std::size_t>(all.size() / kRowsOfThread, 1, memory.batches.size());
    run_team(static_cast<int>(team), [&](int thread, int threads) {
      const auto begin = all.size() * static_cast<std::size_t>(thread) / static_cast<std::size_t>(threads);
      const auto end = all.size() * static_cast<std::size_t>(thread + 1) / static_cast<std::size_t>(threads);
      const Batches& own = memory.batches[static_cast<std::size_t>(thread)];
      // Batches of one size keep one packed copy of the weights in the cache.
      const std::size_t most = static_cast<std::size_t>(form.sizes.back()), parts = (end - begin + most - 1) / most;
      const std::size_t even = parts > 0 ? (end - begin + parts - 1) / parts : 0;
      for (std::size_t at = begin; at < end;) {
        PoolRows& rows = batch_for(own, static_cast<Index>(form.pads ? even : end - at));
        const std::size_t count = std::min(end - at, static_cast<std::size_t>(rows.rows()));
        run(rows, all.subspan(at, count), values.data(), outputs);
        at += count;
      }
    });
    std::ranges::sort(failures, {}, &PoolFailure::position);
    return std::exchange(failures, {});
  }

  /// Steps that wait, and those that run() takes next.
  struct Queued {
    Queued(const PoolQueue& given, const PoolForm& form, Index batch)
        : wait(std::chrono::duration_cast<StepQueue::Clock::duration>(std::chrono::duration<double>(given.wait_s))),
          most(static_cast<std::size_t>(std::min(given.batch > 0 ? given.batch : batch, given.steps))),
          steps(given.steps, static_cast<std::size_t>(form.inputs) * sizeof(float)),
          values(most * static_cast<std::size_t>(form.inputs) * sizeof(float)),
          outputs(most * static_cast<std::size_t>(form.outputs)) {
      taken.reserve(static_cast<std::size_t>(given.steps));
      sessions.reserve(most);
      tags.reserve(most);
    }
    StepQueue::Clock::duration wait;
    std::size_t most;
    StepQueue steps;
    std::vector<std::byte> values;  // of a batch: tokens or features
    std::vector<float> outputs;
    std::vector<char> taken;
    std::vector<PooledSession> sessions;
    std::vector<std::uint64_t> tags;
  };

  Queued& queue() {
    require(queued.has_value(), "this pool has no queue: make it with PoolQueue::steps above 0");
    return *queued;
  }

  /// Takes steps out of the queue: the first of each session.
  void take_steps(Queued& from) {
    ++call;
    from.taken.clear();
    from.sessions.clear();
    from.tags.clear();
    const std::size_t there = from.steps.look();
    for (std::size_t place = 0; place < there && from.sessions.size() < from.most; ++place) {
      const StepQueue::View step = from.steps.at(place);
      const std::optional<Index> slot = find_slot({step.session});
      const bool first = !slot || std::exchange(slots[static_cast<std::size_t>(*slot)].call, call) != call;
      from.taken.push_back(first ? 1 : 0);
      if (!first) continue;
      const std::size_t bytes = static_cast<std::size_t>(form.inputs) * sizeof(float);
      std::memcpy(from.values.data() + from.sessions.size() * bytes, step.step, bytes);
      from.sessions.push_back({step.session});
      from.tags.push_back(step.tag);
    }
    from.steps.drop(from.taken);
  }

  PoolAnswers run(double idle_s) {
    Queued& from = queue();
    const auto idle = std::chrono::duration<double>(std::clamp(idle_s, 0.0, kLongestWait));
    const auto now = StepQueue::Clock::now();
    const bool any = from.steps.wait(1, now + std::chrono::duration_cast<StepQueue::Clock::duration>(idle)) > 0;
    if (any && from.wait.count() > 0) from.steps.wait(from.most, from.steps.since() + from.wait);
    take_steps(from);
    const auto push_as = [&]<class Value>(Value /*of a step*/) {
      const std::size_t count = from.sessions.size();
      const auto outputs = std::span(from.outputs).first(count * static_cast<std::size_t>(form.outputs));
      const std::span values(reinterpret_cast<const Value*>(from.values.data()),
                             count * static_cast<std::size_t>(form.inputs));
      std::vector<PoolFailure> failed = push(std::span<const PooledSession>(from.sessions), values, outputs);
      return PoolAnswers{from.sessions, from.tags, outputs, std::move(failed)};
    };
    return form.vocabulary > 0 ? push_as(std::int32_t{}) : push_as(float{});
  }

  PoolForm form;
  std::uint64_t number = next_pool();
  std::vector<Slot> slots;
  std::vector<Index> free;  // the next session gets the last one
  PoolParts memory;
  std::uint64_t call = 0;
  std::vector<PoolStep> ready;
  std::mutex failing;  // taken for a failure only
  std::vector<PoolFailure> failures;
  std::optional<Queued> queued;
};

template <class Form>
std::unique_ptr<SessionPool::Impl> SessionPool::make(Index capacity, const Execution& execution, const PoolQueue& queue,
                                                     const Form& form) {
  require_argument(capacity >= 1 && capacity <= kMostSessions, "capacity", capacity, "in 1..{}", kMostSessions);
  require_argument(queue.steps >= 0 && queue.steps <= kMostSessions, "queue.steps", queue.steps, "in 0..{}",
                   kMostSessions);
  require_argument(queue.wait_s >= 0 && queue.wait_s <= kLongestWait, "queue.wait_s", queue.wait_s, "in 0..{}",
                   kLongestWait);
  require_argument(queue.batch >= 0, "queue.batch", queue.batch, "at least 0");
  PoolForm made;
  const auto need = [&] {
    const auto bytes = static_cast<std::size_t>(capacity * made.state_size + queue.steps * made.inputs) * sizeof(float);
    return nn::MemoryNeed{fmt::format("a pool of {} sessions", capacity), [=] { return bytes; },
                          "a smaller capacity needs less"};
  };
  return nn::with_enough_memory(execution.device, need, [&] {
    made = form();
    return std::make_unique<Impl>(made, capacity, execution.device.is_cuda() ? 1 : execution.threads, queue);
  });
}

SessionPool::SessionPool(const Model& model, Index capacity, const Execution& execution, const PoolQueue& queue)
    : impl_(make(capacity, execution, queue, [&] {
        Execution of_thread = execution;
        of_thread.threads = 1;
        return form_of(model.impl(), capacity, of_thread);
      })) {}
SessionPool::SessionPool(const Network& network, const NetworkShapes& shapes, Index capacity,
                         const Execution& execution, const PoolQueue& queue)
    : impl_(make(capacity, execution, queue, [&] {
        if (execution.device.is_cuda()) {
          fail(ErrorCode::unsupported, "a pool of networks runs on a CPU, not on {}", to_string(execution.device));
        }
        return form_of(network, shapes, capacity);
      })) {}
SessionPool::~SessionPool() = default;
SessionPool::SessionPool(SessionPool&&) noexcept = default;
SessionPool& SessionPool::operator=(SessionPool&&) noexcept = default;

SessionPool::Impl& SessionPool::held() const { return alive(impl_, "the pool of sessions"); }

Index SessionPool::capacity() const { return static_cast<Index>(held().slots.size()); }
Index SessionPool::open_sessions() const { return capacity() - static_cast<Index>(held().free.size()); }
Index SessionPool::inputs() const { return held().form.inputs; }
Index SessionPool::outputs() const { return held().form.outputs; }
Index SessionPool::state_size() const { return held().form.state_size; }

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
  impl.memory.states->clear(slot);
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
  impl.memory.states->clear(impl.slot_of(session));
}

std::vector<float> SessionPool::state(PooledSession session) const {
  Impl& impl = held();
  std::vector<float> state(static_cast<std::size_t>(impl.form.state_size));
  impl.memory.states->copy(impl.slot_of(session), state);
  return state;
}

void SessionPool::restore(PooledSession session, std::span<const float> state) {
  Impl& impl = held();
  const Index slot = impl.slot_of(session);
  streaming::require_state(impl.form.state_size, state);
  impl.memory.states->set(slot, state);
}

std::vector<PoolFailure> SessionPool::push(std::span<const PooledSession> sessions,
                                           std::span<const std::int32_t> tokens, std::span<float> outputs) {
  Impl& impl = held();
  impl.require_steps<std::int32_t>(sessions.size(), tokens.size());
  return impl.push(sessions, tokens, outputs);
}

std::vector<PoolFailure> SessionPool::push(std::span<const PooledSession> sessions, std::span<const float> features,
                                           std::span<float> outputs) {
  Impl& impl = held();
  impl.require_steps<float>(sessions.size(), features.size());
  return impl.push(sessions, features, outputs);
}

bool SessionPool::submit(PooledSession session, std::int32_t token, std::uint64_t tag) {
  Impl& impl = held();
  impl.require_steps<std::int32_t>(1, 1);
  return impl.queue().steps.push(session.id, tag, &token);
}

bool SessionPool::submit(PooledSession session, std::span<const float> features, std::uint64_t tag) {
  Impl& impl = held();
  impl.require_steps<float>(1, features.size());
  return impl.queue().steps.push(session.id, tag, features.data());
}

Index SessionPool::waiting() const { return held().queue().steps.size(); }

PoolAnswers SessionPool::run(double idle_s) { return held().run(idle_s); }

}  // namespace penstock
