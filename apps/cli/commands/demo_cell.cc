#include "commands/demo_cell.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <random>
#include <utility>

#include "penstock/recurrent.h"
#include "terminal/describe.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

constexpr Index kCellInputs = 16;

struct Equations {
  const char* cell;
  const char* kind;
  const char* text;
};

constexpr Equations all_equations[] = {
    {"gru", "dense: its gates read the state, so the steps run one after another",
     "  r = sigmoid(W_r x + R_r h)\n"
     "  z = sigmoid(W_z x + R_z h)\n"
     "  n = tanh(W_n x + r * (R_n h))\n"
     "  h' = (1 - z) * n + z * h\n"},
    {"lstm", "dense: its gates read the state, so the steps run one after another",
     "  i = sigmoid(W_i x + R_i h)      f = sigmoid(W_f x + R_f h)\n"
     "  g = tanh(W_g x + R_g h)         o = sigmoid(W_o x + R_o h)\n"
     "  c' = f * c + i * g\n"
     "  h' = o * tanh(c')\n"},
    {"mingru", "scan: its gates read only the input, so every step is h' = a * h + b with known a and b",
     "  z = sigmoid(W_z x)\n"
     "  n = W_n x\n"
     "  h' = (1 - z) * h + z * n\n"},
    {"minlstm", "scan: its gates read only the input, so every step is h' = a * h + b with known a and b",
     "  f = sigmoid(W_f x)              i = sigmoid(W_i x)\n"
     "  n = W_n x\n"
     "  h' = f / (f + i) * h + i / (f + i) * n\n"},
};

const Equations& equations_of(const std::string& cell) {
  return *std::ranges::find(all_equations, cell, &Equations::cell);
}

std::vector<float> random_inputs(Index count, std::uint64_t seed) {
  const std::vector<double> numbers = random_numbers(count, seed);
  return {numbers.begin(), numbers.end()};
}

/// Seconds of the same call, made many times.
struct Seconds {
  double shortest = 0.0, median = 0.0;  ///< 0: never called
};

/// Times of a forward pass with one row.
struct Time {
  Index steps = 0;
  Seconds sequential, scan;  ///< `scan` for cells that have one
};

/// Results of the demo.
struct Findings {
  std::vector<float> x, state, next;                  ///< One step of a small network.
  std::map<std::string, std::vector<float>> weights;  ///< Weights of that network, by name.
  double largest_step_difference = 0.0;               ///< Between single steps and the whole sequence.
  double largest_scan_difference = 0.0;
  std::vector<Time> times;
  std::vector<std::vector<float>> outputs;  ///< Outputs of the first units over the sequence.
};

class Network {
 public:
  Network(const CellDemo& demo, Index input_size, Index hidden)
      : stream_(demo.execution.device),
        network_({.cell = demo.cell, .input_size = input_size, .hidden_size = hidden}, stream_, demo.seed),
        execution_(demo.execution) {}

  std::vector<float> forward(const std::vector<float>& x, Algorithm algorithm) const {
    const RecurrentSpec& spec = network_.spec();
    const Index steps = static_cast<Index>(x.size()) / spec.input_size;
    std::vector<float> y(static_cast<std::size_t>(steps * spec.hidden_size));
    Execution execution = execution_;
    execution.algorithm = algorithm;
    network_.forward(
        {.rows = 1, .steps = steps}, SequenceView<const float>::batch_first(x.data(), steps, spec.input_size),
        SequenceView<float>::batch_first(y.data(), steps, spec.hidden_size), nullptr, nullptr, nullptr, execution);
    return y;
  }

  std::map<std::string, std::vector<float>> weights() const {
    std::map<std::string, std::vector<float>> all;
    for (const auto& parameter : network_.parameters()) {
      std::vector<float> values(
          static_cast<std::size_t>(parameter.shape[0] * (parameter.shape.size() > 1 ? parameter.shape[1] : 1)));
      network_.read(parameter.name, values);
      all[parameter.name] = values;
    }
    return all;
  }

