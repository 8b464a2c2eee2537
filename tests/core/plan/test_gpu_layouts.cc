// Layouts of shared memory that kernels of dense cells are compiled with, run on the host for the plans they come with:
// nothing overlaps, everything has its place, and somebody does every part of the work.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "penstock/error.h"
#include "plan/cell_table.h"
#include "plan/gpu/dense.h"

namespace penstock::plan {
namespace {

namespace layout {
#include "plan/kernels/dense_cluster_shape.h"
// Behind the shape that it extends.
#include "plan/kernels/dense_chip_shape.h"
#include "plan/kernels/dense_head_layout.h"
}  // namespace layout

struct Region {
  const char* name;
  Index begin;
  Index bytes;  ///< What has to fit
};

/// Regions follow each other in the order given, begin where copies of 16 bytes can, and end within the plan's bytes.
void expect_apart(const std::vector<Region>& regions, Index shared) {
  Index end = 0;
  for (const Region& region : regions) {
    EXPECT_GE(region.begin, end) << region.name << " lies in what comes before it";
    EXPECT_EQ(region.begin % 16, 0) << region.name;
    EXPECT_GE(region.bytes, 0) << region.name;
    end = region.begin + region.bytes;
  }
  EXPECT_EQ(end, shared) << "the last region ends with the plan's shared memory";
}

/// Every sum of a block of 8 units has a place of its own.
void expect_places(const layout::ClusterShape& shape) {
  std::set<int> places;
  for (int unit = 0; unit < 8; ++unit) {
    for (int row = 0; row < shape.rows; ++row) {
      const int place = shape.place(unit, row);
      EXPECT_TRUE(place >= 0 && place < shape.block_floats()) << unit << ", " << row;
      EXPECT_TRUE(places.insert(place).second) << unit << ", " << row << " has another one's place";
    }
  }
}

/// The plans of an algorithm for all that decides about layouts.
template <class Check>
int for_each_plan(DenseAlgorithm algorithm, const Check& check) {
  int plans = 0;
  for (const char* const chip : {"h200", "rtx 4090"}) {
    const GpuModel gpu = named_gpu(chip);
    for (const CellTraits& cell : cell_table()) {
      if (cell.info.scan) continue;
      for (const Storage storage : {Storage::bf16, Storage::f32}) {
        for (const Index head : {1, 7, 8, 9, 64, 203, 512, 1024}) {
          for (const Index rows : {1, 3, 17}) {
            for (const bool backward : {false, true}) {
              GpuDenseProblem problem;
              problem.cell = cell.info.name, problem.storage = storage;
              problem.rows = rows, problem.steps = 100, problem.hidden = head;
              problem.backward = backward, problem.training = !backward && rows != 3;
              problem.algorithm = algorithm;
              SCOPED_TRACE(fmt::format("{} {} {} of {} units, {} rows, {}", chip, cell.info.name, to_string(storage),
                                       head, rows, backward ? "backward" : "forward"));
              try {
                check(cell, problem, plan_gpu_dense(problem, gpu));
                ++plans;
              } catch (const Error& error) {
                EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
              }
            }
          }
        }
      }
    }
  }
  return plans;
}

TEST(GpuLayouts, OfAHeadInABlock) {
  const int plans = for_each_plan(
      DenseAlgorithm::head, [](const CellTraits& cell, const GpuDenseProblem& problem, const GpuDensePlan& plan) {
        const bool split = cell.split_gradients, two_phases = cell.phases == 2;
        const layout::HeadShape shape{.gates = cell.gates(),
                                      .states = cell.states(),
                                      .phases = cell.phases,
                                      .split = split,
                                      .head = static_cast<int>(problem.head_size()),
                                      .bytes = size_of(problem.storage),
                                      .slots = plan.slots,
                                      .resident = plan.resident,
                                      .stages = plan.stages,
                                      .training = problem.training};
        const layout::HeadLayout l =
            problem.backward ? layout::HeadBackwardLayout(shape) : layout::HeadForwardLayout(shape);
        EXPECT_GE(l.padded, shape.head);
        EXPECT_EQ(l.padded, plan.warps * layout::kHeadUnits) << "a warp for every sixteen units";
        EXPECT_EQ(l.chunks, plan.chunks);
        EXPECT_LE(plan.resident, l.chunks);
        const int summed = problem.backward ? shape.gates * l.padded : shape.head;
        EXPECT_GE(l.chunks * 64, summed * shape.bytes);
        EXPECT_GE(l.operand_pitch, l.chunks * 64);
        EXPECT_GE(l.gates_pitch, shape.gates * l.padded * shape.bytes);
        EXPECT_GE(l.states_pitch, (shape.states - 1) * l.padded * 4);
        for (const int pitch : {l.operand_pitch, l.gates_pitch, l.states_pitch}) {
          std::set<int> banks;
          for (int row = 0; row < 4; ++row) banks.insert(row * pitch % 128 / 32);
          EXPECT_EQ(banks.size(), 4u) << "rows whose accesses of 32 bytes wait for each other";
        }
        const Index rows = plan.slots;
        const Index operand = rows * l.operand_pitch, gates = rows * l.gates_pitch;
        const Index states = shape.states > 1 ? rows * l.states_pitch : 0;
        const Index output = rows * l.output_pitch;
        const Index matrix_tiles = Index{problem.backward ? 1 : shape.gates} * plan.warps * (l.chunks - plan.resident);
        std::vector<Region> regions = {{"rows", l.rows, rows * layout::kHeadRowBytes},
                                       {"operands", l.operand, 2 * operand},
                                       {"operands of the second phase", l.second_operand, two_phases ? operand : 0}};
        if (problem.backward) {
          regions.push_back({"gradients of W x", l.kept_gates, split || two_phases ? 2 * gates : 0});
          regions.push_back({"written operands", l.kept_states, two_phases ? 2 * output : 0});
          const Index read = (split ? 2 : 1) * gates + states + 2 * output;
          EXPECT_EQ(l.stage_tile, read);
          regions.push_back({"stages", l.stage, plan.stages * read});
        } else {
          regions.push_back({"kept gates", l.kept_gates, problem.training ? 2 * gates : 0});
          regions.push_back({"kept states", l.kept_states, problem.training ? 2 * states : 0});
          EXPECT_EQ(l.stage_tile, gates);
          regions.push_back({"stages", l.stage, plan.stages * gates});
        }
        regions.push_back({"R", l.matrix, matrix_tiles * 16 * 64});  // 16 rows of a chunk of 64 bytes
        expect_apart(regions, plan.shared);
      });
  EXPECT_GT(plans, 300);
}

layout::ClusterShape shape_of(const CellTraits& cell, const GpuDenseProblem& problem, const GpuDensePlan& plan) {
  return {cell.gates(), cell.states(), cell.split_gradients, size_of(problem.storage),
          plan.cluster, plan.octets,   plan.slots,           plan.groups,
          plan.parts,   plan.resident, plan.stages,          problem.training};
}

void check_cluster_forward(const layout::ClusterShape& s, const GpuDensePlan& plan) {
  EXPECT_EQ(s.own_blocks() * s.groups, s.blocks) << "groups of warps share a block's units evenly";
  EXPECT_GE(2 * s.tiles_m(), s.own_halves());
  EXPECT_EQ(2 * s.tiles_k() * s.parts, s.h_pieces()) << "parts share the sum over h evenly";
  EXPECT_GE(s.slots() * 4 * s.parts, s.own_blocks() * s.rows) << "four lots of eight lanes of each warp";
  const Index h = Index{s.h_pieces()} * s.rows * 16, ring = Index{s.gates} * s.pieces() * 16;
  expect_apart({{"barriers", 0, s.start},
                {"h", s.start, 2 * h},
                {"R", s.matrix_at(), Index{s.warps()} * (s.tiles_k() - s.resident) * s.tiles_m() * 16 * 32},
                {"sums", s.sums_at(), Index{s.warps()} * s.own_halves() * s.block_floats() * 4},
                {"stages", s.ring_at(), Index{s.blocks} * s.rows * s.stages * ring},
                {"tape", s.tape_at(), s.training ? s.warps() * 4 * ring : 0}},
               plan.shared);
}

void check_cluster_backward(const layout::ClusterShape& s, const GpuDensePlan& plan) {
  EXPECT_GE(2 * s.back_tiles_m() * s.warps(), s.cluster * s.blocks);
  EXPECT_EQ(2 * s.back_tiles_k(), s.gate_pieces());
  EXPECT_GE(s.gate_pieces(), s.gates * s.blocks * s.pieces());
  EXPECT_GE(s.back_slots() * 4 * s.warps(), s.blocks * s.rows);
  const Index gates = Index{s.gate_pieces()} * s.rows * 16;
  const Index received = Index{s.cluster} * s.blocks * s.block_floats() * 4;
  // Sums, W x where its gradients differ, the states but h, dy and h.
  const Index values = Index{s.gates} * (s.split ? 2 : 1) + 2;
  const Index read = (values * s.pieces() + (s.states - 1) * 2) * 16;
  expect_apart(
      {{"barriers", 0, s.start},
       {"gates' gradients", s.start, 2 * gates},
       {"received sums", s.received_at(), 2 * received},
       {"R", s.back_matrix_at(), Index{s.warps()} * (s.back_tiles_k() - s.resident) * s.back_tiles_m() * 16 * 32},
       {"stages", s.back_ring_at(), Index{s.blocks} * s.rows * s.stages * read},
       {"gradients of W x", s.back_out_at(), s.split ? Index{s.warps()} * 4 * s.gates * s.pieces() * 16 : 0}},
      plan.shared);
}

TEST(GpuLayouts, OfAHeadOverACluster) {
  const int plans = for_each_plan(
      DenseAlgorithm::cluster, [](const CellTraits& cell, const GpuDenseProblem& problem, const GpuDensePlan& plan) {
        const layout::ClusterShape shape = shape_of(cell, problem, plan);
        EXPECT_GE(8 * shape.cluster * shape.blocks, problem.head_size()) << "every unit has a block";
        EXPECT_GE(8 * shape.tiles_n(), shape.rows);
        EXPECT_LE(plan.resident, plan.chunks);
        EXPECT_EQ(plan.chunks, problem.backward ? shape.back_tiles_k() : shape.tiles_k());
        expect_places(shape);
        if (problem.backward) {
          check_cluster_backward(shape, plan);
        } else {
          check_cluster_forward(shape, plan);
        }
      });
  EXPECT_GT(plans, 100);
}

TEST(GpuLayouts, OfAHeadOverTheWholeChip) {
  const int plans = for_each_plan(
      DenseAlgorithm::chip, [](const CellTraits& cell, const GpuDenseProblem& problem, const GpuDensePlan& plan) {
        const layout::ChipShape s = {shape_of(cell, problem, plan), plan.clusters, plan.direct};
        const bool backward = problem.backward;
        EXPECT_GE(8 * s.blocks_of_team(), problem.head_size()) << "every unit has a block";
        EXPECT_GE(8 * (s.blocks_of_team() - s.blocks_of_cluster()), problem.head_size() - 8 * s.blocks_of_cluster())
            << "no cluster is idle";
        EXPECT_EQ(s.gathered_blocks() * s.cluster, s.blocks_of_team()) << "blocks of a cluster share what is gathered";
        EXPECT_GE(s.halves(backward) * s.groups, s.blocks_of_cluster() * s.summed_values(backward));
        EXPECT_GE(2 * s.chip_tiles_m(backward), s.halves(backward));
        EXPECT_GE(2 * s.chip_tiles_k(backward) * s.parts, s.gathered_pieces(backward));
        EXPECT_GE(s.cell_slots() * 4 * s.warps(), s.blocks * s.rows);
        EXPECT_LE(plan.resident, s.chip_tiles_k(backward));
        const int pieces = s.gathered_pieces(backward) * s.rows, each = (pieces + s.threads() - 1) / s.threads();
        const int polled = layout::ChipShape::polled(pieces, s.threads());
        EXPECT_TRUE(polled >= 1 && polled <= 8) << polled;
        EXPECT_GE((each + 7) / 8 * polled, each) << "as many rounds as eight at once would take";
        EXPECT_EQ(plan.exchange, plan.teams * layout::ChipShape::exchanges(backward) * s.sent_values(backward) *
                                     s.blocks_of_team() * s.pieces() * s.rows * 16);
        expect_places(s);
        // An operand that goes straight to registers needs no place.
        const Index operand = s.direct ? 0 : Index{2} * s.parts * s.chip_tiles_k(backward) * s.rows * 16;
        const Index sums = Index{s.cluster} * s.parts * s.blocks * s.summed_values(backward) * s.block_floats() * 4;
        const Index gates = Index{s.gates} * s.pieces() * 16;
        const Index values = Index{s.gates} * (s.split ? 2 : 1) + 2;
        const Index read = backward ? (values * s.pieces() + (s.states - 1) * 2) * 16 : gates;
        const Index written = backward ? (s.split ? gates : 0) : (s.training ? gates : 0);
        expect_apart({{"barriers", 0, s.start},
                      {"what is gathered", s.start, operand},
                      {"R", s.chip_matrix_at(backward),
                       Index{s.warps()} * (s.chip_tiles_k(backward) - s.resident) * s.chip_tiles_m(backward) * 16 * 32},
                      {"sums", s.chip_sums_at(backward), 2 * sums},
                      {"own gates", s.chip_gates_at(backward), backward ? gates * s.blocks * s.rows : 0},
                      {"stages", s.chip_ring_at(backward), Index{s.blocks} * s.rows * s.stages * read},
                      {"what is written", s.chip_out_at(backward), s.warps() * 4 * written}},
                     plan.shared);
      });
  EXPECT_GT(plans, 200);
}

}  // namespace
}  // namespace penstock::plan
