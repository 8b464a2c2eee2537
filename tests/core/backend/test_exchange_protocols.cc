// The protocols by which thread blocks exchange values inside the kernels of dense cells and scans, on a model of the
// machine (exchange_model.h): each holds in a thousand random schedules, and fails in one of them if any of its waits,
// flags, fences or buffers is left out. Comments name the kernel that has the same lines.

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "backend/exchange_model.h"
namespace penstock::test::layout {
#include "plan/kernels/dense_cluster_shape.h"
// Behind it.
#include "plan/kernels/dense_chip_shape.h"
}  // namespace penstock::test::layout

namespace penstock::test {
namespace {

// ---- h inside a cluster: cluster_forward.cuh -----------------------------------------------------------------------

struct ClusterOptions {
  int blocks = 3, steps = 7, buffers = 2;
  bool waits = true, rearms = true, meets_first = true;
};

/// Every block stores its units of h_t into the shared memory of all blocks, whose barriers count the bytes.
class ClusterExchange {
 public:
  ClusterExchange(Machine& machine, const ClusterOptions& options)
      : machine_(machine),
        of_(options),
        meeting_(options.blocks),
        blocks_(static_cast<std::size_t>(options.blocks),
                Block{.h = std::vector(2, std::vector<int>(static_cast<std::size_t>(options.blocks), kNothing))}) {
    for (int rank = 0; rank < of_.blocks; ++rank) machine.add(run(rank));
  }

 private:
  struct Block {
    PhaseBarrier barriers[2] = {};
    std::vector<std::vector<int>> h;  // [parity][source]
    bool gone = false;
  };

  void send(int to, int parity, int source, int value) {
    machine_.later([=, this] {
      Block& block = blocks_[static_cast<std::size_t>(to)];
      demand(!block.gone, "a store into a block that has ended");
      block.h[static_cast<std::size_t>(parity)][static_cast<std::size_t>(source)] = value;
      block.barriers[parity].complete(1);
    });
  }

  Agent run(int rank) {
    Block& own = blocks_[static_cast<std::size_t>(rank)];
    co_await Step();
    for (PhaseBarrier& barrier : own.barriers) {
      barrier.init(1);
      barrier.expect_bytes(of_.blocks);
    }
    if (of_.meets_first) {
      const int meeting = meeting_.arrive();
      while (!meeting_.over(meeting)) co_await Step();
    }
    for (int step = 0; step < of_.steps; ++step) {
      const int parity = step % of_.buffers, next = (step + 1) % of_.buffers;
      if (step > 0) {
        while (of_.waits && !own.barriers[parity].passed((step - 1) / of_.buffers & 1)) co_await Step();
        for (int source = 0; source < of_.blocks; ++source) {
          co_await Step();
          const int got = own.h[static_cast<std::size_t>(parity)][static_cast<std::size_t>(source)];
          demand(got == value_of(step, source), "a block multiplies by h of another step");
        }
      }
      for (int to = 0; to < of_.blocks && step + 1 < of_.steps; ++to) send(to, next, rank, value_of(step + 1, rank));
      co_await Step();
      if (step > 0 && of_.rearms) own.barriers[parity].expect_bytes(of_.blocks);
    }
    own.gone = true;  // all stores to it have arrived: it waited for those of its last step
  }

  Machine& machine_;
  ClusterOptions of_;
  MeetingPoint meeting_;
  std::vector<Block> blocks_;
};

TEST(ExchangeProtocols, UnitsInsideACluster) {
  using Options = ClusterOptions;
  check<ClusterExchange, Options>({}, {{"the wait for all bytes", [](Options& o) { o.waits = false; }},
                                       {"the second buffer", [](Options& o) { o.buffers = 1; }},
                                       {"announcing the next bytes", [](Options& o) { o.rearms = false; }},
                                       {"meeting before the first store", [](Options& o) { o.meets_first = false; }}});
}

// ---- sums of the warps of a group: cluster_forward.cuh, head_forward.cuh -------------------------------------------

struct GroupOptions {
  int warps = 3, steps = 6;
  bool meets = true, waits_for_readers = true;
};

/// Warps that have parts of the summed axis leave their sums in shared memory, and each adds up those of its own units.
class GroupSums {
 public:
  GroupSums(Machine& machine, const GroupOptions& options)
      : of_(options), meeting_(options.warps), sums_(static_cast<std::size_t>(options.warps), kNothing) {
    has_read_.init(of_.warps);
    for (int warp = 0; warp < of_.warps; ++warp) machine.add(run(warp));
  }

