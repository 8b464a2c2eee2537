// How recurrences of dense cells run on a GPU: what the planner chooses, what it refuses, and that it says why.

#include "plan/gpu/dense.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "plan/h200.h"
#include "plan/machine.h"
#include "support/expect_error.h"

namespace penstock::plan {
namespace {

using testing::HasSubstr;

GpuDenseProblem dense(const std::string& cell, Storage storage, Index rows, Index heads, Index head) {
  GpuDenseProblem problem;
  problem.cell = cell, problem.storage = storage;
  problem.rows = rows, problem.steps = 1024;
  problem.heads = heads, problem.hidden = heads * head;
  return problem;
}

TEST(GpuDense, TakesFewRowsABlockWhileAllRunAtOnce) {
  const GpuDensePlan two = plan_gpu_dense(dense("lstm", Storage::bf16, 16, 12, 64), h200());
  EXPECT_EQ(two.slots, 2);
  EXPECT_EQ(two.grid, 96);
  EXPECT_EQ(two.threads(), 128);
  EXPECT_THAT(two.explain(), HasSubstr("all run at once"));
  EXPECT_EQ(plan_gpu_dense(dense("lstm", Storage::bf16, 32, 12, 64), h200()).slots, 4);
  const GpuDensePlan many = plan_gpu_dense(dense("lstm", Storage::bf16, 256, 12, 64), h200());
  EXPECT_EQ(many.slots, 8);
  EXPECT_EQ(many.grid, 384);
  EXPECT_EQ(many.blocks, 3);
  EXPECT_LE(many.blocks * (many.shared + kReservedBytes), h200().shared_bytes);
  EXPECT_THAT(many.explain(), HasSubstr("as many rows as are multiplied at once"));
  GpuDenseProblem asked = dense("lstm", Storage::bf16, 16, 12, 64);
  asked.slots = 8;
  EXPECT_EQ(plan_gpu_dense(asked, h200()).slots, 8);
  asked.slots = 3;
  test::expect_error(ErrorCode::invalid_argument, "slots must be 8, 4, 2 or 0, not 3",
                     [&] { plan_gpu_dense(asked, h200()); });
}

/// The registers of resets leave the matrix where it lies without them.
TEST(GpuDense, KeepsTheShapeOfForwardPassesWithResets) {
  const auto plan_of = [](GpuDenseProblem problem, bool reset, bool restarts) {
    problem.training = true, problem.reset = reset, problem.restarts = restarts;
    GpuDensePlan plan = plan_gpu_dense(problem, h200());
    EXPECT_EQ(plan.algorithm, DenseAlgorithm::cluster);
    EXPECT_EQ(plan.resident, plan.chunks) << plan.explain();
    return plan;
  };
  for (const char* const cell : {"lstm", "gru"}) {
    for (const Index rows : {64, 128}) {
      const GpuDenseProblem problem = dense(cell, Storage::bf16, rows, 1, 256);
      const GpuDensePlan plan = plan_of(problem, false, false);
      for (const bool restarts : {false, true}) EXPECT_EQ(plan_of(problem, true, restarts), plan);
    }
  }
}

/// The part of the matrix that does not fit the registers lies in shared memory.
TEST(GpuDense, PutsTheRestOfTheMatrixInSharedMemory) {
  const GpuDensePlan halves = plan_gpu_dense(dense("lstm", Storage::bf16, 16, 4, 128), h200());
  EXPECT_EQ(halves.resident, halves.chunks);
  GpuDenseProblem asked = dense("lstm", Storage::f32, 16, 4, 128);
  asked.algorithm = DenseAlgorithm::head;
  const GpuDensePlan floats = plan_gpu_dense(asked, h200());
  EXPECT_LT(floats.resident, floats.chunks);
  EXPECT_GT(floats.shared, Index{floats.chunks - floats.resident} * 4 * 8 * 1024);
  EXPECT_LE(floats.shared, h200().block_bytes);
}

/// Where a block could hold the matrix but would read most of it from shared memory at each step, or multiplies floats,
/// clusters are quicker: these were measured.
TEST(GpuDense, SharesHeadsThatABlockCanHoldWhereThatIsQuicker) {
  const auto chosen = [](const char* cell, Storage storage, Index rows, Index head, bool backward = false) {
    GpuDenseProblem problem = dense(cell, storage, rows, 1, head);
    problem.training = !backward, problem.backward = backward;
    return plan_gpu_dense(problem, h200()).algorithm;
  };
  for (const bool backward : {false, true}) {
    EXPECT_EQ(chosen("lstm", Storage::f32, 16, 32, backward), DenseAlgorithm::head);
    EXPECT_EQ(chosen("lstm", Storage::f32, 16, 128, backward), DenseAlgorithm::cluster);
    EXPECT_EQ(chosen("gru", Storage::f32, 64, 96, backward), DenseAlgorithm::cluster);
    EXPECT_EQ(chosen("elman", Storage::f32, 64, 64, backward), DenseAlgorithm::head);
    EXPECT_EQ(chosen("lstm", Storage::bf16, 64, 128, backward), DenseAlgorithm::head);
    EXPECT_EQ(chosen("lstm", Storage::bf16, 16, 176, backward), DenseAlgorithm::cluster);
  }
  EXPECT_EQ(chosen("lstm", Storage::f32, 16, 64), DenseAlgorithm::cluster);
  EXPECT_EQ(chosen("gru", Storage::f32, 64, 64, true), DenseAlgorithm::head);
}

/// Measured on an H200: what else could run took 1.12 to 1.8 times as long.
TEST(GpuDense, TakesTheAlgorithmThatWasQuickestBackward) {
  const auto chosen = [](const char* cell, Storage storage, Index rows, Index heads, Index head, int alignment) {
    GpuDenseProblem problem = dense(cell, storage, rows, heads, head);
    problem.backward = true, problem.alignment = alignment;
    return plan_gpu_dense(problem, named_gpu("H200"));
  };
  EXPECT_EQ(chosen("gru", Storage::f16, 5, 1, 147, 2).algorithm, DenseAlgorithm::cluster);
  EXPECT_EQ(chosen("elman", Storage::bf16, 37, 1, 800, 16).algorithm, DenseAlgorithm::chip);
  EXPECT_EQ(chosen("gru", Storage::bf16, 131, 2, 933, 2).algorithm, DenseAlgorithm::chip) << "rows are not aligned";
  EXPECT_EQ(chosen("slstm", Storage::bf16, 247, 1, 1376, 16).algorithm, DenseAlgorithm::step);
  EXPECT_EQ(chosen("lstm", Storage::bf16, 96, 1, 1500, 8).shares, 8);
}

/// Two teams that stream most of the matrix were measured to take 35 us a step, one that shares sums 22 in two turns.
TEST(GpuDense, SharesSumsWhereStreamsOfTeamsExceedTheCache) {
  GpuDenseProblem problem = dense("gru", Storage::bf16, 256, 1, 2048);
  problem.backward = true;
  const GpuDensePlan plan = plan_gpu_dense(problem, named_gpu("H200"));
  EXPECT_EQ(plan.shares, 8) << plan.explain();
  EXPECT_EQ(plan.streamed, 0) << plan.explain();
  EXPECT_EQ(plan.slots, 128) << plan.explain();
  problem.hidden = 1536;
  EXPECT_GT(plan_gpu_dense(problem, named_gpu("H200")).streamed, 0);
}

/// Few long rows are cut into pieces; many rows, short ones, and gradients with a limit are not.
TEST(GpuDense, CutsTheStepsOfDiagonalsWhereRowsAreFew) {
  GpuDenseProblem few = dense("gru", Storage::f32, 1, 256, 1);
  few.steps = 65'536;
  const GpuDensePlan cut = plan_gpu_dense(few, h200());
  EXPECT_EQ(cut.algorithm, DenseAlgorithm::diagonal);
  EXPECT_GE(cut.pieces, 128);
  EXPECT_THAT(cut.explain(), HasSubstr("Newton's method joins the pieces"));
  GpuDenseProblem training = few;
  training.training = true;
  EXPECT_EQ(plan_gpu_dense(training, h200()).pieces, cut.pieces) << "the same bits with a tape and without";
  GpuDenseProblem limited = few;
  limited.backward = limited.clipped = true;
  EXPECT_EQ(plan_gpu_dense(limited, h200()).pieces, 1);
  limited.parts = 4;
  limited.algorithm = DenseAlgorithm::diagonal;
  test::expect_error(ErrorCode::unsupported, "gradients with a limit run in one piece",
                     [&] { plan_gpu_dense(limited, h200()); });
  EXPECT_EQ(plan_gpu_dense(dense("lstm", Storage::bf16, 64, 4096, 1), h200()).pieces, 1);
  GpuDenseProblem wide = dense("lstm", Storage::f32, 1, 128, 2);
  wide.algorithm = DenseAlgorithm::diagonal;
  test::expect_error(ErrorCode::unsupported, "every unit must be a head by itself, and heads have 2 units",
                     [&] { plan_gpu_dense(wide, h200()); });
}

TEST(GpuDense, RefusesWhatNoBlockHolds) {
  test::expect_error(ErrorCode::unsupported, "needs", [] {
    GpuDenseProblem problem = dense("lstm", Storage::f32, 16, 1, 256);
    problem.algorithm = DenseAlgorithm::head;
    plan_gpu_dense(problem, h200());
  });
  test::expect_error(ErrorCode::invalid_argument, "heads (3) must divide hidden (64)", [] {
    GpuDenseProblem problem = dense("gru", Storage::bf16, 16, 1, 64);
    problem.heads = 3;
    plan_gpu_dense(problem, h200());
  });
  test::expect_error(ErrorCode::invalid_argument, "mingru is a scan cell",
                     [] { plan_gpu_dense(dense("mingru", Storage::bf16, 16, 1, 64), h200()); });
  test::expect_error(ErrorCode::invalid_argument, "must be at least 1",
                     [] { plan_gpu_dense(dense("lstm", Storage::bf16, 0, 1, 64), h200()); });
}

/// What decides on the order of a row's sums.
auto order_of_sums(const GpuDensePlan& plan) {
  return std::tuple(plan.algorithm, plan.slots, plan.warps, plan.chunks, plan.cluster, plan.clusters, plan.octets,
                    plan.groups, plan.parts, plan.pieces, plan.direct, plan.shares);
}

/// In exact mode a row's sums have one order in any batch, with all that a batch can have.
TEST(GpuDense, ExactPlansFollowNeitherRowsNorSteps) {
  for (const char* const cell : {"elman", "gru", "lstm", "slstm"}) {
    for (const Storage storage : {Storage::f32, Storage::bf16}) {
      for (const Index head : {1, 7, 64, 250, 512, 1024, 2048}) {
        SCOPED_TRACE(fmt::format("{}, {}, {} units", cell, to_string(storage), head));
        GpuDenseProblem problem = dense(cell, storage, 1, 1, head);
        problem.exact = true, problem.steps = 1;
        const GpuDensePlan one = plan_gpu_dense(problem, h200());
        for (const Index rows : {3, 16, 17, 64, 1000}) {
          problem.rows = rows, problem.steps = 100 * rows;
          problem.training = !problem.training, problem.ragged = rows > 10, problem.reset = rows > 20;
          const GpuDensePlan many = plan_gpu_dense(problem, h200());
          EXPECT_EQ(order_of_sums(many), order_of_sums(one)) << many.explain();
          EXPECT_GE(many.slices * many.slots, rows);
          EXPECT_LE(many.shared, h200().block_bytes);
        }
      }
    }
  }
  GpuDenseProblem asked = dense("lstm", Storage::f32, 4, 1, 1024);
  asked.exact = true, asked.algorithm = DenseAlgorithm::head;
  test::expect_error(ErrorCode::unsupported, "at most 256 units", [&] { plan_gpu_dense(asked, h200()); });
}

}  // namespace
}  // namespace penstock::plan
