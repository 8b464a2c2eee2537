// The protocols by which threads exchange means over a head, on a model of the machine (exchange_model.h). Comments
// name the kernel that has the same lines.

#include <memory>
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
  bool joins = false;  // a block's first warp joins the parts of its warps before it sends
  bool waits = true, rearms = true, waits_for_states = true, reads_before_it_sends = true, meets = true;
};

/// In each exchange of a step every warp sends its part to all blocks, or every block that of its warps, and all warps
/// read what was sent. Exchanges have one buffer each: what keeps the next step from it is that all warps send h
/// between two steps, after they have read. Parts that a block joins lie in one place for all exchanges.
class MeanExchange {
 public:
  MeanExchange(Machine& machine, const MeanOptions& options)
      : machine_(machine), of_(options), meeting_(options.blocks * options.warps), blocks_(at(options.blocks)) {
    for (Block& block : blocks_) {
      block.parts.assign(at(of_.exchanges), std::vector(at(parts()), kNothing));
      block.of_means.resize(at(of_.exchanges));
      block.own.assign(at(of_.warps), kNothing);
      block.meeting = std::make_unique<MeetingPoint>(of_.warps);
    }
    for (int block = 0; block < of_.blocks; ++block) {
      for (int warp = 0; warp < of_.warps; ++warp) machine.add(run(block, warp));
    }
  }