 private:
  Agent run(int warp) {
    for (int step = 0; step < of_.steps; ++step) {
      while (of_.waits_for_readers && step > 0 && !has_read_.passed((step - 1) & 1)) co_await Step();
      co_await Step();
      sums_[static_cast<std::size_t>(warp)] = value_of(step, warp);
      const int meeting = meeting_.arrive();
      while (of_.meets && !meeting_.over(meeting)) co_await Step();
      for (int source = 0; source < of_.warps; ++source) {
        co_await Step();
        demand(sums_[static_cast<std::size_t>(source)] == value_of(step, source), "a warp adds sums of another step");
      }
      has_read_.arrive();
    }
  }

  GroupOptions of_;
  MeetingPoint meeting_;
  PhaseBarrier has_read_;
  std::vector<int> sums_;
};

TEST(ExchangeProtocols, SumsOfTheWarpsOfAGroup) {
  using Options = GroupOptions;
  check<GroupSums, Options>({}, {{"the barrier of the group", [](Options& o) { o.meets = false; }},
                                 {"the wait for readers", [](Options& o) { o.waits_for_readers = false; }}});
}

// ---- pieces that are their own flags, over the whole chip: chip.cuh ------------------------------------------------

/// As backward. A forward pass has four times as many buffers, which too few schedules would use up in disorder.
struct ChipOptions {
  int blocks = 3, steps = 48, buffers = layout::ChipShape::exchanges(true), cleared_behind = 2;
  bool clears = true, fences = true, waits = true;
};

/// A piece lies in memory until the exchange that uses its place next; a reader takes what is there unless it is
/// cleared. No counter says that it is the right one.
class ChipExchange {
 public:
  ChipExchange(Machine& machine, const ChipOptions& options)
      : of_(options), memory_(machine, options.blocks, kNothing) {
    for (int block = 0; block < of_.blocks; ++block) machine.add(run(block));
  }

 private:
  int place(int exchange, int block) const { return (exchange & (of_.buffers - 1)) * of_.blocks + block; }

  Agent run(int block) {
    for (int step = 0; step < of_.steps; ++step) {
      for (int source = 0; source < of_.blocks && step > 0; ++source) {
        int got = kNothing;
        do {
          co_await Step();
          got = memory_.load(block, place(step - 1, source));
        } while (of_.waits && got == kNothing);
        demand(got == value_of(step - 1, source), "a block reads a piece of another exchange");
      }
      memory_.store(block, place(step, block), value_of(step, block));
      co_await Step();
      if (of_.clears && step >= of_.cleared_behind) {
        memory_.store(block, place(step - of_.cleared_behind, block), kNothing);
      }
      if (of_.fences && step % layout::ChipShape::fenced(true) == layout::ChipShape::fenced(true) - 1)
        memory_.fence(block);
      co_await Step();
    }
  }

