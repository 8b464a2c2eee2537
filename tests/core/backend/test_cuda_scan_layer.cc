// Layers of scan cells on a GPU against the oracle: forward, backward, step. Skipped where there is no GPU.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cuda/driver/graph.h"
#include "backend/cuda/scan/layer.h"
#include "backend/cuda/scan/step.h"
#include "oracle/tolerance.h"
#include "support/expect_error.h"
#include "support/gpu_layer.h"

namespace penstock::cuda {
namespace {

using plan::ScanAlgorithm;
using plan::Storage;

struct Case {
  std::string name;
  Index rows = 3, steps = 9, input = 5, hidden = 7;
  bool reverse = false, lengths = false, packed = false, reset = false, states = true, bias = true, time_first = false;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

using test::Doubles;

class LayerTest : public test::GpuLayerTest<Case> {
 protected:
  void SetUp() override {
    GpuLayerTest::SetUp();
    make_batch();
    make_arguments();
  }

  ScanRule rule = scan_rule(cell);
  Index width = rule.gates * c.hidden;

  void make_batch() {
    for (Index b = 0; b < c.rows; ++b) lengths.push_back(b == 0 ? c.steps : b == 1 ? 0 : 1 + 5 * b % c.steps);
    for (Index b = 0; b <= c.rows; ++b) bounds.push_back(b * c.steps / c.rows);
    set_batch(0.1);
  }

  void make_arguments() {
    arguments.weights.resize(1);
    arguments.weights[0].weight_ih = numbers(width * c.input, 1 / std::sqrt(static_cast<double>(c.input)), storage);
    if (c.bias) arguments.weights[0].bias_ih = numbers(width, 0.5, storage);
    if (c.bias && cell.ends_with("-log")) keep_off_the_kink();
    arguments.x = numbers(positions() * c.input, 1, storage);
    if (c.states) arguments.state_in = numbers(c.rows * c.hidden, 1, Storage::f32);
    dy = numbers(positions() * c.hidden, 1, storage);
    dstate = numbers(c.rows * c.hidden, 1, Storage::f32);
  }

  /// A positive candidate has a kink at 0, and sums of halves hit 0 exactly: rounding would choose the side. Here a
  /// channel stays on one side of it, each of two neighbours on another.
  void keep_off_the_kink() {
    for (Index j = 0; j < c.hidden; ++j) {
      const double far = std::sqrt(static_cast<double>(c.input)) + 0.25;
      arguments.weights[0].bias_ih[width - c.hidden + j] = test::rounded(j % 2 == 0 ? far : -far, storage);
    }
  }

  RecurrentSpec oracle_spec() const {
    return {.cell = cell,
            .input_size = c.input,
            .hidden_size = c.hidden,
            .direction = c.reverse ? Direction::reverse : Direction::forward,
            .bias = c.bias ? Bias::single : Bias::none};
  }
  LayerSpec spec() const {
    LayerSpec s{.cell = cell, .input = c.input, .hidden = c.hidden, .storage = storage};
    s.bias = c.bias, s.reverse = c.reverse;
    return s;
  }

  Buffer upload_sequence(const Doubles& values, Index channels) {
    return put(ordered(values, channels, true), storage);
  }
  Doubles download_sequence(const Buffer& buffer, Index channels) {
    return ordered(get(buffer, storage), channels, false);
  }
  /// Gates of all steps that exist, against the product in double; a fused layer writes no others.
  void expect_gates(const Doubles& got) const {
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(got[i])) continue;
      const auto column = i % static_cast<std::size_t>(width), position = i / static_cast<std::size_t>(width);
      std::size_t row = position;
      if (c.time_first)
        row = position % static_cast<std::size_t>(c.rows) * static_cast<std::size_t>(c.steps) +
              position / static_cast<std::size_t>(c.rows);
      double want = c.bias ? arguments.weights[0].bias_ih[column] : 0, scale = 1 + std::abs(want);
      for (Index k = 0; k < c.input; ++k) {
        const double product = arguments.weights[0].weight_ih[column * static_cast<std::size_t>(c.input) + k] *
                               arguments.x[row * static_cast<std::size_t>(c.input) + k];
        want += product, scale += std::abs(product);
      }
      ASSERT_NEAR(got[i], want, allowed(c.input, 2) * scale) << "gate " << column << " of position " << position;
    }
    EXPECT_FALSE(std::all_of(got.begin(), got.end(), [](double gate) { return std::isnan(gate); }));
  }

