// Whole models on a GPU: what they compute and learn is what the CPU does, in every type. Needs a GPU.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cuda/driver/device.h"
#include "backend/cuda/driver/driver.h"
#include "backend/cuda/driver/kernel.h"
#include "base/random.h"
#include "nn/model/model_impl.h"
#include "penstock/train.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "toy_data.h"

namespace penstock {
namespace {

using test::CopyTask;
using test::SumTask;
using test::weights;

class OnGpu : public testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    if (!cuda::driver_complaint().empty()) GTEST_SKIP() << cuda::driver_complaint();
  }
  Execution gpu() const { return {.precision = GetParam(), .device = Device::cuda()}; }
  /// How much a number may be off that is the sum of many of the type's: a generous part of the largest.
  double roundings() const {
    return GetParam() == Precision::full ? 1e-5 : GetParam() == Precision::bf16 ? 0.05 : 0.01;
  }
};

ModelSpec full_spec(const char* cell) {
  return {
      .cell = cell, .width = 40, .blocks = 2, .hidden_size = 48, .convolution = 3, .feed_forward = 1.5, .dropout = 0.1};
}

double largest(const std::vector<float>& values) {
  double most = 0.0;
  for (const float value : values) most = std::max(most, std::abs(static_cast<double>(value)));
  return most;
}

void expect_close(const std::vector<float>& got, const std::vector<float>& want, double allowed,
                  const std::string& of) {
  ASSERT_EQ(got.size(), want.size());
  double worst = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    worst = std::max(worst, std::isfinite(error) ? error : INFINITY);
  }
  EXPECT_LE(worst, allowed * largest(want)) << of;
}

TEST_P(OnGpu, OneBlockTrainsWhoseOutputsAreNoMultipleOfFour) {
  SumTask data;  // one output
  Model model({.cell = "gru", .width = 8, .blocks = 1}, data.description(), 1);
  TrainOptions options = test::steps(2);
  options.execution = gpu();
  EXPECT_EQ(train(model, data, options).last.step, 2);
}

TEST_P(OnGpu, ForwardIsTheCpus) {
  for (const char* cell : {"mingru", "mingru-log", "minlstm", "minlstm-log", "elman", "gru", "lstm", "slstm"}) {
    DataDescription data;
    data.task = Task::language;
    data.vocabulary = 300;
    const Model model(full_spec(cell), data, 3);
    constexpr Index rows = 3, steps = 37;
    Random random(4);
    std::vector<std::int32_t> tokens(rows * steps);
    for (auto& token : tokens) token = static_cast<std::int32_t>(random.below(300));
    std::vector<float> want(rows * steps * 300), got(want.size()), again(want.size());
    ModelState host = model.state(rows), device = model.state(rows), third = model.state(rows);
    model.forward(rows, steps, tokens, want, host);
    model.forward(rows, steps, tokens, got, device, gpu());
    model.forward(rows, steps, tokens, again, third, gpu());
    expect_close(got, want, roundings(), cell);
    expect_close(device.values, host.values, roundings(), cell);
    EXPECT_EQ(got, again) << cell;
    // On from the state.
    model.forward(rows, steps, tokens, want, host);
    model.forward(rows, steps, tokens, got, device, gpu());
    expect_close(got, want, roundings(), cell);
  }
}

TEST_P(OnGpu, ForecastsFromTheLastValueAreTheCpus) {
  SumTask data;
  DataDescription description = data.description();
  description.targets = {description.inputs.front()};
  constexpr Index rows = 2, steps = 21;
  Random random(4);
  std::vector<float> features(static_cast<std::size_t>(rows * steps * description.input_size()));
  for (float& value : features) value = static_cast<float>(random.normal());
  std::vector<float> want(static_cast<std::size_t>(rows * steps * description.output_size())), got(want.size());
  for (const bool end_norms : {true, false}) {
    SCOPED_TRACE(end_norms ? "all norms" : "norms between layers");
    ModelSpec spec = full_spec("mingru");
    spec.from_last = true;
    spec.end_norms = end_norms;
    const Model model(spec, description, 3);
    ModelState host = model.state(rows), device = model.state(rows);
    model.forward(rows, steps, features, want, host);
    model.forward(rows, steps, features, got, device, gpu());
    expect_close(got, want, roundings(), "outputs");
    expect_close(device.values, host.values, roundings(), "state");
  }
}