  ChipOptions of_;
  ChipMemory memory_;
};

TEST(ExchangeProtocols, PiecesThatAreTheirOwnFlags) {
  using Options = ChipOptions;
  check<ChipExchange, Options>({}, {{"waiting until a piece is there", [](Options& o) { o.waits = false; }},
                                    {"clearing what was read", [](Options& o) { o.clears = false; }},
                                    {"the fence behind what was cleared", [](Options& o) { o.fences = false; }},
                                    {"an exchange before a piece is cleared", [](Options& o) { o.cleared_behind = 1; }},
                                    {"half of the buffers", [](Options& o) { o.buffers /= 2; }}});
}

// ---- counted items and bulk copies: warpgroup_team.cuh -------------------------------------------------------------

struct WarpgroupOptions {
  int blocks = 3, steps = 6, portions = 2, stages = 2, buffers = 2;
  bool counts = true, releases = true, shows_to_copies = true, waits_for_copies = true, waits_for_stages = true,
       waits_until_made = true;
};

/// In each block one warp multiplies, one brings what all blocks have sent into a ring of stages, and one sends what
/// the first has made. Portions of the rows take turns.
class WarpgroupExchange {
 public:
  WarpgroupExchange(Machine& machine, const WarpgroupOptions& options)
      : machine_(machine), of_(options), memory_(machine, options.blocks, 0) {
    for (int i = 0; i < of_.blocks; ++i) {
      Block& block = *blocks_.emplace_back(std::make_unique<Block>());
      block.ring.assign(static_cast<std::size_t>(of_.stages), kNothing);
      block.full.resize(block.ring.size()), block.empty.resize(block.ring.size());
      block.made.resize(static_cast<std::size_t>(of_.portions)), block.sent.resize(block.made.size(), kNothing);
      for (auto* const barriers : {&block.full, &block.empty, &block.made}) {
        for (PhaseBarrier& barrier : *barriers) barrier.init(1);
      }
    }
    for (int i = 0; i < of_.blocks; ++i) {
      machine.add(multiply(i)), machine.add(bring(i)), machine.add(send(i));
    }
  }

 private:
  struct Block {
    std::vector<int> ring, sent;
    std::vector<PhaseBarrier> full, empty, made;
  };

  int value_at(int portion, int number, int block) const {
    return (portion * of_.buffers + number % of_.buffers) * of_.blocks + block;
  }
  int count_at(int portion, int block) const { return 1000 + portion * of_.blocks + block; }
  static int value(int portion, int number, int block) { return 1 + portion * 10 + value_of(number, block) * 10; }

  /// Makes the h of the next step from all items of this one. (Multiplier::run)
  Agent multiply(int own) {
    Block& block = *blocks_[static_cast<std::size_t>(own)];
    unsigned number = 0;
    for (int portion = 0; portion < of_.portions; ++portion) {
      block.sent[static_cast<std::size_t>(portion)] = value(portion, 0, own);
      block.made[static_cast<std::size_t>(portion)].arrive();
    }
    for (int step = 0; step < of_.steps; ++step) {
      for (int portion = 0; portion < of_.portions; ++portion) {
        for (int item = 0; item < of_.blocks; ++item, ++number) {
          const std::size_t stage = number % static_cast<unsigned>(of_.stages);
          const int round = static_cast<int>(number) / of_.stages;
          while (of_.waits_for_copies && !block.full[stage].passed(round & 1)) co_await Step();
          co_await Step();
          demand(block.ring[stage] == value(portion, step, item), "a block multiplies by an item of another step");
          block.empty[stage].arrive();
        }
        co_await Step();
        block.sent[static_cast<std::size_t>(portion)] = value(portion, step + 1, own);
        block.made[static_cast<std::size_t>(portion)].arrive();
      }
    }
  }

  /// Starts the copies of items that have been counted as sent. (Bring)
  Agent bring(int own) {
    Block& block = *blocks_[static_cast<std::size_t>(own)];
    unsigned number = 0;
    for (int step = 0; step < of_.steps; ++step) {
      for (int portion = 0; portion < of_.portions; ++portion) {
        for (int item = 0; item < of_.blocks; ++item, ++number) {
          const std::size_t stage = number % static_cast<unsigned>(of_.stages);
          const int round = static_cast<int>(number) / of_.stages;
          while (of_.counts && memory_.load(own, count_at(portion, item)) < step + 1) co_await Step();
          while (of_.waits_for_stages && !block.empty[stage].passed((round & 1) ^ 1)) co_await Step();
          if (of_.shows_to_copies) memory_.show_to_copies();
          block.full[stage].expect_bytes(1);
          machine_.later([this, &block, stage, from = value_at(portion, step, item)] {
            block.ring[stage] = memory_.load_by_copy(from);
            block.full[stage].complete(1);
          });
          co_await Step();
        }
      }
    }
  }

