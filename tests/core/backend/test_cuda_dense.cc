// Recurrences of dense cells on a GPU against the oracle, forward and backward. Skipped where there is no GPU.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numeric>

#include "backend/cuda/dense/executable.h"
#include "backend/cuda/runtime/graph.h"
#include "support/expect_error.h"
#include "support/gpu_layer.h"

namespace penstock::cuda {
namespace {

using plan::Storage;

struct Case {
  std::string name;
  Index rows = 3, steps = 9, heads = 1, head = 16;
  bool reverse = false, lengths = false, packed = false, reset = false, states = true, bias = true, time_first = false;
  plan::DenseAlgorithm algorithm = plan::DenseAlgorithm::head;
  float clip = 0;
  bool every_state = false;  // of cells that have other states than their output
  bool sorted = false;       // packed rows, none longer than the one before, run in stages
  bool tf32 = false;
  double gradients = 1;  // factor of those that enter the backward pass on the GPU, and that its results are divided by
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

using test::Doubles;

class DenseTest : public test::GpuLayerTest<Case> {
 protected:
  void SetUp() override {
    GpuLayerTest::SetUp();
    if (IsSkipped()) return;
    if (c.algorithm == plan::DenseAlgorithm::warpgroup && stream->device().model().architecture() != 90) {
      GTEST_SKIP() << "warpgroups are of sm_90";
    }
    make_batch();
    make_arguments();
  }

  const plan::CellTraits& traits = plan::cell_traits(cell);
  Index H = c.heads * c.head, width = traits.gates() * H, S = traits.states();
  std::vector<Index> sizes;
  Doubles dothers;
  Buffer wx, weight, bias_ih, bias_hh, state, dy_gpu, dlast;
  Buffer y, last, sums, states, dwx, drh, dweight, dbias_ih, dbias_hh, dfirst, others, dothers_gpu;

  bool every_state() const { return c.every_state && S > 1; }

  void make_batch() {
    for (Index b = 0; b < c.rows; ++b) lengths.push_back(b == 1 ? c.steps : b == 2 ? 0 : 1 + 5 * b % c.steps);
    for (Index b = 0; b <= c.rows; ++b) bounds.push_back(b * b * c.steps / (c.rows * c.rows));
    if (c.sorted) make_sorted_rows();
    set_batch(0.15);
  }

  /// Rows of decreasing length, of at least one step each.
  void make_sorted_rows() {
    const Index shares = c.rows * (c.rows + 1) / 2, beyond = c.steps - c.rows;
    lengths.clear();
    for (Index b = 0; b < c.rows; ++b) lengths.push_back(1 + beyond * (c.rows - b) / shares);
    lengths[0] += c.steps - std::accumulate(lengths.begin(), lengths.end(), Index{0});
    bounds = {0};
    for (const Index length : lengths) bounds.push_back(bounds.back() + length);
    for (Index t = 0; t < lengths[0]; ++t) {
      sizes.push_back(std::ranges::count_if(lengths, [t](Index length) { return length > t; }));
    }
  }

  /// The oracle's input is W x itself, its weights of the input are ones on the diagonal.
  void make_arguments() {
    oracle::Weights<double> weights;
    weights.weight_ih.assign(static_cast<std::size_t>(width * width), 0.0);
    for (Index i = 0; i < width; ++i) weights.weight_ih[static_cast<std::size_t>(i * width + i)] = 1;
    weights.weight_hh = numbers(width * c.head, 1 / std::sqrt(static_cast<double>(c.head)), storage);
    if (c.bias)
      weights.bias_ih = numbers(width, 0.5, Storage::f32), weights.bias_hh = numbers(width, 0.5, Storage::f32);
    arguments.weights = {weights};
    arguments.x = numbers(positions() * width, 2, storage);
    const Index of_state = c.rows * H;
    dstate = numbers(S * of_state, 1, Storage::f32);
    // Halves round the gates, and with them which side of sLSTM's max a gradient of the stabiliser takes: there is none
    // as long as only the output has a gradient.
    if (S == 4 && storage != Storage::f32) std::fill(dstate.begin() + of_state, dstate.end(), 0.0);
    if (c.states) {
      arguments.state_in = numbers(S * of_state, 1, storage);
      for (Index i = 2 * of_state; S == 4 && i < 3 * of_state; ++i) {
        arguments.state_in[static_cast<std::size_t>(i)] = 1.5 + arguments.state_in[static_cast<std::size_t>(i)];
      }
    }
    dy = numbers(positions() * H, 1, storage);
    if (!every_state()) return;
    dothers = numbers(positions() * (S - 1) * H, 1, Storage::f32);
    if (S == 4 && storage != Storage::f32) std::fill(dothers.begin(), dothers.end(), 0.0);
  }

