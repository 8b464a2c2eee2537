#include "bench/suite/scan.h"

#include <algorithm>
#include <cmath>

#include "bench/contenders/rows.h"
#include "bench/contenders/whole_sequences.h"
#include "oracle/scan.h"
#include "penstock/scan.h"

namespace penstock::bench {
namespace {

bool is_logarithmic(const Case& test) { return test.cell == "scan-log"; }

/// One channel of one row, of an array [B, T, C].
std::vector<double> channel_of(const Shape& shape, const std::vector<float>& all, Index row, Index channel) {
  std::vector<double> values;
  for (Index t = 0; t < shape.steps; ++t) values.push_back(all[(row * shape.steps + t) * shape.hidden + channel]);
  return values;
}

/// Penstock's scan as a contender.
class OurScan : public WholeSequences {
 public:
  OurScan(const std::string& name, const Problem& problem, Algorithm algorithm)
      : WholeSequences(problem, {.threads = problem.test.threads, .algorithm = algorithm}),
        terms_(problem.weights_for(name)),
        scan_(shape().hidden, is_logarithmic(problem.test) ? ScanForm::logarithmic : ScanForm::linear),
        h_(values(shape().hidden)),
        da_(training() ? h_.size() : 0),
        db_(da_.size()) {}

  Answers<float> last() override { return {.y = rows_of(h_), .dx = {}, .gradients = {}}; }

 private:
  std::vector<float> rows_of(const std::vector<float>& all) const {
    return compared_rows(problem(), all, shape().hidden);
  }
  template <class Real>
  SequenceView<Real> channels(Real* data) const {
    return view(data, shape().hidden);
  }
  Scan<float>::Terms terms() const {
    return {.a = channels<const float>(terms_[0].values.data()),
            .b = channels<const float>(terms_[1].values.data()),
            .factor = {}};
  }

  void forward() override { scan_.forward(batch(), terms(), channels(h_.data()), nullptr, nullptr, execution()); }
  void train(const std::vector<float>& dh) override {
    forward();
    scan_.backward(batch(), terms(), channels<const float>(h_.data()), nullptr, channels(dh.data()), nullptr,
                   {.a = channels(da_.data()), .b = channels(db_.data()), .factor = {}}, nullptr, execution());
  }
  std::vector<std::pair<std::string, std::vector<float>>> gradients() override {
    return {{"a", rows_of(da_)}, {"b", rows_of(db_)}};
  }

  std::vector<Array> terms_;
  Scan<float> scan_;
  std::vector<float> h_, da_, db_;  // [B, T, C]
};

}  // namespace

std::vector<Array> draw_terms(const Case& test, Random& random) {
  const std::vector<Index> shape = {test.shape.rows, test.shape.steps, test.shape.hidden};
  std::vector<Array> terms = {{"a", shape, {}}, {"b", shape, {}}};
  const auto count = static_cast<std::size_t>(shape[0] * shape[1] * shape[2]);
  for (Array& term : terms) {
    term.values.resize(count);
    // Everything from forgetting at once to keeping for long; additions of either sign where the form has signs.
    for (float& value : term.values) {
      const double positive = 1.0 - random.uniform();
      value = static_cast<float>(is_logarithmic(test) ? std::log(positive)
                                 : term.name == "a"   ? positive
                                                      : 2.0 * positive - 1.0);
    }
  }
  return terms;
}

double scan_memory_needed(const Case& test, double shares) {
  const double count = static_cast<double>(test.shape.rows) * static_cast<double>(test.shape.steps) *
                       static_cast<double>(test.shape.hidden);
  const double arrays = test.pass == Pass::training ? 8.0 : 3.0;  // terms and h; dh, its masked copy, gradients, room
  return sizeof(float) * count * arrays * shares + 200.0 * static_cast<double>(test.shape.steps);
}

Answers<double> solve_scan(const Problem& problem) {
  const Shape& shape = problem.test.shape;
  const bool logarithmic = is_logarithmic(problem.test), training = problem.test.pass == Pass::training;
  const auto function = [&](const auto& a, const auto& b) {
    return logarithmic ? oracle::logarithmic_scan(a, b) : oracle::scan(a, b);
  };
  const std::size_t row_size = static_cast<std::size_t>(shape.steps * shape.hidden);
  std::vector<double> y(problem.rows.size() * row_size), da(training ? y.size() : 0), db(da.size());
  for (std::size_t r = 0; r < problem.rows.size(); ++r) {
    for (Index c = 0; c < shape.hidden; ++c) {
      const auto put = [&](std::vector<double>& all, const std::vector<double>& channel) {
        for (Index t = 0; t < shape.steps; ++t) all[r * row_size + t * shape.hidden + c] = channel[t];
      };
      const std::vector<double> a = channel_of(shape, problem.weights[0].values, problem.rows[r], c);
      const std::vector<double> b = channel_of(shape, problem.weights[1].values, problem.rows[r], c);
      put(y, function(a, b));
      if (!training) continue;
      const auto gradients = oracle::scan_gradients(function, a, b, channel_of(shape, problem.dy, problem.rows[r], c));
      put(da, gradients.first);
      put(db, gradients.second);
    }
  }
  Answers<double> answers{.y = std::move(y), .dx = {}, .gradients = {}};
  if (training) answers.gradients = {{"a", std::move(da)}, {"b", std::move(db)}};
  return answers;
}

std::unique_ptr<Contender> make_our_scan(const std::string& name, const Problem& problem) {
  if (name == "penstock") return std::make_unique<OurScan>(name, problem, Algorithm::automatic);
  if (name == "penstock-sequential") return std::make_unique<OurScan>(name, problem, Algorithm::sequential);
  if (name == "penstock-scan") return std::make_unique<OurScan>(name, problem, Algorithm::scan);
  throw NotOffered{"is for layers"};
}

}  // namespace penstock::bench