/// Inputs of a file, the first of which are forecast.
DataDescription series(Index inputs, Index targets, Index horizon) {
  DataDescription data;
  data.task = Task::forecast;
  for (Index i = 0; i < inputs; ++i) {
    const auto by = static_cast<double>(i);
    data.inputs.push_back({"x" + std::to_string(i), 0.3 * by, 1.0 + 0.5 * by});
  }
  data.targets.assign(data.inputs.begin(), data.inputs.begin() + targets);
  data.series.horizon = horizon;
  return data;
}

DataDescription labelled(Index inputs) {
  DataDescription data = series(inputs, 0, 1);
  data.task = Task::classify;
  data.labels.classes = {"a", "b", "c"};
  return data;
}

/// Fitted layers begin with zeros, which say nothing.
Model with_random_weights(const ModelSpec& spec, const DataDescription& data) {
  Model model(spec, data, 3);
  Random random(8);
  for (const nn::ParameterEntry& entry : model.impl().parameters->layout().entries()) {
    const ClosedFormBranchFields fixed = spec.branch_fields();
    const auto taps = static_cast<double>(fixed.lags + fixed.filters + 16);
    for (float& value : model.impl().parameters->value(entry)) {
      if (value == 0.0f) value = static_cast<float>(random.normal() / std::sqrt(taps));
    }
  }
  model.impl().parameters->changed();
  return model;
}

/// Models as `penstock train` builds them: states of odd sizes follow each other in memory.
TEST_P(OnGpu, ModelsOfFilesAreTheCpus) {
  struct Case {
    const char* name;
    ModelSpec spec;
    DataDescription data;
  };
  const std::vector<Case> cases = {
      {"a column, lags of a season",
       {.cell = "mingru", .width = 64, .from_last = true, .branch = closed_form_branch({.lags = 287})},
       series(1, 1, 48)},
      {"a column, few lags",
       {.cell = "gru", .width = 17, .convolution = 4, .from_last = true, .branch = closed_form_branch({.lags = 6})},
       series(1, 1, 1)},
      {"columns",
       {.cell = "minlstm",
        .width = 20,
        .convolution = 3,
        .from_last = true,
        .branch = closed_form_branch({.lags = 50})},
       series(5, 3, 7)},
      {"no change", {.cell = "lstm", .width = 64, .feed_forward = 1.5}, series(3, 1, 12)},
      {"linear alone",
       {.cell = "mingru", .width = 8, .blocks = 1, .from_last = true, .branch = closed_form_branch({.lags = 1})},
       series(1, 1, 3)},
      {"labels",
       {.cell = "gru", .width = 64, .branch = closed_form_branch({.filters = 100, .dilations = 6})},
       labelled(1)},
      {"labels of columns",
       {.cell = "mingru", .width = 19, .branch = closed_form_branch({.filters = 22, .dilations = 3})},
       labelled(3)},
      {"filters alone",
       {.cell = "gru", .width = 64, .blocks = 0, .branch = closed_form_branch({.filters = 44, .dilations = 5})},
       labelled(2)}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Model model = with_random_weights(c.spec, c.data);
    for (const Index rows : {1, 3}) {
      constexpr Index steps = 61;
      Random random(4);
      std::vector<float> features(static_cast<std::size_t>(rows * steps * c.data.input_size()));
      for (float& value : features) value = static_cast<float>(random.normal());
      std::vector<float> want(static_cast<std::size_t>(rows * steps * c.data.output_size())), got(want.size());
      ModelState host = model.state(rows), device = model.state(rows);
      for (int call = 0; call < 2; ++call) {  // the second goes on from the state
        model.forward(rows, steps, features, want, host);
        model.forward(rows, steps, features, got, device, gpu());
        expect_close(got, want, roundings(), "outputs");
        expect_close(device.values, host.values, roundings(), "state");
      }
      model.forward(rows, 1, std::span(features).first(static_cast<std::size_t>(rows * c.data.input_size())),
                    std::span(want).first(static_cast<std::size_t>(rows * c.data.output_size())), host);
      model.forward(rows, 1, std::span(features).first(static_cast<std::size_t>(rows * c.data.input_size())),
                    std::span(got).first(static_cast<std::size_t>(rows * c.data.output_size())), device, gpu());
      expect_close(got, want, roundings(), "outputs of one more step");
    }
  }
}

