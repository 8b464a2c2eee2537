#pragma once

// A GPU for kernels that run as threads of the host (host_instructions.h). Lanes are
// fibers that give way to each other where they wait, in random order. Copies end and remote stores arrive at any time
// before they are waited for. Lanes of a warp that meet in different instructions, and threads that wait for each other
// for ever, are errors.

#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace host_gpu {

struct Fault {
  std::string what;
};

constexpr int kLanes = 32;
constexpr unsigned kWindow = 1u << 18;  // bytes of the addresses of a block's shared memory

struct Words {
  unsigned word[8];
};

struct Warp {
  Words slot[2][kLanes];
  const char* instruction = nullptr;
  int lanes = kLanes, arrived = 0, round = 0;
};

struct Meeting {
  int arrived = 0, round = 0;
  bool all[2] = {};  // what threads said that met, of this round and of the one before
};

/// An mbarrier.
struct PhaseBarrier {
  int arrivals = 0, pending = 0, bytes = 0, phase = 0;
  void end_phase() {
    if (pending > 0 || bytes != 0) return;
    ++phase, pending = arrivals;
  }
};

struct Block {
  int number = 0, threads = 0;
  char* shared = nullptr;
  std::vector<Warp> warps;
  std::map<int, Meeting> barriers;
  std::map<std::string, std::vector<char>> variables;  // static shared memory by its declaration
};

struct Copy {
  void* to;
  const void* from;  // null: zeros
  int bytes, read;
};

struct Thread {
  Block* block = nullptr;
  int number = 0;
  ucontext_t context = {};
  std::unique_ptr<char[]> stack;
  bool done = false;
  std::vector<Copy> open;                // copies of the group that is not committed yet
  std::deque<std::vector<Copy>> groups;  // committed, not ended yet
  int lane() const { return number % kLanes; }
  Warp& warp() const { return block->warps[static_cast<std::size_t>(number / kLanes)]; }
};

class Machine {
 public:
  static Machine*& now() {
    static Machine* machine = nullptr;
    return machine;
  }

  Machine(int grid, int threads, int cluster, int shared_bytes, unsigned seed, std::function<void()> kernel)
      : grid_(grid), cluster_(cluster), kernel_(std::move(kernel)), random_(seed) {
    memory_ = std::make_unique<char[]>(static_cast<std::size_t>(grid) * kWindow + 128);
    auto base = (reinterpret_cast<std::uintptr_t>(memory_.get()) + 127) / 128 * 128;
    shared_ = reinterpret_cast<char*>(base);
    blocks_.resize(static_cast<std::size_t>(grid));
    for (int b = 0; b < grid; ++b) {
      Block& block = blocks_[static_cast<std::size_t>(b)];
      block.number = b, block.threads = threads;
      block.shared = shared_ + static_cast<std::size_t>(b) * kWindow;
      // What nobody wrote is no number.
      std::memset(block.shared, 0xff, static_cast<std::size_t>(shared_bytes));
      block.warps.resize(static_cast<std::size_t>(threads / kLanes));
      for (int t = 0; t < threads; ++t) {
        auto& thread = *threads_.emplace_back(std::make_unique<Thread>());
        thread.block = &block, thread.number = t;
        thread.stack.reset(new char[kStack]);
        getcontext(&thread.context);
        thread.context.uc_stack.ss_sp = thread.stack.get(), thread.context.uc_stack.ss_size = kStack;
        thread.context.uc_link = &main_;
        makecontext(&thread.context, &Machine::enter, 0);
      }
    }
  }

  void run() {
    now() = this;
    std::vector<std::size_t> warps(threads_.size() / kLanes);
    for (std::size_t i = 0; i < warps.size(); ++i) warps[i] = i;
    std::size_t left = threads_.size();
    constexpr int most_idle = 5000;
    constexpr unsigned rarely = 60, long_time = 120;
    std::vector<int> asleep(warps.size());
    for (int idle = 0; left > 0; ++idle) {
      if (idle > most_idle) throw Fault{"threads wait for each other for ever"};
      std::shuffle(warps.begin(), warps.end(), random_);
      const long before = progress_;
      for (const std::size_t warp : warps) {
        // Now and then a warp stays behind the others for a while.
        if (asleep[warp] == 0 && happens(rarely)) asleep[warp] = static_cast<int>(random_() % long_time);
        if (asleep[warp] > 0 && asleep[warp]-- > 0) continue;
        for (int lane = 0; lane < kLanes; ++lane) {
          Thread& thread = *threads_[warp * kLanes + static_cast<std::size_t>(lane)];
          if (thread.done) continue;
          current_ = &thread;
          swapcontext(&main_, &thread.context);
          if (fault_) throw *fault_;
          if (thread.done) --left, ++progress_;
        }
        deliver(3);
      }
      if (progress_ != before) idle = 0;
    }
    deliver(1);
  }

