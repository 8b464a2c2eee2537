// The protocols by which threads exchange means over a head, on a model of the machine (exchange_model.h). Comments
// name the kernel that has the same lines.

#include <vector>

#include "backend/exchange_model.h"
namespace penstock::test::layout {
#include "plan/kernels/dense_cluster_shape.h"
// Behind it.
#include "plan/kernels/dense_chip_shape.h"
}  // namespace penstock::test::layout

namespace penstock::test {
namespace {

// ---- means over a head inside a cluster: cluster_means.cuh ---------------------------------------------------------

struct MeanOptions {
  int blocks = 2, warps = 2, steps = 5, exchanges = 2;
  bool waits = true, rearms = true, waits_for_states = true, reads_before_it_sends = true;
};

/// In each exchange of a step every warp sends its part to all blocks, and reads the parts of all. Exchanges have one
/// buffer each: what keeps the next step from it is that all warps send h between two steps, after they have read.
class MeanExchange {
 public:
  MeanExchange(Machine& machine, const MeanOptions& options)
      : machine_(machine), of_(options), meeting_(options.blocks * options.warps), blocks_(at(options.blocks)) {
    for (Block& block : blocks_) {
      block.parts.assign(at(of_.exchanges), std::vector(at(parts()), kNothing));
      block.of_means.resize(at(of_.exchanges));
    }
    for (int block = 0; block < of_.blocks; ++block) {
      for (int warp = 0; warp < of_.warps; ++warp) machine.add(run(block, warp));
    }
  }

 private:
  struct Block {
    std::vector<std::vector<int>> parts;  // [exchange][source]
    std::vector<PhaseBarrier> of_means;
    PhaseBarrier of_states[2] = {};
  };

  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  int parts() const { return of_.blocks * of_.warps; }

  void send_part(int to, int exchange, int source, int value) {
    machine_.later([=, this] {
      Block& block = blocks_[at(to)];
      block.parts[at(exchange)][at(source)] = value;
      block.of_means[at(exchange)].complete(1);
    });
  }

  Agent run(int number, int warp) {
    Block& own = blocks_[at(number)];
    const int source = number * of_.warps + warp;
    co_await Step();
    if (warp == 0) {
      for (PhaseBarrier& barrier : own.of_means) barrier.init(1), barrier.expect_bytes(parts());
      for (PhaseBarrier& barrier : own.of_states) barrier.init(1), barrier.expect_bytes(parts());
    }
    const int meeting = meeting_.arrive();
    while (!meeting_.over(meeting)) co_await Step();
    const auto send_states = [&](int step) {
      for (int to = 0; to < of_.blocks; ++to) {
        machine_.later([this, to, step] { blocks_[at(to)].of_states[step % 2].complete(1); });
      }
    };
    for (int step = 0; step < of_.steps; ++step) {
      if (step > 0) {
        PhaseBarrier& barrier = own.of_states[step % 2];
        while (of_.waits_for_states && !barrier.passed((step - 1) / 2 & 1)) co_await Step();
        if (warp == 0 && of_.waits_for_states) barrier.expect_bytes(parts());
      }
      if (!of_.reads_before_it_sends) send_states(step + 1);
      for (int exchange = 0; exchange < of_.exchanges; ++exchange) {
        const int value = value_of(step * of_.exchanges + exchange, source);
        for (int to = 0; to < of_.blocks; ++to) send_part(to, exchange, source, value);
        PhaseBarrier& barrier = own.of_means[at(exchange)];
        while (of_.waits && !barrier.passed(step & 1)) co_await Step();
        if (warp == 0 && of_.rearms) barrier.expect_bytes(parts());
        for (int from = 0; from < parts(); ++from) {
          co_await Step();
          demand(own.parts[at(exchange)][at(from)] == value_of(step * of_.exchanges + exchange, from),
                 "a warp joins a part of another exchange");
        }
      }
      if (of_.reads_before_it_sends) send_states(step + 1);
    }
  }

