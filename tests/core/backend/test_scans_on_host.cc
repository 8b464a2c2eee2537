// Scans whose rows start again at given states, as threads of the host (kernel_on_host.h), against the recurrence and
// its gradients in double precision. Needs a compiler, and no GPU.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "backend/cuda/scan/scan.h"
#include "backend/cuda/scan/scan_fill.h"
#include "backend/kernel_on_host.h"
#include "base/random.h"
#include "oracle/tolerance.h"
#include "penstock/recurrent.h"
#include "support/compiled_kernel.h"

namespace penstock::cuda {
namespace {

using plan::ScanAlgorithm;
using plan::Storage;
using Doubles = std::vector<double>;

struct Case {
  std::string name;
  ScanAlgorithm algorithm = ScanAlgorithm::direct;
  Restarts restarts = Restarts::one;
  Storage storage = Storage::f32;
  Index rows = 3, steps = 50, channels = 6;
  bool reverse = false, lengths = false, sampled = false;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

std::size_t place(Index i) { return static_cast<std::size_t>(i); }

class ScansOnHost : public testing::TestWithParam<Case> {
 protected:
  const Case& c = GetParam();
  Index B = c.rows, T = c.steps, C = c.channels, size = B * T * C;
  std::size_t bytes = place(plan::size_of(c.storage));
  Random random{5};

  /// A tensor in the storage, 16 bytes longer than its numbers.
  struct Stored {
    std::vector<char> memory;
    Doubles numbers;
  };
  Stored stored(Index count, double least, double most) {
    Stored all{std::vector<char>(place(count) * bytes + 16, static_cast<char>(0xff)), Doubles(place(count))};
    for (std::size_t i = 0; i < all.numbers.size(); ++i) {
      const auto number = std::bit_cast<unsigned>(static_cast<float>(random.uniform(least, most)));
      const unsigned kept = bytes == 4 ? number : number & 0xffff0000u;
      all.numbers[i] = static_cast<double>(std::bit_cast<float>(kept));
      std::memcpy(all.memory.data() + i * bytes, reinterpret_cast<const char*>(&kept) + 4 - bytes, bytes);
    }
    return all;
  }
  Doubles read(const Stored& from) const {
    Doubles numbers(from.numbers.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      unsigned bits = 0;
      std::memcpy(reinterpret_cast<char*>(&bits) + 4 - bytes, from.memory.data() + i * bytes, bytes);
      numbers[i] = static_cast<double>(std::bit_cast<float>(bits));
    }
    return numbers;
  }
  std::vector<float> floats(Index count) {
    std::vector<float> all(place(count));
    for (float& x : all) x = static_cast<float>(random.uniform(-1, 1));
    return all;
  }

  Index restart_row() const { return c.restarts == Restarts::one ? 0 : c.restarts == Restarts::rows ? C : T * C; }
  Index restart_step() const { return c.restarts == Restarts::steps ? C : 0; }

  template <class T>
  static DeviceAddress address(const std::vector<T>& of) {
    return reinterpret_cast<DeviceAddress>(of.data());
  }
  DeviceSequence sequence(const Stored& of) const { return {address(of.memory), T * C, C}; }

  template <class Call>
  void run(const Call& call, const plan::GpuScanPlan& plan) {
    const plan::GpuScanProblem problem = problem_of(call);
    SCOPED_TRACE(plan.explain());
    ASSERT_EQ(plan.algorithm, c.algorithm);
    const test::HostKernel kernel(scan_source(call.shape.rule, problem, plan));
    std::vector<long long> workspace(place(plan.workspace_bytes()) / 8 + 1);
    fill::ScanArguments arguments = fill::arguments_of_shape(call.shape, plan, address(workspace));
    fill::set_tensors(arguments, call);
    const bool direct = plan.algorithm == ScanAlgorithm::direct;
    const Index tiles = arguments.chains * plan.chunks(T);
    if (!direct) arguments.tiles = static_cast<unsigned>(tiles);
    const Index grid = direct ? (arguments.chains + plan.groups - 1) / plan.groups : std::min<Index>(tiles, 3);
    EXPECT_EQ(kernel.run(static_cast<int>(grid), plan.threads(), 1, static_cast<int>(plan.shared), 7, arguments), "");
  }

