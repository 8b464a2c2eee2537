// The kernels of cells whose units read means over their head, as threads of the host (kernel_on_host.h), against the
// equations in double precision and their exact gradients. Needs a compiler, and no GPU.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "backend/cuda/dense/fill.h"
#include "backend/cuda/dense/source.h"
#include "backend/kernel_on_host.h"
#include "base/random.h"
#include "oracle/tape.h"
#include "oracle/tolerance.h"
#include "oracle/written_cells.h"
#include "penstock/recurrent.h"
#include "plan/custom_cells.h"
#include "support/compiled_kernel.h"

namespace penstock::cuda {
namespace {

using oracle::Var;
using plan::DenseAlgorithm;
using plan::Storage;

template <class S>
using Units = std::vector<S>;

Var sqrt(const Var& x) {
  const double root = std::sqrt(x.value());
  return oracle::unary(x, root, 0.5 / root);
}
Var sigmoid(const Var& x) { return Var(1.0) / (Var(1.0) + oracle::exp(-x)); }

/// x with mean 0 and variance 1, times a gain, plus a shift.
Units<Var> normalised(const Units<Var>& x, const Units<Var>& gain, const Units<Var>* shift) {
  const Var count(static_cast<double>(x.size()));
  Var mean(0.0), variance(0.0);
  for (const Var& v : x) mean += v;
  mean = mean / count;
  for (const Var& v : x) variance += (v - mean) * (v - mean);
  const Var deviation = sqrt(variance / count + Var(1e-5));
  Units<Var> y;
  for (std::size_t u = 0; u < x.size(); ++u) {
    y.push_back(gain[u] * (x[u] - mean) / deviation + (shift != nullptr ? (*shift)[u] : Var(0.0)));
  }
  return y;
}

/// One step of a head: gates of W x and R h, states and learnt vectors to the next states, each [..][D].
using Step =
    std::function<std::vector<Units<Var>>(const std::vector<Units<Var>>& wx, const std::vector<Units<Var>>& rh,
                                          const std::vector<Units<Var>>& prev, const std::vector<Units<Var>>& learnt)>;

std::vector<Units<Var>> norm_lstm(const std::vector<Units<Var>>& wx, const std::vector<Units<Var>>& rh,
                                  const std::vector<Units<Var>>& prev, const std::vector<Units<Var>>& p) {
  std::vector<Units<Var>> gate;
  for (std::size_t g = 0; g < 4; ++g) {
    gate.push_back(normalised(rh[g], p[g], nullptr));
    for (std::size_t u = 0; u < gate[g].size(); ++u) gate[g][u] += wx[g][u];
  }
  Units<Var> c, h;
  for (std::size_t u = 0; u < gate[0].size(); ++u) {
    c.push_back(sigmoid(gate[1][u]) * prev[1][u] + sigmoid(gate[0][u]) * oracle::tanh(gate[2][u]));
  }
  const Units<Var> of_c = normalised(c, p[4], &p[5]);
  for (std::size_t u = 0; u < c.size(); ++u) h.push_back(sigmoid(gate[3][u]) * oracle::tanh(of_c[u]));
  return {h, c};
}

std::vector<Units<Var>> lstm(const std::vector<Units<Var>>& wx, const std::vector<Units<Var>>& rh,
                             const std::vector<Units<Var>>& prev, const std::vector<Units<Var>>&) {
  Units<Var> h, c;
  for (std::size_t u = 0; u < wx[0].size(); ++u) {
    const auto gate = [&](std::size_t g) { return wx[g][u] + rh[g][u]; };
    c.push_back(sigmoid(gate(1)) * prev[1][u] + sigmoid(gate(0)) * oracle::tanh(gate(2)));
    h.push_back(sigmoid(gate(3)) * oracle::tanh(c[u]));
  }
  return {h, c};
}

/// A GRU whose gates are divided by the root of the mean of their squares, after a mean that no square follows: means
/// of means, and a cell of one state.
test::WrittenCell written_root_gru() {
  CellDefinition definition = test::definition_of("written-root-gru", {"h"}, 3);
  definition.learnt = {{"g", 1.0}};
  return {definition, [](const CellSymbols& in) -> std::vector<CellValue> {
            const CellValue u = sigmoid(in.wx[0] + in.rh[0] - mean(in.rh[1]));
            const CellValue a = in.wx[1] + in.rh[1], b = in.wx[2] + u * in.rh[2];
            const CellValue scale = 1.0 / sqrt(mean(a * a) + mean(b * b) + 0.01);
            return {u * tanh(in.p[0] * b * scale) + (1.0 - u) * tanh(a * scale) + 0.5 * u * in.s[0]};
          }};
}

std::vector<Units<Var>> root_gru(const std::vector<Units<Var>>& wx, const std::vector<Units<Var>>& rh,
                                 const std::vector<Units<Var>>& prev, const std::vector<Units<Var>>& p) {
  const std::size_t D = rh[0].size();
  const Var count(static_cast<double>(D));
  Var mean(0.0), squares(0.0);
  for (const Var& v : rh[1]) mean += v / count;
  Units<Var> u, a, b, h;
  for (std::size_t i = 0; i < D; ++i) {
    u.push_back(sigmoid(wx[0][i] + rh[0][i] - mean));
    a.push_back(wx[1][i] + rh[1][i]), b.push_back(wx[2][i] + u[i] * rh[2][i]);
    squares += (a[i] * a[i] + b[i] * b[i]) / count;
  }
  const Var scale = Var(1.0) / sqrt(squares + Var(0.01));
  for (std::size_t i = 0; i < D; ++i) {
    h.push_back(u[i] * oracle::tanh(p[0][i] * b[i] * scale) + (Var(1.0) - u[i]) * oracle::tanh(a[i] * scale) +
                Var(0.5) * u[i] * prev[0][i]);
  }
  return {h};
}

struct Case {
  std::string name;
  DenseAlgorithm algorithm = DenseAlgorithm::head;
  Storage storage = Storage::f32;
  Index head = 16, heads = 1, rows = 3, steps = 4;
  bool ragged = false, reverse = false, root = false;
  bool sampled = false;  // compiled in every run of the tests
  bool joined = false;   // one block of the chip joins each row, as it does only where parts are many
  bool lstm = false;     // without means
  Restarts restarts = Restarts::zeros;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

using Doubles = std::vector<double>;

class MeansOnHost : public testing::TestWithParam<Case> {
 protected:
  const Case& c = GetParam();
  test::WrittenCell written = c.root ? written_root_gru() : test::written_norm_lstm();
  std::string cell{c.lstm ? "lstm" : define_cell(written.definition, written.equations).name};
  Step step = c.root ? Step(root_gru) : c.lstm ? Step(lstm) : Step(norm_lstm);
  const plan::CellTraits& traits = plan::cell_traits(cell);
  Index G = traits.gates(), S = traits.states(), K = traits.learnt, D = c.head, H = c.heads * c.head;
  Index B = c.rows, T = c.steps, bytes = size_of(c.storage);
  Random random{11};
  std::vector<long long> lengths;
  std::vector<unsigned char> resets;
  Doubles wx, recurrent, bias_ih, bias_hh, learnt, state_in, restarts, dy, dstate;
  struct Wanted {
    Doubles y, state, dwx, drh, dlearnt, dstate_in, drestarts;
  } want;

