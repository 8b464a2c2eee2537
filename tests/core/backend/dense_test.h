#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "backend/cuda/dense/executable.h"
#include "support/gpu_layer.h"

/// The fixture of tests of dense cells on a GPU.
namespace penstock::cuda {

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

inline std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

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

}  // namespace penstock::cuda