  RecurrentSpec oracle_spec() const {
    return {.cell = cell,
            .input_size = width,
            .hidden_size = H,
            .heads = c.heads,
            .direction = c.reverse ? Direction::reverse : Direction::forward,
            .bias = c.bias ? Bias::both : Bias::none,
            .gradient_clip = c.clip};
  }
  DenseSpec spec() const {
    return {.cell = cell,
            .hidden = H,
            .heads = c.heads,
            .storage = storage,
            .reverse = c.reverse,
            .algorithm = c.algorithm,
            .tf32 = c.tf32,
            .stage_rows = c.sorted ? std::vector<Index>{c.rows, (c.rows + 1) / 2, 1} : std::vector<Index>{}};
  }

  /// NaN where a row has no step: that must not be read.
  Doubles with_gaps(Doubles values, Index channels) const {
    if (!c.lengths) return values;
    for (Index b = 0; b < c.rows; ++b) {
      const auto from = values.begin() + (b * c.steps + lengths[static_cast<std::size_t>(b)]) * channels;
      std::fill(from, values.begin() + (b + 1) * c.steps * channels, std::nan(""));
    }
    return values;
  }

  static Doubles times(Doubles values, double factor) {
    for (double& v : values) v *= factor;
    return values;
  }
  Doubles gradients_of(const Buffer& got, Storage of) { return times(get(got, of), 1 / c.gradients); }

  DenseBatch dense_batch() {
    auto of = gpu_batch<DenseBatch>();
    if (c.sorted) of.sorted = true, of.sizes = sizes, of.longest = static_cast<Index>(sizes.size());
    return of;
  }

  DenseForward forward_call() {
    DenseForward call;
    call.batch = dense_batch();
    wx = put(ordered(with_gaps(arguments.x, width), width, true), storage);
    weight = put(arguments.weights[0].weight_hh, storage);
    bias_ih = put(arguments.weights[0].bias_ih, Storage::f32);
    bias_hh = put(arguments.weights[0].bias_hh, Storage::f32);
    state = put(arguments.state_in, Storage::f32);
    y = room(positions() * H, storage), last = room(S * c.rows * H, Storage::f32);
    sums = room(positions() * width, storage), states = room(positions() * (S - 1) * H, Storage::f32);
    call.wx = sequence(wx, width), call.y = sequence(y, H);
    call.weights = {weight.address(), bias_ih.address(), bias_hh.address()};
    call.state_in = state.address(), call.state_out = last.address();
    call.tape = {sums.address(), states.address()};
    if (every_state()) {
      others = room(positions() * (S - 1) * H, Storage::f32);
      call.every_state = sequence(others, (S - 1) * H);
    }
    return call;
  }

  DenseBackward backward_call(const DenseForward& forward) {
    DenseBackward call;
    call.batch = forward.batch;
    dy_gpu = put(ordered(with_gaps(times(dy, c.gradients), H), H, true), storage);
    dlast = put(times(dstate, c.gradients), Storage::f32);
    dwx = room(positions() * width, storage);
    drh = room(traits.split_gradients ? positions() * width : 0, storage);
    dweight = room(width * c.head, Storage::f32), dfirst = room(S * c.rows * H, Storage::f32);
    dbias_ih = room(c.bias ? width : 0, Storage::f32), dbias_hh = room(c.bias ? width : 0, Storage::f32);
    call.wx = forward.wx, call.y = forward.y, call.dy = sequence(dy_gpu, H);
    call.weights = forward.weights;
    call.tape = forward.tape;
    call.dwx = dwx.address(), call.drh = drh.address();
    call.gradients = {dweight.address(), dbias_ih.address(), dbias_hh.address()};
    call.state_in = forward.state_in;
    call.dstate_out = dlast.address(), call.dstate_in = dfirst.address();
    call.clip = c.clip;
    if (every_state()) {
      const Index channels = (S - 1) * H;
      dothers_gpu = put(ordered(with_gaps(times(dothers, c.gradients), channels), channels, true), Storage::f32);
      call.dstates = sequence(dothers_gpu, channels);
    }
    return call;
  }

  /// Rounding of W x, h, the kept sums and results, in halves of a unit of the storage; of TF32, of factors.
  double allowed(Index summed, double roundings) const {
    return oracle::tolerance<float>({.summed = summed, .steps = c.steps, .backward = roundings > 4, .logit = 4}) +
           (c.tf32                    ? roundings * test::half_unit(Storage::f16)
            : storage == Storage::f32 ? 0
                                      : roundings * test::half_unit(storage));
  }

  oracle::Arguments<double> oracle_gradients() const {
    return oracle::gradients(oracle_spec(), batch, arguments, dy, dstate, oracle::Terms::signed_ones, dothers);
  }

  void run(const DenseForwardExecutable& executable, const DenseForward& call) {
    Buffer workspace(*stream, executable.workspace_bytes());
    workspace.fill(0);
    executable.run(call, workspace.address(), stream->handle());
  }