  /// The outputs of single steps, and the state behind them.
  std::vector<float> step_by_step(const std::vector<float>& x, std::vector<float>& state) const {
    const RecurrentSpec& spec = network_.spec();
    state.assign(static_cast<std::size_t>(network_.state_size()), 0.0f);
    std::vector<float> y, h(static_cast<std::size_t>(spec.hidden_size));
    for (std::size_t t = 0; t < x.size(); t += static_cast<std::size_t>(spec.input_size)) {
      network_.step(1, x.data() + t, h.data(), state.data(), execution_);
      y.insert(y.end(), h.begin(), h.end());
    }
    return y;
  }

 private:
  Stream stream_;  // must outlive the network
  Recurrent<float> network_;
  Execution execution_;
};

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return largest;
}

/// Makes calls for a tenth of a second, after one that compiles and packs, and returns their times.
Seconds seconds_of(const Network& network, const std::vector<float>& x, Algorithm algorithm) {
  using Clock = std::chrono::steady_clock;
  constexpr double enough = 0.1;
  constexpr std::size_t fewest = 5, most = 1000;
  network.forward(x, algorithm);
  std::vector<double> calls;
  double all = 0.0;
  while (calls.size() < fewest || (calls.size() < most && all < enough)) {
    const Clock::time_point begin = Clock::now();
    network.forward(x, algorithm);
    all += calls.emplace_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::ranges::sort(calls);
  return {calls.front(), calls[calls.size() / 2]};
}

Findings find(const CellDemo& demo) {
  const bool scans = find_cell(demo.cell).scan;
  Findings found;
  const Network small(demo, 2, 3);
  found.weights = small.weights();
  found.x = random_inputs(2, demo.seed);
  found.next = small.step_by_step(found.x, found.state);
  const Network network(demo, kCellInputs, demo.hidden);
  const std::vector<float> x = random_inputs(demo.steps * kCellInputs, demo.seed + 1);
  const std::vector<float> whole = network.forward(x, Algorithm::sequential);
  std::vector<float> state;
  found.largest_step_difference = largest_difference(network.step_by_step(x, state), whole);
  if (scans) found.largest_scan_difference = largest_difference(network.forward(x, Algorithm::scan), whole);
  for (Index steps = 64; steps <= 4096; steps *= 4) {
    const std::vector<float> longer = random_inputs(steps * kCellInputs, demo.seed + 1);
    found.times.push_back({steps, seconds_of(network, longer, Algorithm::sequential),
                           scans ? seconds_of(network, longer, Algorithm::scan) : Seconds()});
  }
  for (Index unit = 0; unit < std::min<Index>(3, demo.hidden); ++unit) {
    std::vector<float>& curve = found.outputs.emplace_back();
    for (Index t = 0; t < demo.steps; ++t) curve.push_back(whole[static_cast<std::size_t>(t * demo.hidden + unit)]);
  }
  return found;
}

std::string numbers(const std::vector<float>& values) {
  std::string text;
  for (const float value : values) text += fmt::format(" {:8.4f}", value);
  return text;
}

/// A curve as one line of `width` columns between the lowest and the highest value.
std::string curve_line(const std::vector<float>& values, std::size_t width) {
  static constexpr const char* blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr const char* letters[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
  const auto [least, most] = std::ranges::minmax(values);
  const float range = most > least ? most - least : 1.0f;
  std::string line;
  for (std::size_t i = 0; i < std::min(width, values.size()); ++i) {
    const std::size_t place = i * values.size() / std::min(width, values.size());
    const auto level = static_cast<std::size_t>(std::lround(7.0f * (values[place] - least) / range));
    line += speaks_utf8() ? blocks[level] : letters[level];
  }
  return fmt::format("{} {:.2f} to {:.2f}", line, least, most);
}

/// Returns whether equal calls, or the steps of longer calls, took so much longer that something else must have run.
bool was_busy(const std::vector<Time>& times) {
  const auto for_step = [](const Time& time) { return time.sequential.shortest / static_cast<double>(time.steps); };
  const double best = for_step(std::ranges::min(times, {}, for_step));
  const auto varies = [](const Seconds& seconds) { return seconds.median > 2.0 * seconds.shortest; };
  return std::ranges::any_of(times, [&](const Time& time) {
    return varies(time.sequential) || varies(time.scan) || for_step(time) > 3.0 * best;
  });
}

std::string times_text(const Findings& found, bool scans) {
  std::string text = fmt::format("  {:>6}  {:>12}{}\n", "steps", "sequential", scans ? "          scan" : "");
  for (const Time& time : found.times) {
    text += fmt::format("  {:>6}  {:>9.1f} us", time.steps, 1e6 * time.sequential.shortest);
    text += scans ? fmt::format("  {:>9.1f} us\n", 1e6 * time.scan.shortest) : "\n";
  }
  if (was_busy(found.times)) {
    text +=
        "  The machine is busy: equal steps took several times as long. Run the demo again while nothing else runs.\n";
  }
  return text;
}

std::string text_of(const CellDemo& demo, const Findings& found) {
  const Equations& equations = equations_of(demo.cell);
  const bool scans = find_cell(demo.cell).scan;
  std::string text = fmt::format("{}, {}\n\nEquations (biases are omitted, * is element by element)\n{}\n", demo.cell,
                                 equations.kind, equations.text);
  text += fmt::format("One step of a network with 2 inputs and 3 units, from a state of zeros\n  x {}\n  h'{}\n",
                      numbers(found.x), numbers(found.next));
  if (find_cell(demo.cell).states > 1) {
    text += fmt::format("  c'{}\n", numbers({found.state.end() - 3, found.state.end()}));
  }
  text += fmt::format("\nA sequence of {} with {} and {}\n  largest difference from single steps: {:.1e}\n",
                      counted(demo.steps, "step"), counted(kCellInputs, "input"), counted(demo.hidden, "unit"),
                      found.largest_step_difference);
  text += scans ? fmt::format("  largest difference of a scan over chunks: {:.1e}\n", found.largest_scan_difference)
                : "  a scan is impossible, because the gates read the state\n";
  text += fmt::format("\nTimes on {}\n{}", to_string(demo.execution.device), times_text(found, scans));
  text += fmt::format("\nOutputs of {} over the sequence\n", counted(static_cast<Index>(found.outputs.size()), "unit"));
  constexpr std::size_t width = 64;
  for (const std::vector<float>& curve : found.outputs) text += "  " + curve_line(curve, width) + "\n";
  return text;
}

Json json_of(const CellDemo& demo, const Findings& found) {
  const bool scans = find_cell(demo.cell).scan;
  const auto if_scans = [&](double value) { return scans ? Json(value) : Json(nullptr); };
  Json times = Json::array();
  for (const Time& time : found.times) {
    times.push_back(
        {{"steps", time.steps}, {"sequential", time.sequential.shortest}, {"scan", if_scans(time.scan.shortest)}});
  }
  return {{"cell", demo.cell},
          {"device", to_string(demo.execution.device)},
          {"hidden_size", demo.hidden},
          {"steps", demo.steps},
          {"equations", equations_of(demo.cell).text},
          {"step", {{"x", found.x}, {"h", found.next}, {"state", found.state}, {"weights", found.weights}}},
          {"difference_of_steps", found.largest_step_difference},
          {"difference_of_scan", if_scans(found.largest_scan_difference)},
          {"seconds", times},
          {"outputs", found.outputs}};
}

}  // namespace

std::vector<double> random_numbers(Index count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> numbers(static_cast<std::size_t>(count));
  for (double& number : numbers) number = static_cast<double>(random() >> 11) * 0x1p-52 - 1.0;
  return numbers;
}

const std::vector<std::string>& demo_cells() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Equations& each : all_equations) all.emplace_back(each.cell);
    return all;
  }();
  return names;
}

std::string run_cell_demo(const CellDemo& demo) {
  const Findings found = find(demo);
  return demo.json ? json_line(json_of(demo, found)) : text_of(demo, found);
}

}  // namespace penstock::cli
