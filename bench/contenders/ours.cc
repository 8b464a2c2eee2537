// Penstock's own layers as contenders, through the public interface.

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "base/timing.h"
#include "bench/contenders/contender.h"
#include "bench/contenders/rows.h"
#include "bench/contenders/whole_sequences.h"
#include "bench/suite/scan.h"
#include "penstock/recurrent.h"

namespace penstock::bench {
namespace {

Precision precision_of(const Problem& problem) {
  return problem.test.dtype == "f32" ? Precision::full : parse_precision(problem.test.dtype);
}

/// A layer from x to y, both in the host's memory; on a GPU they are copied there and back.
class Layer : public WholeSequences {
 public:
  Layer(const std::string& name, const Problem& problem, Algorithm algorithm, Device device = Device::cpu())
      : WholeSequences(problem,
                       {.threads = problem.test.threads, .algorithm = algorithm, .precision = precision_of(problem)}),
        layer_(make_layer(problem, problem.weights_for(name))),
        y_(values(shape().hidden)),
        dx_(training() ? values(shape().inputs) : 0) {
    if (!device.is_cuda()) return;
    stream_.emplace(device);
    layer_.move_to(*stream_);
  }

  Answers<float> last() override {
    Answers<float> answers{.y = compared_rows(problem(), y_, shape().hidden), .dx = {}, .gradients = {}};
    if (training()) answers.dx = compared_rows(problem(), dx_, shape().inputs);
    return answers;
  }

 private:
  void forward() override { forward(nullptr); }
  void forward(RecurrentTape<float>* tape) {
    layer_.forward(batch(), view(problem().x.data(), shape().inputs), view(y_.data(), shape().hidden), nullptr, nullptr,
                   tape, execution());
  }
  void train(const std::vector<float>& dy) override {
    layer_.zero_gradients();
    forward(&tape_);
    layer_.backward(batch(), view(problem().x.data(), shape().inputs), view(dy.data(), shape().hidden), nullptr,
                    view(dx_.data(), shape().inputs), nullptr, tape_, execution());
  }
  std::vector<std::pair<std::string, std::vector<float>>> gradients() override {
    std::vector<std::pair<std::string, std::vector<float>>> all;
    for (const auto& parameter : layer_.parameters()) {
      Index size = 1;
      for (const Index extent : parameter.shape) size *= extent;
      std::vector<float> gradient(static_cast<std::size_t>(size));
      layer_.read_gradient(parameter.name, gradient);
      all.emplace_back(parameter.name, std::move(gradient));
    }
    return all;
  }

  std::optional<Stream> stream_;  // a GPU's
  Recurrent<float> layer_;
  std::vector<float> y_, dx_;  // [B, T, H], [B, T, I]
  RecurrentTape<float> tape_;
};

/// The loop that people write when all they have is a cell: one call for every step, sequences time first.
class Loop : public Contender {
 public:
  Loop(const std::string& name, const Problem& problem)
      : problem_(problem),
        layer_(make_layer(problem, problem.weights_for(name))),
        x_(time_first(problem.test.shape, problem.x, problem.test.shape.inputs)),
        y_(x_.size() / problem.test.shape.inputs * problem.test.shape.hidden),
        state_(layer_.state_size() * problem.test.shape.rows) {}

  Answers<float> check() override {
    run();
    return last();
  }
  Answers<float> last() override {
    return {.y = compared_rows(problem_, y_, problem_.test.shape.hidden, true), .dx = {}, .gradients = {}};
  }
  std::vector<double> sample(double seconds) override {
    return time_calls(
        seconds, [&] { run(); }, problem_.test.each_call);
  }

 private:
  void run() {
    const auto& [rows, steps, inputs, hidden, heads] = problem_.test.shape;
    std::ranges::fill(state_, 0.0f);
    for (Index t = 0; t < steps; ++t) {
      layer_.step(rows, &x_[t * rows * inputs], &y_[t * rows * hidden], state_.data(),
                  {.threads = problem_.test.threads, .precision = precision_of(problem_)});
    }
  }

  const Problem& problem_;
  Recurrent<float> layer_;
  std::vector<float> x_, y_;  // [T, B, I], [T, B, H]
  std::vector<float> state_;  // [S, B, H]
};

/// A stream: one call a step, the state carried on for as long as the clock runs; the head is the caller's.
class StepByStep : public Contender {
 public:
  StepByStep(const std::string& name, const Problem& problem)
      : problem_(problem),
        weights_(problem.weights_for(name)),
        layer_(make_layer(problem, weights_)),
        execution_{.threads = problem.test.threads, .precision = precision_of(problem)},
        y_(problem.test.shape.rows * problem.test.shape.hidden),
        answer_(problem.test.shape.rows),
        state_(layer_.state_size() * problem.test.shape.rows),
        x_(time_first(problem.test.shape, problem.x, problem.test.shape.inputs)) {}