  Thread& thread() { return *current_; }
  Block& block() { return *current_->block; }
  int grid() const { return grid_; }
  int cluster() const { return cluster_; }
  bool happens(unsigned in) { return random_() % in == 0; }
  void made_progress() { ++progress_; }

  void yield() { swapcontext(&current_->context, &main_); }
  [[noreturn]] void fail(const std::string& what) {
    fault_ =
        Fault{"block " + std::to_string(block().number) + ", thread " + std::to_string(thread().number) + ": " + what};
    while (true) yield();
  }

  /// What all lanes of the warp bring to an instruction.
  const Words* meet(const char* instruction, const Words& own) {
    Thread& thread = this->thread();
    Warp& warp = thread.warp();
    const int round = warp.round;
    if (warp.arrived > 0 && warp.instruction != instruction) {
      fail(std::string("lanes meet in ") + warp.instruction + " and " + instruction);
    }
    warp.instruction = instruction;
    warp.slot[round & 1][thread.lane()] = own;
    if (++warp.arrived == warp.lanes) {
      warp.arrived = 0, ++warp.round, ++progress_;
    } else {
      while (warp.round == round) yield();
    }
    return warp.slot[round & 1];
  }

  void meet_block(int barrier, int threads) {
    Meeting& meeting = block().barriers[barrier];
    const int round = meeting.round;
    if (++meeting.arrived == threads) {
      meeting.arrived = 0, ++meeting.round, ++progress_;
    } else {
      while (meeting.round == round) yield();
    }
  }

  Meeting& cluster_meeting() { return clusters_[block().number / cluster_]; }

  unsigned address_of(const void* p) const { return static_cast<unsigned>(static_cast<const char*>(p) - shared_); }
  char* at(unsigned address) { return shared_ + address; }
  PhaseBarrier& barrier(unsigned address) {
    const auto found = phases_.find(address);
    if (found == phases_.end()) fail("a barrier is used before it exists");
    return found->second;
  }
  void make_barrier(unsigned address, int arrivals) { phases_[address] = {arrivals, arrivals, 0, 0}; }

  /// Stores in another block's shared memory some time later.
  void store_later(unsigned to, const Words& words, unsigned barrier) {
    late_.push_back({to, words, barrier});
    deliver(4);
  }

  static void end(const Copy& copy) {
    std::memset(copy.to, 0, static_cast<std::size_t>(copy.bytes));
    if (copy.read > 0) std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.read));
  }
  void copy_later(const Copy& copy) {
    if (happens(2)) return end(copy);
    thread().open.push_back(copy);
  }
  void commit() {
    thread().groups.push_back(std::move(thread().open));
    thread().open.clear();
  }
  void wait_groups(std::size_t most) {
    auto& groups = thread().groups;
    while (groups.size() > most) {
      for (const Copy& copy : groups.front()) end(copy);
      groups.pop_front();
    }
  }

 private:
  static constexpr std::size_t kStack = 128 << 10;
  struct Late {
    unsigned to;
    Words words;
    unsigned barrier;
  };

  static void enter() {
    Machine& machine = *now();
    machine.kernel_();
    Thread& thread = machine.thread();
    machine.wait_groups(0);
    thread.done = true;
  }

  /// Each waiting store arrives with probability 1 / `in`.
  void deliver(unsigned in) {
    std::shuffle(late_.begin(), late_.end(), random_);
    std::vector<Late> left;
    for (const Late& late : late_) {
      if (!happens(in)) {
        left.push_back(late);
        continue;
      }
      std::memcpy(at(late.to), late.words.word, 16);
      PhaseBarrier& barrier = phases_.at(late.barrier);
      barrier.bytes -= 16;
      barrier.end_phase();
      ++progress_;
    }
    late_ = std::move(left);
  }

  int grid_, cluster_;
  std::function<void()> kernel_;
  std::mt19937 random_;
  std::unique_ptr<char[]> memory_;
  char* shared_ = nullptr;
  std::vector<Block> blocks_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::map<int, Meeting> clusters_;
  std::map<unsigned, PhaseBarrier> phases_;
  std::vector<Late> late_;
  ucontext_t main_ = {};
  Thread* current_ = nullptr;
  long progress_ = 0;
  std::optional<Fault> fault_;
};

inline Machine& machine() { return *Machine::now(); }

/// Memory of a block that a kernel declares, by the text of the declaration.
template <class T>
T* static_shared(const char* name, std::size_t count) {
  std::vector<char>& bytes = machine().block().variables[name];
  if (bytes.empty()) bytes.resize(count * sizeof(T) + 16, static_cast<char>(0xff));
  return reinterpret_cast<T*>((reinterpret_cast<std::uintptr_t>(bytes.data()) + 15) / 16 * 16);
}

}  // namespace host_gpu