  /// Returns whether the chip and the sizes are those of the epilogue algorithm.
  bool takes_epilogue() const {
    return stream->device().model().architecture() == 90 && storage != Storage::f32 && c.input % 8 == 0 &&
           c.hidden % 8 == 0;
  }

  /// Rounding of the gates and of what stands between them and a result, in halves of a unit of the storage.
  double allowed(Index summed, double roundings) const {
    const bool backward = roundings > 4;
    return oracle::tolerance<float>({.summed = summed, .steps = c.steps, .backward = backward}) +
           (storage == Storage::f32 ? 0 : roundings * test::half_unit(storage));
  }
};

TEST_P(LayerTest, EqualsTheOracle) {
  const oracle::Results<double> want = oracle::forward(oracle_spec(), batch, arguments);
  const Buffer x = upload_sequence(arguments.x, c.input), dy_gpu = upload_sequence(dy, c.hidden);
  const Buffer weight = put(arguments.weights[0].weight_ih, storage), bias = put(arguments.weights[0].bias_ih, storage);
  const Buffer state = put(arguments.state_in, Storage::f32), dlast = put(dstate, Storage::f32);
  Buffer y = room(positions() * c.hidden, storage), gates = room(positions() * width, storage);
  Buffer last = room(c.rows * c.hidden, Storage::f32);
  LayerForward forward;
  forward.batch = gpu_batch<LayerBatch>();
  forward.x = sequence(x, c.input), forward.y = sequence(y, c.hidden);
  forward.weights = {weight.address(), bias.address()};
  forward.gates = gates.address();
  forward.state_in = state.address(), forward.state_out = last.address();
  const LayerForwardExecutable executable(stream->device(), spec(), forward);
  Buffer workspace(*stream, executable.workspace_bytes());
  workspace.fill(0);
  executable.run(forward, workspace.address(), stream->handle());
  EXPECT_TRUE(test::close(download_sequence(y, c.hidden), want.y, allowed(c.input, 4), test::forward_terms));
  EXPECT_TRUE(test::close(get(last, Storage::f32), want.state_out, allowed(c.input, 4), test::forward_terms));

  const oracle::Arguments<double> gradients = oracle::gradients(oracle_spec(), batch, arguments, dy, dstate);
  Buffer dx = room(positions() * c.input, storage), dweight = room(width * c.input, Storage::f32);
  Buffer dbias = room(c.bias ? width : 0, Storage::f32), dfirst = room(c.rows * c.hidden, Storage::f32);
  LayerBackward backward;
  backward.batch = forward.batch;
  backward.x = forward.x, backward.y = forward.y;
  backward.dy = sequence(dy_gpu, c.hidden), backward.dx = sequence(dx, c.input);
  backward.weights = forward.weights;
  backward.gradients = {dweight.address(), dbias.address()};
  backward.gates = backward.dgates = gates.address();
  backward.state_in = state.address();
  backward.dstate_out = dlast.address(), backward.dstate_in = dfirst.address();
  const LayerBackwardExecutable back(stream->device(), spec(), backward);
  Buffer back_workspace(*stream, back.workspace_bytes());
  back_workspace.fill(0);
  back.run(backward, back_workspace.address(), stream->handle());
  const double error = allowed(std::max(positions(), width), 8);
  EXPECT_TRUE(test::close(download_sequence(dx, c.input), gradients.x, error, test::backward_terms));
  EXPECT_TRUE(test::close(get(dweight, Storage::f32), gradients.weights[0].weight_ih, error, test::backward_terms));
  EXPECT_TRUE(test::close(get(dbias, Storage::f32), gradients.weights[0].bias_ih, error, test::backward_terms));
  if (c.states) {
    EXPECT_TRUE(test::close(get(dfirst, Storage::f32), gradients.state_in, error, test::backward_terms));
  }

  const Doubles once = get(dweight, Storage::f32);
  const Graph graph(*stream, [&] {
    executable.run(forward, workspace.address(), stream->handle());
    back.run(backward, back_workspace.address(), stream->handle());
  });
  for (int repeat = 0; repeat < 2; ++repeat) {
    dweight.fill(0xff);
    graph.launch(stream->handle());
    EXPECT_EQ(get(dweight, Storage::f32), once) << "not the same bits again, as a graph";
  }
}

TEST_P(LayerTest, EqualsTheOracleInEveryAlgorithm) {
  const oracle::Results<double> want = oracle::forward(oracle_spec(), batch, arguments);
  const Buffer x = upload_sequence(arguments.x, c.input), state = put(arguments.state_in, Storage::f32);
  const Buffer weight = put(arguments.weights[0].weight_ih, storage), bias = put(arguments.weights[0].bias_ih, storage);
  Buffer y = room(positions() * c.hidden, storage), gates = room(positions() * width, storage);
  Buffer last = room(c.rows * c.hidden, Storage::f32);
  LayerForward forward;
  forward.batch = gpu_batch<LayerBatch>();
  forward.x = sequence(x, c.input), forward.y = sequence(y, c.hidden);
  forward.weights = {weight.address(), bias.address()};
  forward.state_in = state.address(), forward.state_out = last.address();
  for (const auto& [algorithm, keep] : {std::pair{ScanAlgorithm::direct, true},
                                        {ScanAlgorithm::scan, true},
                                        {ScanAlgorithm::fused, true},
                                        {ScanAlgorithm::fused, false},
                                        {ScanAlgorithm::epilogue, true},
                                        {ScanAlgorithm::epilogue, false},
                                        {ScanAlgorithm::automatic, false}}) {
    if (algorithm == ScanAlgorithm::epilogue && !takes_epilogue()) continue;
    LayerSpec asked = spec();
    asked.algorithm = algorithm;
    forward.gates = keep ? gates.address() : 0;
    y.fill(0xff), gates.fill(0xff), last.fill(0xff);
    const LayerForwardExecutable executable(stream->device(), asked, forward);
    SCOPED_TRACE(executable.plan().explain());
    Buffer workspace(*stream, executable.workspace_bytes());
    workspace.fill(0);
    executable.run(forward, workspace.address(), stream->handle());
    EXPECT_TRUE(test::close(download_sequence(y, c.hidden), want.y, allowed(c.input, 4), test::forward_terms));
    EXPECT_TRUE(test::close(get(last, Storage::f32), want.state_out, allowed(c.input, 4), test::forward_terms));
    const Doubles once = get(y, storage);
    executable.run(forward, workspace.address(), stream->handle());
    EXPECT_EQ(get(y, storage), once) << "not the same bits again";
    if ((algorithm == ScanAlgorithm::fused || algorithm == ScanAlgorithm::epilogue) && keep)
      expect_gates(get(gates, storage));
  }
}

TEST_P(LayerTest, StepsEqualTheSequence) {
  if (c.reverse || c.lengths || c.packed || c.reset || c.steps > 100) GTEST_SKIP() << "streams run forwards";
  const oracle::Results<double> want = oracle::forward(oracle_spec(), batch, arguments);
  const Buffer x = upload_sequence(arguments.x, c.input);
  const Buffer weight = put(arguments.weights[0].weight_ih, storage), bias = put(arguments.weights[0].bias_ih, storage);
  Doubles first = arguments.state_in;
  first.resize(static_cast<std::size_t>(c.rows * c.hidden));
  Buffer state = put(first, Storage::f32), y = room(positions() * c.hidden, storage);
  const DeviceSequence from = sequence(x, c.input), to = sequence(y, c.hidden);
  const Index size = plan::size_of(storage);
  LayerStep call;
  call.rows = c.rows;
  call.x = from.data, call.x_stride = from.row_stride;
  call.y = to.data, call.y_stride = to.row_stride;
  call.state = state.address();
  call.weights = {weight.address(), bias.address()};
  // Steps begin wherever the one before ended: what all of them are aligned to is one channel's size at least.
  LayerStep anywhere = call;
  anywhere.x += static_cast<DeviceAddress>(from.step_stride * size);
  const StepExecutable step(stream->device(), spec(), c.steps > 1 ? anywhere : call);
  const Graph graph(*stream, [&] {
    for (Index t = 0; t < c.steps; ++t) {
      call.x = from.data + static_cast<DeviceAddress>(t * from.step_stride * size);
      call.y = to.data + static_cast<DeviceAddress>(t * to.step_stride * size);
      step.run(call, stream->handle());
    }
  });
  graph.launch(stream->handle());
  EXPECT_TRUE(test::close(download_sequence(y, c.hidden), want.y, allowed(c.input, 3), test::forward_terms));
  EXPECT_TRUE(test::close(get(state, Storage::f32), want.state_out, allowed(c.input, 3), test::forward_terms));
}

std::vector<Case> cases() {
  std::vector<Case> list;
  const auto add = [&](const Case& c) { list.push_back(c); };
  add({.name = "small"});
  add({.name = "one", .rows = 1, .steps = 1, .input = 1, .hidden = 1});
  add({.name = "one_step", .rows = 17, .steps = 1, .input = 8, .hidden = 16});
  add({.name = "aligned", .rows = 2, .steps = 40, .input = 32, .hidden = 64});
  add({.name = "chunks", .rows = 2, .steps = 1300, .input = 3, .hidden = 33});
  add({.name = "time_first", .rows = 4, .steps = 30, .input = 16, .hidden = 24, .time_first = true});
  add({.name = "reverse_lengths", .rows = 5, .steps = 33, .input = 7, .hidden = 10, .reverse = true, .lengths = true});
  add({.name = "packed_reset", .rows = 4, .steps = 90, .input = 8, .hidden = 12, .packed = true, .reset = true});
  add({.name = "nothing_extra", .rows = 2, .steps = 20, .input = 6, .hidden = 9, .states = false, .bias = false});
  // Around the tiles of 128 steps by 64 or 128 channels and the stages of 64 inputs, whole and not.
  add({.name = "tile", .rows = 1, .steps = 128, .input = 64, .hidden = 128});
  add({.name = "past_a_tile", .rows = 3, .steps = 257, .input = 72, .hidden = 136});
  add({.name = "reverse_tiles", .rows = 3, .steps = 391, .input = 200, .hidden = 264, .reverse = true});
  add({.name = "long_row", .rows = 1, .steps = 3001, .input = 8, .hidden = 8, .bias = false});
  add({.name = "ragged_tiles", .rows = 5, .steps = 300, .input = 40, .hidden = 72, .lengths = true, .reset = true});
  add({.name = "packed_reverse_tiles",
       .rows = 4,
       .steps = 1100,
       .input = 24,
       .hidden = 80,
       .reverse = true,
       .packed = true});
  return list;
}

std::vector<std::string_view> scan_cells() {
  std::vector<std::string_view> names;
  for (const CellInfo& cell : cells()) {
    if (cell.scan) names.push_back(cell.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Cuda, LayerTest,
                         testing::Combine(testing::ValuesIn(cases()), testing::ValuesIn(scan_cells()),
                                          testing::Values(Storage::f32, Storage::bf16, Storage::f16)),
                         test::name_of<Case>);

/// A call that nothing is wrong with, at addresses that nobody reads.
LayerForward sound_call() {
  LayerForward call;
  call.batch.rows = 3, call.batch.steps = 10;
  call.x = {1 << 20, 80, 8}, call.y = {1 << 21, 160, 16};
  call.weights = {1 << 22, 1 << 23};
  call.gates = 1 << 24;
  return call;
}

TEST(LayerArguments, AreChecked) {
  const LayerSpec sound{.input = 8, .hidden = 16};
  const auto refused = [&](const std::string& text, const auto& change) {
    LayerSpec spec = sound;
    LayerForward call = sound_call();
    change(spec, call);
    test::expect_error(ErrorCode::invalid_argument, text, [&] { problem_of(call, spec); });
  };
  EXPECT_NO_THROW(problem_of(sound_call(), sound));
  refused("weight must be an address on the GPU, not null", [](auto&, auto& call) { call.weights.weight = 0; });
  refused("bias must be an address on the GPU", [](auto&, auto& call) { call.weights.bias = 0; });
  refused("bias must be null", [](auto& spec, auto&) { spec.bias = false; });
  refused("gates must be an address on the GPU, not null, in the scan algorithm", [](auto& spec, auto& call) {
    spec.algorithm = plan::ScanAlgorithm::scan;
    call.gates = 0;
  });
  refused("x must lie row after row or step after step", [](auto&, auto& call) { call.x.row_stride = 81; });
  refused("the positions of x must be at least its 8 channels apart, not 7", [](auto&, auto& call) {
    call.x = {1 << 20, 70, 7};
  });
  refused("input and hidden must be at least 1, not 0 and 16", [](auto& spec, auto&) { spec.input = 0; });
  refused("tf32 is for f32 storage, not bf16", [](auto& spec, auto&) { spec.tf32 = true; });
  refused("gradients must be f32 or bf16", [](auto& spec, auto&) { spec.gradients = Storage::f16; });
  refused("cell must be one of", [](auto& spec, auto&) { spec.cell = "nothing"; });
  test::expect_error(ErrorCode::unsupported, "cell lstm does not run on a GPU yet", [&] {
    LayerSpec spec = sound;
    spec.cell = "lstm";
    problem_of(sound_call(), spec);
  });
}

}  // namespace
}  // namespace penstock::cuda
