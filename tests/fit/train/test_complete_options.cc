// Options of a run that a caller leaves open follow from the data, the device and a checkpoint.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "penstock/data.h"
#include "penstock/train.h"
#include "penstock/train/fine_tune.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

class Complete : public testing::Test {
 protected:
  /// A random walk in the column x and noise in the column y, with a linear forecast of x.
  std::unique_ptr<Dataset> series(Index rows, double held_out = 0.2) {
    std::string text = "x,y\n";
    Random random(5);
    double value = 0.0;
    for (Index i = 0; i < rows; ++i) text += fmt::format("{:.6f},{:.6f}\n", value += random.normal(), random.normal());
    return open_series(folder_.write("series.csv", text), {.inputs = {"x"},
                                                           .targets = {"x"},
                                                           .validation_fraction = held_out,
                                                           .from_last = true,
                                                           .autoregression = true});
  }
  std::unique_ptr<Dataset> labelled(Index count) {
    std::string text = "sequence,label,x\n";
    for (Index i = 0; i < 4 * count; ++i) text += fmt::format("{},{},{}\n", i / 4, i / 4 % 2 == 0 ? "a" : "b", i % 7);
    return open_labelled(folder_.write("labelled.csv", text), {});
  }
  static void refuses(const std::string& message, Dataset& data, const FitRequest& request,
                      ErrorCode code = ErrorCode::invalid_argument) {
    test::expect_error(code, message, [&] { complete(data, request); });
  }

  test::TemporaryFolder folder_;
};

TEST_F(Complete, AnEmptyRequestIsWhatSuitsTheData) {
  const auto data = series(1100);
  const TrainOptions suggested = suggest_options(*data);
  FitRequest request;
  request.train.batch = 1;
  request.train.clip = 0.5;
  request.train.seed = 3;
  const FitPlan plan = complete(*data, request);
  EXPECT_EQ(plan.options.max_steps, suggested.max_steps);
  EXPECT_EQ(plan.options.batch, suggested.batch) << "what depends on the data is not read from FitRequest::train";
  EXPECT_EQ(plan.options.patience, suggested.patience);
  EXPECT_EQ(plan.options.keep_best, suggested.keep_best);
  EXPECT_EQ(plan.options.clip, 0.5);
  EXPECT_EQ(plan.options.seed, 3u);
  EXPECT_TRUE(plan.sized);
  EXPECT_TRUE(plan.trains_layers());
}

TEST_F(Complete, AGpuGetsItsOwnDefaults) {
  const auto data = open_text(folder_.write("text", std::string(1'100'000, 'a')));
  FitRequest request;
  EXPECT_EQ(complete(*data, request).options.batch, 16);
  request.train.execution.device = Device::cuda();
  EXPECT_EQ(complete(*data, request).options.batch, 64);
  request.batch = 5;
  request.precision = Precision::full;
  const TrainOptions options = complete(*data, request).options;
  EXPECT_EQ(options.batch, 5);
  EXPECT_EQ(options.execution.precision, Precision::full);
  EXPECT_EQ(options.execution.device, Device::cuda());
}

TEST_F(Complete, OneLimitThatIsGivenIsTheOnlyOne) {
  const auto data = series(1100);
  const TrainOptions options = complete(*data, {.max_seconds = 5.0}).options;
  EXPECT_EQ(options.max_steps, 0);
  EXPECT_EQ(options.max_seconds, 5.0);
  EXPECT_GT(options.patience, 0);
  const std::string zero = "max_steps, max_seconds or max_epochs must be above 0";
  refuses(zero, *data, {.max_steps = 0});
  refuses(zero, *data, {.max_steps = 0, .max_seconds = 0.0});
  EXPECT_EQ(complete(*data, {.max_steps = 0, .max_epochs = 2.0}).options.max_epochs, 2.0);
}

TEST_F(Complete, WithoutValidationsNothingEndsARun) {
  const auto data = series(1100);
  EXPECT_EQ(complete(*data, {.validate_steps = 0}).options.patience, 0);
  EXPECT_EQ(complete(*data, {.validate_steps = 7, .patience = 3}).options.patience, 3);
  const TrainOptions blind = complete(*series(1100, 0.0), {}).options;
  EXPECT_EQ(blind.validate_steps, 0);
  EXPECT_EQ(blind.patience, 0);
  EXPECT_FALSE(blind.keep_best);
}

