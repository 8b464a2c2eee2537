// Dense cells on a CPU: independent groups of rows, and threads of a group that share its units.

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/check.h"
#include "plan/cpu/narrow_heads.h"
#include "plan/cpu/pays_for_team.h"
#include "plan/cpu/rules.h"

namespace penstock::plan {
namespace {

constexpr Index kFewestUnits = 16;  // smallest number of units of a thread: one vector of floats

/// The work of a step, in multiply-adds of one thread. Layers of int8 share rows and units as those of floats do: costs
/// of products of their own chose slower plans (docs/quantization.md).
class StepWork {
 public:
  StepWork(const Problem& problem, const CpuModel& cpu) : problem_(problem), cpu_(cpu) {
    const CellInfo& cell = problem.cell->info;
    const Index head_size = problem.hidden / problem.heads;
    weights_ = static_cast<double>(cell.gates * problem.hidden * head_size);
    inputs_ = static_cast<double>(cell.gates * problem.input * problem.hidden);
    cell_ = static_cast<double>(problem.hidden) * cpu.costs.multiply_adds / cpu.costs.gates;
    const Index lanes = cpu.vector_bytes / static_cast<Index>(sizeof(float));
    const bool narrow = has_narrow_heads(problem.hidden, problem.heads, lanes);
    const Index shared = narrow ? problem.hidden : head_size;
    blocks_of_head_ = narrow ? 1 : (shared + kFewestUnits - 1) / kFewestUnits;
    blocks_ = (shared + kFewestUnits - 1) / kFewestUnits * (narrow ? 1 : problem.heads);
  }

  /// Returns whether threads that share units need not wait for each other.
  bool apart(Index threads) const { return keeps_heads_whole(blocks_ / blocks_of_head_, threads); }

  /// Returns the work of the group with the most rows. Its threads wait for the one with the most units.
  double of(Index row_parts, Index channel_parts) const {
    const Index rows = (problem_.rows + row_parts - 1) / row_parts;
    const Index unit = apart(channel_parts) ? blocks_of_head_ : 1;  // blocks that stay together
    const Index blocks = (blocks_ / unit + channel_parts - 1) / channel_parts * unit;
    const double share = static_cast<double>(blocks) / static_cast<double>(blocks_);
    const double mixing = share * (static_cast<double>(rows) * (weights_ + cell_) + reading(rows, share));
    const double inputs = share * static_cast<double>(rows) * inputs_;  // no thread waits for these
    if (channel_parts == 1 || apart(channel_parts)) return mixing + inputs;
    return mixing * (1 + cpu_.costs.waiting * static_cast<double>(channel_parts - 1)) + inputs +
           meeting(rows, channel_parts);
  }

 private:
  /// Returns the work of reading weights: each tile of rows reads every weight once.
  double reading(Index rows, double share) const {
    constexpr std::uint64_t of_wide_vectors = 6, of_others = 2;  // rows of a tile that fill the registers with sums
    constexpr int wide = 64;
    const std::uint64_t most = cpu_.vector_bytes >= wide ? of_wide_vectors : of_others;
    const auto count = static_cast<std::uint64_t>(rows);
    const auto tiles = static_cast<double>(count / most) + std::popcount(count % most);
    const bool far = share * weights_ > static_cast<double>(cpu_.cached(cpu_.costs.near_share, sizeof(float)));
    return weights_ * (tiles * cpu_.costs.weight + (far ? cpu_.costs.far_weight : 0));
  }

  /// Returns the work of sharing units: threads wait at a barrier, then read the other threads' units of their heads.
  double meeting(Index rows, Index threads) const {
    const Index most = (blocks_ + threads - 1) / threads, fewest = blocks_ / threads;
    const Index read = (most + blocks_of_head_ - 1) / blocks_of_head_ * blocks_of_head_;
    return static_cast<double>(threads) * cpu_.costs.sharing +
           static_cast<double>(rows * (read - fewest) * kFewestUnits) * cpu_.costs.exchanged;
  }

  Problem problem_;
  CpuModel cpu_;
  double weights_ = 0, inputs_ = 0, cell_ = 0;  // per row, in multiply-adds
  Index blocks_of_head_ = 1, blocks_ = 1;       // of units that threads do not split
};

}  // namespace

bool keeps_heads_whole(Index heads, Index threads) {
  constexpr Index fewest = 8;  // heads of a thread, where not all have as many
  return heads % threads == 0 || heads >= fewest * threads;
}

bool packing_pays(Index steps, Index positions, const CpuModel& cpu) {
  const CpuCosts& costs = cpu.costs;  // per weight; both sides have equal numbers of them
  const double lying = static_cast<double>(steps) * costs.lying_step + static_cast<double>(positions) * costs.lying_row;
  return lying > costs.packing;
}

std::vector<Rule<Plan>> cpu_dense_rules(const Problem& problem, const CpuModel& cpu, Scope scope) {
  require(problem.algorithm != Algorithm::scan,
          "algorithm must be auto or sequential for cell {}, not scan: its gates depend on the previous state",
          problem.cell->info.name);
  Rule<Plan> rule{.name = "sequential"};
  csp::Model& m = rule.model;
  const auto row_parts = rule.var("row_parts", csp::range(1, std::min<Index>(problem.threads, problem.rows)));
  const auto channel_parts = rule.var("channel_parts", csp::range(1, problem.threads));
  m.require("there are so many threads", row_parts * channel_parts <= problem.threads);
  m.require("each thread has units", channel_parts * kFewestUnits <= std::max(problem.hidden, kFewestUnits));
  if (problem.cell->averages) m.require("means read all units of a head", channel_parts == 1);
  const StepWork work(problem, cpu);
  const auto microseconds = [=](Index rows, Index channels) {
    return static_cast<double>(problem.steps) * work.of(rows, channels) / multiply_adds(cpu.costs, problem.int8);
  };
  const bool too_short = scope == Scope::worthwhile && !pays_for_team(microseconds(1, 1));
  if (too_short) m.require("the call pays for its threads", row_parts * channel_parts <= 1);
  // In a tie prefer more groups: they do not wait for each other, and balance rows of different lengths better.
  m.minimise([=](const csp::Solution& solution) {
    constexpr double of_group = 1e-6;
    return work.of(solution[row_parts], solution[channel_parts]) *
           (1 - of_group * static_cast<double>(solution[row_parts]));
  });
  rule.plan_of = [=](const csp::Solution& solution) {
    Plan plan;
    plan.row_parts = static_cast<int>(solution[row_parts]);
    plan.channel_parts = static_cast<int>(solution[channel_parts]);
    plan.microseconds = microseconds(plan.row_parts, plan.channel_parts);
    plan.why =
        plan.channel_parts > 1 && work.apart(plan.channel_parts) ? "heads are independent: no thread waits for another"
        : plan.channel_parts > 1 ? "few rows for each thread, and a step large enough to share units at a barrier"
        : plan.row_parts > 1     ? "rows are independent: no thread waits for another"
        : problem.threads == 1   ? "there is one thread"
        : too_short              ? "the call is too short to share"
                                 : "one row, and a step too small to share";
    return plan;
  };
  std::vector<Rule<Plan>> rules;
  rules.push_back(std::move(rule));
  return rules;
}

}  // namespace penstock::plan
