#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/timing.h"
#include "bench/contenders/contender.h"
#include "penstock/recurrent.h"

namespace penstock::bench {

/// One of ours on a CPU whose call is all steps of all rows: a layer or a scan, forward or training.
class WholeSequences : public Contender {
 public:
  Answers<float> check() override {
    if (!training()) {
      forward();
      return last();
    }
    train(problem_.masked_dy());
    Answers<float> answers = last();
    answers.gradients = gradients();
    return answers;
  }

  std::vector<double> sample(double seconds) override {
    if (training())
      return time_calls(
          seconds, [&] { train(problem_.dy); }, problem_.test.each_call);
    return time_calls(
        seconds, [&] { forward(); }, problem_.test.each_call);
  }

 protected:
  WholeSequences(const Problem& problem, const Execution& execution) : problem_(problem), execution_(execution) {}

  virtual void forward() = 0;
  /// Forward, then back from dy [B, T, H].
  virtual void train(const std::vector<float>& dy) = 0;
  /// Returns the gradients of weights or terms that train() left, by name.
  virtual std::vector<std::pair<std::string, std::vector<float>>> gradients() = 0;

  const Problem& problem() const { return problem_; }
  const Execution& execution() const { return execution_; }
  bool training() const { return problem_.test.pass == Pass::training; }
  const Shape& shape() const { return problem_.test.shape; }
  Batch batch() const { return {.rows = shape().rows, .steps = shape().steps}; }
  /// Returns a view of data [B, T, channels].
  template <class Real>
  SequenceView<Real> view(Real* data, Index channels) const {
    return SequenceView<Real>::batch_first(data, shape().steps, channels);
  }
  std::size_t values(Index channels) const { return static_cast<std::size_t>(shape().rows * shape().steps * channels); }

 private:
  const Problem& problem_;
  Execution execution_;
};

}  // namespace penstock::bench