  double rounded(double value, bool stored) const {
    const auto single = static_cast<float>(value);
    if (!stored || c.storage == Storage::f32) return single;
    unsigned bits = 0;
    std::memcpy(&bits, &single, 4);
    bits &= 0xffff0000u;
    float kept = 0;
    std::memcpy(&kept, &bits, 4);
    return kept;
  }
  Doubles numbers(Index count, double size, bool stored) {
    Doubles values(static_cast<std::size_t>(count));
    for (double& v : values) v = rounded(random.uniform(-size, size), stored);
    return values;
  }

  void SetUp() override {
    for (Index b = 0; b < B; ++b) lengths.push_back(!c.ragged || b == 1 ? T : b == 2 ? 0 : 1 + 5 * b % T);
    for (Index i = 0; i < B * T; ++i) resets.push_back(c.ragged && random.uniform() < 0.3 ? 1 : 0);
    wx = numbers(B * T * G * H, 2, true);
    recurrent = numbers(c.heads * G * D * D, 1.5 / std::sqrt(static_cast<double>(D)), true);
    bias_ih = numbers(G * H, 0.5, false), bias_hh = numbers(G * H, 0.5, false);
    learnt = numbers(K * H, 1, false);
    state_in = numbers(S * B * H, 1, true), restarts = numbers(S * others() * H, 1, true);
    dy = numbers(B * T * H, 1, true), dstate = numbers(S * B * H, 1, false);
    solve();
  }