  /// Sends what was made, and counts it. (SendStates)
  Agent send(int own) {
    Block& block = *blocks_[static_cast<std::size_t>(own)];
    for (int number = 0; number <= of_.steps; ++number) {
      for (int portion = 0; portion < of_.portions; ++portion) {
        while (of_.waits_until_made && !block.made[static_cast<std::size_t>(portion)].passed(number & 1)) {
          co_await Step();
        }
        co_await Step();
        memory_.store(own, value_at(portion, number, own), block.sent[static_cast<std::size_t>(portion)]);
        co_await Step();
        memory_.add(own, count_at(portion, own), of_.releases);
      }
    }
  }

  Machine& machine_;
  WarpgroupOptions of_;
  ChipMemory memory_;
  std::vector<std::unique_ptr<Block>> blocks_;
};

TEST(ExchangeProtocols, CountedItemsAndBulkCopies) {
  using Options = WarpgroupOptions;
  check<WarpgroupExchange, Options>({},
                                    {{"counting what was sent", [](Options& o) { o.counts = false; }},
                                     {"the release of a count", [](Options& o) { o.releases = false; }},
                                     {"the fence before copies", [](Options& o) { o.shows_to_copies = false; }},
                                     {"the wait for copies", [](Options& o) { o.waits_for_copies = false; }},
                                     {"the wait for a free stage", [](Options& o) { o.waits_for_stages = false; }},
                                     {"the wait until a step is made", [](Options& o) { o.waits_until_made = false; }},
                                     {"the second buffer", [](Options& o) { o.buffers = 1; }}});
}

// ---- sums whose last bit is their flag: Product::hand_out and collect of warpgroup_team.cuh ------------------------

struct SignOptions {
  int blocks = 3, steps = 9, buffers = 2;
  bool alternates = true, waits = true;
};

/// The last bit of a word says in which turn it was written; memory is zero at first.
class SignedSums {
 public:
  SignedSums(Machine& machine, const SignOptions& options) : of_(options), memory_(machine, options.blocks, 0) {
    for (int block = 0; block < of_.blocks; ++block) machine.add(run(block));
  }

 private:
  int place(int number, int owner, int source) const {
    return ((number % of_.buffers) * of_.blocks + owner) * of_.blocks + source;
  }
  int sign(int number) const { return of_.alternates ? (number / of_.buffers & 1) ^ 1 : 1; }
  int word(int number, int source) const { return value_of(number, source) * 2 | sign(number); }

  Agent run(int block) {
    for (int number = 0; number < of_.steps; ++number) {
      for (int owner = 0; owner < of_.blocks; ++owner) {
        memory_.store(block, place(number, owner, block), word(number, block));
        co_await Step();
      }
      for (int source = 0; source < of_.blocks; ++source) {
        int got = 0;
        do {
          co_await Step();
          got = memory_.load(block, place(number, block, source));
        } while (of_.waits && (got & 1) != sign(number));
        demand(got == word(number, source), "a block adds sums of another step");
      }
    }
  }

  SignOptions of_;
  ChipMemory memory_;
};

TEST(ExchangeProtocols, SumsWhoseLastBitIsTheirFlag) {
  using Options = SignOptions;
  check<SignedSums, Options>({}, {{"waiting for the bit", [](Options& o) { o.waits = false; }},
                                  {"turning the bit around", [](Options& o) { o.alternates = false; }},
                                  {"the second buffer", [](Options& o) { o.buffers = 1; }}});
}

// ---- states that pass between the chunks of a scan: scan/look_back.cuh ----------------------------------------------

struct ChainOptions {
  int chunks = 7, resident = 3, window = 2;
  bool tickets = true, new_tags = true, one_word = true, asks_for_gain = true;
};

/// Blocks take chunks of a recurrence in order. Each publishes what its chunk does to a state, then the state that
/// leaves it; a block that waits looks back over the nearest chunks. Two launches use the same memory.
class ScanChain {
 public:
  ScanChain(Machine& machine, const ChainOptions& options)
      : machine_(machine), of_(options), memory_(machine, options.resident, 0) {
    begin_launch();
  }

 private:
  struct Word {
    int value = 0, tag = 0;
  };

