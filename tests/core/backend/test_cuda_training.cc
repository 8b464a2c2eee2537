// Training steps and streams on a GPU besides the model: losses, the decision to take a step, the optimiser, and
// drawing tokens, against plain code in double. Skipped where there is no GPU.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "backend/cuda/driver/graph.h"
#include "backend/cuda/pointwise/loss.h"
#include "backend/cuda/pointwise/optimizer.h"
#include "backend/cuda/pointwise/sample.h"
#include "base/counter_random.h"
#include "support/gpu.h"

namespace penstock::cuda {
namespace {

using plan::Storage;
using test::close;
using test::Doubles;

constexpr double infinity = std::numeric_limits<double>::infinity();

class Training : public test::GpuTest {
 protected:
  LossSums sums_of(const Buffer& buffer) { return get<LossSums>(buffer).front(); }
};

TEST_P(Training, CrossEntropy) {
  struct Sizes {
    Index rows, classes;
  };
  for (const Sizes& sizes : {Sizes{5, 1}, Sizes{77, 256}, Sizes{3000, 257}, Sizes{9, 5003}, Sizes{3, 100'001},
                             Sizes{2, 100'000}, Sizes{0, 8}}) {
    for (const bool same_storage : {true, false}) {
      const Index rows = sizes.rows, classes = sizes.classes;
      SCOPED_TRACE(testing::Message() << rows << " x " << classes << (same_storage ? "" : ", f32 logits"));
      const Storage of_logits = same_storage ? storage : Storage::f32;
      Doubles logits = numbers(rows * classes, 6, of_logits);
      std::vector<std::int32_t> labels;
      for (Index r = 0; r < rows; ++r) {
        labels.push_back(r % 7 == 3 ? -1 : static_cast<std::int32_t>(random.below(classes)));
        if (r % 3 == 0 && labels[r] >= 0) logits[r * classes + labels[r]] = 8;  // some are right
      }
      const Loss spec{.rows = rows, .width = classes, .outputs = of_logits, .gradients = storage};
      const LossExecutable loss(device(), spec);
      const Buffer logits_gpu = put(logits, of_logits), labels_gpu = put(labels), scale = put(std::vector<float>{64});
      Buffer gradient = room(rows * classes, storage), sums = bytes(sizeof(LossSums));
      Buffer workspace = bytes(loss.workspace_bytes());
      LossCall call{.y = logits_gpu.address(), .labels = labels_gpu.address(), .gradient = gradient.address()};
      call.loss_scale = scale.address(), call.sums = sums.address();
      repeat([&] { loss.run(call, workspace.address(), stream->handle()); }, [&] { return sums_of(sums).sum; });

      const auto scored = std::count_if(labels.begin(), labels.end(), [](std::int32_t label) { return label >= 0; });
      double want_sum = 0;
      Index want_correct = 0;
      Doubles want(logits.size(), 0.0);
      for (Index r = 0; r < rows; ++r) {
        if (labels[r] < 0) continue;
        const auto begin = logits.begin() + r * classes;
        const double largest = *std::max_element(begin, begin + classes);
        double sum = 0;
        for (Index c = 0; c < classes; ++c) sum += std::exp(begin[c] - largest);
        want_sum += std::log(sum) + largest - begin[labels[r]];
        want_correct += begin[labels[r]] == largest ? 1 : 0;
        for (Index c = 0; c < classes; ++c) {
          const double softmax = std::exp(begin[c] - largest) / sum - (c == labels[r] ? 1 : 0);
          want[r * classes + c] = 64 * softmax / static_cast<double>(scored);
        }
      }
      const LossSums got = sums_of(sums);
      EXPECT_NEAR(got.sum, want_sum, allowed(classes, 0) * (1 + static_cast<double>(scored) * 20));
      EXPECT_EQ(got.scored, scored);
      EXPECT_EQ(got.weight, static_cast<double>(scored));
      EXPECT_EQ(got.correct, want_correct);
      EXPECT_EQ(got.broken, 0u);
      const double largest = scored > 0 ? 64 / static_cast<double>(scored) : 1;
      EXPECT_TRUE(close(get(gradient, storage), want, allowed(classes, 2) * 8, 1e-3 * largest));
    }
  }
}

TEST_P(Training, LossesOfBrokenOutputsSaySo) {
  for (const LossKind kind : {LossKind::cross_entropy, LossKind::mse, LossKind::mae}) {
    for (const double value : {infinity, -infinity, std::nan("")}) {
      Doubles y = numbers(12, 1, storage);
      y[7] = value;
      const Loss spec{.kind = kind, .rows = 3, .width = 4, .outputs = storage, .gradient = false};
      const LossExecutable loss(device(), spec);
      const Buffer y_gpu = put(y, storage), labels = put(std::vector<std::int32_t>{1, -1, 2});
      const Buffer ones = put(std::vector<float>(12, 1.0f));
      Buffer sums = bytes(sizeof(LossSums)), workspace = bytes(loss.workspace_bytes());
      LossCall call{.y = y_gpu.address(), .labels = labels.address(), .targets = ones.address()};
      call.weights = ones.address(), call.sums = sums.address();
      loss.run(call, workspace.address(), stream->handle());
      EXPECT_EQ(sums_of(sums).broken, unsigned{kBrokenOutput});
    }
  }
}

TEST_P(Training, RegressionLosses) {
  for (const auto& [rows, width] : {std::pair<Index, Index>{1, 1}, {77, 3}, {5000, 7}, {2, 3001}, {0, 3}}) {
    for (const bool squares : {true, false}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << width << (squares ? " mse" : " mae"));
      const Doubles y = numbers(rows * width, 2, storage);
      Doubles targets = numbers(rows * width, 2, Storage::f32), weights(y.size());
      for (std::size_t i = 0; i < y.size(); ++i) {
        weights[i] = i % 5 == 2 ? 0.0 : static_cast<float>(random.uniform());
        if (i % 10 == 2) targets[i] = std::nan("");  // not to be read
        if (i % 10 == 4) targets[i] = y[i];
      }
      const Loss spec{squares ? LossKind::mse : LossKind::mae, rows, width, storage, storage};
      const LossExecutable loss(device(), spec);
      Buffer y_gpu = put(y, storage);
      const Buffer targets_gpu = put(targets, Storage::f32), weights_gpu = put(weights, Storage::f32);
      Buffer gradient = room(rows * width, storage), sums = bytes(sizeof(LossSums));
      Buffer workspace = bytes(loss.workspace_bytes());
      LossCall call{.y = y_gpu.address(), .targets = targets_gpu.address(), .weights = weights_gpu.address()};
      call.gradient = gradient.address(), call.sums = sums.address();
      repeat([&] { loss.run(call, workspace.address(), stream->handle()); }, [&] { return sums_of(sums).sum; });
      double want_sum = 0, want_weight = 0;
      Index want_scored = 0;
      for (Index r = 0; r < rows; ++r) {
        double of_row = 0;
        for (Index c = 0; c < width; ++c) of_row += weights[r * width + c];
        want_weight += of_row, want_scored += of_row > 0 ? 1 : 0;
      }
      Doubles want(y.size(), 0.0);
      for (std::size_t i = 0; i < y.size(); ++i) {
        if (weights[i] == 0) continue;
        const double d = y[i] - targets[i];
        want_sum += weights[i] * (squares ? d * d : std::abs(d));
        want[i] = weights[i] * (squares ? 2 * d : d > 0 ? 1 : d < 0 ? -1 : 0) / want_weight;
      }
      const LossSums got = sums_of(sums);
      EXPECT_NEAR(got.sum, want_sum, 1e-12 * (1 + want_sum));
      EXPECT_NEAR(got.weight, want_weight, 1e-12 * (1 + want_weight));
      EXPECT_EQ(got.scored, want_scored);
      // f16 keeps fewer digits of gradients this small.
      const double smallest = storage == Storage::f16 ? 0x1p-25 / allowed(1, 2) : 0;
      EXPECT_TRUE(close(get(gradient, storage), want, allowed(1, 2), smallest));
    }
  }
}

TEST_P(Training, SumsOfSquaresAndWhatIsNotFinite) {
  for (const Index size : {0, 1, 5, 16'384, 16'385, 300'001}) {
    Doubles values = numbers(size, 3, Storage::f32);
    Buffer values_gpu = put(values, Storage::f32), result = bytes(24);
    const SquareRanges ranges{size / 9 / 4 * 4, size / 3 / 4 * 4, size / 2 / 4 * 4, size / 4 * 4};
    const SumSquaresExecutable squares(device(), size, ranges);
    Buffer workspace = bytes(squares.workspace_bytes());
    repeat([&] { squares.run(values_gpu.address(), result.address(), workspace.address(), stream->handle()); },
           [&] { return get<double>(result); });
    const auto want = static_cast<double>(std::inner_product(values.begin(), values.end(), values.begin(), 0.0L));
    const auto of_range = [&](Index begin, Index end) {
      return static_cast<double>(
          std::inner_product(values.begin() + begin, values.begin() + end, values.begin() + begin, 0.0L));
    };
    const double near = oracle::tolerance<double>({.summed = size}) * want;
    EXPECT_NEAR(get<double>(result)[0], want, near);
    EXPECT_NEAR(get<double>(result)[1], of_range(ranges.first_begin, ranges.first_end), near);
    EXPECT_NEAR(get<double>(result)[2], of_range(ranges.last_begin, ranges.last_end), near);
    const CheckFiniteExecutable check(device(), size, storage);
    for (const double last : {1.0, infinity, std::nan("")}) {
      Doubles some(values.size(), 1.0);
      if (size > 0) some.back() = last;
      const Buffer some_gpu = put(some, storage), flags = put(std::vector<std::uint32_t>{8});
      check.run(some_gpu.address(), flags.address(), 1, stream->handle());
      EXPECT_EQ(get<std::uint32_t>(flags)[0], size > 0 && !std::isfinite(last) ? 9u : 8u);
    }
  }
}

StepRules some_rules() {
  StepRules rules{};
  rules.learning_rate = 3e-3, rules.warmup = 0.1, rules.final_rate = 0.05, rules.max_steps = 100;
  rules.clip = 1, rules.weight_decay = 0.01, rules.beta1 = 0.9, rules.beta2 = 0.99, rules.seed = 77;
  rules.average = 0.8;
  rules.growth = 2, rules.backoff = 0.5, rules.least_scale = 1, rules.greatest_scale = 65536;
  return rules;
}

/// The learning rate by the definition of train/schedule.cc.
double wanted_rate(const StepRules& rules, double fraction) {
  if (fraction < rules.warmup) return rules.learning_rate * fraction / rules.warmup;
  const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * (fraction - rules.warmup) / (1 - rules.warmup)));
  return rules.learning_rate * (rules.final_rate + (1 - rules.final_rate) * cosine);
}

StepState fresh_state(float loss_scale = 1.0f) {
  StepState state{};
  state.loss_scale = loss_scale;
  return state;
}

class Steps : public Training {
 protected:
  /// One step whose batch came to this.
  StepState step(StepState state, const StepRules& rules, const LossSums& loss, double squares, unsigned broken = 0,
                 double time = 0) {
    const TrainingStepExecutable steps(device(), rules);
    Buffer state_gpu = put(std::vector<StepState>{state});
    const Buffer time_gpu = put(Doubles{time});
    steps.begin(state_gpu.address(), time_gpu.address(), stream->handle());
    state = get<StepState>(state_gpu)[0];
    state.loss = loss, state.gradient_squares = squares, state.broken |= broken;
    state_gpu = put(std::vector<StepState>{state});
    steps.decide(state_gpu.address(), stream->handle());
    return get<StepState>(state_gpu)[0];
  }
};

constexpr LossSums sound_loss{.sum = 30, .weight = 10, .scored = 10, .correct = 4, .gradient_scale = 0.1f, .broken = 0};

TEST_P(Steps, AreDecidedAsTheTrainerDoes) {
  const StepRules rules = some_rules();
  StepState state = fresh_state();
  for (Index i = 1; i <= 100; ++i) {
    const double time = i == 50 ? 0.9 : 0.0, squares = static_cast<double>(i % 5);
    const std::uint64_t seed = Random(rules.seed ^ (0x9e3779b97f4a7c15ULL * static_cast<std::uint64_t>(i))).bits();
    state = step(state, rules, sound_loss, squares, 0, time);
    const double rate = wanted_rate(rules, std::max(time, static_cast<double>(i) / 100)),
                 updates = static_cast<double>(i);
    EXPECT_NEAR(state.learning_rate, rate, 1e-15);
    EXPECT_EQ(state.dropout_seed, seed);
    EXPECT_EQ(state.apply, 1);
    EXPECT_EQ(state.keep, 1);
    const double norm = std::sqrt(squares);
    EXPECT_DOUBLE_EQ(state.gradient_norm, norm);
    EXPECT_DOUBLE_EQ(state.clipped_norm, std::min(norm, 1.0));
    EXPECT_FLOAT_EQ(state.gradient_factor, static_cast<float>(norm > 1 ? 1 / norm : 1.0));
    EXPECT_FLOAT_EQ(state.rate, static_cast<float>(rate / (1 - std::pow(0.9, updates))));
    EXPECT_FLOAT_EQ(state.root_correction, static_cast<float>(1 / std::sqrt(1 - std::pow(0.99, updates))));
    EXPECT_FLOAT_EQ(state.decay_factor, static_cast<float>(1 - rate * 0.01));
    EXPECT_FLOAT_EQ(state.average_rest, static_cast<float>(1 - std::min(0.8, (1 + updates) / (10 + updates))));
  }
  EXPECT_EQ(state.step, 100);
  EXPECT_EQ(state.updates, 100);
  EXPECT_EQ(state.scored, 1000);
  EXPECT_EQ(state.total.scored, 1000);
  EXPECT_EQ(state.total.correct, 400);
  EXPECT_DOUBLE_EQ(state.total.sum, 3000);
  EXPECT_EQ(state.skipped, 0);
}

TEST_P(Steps, EndByScoredPositionsToo) {
  StepRules rules = some_rules();
  rules.max_steps = 0, rules.max_scored = 40;
  StepState state = fresh_state();
  for (const double fraction : {0.0, 0.25, 0.5, 0.75, 1.0, 1.0}) {
    state = step(state, rules, sound_loss, 1);
    EXPECT_NEAR(state.learning_rate, wanted_rate(rules, fraction), 1e-15);
  }
}

TEST_P(Steps, AreSkippedWithTheirReason) {
  const StepRules rules = some_rules();
  LossSums broken_output = sound_loss, broken_loss = sound_loss, empty{};
  broken_output.broken = kBrokenOutput, broken_loss.sum = infinity;
  StepState state = step(fresh_state(), rules, sound_loss, 1);
  const auto expect_skipped = [&](const StepState& next, unsigned why, Index in_a_row) {
    EXPECT_EQ(next.apply, 0);
    EXPECT_EQ(next.keep, 0);
    EXPECT_EQ(next.updates, state.updates);
    EXPECT_EQ(next.skipped, state.skipped + 1);
    EXPECT_EQ(next.skipped_in_a_row, in_a_row);
    EXPECT_EQ(next.last_skipped, next.step);
    EXPECT_EQ(next.last_broken, why);
    EXPECT_EQ(next.total.scored, state.total.scored);
    EXPECT_EQ(next.scored, state.scored + 10);
    state = next;
  };
  expect_skipped(step(state, rules, broken_output, 1), kBrokenOutput, 1);
  expect_skipped(step(state, rules, sound_loss, 1, kBrokenOutput), kBrokenOutput, 2);
  expect_skipped(step(state, rules, broken_loss, 1), kBrokenLoss, 3);
  expect_skipped(step(state, rules, sound_loss, std::nan("")), kBrokenGradient, 4);
  expect_skipped(step(state, rules, sound_loss, 4e38), kBrokenGradient, 5);
  state = step(state, rules, sound_loss, 3e38);
  EXPECT_EQ(state.apply, 1);
  EXPECT_EQ(state.skipped_in_a_row, 0);
  state = step(state, rules, empty, infinity);  // nothing scored: there is no gradient to look at
  EXPECT_EQ(state.apply, 0);
  EXPECT_EQ(state.keep, 1);
  EXPECT_EQ(state.skipped, 5);
}

TEST_P(Steps, MoveTheLossScale) {
  StepRules rules = some_rules();
  rules.growth_steps = 3, rules.least_scale = 16;
  StepState state = step(fresh_state(64), rules, sound_loss, 64 * 64 * 4.0);
  EXPECT_DOUBLE_EQ(state.gradient_norm, 2);
  EXPECT_FLOAT_EQ(state.gradient_factor, 1.0f / 128);
  state = step(state, rules, sound_loss, infinity);
  EXPECT_EQ(state.apply, 0);
  EXPECT_EQ(state.keep, 1) << "the forward pass was sound";
  EXPECT_EQ(state.loss_scale, 32);
  EXPECT_EQ(state.rescaled, 1);
  EXPECT_EQ(state.skipped, 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(state.loss_scale, 32);
    state = step(state, rules, sound_loss, 1);
  }
  EXPECT_EQ(state.loss_scale, 64) << "after as many good steps in a row";
  for (int i = 0; i < 2; ++i) state = step(state, rules, sound_loss, infinity);
  EXPECT_EQ(state.loss_scale, 16);
  state = step(state, rules, sound_loss, infinity);
  EXPECT_EQ(state.loss_scale, 16);
  EXPECT_EQ(state.skipped, 1) << "it can be lowered no further";
}

TEST_P(Training, OptimizersUpdateTheStore) {
  // Tensors begin at multiples of 16, as the store lays them out; what lies between stays.
  const std::vector<OptimizerTensor> tensors = {
      {0, 20'001, true}, {20'016, 7, false}, {20'032, 1, true}, {20'048, 64, false}};
  constexpr Index size = 20'112;
  for (const bool adam : {true, false}) {
    OptimizerSpec spec{.kind = adam ? OptimizerKind::adamw : OptimizerKind::sgd, .storage = storage};
    const OptimizerExecutable optimizer(device(), spec, tensors);
    Doubles values = numbers(size, 1, Storage::f32), first = numbers(size, 0.1, Storage::f32), second(first.size());
    const Doubles gradients = numbers(size, 1, Storage::f32);
    for (double& value : second) value = static_cast<float>(0.1 * random.uniform());
    StepState state = fresh_state();
    state.apply = 1;
    state.gradient_factor = 0.5f, state.rate = 0.01f, state.root_correction = 1.5f, state.decay_factor = 0.9f;
    const Buffer ranges = put(optimizer.ranges()), gradients_gpu = put(gradients, Storage::f32);
    Buffer values_gpu = put(values, Storage::f32), first_gpu = put(first, Storage::f32);
    Buffer second_gpu = put(second, Storage::f32), copy = room(size, storage);
    copy.fill(0);
    for (const int apply : {0, 1}) {
      state.apply = apply;
      const Buffer state_gpu = put(std::vector<StepState>{state});
      OptimizerCall call{state_gpu.address(), ranges.address(), gradients_gpu.address(), values_gpu.address()};
      call.first = first_gpu.address(), call.second = adam ? second_gpu.address() : 0, call.copy = copy.address();
      optimizer.run(call, stream->handle());
      if (apply == 0) {
        EXPECT_EQ(get(values_gpu, Storage::f32), values) << "only where the decision says so";
      }
    }
    Doubles want_copy(values.size(), 0.0);
    for (const OptimizerTensor& tensor : tensors) {
      for (Index i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
        const double g = gradients[i] * 0.5, keep = tensor.decay ? double{0.9f} : 1;
        first[i] = adam ? 0.9 * first[i] + 0.1 * g : 0.9 * first[i] + g;
        second[i] = adam ? 0.99 * second[i] + 0.01 * g * g : second[i];
        const double step = adam ? first[i] / (std::sqrt(second[i]) * 1.5 + 1e-8) : first[i];
        values[i] = keep * values[i] - double{0.01f} * step;
        want_copy[i] = values[i];
      }
    }
    EXPECT_TRUE(close(get(values_gpu, Storage::f32), values, allowed(1, 0), 1.0));
    EXPECT_TRUE(close(get(first_gpu, Storage::f32), first, allowed(1, 0), 1.0));
    EXPECT_TRUE(close(get(second_gpu, Storage::f32), second, allowed(1, 0), 1.0));
    EXPECT_TRUE(close(get(copy, storage), want_copy, allowed(1, 1), 1.0));
  }
}

/// penstock::sample() by its definition.
std::int32_t wanted_token(const Doubles& logits, const Sample& spec, double random) {
  std::vector<std::int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  std::stable_sort(tokens.begin(), tokens.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
  if (spec.temperature == 0) return tokens[0];
  if (spec.top_k > 0) tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(spec.top_k)));
  Doubles weights;
  for (const auto token : tokens) weights.push_back(std::exp((logits[token] - logits[tokens[0]]) / spec.temperature));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double kept = 0;
  std::size_t count = 0;
  while (count < weights.size() && (count == 0 || kept < spec.top_p * total)) kept += weights[count++];
  double left = random * kept;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    left -= weights[i];
    if (left < 0) return tokens[i];
  }
  return tokens[count - 1];
}

TEST_P(Training, TokensAreDrawnAsOnTheHost) {
  struct Case {
    Index streams, classes;
    double temperature;
    Index top_k;
    double top_p;
  };
  for (const auto& [streams, classes, temperature, top_k, top_p] :
       {Case{300, 256, 0.8, 0, 0.95}, Case{20, 256, 0, 0, 1}, Case{50, 1, 1, 0, 0.5}, Case{40, 300, 1.3, 5, 1},
        Case{20, 2048, 1, 0, 0.9}, Case{6, 5000, 2, 0, 1}, Case{3, 100'003, 1, 1000, 0.99}}) {
    SCOPED_TRACE(testing::Message() << streams << " x " << classes << ", temperature " << temperature);
    const Sample spec{streams, classes, storage, temperature, top_k, top_p};
    const Index stride = classes + 3;
    Doubles logits;
    for (Index i = 0; i < streams * stride; ++i) logits.push_back(test::rounded(2 * random.normal(), storage));
    std::vector<std::uint64_t> keys, counters;
    for (Index s = 0; s < streams; ++s) {
      keys.push_back(counter_random::key_of(123, static_cast<std::uint64_t>(s)));
      counters.push_back(static_cast<std::uint64_t>(s % 4));
    }
    const Buffer logits_gpu = put(logits, storage), keys_gpu = put(keys);
    Buffer counters_gpu = put(counters), tokens = bytes(static_cast<std::size_t>(4 * streams));
    Buffer history = bytes(static_cast<std::size_t>(4 * streams * 5));
    const SampleExecutable sample(device(), spec);
    Buffer workspace = bytes(sample.workspace_bytes());
    SampleCall call{logits_gpu.address(), stride, keys_gpu.address(), counters_gpu.address(), tokens.address()};
    call.history = history.address(), call.history_length = 5;
    for (std::uint64_t draw = 0; draw < 2; ++draw) {
      sample.run(call, workspace.address(), stream->handle());
      const std::vector<std::int32_t> got = get<std::int32_t>(tokens), kept = get<std::int32_t>(history);
      for (Index s = 0; s < streams; ++s) {
        const Doubles row(logits.begin() + s * stride, logits.begin() + s * stride + classes);
        const double uniform = counter_random::uniform(keys[s], counters[s] + draw);
        ASSERT_EQ(got[s], wanted_token(row, spec, uniform)) << "stream " << s << ", draw " << draw;
        ASSERT_EQ(kept[s * 5 + static_cast<Index>(counters[s] + draw)], got[s]);
      }
    }
  }
}

TEST_P(Training, TokensOfBrokenLogitsAreNone) {
  const Buffer logits = put(Doubles{1, infinity, 0, 1, 2, 3}, storage), keys = put(std::vector<std::uint64_t>{1, 2});
  Buffer counters = put(std::vector<std::uint64_t>{0, 0}), tokens = bytes(8);
  SampleExecutable(device(), {2, 3, storage})
      .run({logits.address(), 3, keys.address(), counters.address(), tokens.address()}, 0, stream->handle());
  EXPECT_EQ(get<std::int32_t>(tokens)[0], -1);
  EXPECT_GE(get<std::int32_t>(tokens)[1], 0);
  EXPECT_EQ(get<std::uint64_t>(counters), (std::vector<std::uint64_t>{1, 1}));
}

const auto name_of = [](const auto& param) { return std::string(to_string(param.param)); };
INSTANTIATE_TEST_SUITE_P(Cuda, Training, testing::Values(Storage::f32, Storage::bf16, Storage::f16), name_of);
INSTANTIATE_TEST_SUITE_P(Cuda, Steps, testing::Values(Storage::f32), name_of);

}  // namespace
}  // namespace penstock::cuda