  /// States of resets.
  Index others() const { return state_rows(c.restarts, B, T) - B; }
  Index restart_row() const { return c.restarts == Restarts::one ? 0 : c.restarts == Restarts::rows ? H : T * H; }
  Index restart_step() const { return c.restarts == Restarts::steps ? H : 0; }

  /// Positions in the order of the recurrence.
  Index time(Index b, Index t) const { return c.reverse ? lengths[static_cast<std::size_t>(b)] - 1 - t : t; }

  /// The equations on a tape: results and exact gradients.
  void solve() {
    oracle::Tape tape;
    const auto leaves = [&](const Doubles& values) {
      Units<Var> of;
      for (const double v : values) of.push_back(tape.leaf(v));
      return of;
    };
    const Units<Var> x = leaves(wx), p = leaves(learnt), first = leaves(state_in), again = leaves(restarts);
    const Units<Var> zero = leaves(Doubles(wx.size(), 0.0));  // what R h is added to: its gradient is that of R h
    Var loss(0.0);
    want.y.assign(dy.size(), 0.0), want.state.resize(dstate.size());
    for (Index b = 0; b < B; ++b) {
      for (Index k = 0; k < c.heads; ++k) run_row(b, k, x, zero, p, first, again, loss);
    }
    const Doubles all = tape.sweep(loss);
    const auto of = [&](const Units<Var>& nodes) {
      Doubles gradient;
      for (const Var& v : nodes) gradient.push_back(all[static_cast<std::size_t>(v.node())]);
      return gradient;
    };
    want.dwx = of(x), want.drh = of(zero), want.dlearnt = of(p), want.dstate_in = of(first);
    want.drestarts = of(again);
  }

  void run_row(Index b, Index k, const Units<Var>& x, const Units<Var>& zero, const Units<Var>& p,
               const Units<Var>& first, const Units<Var>& again, Var& loss) {
    const auto at = [](const Units<Var>& of, Index i) { return of[static_cast<std::size_t>(i)]; };
    std::vector<Units<Var>> state(static_cast<std::size_t>(S)), vectors(static_cast<std::size_t>(K));
    for (Index u = 0; u < D; ++u) {
      for (Index s = 0; s < S; ++s)
        state[static_cast<std::size_t>(s)].push_back(at(first, (s * B + b) * H + k * D + u));
      for (Index v = 0; v < K; ++v) vectors[static_cast<std::size_t>(v)].push_back(at(p, v * H + k * D + u));
    }
    for (Index t = 0; t < lengths[static_cast<std::size_t>(b)]; ++t) {
      const Index position = b * T + time(b, t);
      if (resets[static_cast<std::size_t>(position)] != 0) {
        for (Index i = 0; i < S * D; ++i) {
          const Index restart = b * restart_row() + time(b, t) * restart_step() + k * D + i % D;
          state[static_cast<std::size_t>(i / D)][static_cast<std::size_t>(i % D)] =
              again.empty() ? Var(0.0) : at(again, i / D * others() * H + restart);
        }
      }
      std::vector<Units<Var>> of_x(static_cast<std::size_t>(G)), of_h(static_cast<std::size_t>(G));
      for (Index g = 0; g < G; ++g) {
        for (Index u = 0; u < D; ++u) {
          const Index place = (position * G + g) * H + k * D + u;
          Var sum = at(zero, place) + Var(bias_hh[static_cast<std::size_t>(g * H + k * D + u)]);
          for (Index j = 0; j < D; ++j) {
            sum += Var(recurrent[static_cast<std::size_t>(((k * G + g) * D + u) * D + j)]) *
                   state[0][static_cast<std::size_t>(j)];
          }
          of_h[static_cast<std::size_t>(g)].push_back(sum);
          of_x[static_cast<std::size_t>(g)].push_back(at(x, place) +
                                                      Var(bias_ih[static_cast<std::size_t>(g * H + k * D + u)]));
        }
      }
      state = step(of_x, of_h, state, vectors);
      for (Index u = 0; u < D; ++u) {
        const Index place = position * H + k * D + u;
        const Var& h = state[0][static_cast<std::size_t>(u)];
        want.y[static_cast<std::size_t>(place)] = h.value();
        loss += h * Var(dy[static_cast<std::size_t>(place)]);
      }
    }
    for (Index s = 0; s < S; ++s) {
      for (Index u = 0; u < D; ++u) {
        const Index place = (s * B + b) * H + k * D + u;
        const Var& v = state[static_cast<std::size_t>(s)][static_cast<std::size_t>(u)];
        want.state[static_cast<std::size_t>(place)] = v.value();
        loss += v * Var(dstate[static_cast<std::size_t>(place)]);
      }
    }
  }