TrainOptions plain_steps(Index count) {
  TrainOptions options;
  options.max_steps = count;
  options.batch = 8;
  options.length = 24;
  options.optimizer = Optimizer::sgd;  // whose steps are as exact as the gradients
  options.learning_rate = 0.05;
  options.log_every = 0.0;
  return options;
}

template <class Task>
void expect_same_training(const ModelSpec& spec, const Execution& gpu, double allowed) {
  const auto trained = [&](const Execution& execution, double* loss) {
    Task data;
    Model model(spec, data.description(), 1);
    TrainOptions options = plain_steps(5);
    options.execution = execution;
    const TrainResult result = train(model, data, options);
    *loss = result.validation->loss;
    return weights(model);
  };
  Task data;
  const std::vector<float> before = weights(Model(spec, data.description(), 1));
  double host_loss = 0.0, gpu_loss = 0.0, again_loss = 0.0;
  std::vector<float> host = trained({.threads = 1}, &host_loss), device = trained(gpu, &gpu_loss);
  EXPECT_EQ(trained(gpu, &again_loss), device) << "other bits in a second run";
  for (std::size_t i = 0; i < before.size(); ++i) host[i] -= before[i], device[i] -= before[i];
  EXPECT_GT(largest(host), 1e-3);
  expect_close(device, host, allowed, "steps of the weights");
  EXPECT_NEAR(gpu_loss, host_loss, allowed * std::abs(host_loss));
}

TEST_P(OnGpu, TrainingIsTheCpus) {
  const double allowed = 10 * roundings();  // five steps, each of which goes on from the errors of those before
  for (const char* cell : {"mingru", "minlstm-log", "gru", "lstm", "slstm"}) {
    SCOPED_TRACE(cell);
    expect_same_training<CopyTask>(full_spec(cell), gpu(), allowed);
    expect_same_training<SumTask>(full_spec(cell), gpu(), allowed);
    ModelSpec plain = full_spec(cell);
    plain.end_norms = false;
    plain.convolution = 0;
    expect_same_training<SumTask>(plain, gpu(), allowed);
  }
}

TEST_P(OnGpu, Learns) {
  CopyTask data;
  Model model({.cell = "mingru", .width = 32, .blocks = 2, .convolution = 2}, data.description(), 1);
  TrainOptions options = plain_steps(200);
  options.optimizer = Optimizer::adamw;
  options.learning_rate = 0.01;
  options.execution = gpu();
  const TrainResult result = train(model, data, options);
  EXPECT_LT(result.validation->loss, 0.1);
  EXPECT_EQ(result.last.step, 200);
  EXPECT_EQ(result.last.skipped, 0);
}

