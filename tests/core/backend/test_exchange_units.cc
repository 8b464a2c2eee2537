// The ring of units that two warpgroups multiply (kernels/product/float_pairs.cuh), on a model of the machine, as the
// protocols of test_exchange_protocols.cc.

#include "backend/exchange_model.h"

namespace penstock::test {
namespace {

struct UnitOptions {
  int blocks = 7, depth = 5, releases = 2;
  bool waits_for_copies = true, waits_for_places = true, waits_for_products = true, first_turn = true;
};

/// One agent brings low and high parts of blocks of K into a ring of places; two groups multiply them in turns.
class UnitRing {
 public:
  UnitRing(Machine& machine, const UnitOptions& options)
      : machine_(machine),
        of_(options),
        ring_(static_cast<std::size_t>(options.depth), kNothing),
        full_(ring_.size()),
        empty_(ring_.size()) {
    for (std::size_t place = 0; place < ring_.size(); ++place) full_[place].init(1), empty_[place].init(of_.releases);
    if (of_.first_turn) passed_[0] = 1;
    machine.add(bring()), machine.add(multiply(0)), machine.add(multiply(1));
  }

 private:
  std::size_t place(int unit) const { return static_cast<std::size_t>(unit % of_.depth); }
  int parity(int unit) const { return unit / of_.depth & 1; }

  /// (Bring)
  Agent bring() {
    for (int unit = 0; unit < 2 * of_.blocks; ++unit) {
      while (of_.waits_for_places && !empty_[place(unit)].passed(parity(unit) ^ 1)) co_await Step();
      full_[place(unit)].expect_bytes(1);
      machine_.later([this, unit] {
        ring_[place(unit)] = unit;
        full_[place(unit)].complete(1);
      });
      co_await Step();
    }
  }

  /// Starts multiplications that read two units some time later.
  void start(int group, int first, int second) {
    ++under_way_[group];
    machine_.later([=, this] {
      demand(ring_[place(first)] == first && ring_[place(second)] == second, "a group multiplies another unit");
      --under_way_[group];
    });
  }

  /// (Multiplier::add_block)
  Agent multiply(int group) {
    for (int block = 0; block < of_.blocks; ++block) {
      const int low = 2 * block, high = low + 1;
      for (const int unit : {low, high}) {
        while (of_.waits_for_copies && !full_[place(unit)].passed(parity(unit))) co_await Step();
      }
      for (const int other : {low, high}) {
        while (passed_[group] == 0) co_await Step();
        --passed_[group];
        start(group, high, other);
        ++passed_[1 - group];
        co_await Step();
        while (of_.waits_for_products && under_way_[group] > 0) co_await Step();
        demand(other == low || ring_[place(high)] == high, "a group reads the scales of another unit");
        empty_[place(other)].arrive();
      }
    }
  }

  Machine& machine_;
  UnitOptions of_;
  std::vector<int> ring_;
  std::vector<PhaseBarrier> full_, empty_;
  int passed_[2] = {}, under_way_[2] = {};
};

TEST(ExchangeProtocols, UnitsThatTwoWarpgroupsMultiply) {
  using Options = UnitOptions;
  check<UnitRing, Options>({}, {{"the wait for copies", [](Options& o) { o.waits_for_copies = false; }},
                                {"the wait for an empty place", [](Options& o) { o.waits_for_places = false; }},
                                {"the wait for products", [](Options& o) { o.waits_for_products = false; }},
                                {"the release by the second group", [](Options& o) { o.releases = 1; }},
                                {"the first turn", [](Options& o) { o.first_turn = false; }}});
}

}  // namespace
}  // namespace penstock::test