  static int gain(int chunk) { return chunk % 3 + 1; }
  int offset(int chunk) const { return chunk * 5 + launch_; }
  static int through(int gain, int offset, int state) { return (gain * state + offset) % 97; }
  /// The state that leaves the chunks before `end`.
  int state_before(int end) const {
    int state = 11;
    for (int chunk = 0; chunk < end; ++chunk) state = through(gain(chunk), offset(chunk), state);
    return state;
  }

  void begin_launch() {
    ticket_ = 0, running_ = of_.resident;
    for (int block = 0; block < of_.resident; ++block) machine_.add(run(block));
  }
  /// Launches follow each other: everything that the one before has stored is there.
  void end_block() {
    if (--running_ > 0 || ++launch_ == 2) return;
    for (int block = 0; block < of_.resident; ++block) memory_.fence(block);
    begin_launch();
  }

  int tag(int kind) const { return (of_.new_tags ? 2 * launch_ : 0) + kind; }
  /// Number and tag in one access of 8 bytes, or in two.
  void store(int block, int address, Word word) {
    if (of_.one_word) return memory_.store(block, address, word.value * 8 + word.tag);
    memory_.store(block, address, word.value * 8);
    memory_.store(block, 1000 + address, word.tag);
  }
  Word load(int block, int address) const {
    const int word = memory_.load(block, address);
    return {word / 8, of_.one_word ? word % 8 : memory_.load(block, 1000 + address)};
  }
  int gain_at(int chunk) const { return of_.chunks + chunk; }

  Agent run(int block) {
    for (int taken = 0;; ++taken) {
      const int number = of_.tickets ? ticket_++ : taken * of_.resident + block;
      if (number >= of_.chunks) break;
      const int chunk = of_.tickets ? number : of_.chunks - 1 - number;
      co_await Step();
      store(block, gain_at(chunk), {gain(chunk), tag(1)});
      store(block, chunk, {offset(chunk), tag(1)});
      std::optional<int> state;
      if (chunk == 0) state = state_before(0);
      while (!state) {
        std::vector<Word> states(static_cast<std::size_t>(of_.window)), gains(states.size());
        for (int i = 0; i < of_.window; ++i) {
          const int which = chunk - 1 - i;
          Word& word = states[static_cast<std::size_t>(i)];
          if (which < 0) {
            word = {state_before(0), tag(2)};
            continue;
          }
          bool is_known = false;
          while (!is_known) {
            co_await Step();
            gains[static_cast<std::size_t>(i)] = load(block, gain_at(which));
            co_await Step();
            word = load(block, which);
            const bool half = of_.asks_for_gain && gains[static_cast<std::size_t>(i)].tag != tag(1);
            is_known = word.tag == tag(2) || (word.tag == tag(1) && !half);
          }
        }
        state = fold(states, gains);
      }
      demand(*state == state_before(chunk), "a chunk begins with a wrong state");
      store(block, chunk, {through(gain(chunk), offset(chunk), *state), tag(2)});
    }
    end_block();
  }

  std::optional<int> fold(const std::vector<Word>& states, const std::vector<Word>& gains) const {
    std::size_t found = 0;
    while (found < states.size() && states[found].tag == tag(1)) ++found;
    if (found == states.size()) return std::nullopt;
    int state = states[found].value;
    while (found-- > 0) state = through(gains[found].value, states[found].value, state);
    return state;
  }

  Machine& machine_;
  ChainOptions of_;
  ChipMemory memory_;
  int ticket_ = 0, running_ = 0, launch_ = 0;
};

TEST(ExchangeProtocols, StatesBetweenTheChunksOfAScan) {
  using Options = ChainOptions;
  check<ScanChain, Options>({}, {{"taking chunks in order", [](Options& o) { o.tickets = false; }},
                                 {"tags of each launch", [](Options& o) { o.new_tags = false; }},
                                 {"number and tag in one word", [](Options& o) { o.one_word = false; }},
                                 {"the tag of the gain", [](Options& o) { o.asks_for_gain = false; }}});
}

}  // namespace
}  // namespace penstock::test