TEST_P(OnGpu, MoreStepsAllocateNothingMoreAndWaitForNothingMore) {
  struct Counts {
    unsigned long long allocations, synchronizations, launches;
    bool operator==(const Counts&) const = default;
  };
  const auto counted = [&](Index steps) {
    const Counts before{cuda::MemoryPool::allocations(), cuda::Stream::synchronizations(), cuda::Kernel::launches()};
    CopyTask data;
    Model model(full_spec("mingru"), data.description(), 1);
    TrainOptions options = plain_steps(steps);  // each of which is reported
    options.validation_batches = 1;
    options.execution = gpu();
    train(model, data, options);
    return Counts{cuda::MemoryPool::allocations() - before.allocations,
                  cuda::Stream::synchronizations() - before.synchronizations,
                  cuda::Kernel::launches() - before.launches};
  };
  counted(10);  // which loads what every run needs
  const Counts few = counted(10), many = counted(60);
  EXPECT_EQ(many.allocations, few.allocations);
  EXPECT_EQ(many.synchronizations, few.synchronizations);
  EXPECT_EQ(many.launches, few.launches) << "beside the one recording";
}

/// The weights of a run that begins anew or goes on from its checkpoint, and ends early after so many polls.
std::vector<float> trained_on(const TrainOptions& options, bool resume, int polls = 1000) {
  CopyTask data(resume ? 77 : 1);  // everything must come from the file
  Model model(full_spec("lstm"), data.description(), resume ? 5 : 1);
  TrainCallbacks callbacks;
  callbacks.stop = [&] { return --polls <= 0; };
  const TrainResult result = train(model, data, options, callbacks, resume);
  EXPECT_EQ(result.interrupted, polls <= 0);
  return weights(model);
}

TEST_P(OnGpu, AResumedRunEndsInTheSameBits) {
  const test::TemporaryFolder folder;
  TrainOptions options = plain_steps(20);
  options.optimizer = Optimizer::adamw;
  options.execution = gpu();
  const std::vector<float> whole = trained_on(options, false);
  options.checkpoint_path = folder.path("run.safetensors");
  for (const int cut : {1, 7, 15}) {
    trained_on(options, false, cut);
    EXPECT_EQ(trained_on(options, true), whole) << "cut at " << cut;
  }
}

TEST_P(OnGpu, CheckpointsCrossDevices) {
  const test::TemporaryFolder folder;
  const double allowed = 10 * roundings();  // as of five steps on one device
  CopyTask data;
  const std::vector<float> before = weights(Model(full_spec("lstm"), data.description(), 1));
  const auto steps_of = [&](std::vector<float> values) {
    for (std::size_t i = 0; i < before.size(); ++i) values[i] -= before[i];
    return values;
  };
  TrainOptions options = plain_steps(5);
  const Execution host{.threads = 1};
  options.execution = host;
  const std::vector<float> want = steps_of(trained_on(options, false));
  EXPECT_GT(largest(want), 1e-3);
  for (const auto& [first, then] : {std::pair(host, gpu()), std::pair(gpu(), host)}) {
    options.checkpoint_path = folder.path(first.device.is_cuda() ? "gpu.safetensors" : "cpu.safetensors");
    options.execution = first;
    trained_on(options, false, 2);
    options.execution = then;
    expect_close(steps_of(trained_on(options, true)), want, allowed, "goes on on " + to_string(then.device));
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, OnGpu, testing::Values(Precision::full, Precision::bf16, Precision::f16),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

TEST(CudaModels, SayWhatTheyDoNotHave) {
  DataDescription data;
  data.task = Task::language;
  data.vocabulary = 5;
  const Model model({.width = 8}, data, 3);
  std::vector<float> y(5);
  ModelState state = model.state(1);
  const std::vector<std::int32_t> tokens = {1};
  if (!cuda::driver_complaint().empty()) {
    EXPECT_THROW(model.forward(1, 1, tokens, y, state, {.device = Device::cuda()}), Error);
    return;
  }
  test::expect_error(ErrorCode::unsupported, "bf16-weights", [&] {
    model.forward(1, 1, tokens, y, state, {.precision = Precision::bf16_weights, .device = Device::cuda()});
  });
  test::expect_error(ErrorCode::invalid_argument, "device",
                     [&] { model.forward(1, 1, tokens, y, state, {.device = Device::cuda(99)}); });
}

}  // namespace
}  // namespace penstock