  void expect_close(const char* what, const Doubles& got, const Doubles& wanted, double allowed) const {
    ASSERT_EQ(got.size(), wanted.size());
    double largest = 1;
    for (const double x : wanted) largest = std::max(largest, std::abs(x));
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], allowed * largest) << what << " " << i;
  }
};

TEST_P(ScansOnHost, StartRowsAgainAtGivenStates) {
  test::need_sample(c.sampled);
  if (IsSkipped()) return;
  Stored a = stored(size, 0, 1), b = stored(size, -1, 1), y = stored(size, 0, 0), dy = stored(size, -1, 1);
  Stored da = stored(size, 0, 0), db = stored(size, 0, 0);
  std::vector<float> first = floats(B * C), dlast = floats(B * C), last(place(B * C), NAN), dfirst(place(B * C), NAN);
  const Index others = state_rows(c.restarts, B, T) - B;
  const std::vector<float> again = floats(others * C);
  std::vector<std::uint8_t> reset(place(B * T));
  for (std::size_t i = 0; i < reset.size(); ++i) reset[i] = random.uniform(0, 1) < 0.15 || i == 0 ? 1 : 0;
  std::vector<long long> lengths(place(B), T);
  for (std::size_t i = 0; c.lengths && i < lengths.size(); ++i) lengths[i] = static_cast<long long>(i) * T / B;

  ScanShape shape{.rule = given_terms, .storage = c.storage, .rows = B, .steps = T, .channels = C};
  shape.reverse = c.reverse, shape.algorithm = c.algorithm;
  if (c.lengths) shape.lengths = address(lengths);
  shape.reset = address(reset), shape.reset_row_stride = T, shape.reset_step_stride = 1;
  shape.restarts = {address(again), 0, restart_row(), restart_step()};
  const ScanForward forward{.shape = shape,
                            .terms = {sequence(a), sequence(b)},
                            .y = sequence(y),
                            .state_in = address(first),
                            .state_out = address(last)};
  run(forward, plan_gpu_scan(problem_of(forward), test::chip(90)));
  ScanBackward backward{.shape = shape,
                        .terms = {sequence(a)},
                        .y = sequence(y),
                        .dy = sequence(dy),
                        .dterms = {sequence(da), sequence(db)},
                        .state_in = address(first),
                        .dstate_out = address(dlast),
                        .dstate_in = address(dfirst)};
  const plan::GpuScanPlan plan = plan_gpu_scan(problem_of(backward), test::chip(90));
  const bool of_steps = c.restarts == Restarts::steps;
  std::vector<float> shares(place(of_steps ? size : (T + plan.steps - 1) / plan.steps * B * C));
  backward.drestarts = address(shares);
  run(backward, plan);

  Doubles want_y(place(size)), want_da(place(size)), want_db(place(size)), want_again(again.size());
  Doubles want_last(first.begin(), first.end()), want_first(dlast.begin(), dlast.end());
  for (Index row = 0; row < B; ++row) {
    const Index length = lengths[place(row)];
    const auto position = [&](Index step) { return row * T + (c.reverse ? length - 1 - step : step); };
    const auto restart = [&](Index step) { return row * restart_row() + position(step) % T * restart_step(); };
    for (Index i = 0; i < C; ++i) {
      double& state = want_last[place(row * C + i)];
      Doubles before;
      for (Index step = 0; step < length; ++step) {
        const std::size_t at = place(position(step) * C + i);
        if (reset[place(position(step))] != 0) state = static_cast<double>(again[place(restart(step) + i)]);
        before.push_back(state);
        want_y[at] = state = a.numbers[at] * state + b.numbers[at];
      }
      double& carried = want_first[place(row * C + i)];
      for (Index step = length; step-- > 0;) {
        const std::size_t at = place(position(step) * C + i);
        want_db[at] = dy.numbers[at] + carried;
        want_da[at] = want_db[at] * before[place(step)];
        carried = a.numbers[at] * want_db[at];
        if (reset[place(position(step))] == 0) continue;
        want_again[place(restart(step) + i)] += carried;
        carried = 0;
      }
    }
  }
  Doubles got_again(again.size());
  for (std::size_t i = 0; i < shares.size(); ++i) got_again[i % again.size()] += static_cast<double>(shares[i]);
  const double roundings = c.storage == Storage::f32 ? 0 : std::ldexp(4.0, -8);
  const auto allowed = [&](bool back) {
    return 8 * oracle::tolerance<float>({.summed = 1, .steps = T, .backward = back}) + roundings;
  };
  expect_close("y", read(y), want_y, allowed(false));
  expect_close("the last state", {last.begin(), last.end()}, want_last, allowed(false));
  expect_close("da", read(da), want_da, allowed(true));
  expect_close("db", read(db), want_db, allowed(true));
  expect_close("the first state's gradient", {dfirst.begin(), dfirst.end()}, want_first, allowed(true));
  expect_close("gradients of restarts", got_again, want_again, allowed(true));
}

std::vector<Case> cases() {
  using enum ScanAlgorithm;
  return {
      {.name = "direct_one"},
      {.name = "direct_steps", .restarts = Restarts::steps, .storage = Storage::bf16, .reverse = true, .lengths = true},
      {.name = "scan_rows",
       .algorithm = scan,
       .restarts = Restarts::rows,
       .steps = 1100,
       .channels = 40,
       .sampled = true},
      {.name = "scan_one", .algorithm = scan, .storage = Storage::bf16, .steps = 900, .channels = 32, .lengths = true},
      {.name = "scan_steps",
       .algorithm = scan,
       .restarts = Restarts::steps,
       .steps = 1100,
       .reverse = true,
       .lengths = true},
  };
}

INSTANTIATE_TEST_SUITE_P(Each, ScansOnHost, testing::ValuesIn(cases()), [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace penstock::cuda