  void expect_forward(const oracle::Results<double>& want) {
    EXPECT_TRUE(test::close(ordered(get(y, storage), H, false), want.y, allowed(c.head, 4), test::forward_terms));
    EXPECT_TRUE(test::close(get(last, Storage::f32), want.state_out, allowed(c.head, 4), test::forward_terms));
    if (!every_state()) return;
    const Doubles got = ordered(get(others, Storage::f32), (S - 1) * H, false);
    EXPECT_TRUE(test::close(got, want.states, allowed(c.head, 4), test::forward_terms));
  }
};

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

/// NaN and infinity in one value of R, of a first state or of a gradient: no result is wrong and finite.
class NotNumbersTest : public DenseTest {
 protected:
  /// The NaN of CUDA's arithmetic, its negative, and that of the host.
  static double nan_of(int which) {
    const auto bits = which == 0 ? 0x7fffffffu : which == 1 ? 0xffffffffu : 0x7fc00000u;
    return static_cast<double>(std::bit_cast<float>(bits));
  }
  Index at(Index b, Index t, Index channels) const { return (b * c.steps + t) * channels; }

  /// Where `wanted` is NaN, so is `got`; elsewhere it is close or NaN.
  static void expect_nothing_lost(const Doubles& got, const Doubles& wanted, double error) {
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(got[i])) continue;
      ASSERT_LE(std::abs(got[i] - wanted[i]), error * std::max(1.0, std::abs(wanted[i]))) << "value " << i;
    }
  }
  Doubles forward_of() {
    const DenseForward call = forward_call();
    const DenseForwardExecutable executable(stream->device(), spec(), call);
    SCOPED_TRACE(executable.plan().explain());
    run(executable, call);
    return get(y, storage);
  }
};

TEST_P(NotNumbersTest, PassThroughStates) {
  for (int which = 0; which < 3; ++which) {
    arguments.state_in[static_cast<std::size_t>(3 * H + 5)] = nan_of(which);
    const Doubles got = forward_of();
    for (Index b = 0; b < c.rows; ++b) {
      for (Index i = at(b, 0, H); i < at(b, 1, H); ++i) {
        EXPECT_EQ(std::isnan(got[static_cast<std::size_t>(i)]), b == 3) << "NaN " << which << ", row " << b;
      }
    }
  }
}

TEST_P(NotNumbersTest, PassThroughTheMatrix) {
  for (int which = 0; which < 3; ++which) {
    arguments.weights[0].weight_hh[static_cast<std::size_t>(5 * c.head + 7)] = nan_of(which);
    const Doubles got = forward_of();
    for (Index b = 0; b < c.rows; ++b) EXPECT_TRUE(std::isnan(got[static_cast<std::size_t>(at(b, 0, H) + 5)])) << b;
  }
  arguments.weights[0].weight_hh[static_cast<std::size_t>(5 * c.head + 7)] = HUGE_VAL;
  const Doubles want = oracle::forward(oracle_spec(), batch, arguments).y;
  expect_nothing_lost(forward_of(), want, allowed(c.head, 4));
}

TEST_P(NotNumbersTest, PassThroughGradients) {
  const DenseForward forward = forward_call();
  run(DenseForwardExecutable(stream->device(), spec(), forward), forward);
  const Doubles sound = oracle_gradients().x;
  for (const double value : {nan_of(0), nan_of(1), nan_of(2), HUGE_VAL, -HUGE_VAL}) {
    dy[static_cast<std::size_t>(at(3, c.steps - 1, H) + 5)] = value;
    const DenseBackward call = backward_call(forward);
    const DenseBackwardExecutable back(stream->device(), spec(), call);
    SCOPED_TRACE(back.plan().explain());
    Buffer workspace(*stream, back.workspace_bytes());
    workspace.fill(0);
    back.run(call, workspace.address(), stream->handle());
    const Doubles got = get(dwx, storage);
    const double error = allowed(std::max(positions(), width), 8);
    for (Index b = 0; b < c.rows; ++b) {
      for (Index i = at(b, 0, width); i < at(b, c.steps - 1, width); ++i) {
        const auto of = static_cast<std::size_t>(i);
        if (b == 3) {
          ASSERT_FALSE(std::isfinite(got[of])) << value << ", value " << i - at(b, 0, width);
        } else {
          ASSERT_NEAR(got[of], sound[of], error * test::backward_terms) << value << ", row " << b;
        }
      }
    }
  }
}

/// Where products round floats, by each algorithm.
std::vector<std::tuple<Case, std::string_view, Storage>> not_numbers() {
  std::vector<std::tuple<Case, std::string_view, Storage>> list;
  for (const std::string_view cell : {"elman", "gru", "lstm", "slstm"}) {
    for (const auto by : {plan::DenseAlgorithm::head, plan::DenseAlgorithm::cluster, plan::DenseAlgorithm::chip,
                          plan::DenseAlgorithm::step, plan::DenseAlgorithm::warpgroup}) {
      const Case c{.name = fmt::format("tf32_by_{}", to_string(by)),
                   .rows = 36,
                   .steps = 3,
                   .head = 64,
                   .algorithm = by,
                   .tf32 = true};
      list.emplace_back(c, cell, Storage::f32);
    }
  }
  return list;
}
INSTANTIATE_TEST_SUITE_P(Cuda, NotNumbersTest, testing::ValuesIn(not_numbers()), test::name_of<Case>);

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
