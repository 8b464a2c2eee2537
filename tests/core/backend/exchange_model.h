#pragma once

#include <gtest/gtest.h>

#include <coroutine>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "penstock/types.h"

/// A machine on which the exchange protocols of the kernels run as on a GPU: agents in random order, stores that become
/// visible late and out of order, copies that end at any time. A protocol is right if every schedule gives each reader
/// the value that it waits for.
namespace penstock::test {

/// A schedule that shows an error: a wrong value, or agents that wait for each other for ever.
struct ProtocolError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void demand(bool holds, const char* what) {
  if (!holds) throw ProtocolError(what);
}

/// A thread of a kernel. Every co_await is a point at which others may run.
class Agent {
 public:
  struct promise_type {
    std::exception_ptr error;
    Agent get_return_object() { return Agent(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { error = std::current_exception(); }
  };

  Agent(Agent&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Agent& operator=(Agent&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Agent() {
    if (handle_) handle_.destroy();
  }

  bool done() const { return handle_.done(); }
  void run() {
    const auto handle = handle_;  // this object may move meanwhile, as agents add others
    handle.resume();
    if (handle.promise().error) std::rethrow_exception(handle.promise().error);
  }

 private:
  explicit Agent(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

using Step = std::suspend_always;

/// One random schedule.
class Machine {
 public:
  explicit Machine(unsigned seed) : random_(seed) {}

  Index below(Index limit) { return static_cast<Index>(random_() % static_cast<std::uint64_t>(limit)); }
  bool happens(int in) { return below(in) == 0; }

  void add(Agent agent) { agents_.push_back(std::move(agent)); }
  /// Something that the hardware does some time later, such as the end of a copy. Effects are in no order, and some
  /// are very late.
  void later(std::function<void()> effect) {
    constexpr Index kLate = 1500;  // steps: several times around all agents and buffers
    effects_.push_back({std::move(effect), happens(16) ? step_ + below(kLate) : 0});
  }

  /// Runs all agents to their ends.
  void run() {
    constexpr Index kMost = 200000;  // steps, beyond which agents are taken to wait for each other
    for (; step_ < kMost; ++step_) {
      std::erase_if(agents_, [](const Agent& agent) { return agent.done(); });
      if (!effects_.empty() && (agents_.empty() || happens(3))) {
        const Index i = below(std::ssize(effects_));
        const Effect effect = effects_[static_cast<std::size_t>(i)];
        if (effect.earliest > step_) continue;
        effects_.erase(effects_.begin() + i);
        effect.take();
      } else if (!agents_.empty()) {
        agents_[static_cast<std::size_t>(below(std::ssize(agents_)))].run();
      } else {
        return;
      }
    }
    throw ProtocolError("agents wait for each other");
  }

 private:
  struct Effect {
    std::function<void()> take;
    Index earliest;  // step
  };

  std::mt19937_64 random_;
  Index step_ = 0;
  std::vector<Agent> agents_;
  std::deque<Effect> effects_;
};

/// Memory of the whole chip. Stores of a block wait in its buffer and leave it at any time: in order for one address,
/// in no order between addresses. A fence, or a release, empties the buffer. Loads take place at once and in order.
/// Copies of the copy engine may still see what was there before, until a fence between the two kinds of access.
class ChipMemory {
 public:
  ChipMemory(Machine& machine, int blocks, int value) : machine_(machine), buffers_(blocks), first_(value) {}

  void store(int block, int address, int value) {
    buffers_[static_cast<std::size_t>(block)][address].push_back(value);
    machine_.later([this, block, address] { drain(block, address); });
  }
  /// What a block's loads see: its own stores at once.
  int load(int block, int address) const {
    const auto& own = buffers_[static_cast<std::size_t>(block)];
    if (const auto at = own.find(address); at != own.end() && !at->second.empty()) return at->second.back();
    return value_of(values_, address);
  }
  void fence(int block) {
    for (auto& [address, waiting] : buffers_[static_cast<std::size_t>(block)]) {
      if (!waiting.empty()) values_[address] = waiting.back();
      waiting.clear();
    }
  }
  /// Adds to a counter that everybody sees at once; `release`: and all earlier stores of the block.
  void add(int block, int address, bool release) {
    if (release) fence(block);
    values_[address] = value_of(values_, address) + 1;
  }
  /// The fence between ordinary accesses and copies, for what the chip sees now.
  void show_to_copies() { copied_ = values_; }
  int load_by_copy(int address) {
    if (machine_.happens(4)) copied_[address] = value_of(values_, address);
    return value_of(copied_, address);
  }

 private:
  int value_of(const std::map<int, int>& values, int address) const {
    const auto at = values.find(address);
    return at != values.end() ? at->second : first_;
  }
  void drain(int block, int address) {
    auto& waiting = buffers_[static_cast<std::size_t>(block)][address];
    if (waiting.empty()) return;  // a fence was quicker
    values_[address] = waiting.front();
    waiting.pop_front();
  }

  Machine& machine_;
  std::vector<std::map<int, std::deque<int>>> buffers_;
  std::map<int, int> values_, copied_;
  int first_;
};

/// CopyBarrier of sm90.cuh: a phase ends when all arrivals and all announced bytes are there.
class PhaseBarrier {
 public:
  void init(int arrivals) { arrivals_ = pending_ = arrivals; }
  void arrive() {
    demand(arrivals_ > 0, "a barrier is used before it exists");
    --pending_;
    end_phase();
  }
  void expect_bytes(int bytes) {
    bytes_ += bytes;
    arrive();
  }
  void complete(int bytes) {
    demand(arrivals_ > 0, "bytes arrive before the barrier exists");
    bytes_ -= bytes;
    end_phase();
  }
  /// Returns whether the phase of this parity is over.
  bool passed(int parity) const { return (phase_ & 1) != parity; }

 private:
  void end_phase() {
    if (pending_ > 0 || bytes_ != 0) return;
    ++phase_;
    pending_ = arrivals_;
  }
  int arrivals_ = 0, pending_ = 0, bytes_ = 0, phase_ = 0;
};

/// A barrier at which all of some agents meet.
class MeetingPoint {
 public:
  explicit MeetingPoint(int agents) : agents_(agents) {}
  /// Returns the number of the meeting that this arrival counts for.
  int arrive() {
    const int meeting = arrived_ / agents_;
    ++arrived_;
    return meeting;
  }
  bool over(int meeting) const { return arrived_ >= (meeting + 1) * agents_; }

 private:
  int agents_, arrived_ = 0;
};

constexpr unsigned kSchedules = 1000;
constexpr int kNothing = -1;  // where nothing has been stored

/// Value of step `step` that block `source` sends.
inline int value_of(int step, int source) { return step * 100 + source; }

/// The first schedule that shows an error, as text; nothing if all hold. `begin` adds agents to a machine, and returns
/// what they share.
template <class Protocol, class Options>
std::optional<std::string> first_error(const Options& options) {
  for (unsigned seed = 0; seed < kSchedules; ++seed) {
    Machine machine(seed);
    Protocol protocol(machine, options);
    try {
      machine.run();
    } catch (const ProtocolError& error) {
      return "schedule " + std::to_string(seed) + ": " + error.what();
    }
  }
  return std::nullopt;
}

/// Checks a protocol, then that it fails with each of some options changed.
template <class Protocol, class Options>
void check(const Options& whole, std::initializer_list<std::pair<const char*, void (*)(Options&)>> changes) {
  const auto error = first_error<Protocol>(whole);
  EXPECT_FALSE(error.has_value()) << error.value_or("");
  for (const auto& [what, change] : changes) {
    Options changed = whole;
    change(changed);
    EXPECT_TRUE(first_error<Protocol>(changed).has_value()) << what << " could be left out";
  }
}

}  // namespace penstock::test