  Machine& machine_;
  MeanOptions of_;
  MeetingPoint meeting_;
  std::vector<Block> blocks_;
};

TEST(ExchangeProtocols, MeansInsideACluster) {
  using Options = MeanOptions;
  check<MeanExchange, Options>({}, {{"the wait for all parts", [](Options& o) { o.waits = false; }},
                                    {"announcing the next parts", [](Options& o) { o.rearms = false; }}});
  // With two exchanges, each keeps the other's buffer.
  check<MeanExchange, Options>({.exchanges = 1},
                               {{"the wait for h between two steps", [](Options& o) { o.waits_for_states = false; }},
                                {"reading before h is sent", [](Options& o) { o.reads_before_it_sends = false; }}});
}

// ---- means over a head on the whole chip: chip_means.cuh ------------------------------------------------------------

struct ChipMeanOptions {
  int clusters = 2, blocks = 2, steps = 20, buffers = layout::ChipShape::exchanges, cleared_behind = 2;
  bool waits_for_parts = true, rearms = true, waits = true, clears = true, fences = true, waits_for_states = true;
};

/// A warp of each block has one row. The blocks of a cluster send the parts of row r to block r, whose first warp joins
/// and publishes them, as a piece that is its own flag. A cluster of one block publishes its parts at once. Then the
/// warps send h.
class ChipMeanExchange {
 public:
  ChipMeanExchange(Machine& machine, const ChipMeanOptions& options)
      : machine_(machine),
        of_(options),
        meeting_(warps()),
        memory_(machine, warps(), kNothing),
        blocks_(at(options.clusters * options.blocks)) {
    for (Block& block : blocks_) block.parts.assign(at(of_.blocks), kNothing);
    for (int warp = 0; warp < warps(); ++warp) machine.add(run(warp));
  }

 private:
  struct Block {
    std::vector<int> parts;  // [source] of the row that this block joins
    PhaseBarrier barrier = {};
  };

  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  int rows() const { return of_.blocks; }
  int warps() const { return of_.clusters * of_.blocks * rows(); }
  int buffer(int number) const { return (number & (of_.buffers - 1)) * (warps() + rows() * of_.clusters); }
  int state_at(int number, int warp) const { return buffer(number) + warp; }
  int mean_at(int number, int row, int cluster) const {
    return buffer(number) + warps() + row * of_.clusters + cluster;
  }
  /// What a cluster publishes of a row.
  static int mean_of(int number, int row, int cluster) { return 10000 + value_of(number, row * 10 + cluster); }

  Agent run(int warp) {
    const int block = warp / rows(), row = warp % rows(), cluster = block / of_.blocks, rank = block % of_.blocks;
    const bool joins = of_.blocks == 1 || row == 0;
    const int joined = rank;
    Block& own = blocks_[at(block)];
    co_await Step();
    if (row == 0) own.barrier.init(1), own.barrier.expect_bytes(of_.blocks);
    const int meeting = meeting_.arrive();
    while (!meeting_.over(meeting)) co_await Step();
    for (int step = 0; step < of_.steps; ++step) {
      for (int source = 0; source < warps() && step > 0; ++source) {
        int got = kNothing;
        do {
          co_await Step();
          got = memory_.load(warp, state_at(step - 1, source));
        } while (of_.waits_for_states && got == kNothing);
        demand(got == value_of(step - 1, source), "a warp multiplies by h of another step");
      }
      if (of_.blocks > 1) {
        machine_.later([this, to = cluster * of_.blocks + row, rank, value = value_of(step, warp)] {
          blocks_[at(to)].parts[at(rank)] = value;
          blocks_[at(to)].barrier.complete(1);
        });
      }
      if (joins) {
        while (of_.blocks > 1 && of_.waits_for_parts && !own.barrier.passed(step & 1)) co_await Step();
        if (of_.rearms) own.barrier.expect_bytes(of_.blocks);
        for (int source = 0; source < of_.blocks && of_.blocks > 1; ++source) {
          co_await Step();
          const int sender = (cluster * of_.blocks + source) * rows() + joined;
          demand(own.parts[at(source)] == value_of(step, sender), "a warp joins a part of another step");
        }
        memory_.store(warp, mean_at(step, joined, cluster), mean_of(step, joined, cluster));
      }
      for (int source = 0; source < of_.clusters; ++source) {
        int got = kNothing;
        do {
          co_await Step();
          got = memory_.load(warp, mean_at(step, row, source));
        } while (of_.waits && got == kNothing);
        demand(got == mean_of(step, row, source), "a warp reads a mean of another step");
      }
      memory_.store(warp, state_at(step, warp), value_of(step, warp));
      co_await Step();
      if (step >= 2) memory_.store(warp, state_at(step - 2, warp), kNothing);
      if (joins && of_.clears && step >= of_.cleared_behind) {
        memory_.store(warp, mean_at(step - of_.cleared_behind, joined, cluster), kNothing);
      }
      if (of_.fences && step % layout::ChipShape::fenced == layout::ChipShape::fenced - 1) memory_.fence(warp);
    }
  }

