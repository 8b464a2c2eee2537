// Times one recurrent layer, forward and forward + backward, and checks what it timed: row 0 of the timed outputs and
// input gradients against the same layer in double. One JSON object on standard output; exit status 1 and no times if
// the error is above the bound.
//
//   layer_times CELL B T I H THREADS [SECONDS]

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/random.h"
#include "penstock/penstock.h"

namespace {

using namespace penstock;

struct Case {
  RecurrentSpec spec;
  Batch batch;
  Execution execution;
};

/// Everything one layer needs for both passes, in float or double.
template <class Real>
struct Run {
  Recurrent<Real> network;
  Index B, T, I, H;
  std::vector<Real> x, y, dy, dx;
  RecurrentTape<Real> tape;
  Execution execution;

  Run(const Case& test, Index rows)
      : network(test.spec, 1),
        B(rows),
        T(test.batch.steps),
        I(test.spec.input_size),
        H(test.spec.hidden_size),
        x(B * T * I),
        y(B * T * H),
        dy(B * T * H),
        dx(B * T * I),
        execution(test.execution) {
    Random random(7);
    for (auto& parameter : network.parameters()) {
      for (Real& value : parameter.value) value = static_cast<Real>(static_cast<float>(value));
    }
    network.weights_changed();
    for (Real& value : x) value = static_cast<float>(random.normal());
    Random other(8);
    for (Real& value : dy) value = static_cast<float>(other.normal());
  }

  Batch batch() const { return {.rows = B, .steps = T}; }
  auto view(std::vector<Real>& data, Index channels) {
    return SequenceView<Real>::batch_first(data.data(), T, channels);
  }

  void forward() { network.forward(batch(), view(x, I), view(y, H), nullptr, nullptr, nullptr, execution); }
  void train() {
    for (auto& parameter : network.parameters())
      std::fill(parameter.gradient.begin(), parameter.gradient.end(), Real(0));
    network.forward(batch(), view(x, I), view(y, H), nullptr, nullptr, &tape, execution);
    network.backward(batch(), view(x, I), view(dy, H), nullptr, view(dx, I), nullptr, tape, execution);
  }
};

/// The difference that a share of the first values keeps within, relative to the largest of them. Outputs: all values.
/// Gradients: all but one in a thousand, since rectified and positive candidates have a kink, and a value within
/// rounding of it may take the other side's slope in float.
double error(const std::vector<float>& timed, const std::vector<double>& exact, double share) {
  std::vector<double> differences(exact.size());
  double largest = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    differences[i] = std::abs(timed[i] - exact[i]);
    if (std::isnan(differences[i])) return differences[i];
    largest = std::max(largest, std::abs(exact[i]));
  }
  const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(exact.size() - 1));
  std::nth_element(differences.begin(), differences.begin() + at, differences.end());
  return differences[static_cast<std::size_t>(at)] / largest;
}

struct Times {
  double minimum, median, maximum;
};

template <class Work>
Times measure(double seconds, const Work& work) {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < 2; ++i) work();
  std::vector<double> times;
  double total = 0;
  while (total < seconds * 1e3 || times.size() < 7) {
    const auto start = Clock::now();
    work();
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    total += times.back();
  }
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2], times.back()};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) {
    fmt::print(stderr, "usage: layer_times CELL B T I H THREADS [SECONDS]\n");
    return 2;
  }
  Case test;
  test.spec.cell = argv[1];
  test.batch.rows = std::atoll(argv[2]);
  test.batch.steps = std::atoll(argv[3]);
  test.spec.input_size = std::atoll(argv[4]);
  test.spec.hidden_size = std::atoll(argv[5]);
  test.execution.threads = std::atoi(argv[6]);
  const double seconds = argc > 7 ? std::atof(argv[7]) : 0.5;
  try {
    Run<float> timed(test, test.batch.rows);
    Run<double> exact(test, 1);
    const Times forward = measure(seconds, [&] { timed.forward(); });
    exact.forward();
    const double forward_error = error(timed.y, exact.y, 1.0);
    const Times training = measure(seconds, [&] { timed.train(); });
    exact.train();
    const double gradient_error = error(timed.dx, exact.dx, 0.999);
    // Sums of I + H terms, T steps deep: the formula of the tests, log2 of the terms times the precision.
    const double terms = static_cast<double>((timed.I + timed.H) * timed.T);
    const double bound = 4 * std::log2(terms) * 1.2e-7 * 8;
    if (!(forward_error < bound) || !(gradient_error < 2 * bound)) {
      fmt::print(stderr, "layer_times: wrong results, forward error {}, gradient error {}, bound {}: not timed\n",
                 forward_error, gradient_error, bound);
      return 1;
    }
    fmt::print(
        R"({{"forward": [{}, {}, {}], "training": [{}, {}, {}], "forward_error": {}, "gradient_error": {}, "isa": "{}"}})"
        "\n",
        forward.minimum, forward.median, forward.maximum, training.minimum, training.median, training.maximum,
        forward_error, gradient_error, system_info().isa);
  } catch (const Error& e) {
    fmt::print(stderr, "layer_times: {}\n", e.what());
    return exit_status(e.code());
  }
  return 0;
}