  Answers<float> check() override {
    std::ranges::fill(state_, 0.0f);
    std::vector<float> all;
    for (next_ = 0; next_ < problem_.test.shape.steps;) {
      step();
      for (Index b = 0; b < problem_.test.shape.rows; ++b) {
        const auto h = y_.begin() + b * problem_.test.shape.hidden;
        all.insert(all.end(), h, h + problem_.test.shape.hidden);
        if (problem_.test.has_head()) all.push_back(answer_[b]);
      }
    }
    return {.y = compared_rows(problem_, all, problem_.test.compared(), true), .dx = {}, .gradients = {}};
  }
  Answers<float> last() override { return check(); }
  std::vector<double> sample(double seconds) override {
    return time_calls(seconds, [&] {
      if (next_ == problem_.test.shape.steps) next_ = 0;
      step();
    });
  }

 private:
  void step() {
    const auto& [rows, steps, inputs, hidden, heads] = problem_.test.shape;
    layer_.step(rows, &x_[next_++ * rows * inputs], y_.data(), state_.data(), execution_);
    for (Index b = 0; problem_.test.has_head() && b < rows; ++b) answer_[b] = through_head(&y_[b * hidden]);
  }

  /// One value from h [H]. Partial sums as wide as a vector, so that the compiler may use one.
  float through_head(const float* h) const {
    constexpr std::size_t lanes = 16;
    const std::vector<float>&weight = weights_.end()[-2].values, &bias = weights_.end()[-1].values;
    float sums[lanes] = {};
    std::size_t j = 0;
    for (; j + lanes <= weight.size(); j += lanes) {
      for (std::size_t k = 0; k < lanes; ++k) sums[k] += h[j + k] * weight[j + k];
    }
    for (std::size_t half = lanes / 2; half > 0; half /= 2) {
      for (std::size_t k = 0; k < half; ++k) sums[k] += sums[k + half];
    }
    float total = bias[0] + sums[0];
    for (; j < weight.size(); ++j) total += h[j] * weight[j];
    return total;
  }

  const Problem& problem_;
  std::vector<Array> weights_;
  Recurrent<float> layer_;
  Execution execution_;
  std::vector<float> y_, answer_, state_;  // [B, H], [B], [S, B, H]
  std::vector<float> x_;                   // [T, B, I]
  Index next_ = 0;
};

}  // namespace

Recurrent<float> make_layer(const Problem& problem, const std::vector<Array>& weights) {
  RecurrentSpec spec{
      .cell = problem.test.cell, .input_size = problem.test.shape.inputs, .hidden_size = problem.test.shape.hidden};
  spec.heads = problem.test.shape.heads;
  Recurrent<float> layer(spec);
  for (auto& parameter : layer.parameters()) {
    const auto same = std::ranges::find(weights, parameter.name, &Array::name);
    if (same == weights.end()) throw std::logic_error("no values for " + parameter.name);
    std::ranges::copy(same->values, parameter.value.begin());
  }
  layer.weights_changed();
  return layer;
}

bool is_ours(const std::string& name) { return name.starts_with("penstock"); }

std::unique_ptr<Contender> make_ours(const std::string& name, const Problem& problem) {
  if (is_bare_scan(problem.test.cell)) {
    if (problem.test.dtype != "f32") throw NotOffered{"scans in f32 only"};
    return make_our_scan(name, problem);
  }
  const bool scan_cell = find_cell(problem.test.cell).scan;
  if (problem.test.pass == Pass::step) {
    if (name != "penstock") throw NotOffered{"is for whole sequences"};
    return std::make_unique<StepByStep>(name, problem);
  }
  if (name == "penstock" || name == "penstock-cpu") {
    return std::make_unique<Layer>(name, problem, Algorithm::automatic);
  }
  if (name == "penstock-copied") {
    if (problem.test.dtype != "f32") throw NotOffered{"copies floats"};
    return std::make_unique<Layer>(name, problem, Algorithm::automatic, Device::cuda());
  }
  if (name == "penstock-sequential" || name == "penstock-cpu-sequential")
    return std::make_unique<Layer>(name, problem, Algorithm::sequential);
  if (name == "penstock-scan" || name == "penstock-cpu-scan") {
    if (!scan_cell) throw NotOffered{"is for scan cells"};
    return std::make_unique<Layer>(name, problem, Algorithm::scan);
  }
  if (name != "penstock-loop") throw std::logic_error("no way through a case is called " + name);
  if (problem.test.pass != Pass::forward) throw NotOffered{"runs forwards only"};
  return std::make_unique<Loop>(name, problem);
}

}  // namespace penstock::bench