  Machine& machine_;
  ChipMeanOptions of_;
  MeetingPoint meeting_;
  ChipMemory memory_;
  std::vector<Block> blocks_;
};

TEST(ExchangeProtocols, MeansOnTheWholeChip) {
  using Options = ChipMeanOptions;
  const auto check_both = [](const Options& whole) {
    check<ChipMeanExchange, Options>(
        whole, {{"waiting until a mean is there", [](Options& o) { o.waits = false; }},
                {"waiting until h is there", [](Options& o) { o.waits_for_states = false; }},
                {"clearing what was read", [](Options& o) { o.clears = false; }},
                {"the exchanges before a mean is cleared", [](Options& o) { o.cleared_behind = 0; }}});
  };
  check_both({});
  check_both({.clusters = 3, .blocks = 1});
  check<ChipMeanExchange, Options>({}, {{"the wait for all parts", [](Options& o) { o.waits_for_parts = false; }},
                                        {"announcing the next parts", [](Options& o) { o.rearms = false; }}});
  // Few blocks come around all buffers before a late store is seen.
  check<ChipMeanExchange, Options>({.clusters = 2, .blocks = 1, .steps = 48},
                                   {{"the fence behind what was cleared", [](Options& o) { o.fences = false; }},
                                    {"half of the buffers", [](Options& o) { o.buffers /= 2; }}});
}

// ---- means over a head in one block: means.cuh ----------------------------------------------------------------------

struct BlockMeanOptions {
  int warps = 3, exchanges = 7, buffers = 2;
  bool meets = true;
};

/// Warps leave their parts in a buffer, meet, and read all parts. Two buffers take turns.
class BlockMeans {
 public:
  BlockMeans(Machine& machine, const BlockMeanOptions& options)
      : of_(options),
        meeting_(options.warps),
        parts_(2, std::vector(static_cast<std::size_t>(options.warps), kNothing)) {
    for (int warp = 0; warp < of_.warps; ++warp) machine.add(run(warp));
  }

 private:
  Agent run(int warp) {
    for (int exchange = 0; exchange < of_.exchanges; ++exchange) {
      std::vector<int>& parts = parts_[static_cast<std::size_t>(exchange % of_.buffers)];
      co_await Step();
      parts[static_cast<std::size_t>(warp)] = value_of(exchange, warp);
      const int meeting = meeting_.arrive();
      while (of_.meets && !meeting_.over(meeting)) co_await Step();
      for (int source = 0; source < of_.warps; ++source) {
        co_await Step();
        demand(parts[static_cast<std::size_t>(source)] == value_of(exchange, source), "a warp joins another part");
      }
    }
  }

  BlockMeanOptions of_;
  MeetingPoint meeting_;
  std::vector<std::vector<int>> parts_;
};

TEST(ExchangeProtocols, MeansInsideABlock) {
  using Options = BlockMeanOptions;
  check<BlockMeans, Options>({}, {{"the barrier", [](Options& o) { o.meets = false; }},
                                  {"the second buffer", [](Options& o) { o.buffers = 1; }}});
}

}  // namespace
}  // namespace penstock::test