TEST_F(Complete, ARunWithoutAHoldOutSetKeepsItsLastWeights) {
  const auto data = series(300, 0.0);
  ModelSpec spec{.cell = "gru", .width = 8, .blocks = 1, .from_last = true};
  use_linear_forecast(spec, *data);
  Model model = new_model(spec, *data, 1);
  TrainOptions options = complete(*data, {.max_steps = 60, .batch = 4, .length = 16}).options;
  options.validate_steps = 2;
  options.keep_best = true;
  const TrainResult result = train(model, *data, options);
  EXPECT_EQ(result.model_step, 60);
  EXPECT_FALSE(result.stopped_early);
}

TEST_F(Complete, LayersAreTrainedWhereTheyMayCountOrAreAskedFor) {
  const auto few = series(200);
  EXPECT_TRUE(complete(*few, {}).linear_alone);
  EXPECT_TRUE(complete(*few, {.precision = Precision::full}).linear_alone);
  for (const FitRequest& request :
       {FitRequest{.max_steps = 3}, FitRequest{.learning_rate = 0.01}, FitRequest{.keep_best = false},
        FitRequest{.seeds = 2}, FitRequest{.layers = true}, FitRequest{.continues = true}}) {
    EXPECT_FALSE(complete(*few, request).linear_alone);
  }
  EXPECT_FALSE(complete(*few, {.max_steps = 3}).filters_alone) << "of labelled sequences only";
  const auto sequences = labelled(40);
  EXPECT_TRUE(complete(*sequences, {.max_steps = 3}).filters_alone);
  EXPECT_FALSE(complete(*sequences, {.filters = false}).filters_alone);
  EXPECT_FALSE(complete(*labelled(200), {}).filters_alone);
}

TEST_F(Complete, FineTuningHasASmallerRateThanTraining) {
  const auto data = series(1100);
  EXPECT_EQ(complete(*data, {}).options.learning_rate, TrainOptions().learning_rate);
  EXPECT_EQ(complete(*data, {.continues = true}).options.learning_rate, fine_tuning_rate);
  const FitPlan plan = complete(*data, {.learning_rate = 0.1, .continues = true});
  EXPECT_EQ(plan.options.learning_rate, 0.1);
}

TEST_F(Complete, ARunContinuesFromWhatThereIs) {
  const auto data = series(1100);
  const std::string path = folder_.path("c");
  FitRequest request{.max_steps = 2, .batch = 3, .resume = true};
  request.train.checkpoint_path = path;
  refuses("there is no checkpoint " + path, *data, request, ErrorCode::io_failure);
  ModelSpec spec{.cell = "gru", .width = 8, .blocks = 1, .from_last = true};
  use_linear_forecast(spec, *data);
  Model model = new_model(spec, *data, 1);
  request.resume = false;
  train(model, *data, complete(*data, request).options);
  request.resume = true;
  request.batch.reset();
  const FitPlan plan = complete(*data, request);
  EXPECT_TRUE(plan.resume);
  EXPECT_EQ(plan.options.batch, 3) << "as in the first run";
  request.train.checkpoint_path.clear();
  refuses("resume needs checkpoint_path", *data, request);
}

TEST_F(Complete, ContradictionsAreRefused) {
  const auto data = series(1100);
  const std::string initial = "leave out initial_weights and chrono";
  refuses(initial, *data, {.continues = true, .initial = {.weights = InitialWeights::orthogonal}});
  refuses("seeds must be at least 1, not 0", *data, {.seeds = 0});
}

TEST_F(Complete, TheDeviceIsChosenForTrainingOnly) {
  const auto data = series(1100);
  const ModelSpec spec = suggest_spec(*data);
  FitPlan plan = complete(*data, {});
  EXPECT_EQ(resolve_device(plan, spec, *data), "");
  const std::string before = data->position();
  FitPlan open = complete(*data, {.automatic = true});
  EXPECT_NE(resolve_device(open, spec, *data), "");
  EXPECT_EQ(resolve_device(open, spec, *data), "") << "once it is chosen";
  EXPECT_EQ(data->position(), before);
  FitPlan alone = complete(*series(200), {.automatic = true});
  EXPECT_EQ(resolve_device(alone, spec, *data), "");
}

}  // namespace
}  // namespace penstock