  // ---- memory as the kernels have it ----

  using Bytes = std::vector<char>;

  Bytes stored(const Doubles& values) const {
    Bytes all(values.size() * static_cast<std::size_t>(bytes) + 16);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto single = static_cast<float>(values[i]);
      char raw[4];
      std::memcpy(raw, &single, 4);
      std::memcpy(all.data() + i * static_cast<std::size_t>(bytes), raw + 4 - bytes, static_cast<std::size_t>(bytes));
    }
    return all;
  }
  static std::vector<float> floats(const Doubles& values) { return {values.begin(), values.end()}; }
  Bytes room(Index count) const { return Bytes(static_cast<std::size_t>(count * bytes + 16), static_cast<char>(0xff)); }
  Doubles read(const Bytes& from, Index count) const {
    Doubles values;
    for (Index i = 0; i < count; ++i) {
      char raw[4] = {};
      std::memcpy(raw + 4 - bytes, from.data() + i * bytes, static_cast<std::size_t>(bytes));
      float single = 0;
      std::memcpy(&single, raw, 4);
      values.push_back(single);
    }
    return values;
  }
  /// Values of steps that rows have; the others are taken to be as wanted.
  Doubles of_steps(Doubles got, const Doubles& wanted, Index channels) const {
    for (Index i = 0; i < B * T; ++i) {
      if (i % T < lengths[static_cast<std::size_t>(i / T)]) continue;
      std::copy_n(wanted.begin() + i * channels, channels, got.begin() + i * channels);
    }
    return got;
  }

  fill::DenseTensor tensor(Bytes& memory, Index channels) const {
    return {memory.data(), T * channels * bytes, channels * bytes};
  }
  fill::DenseTensor float_tensor(std::vector<float>& memory, Index channels) const {
    return {reinterpret_cast<char*>(memory.data()), T * channels * 4, channels * 4};
  }

  plan::GpuDenseProblem problem(bool backward) const {
    plan::GpuDenseProblem problem;
    problem.cell = cell, problem.storage = c.storage;
    problem.rows = B, problem.steps = T, problem.hidden = H, problem.heads = c.heads;
    problem.backward = backward, problem.training = !backward;
    problem.ragged = problem.reset = c.ragged, problem.reverse = c.reverse;
    problem.restarts = c.restarts != Restarts::zeros;
    problem.alignment = static_cast<int>(std::min<Index>(16, (D * bytes) & -(D * bytes)));
    problem.algorithm = c.algorithm;
    return problem;
  }
  fill::DenseRows rows(const std::vector<float>& again) const {
    fill::DenseRows rows{};
    rows.lengths = c.ragged ? lengths.data() : nullptr;
    rows.reset = c.ragged ? resets.data() : nullptr;
    rows.reset_row_stride = T, rows.reset_step_stride = 1;
    if (!again.empty()) rows.restarts = again.data();
    rows.restart_state = others() * H, rows.restart_row = restart_row(), rows.restart_step = restart_step();
    rows.steps = T, rows.rows = static_cast<int>(B), rows.most = std::numeric_limits<int>::max();
    return rows;
  }

  /// Runs the launches of a pass: of the chip, as many as its teams need to take turns.
  template <class Chip, class Arguments>
  void run(const plan::GpuDenseProblem& problem, const plan::GpuDensePlan& plan, unsigned seed,
           const Arguments& arguments) {
    SCOPED_TRACE(plan.explain());
    ASSERT_EQ(plan.algorithm, c.algorithm);
    std::map<std::string, std::string> changes;
    if (c.joined) changes["constexpr int most = 2048;"] = "constexpr int most = 0;";
    const test::HostKernel kernel(dense_source(problem, plan), changes);
    const auto launch = [&](Index grid, const auto& of) {
      EXPECT_EQ(
          kernel.run(static_cast<int>(grid), plan.threads(), plan.cluster, static_cast<int>(plan.shared), seed, of),
          "");
    };
    if (c.algorithm != DenseAlgorithm::chip) return launch(plan.grid, arguments);
    for (Index first = 0; first < c.heads * plan.slices; first += plan.teams) {
      const Index of_whole_rows = c.joined ? plan.exchange : 0;  // at most
      Bytes exchange(static_cast<std::size_t>(plan.exchange + of_whole_rows), static_cast<char>(0xff));
      Chip of{};
      of.call = arguments, of.exchange = exchange.data(), of.first = static_cast<int>(first);
      of.teams = static_cast<int>(std::min(plan.teams, c.heads * plan.slices - first));
      launch(of.teams * plan.clusters * plan.cluster, of);
    }
  }

