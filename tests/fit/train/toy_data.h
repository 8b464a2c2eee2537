#pragma once

#include <fmt/ranges.h>

#include <functional>
#include <string>
#include <vector>

#include "base/random.h"
#include "nn/model/model_impl.h"
#include "penstock/data.h"
#include "penstock/error.h"
#include "penstock/train.h"

namespace penstock::test {

/// A short run on toy data.
inline TrainOptions steps(Index count) {
  TrainOptions options;
  options.max_steps = count;
  options.batch = 8;
  options.length = 24;
  options.learning_rate = 0.01;
  options.log_every = 0.0;
  options.execution.threads = 1;  // models this small only wait for each other on more
  return options;
}

inline std::vector<float> weights(const Model& model) {
  const auto values = model.impl().parameters->values();
  return {values.begin(), values.end()};
}

/// Tokens drawn anew for every batch; the label is the token two steps before, so that only memory helps. Unless told
/// otherwise, windows continue each other. `spoil` may change a batch by its number before it is handed out.
class CopyTask final : public Dataset {
 public:
  static constexpr Index vocabulary = 4;

  explicit CopyTask(std::uint64_t seed = 1) : random_(seed) {
    description_.task = Task::classify;
    description_.vocabulary = vocabulary;
    description_.labels.classes = {"a", "b", "c", "d"};
  }

  std::function<void(Index batch, Example& example)> spoil;
  std::function<void(Index batch)> before_validation;
  bool continues = true;

  const DataDescription& description() const override { return description_; }
  Index training_steps() const override { return 0; }
  void next(Index rows, Index steps, Example& example) override {
    fill(random_, rows, steps, continues && batches_ > 0, past_, example);
    if (spoil) spoil(batches_, example);
    ++batches_;
  }
  bool validation(Index i, Index rows, Index steps, Example& example) const override {
    if (before_validation) before_validation(i);
    if (i > 1) return false;
    Random random(99 + i);
    std::vector<std::int32_t> past;
    fill(random, rows, steps, false, past, example);
    return true;
  }
  std::string position() const override {
    return fmt::format("{} {} {}", batches_, fmt::join(random_.state(), " "), fmt::join(past_, " "));
  }
  void restore(const std::string& position) override {
    std::vector<std::uint64_t> numbers;
    for (std::size_t begin = 0; begin < position.size();) {
      std::size_t read = 0;
      numbers.push_back(std::stoull(position.substr(begin), &read));
      begin += read;
    }
    batches_ = static_cast<Index>(numbers.at(0));
    random_ = Random(Random::State{numbers.at(1), numbers.at(2), numbers.at(3), numbers.at(4)});
    past_.assign(numbers.begin() + 5, numbers.end());
  }

 private:
  /// `past` holds the last two tokens of every row.
  static void fill(Random& random, Index rows, Index steps, bool continues, std::vector<std::int32_t>& past,
                   Example& example) {
    example = {};
    example.rows = rows;
    example.steps = steps;
    example.continues = continues;
    if (!continues) past.assign(static_cast<std::size_t>(2 * rows), -1);
    for (Index b = 0; b < rows; ++b) {
      for (Index t = 0; t < steps; ++t) {
        const auto token = static_cast<std::int32_t>(random.below(vocabulary));
        example.tokens.push_back(token);
        example.labels.push_back(past[2 * b]);
        past[2 * b] = past[2 * b + 1];
        past[2 * b + 1] = token;
      }
    }
  }

  DataDescription description_;
  Random random_;
  Index batches_ = 0;
  std::vector<std::int32_t> past_;
};

/// Two numeric inputs; the target is their sum one step before. For what only numbers can do: NaN, infinity, huge
/// values.
class SumTask final : public Dataset {
 public:
  SumTask() {
    description_.task = Task::forecast;
    description_.inputs = {{"a", 0.0, 1.0}, {"b", 0.0, 1.0}};
    description_.targets = {{"sum", 0.0, 1.0}};
  }

  std::function<void(Index batch, Example& example)> spoil;

  const DataDescription& description() const override { return description_; }
  Index training_steps() const override { return 1000; }
  void next(Index rows, Index steps, Example& example) override {
    fill(random_, rows, steps, example);
    if (spoil) spoil(batches_, example);
    ++batches_;
  }
  bool validation(Index i, Index rows, Index steps, Example& example) const override {
    if (i > 0) return false;
    Random random(5);
    fill(random, rows, steps, example);
    return true;
  }
  std::string position() const override { return std::to_string(batches_); }
  void restore(const std::string&) override { throw Error(ErrorCode::unsupported, "not needed"); }

 private:
  static void fill(Random& random, Index rows, Index steps, Example& example) {
    example = {};
    example.rows = rows;
    example.steps = steps;
    for (Index b = 0; b < rows; ++b) {
      float sum = 0.0f;
      for (Index t = 0; t < steps; ++t) {
        const auto x = static_cast<float>(random.normal()), y = static_cast<float>(random.normal());
        example.features.insert(example.features.end(), {x, y});
        example.targets.push_back(sum);
        example.weights.push_back(t > 0 ? 1.0f : 0.0f);
        sum = x + y;
      }
    }
  }

  DataDescription description_;
  Random random_{3};
  Index batches_ = 0;
};

}  // namespace penstock::test
