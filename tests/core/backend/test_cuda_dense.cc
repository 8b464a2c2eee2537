// Recurrences of dense cells on a GPU against the oracle, forward and backward. Skipped where there is no GPU.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cuda/driver/graph.h"
#include "backend/dense_test.h"
#include "support/expect_error.h"

namespace penstock::cuda {
namespace {

TEST_P(DenseTest, EqualsTheOracle) {
  const oracle::Results<double> want = oracle::forward(oracle_spec(), batch, arguments);
  const DenseForward forward = forward_call();
  const DenseForwardExecutable training(stream->device(), spec(), forward);
  SCOPED_TRACE(training.plan().explain());
  run(training, forward);
  expect_forward(want);
  const Doubles once = get(y, storage);
  run(training, forward);
  EXPECT_EQ(get(y, storage), once) << "not the same bits again";

  DenseForward inference = forward;
  inference.tape = {};
  y.fill(0xff), last.fill(0xff);
  if (every_state()) others.fill(0xff);
  run(DenseForwardExecutable(stream->device(), spec(), inference), inference);
  EXPECT_EQ(get(y, storage), once) << "not the same bits without a tape";
  expect_forward(want);

  const oracle::Arguments<double> gradients = oracle_gradients();
  const DenseBackward backward = backward_call(forward);
  const DenseBackwardExecutable back(stream->device(), spec(), backward);
  SCOPED_TRACE(back.plan().explain());
  Buffer workspace(*stream, back.workspace_bytes());
  workspace.fill(0);
  back.run(backward, workspace.address(), stream->handle());
  const double error = allowed(std::max(positions(), width), 8);
  const auto expect = [&](const char* what, const Buffer& got, Storage of, const Doubles& wanted) {
    EXPECT_TRUE(test::close(gradients_of(got, of), wanted, error, test::backward_terms)) << "gradient of " << what;
  };
  expect("wx", dwx, storage, gradients.x);
  expect("R", dweight, Storage::f32, gradients.weights[0].weight_hh);
  expect("bias_ih", dbias_ih, Storage::f32, gradients.weights[0].bias_ih);
  expect("bias_hh", dbias_hh, Storage::f32, gradients.weights[0].bias_hh);
  if (c.states) expect("the state", dfirst, Storage::f32, gradients.state_in);

  const Doubles weights_once = get(dweight, Storage::f32);
  const Graph graph(*stream, [&] { back.run(backward, workspace.address(), stream->handle()); });
  dweight.fill(0xff);
  graph.launch(stream->handle());
  EXPECT_EQ(get(dweight, Storage::f32), weights_once) << "not the same bits again, as a graph";
}

/// Every shape of a block or a cluster gives every result, whichever the planner takes.
TEST_P(DenseTest, EqualsTheOracleInAnyShape) {
  const bool by_blocks = c.algorithm == plan::DenseAlgorithm::head;
  const bool by_pieces = c.algorithm == plan::DenseAlgorithm::diagonal;
  const bool by_warpgroups = c.algorithm == plan::DenseAlgorithm::warpgroup;
  if (!by_blocks && !by_pieces && !by_warpgroups && c.algorithm != plan::DenseAlgorithm::chip) {
    GTEST_SKIP() << "the algorithm has no such shapes";
  }
  const oracle::Results<double> want = oracle::forward(oracle_spec(), batch, arguments);
  const oracle::Arguments<double> gradients = oracle_gradients();
  const DenseForward forward = forward_call();
  struct Shape {
    int size, direct, rows = 0;  // rows of two portions of warpgroups
  };
  const std::vector<Shape> of_blocks = {{8, -1}, {4, -1}, {2, -1}};
  const std::vector<Shape> of_clusters = {{8, 0}, {4, 0}, {2, 0}, {1, 0}, {2, 1}, {1, 1}};
  const std::vector<Shape> of_pieces =
      c.clip > 0 ? std::vector<Shape>{{1, -1}} : std::vector<Shape>{{1, -1}, {2, -1}, {7, -1}, {64, -1}};
  const std::vector<Shape> of_shares = {{1, -1}, {2, -1}, {4, -1}, {8, -1}, {0, -1, 32}, {0, -1, 128}};
  const auto plan_of = [&](plan::GpuDenseProblem problem, const Shape& shape) {
    if (by_warpgroups) {
      // As many shares as the summed axis has parts for.
      for (problem.shares = shape.size; problem.shares >= 0;
           problem.shares = problem.shares > 1 ? problem.shares / 2 : -1) {
        problem.slots = shape.rows, problem.groups = shape.rows > 0 ? 2 : 0;
        try {
          return plan_gpu_dense(problem, stream->device().model());
        } catch (const Error&) {
        }
      }
      problem.slots = problem.groups = 0;
      return plan_gpu_dense(problem, stream->device().model());
    }
    (by_blocks ? problem.slots : by_pieces ? problem.parts : problem.cluster) = shape.size;
    problem.direct = shape.direct;
    return plan_gpu_dense(problem, stream->device().model());
  };
  for (const Shape& any : by_blocks ? of_blocks : by_pieces ? of_pieces : by_warpgroups ? of_shares : of_clusters) {
    const int shape = any.size;
    if (by_blocks && shape == 8 && c.head >= 128 && storage == Storage::f32) continue;  // too large for a block
    if (!by_blocks && !by_pieces && !by_warpgroups && shape > 1 && stream->device().model().architecture() < 90)
      continue;
    const plan::GpuDensePlan plan = plan_of(problem_of(forward, spec()), any);
    SCOPED_TRACE(plan.explain());
    y.fill(0xff), last.fill(0xff);
    run(DenseForwardExecutable(stream->device(), spec(), forward, plan), forward);
    expect_forward(want);
    const DenseBackward backward = backward_call(forward);
    const DenseBackwardExecutable back(stream->device(), spec(), backward, plan_of(problem_of(backward, spec()), any));
    Buffer workspace(*stream, back.workspace_bytes());
    workspace.fill(0);
    back.run_loop(backward, workspace.address(), stream->handle());
    const double error = allowed(std::max(positions(), width), 8);
    EXPECT_TRUE(test::close(gradients_of(dwx, storage), gradients.x, error, test::backward_terms));
    if (c.states) {
      const Doubles got = gradients_of(dfirst, Storage::f32);
      EXPECT_TRUE(test::close(got, gradients.state_in, error, test::backward_terms));
    }
  }
}

std::vector<Case> cases() {
  return {{.name = "plain"},
          {.name = "one", .rows = 1, .steps = 1, .head = 1},
          {.name = "odd_heads", .rows = 5, .heads = 3, .head = 7},
          {.name = "past_a_slice", .rows = 9, .steps = 5, .heads = 2, .head = 8},
          {.name = "past_two_warps", .rows = 2, .steps = 6, .head = 33},
          {.name = "heads_of_64", .rows = 13, .steps = 7, .heads = 2, .head = 64},
          {.name = "a_head_of_128", .rows = 9, .steps = 4, .head = 128},
          {.name = "long", .rows = 2, .steps = 131, .heads = 2, .head = 5},
          {.name = "lengths", .rows = 11, .steps = 23, .heads = 2, .lengths = true},
          {.name = "lengths_reverse", .rows = 6, .steps = 13, .head = 24, .reverse = true, .lengths = true},
          {.name = "packed", .rows = 5, .steps = 60, .head = 12, .packed = true},
          {.name = "packed_reverse_reset",
           .rows = 9,
           .steps = 90,
           .heads = 2,
           .head = 10,
           .reverse = true,
           .packed = true,
           .reset = true},
          {.name = "sorted", .rows = 11, .steps = 73, .head = 40, .packed = true, .sorted = true},
          {.name = "sorted_reverse",
           .rows = 17,
           .steps = 120,
           .heads = 2,
           .head = 10,
           .reverse = true,
           .packed = true,
           .reset = true,
           .clip = 0.3f,
           .sorted = true},
          {.name = "sorted_states",
           .rows = 5,
           .steps = 41,
           .head = 33,
           .packed = true,
           .states = false,
           .every_state = true,
           .sorted = true},
          {.name = "reset", .rows = 4, .steps = 70, .head = 9, .reset = true},
          {.name = "reset_reverse_lengths",
           .rows = 10,
           .steps = 40,
           .head = 6,
           .reverse = true,
           .lengths = true,
           .reset = true},
          {.name = "nothing_extra", .rows = 2, .steps = 20, .head = 16, .states = false, .bias = false},
          {.name = "time_first", .rows = 3, .steps = 11, .heads = 2, .head = 16, .time_first = true},
          {.name = "clipped", .rows = 9, .steps = 21, .heads = 2, .head = 24, .clip = 0.3f},
          {.name = "every_state", .rows = 3, .steps = 11, .head = 33, .time_first = true, .every_state = true},
          {.name = "clipped_every_state",
           .rows = 10,
           .steps = 40,
           .heads = 2,
           .head = 7,
           .reverse = true,
           .lengths = true,
           .reset = true,
           .clip = 0.3f,
           .every_state = true}};
}

/// Returns the cases with another algorithm, and heads that no block can hold.
std::vector<Case> cases_by(plan::DenseAlgorithm algorithm) {
  std::vector<Case> list = cases();
  list.push_back({.name = "a_head_of_300", .rows = 17, .steps = 5, .head = 300});
  list.push_back({.name = "a_head_of_512", .rows = 6, .steps = 4, .head = 512, .lengths = true});
  // More rows than all teams of clusters take at once.
  if (algorithm == plan::DenseAlgorithm::chip) {
    list.push_back({.name = "taking_turns", .rows = 150, .steps = 3, .heads = 2, .head = 200, .lengths = true});
  }
  for (Case& c : list) c.algorithm = algorithm, c.name += fmt::format("_by_{}", to_string(algorithm));
  return list;
}

/// Returns the cases with every unit as a head, and rows that are long enough to be cut.
std::vector<Case> diagonal_cases() {
  std::vector<Case> list = cases();
  list.push_back({.name = "cut", .rows = 2, .steps = 1300, .head = 40});
  list.push_back({.name = "cut_reverse", .rows = 3, .steps = 700, .head = 9, .reverse = true, .lengths = true});
  list.push_back({.name = "cut_packed", .rows = 4, .steps = 2000, .head = 33, .packed = true, .reset = true});
  for (Case& c : list) {
    c.algorithm = plan::DenseAlgorithm::diagonal, c.name += "_by_diagonal";
    c.heads *= c.head, c.head = 1;
  }
  return list;
}

/// Large batches: rows that fill no portion, several portions, teams and turns, and everything that a step can have.
std::vector<Case> warpgroup_cases() {
  std::vector<Case> list = {
      {.name = "plain", .rows = 70, .steps = 6, .head = 256},
      {.name = "one", .rows = 1, .steps = 1, .head = 128},
      {.name = "long", .rows = 33, .steps = 131, .head = 128},
      {.name = "turns", .rows = 300, .steps = 3, .heads = 5, .head = 256},
      {.name = "large", .rows = 130, .steps = 4, .head = 1024, .lengths = true},
      {.name = "from_shared_memory", .rows = 40, .steps = 3, .head = 2048},
      {.name = "streamed", .rows = 20, .steps = 3, .head = 2560, .lengths = true},
      {.name = "nothing_extra", .rows = 20, .steps = 20, .head = 256, .states = false, .bias = false},
      {.name = "clipped", .rows = 35, .steps = 9, .head = 256, .lengths = true, .clip = 0.01f},
      {.name = "packed", .rows = 19, .steps = 160, .head = 128, .packed = true},
      // Heads of any even number of units: accesses of 16, 8 and 4 bytes.
      {.name = "padded", .rows = 70, .steps = 6, .head = 200, .lengths = true},
      {.name = "padded_eights", .rows = 37, .steps = 7, .head = 900, .clip = 0.01f},
      {.name = "padded_fours", .rows = 20, .steps = 5, .head = 2, .lengths = true},
      {.name = "padded_streamed", .rows = 20, .steps = 3, .head = 2498},
      {.name = "padded_heads",
       .rows = 40,
       .steps = 20,
       .heads = 3,
       .head = 130,
       .reverse = true,
       .lengths = true,
       .reset = true,
       .time_first = true,
       .every_state = true},
      {.name = "padded_sorted", .rows = 41, .steps = 273, .head = 300, .packed = true, .sorted = true},
      {.name = "sorted", .rows = 41, .steps = 273, .head = 384, .packed = true, .sorted = true},
      {.name = "everything",
       .rows = 60,
       .steps = 40,
       .heads = 2,
       .head = 128,
       .reverse = true,
       .lengths = true,
       .reset = true,
       .time_first = true,
       .every_state = true}};
  for (Case& c : list) c.algorithm = plan::DenseAlgorithm::warpgroup, c.name += "_by_warpgroup";
  return list;
}

/// Floats in TF32 by all algorithms; by warpgroups, heads of an odd number of units.
std::vector<Case> float_cases() {
  std::vector<Case> list = warpgroup_cases();
  const Case odd{.name = "odd", .rows = 37, .steps = 7, .head = 301, .lengths = true};
  for (const auto by : {plan::DenseAlgorithm::cluster, plan::DenseAlgorithm::chip, plan::DenseAlgorithm::step,
                        plan::DenseAlgorithm::warpgroup}) {
    list.push_back(odd);
    list.back().algorithm = by, list.back().name += fmt::format("_by_{}", to_string(by));
  }
  const Case full = list.back();
  list.push_back({.name = "some", .rows = 9, .steps = 13, .head = 40, .lengths = true});
  for (const auto by : {plan::DenseAlgorithm::head, plan::DenseAlgorithm::cluster, plan::DenseAlgorithm::chip,
                        plan::DenseAlgorithm::step, plan::DenseAlgorithm::warpgroup}) {
    for (const double factor : {0x1p90, 0x1p-90}) {
      list.push_back({.name = fmt::format("{}_gradients_by_{}", factor > 1 ? "large" : "small", to_string(by)),
                      .rows = 35,
                      .steps = 12,
                      .head = 96,
                      .lengths = true,
                      .algorithm = by,
                      .gradients = factor});
    }
  }
  for (Case& c : list) c.tf32 = true, c.name += "_in_tf32";
  list.push_back(full);
  return list;
}

/// Returns all cases, cells and storages. Rectified units are tested only as floats: in halves, rounding decides on
/// which side of the kink some of them are.
std::vector<std::tuple<Case, std::string_view, Storage>> parameters() {
  std::vector<std::tuple<Case, std::string_view, Storage>> list;
  for (const CellInfo& info : cells()) {
    for (const Storage storage : {Storage::f32, Storage::bf16, Storage::f16}) {
      if (info.scan || (info.name == "elman-relu" && storage != Storage::f32)) continue;
      for (const Case& c : cases()) list.emplace_back(c, info.name, storage);
      for (const Case& c : diagonal_cases()) list.emplace_back(c, info.name, storage);
      for (const auto algorithm :
           {plan::DenseAlgorithm::step, plan::DenseAlgorithm::cluster, plan::DenseAlgorithm::chip}) {
        const bool exchanges_once = algorithm != plan::DenseAlgorithm::step;
        if (plan::cell_traits(info.name).phases > 1 && exchanges_once) continue;
        for (const Case& c : cases_by(algorithm)) list.emplace_back(c, info.name, storage);
      }
      const plan::CellTraits& traits = plan::cell_traits(info.name);
      if (traits.phases > 1 || (storage == Storage::f32 && !traits.bounded)) continue;
      for (const Case& c : warpgroup_cases()) {
        // Neither registers nor shared memory hold more units of floats.
        if (storage != Storage::f32 || c.head < 2000) list.emplace_back(c, info.name, storage);
      }
      if (storage != Storage::f32) continue;
      for (const Case& c : float_cases()) list.emplace_back(c, info.name, storage);
    }
  }
  return list;
}

INSTANTIATE_TEST_SUITE_P(Cuda, DenseTest, testing::ValuesIn(parameters()), test::name_of<Case>);

TEST(DenseArguments, AreChecked) {
  const DenseSpec sound{.hidden = 16, .heads = 2};
  DenseForward sound_call;
  sound_call.batch.rows = 3, sound_call.batch.steps = 10;
  sound_call.wx = {1 << 20, 640, 64}, sound_call.y = {1 << 21, 160, 16};
  sound_call.weights.recurrent = 1 << 22;
  const auto refused = [&](const std::string& text, const auto& change) {
    DenseSpec spec = sound;
    DenseForward call = sound_call;
    change(spec, call);
    test::expect_error(ErrorCode::invalid_argument, text, [&] { problem_of(call, spec); });
  };
  EXPECT_NO_THROW(problem_of(sound_call, sound));
  refused("wx must be an address on the GPU, not null", [](auto&, auto& call) { call.wx.data = 0; });
  refused("the recurrent matrix must be an address", [](auto&, auto& call) { call.weights.recurrent = 0; });
  refused("heads must divide it, not 16 and 3", [](auto& spec, auto&) { spec.heads = 3; });
  refused("the step stride of wx must be at least its 64 channels, not 63",
          [](auto&, auto& call) { call.wx.step_stride = 63; });
  refused("needs states besides the sums", [](auto&, auto& call) { call.tape.sums = 1 << 23; });
  refused("every_state must be null for gru, which has no state but its output", [](auto& spec, auto& call) {
    spec.cell = "gru", call.every_state = {1 << 23, 160, 16};
    call.wx = {1 << 20, 480, 48};
  });
  refused("cell must be a dense cell", [](auto& spec, auto&) { spec.cell = "mingru"; });
  refused("lengths and cu_seqlens exclude each other",
          [](auto&, auto& call) { call.batch.lengths = call.batch.cu_seqlens = 8; });
}

}  // namespace
}  // namespace penstock::cuda