 private:
  struct Block {
    std::vector<std::vector<int>> parts;  // [exchange][source]
    std::vector<int> own;                 // parts that the block joins
    std::unique_ptr<MeetingPoint> meeting;
    std::vector<PhaseBarrier> of_means;
    PhaseBarrier of_states[2] = {};
  };

  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  int warps() const { return of_.blocks * of_.warps; }
  int parts() const { return of_.joins ? of_.blocks : warps(); }

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
      for (PhaseBarrier& barrier : own.of_states) barrier.init(1), barrier.expect_bytes(warps());
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
        if (warp == 0 && of_.waits_for_states) barrier.expect_bytes(warps());
      }
      if (!of_.reads_before_it_sends) send_states(step + 1);
      for (int exchange = 0; exchange < of_.exchanges; ++exchange) {
        const int turn = step * of_.exchanges + exchange;
        if (of_.joins) {
          own.own[at(warp)] = value_of(turn, warp);
          const int met = own.meeting->arrive();
          while (of_.meets && !own.meeting->over(met)) co_await Step();
          for (int from = 0; from < of_.warps && warp == 0; ++from) {
            co_await Step();
            demand(own.own[at(from)] == value_of(turn, from), "a block joins a part of another exchange");
          }
        }
        const int sender = of_.joins ? number : source;
        for (int to = 0; to < of_.blocks && (!of_.joins || warp == 0); ++to) {
          send_part(to, exchange, sender, value_of(turn, sender));
        }
        PhaseBarrier& barrier = own.of_means[at(exchange)];
        while (of_.waits && !barrier.passed(step & 1)) co_await Step();
        if (warp == 0 && of_.rearms) barrier.expect_bytes(parts());
        for (int from = 0; from < parts(); ++from) {
          co_await Step();
          demand(own.parts[at(exchange)][at(from)] == value_of(turn, from), "a warp joins a part of another exchange");
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
  check<MeanExchange, Options>({.joins = true},
                               {{"the wait for the sums of all blocks", [](Options& o) { o.waits = false; }},
                                {"the meeting of a block's warps", [](Options& o) { o.meets = false; }}});
  // With two exchanges, each keeps the other's buffer.
  check<MeanExchange, Options>({.exchanges = 1},
                               {{"the wait for h between two steps", [](Options& o) { o.waits_for_states = false; }},
                                {"reading before h is sent", [](Options& o) { o.reads_before_it_sends = false; }}});
}

// ---- means over a head on the whole chip: chip_means.cuh ------------------------------------------------------------

struct ChipMeanOptions {
  int blocks = 3, rows = 2, steps = 20, buffers = layout::ChipShape::exchanges(true), cleared_behind = 2;
  bool joins_rows = true;
  bool waits_for_parts = true, waits = true, clears = true, fences = true, waits_for_states = true;
};

/// A warp of each block has one row, and publishes its part as a piece that is its own flag. The first warp of block r
/// joins the parts of row r and publishes the whole, or every warp reads all parts of its row. Then the warps send h.
class ChipMeanExchange {
 public:
  ChipMeanExchange(Machine& machine, const ChipMeanOptions& options)
      : of_(options), meeting_(warps()), memory_(machine, warps(), kNothing) {
    for (int warp = 0; warp < warps(); ++warp) machine.add(run(warp));
  }

 private:
  int warps() const { return of_.blocks * of_.rows; }
  int buffer(int number) const { return (number & (of_.buffers - 1)) * (2 * warps() + of_.rows); }
  int state_at(int number, int warp) const { return buffer(number) + warp; }
  int part_at(int number, int warp) const { return buffer(number) + warps() + warp; }
  int whole_at(int number, int row) const { return buffer(number) + 2 * warps() + row; }
  static int whole_of(int number, int row) { return 10000 + value_of(number, row); }

  Agent run(int warp) {
    const int block = warp / of_.rows, row = warp % of_.rows;
    const bool joins = of_.joins_rows && row == 0 && block < of_.rows;
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
      memory_.store(warp, part_at(step, warp), value_of(step, warp));
      for (int source = 0; source < of_.blocks && (joins || !of_.joins_rows); ++source) {
        const int sender = source * of_.rows + (joins ? block : row);
        int got = kNothing;
        do {
          co_await Step();
          got = memory_.load(warp, part_at(step, sender));
        } while (of_.waits_for_parts && got == kNothing);
        demand(got == value_of(step, sender), "a warp joins a part of another step");
      }
      if (joins) memory_.store(warp, whole_at(step, block), whole_of(step, block));
      if (of_.joins_rows) {
        int got = kNothing;
        do {
          co_await Step();
          got = memory_.load(warp, whole_at(step, row));
        } while (of_.waits && got == kNothing);
        demand(got == whole_of(step, row), "a warp reads a mean of another step");
      }
      memory_.store(warp, state_at(step, warp), value_of(step, warp));
      co_await Step();
      if (step >= 2) memory_.store(warp, state_at(step - 2, warp), kNothing);
      if (of_.clears && step >= of_.cleared_behind) {
        memory_.store(warp, part_at(step - of_.cleared_behind, warp), kNothing);
        if (joins) memory_.store(warp, whole_at(step - of_.cleared_behind, block), kNothing);
      }
      if (of_.fences && step % layout::ChipShape::fenced(true) == layout::ChipShape::fenced(true) - 1)
        memory_.fence(warp);
    }
  }

  ChipMeanOptions of_;
  MeetingPoint meeting_;
  ChipMemory memory_;
};

TEST(ExchangeProtocols, MeansOnTheWholeChip) {
  using Options = ChipMeanOptions;
  const auto check_both = [](const Options& whole) {
    check<ChipMeanExchange, Options>(
        whole, {{"waiting until a part is there", [](Options& o) { o.waits_for_parts = false; }},
                {"waiting until h is there", [](Options& o) { o.waits_for_states = false; }},
                {"clearing what was read", [](Options& o) { o.clears = false; }},
                {"the exchanges before a mean is cleared", [](Options& o) { o.cleared_behind = 0; }}});
  };
  check_both({});
  check_both({.joins_rows = false});
  check<ChipMeanExchange, Options>({}, {{"waiting until a mean is there", [](Options& o) { o.waits = false; }}});
  // Few blocks come around all buffers before a late store is seen.
  check<ChipMeanExchange, Options>({.blocks = 2, .rows = 1, .steps = 48, .joins_rows = false},
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