  /// Means of few units, or of units that are alike, magnify roundings.
  void expect_close(const char* what, const Doubles& got, const Doubles& wanted, double allowed) const {
    double largest = 1, worst = 0;
    for (const double v : wanted) largest = std::max(largest, std::abs(v));
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const double error = std::abs(got[i] - wanted[i]);
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
    EXPECT_LE(worst, allowed * largest) << what;
  }
  double allowed(bool backward) const {
    const double roundings = c.storage == Storage::f32 ? 0 : (backward ? 30 : 8) * std::ldexp(1.0, -8);
    return 20 * oracle::tolerance<float>({.summed = D, .steps = T, .backward = backward, .logit = 4}) + roundings;
  }
};

TEST_P(MeansOnHost, AreThoseOfTheEquations) {
  test::need_sample(c.sampled);
  if (IsSkipped()) return;
  Bytes x = stored(wx), matrix = stored(recurrent), out = room(B * T * H), sums = room(B * T * G * H);
  std::vector<float> ih = floats(bias_ih), hh = floats(bias_hh), vectors = floats(learnt), first = floats(state_in);
  const std::vector<float> again = floats(restarts);
  std::vector<float> last(static_cast<std::size_t>(S * B * H), NAN);
  const Index taped = (S - 1) * H + c.heads * plan::taped_floats(traits);
  std::vector<float> states(static_cast<std::size_t>(B * T * taped), NAN);

  const plan::GpuDenseProblem forward = problem(false);
  const plan::GpuDensePlan forward_plan = plan_gpu_dense(forward, test::chip(90));
  fill::DenseForwardArguments f{};
  f.rows = rows(again);
  f.wx = tensor(x, G * H), f.y = tensor(out, H), f.sums = tensor(sums, G * H);
  f.recurrent = matrix.data(), f.bias_ih = ih.data(), f.bias_hh = hh.data(), f.learnt = vectors.data();
  f.state_in = first.data(), f.state_out = last.data(), f.states = float_tensor(states, taped);
  f.hidden = static_cast<int>(H), f.heads = static_cast<int>(c.heads);
  f.slices = static_cast<int>(forward_plan.slices);
  run<fill::DenseChipForwardArguments>(forward, forward_plan, 1, f);
  expect_close("y", of_steps(read(out, B * T * H), want.y, H), want.y, allowed(false));
  expect_close("states", {last.begin(), last.end()}, want.state, allowed(false));

  Bytes dout = stored(dy), dx = room(B * T * G * H), dh = room(B * T * G * H);
  std::vector<float> dlast = floats(dstate), dfirst(first.size(), NAN), dvectors(static_cast<std::size_t>(B * K * H));
  const plan::GpuDenseProblem backward = problem(true);
  const plan::GpuDensePlan backward_plan = plan_gpu_dense(backward, test::chip(90));
  fill::DenseBackwardArguments b{};
  b.rows = f.rows, b.wx = f.wx, b.y = f.y, b.sums = f.sums, b.states = f.states;
  b.dy = tensor(dout, H), b.dwx = tensor(dx, G * H), b.drh = tensor(dh, G * H);
  b.recurrent = f.recurrent, b.bias_ih = f.bias_ih, b.learnt = f.learnt, b.dlearnt = dvectors.data();
  b.state_in = f.state_in, b.dstate_out = dlast.data(), b.dstate_in = dfirst.data();
  // The share of each row in the gradient of a state of all rows.
  const bool shared = c.restarts == Restarts::one;
  std::vector<float> dagain(again.size() * static_cast<std::size_t>(shared ? B : 1));
  if (!dagain.empty()) b.drestarts = dagain.data();
  b.drestart_state = (shared ? B : others()) * H, b.drestart_row = shared ? H : restart_row();
  b.hidden = f.hidden, b.heads = f.heads, b.slices = static_cast<int>(backward_plan.slices);
  run<fill::DenseChipBackwardArguments>(backward, backward_plan, 2, b);
  expect_close("dwx", of_steps(read(dx, B * T * G * H), want.dwx, G * H), want.dwx, allowed(true));
  if (traits.split_gradients)
    expect_close("drh", of_steps(read(dh, B * T * G * H), want.drh, G * H), want.drh, allowed(true));
  expect_close("dstate_in", {dfirst.begin(), dfirst.end()}, want.dstate_in, allowed(true));
  Doubles drestarts(again.size());
  for (Index i = 0; i < static_cast<Index>(dagain.size()); ++i) {
    drestarts[static_cast<std::size_t>(shared ? i / (B * H) * H + i % H : i)] +=
        static_cast<double>(dagain[static_cast<std::size_t>(i)]);
  }
  expect_close("drestarts", drestarts, want.drestarts, allowed(true));
  Doubles of_rows(static_cast<std::size_t>(K * H));
  for (std::size_t i = 0; i < dvectors.size(); ++i) of_rows[i % of_rows.size()] += static_cast<double>(dvectors[i]);
  if (K > 0) expect_close("dlearnt", of_rows, want.dlearnt, allowed(true));
}

std::vector<Case> cases() {
  using enum DenseAlgorithm;
  return {
      {"head_64", head, Storage::bf16, 64, 1, 5},
      {"head_33_ragged", head, Storage::f32, 33, 2, 5, 5, true, false, false, true},
      {"head_5_reverse", head, Storage::f32, 5, 3, 3, 5, true, true, true},
      {"head_16_one_warp", head, Storage::bf16, 16, 12, 2, 5, true},
      {"head_of_1", head, Storage::bf16, 1, 5, 3, 5, true, false, false, true},
      {"cluster_of_1", cluster, Storage::bf16, 1, 3, 5, 5, true},
      {"chip_of_1", chip, Storage::bf16, 1, 2, 5, 5, true},
      {"cluster_200", cluster, Storage::bf16, 200, 1, 3, 3},
      {"cluster_96_ragged", cluster, Storage::f32, 96, 2, 5, 4, true},
      {"cluster_33_reverse", cluster, Storage::f32, 33, 1, 4, 3, true, true, true, true},
      {"cluster_5", cluster, Storage::bf16, 5, 2, 17, 4, true},
      {"chip_200", chip, Storage::bf16, 200, 1, 3, 19},
      {"chip_96_ragged", chip, Storage::f32, 96, 2, 5, 4, true},
      {"chip_33_reverse", chip, Storage::f32, 33, 1, 9, 4, true, true, true},
      {"chip_96_joined", chip, Storage::f32, 96, 2, 5, 4, true, false, false, false, true},
      {"chip_33_joined", chip, Storage::bf16, 33, 1, 9, 4, true, true, true, false, true},
      {"cluster_restarts_of_steps", cluster, Storage::f32, 33, 2, 5, 5, true, false, false, true, false, true,
       Restarts::steps},
      {"cluster_restarts_of_rows", cluster, Storage::bf16, 96, 1, 5, 5, true, true, false, false, false, true,
       Restarts::rows},
      {"cluster_restarts_with_means", cluster, Storage::f32, 40, 1, 5, 5, true, false, true, false, false, false,
       Restarts::one},
      {"chip_restarts_of_one", chip, Storage::f32, 96, 1, 5, 5, true, false, false, true, false, true, Restarts::one},
      {"chip_restarts_of_steps", chip, Storage::bf16, 200, 1, 5, 6, true, true, false, false, false, true,
       Restarts::steps},
      {"chip_restarts_with_means", chip, Storage::f32, 33, 1, 5, 5, true, true, true, false, false, false,
       Restarts::rows},
      {"cluster_odd_halves", cluster, Storage::bf16, 37, 1, 5, 5, true, false, false, true, false, true},
      {"cluster_even_halves", cluster, Storage::bf16, 42, 2, 5, 9, true, true, false, false, false, true},
      {"chip_odd_halves", chip, Storage::bf16, 77, 1, 5, 7, true, true, false, false, false, true},
      {"chip_even_halves", chip, Storage::bf16, 42, 1, 9, 6, true, false, false, false, false, true},
      {"cluster_256_rows", cluster, Storage::bf16, 256, 1, 16, 2},
  };
}

INSTANTIATE_TEST_SUITE_P(Each, MeansOnHost, testing::ValuesIn(cases()), [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace penstock::cuda
